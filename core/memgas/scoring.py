"""The numeric steps of a retrieval over one mirror: similarity, router, dates, seeds, PageRank, sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.dates import Span, find_spans, nearness
from memgas.graph import AssociationGraph
from memgas.index import NamespaceIndex
from memgas.pagerank import push_pagerank
from memgas.ranking import (
    Scale,
    add_associations,
    choose_seeds,
    session_scores,
    session_weights,
    sessions_with_units,
    standardise,
    top_sessions,
    unit_similarities,
)
from memgas.request import Request, admitted
from memgas.router import entropy_weights
from memgas.types import GRANULARITIES

_PUSH_TOLERANCE = 1e-4
_NAMES = tuple(g.value for g in GRANULARITIES)


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """What a query finds in a mirror, before any setting of ranking is read.

    Attributes
    ----------
    cosines, lexical : (n_nodes,) float32
        To the query, and BM25.
    granularity, session, alive, age : (n_nodes,)
    units : n_granularities arrays (n_units_g,)
        The nodes that are alive.
    cells : (n_nodes,) intp
        Where the scores of a session are gathered.
    graph
        Of associations.
    n_slots
        Length of every axis of sessions.
    slots, days : (n_sessions,)
        Of the visible sessions, and the day each happened.
    spans
        Days that the query names.
    """

    cosines: NDArray[np.float32]
    lexical: NDArray[np.float32]
    granularity: NDArray[np.int8]
    session: NDArray[np.int32]
    alive: NDArray[np.bool_]
    age: NDArray[np.int64]
    units: tuple[NDArray[np.intp], ...]
    cells: NDArray[np.intp]
    graph: AssociationGraph
    n_slots: int
    slots: NDArray[np.intp]
    days: NDArray[np.int64]
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What the numeric steps said.

    Attributes
    ----------
    cosines, lexical : (n_nodes,) float32
    similarities, ranks : (n_nodes,) float64
        On one scale, and PageRank.
    lifted : (n_nodes,) float64
        Similarities with what associations add; the ranks themselves where PageRank ranks alone.
    allowed : (n_nodes,) bool
    parts
        Name to `(n_slots,)`.
    totals, plain, dated : (n_slots,) float64
        The sum of the parts, the score without associations, which breaks ties, and what dates bring.
    admissible : (n_slots,) bool
        Has a node that is allowed.
    order : (n,) intp
        The slots found, best first.
    seeds : (n_seeds,) intp
    seed_scores : (n_nodes,) float64
        What seeds are chosen by.
    weights : (n_granularities,) float64
        Of the router, priors included.
    scales
        Of each granularity's similarities.
    flow : (n_nodes,) float64
        The ranks of units that the walk does not begin at: all that they have came over an edge.
    entropies, routed : (n_granularities,) float64
        Of the router, before priors.
    personalization : (n_seeds,) float64
    config
        The settings of it all.
    """

    cosines: NDArray[np.float32]
    lexical: NDArray[np.float32]
    similarities: NDArray[np.float64]
    lifted: NDArray[np.float64]
    allowed: NDArray[np.bool_]
    ranks: NDArray[np.float64]
    parts: dict[str, NDArray[np.float64]]
    totals: NDArray[np.float64]
    plain: NDArray[np.float64]
    dated: NDArray[np.float64]
    admissible: NDArray[np.bool_]
    order: NDArray[np.intp]
    seeds: NDArray[np.intp]
    seed_scores: NDArray[np.float64]
    weights: NDArray[np.float64]
    scales: tuple[Scale, ...]
    flow: NDArray[np.float64]
    entropies: NDArray[np.float64]
    routed: NDArray[np.float64]
    personalization: NDArray[np.float64]
    config: MemGASConfig


def allowed_nodes(index: NamespaceIndex, request: Request) -> NDArray[np.bool_]:
    """Return which nodes may be seeds and results, `(n_nodes,)`."""
    is_admitted = admitted(index, request)
    allowed: NDArray[np.bool_] = index.alive.copy()
    if not is_admitted.all():
        allowed &= is_admitted[index.session]
    if len(request.granularities) < len(GRANULARITIES):
        allowed &= np.isin(index.granularity, [g.axis for g in request.granularities])
    for session_id, position in request.exclude_turns:
        state = index.sessions.get(session_id)
        if state is not None and (node := index.exchange_node(state, position)) is not None:
            allowed[node] = False
    return allowed


def read_nodes(index: NamespaceIndex, vector: NDArray[np.float32], terms: list[str], request: Request) -> Readings:
    """Compare a query with every unit.

    Parameters
    ----------
    index
        The mirror, held by the caller.
    vector : (n_dims,) float32
        Of the query, normalised.
    terms
        Of the query, from `tokenize`.
    request
        Its words may name dates, and were asked on one.
    """
    lexical = np.zeros(index.n_nodes, np.float32)
    bm25 = index.lexical.scores(terms)
    lexical[: len(bm25)] = bm25
    slots = index.by_slot.in_order()
    days = index.by_slot.day[slots]
    spans: Sequence[Span] = ()
    if len(days):
        asked_on = request.asked_at.toordinal()
        spans = find_spans(request.query, first=int(days.min()), last=int(days.max()), asked_on=asked_on)
    # Rounded, since equal vectors give products that differ in their last bits, by where they stand in the matrix.
    cosines = np.round(index.cosines(vector), 6)
    return Readings(
        cosines, lexical, index.granularity, index.session, index.alive, index.age, index.layout.units,
        index.layout.cells, index.graph, index.n_slots, slots, days, spans,
    )  # fmt: skip


