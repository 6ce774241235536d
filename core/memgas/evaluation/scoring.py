"""What the baselines do with scores: bring texts to sessions, put scores on one scale, fuse, rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

RRF_K = 60.0


def max_per_session(scores: FloatArray, owners: NDArray[np.intp]) -> FloatArray:
    """Return the best score of each session's texts: `(..., n_sessions)`.

    Parameters
    ----------
    scores : (..., n_texts)
        One score a text.
    owners : (n_texts,)
        The session of each, ascending; each session has at least one text.
    """
    return np.maximum.reduceat(scores, _starts(owners), axis=-1)


def mean_per_session(vectors: FloatArray, owners: NDArray[np.intp]) -> FloatArray:
    """Return the mean of each session's vectors: `(n_sessions, n_dims)`. `owners` as in `max_per_session`."""
    means: FloatArray = np.add.reduceat(vectors, _starts(owners), axis=0) / np.bincount(owners)[:, None]
    return means


def _starts(owners: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.searchsorted(owners, np.arange(owners[-1] + 1))


def standardise(scores: FloatArray) -> FloatArray:
    """Return z-scores along the last axis; 0 where nothing varies: `(..., n_sessions)`."""
    spread = scores.std(axis=-1, keepdims=True)
    constant = spread <= 1e-12 * np.abs(scores).max(axis=-1, keepdims=True, initial=1e-300)
    centred = scores - scores.mean(axis=-1, keepdims=True)
    standardised: FloatArray = np.where(constant, 0.0, centred / np.where(constant, 1.0, spread))
    return standardised


def orders_of(scores: FloatArray) -> NDArray[np.intp]:
    """Return session indices, best first, ties to the earlier session: `(..., n_sessions)`."""
    return np.argsort(-scores, axis=-1, kind="stable")


def reciprocal_ranks(scores: FloatArray) -> FloatArray:
    """Return 1 / (60 + rank) of each session: `(..., n_sessions)`.

    References
    ----------
    .. [1] Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
       methods", SIGIR 2009.
    """
    orders = orders_of(scores)
    ranks = np.empty(orders.shape)
    np.put_along_axis(ranks, orders, np.broadcast_to(np.arange(1.0, scores.shape[-1] + 1), orders.shape), axis=-1)
    return 1.0 / (RRF_K + ranks)
