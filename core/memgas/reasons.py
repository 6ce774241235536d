"""Why sessions stand where they stand: what each granularity, meaning, words and associations bring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.hits import unit_score
from memgas.index import NamespaceIndex, SessionState
from memgas.scoring import Scores
from memgas.types import GRANULARITIES, Granularity, Reason, Share, UnitScore

_N_BEST = 3


def reasons_for(
    index: NamespaceIndex, states: Sequence[SessionState], scores: Scores, config: MemGASConfig
) -> tuple[Reason, ...]:
    """Tell the scores of some sessions apart."""
    slots = [state.slot for state in states]
    places = places_of(scores.totals, scores, slots)
    before = places_of(without_associations(scores), scores, slots)
    return tuple(
        Reason(state.record.session_id, place, place_before, *_shares(index, state, scores, config))
        for state, place, place_before in zip(states, places, before, strict=True)
    )


def _shares(
    index: NamespaceIndex, state: SessionState, scores: Scores, config: MemGASConfig
) -> tuple[float, tuple[Share, ...]]:
    """Return what dates bring to a session, and what each granularity does."""
    nodes = {
        granularity: [node for node in by_position.values() if scores.allowed[node]]
        for granularity, by_position in state.nodes.items()
    }
    weights = {g: scores.weights.item(axis) for axis, g in enumerate(GRANULARITIES) if nodes[g]}
    total = sum(weights.values()) or 1.0
    shares = tuple(_share(index, nodes[g], scores, g, weight / total, config) for g, weight in weights.items())
    return (scores.dated.item(state.slot) if weights else 0.0), shares


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
    at = np.array(slots, np.intp)
    own = values[at]
    better, level = values[:, np.newaxis] > own, values[:, np.newaxis] == own
    if np.count_nonzero(level) > len(slots):
        plain = scores.plain[:, np.newaxis]
        is_older = np.arange(len(values))[:, np.newaxis] < at
        better |= level & ((plain > scores.plain[at]) | ((plain == scores.plain[at]) & is_older))
    return [1 + n for n in np.count_nonzero(better[scores.admissible], axis=0).tolist()]


def best_units(index: NamespaceIndex, scores: Scores, granularity: Granularity) -> tuple[UnitScore, ...]:
    """Return the most similar units of a granularity that may be found, best first, with their similarity."""
    nodes = np.flatnonzero(scores.allowed & (index.granularity == granularity.axis))
    similarities, best = scores.similarities[nodes], []
    for _ in range(min(_N_BEST, len(nodes))):
        best.append(int(np.argmax(similarities)))
        similarities[best[-1]] = -np.inf
    return tuple(unit_score(index, int(nodes[i]), scores.similarities) for i in best)


def _share(
    index: NamespaceIndex, nodes: list[int], scores: Scores, granularity: Granularity, weight: float,
    config: MemGASConfig,
) -> Share:  # fmt: skip
    """Tell apart what the units of one granularity bring."""
    best = max(nodes, key=scores.similarities.item)
    counted = nodes if config.session_score == "sum" else [best]
    scale = scores.scales[granularity.axis]
    split = [scale.split(scores.cosines.item(node), scores.lexical.item(node)) for node in counted]
    association = 0.0
    if config.ranking == "blend":
        association = _reduced(scores.lifted, nodes, config) - _reduced(scores.similarities, nodes, config)
    return Share(
        unit_score(index, best, scores.similarities), weight, weight * sum(dense for dense, _ in split),
        weight * sum(lexical for _, lexical in split), weight * association,
    )  # fmt: skip


def _reduced(values: NDArray[np.float64], nodes: Iterable[int], config: MemGASConfig) -> float:
    reduce = sum if config.session_score == "sum" else max
    return float(reduce(map(values.item, nodes)))
