"""The second journey: query -> similarities -> router -> seeds -> PageRank -> sessions -> hits -> filter."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

import numpy as np
from numpy.typing import NDArray

from memgas.calibration import absolute_scores
from memgas.config import MemGASConfig
from memgas.dates import find_spans, nearness
from memgas.errors import LLMError
from memgas.filtering import Verdict, apply_verdict, parse_verdict
from memgas.fingerprint import Fingerprint
from memgas.index import NamespaceIndex, SessionState
from memgas.lexical import tokenize
from memgas.pagerank import push_pagerank, strongest_path
from memgas.prompts import filter_prompt
from memgas.protocols import LLM, Embedder
from memgas.ranking import (
    add_associations,
    blend_sessions,
    choose_seeds,
    session_scores,
    standardise,
    top_sessions,
    unit_similarities,
)
from memgas.retrieval import Retrieval
from memgas.router import entropy_weights
from memgas.types import (
    GRANULARITIES,
    Evidence,
    FilterVerdict,
    Granularity,
    Hit,
    Kind,
    MemoryUnit,
    Path,
    Route,
    Trace,
    UnitScore,
)
from memgas.units import turns_of
from memgas.where import Where, matches
from memgas.workspace import Workspace

_PUSH_TOLERANCE = 1e-4
_SAME_MATTER = 3.0  # spreads above the embedder's background
_NAMES = tuple(g.value for g in GRANULARITIES)
_MAX_ITEM_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Request:
    """One checked call of `retrieve`."""

    query: str
    namespace: str
    top_k: int
    asked_at: datetime
    since: datetime | None = None
    until: datetime | None = None
    min_score: float = 0.0
    where: Where | None = None
    exclude_sessions: frozenset[str] = frozenset()
    exclude_turns: frozenset[tuple[str, int]] = frozenset()
    granularities: frozenset[Granularity] = frozenset(GRANULARITIES)
    kinds: frozenset[Kind] = frozenset({"chat"})

    def admits(self, state: SessionState) -> bool:
        """Tell whether a session may be returned."""
        record = state.record
        return (
            record.session_id not in self.exclude_sessions
            and record.kind in self.kinds
            and (self.since is None or record.happened_at >= self.since)
            and (self.until is None or record.happened_at <= self.until)
            and matches(record.metadata, self.where)
        )


@dataclass(slots=True)
class _Stopwatch:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
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


@dataclass(frozen=True, slots=True)
class _Draft:
    """A hit before its words were fetched."""

    hit: Hit
    best: tuple[tuple[int, float], ...]  # exchange positions and their similarity, best first
    wanted: dict[str, tuple[Granularity, int]]  # unit ids to fetch


class Recalling:
    """Answers queries over one workspace.

    Parameters
    ----------
    workspace
        Returns where from; raises ClosedError when the memory is closed.
    embedder
        Returns normalised vectors and is safe to call from any thread.
    llm
        For the filter.
    config
        Settings read when a memory is retrieved.
    """

    def __init__(
        self, workspace: Callable[[], Workspace], embedder: Embedder, llm: LLM | None, config: MemGASConfig
    ) -> None:
        self._open = workspace
        self._embedder = embedder
        self._llm = llm
        self._config = config

    def retrieve(
        self, request: Request, fingerprint: Fingerprint, query_vector: NDArray[np.float32] | None = None
    ) -> Retrieval:
        """Find the sessions that matter for a query."""
        workspace = self._open()
        watch = _Stopwatch()
        vector = self._embedder.embed_query(request.query) if query_vector is None else query_vector
        watch.lap("embed")
        terms = tokenize(request.query)
        for _ in range(3):
            with workspace.reading(request.namespace) as index:
                drafts, trace = self._rank(index, request, vector, terms, fingerprint)
            watch.lap("rank")
            wanted = [uid for draft in drafts for uid in draft.wanted]
            units = {unit.id: unit for unit in workspace.store.fetch(request.namespace, wanted)} if wanted else {}
            watch.lap("fetch")
            if len(units) == len(set(wanted)):
                break  # else a session was rewritten in between: rank what is there now
        hits = [_with_words(draft, units, request.exclude_turns, n=self._config.n_neighbours) for draft in drafts]
        trace = replace(trace, seconds=watch.seconds)
        return Retrieval(request.query, tuple(hits), trace, self._embedder.count_tokens)

    def nothing(self, request: Request) -> Retrieval:
        """Return what there is where nothing was ever said."""
        return Retrieval(request.query, (), Trace(request.namespace, 0, 0), self._embedder.count_tokens)

    def filtered(self, found: Retrieval, asked_at: datetime) -> Retrieval:
        """Ask the LLM which hits to keep; whatever goes wrong keeps them all, and the trace says so."""
        if self._llm is None or not found.hits:
            return found
        watch = _Stopwatch()
        items = [(hit.happened_at, _item_text(hit)) for hit in found.hits]
        try:
            reply = self._llm.complete(filter_prompt(found.query, asked_at, items))
            verdict = parse_verdict(reply, n_items=len(items))
        except LLMError as error:
            verdict = Verdict(None, f"the filter failed, everything was kept: {error}")
        hits = apply_verdict(found.hits, verdict)
        kept = tuple(hit.session_id for hit in hits)
        dropped = tuple(hit.session_id for hit in found.hits if hit.session_id not in kept)
        watch.lap("filter")
        trace = replace(
            found.trace, verdict=FilterVerdict(kept, dropped, verdict.note),
            seconds={**found.trace.seconds, **watch.seconds},
            degraded=found.trace.degraded if verdict.kept is not None else (*found.trace.degraded, verdict.note),
        )  # fmt: skip
        return replace(found, hits=hits, trace=trace)

    # the numeric steps, under the namespace's guard

    def _rank(
        self, index: NamespaceIndex, request: Request, vector: NDArray[np.float32], terms: list[str],
        fingerprint: Fingerprint,
    ) -> tuple[list[_Draft], Trace]:  # fmt: skip
        admitted = [state for state in index.visible_sessions() if request.admits(state)]
        trace = Trace(request.namespace, len(index.visible_sessions()), int(index.alive.sum()))
        allowed = _allowed_nodes(index, admitted, request)
        if not allowed.any():
            return [], trace
        scores = self._score(index, allowed, vector, terms, request)
        absolute = self._absolute(index, scores, terms, fingerprint)
        drafts, ceiling = [], 1.0
        for slot in scores.order:
            ceiling = min(ceiling, absolute[int(slot)])
            if ceiling < request.min_score:
                break
            state = index.state(int(slot))
            if state is not None:
                drafts.append(self._draft(index, state, scores, ceiling))
        trace = replace(
            trace, routes=scores.routes, seeds=_seed_scores(index, scores),
            paths=tuple(self._path(index, scores, draft.hit.session_id) for draft in drafts),
        )  # fmt: skip
        return _with_same_matter(index, drafts, fingerprint), trace

    def _score(
        self, index: NamespaceIndex, allowed: NDArray[np.bool_], vector: NDArray[np.float32], terms: list[str],
        request: Request,
    ) -> _Scores:  # fmt: skip
        config = self._config
        cosines, granularity, alive = index.cosines(vector), index.granularity, index.alive
        lexical = np.zeros(index.n_nodes, np.float32)
        bm25 = index.lexical.scores(terms)
        lexical[: len(bm25)] = bm25
        similarities = unit_similarities(cosines, lexical, granularity, alive, lexical_weight=config.lexical_weight)
        routes, weights = self._route(similarities, granularity, alive)
        dated = config.date_weight * self._nearness(index, request)
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
            lifted = add_associations(
                similarities, flow, granularity, alive, association_weight=config.association_weight
            )
            parts = _blended(gather, similarities, lifted, weights, dated)
        admissible = np.zeros(index.n_slots, bool)
        admissible[index.session[allowed]] = True
        totals: NDArray[np.float64] = np.sum(list(parts.values()), axis=0)
        order = top_sessions(totals, plain, admissible, top_k=request.top_k)
        return _Scores(cosines, similarities, allowed, ranks, parts, order, seeds, routes, seed_scores[seeds])

    def _route(
        self, similarities: NDArray[np.float64], granularity: NDArray[np.int8], alive: NDArray[np.bool_]
    ) -> tuple[tuple[Route, ...], NDArray[np.float64]]:
        """Weigh the granularities: a prior each, times the router's weight for this query."""
        config = self._config
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

    def _nearness(self, index: NamespaceIndex, request: Request) -> NDArray[np.float64]:
        """Return how near each session is to the dates that the query names, standardised, by slot."""
        scores = np.zeros(index.n_slots)
        states = index.visible_sessions()
        days = np.array([state.record.happened_at.toordinal() for state in states], np.int64)
        if self._config.date_weight == 0 or not len(days):
            return scores
        asked_on = request.asked_at.toordinal()
        spans = find_spans(request.query, first=int(days.min()), last=int(days.max()), asked_on=asked_on)
        if spans:
            near = nearness(days, spans, decay_days=self._config.date_decay_days)
            scores[[state.slot for state in states]] = standardise(near, None)
        return scores

    def _absolute(
        self, index: NamespaceIndex, scores: _Scores, terms: list[str], fingerprint: Fingerprint
    ) -> dict[int, float]:
        """Return the absolute score of each session in the order, by slot: its best unit's."""
        found: dict[int, float] = {}
        for slot in scores.order:
            state = index.state(int(slot))
            nodes = np.array([node for node in state.all_nodes() if scores.allowed[node]] if state else [], np.intp)
            coverage = index.lexical.coverage(terms, nodes)
            found[int(slot)] = float(absolute_scores(scores.cosines[nodes], coverage, fingerprint).max(initial=0.0))
        return found

    def _draft(self, index: NamespaceIndex, state: SessionState, scores: _Scores, score: float) -> _Draft:
        """Describe a hit, and name the units whose words it needs."""
        record = state.record
        parts = {name: float(part[state.slot]) for name, part in scores.parts.items()}
        rank_score = sum(parts.values())
        turns = state.nodes[Granularity.TURN]
        ranked = sorted(
            ((float(scores.similarities[node]), -position) for position, node in turns.items() if scores.allowed[node]),
            reverse=True,
        )
        best = tuple((-position, similarity) for similarity, position in ranked[: self._config.n_evidence])
        around = {position + step for position, _ in best for step in (-1, 0, 1)}
        wanted = {
            index.unit_id(node): (Granularity.TURN, position) for position, node in turns.items() if position in around
        }
        for granularity in (Granularity.SUMMARY, Granularity.KEYWORD):
            for position, node in state.nodes[granularity].items():
                wanted[index.unit_id(node)] = (granularity, position)
        hit = Hit(
            record.session_id, score, rank_score, parts, record.happened_at, metadata=record.metadata,
            conversation_id=record.conversation_id, kind=record.kind,
        )  # fmt: skip
        return _Draft(hit, best, wanted)

    def _path(self, index: NamespaceIndex, scores: _Scores, session_id: str) -> Path:
        """Return how PageRank reached a session's best unit; its best unit alone where it did not."""
        nodes = np.array([node for node in index.sessions[session_id].all_nodes() if scores.allowed[node]], np.intp)
        reached = scores.ranks[nodes]
        target = int(nodes[np.argmax(reached if reached.any() else scores.similarities[nodes])])
        steps, edges = strongest_path(
            index.graph, scores.ranks, scores.seeds, target, damping=self._config.damping,
            weighted=self._config.weighted_edges,
        )  # fmt: skip
        return Path(session_id, tuple(_unit_score(index, int(node), scores.ranks) for node in steps), tuple(edges))


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


def _allowed_nodes(index: NamespaceIndex, admitted: Sequence[SessionState], request: Request) -> NDArray[np.bool_]:
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


def _seed_scores(index: NamespaceIndex, scores: _Scores) -> tuple[UnitScore, ...]:
    return tuple(
        _unit_score(index, int(node), {int(node): float(score)})
        for node, score in zip(scores.seeds, scores.seed_scores, strict=True)
    )


def _unit_score(index: NamespaceIndex, node: int, scores: dict[int, float] | NDArray[np.float64]) -> UnitScore:
    state = index.state(int(index.session[node]))
    session_id = state.record.session_id if state else ""
    granularity = GRANULARITIES[int(index.granularity[node])]
    return UnitScore(index.unit_id(node), session_id, granularity, index.position(node), float(scores[node]))


def _with_same_matter(index: NamespaceIndex, drafts: list[_Draft], fingerprint: Fingerprint) -> list[_Draft]:
    """Tell each hit which others speak of the same matter: their best exchanges are associated, and well above chance."""
    best = {
        draft.hit.session_id: index.sessions[draft.hit.session_id].nodes[Granularity.TURN][draft.best[0][0]]
        for draft in drafts
        if draft.best
    }
    return [
        replace(draft, hit=replace(draft.hit, same_matter=_alike(draft.hit.session_id, best, index, fingerprint)))
        for draft in drafts
    ]


