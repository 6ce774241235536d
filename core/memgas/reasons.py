"""Why sessions stand where they stand: what each granularity, meaning, words and associations bring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.hits import unit_scores
from memgas.index import NamespaceIndex, SessionState
from memgas.ranking import Scale, largest
from memgas.scoring import Scores
from memgas.types import Granularity, Reason, Share, UnitScore

_N_BEST = 3
_OUTSTANDING = 2.0  # deviations above the mean: that far, sorting the units is cheap


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """The figures of one session's units, in the order of granularities, that its shares are made of."""

    session_id: str
    unit_ids: list[str]
    positions: list[tuple[Granularity, tuple[int, ...]]]
    columns: tuple[NDArray[np.generic], ...]
    weights: NDArray[np.float64]
    scales: tuple[Scale, ...]
    config: MemGASConfig


def reasons_for(
    index: NamespaceIndex, states: Sequence[SessionState], scores: Scores, config: MemGASConfig
) -> tuple[Reason, ...]:
    """Tell the scores of some sessions apart."""
    slots = [state.slot for state in states]
    places = places_of(scores.totals, scores, slots)
    before = places_of(without_associations(scores), scores, slots)
    return tuple(
        Reason(state.record.session_id, place, place_before, *_told(index, state, scores, config))
        for state, place, place_before in zip(states, places, before, strict=True)
    )


def _told(
    index: NamespaceIndex, state: SessionState, scores: Scores, config: MemGASConfig
) -> tuple[float, Callable[[], tuple[Share, ...]]]:
    """Return what dates bring to a session, and what makes its shares of the few figures that it keeps."""
    nodes = state.all_nodes()
    at = np.array(nodes, np.intp)
    columns = (scores.allowed, scores.similarities, scores.lifted, scores.cosines, scores.lexical)
    kept = _Kept(
        state.record.session_id, [index.unit_id(node) for node in nodes],
        [(granularity, tuple(by_position)) for granularity, by_position in state.nodes.items()],
        tuple(column[at] for column in columns), scores.weights, scores.scales, config,
    )  # fmt: skip
    return (scores.dated.item(state.slot) if kept.columns[0].any() else 0.0), partial(_shares, kept)


def _shares(kept: _Kept) -> tuple[Share, ...]:
    """Tell apart what the units of each granularity bring to a session."""
    config, end, shares = kept.config, 0, []
    reduce = np.sum if config.session_score == "sum" else np.max
    for (granularity, positions), weight, scale in zip(kept.positions, kept.weights.tolist(), kept.scales, strict=True):
        start, end = end, end + len(positions)
        rows = start + np.flatnonzero(kept.columns[0][start:end])
        if not len(rows):
            continue
        similarity, lifted, cosine, lexical = (column[rows] for column in kept.columns[1:])
        best = int(np.argmax(similarity))
        counted = range(len(rows)) if config.session_score == "sum" else [best]
        split = [scale.split(cosine.item(row), lexical.item(row)) for row in counted]
        association = float(reduce(lifted) - reduce(similarity)) if config.ranking == "blend" else 0.0
        at = int(rows[best])
        unit = UnitScore(kept.unit_ids[at], kept.session_id, granularity, positions[at - start], similarity.item(best))
        shares.append(Share(unit, weight, sum(d for d, _ in split), sum(w for _, w in split), association))
    total = sum(share.weight for share in shares) or 1.0
    return tuple(_weighed(share, share.weight / total) for share in shares)


def _weighed(share: Share, weight: float) -> Share:
    return Share(share.unit, weight, weight * share.dense, weight * share.lexical, weight * share.association)


def without_associations(scores: Scores) -> NDArray[np.float64]:
    """Return the scores that the sessions would have without associations, by slot."""
    return scores.totals - scores.parts["association"] if "association" in scores.parts else scores.plain


def places_of(values: NDArray[np.float64], scores: Scores, slots: Sequence[int]) -> list[int]:
    """Return places from 1 among the sessions that may be found, in the order of `top_sessions`.

    Parameters
    ----------
    values : (n_slots,) float64
        What orders them; ties go by the plain score, then to the lower slot.
    scores
        Of the query.
    slots
        Of the sessions asked about.
    """
    kept, places = values[scores.admissible], []
    for slot in slots:
        place = 1 + int(np.count_nonzero(kept > values[slot]))
        if np.count_nonzero(kept == values[slot]) > 1:
            level = np.flatnonzero(scores.admissible & (values == values[slot]))
            plain = scores.plain[level]
            place += int(
                np.count_nonzero((plain > scores.plain[slot]) | ((plain == scores.plain[slot]) & (level < slot)))
            )
        places.append(place)
    return places


def best_units(index: NamespaceIndex, scores: Scores) -> tuple[tuple[UnitScore, ...], ...]:
    """Return, for each granularity, the most similar units that may be found, best first, with their similarity."""
    outstanding = np.flatnonzero(scores.similarities > _OUTSTANDING)
    outstanding = outstanding[scores.allowed[outstanding]]
    axes, best = index.granularity[outstanding], []
    for axis, units in enumerate(index.layout.units):
        nodes = outstanding[axes == axis]
        if len(nodes) < _N_BEST:  # of few units, or of raw cosines
            nodes = units[scores.allowed[units]]
        best.append(nodes[largest(scores.similarities[nodes], _N_BEST)])
    named = iter(unit_scores(index, np.concatenate(best), scores.similarities))
    return tuple(tuple(islice(named, len(nodes))) for nodes in best)
