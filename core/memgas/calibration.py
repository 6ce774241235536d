"""The score a user sees: absolute, in [0, 1], the same scale for every query, store and embedder."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memgas.fingerprint import Fingerprint

DENSE_MIDPOINT = 4.0
"""Spreads above the embedder's background at which the cosine alone is worth one half."""
DENSE_SLOPE = 1.0
LEXICAL_SHARE = 0.6
"""What the query's words are worth when all of them are there and the cosine says nothing."""


def absolute_scores(
    cosines: NDArray[np.float32], coverage: NDArray[np.float32], fingerprint: Fingerprint
) -> NDArray[np.float64]:
    """Return how sure each unit is to be about the query.

    `1 - (1 - d) (1 - .6 c²)`: d is a logistic of the cosine, counted in spreads of the embedder's background (its
    cosines between questions and texts that have nothing to do with each other) with one half at four spreads; c is the
    weighted share of the query's words that the unit holds.

    Parameters
    ----------
    cosines : (n_units,)
        To the query.
    coverage : (n_units,)
        In [0, 1].
    fingerprint
        Holds the background.

    Returns
    -------
    (n_units,) float64
        In [0, 1].
    """
    spreads = (cosines.astype(np.float64) - fingerprint.background_mean) / fingerprint.background_spread
    dense = 1.0 / (1.0 + np.exp(np.clip(-DENSE_SLOPE * (spreads - DENSE_MIDPOINT), -50, 50)))
    lexical = LEXICAL_SHARE * np.clip(coverage.astype(np.float64), 0, 1) ** 2
    return np.clip(1.0 - (1.0 - dense) * (1.0 - lexical), 0.0, 1.0)
