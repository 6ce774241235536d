"""Long text for models that must not be given it whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from memgas.units import split_windows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def embed_in_windows(
    texts: Sequence[str],
    *,
    embed: Callable[[list[str]], NDArray[np.float32]],
    n_dims: int,
    max_tokens: int,
    count_tokens: Callable[[str], int],
    batch_size: int,
) -> NDArray[np.float32]:
    """Embed texts of any length: one that is too long becomes the normalised mean of its windows.

    Returns
    -------
    (n_texts, n_dims) float32
        Normalised.
    """
    pieces = [split_windows(text, max_tokens=max_tokens, count_tokens=count_tokens) for text in texts]
    flat = [piece for windows in pieces for piece in windows]
    if not flat:
        return np.zeros((0, n_dims), dtype=np.float32)
    vectors = np.concatenate([embed(flat[start : start + batch_size]) for start in range(0, len(flat), batch_size)])
    if len(flat) > len(texts):
        starts = np.cumsum([0, *map(len, pieces[:-1])])
        vectors = np.add.reduceat(vectors, starts, axis=0)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors
