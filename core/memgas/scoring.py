"""The numeric steps of a retrieval over one mirror: similarity, router, dates, seeds, PageRank, sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.dates import find_spans, nearness
from memgas.index import NamespaceIndex, SessionState
from memgas.pagerank import push_pagerank
from memgas.ranking import (
    add_associations,
    blend_sessions,
    choose_seeds,
    session_scores,
    standardise,
    top_sessions,
    unit_similarities,
)
from memgas.request import Request
from memgas.router import entropy_weights
from memgas.types import GRANULARITIES, Route

_PUSH_TOLERANCE = 1e-4
_NAMES = tuple(g.value for g in GRANULARITIES)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What the numeric steps said, `(n_nodes,)` but for `parts`, by session slot, and `order`, the slots found."""

    cosines: NDArray[np.float32]
    similarities: NDArray[np.float64]
    allowed: NDArray[np.bool_]
    ranks: NDArray[np.float64]
    parts: dict[str, NDArray[np.float64]]
    order: NDArray[np.intp]
    seeds: NDArray[np.intp]
    routes: tuple[Route, ...]
    seed_scores: NDArray[np.float64]


def allowed_nodes(index: NamespaceIndex, admitted: Sequence[SessionState], request: Request) -> NDArray[np.bool_]:
    """Return which nodes may be seeds and results, `(n_nodes,)`."""
    admissible = np.zeros(max(index.n_slots, 1), bool)
    admissible[[state.slot for state in admitted]] = True
    allowed: NDArray[np.bool_] = index.alive & admissible[index.session]
    if len(request.granularities) < len(GRANULARITIES):
        allowed &= np.isin(index.granularity, [g.axis for g in request.granularities])
    for session_id, position in request.exclude_turns:
        state = index.sessions.get(session_id)
        if state is not None and (node := index.exchange_node(state, position)) is not None:
            allowed[node] = False
    return allowed


def score_nodes(
    index: NamespaceIndex, allowed: NDArray[np.bool_], vector: NDArray[np.float32], terms: list[str],
    request: Request, config: MemGASConfig,
) -> Scores:  # fmt: skip
    """Score every unit and session for a query, and choose the best sessions.

    Parameters
    ----------
    index
        The mirror, held by the caller.
    allowed : (n_nodes,) bool
        Which nodes may be seeds and results; statistics and graph stay whole.
    vector : (n_dims,) float32
        Of the query, normalised.
    terms
        Of the query, from `tokenize`.
    """
    cosines, granularity, alive = index.cosines(vector), index.granularity, index.alive
    lexical = np.zeros(index.n_nodes, np.float32)
    bm25 = index.lexical.scores(terms)
    lexical[: len(bm25)] = bm25
    similarities = unit_similarities(cosines, lexical, granularity, alive, lexical_weight=config.lexical_weight)
    routes, weights = _route(similarities, granularity, alive, config)
    dated = config.date_weight * _nearness(index, request, config)
    seed_scores = weights[granularity] * (similarities + dated[index.session])
    seeds, personalization = choose_seeds(seed_scores, allowed, n_seeds=config.n_seeds)
    reached, mass = push_pagerank(
        index.graph, seeds, personalization, damping=config.damping, tolerance=_PUSH_TOLERANCE,
        weighted=config.weighted_edges,
    )  # fmt: skip
    ranks, flow = np.zeros(index.n_nodes), np.zeros(index.n_nodes)
    ranks[reached] = flow[reached] = mass
    flow[seeds] = np.maximum(flow[seeds] - (1 - config.damping) * personalization, 0)
    gather = partial(
        session_scores, session=index.session, granularity=granularity, allowed=allowed, n_sessions=index.n_slots,
        reduce=config.session_score,
    )  # fmt: skip
    plain = gather(similarities) @ weights + dated
    if config.ranking == "pagerank":
        parts = dict(zip(_NAMES, gather(ranks).T, strict=True))
    else:
        lifted = add_associations(similarities, flow, granularity, alive, association_weight=config.association_weight)
        parts = _blended(gather, similarities, lifted, weights, dated)
    admissible = np.zeros(index.n_slots, bool)
    admissible[index.session[allowed]] = True
    totals: NDArray[np.float64] = np.sum(list(parts.values()), axis=0)
    order = top_sessions(totals, plain, admissible, top_k=request.top_k)
    return Scores(cosines, similarities, allowed, ranks, parts, order, seeds, routes, seed_scores[seeds])


def _route(
    similarities: NDArray[np.float64], granularity: NDArray[np.int8], alive: NDArray[np.bool_], config: MemGASConfig
) -> tuple[tuple[Route, ...], NDArray[np.float64]]:
    """Weigh the granularities: a prior each, times the router's weight for this query."""
    by_granularity = [similarities[alive & (granularity == g.axis)] for g in GRANULARITIES]
    entropies, weights = entropy_weights(
        by_granularity, temperature=config.router_temperature, floor=config.router_floor, rule=config.router
    )
    priors = np.array([config.session_prior, config.turn_prior, config.summary_prior, config.keyword_prior])
    weights = weights * priors / (float(weights @ priors) or 1.0)
    routes = tuple(
        Route(g, len(of_g), None if np.isnan(entropy) else float(entropy), float(weight))
        for g, of_g, entropy, weight in zip(GRANULARITIES, by_granularity, entropies, weights, strict=True)
    )
    return routes, weights


def _nearness(index: NamespaceIndex, request: Request, config: MemGASConfig) -> NDArray[np.float64]:
    """Return how near each session is to the dates that the query names, standardised, by slot."""
    scores = np.zeros(index.n_slots)
    states = index.visible_sessions()
    days = np.array([state.record.happened_at.toordinal() for state in states], np.int64)
    if config.date_weight == 0 or not len(days):
        return scores
    asked_on = request.asked_at.toordinal()
    spans = find_spans(request.query, first=int(days.min()), last=int(days.max()), asked_on=asked_on)
    if spans:
        near = nearness(days, spans, decay_days=config.date_decay_days)
        scores[[state.slot for state in states]] = standardise(near, None)
    return scores


def _blended(
    gather: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    similarities: NDArray[np.float64],
    lifted: NDArray[np.float64],
    weights: NDArray[np.float64],
    dated: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    """Split each session's score into what its words bring at each granularity, its associations, and its date.

    Returns
    -------
    dict
        Name of a part to `(n_sessions,)`. "association" is by how much associations lift the best units.
    """
    has_units = gather(np.ones_like(similarities)) > 0
    plain = blend_sessions(gather(similarities), has_units, weights)
    whole = blend_sessions(gather(lifted), has_units, weights)
    parts = dict(zip(_NAMES, plain.T, strict=True))
    parts["association"] = (whole - plain).sum(axis=1)
    parts["date"] = np.where(has_units.any(axis=1), dated, 0.0)
    return parts