def score_nodes(
    readings: Readings, allowed: NDArray[np.bool_], config: MemGASConfig, *, top_k: int, known: Scores | None = None
) -> Scores:
    """Score every unit and session for a query, and choose the best sessions.

    Parameters
    ----------
    readings
        Of the query.
    allowed : (n_nodes,) bool
        Which nodes may be seeds and results; statistics and graph stay whole.
    config
        Every setting of ranking.
    top_k
        Most sessions to choose.
    known
        Scores of the same readings and allowed nodes under other settings: a step whose settings are the same is not
        done again.
    """
    cells, n_slots = readings.cells, readings.n_slots
    similarities, scales = _similar(readings, config, known)
    entropies, routed = _routed(similarities, readings.units, config, known)
    priors = np.array([config.session_prior, config.turn_prior, config.summary_prior, config.keyword_prior])
    weights = routed * priors / (float(routed @ priors) or 1.0)
    dated = config.date_weight * _nearness(readings, config)
    near = dated[readings.session] if dated.any() else 0.0
    seed_scores = weights[readings.granularity] * (similarities + near)
    seeds, personalization = choose_seeds(seed_scores, allowed, readings.age, n_seeds=config.n_seeds)
    ranks, flow = _walk(readings.graph, seeds, personalization, config, known)
    gather = partial(session_scores, cells=cells, allowed=allowed, n_sessions=n_slots, reduce=config.session_score)
    has_units = sessions_with_units(cells, allowed, n_sessions=n_slots)
    by_words = gather(similarities)
    plain = by_words @ weights + dated
    if config.ranking == "pagerank":
        lifted, parts = ranks, dict(zip(_NAMES, gather(ranks).T, strict=True))
    else:
        lifted = add_associations(similarities, flow, readings.units, association_weight=config.association_weight)
        parts = _blended(by_words, gather(lifted), has_units, weights, dated)
    admissible: NDArray[np.bool_] = np.any(has_units, axis=1)
    totals: NDArray[np.float64] = np.sum(list(parts.values()), axis=0)
    order = top_sessions(totals, plain, admissible, top_k=top_k)
    return Scores(
        readings.cosines, readings.lexical, similarities, lifted, allowed, ranks, parts, totals, plain, dated,
        admissible, order, seeds, seed_scores, weights, scales, flow, entropies, routed, personalization, config,
    )  # fmt: skip


def _similar(
    readings: Readings, config: MemGASConfig, known: Scores | None
) -> tuple[NDArray[np.float64], tuple[Scale, ...]]:
    if known is not None and known.config.lexical_weight == config.lexical_weight and known.lexical is readings.lexical:
        return known.similarities, known.scales
    return unit_similarities(readings.cosines, readings.lexical, readings.units, lexical_weight=config.lexical_weight)


def _routed(
    similarities: NDArray[np.float64], units: Sequence[NDArray[np.intp]], config: MemGASConfig, known: Scores | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weigh the granularities for this query: entropies and weights, `(n_granularities,)`."""
    if known is not None and known.similarities is similarities:
        was = known.config
        if (was.router, was.router_temperature, was.router_floor) == (
            config.router, config.router_temperature, config.router_floor
        ):  # fmt: skip
            return known.entropies, known.routed
    return entropy_weights(
        [similarities[own] for own in units], temperature=config.router_temperature, floor=config.router_floor,
        rule=config.router,
    )  # fmt: skip


def _walk(
    graph: AssociationGraph, seeds: NDArray[np.intp], personalization: NDArray[np.float64], config: MemGASConfig,
    known: Scores | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """Walk from the seeds: PageRank, and what of it reached units that the walk does not begin at, both `(n_nodes,)`."""
    if known is not None:
        was = known.config
        is_same = np.array_equal(known.seeds, seeds) and np.array_equal(known.personalization, personalization)
        if is_same and (was.damping, was.weighted_edges) == (config.damping, config.weighted_edges):
            return known.ranks, known.flow
    reached, mass = push_pagerank(
        graph, seeds, personalization, damping=config.damping, tolerance=_PUSH_TOLERANCE,
        weighted=config.weighted_edges,
    )  # fmt: skip
    ranks, flow = np.zeros(graph.n_nodes), np.zeros(graph.n_nodes)
    ranks[reached] = mass
    flow[reached] = np.round(mass, 12)  # what is left of equal sums is rounding, not a difference
    flow[seeds[personalization > 0]] = 0.0
    return ranks, flow


def _nearness(readings: Readings, config: MemGASConfig) -> NDArray[np.float64]:
    """Return how near each session is to the dates that the query names, standardised, by slot."""
    scores = np.zeros(readings.n_slots)
    if config.date_weight and readings.spans:
        near = nearness(readings.days, readings.spans, decay_days=config.date_decay_days)
        scores[readings.slots] = standardise(near, None)
    return scores


def _blended(
    similar: NDArray[np.float64],
    lifted: NDArray[np.float64],
    has_units: NDArray[np.bool_],
    weights: NDArray[np.float64],
    dated: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    """Split each session's score into what its words bring at each granularity, its associations, and its date.

    Parameters
    ----------
    similar, lifted : (n_sessions, n_granularities) float64
        Best units, without associations and with them.

    Returns
    -------
    dict
        Name of a part to `(n_sessions,)`. "association" is by how much associations lift the best units.
    """
    shares = session_weights(has_units, weights)
    plain, whole = shares * similar, shares * lifted
    parts = dict(zip(_NAMES, plain.T, strict=True))
    parts["association"] = (whole - plain).sum(axis=1)
    parts["date"] = np.where(has_units.any(axis=1), dated, 0.0)
    return parts