def _alike(session_id: str, best: dict[str, int], index: NamespaceIndex, fingerprint: Fingerprint) -> tuple[str, ...]:
    if session_id not in best:
        return ()
    node = best[session_id]
    linked = set(index.graph.neighbours(np.array([node], np.intp))[1].tolist())
    near = fingerprint.background_mean + _SAME_MATTER * fingerprint.background_spread
    return tuple(
        other_id
        for other_id, other in best.items()
        if other_id != session_id and (other in linked or float(index.vectors[node] @ index.vectors[other]) >= near)
    )


def _with_words(draft: _Draft, units: dict[str, MemoryUnit], excluded: Collection[tuple[str, int]], *, n: int) -> Hit:
    """Fill a hit with its evidence, summary and keywords; `n` neighbouring turns on each side."""
    found = [units[uid] for uid in draft.wanted if uid in units]
    by_position = {unit.position: unit for unit in found if unit.granularity is Granularity.TURN}
    turns = {
        unit.first_turn + offset: turn for unit in by_position.values() for offset, turn in enumerate(turns_of([unit]))
    }
    similarity: dict[int, float | None] = {}
    for position, value in draft.best:
        unit = by_position.get(position)
        if unit is None:
            continue
        own = range(unit.first_turn, unit.first_turn + len(unit.spans))
        for neighbour in (*range(own.start - n, own.start), *range(own.stop, own.stop + n)):
            similarity.setdefault(neighbour, None)
        similarity.update(dict.fromkeys(own, value))
    session_id = draft.hit.session_id
    evidence = tuple(
        Evidence(session_id, position, turns[position], similarity[position])
        for position in sorted(similarity)
        if position in turns and turns[position].text and (session_id, position) not in excluded
    )
    texts = {unit.granularity: unit.text for unit in found}
    keywords = tuple(word for word in texts.get(Granularity.KEYWORD, "").split("; ") if word)
    return replace(draft.hit, evidence=evidence, summary=texts.get(Granularity.SUMMARY, ""), keywords=keywords)


def _item_text(hit: Hit) -> str:
    """Render a hit for the filter: what was said, or the summary where there is no evidence."""
    said = "\n".join(f"{piece.turn.speaker}: {piece.turn.text}" for piece in hit.evidence)
    return (said or hit.summary)[:_MAX_ITEM_CHARS]
