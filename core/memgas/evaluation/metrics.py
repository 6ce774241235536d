"""How good a ranking is, from the ranks that its gold sessions got.

Everything starts from `ranks`, `(n_gold,)`: for each gold session its place in the ranking, 1 the best, `inf` where the
ranking does not have it. Gains are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memgas.errors import InvalidInputError, ShapeError

FloatArray = NDArray[np.float64]


def gold_ranks(order: Sequence[int] | NDArray[np.intp], gold: Collection[int]) -> FloatArray:
    """Return the ranks of the gold sessions, ascending: `(n_gold,)`.

    Parameters
    ----------
    order : (n_ranked,)
        Session indices, best first, none twice.
    gold
        At least one session index.

    Raises
    ------
    InvalidInputError
        There is no gold, or a session was ranked twice.
    """
    if not gold:
        raise InvalidInputError("a question without evidence cannot be judged: leave it out")
    place = {int(session): rank for rank, session in enumerate(order, start=1)}
    if len(place) != len(order):
        raise InvalidInputError(f"a ranking names each session once; got {len(order)} places for {len(place)} sessions")
    return np.sort(np.array([place.get(session, np.inf) for session in gold], dtype=np.float64))


def recall_all(ranks: FloatArray, k: int) -> float:
    """Return 1 if every gold session is within the top `k`, else 0."""
    return float(ranks.max() <= k)


def recall_any(ranks: FloatArray, k: int) -> float:
    """Return 1 if one gold session is within the top `k`, else 0."""
    return float(ranks.min() <= k)


def recall(ranks: FloatArray, k: int) -> float:
    """Return the share of gold sessions within the top `k`."""
    return float((ranks <= k).mean())


def ndcg(ranks: FloatArray, k: int) -> float:
    """Return the normalised discounted cumulative gain at `k`: 1 / log2(1 + rank), against the best that is possible.

    Rank 2 is discounted (by 0.63), unlike in code that divides by log2(rank). The best possible has `min(k, n_gold)` gold
    sessions on top.

    References
    ----------
    .. [1] Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002; the discount as in
       Burges et al., ICML 2005.
    """
    gain = (1.0 / np.log2(1.0 + ranks[ranks <= k])).sum()
    best = (1.0 / np.log2(1.0 + np.arange(1, min(k, len(ranks)) + 1))).sum()
    return float(gain / best)


def reciprocal_rank(ranks: FloatArray) -> float:
    """Return 1 / rank of the best gold session, 0 if none was ranked; its mean is the MRR."""
    return float(1.0 / ranks.min())


def measure_names(ks: Sequence[int]) -> tuple[str, ...]:
    """Name the columns of `measure`, such as `recall_all@3`."""
    return (*(f"{name}@{k}" for name in ("recall_all", "recall_any", "recall", "ndcg") for k in ks), "mrr")


def measure(ranks: FloatArray, ks: Sequence[int]) -> FloatArray:
    """Measure one ranking: `(n_measures,)`, in the order of `measure_names`."""
    return np.array(
        [
            *(function(ranks, k) for function in (recall_all, recall_any, recall, ndcg) for k in ks),
            reciprocal_rank(ranks),
        ]
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its bootstrap confidence interval."""

    mean: float
    low: float
    high: float


def bootstrap_means(
    values: FloatArray, *, n_resamples: int, confidence: float, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return the percentile bootstrap interval of each column's mean: low and high, each `(n_columns,)`.

    All columns are resampled together, so that a difference of columns is a paired one.

    Parameters
    ----------
    values : (n_questions, n_columns)
        One row a question.
    n_resamples
        How often the questions are drawn anew, with replacement.
    confidence
        In (0, 1), such as 0.95.
    seed
        The same seed gives the same interval.

    References
    ----------
    .. [1] Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13.
    """
    if values.ndim != 2 or not len(values):
        raise ShapeError(
            f"expected values of shape (n_questions, n_columns), at least one question; got {values.shape}"
        )
    n = len(values)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=n_resamples)
    means = counts @ values / n
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, (tail, 1.0 - tail), axis=0)
    return low, high


def paired_difference(
    values: FloatArray, others: FloatArray, *, n_resamples: int, confidence: float, seed: int
) -> Interval:
    """Return the mean of `values - others` over the same questions, with its interval.

    Parameters
    ----------
    values, others : (n_questions,)
        One measure of two methods on the same questions, in the same order.
    n_resamples, confidence, seed
        As in `bootstrap_means`.
    """
    if values.shape != others.shape:
        raise ShapeError(f"expected two arrays over the same questions; got {values.shape} and {others.shape}")
    difference = (values - others)[:, None]
    low, high = bootstrap_means(difference, n_resamples=n_resamples, confidence=confidence, seed=seed)
    return Interval(float(difference.mean()), float(low[0]), float(high[0]))
