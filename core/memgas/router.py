"""Similarities -> a weight for each granularity, by entropy: a granularity that is sure of few units counts for more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Rule = Literal["entropy", "normalised_entropy", "uniform"]


def entropy_weights(
    similarities: Sequence[NDArray[np.floating]], *, temperature: float, floor: float, rule: Rule
) -> tuple[FloatArray, FloatArray]:
    """Weigh granularities by how sharply their similarities single out a few units.

    Parameters
    ----------
    similarities : n_granularities arrays (n_units_g,)
        To the query, finite; empty where a granularity has no units.
    temperature
        λ of the softmax, above 0.
    floor
        ε, above 0: least entropy (`entropy`), or what is added to it (`normalised_entropy`).
    rule
        `entropy`: 1 / max(H, ε). `normalised_entropy`: 1 / (ε + H / log n). `uniform`: equal weights.

    Returns
    -------
    entropies : (n_granularities,) float64
        H in nats; NaN where there are fewer than 2 units: one unit is no distribution to judge.
    weights : (n_granularities,) float64
        Sum to 1. Empty: 0. One unit: the mean weight of those that can be judged; equal weights if none can. All 0 when
        there are no units at all.

    Notes
    -----
    p = softmax(s / λ), H = -Σ p log p, w_g = (1 / H_g) / Σ (1 / H): section 3.3 of the paper (arXiv 2505.19549). Its
    published code weighs the other way round, by H.
    """
    n_units = np.array([len(of_granularity) for of_granularity in similarities])
    entropies = np.array([softmax_entropy(s, temperature=temperature) if len(s) >= 2 else np.nan for s in similarities])
    weights = np.where(n_units > 0, 1.0, 0.0)
    is_judged = n_units >= 2
    if rule != "uniform" and is_judged.any():
        uncertainty = np.maximum(entropies[is_judged], floor)
        if rule == "normalised_entropy":
            uncertainty = floor + entropies[is_judged] / np.log(n_units[is_judged])
        # Relative to the most certain, so that no reciprocal overflows.
        weights[is_judged] = uncertainty.min() / uncertainty
        weights[n_units == 1] = weights[is_judged].mean()
    total = weights.sum()
    return entropies, weights / total if total > 0 else weights


def softmax_entropy(similarities: NDArray[np.floating], *, temperature: float) -> float:
    """Compute the entropy, in nats, of the softmax of similarities over a temperature.

    Parameters
    ----------
    similarities : (n_units,)
        At least one, finite.
    temperature
        Above 0.
    """
    logits = np.subtract(similarities, similarities.max(), dtype=np.float64)
    # Shifted below 0, nothing overflows; below -700 a probability is 0 for all purposes, and 0 times infinity is not.
    with np.errstate(over="ignore"):
        logits /= temperature
    np.maximum(logits, -700.0, out=logits)
    odds = np.exp(logits)
    total = odds.sum()
    return max(0.0, float(np.log(total) - odds @ logits / total))
