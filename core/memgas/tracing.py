"""What a retrieval keeps of how it came about: only what costs little; words are made of it when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.index import NamespaceIndex, SessionState
from memgas.paths import strongest_paths
from memgas.reasons import best_units, reasons_for
from memgas.scoring import Readings, Scores
from memgas.types import GRANULARITIES, Path, Route, Trace, UnitScores

_Way = tuple[NDArray[np.intp], NDArray[np.float64]]  # nodes from the seed to the target, and the edges' weights


def traced(
    trace: Trace, index: NamespaceIndex, readings: Readings, scores: Scores, states: Sequence[SessionState],
    config: MemGASConfig,
) -> Trace:  # fmt: skip
    """Record what was decided: the router, the best units, the seeds, and why and by which path each session came."""
    nodes = [state.all_nodes() for state in states]
    best, ways = best_units(index, scores), _ways_to(index, scores, nodes, config)
    seeds, *named = _unit_scores(
        index,
        [
            (scores.seeds, scores.seed_scores),
            *((own, scores.similarities) for own in best),
            *((own, scores.ranks) for own, _ in ways),
        ],
    )
    of_best, steps = named[: len(best)], named[len(best) :]
    return Trace(
        trace.namespace,
        trace.n_sessions,
        trace.n_units,
        _routes(readings, scores, of_best),
        seeds,
        _paths(states, steps, ways),
        reasons_for(index, states, nodes, scores, config),
    )


def _routes(readings: Readings, scores: Scores, best: Sequence[UnitScores]) -> tuple[Route, ...]:
    """Return what the router saw and decided, with the priors in its weights."""
    n_units = [len(own) for own in readings.units]
    columns = (n_units, scores.entropies.tolist(), scores.weights.tolist(), best)
    return tuple(
        Route(granularity, n, None if math.isnan(entropy) else entropy, weight, units)
        for granularity, n, entropy, weight, units in zip(GRANULARITIES, *columns, strict=True)
    )


def path_to(index: NamespaceIndex, scores: Scores, state: SessionState, config: MemGASConfig) -> Path:
    """Return how PageRank reached a session's best unit; that unit alone where it did not."""
    ways = _ways_to(index, scores, [state.all_nodes()], config)
    steps = _unit_scores(index, [(nodes, scores.ranks) for nodes, _ in ways])
    return _paths([state], steps, ways)[0]


def _ways_to(index: NamespaceIndex, scores: Scores, nodes: Sequence[list[int]], config: MemGASConfig) -> list[_Way]:
    """Find the strongest path to the best of each session's nodes."""
    targets = np.array([_reached_most(np.array(own, np.intp), scores) for own in nodes], np.intp)
    return strongest_paths(
        index.graph, scores.ranks, scores.seeds, targets, damping=config.damping, weighted=config.weighted_edges
    )


def _reached_most(nodes: NDArray[np.intp], scores: Scores) -> int:
    nodes = nodes[scores.allowed[nodes]]
    ranks = scores.ranks[nodes]
    at = ranks.argmax()
    return int(nodes[at if ranks[at] > 0 else scores.similarities[nodes].argmax()])


def _paths(states: Sequence[SessionState], steps: Sequence[UnitScores], ways: Sequence[_Way]) -> tuple[Path, ...]:
    return tuple(
        Path(state.record.session_id, of_way, tuple(edges.tolist()))
        for state, of_way, (_, edges) in zip(states, steps, ways, strict=True)
    )


def _unit_scores(
    index: NamespaceIndex, groups: Sequence[tuple[NDArray[np.intp], NDArray[np.float64]]]
) -> list[UnitScores]:
    """Name the units of groups of nodes, each group with the scores `(n_nodes,)` to show."""
    nodes = np.concatenate([nodes for nodes, _ in groups])
    columns = (
        index.unit_ids(nodes.tolist()),
        index.session_ids(index.session[nodes].tolist()),
        index.granularity[nodes].tolist(),
        index.positions(nodes),
        np.concatenate([of[own] for own, of in groups]).tolist(),
    )
    ends = list(accumulate(len(own) for own, _ in groups))
    return [UnitScores(*columns, range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]
