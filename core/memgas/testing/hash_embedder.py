"""An embedder for tests: no model, no surprises, and texts that share words are similar."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from memgas.lexical import tokenize
from memgas.models.calls import estimate_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray


class HashEmbedder:
    """Hash words and character triples into a vector: equal in every process, on every machine.

    Parameters
    ----------
    n_dims
        Width of the vectors. Unrelated texts have cosines of about `0 ± 1/√n_dims`.
    max_tokens
        What it claims to read at once; longer text is read all the same.
    name
        Name for messages.

    Attributes
    ----------
    n_calls
        Calls so far, of documents and of queries.
    n_texts
        Texts embedded so far.

    References
    ----------
    .. [1] K. Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML 2009.
    """

    is_thread_safe = True

    def __init__(self, n_dims: int = 64, *, max_tokens: int | None = None, name: str = "hash") -> None:
        self.n_dims = n_dims
        self.max_tokens = max_tokens
        self.name = name
        self.n_calls = 0
        self.n_texts = 0
        self._counting = threading.Lock()

    def __repr__(self) -> str:
        return f"HashEmbedder({self.n_dims})"

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: `(n_texts, n_dims)`, normalised; zero for an empty text."""
        self._count(len(texts))
        return np.array([self._embed(text) for text in texts], dtype=np.float32).reshape(len(texts), self.n_dims)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a question: `(n_dims,)`, as a document of the same words."""
        self._count(1)
        return self._embed(text).astype(np.float32)

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens."""
        return estimate_tokens(text)

    def _count(self, n_texts: int) -> None:
        with self._counting:
            self.n_calls += 1
            self.n_texts += n_texts

    def _embed(self, text: str) -> NDArray[np.float64]:
        sums = [0.0] * self.n_dims  # a number in an array is ten times as slow to add to
        folded = f" {' '.join(text.casefold().split())} "
        triples = (folded[i : i + 3] for i in range(max(1, len(folded) - 2))) if text else ()
        for features, share in ((Counter(tokenize(text)), 1.0), (Counter(triples), 0.2)):
            for feature, n in features.items():
                slot, sign = _slot(feature)
                sums[slot % self.n_dims] += sign * share * n**0.5
        vector = np.array(sums)
        norm = float(np.linalg.norm(vector))
        return vector / norm if norm else vector


@lru_cache(maxsize=65_536)
def _slot(feature: str) -> tuple[int, int]:
    """Return a place and a sign; not from `hash`, which differs between processes."""
    number = int.from_bytes(blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest(), "little")
    return number >> 1, 1 if number & 1 else -1
