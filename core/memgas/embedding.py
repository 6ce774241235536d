"""Texts -> vectors: each text once, long ones in windows, all in few calls of the embedder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memgas.errors import EmbedderError
from memgas.protocols import Embedder
from memgas.units import split_windows

_log = logging.getLogger("memgas")


@dataclass(frozen=True, slots=True, eq=False)
class TextVectors:
    """What one text became.

    Attributes
    ----------
    vector : (n_dims,) float32
        Normalised; of a text in several windows, their normalised mean.
    windows : (n_windows, n_dims) float32
        Empty when the text was read whole.
    is_owed
        The embedder could not be reached: the vector is zero and the text is to be embedded again.
    """

    vector: NDArray[np.float32]
    windows: NDArray[np.float32]
    is_owed: bool = False

    @property
    def n_windows(self) -> int:
        """Into how many windows the text was cut; 0 while it is owed."""
        return 0 if self.is_owed else max(1, len(self.windows))


class VectorTable:
    """Vectors by text, for the length of one write.

    Parameters
    ----------
    embedder
        Returns normalised vectors.
    max_window_tokens
        Longest text embedded at once.
    may_owe
        Whether a failing embedder leaves zero vectors, told in the log, instead of an error: what is written to forget
        something must not wait for a model.
    """

    def __init__(self, embedder: Embedder, *, max_window_tokens: int, may_owe: bool = False) -> None:
        self._embedder = embedder
        self._may_owe = may_owe
        self._is_silent = False
        limit = embedder.max_tokens
        self._max_tokens = max_window_tokens if limit is None else min(limit, max_window_tokens)
        self._known: dict[str, TextVectors] = {"": self._pooled(np.zeros((1, embedder.n_dims), np.float32))}

    @property
    def n_dims(self) -> int:
        """Width of the vectors."""
        return self._embedder.n_dims

    def know(self, text: str, vector: NDArray[np.float32], windows: NDArray[np.float32]) -> None:
        """Take over what was embedded before."""
        self._known[text] = TextVectors(vector, windows)

    def embed(self, texts: Iterable[str]) -> None:
        """Embed what is not known yet, in one call of the embedder."""
        self._attempt([text for text in dict.fromkeys(texts) if text not in self._known], self._embed)

    def _attempt(self, fresh: Sequence[str], embed: Callable[[Sequence[str]], None]) -> None:
        """Embed texts; where that fails and may be owed, owe them."""
        try:
            if self._is_silent and fresh:
                raise EmbedderError("the embedder failed a moment ago")
            embed(fresh)
        except EmbedderError as error:
            if not self._may_owe:
                raise
            self._is_silent = True  # asking again could mean another wait
            _log.warning(
                "%d text(s) could not be embedded: what is stored of them is without a vector until `repair()`: %s",
                len(fresh),
                type(error).__name__,
            )
            zero = np.zeros(self.n_dims, np.float32)
            self._known |= {text: TextVectors(zero, zero[None][:0], is_owed=True) for text in fresh}

    def _embed(self, fresh: Sequence[str]) -> None:
        pieces = [self._windows_of(text) for text in fresh]
        flat = [piece for windows in pieces for piece in windows]
        if not flat:
            return
        vectors = self._embedder.embed_documents(flat)
        start = 0
        for text, windows in zip(fresh, pieces, strict=True):
            self._known[text] = self._pooled(vectors[start : start + len(windows)])
            start += len(windows)

    def embed_pooled(self, text: str, pieces: Sequence[str]) -> None:
        """Let a text's vector be the mean of given pieces', each cut at the embedder's limit (the published code)."""

        def embed(fresh: Sequence[str]) -> None:
            vectors = self._embedder.embed_documents([self._windows_of(piece)[0] for piece in pieces])
            self._known |= {text: TextVectors(self._pooled(vectors).vector, vectors[:0]) for text in fresh}

        self._attempt([text], embed)

    def embed_truncated(self, texts: Iterable[str]) -> None:
        """Embed the start of each text only (the published code)."""
        self._attempt([text for text in dict.fromkeys(texts) if text not in self._known], self._embed_starts)

    def _embed_starts(self, fresh: Sequence[str]) -> None:
        if fresh:
            vectors = self._embedder.embed_documents([self._windows_of(text)[0] for text in fresh])
            for row, text in enumerate(fresh):
                self._known[text] = self._pooled(vectors[row : row + 1])

    def __getitem__(self, text: str) -> TextVectors:
        return self._known[text]

    def _windows_of(self, text: str) -> list[str]:
        return split_windows(text, max_tokens=self._max_tokens, count_tokens=self._embedder.count_tokens)

    @staticmethod
    def _pooled(vectors: NDArray[np.float32]) -> TextVectors:
        if len(vectors) == 1:
            return TextVectors(vectors[0], vectors[:0])
        mean = vectors.mean(axis=0)
        norm = float(np.linalg.norm(mean))
        return TextVectors((mean / norm if norm else mean).astype(np.float32), vectors)
