"""Why sessions stand where they stand: what each granularity, meaning, words and associations bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.index import NamespaceIndex, SessionState
from memgas.ranking import Scale, largest
from memgas.scoring import Scores
from memgas.types import GRANULARITIES, Granularity, Reason, Share, UnitScore

_N_BEST = 3
_OUTSTANDING = 2.0  # deviations above the mean: that far, sorting the units is cheap


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """The figures of one session's units, in the order of granularities, that its shares are made of."""

    session_id: str
    unit_ids: list[str]
    positions: list[tuple[Granularity, tuple[int, ...]]]
    columns: tuple[NDArray[np.generic], ...]  # of all sessions that were told of
    rows: range  # its own among them
    weights: NDArray[np.float64]
    scales: tuple[Scale, ...]
    config: MemGASConfig


def reasons_for(
    index: NamespaceIndex,
    states: Sequence[SessionState],
    nodes: Sequence[list[int]],
    scores: Scores,
    config: MemGASConfig,
) -> tuple[Reason, ...]:
    """Tell the scores of some sessions apart, each with all its nodes; the shares are made when they are asked for."""
    slots = [state.slot for state in states]
    found = {slot: place for place, slot in enumerate(scores.order.tolist(), 1)}
    places = [found.get(slot) or places_of(scores.totals, scores, [slot])[0] for slot in slots]
    before = places_of(without_associations(scores), scores, slots)
    at = np.array(list(chain.from_iterable(nodes)), np.intp)
    columns = tuple(
        column[at] for column in (scores.allowed, scores.similarities, scores.lifted, scores.cosines, scores.lexical)
    )
    reasons, end = [], 0
    for state, own, place, place_before in zip(states, nodes, places, before, strict=True):
        rows = range(end, end := end + len(own))
        kept = _Kept(
            state.record.session_id, index.unit_ids(own),
            [(granularity, tuple(by_position)) for granularity, by_position in state.nodes.items()],
            columns, rows, scores.weights, scores.scales, config,
        )  # fmt: skip
        date = scores.dated.item(state.slot) if columns[0][rows.start : rows.stop].any() else 0.0
        reasons.append(Reason(state.record.session_id, place, place_before, date, partial(_shares, kept)))
    return tuple(reasons)


def _shares(kept: _Kept) -> tuple[Share, ...]:
    """Tell apart what the units of each granularity bring to a session."""
    config, end, shares = kept.config, 0, []
    own = tuple(column[kept.rows.start : kept.rows.stop] for column in kept.columns)
    reduce = np.sum if config.session_score == "sum" else np.max
    for (granularity, positions), weight, scale in zip(kept.positions, kept.weights.tolist(), kept.scales, strict=True):
        start, end = end, end + len(positions)
        rows = start + np.flatnonzero(own[0][start:end])
        if not len(rows):
            continue
        similarity, lifted, cosine, lexical = (column[rows] for column in own[1:])
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
    kept, of_slot = values[scores.admissible], values[slots][:, None]
    places = 1 + (kept > of_slot).sum(axis=1)
    for i in np.flatnonzero((kept == of_slot).sum(axis=1) > 1).tolist():
        level = np.flatnonzero(scores.admissible & (values == of_slot[i]))
        plain, own = scores.plain[level], scores.plain[slots[i]]
        places[i] += np.count_nonzero((plain > own) | ((plain == own) & (level < slots[i])))
    of_slots: list[int] = places.tolist()
    return of_slots


def best_units(index: NamespaceIndex, scores: Scores) -> list[NDArray[np.intp]]:
    """Return, for each granularity, the most similar nodes that may be found, best first."""
    outstanding = np.flatnonzero(scores.similarities > _OUTSTANDING)
    outstanding = outstanding[scores.allowed[outstanding]]
    axes = index.granularity[outstanding]
    # By granularity, the most similar first, ties to the lower node.
    order = np.lexsort((-scores.similarities[outstanding], axes))
    ends, start, best = np.searchsorted(axes[order], np.arange(1, len(GRANULARITIES) + 1), side="left").tolist(), 0, []
    for units, end in zip(index.layout.units, ends, strict=True):
        nodes, start = outstanding[order[start : min(end, start + _N_BEST)]], end
        if len(nodes) < _N_BEST:  # of few units, or of raw cosines
            nodes = units[scores.allowed[units]]
            nodes = nodes[largest(scores.similarities[nodes], _N_BEST)]
        best.append(nodes)
    return best
