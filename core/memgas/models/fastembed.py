"""Embedders from a hub by FastEmbed: quantised models on onnxruntime, without torch."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from memgas.checks import clean_text
from memgas.extras import require_extra
from memgas.models.calls import estimate_tokens
from memgas.models.windows import embed_in_windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_N_SPECIAL = 2  # tokens of the frame


class FastEmbedEmbedder:
    """A model of FastEmbed, loaded at the first text; queries and passages get the prefixes it was trained with.

    Parameters
    ----------
    model
        One of `fastembed.TextEmbedding.list_supported_models()`. The first use downloads it.
    max_tokens
        What it reads at once; FastEmbed does not say, and cuts what is longer.
    batch_size
        Most texts at once.

    Raises
    ------
    MissingExtraError
        The extra `hub` is not installed.
    """

    is_thread_safe = True

    def __init__(self, model: str = "BAAI/bge-small-en-v1.5", *, max_tokens: int = 512, batch_size: int = 32) -> None:
        require_extra("fastembed", extra="hub", purpose="An embedder of FastEmbed")
        self.name = model
        self.max_tokens: int | None = max_tokens - _N_SPECIAL
        self._batch_size = batch_size
        self._lock = threading.Lock()
        self._loaded: _Model | None = None

    def __repr__(self) -> str:
        return f"FastEmbedEmbedder({self.name!r})"

    @property
    def n_dims(self) -> int:
        """Width of the vectors."""
        with self._lock:
            return self._model().embedding_size

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: `(n_texts, n_dims)`; a long one is the mean of its windows."""
        return embed_in_windows(
            [clean_text(text) for text in texts], embed=self._embed, n_dims=self.n_dims,
            max_tokens=self.max_tokens or 0, count_tokens=self.count_tokens, batch_size=self._batch_size,
        )  # fmt: skip

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a question: `(n_dims,)`; one that is too long is cut."""
        with self._lock:
            vector: NDArray[np.float32] = _stacked(self._model().query_embed([clean_text(text)]))[0]
        return vector

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens: FastEmbed's own count stops at what the model reads, so that nothing would seem too long."""
        return estimate_tokens(text)

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        with self._lock:
            vectors = _stacked(self._model().passage_embed(texts, batch_size=self._batch_size))
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        normalised: NDArray[np.float32] = vectors / np.maximum(norms, 1e-12)
        return normalised

    def _model(self) -> _Model:
        """Return the model, loaded once; the lock is the caller's."""
        if self._loaded is None:
            from fastembed import TextEmbedding

            self._loaded = TextEmbedding(self.name)
        return self._loaded


class _Model(Protocol):
    """What is used of `fastembed.TextEmbedding`."""

    embedding_size: int

    def passage_embed(self, texts: list[str], *, batch_size: int) -> Iterable[NDArray[np.float32]]: ...

    def query_embed(self, query: list[str]) -> Iterable[NDArray[np.float32]]: ...


def _stacked(vectors: Iterable[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.asarray(list(vectors), dtype=np.float32)
