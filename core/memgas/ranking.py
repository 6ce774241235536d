"""Similarities on one scale, seeds, and unit scores -> session scores -> the best sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memgas.types import GRANULARITIES

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
Reduce = Literal["max", "sum"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How cosine and BM25 become the similarities of one granularity: means and deviations, a deviation of 0 for none.

    Attributes
    ----------
    cosine, lexical, sum
        Mean and deviation of the cosines, of BM25, and of the weighed sum of their z-scores.
    lexical_weight
        Of BM25 in the sum; 0: the cosine alone, raw.
    """

    cosine: tuple[float, float]
    lexical: tuple[float, float]
    sum: tuple[float, float]
    lexical_weight: float

    def split(self, cosine: float, lexical: float) -> tuple[float, float]:
        """Tell a unit's similarity apart: what its cosine brings and what its BM25 does; their sum is the similarity."""
        if not self.lexical_weight:
            return cosine, 0.0
        mean, deviation = self.sum
        if not deviation:
            return 0.0, 0.0
        by_meaning, by_words = _z(cosine, self.cosine), self.lexical_weight * _z(lexical, self.lexical)
        return (by_meaning - mean) / deviation, by_words / deviation


def _z(value: float, scale: tuple[float, float]) -> float:
    mean, deviation = scale
    return (value - mean) / deviation if deviation else 0.0


# A spread below this share of the values themselves is the rounding of float32, not a difference.
_NO_SPREAD = 1e-6


def standardise(values: NDArray[np.floating], mask: BoolArray | None) -> FloatArray:
    """Turn values into z-scores.

    Parameters
    ----------
    values : (n_units,)
        Finite.
    mask : (n_units,) bool or None
        Which units count; None: all.

    Returns
    -------
    (n_units,) float64
        Mean 0 and variance 1 over those that count; 0 elsewhere, and everywhere if they are all equal.
    """
    if mask is not None:
        scores = np.zeros(len(values))
        scores[mask] = standardise(values[mask], None)
        return scores
    return _standardised(values.astype(np.float64))[0]


def _standardised(wide: FloatArray) -> tuple[FloatArray, tuple[float, float]]:
    """Make z-scores in place, and return them with the mean and deviation used; a deviation of 0: there is no spread."""
    if not len(wide):
        return wide, (0.0, 0.0)
    mean = float(wide.mean())
    wide -= mean
    deviation = float(np.sqrt(wide @ wide / len(wide)))
    if deviation <= _NO_SPREAD * (abs(mean) + deviation):
        wide[:] = 0.0
        return wide, (mean, 0.0)
    wide /= deviation
    return wide, (mean, deviation)


def units_by_granularity(granularity: NDArray[np.int8], alive: BoolArray) -> tuple[IndexArray, ...]:
    """Return the units of each granularity that are alive: n_granularities arrays `(n_units_g,)`, ascending."""
    return tuple(np.flatnonzero((granularity == g.axis) & alive) for g in GRANULARITIES)


def unit_similarities(
    cosines: NDArray[np.floating],
    lexical: NDArray[np.floating],
    units: Sequence[IndexArray],
    *,
    lexical_weight: float,
) -> tuple[FloatArray, tuple[Scale, ...]]:
    """Bring meaning and words on one scale: per granularity, z(z(cosine) + lexical_weight · z(BM25)).

    Parameters
    ----------
    cosines, lexical : (n_units,)
        Cosine to the query, and BM25.
    units : n_granularities arrays (n_units_g,)
        The units of each granularity that are alive: whose mean and spread count.
    lexical_weight
        0: the cosine alone, raw, as in the published code.

    Returns
    -------
    similarities : (n_units,) float64
        0 for units that are not alive.
    scales
        For each granularity, what they were made with.
    """
    similarities = np.zeros(len(cosines))
    if lexical_weight == 0:
        for own in units:
            similarities[own] = cosines[own]
        return similarities, (Scale((0.0, 1.0), (0.0, 0.0), (0.0, 1.0), 0.0),) * len(units)
    scales = []
    for own in units:
        by_meaning, of_meaning = _standardised(cosines[own].astype(np.float64))
        both, of_words = _standardised(lexical[own].astype(np.float64))
        both *= lexical_weight
        both += by_meaning
        # Where the two cancel out, what is left is rounding, not a difference.
        np.round(both, 9, out=both)
        similarities[own], of_both = _standardised(both)
        scales.append(Scale(of_meaning, of_words, of_both, lexical_weight))
    return similarities, tuple(scales)


def add_associations(
    similarities: FloatArray,
    flow: FloatArray,
    units: Sequence[IndexArray],
    *,
    association_weight: float,
) -> FloatArray:
    """Let a unit profit from what PageRank brought to it over associations: `association_weight · z(√flow)`.

    Added to the similarities, instead of put in their place, so that the graph can lift a session, and a session it does
    not reach keeps its order.

    Parameters
    ----------
    similarities : (n_units,) float64
        Standardised per granularity.
    flow : (n_units,) float64
        PageRank of the units that the walk does not begin at, 0 for the others: a seed was found without associations,
        and mass that returns to it says nothing new.
    units : n_granularities arrays (n_units_g,)
        The units of each granularity that count in the statistics.
    association_weight
        0: the similarities themselves.

    Returns
    -------
    (n_units,) float64
    """
    added = similarities.copy()
    if association_weight == 0:
        return added
    root = np.sqrt(flow)
    for own in units:
        lift, _ = _standardised(root[own])
        lift *= association_weight
        added[own] += lift
    return added


