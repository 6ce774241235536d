"""Texts -> vectors: each text once, long ones in windows, all in few calls of the embedder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memgas.protocols import Embedder
from memgas.units import split_windows


@dataclass(frozen=True, slots=True, eq=False)
class TextVectors:
    """What one text became.

    Attributes
    ----------
    vector : (n_dims,) float32
        Normalised; of a text in several windows, their normalised mean.
    windows : (n_windows, n_dims) float32
        Empty when the text was read whole.
    """

    vector: NDArray[np.float32]
    windows: NDArray[np.float32]


class VectorTable:
    """Vectors by text, for the length of one write.

    Parameters
    ----------
    embedder
        Returns normalised vectors.
    max_window_tokens
        Longest text embedded at once.
    """

    def __init__(self, embedder: Embedder, *, max_window_tokens: int) -> None:
        self._embedder = embedder
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
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
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
        vectors = self._embedder.embed_documents([self._windows_of(piece)[0] for piece in pieces])
        self._known[text] = TextVectors(self._pooled(vectors).vector, vectors[:0])

    def embed_truncated(self, texts: Iterable[str]) -> None:
        """Embed the start of each text only (the published code)."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
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
