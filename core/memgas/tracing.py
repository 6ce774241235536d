"""What a retrieval keeps of how it came about: only what costs little; words are made of it when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.index import NamespaceIndex, SessionState
from memgas.pagerank import strongest_paths
from memgas.reasons import best_units, reasons_for
from memgas.scoring import Readings, Scores, routes_of
from memgas.types import GRANULARITIES, Path, Trace, UnitScore

_Way = tuple[NDArray[np.intp], NDArray[np.float64]]  # nodes from the seed to the target, and the edges' weights


def traced(
    trace: Trace, index: NamespaceIndex, readings: Readings, scores: Scores, states: Sequence[SessionState],
    config: MemGASConfig,
) -> Trace:  # fmt: skip
    """Record what was decided: the router, the best units, the seeds, and why and by which path each session came."""
    best, ways = best_units(index, scores), _ways_to(index, scores, states, config)
    seeds, *named = _unit_scores(
        index,
        [
            (scores.seeds, scores.seed_scores),
            *((nodes, scores.similarities) for nodes in best),
            *((nodes, scores.ranks) for nodes, _ in ways),
        ],
    )
    of_best, steps = named[: len(best)], named[len(best) :]
    return replace(
        trace,
        routes=tuple(
            replace(route, best=units) for route, units in zip(routes_of(readings, scores), of_best, strict=True)
        ),
        seeds=seeds,
        paths=_paths(states, steps, ways),
        reasons=reasons_for(index, states, scores, config),
    )


def path_to(index: NamespaceIndex, scores: Scores, state: SessionState, config: MemGASConfig) -> Path:
    """Return how PageRank reached a session's best unit; that unit alone where it did not."""
    ways = _ways_to(index, scores, [state], config)
    steps = _unit_scores(index, [(nodes, scores.ranks) for nodes, _ in ways])
    return _paths([state], steps, ways)[0]


def _ways_to(index: NamespaceIndex, scores: Scores, states: Sequence[SessionState], config: MemGASConfig) -> list[_Way]:
    targets = np.array([_reached_most(state, scores) for state in states], np.intp)
    return strongest_paths(
        index.graph, scores.ranks, scores.seeds, targets, damping=config.damping, weighted=config.weighted_edges
    )


def _reached_most(state: SessionState, scores: Scores) -> int:
    nodes = [node for node in state.all_nodes() if scores.allowed[node]]
    best = max(nodes, key=scores.ranks.item)
    return best if scores.ranks[best] > 0 else max(nodes, key=scores.similarities.item)


def _paths(
    states: Sequence[SessionState], steps: Sequence[tuple[UnitScore, ...]], ways: Sequence[_Way]
) -> tuple[Path, ...]:
    return tuple(
        Path(state.record.session_id, of_way, tuple(edges.tolist()))
        for state, of_way, (_, edges) in zip(states, steps, ways, strict=True)
    )


def _unit_scores(
    index: NamespaceIndex, groups: Sequence[tuple[NDArray[np.intp], NDArray[np.float64]]]
) -> list[tuple[UnitScore, ...]]:
    """Name the units of groups of nodes, each group with the scores `(n_nodes,)` to show."""
    nodes = np.concatenate([nodes for nodes, _ in groups])
    columns = (nodes, index.session[nodes], index.granularity[nodes], np.concatenate([of[own] for own, of in groups]))
    named = (
        UnitScore(
            index.unit_id(node), state.record.session_id if (state := index.state(slot)) else "", GRANULARITIES[axis],
            position, score,
        )
        for node, slot, axis, score, position in zip(
            *(column.tolist() for column in columns), index.positions(nodes), strict=True
        )
    )  # fmt: skip
    return [tuple(islice(named, len(own))) for own, _ in groups]