def choose_seeds(
    scores: FloatArray, allowed: BoolArray, age: NDArray[np.int64], *, n_seeds: int
) -> tuple[IndexArray, FloatArray]:
    """Choose the units that PageRank starts from.

    Parameters
    ----------
    scores : (n_units,) float64
        Finite.
    allowed : (n_units,) bool
        Which units may be seeds.
    age : (n_units,) int64
        Orders units from the oldest on: of equal scores the older one comes first.
    n_seeds
        How many; all that are allowed, if they are fewer.

    Returns
    -------
    seeds : (n,) intp
        The best first, ties to the older.
    personalization : (n,) float64
        Their scores, clipped at 0 and normalised to the sum of 1; equal shares when all are 0.
    """
    candidates = np.flatnonzero(allowed)
    if n_seeds < len(candidates):
        values = np.where(allowed, scores, -np.inf)
        candidates = np.flatnonzero(values >= np.partition(values, len(values) - n_seeds)[len(values) - n_seeds])
    seeds = candidates[np.lexsort((age[candidates], -scores[candidates]))][:n_seeds]
    clipped = np.maximum(scores[seeds], 0.0)
    highest = clipped.max(initial=0.0)
    if highest <= 0:
        return seeds, np.full(len(seeds), 1.0 / max(len(seeds), 1))
    clipped /= highest
    return seeds, clipped / clipped.sum()


def cells_of(session: NDArray[np.integer], granularity: NDArray[np.int8]) -> IndexArray:
    """Return where the score of each unit is gathered: `session · n_granularities + granularity`, `(n_units,)`."""
    cells: IndexArray = session.astype(np.intp)
    cells *= len(GRANULARITIES)
    cells += granularity
    return cells


def session_scores(
    scores: FloatArray, cells: IndexArray, allowed: BoolArray, *, n_sessions: int, reduce: Reduce
) -> FloatArray:
    """Gather unit scores by session and granularity.

    Parameters
    ----------
    scores : (n_units,) float64
    cells : (n_units,) intp
        From `cells_of`.
    allowed : (n_units,) bool
        Which units count.
    n_sessions
        Length of the result.
    reduce
        Per session and granularity the best unit's score, or the sum over its units (the published code).

    Returns
    -------
    (n_sessions, n_granularities) float64
        The row's sum is the session's score. 0 where it has no unit: the average, on a scale of z-scores.
    """
    n_cells = n_sessions * len(GRANULARITIES)
    if not allowed.all():
        scores, cells = scores[allowed], cells[allowed]
    if reduce == "sum":
        parts = np.bincount(cells, scores, n_cells).astype(np.float64)
    else:
        parts = np.full(n_cells, -np.inf)
        np.maximum.at(parts, cells, scores)
        parts[np.isneginf(parts)] = 0.0
    return parts.reshape(n_sessions, len(GRANULARITIES))


def sessions_with_units(cells: IndexArray, allowed: BoolArray, *, n_sessions: int) -> BoolArray:
    """Tell where sessions have units: `(n_sessions, n_granularities)`. Parameters as of `session_scores`."""
    has_units = np.zeros(n_sessions * len(GRANULARITIES), np.bool_)
    has_units[cells if allowed.all() else cells[allowed]] = True
    return has_units.reshape(n_sessions, len(GRANULARITIES))


def session_weights(has_units: BoolArray, weights: FloatArray) -> FloatArray:
    """Share the router's weights among the granularities that a session has.

    Parameters
    ----------
    has_units : (n_sessions, n_granularities) bool
        Where it has one: a pending session is compared on what it has.
    weights : (n_granularities,) float64
        Of the router.

    Returns
    -------
    (n_sessions, n_granularities) float64
        What each best unit's score counts for; rows sum to 1, or to 0 for a session without units.
    """
    shares = has_units * weights
    totals = shares.sum(axis=1, keepdims=True)
    shares /= np.where(totals > 0, totals, 1.0)
    return shares


def top_sessions(scores: FloatArray, tie_break: FloatArray, allowed: BoolArray, *, top_k: int) -> IndexArray:
    """Order the best sessions: by score, then by their plain score, then the older first.

    Parameters
    ----------
    scores : (n_sessions,) float64
        After PageRank; 0 for a session it did not reach.
    tie_break : (n_sessions,) float64
        Before it. It alone orders the sessions that were not reached.
    allowed : (n_sessions,) bool
    top_k
        Most sessions returned.

    Returns
    -------
    (n,) intp
        Best first; `n` is `top_k`, or the number of allowed sessions if that is smaller.
    """
    candidates = np.flatnonzero(allowed)
    if not len(candidates) or top_k <= 0:
        return candidates[:0]
    values = scores[candidates]
    lowest = np.partition(values, max(len(values) - top_k, 0))[max(len(values) - top_k, 0)]
    above, level = candidates[values > lowest], candidates[values == lowest]
    kept = np.concatenate([above, level[largest(tie_break[level], top_k - len(above))]])
    return kept[np.lexsort((kept, -tie_break[kept], -scores[kept]))]


def largest(values: FloatArray, n: int) -> IndexArray:
    """Return the indices of the `n` largest values, largest first, ties to the lower index; all if there are fewer."""
    if n <= 0:
        return np.zeros(0, np.intp)
    if n < len(values):
        lowest = np.partition(values, len(values) - n)[len(values) - n]
        above, level = np.flatnonzero(values > lowest), np.flatnonzero(values == lowest)
        kept = np.sort(np.concatenate([above, level[: n - len(above)]]))
    else:
        kept = np.arange(len(values))
    return kept[np.argsort(-values[kept], kind="stable")]
