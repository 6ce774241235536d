"""Embedders from a hub by sentence-transformers, such as the paper's MPNet and Contriever. They bring torch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from memgas.checks import clean_text
from memgas.extras import require_extra
from memgas.models.windows import embed_in_windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_N_SPECIAL = 2  # tokens of the frame
_UNLIMITED = 512  # where the model does not say what it reads
_PROBE = "How wide are you?"


class SentenceTransformersEmbedder:
    """A model of sentence-transformers, loaded at the first text; queries and documents get the prompts it was trained with.

    Parameters
    ----------
    model
        Its name on the hub, or a folder. The first use downloads it.
    device
        Such as `cpu` or `cuda`. None: what is there.
    batch_size
        Most texts at once.

    Raises
    ------
    MissingExtraError
        The extra `hub` is not installed.
    """

    is_thread_safe = True

    def __init__(
        self, model: str = "sentence-transformers/all-mpnet-base-v2", *, device: str | None = None, batch_size: int = 32
    ) -> None:
        require_extra("sentence_transformers", extra="hub", purpose="An embedder of sentence-transformers")
        self.name = model
        self._device = device
        self._batch_size = batch_size
        self._lock = threading.Lock()
        self._loaded: _Model | None = None
        self._n_dims: int | None = None

    def __repr__(self) -> str:
        return f"SentenceTransformersEmbedder({self.name!r})"

    @property
    def n_dims(self) -> int:
        """Width of the vectors, learnt from a first text: the package's own name for it has changed."""
        if self._n_dims is None:
            with self._lock:
                self._n_dims = self._model().encode_document([_PROBE], show_progress_bar=False).shape[1]
        return self._n_dims

    @property
    def max_tokens(self) -> int | None:
        """Tokens the model reads at once, its frame left out."""
        with self._lock:
            return (self._model().max_seq_length or _UNLIMITED) - _N_SPECIAL

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: `(n_texts, n_dims)`; a long one is the mean of its windows."""
        return embed_in_windows(
            [clean_text(text) for text in texts], embed=self._embed, n_dims=self.n_dims,
            max_tokens=self.max_tokens or _UNLIMITED, count_tokens=self.count_tokens, batch_size=self._batch_size,
        )  # fmt: skip

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a question: `(n_dims,)`; one that is too long is cut."""
        with self._lock:
            vectors = self._model().encode_query([clean_text(text)], show_progress_bar=False)
        vector: NDArray[np.float32] = np.asarray(vectors, np.float32)[0]
        return vector

    def count_tokens(self, text: str) -> int:
        """Count the tokens, frame left out."""
        with self._lock:
            return len(self._model().tokenizer.tokenize(clean_text(text)))

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        with self._lock:
            vectors = self._model().encode_document(
                texts, batch_size=self._batch_size, normalize_embeddings=True, show_progress_bar=False
            )  # fmt: skip
        return np.asarray(vectors, np.float32)

    def _model(self) -> _Model:
        """Return the model, loaded once; the lock is the caller's."""
        if self._loaded is None:
            from sentence_transformers import SentenceTransformer

            self._loaded = SentenceTransformer(self.name, device=self._device)
        return self._loaded


class _Tokenizer(Protocol):
    def tokenize(self, text: str) -> list[str]: ...


class _Model(Protocol):
    """What is used of `sentence_transformers.SentenceTransformer`."""

    max_seq_length: int | None
    tokenizer: _Tokenizer

    def encode_document(
        self, sentences: list[str], *, batch_size: int = 32, normalize_embeddings: bool = False, show_progress_bar: bool
    ) -> NDArray[np.float32]: ...

    def encode_query(self, sentences: list[str], *, show_progress_bar: bool) -> NDArray[np.float32]: ...
