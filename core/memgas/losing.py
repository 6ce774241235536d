"""Follow one session through a retrieval, and try what would have brought it in."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.fingerprint import Fingerprint
from memgas.hits import absolute_score
from memgas.index import NamespaceIndex, SessionState
from memgas.reasons import places_of, reasons_for
from memgas.request import Request
from memgas.scoring import Readings, Scores, allowed_nodes, read_nodes, score_nodes
from memgas.settings_grid import GRID, MIN_SCORE_STEP, Value, nearest_first
from memgas.tracing import path_to
from memgas.types import GRANULARITIES, JSON
from memgas.where import matches
from memgas.why_not import Cause, Change, Rival, Stage, WhyNot

_MAX_RIVALS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """How one session stands in one retrieval.

    Attributes
    ----------
    admitted
        Whether it passed what the call asks of a session.
    score, place
        Absolute, and by rank score; None where none of its units may be found.
    """

    request: Request
    allowed: NDArray[np.bool_]
    scores: Scores | None
    admitted: bool
    score: float = 0.0
    place: int | None = None

    @property
    def is_in(self) -> bool:
        """Whether it is a hit."""
        return self.place is not None and self.place <= self.request.top_k and self.score >= self.request.min_score


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A retrieval that can be tried again with another setting when the mirror has changed or gone.

    Attributes
    ----------
    readings
        A copy: what is written meanwhile does not show.
    base
        The session's standing as things are.
    variants
        Its standing under other arguments of the call, by name, with the value.
    lexical
        BM25 `(n_nodes,)` under other settings of it.
    """

    config: MemGASConfig
    slot: int
    readings: Readings
    base: Standing
    variants: dict[str, tuple[JSON, JSON, Standing]]
    lexical: dict[tuple[str, Value], NDArray[np.float32]]


def open_case(
    index: NamespaceIndex, session_id: str, request: Request, vector: NDArray[np.float32], terms: list[str],
    *, fingerprint: Fingerprint, config: MemGASConfig,
) -> tuple[Case, WhyNot]:  # fmt: skip
    """Follow a session that is there through a retrieval. The mirror is held by the caller.

    Returns
    -------
    Case
        For `smallest_changes`, which needs the mirror no more.
    WhyNot
        Without changes yet.
    """
    state = index.sessions[session_id]
    readings = read_nodes(index, vector, terms, request)

    def stand(asked: Request) -> Standing:
        return _standing(index, state, asked, readings, terms, fingerprint=fingerprint, config=config)

    base = stand(request)
    variants = {name: (now, needed, stand(asked)) for name, now, needed, asked in _other_calls(request, state)}
    still = replace(
        readings, granularity=readings.granularity.copy(), session=readings.session.copy(),
        alive=readings.alive.copy(), age=readings.age.copy(), graph=deepcopy(readings.graph),
    )  # fmt: skip
    lexical = {
        (name, value): _padded(index.lexical.scores(terms, **{name.removeprefix("bm25_"): float(value)}), index.n_nodes)
        for name in ("bm25_k1", "bm25_b")
        for value in GRID[name]
    }
    return Case(config, state.slot, still, base, variants, lexical), _told(index, state, readings, base, config)


def smallest_changes(case: Case) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Find, for each setting alone, the smallest change that brings the session in.

    Every value of the grid is tried from the nearest on: what a setting does need not be monotone.

    Returns
    -------
    changes
        One a setting that helps.
    unhelpful
        The settings that do not.
    """
    changes: list[Change] = []
    unhelpful: list[str] = []
    base, request = case.base, case.base.request
    if base.place is not None and base.place > request.top_k:
        if base.score >= request.min_score:
            changes.append(Change("top_k", request.top_k, base.place, base.place))
        else:
            unhelpful.append("top_k")
    if base.place is not None and base.score < request.min_score:
        if base.place <= request.top_k:
            lowered = math.floor(base.score / MIN_SCORE_STEP) * MIN_SCORE_STEP
            changes.append(Change("min_score", request.min_score, round(lowered, 2), base.place))
        else:
            unhelpful.append("min_score")
    for name, (now, needed, standing) in case.variants.items():
        if standing.is_in and standing.place is not None:
            changes.append(Change(name, now, needed, standing.place))
        else:
            unhelpful.append(name)
    for name in GRID if base.place is not None else ():
        change = _on_grid(case, name)
        if change is not None:
            changes.append(change)
        else:
            unhelpful.append(name)
    return tuple(changes), tuple(unhelpful)


def _on_grid(case: Case, name: str) -> Change | None:
    base = case.base
    if base.scores is None or base.score < base.request.min_score:
        return None
    is_date = name in ("date_weight", "date_decay_days")
    if is_date and not case.readings.spans:
        return None
    for value in nearest_first(name, case.config):
        lexical = case.lexical.get((name, value), case.readings.lexical)
        readings = replace(case.readings, lexical=lexical)
        config = replace(case.config, **{name: value})  # type: ignore[arg-type]
        scores = score_nodes(readings, base.allowed, config, top_k=1, known=base.scores)
        (place,) = places_of(scores.totals, scores, [case.slot])
        if place <= base.request.top_k:
            return Change(name, getattr(case.config, name), value, place)
    return None


def _standing(
    index: NamespaceIndex, state: SessionState, request: Request, readings: Readings, terms: list[str],
    *, fingerprint: Fingerprint, config: MemGASConfig,
) -> Standing:  # fmt: skip
    allowed = allowed_nodes(index, request)
    is_admitted = request.admits(state)
    if not any(allowed[node] for node in state.all_nodes()):
        return Standing(request, allowed, None, is_admitted)
    scores = score_nodes(readings, allowed, config, top_k=request.top_k)
    (place,) = places_of(scores.totals, scores, [state.slot])
    score = absolute_score(index, state, readings, allowed, terms, fingerprint)
    if place <= request.top_k and score >= request.min_score:
        ahead = [index.state(slot) for slot in scores.order[: place - 1].tolist()]
        others = [absolute_score(index, other, readings, allowed, terms, fingerprint) for other in ahead if other]
        # A hit's score never rises above those before it.
        score = min([score, *(other for other in others if other >= request.min_score)])
    return Standing(request, allowed, scores, is_admitted, score, place)


def _other_calls(request: Request, state: SessionState) -> Iterator[tuple[str, JSON, JSON, Request]]:
    """Yield the call with one argument changed by as little as lets this session pass it: name, now, needed, call."""
    record = state.record
    when = record.happened_at
    if request.since is not None and when < request.since:
        yield "since", request.since.isoformat(), when.isoformat(), replace(request, since=when)
    if request.until is not None and when > request.until:
        yield "until", request.until.isoformat(), when.isoformat(), replace(request, until=when)
    if not matches(record.metadata, request.where):
        yield "where", request.where, None, replace(request, where=None)
    if record.kind not in request.kinds:
        yield "kind", sorted(request.kinds)[0], None, replace(request, kinds=frozenset({"chat", "item"}))
    if record.session_id in request.exclude_sessions:
        kept = request.exclude_sessions - {record.session_id}
        yield (
            "exclude_sessions",
            sorted(request.exclude_sessions),
            sorted(kept),
            replace(request, exclude_sessions=kept),
        )
    own = {place for place in request.exclude_turns if place[0] == record.session_id}
    if own:
        others = request.exclude_turns - own
        now, kept_turns = _as_json(request.exclude_turns), _as_json(others)
        yield "exclude_turns", now, kept_turns, replace(request, exclude_turns=others)
    if len(request.granularities) < len(GRANULARITIES):
        names = sorted(g.value for g in request.granularities)
        yield (
            "granularities", names, [g.value for g in GRANULARITIES],
            replace(request, granularities=frozenset(GRANULARITIES)),
        )  # fmt: skip


def _as_json(places: Collection[tuple[str, int]]) -> JSON:
    return [list[JSON](place) for place in sorted(places)]


def _told(
    index: NamespaceIndex, state: SessionState, readings: Readings, base: Standing, config: MemGASConfig
) -> WhyNot:
    """Say at which stage the session was lost, and by how much."""
    request, record = base.request, state.record
    told = WhyNot(
        request.query, request.namespace, record.session_id, "found", request.top_k, is_pending=record.is_pending
    )
    early = _lost_early(request, state)
    if early is not None:
        return replace(told, stage=early[0], margin=early[1])
    if base.scores is None or base.place is None:
        return replace(told, stage="words")
    scores, place = base.scores, base.place
    rank_score = float(scores.totals[state.slot])
    (reason,) = reasons_for(index, [state], [state.all_nodes()], scores, config)
    path = path_to(index, scores, state, config)
    told = replace(
        told, place=place, n_candidates=int(scores.admissible.sum()), score=base.score, rank_score=rank_score,
        reason=reason, path=path, outranked_by=_rivals(index, scores, min(place - 1, _MAX_RIVALS)),
    )  # fmt: skip
    if place > request.top_k:
        margin = float(scores.totals[scores.order[-1]]) - rank_score
        return replace(told, stage="rank", margin=margin, causes=tuple(_causes(state, readings, base, scores, margin)))
    if base.score < request.min_score:
        return replace(told, stage="score", margin=request.min_score - base.score)
    return told


def _lost_early(request: Request, state: SessionState) -> tuple[Stage, float | None] | None:
    """Return what the call asked of a session that this one is not, and the margin."""
    record = state.record
    if record.kind not in request.kinds:
        return "kind", None
    if record.session_id in request.exclude_sessions:
        return "excluded", None
    for late, early in ((request.since, record.happened_at), (record.happened_at, request.until)):
        if late is not None and early is not None and early < late:
            return "time", (late - early) / timedelta(seconds=1)
    return None if matches(record.metadata, request.where) else ("metadata", None)


def _rivals(index: NamespaceIndex, scores: Scores, n: int) -> tuple[Rival, ...]:
    found = []
    for place, slot in enumerate(scores.order[:n].tolist(), 1):
        state = index.state(slot)
        if state is not None:
            found.append(Rival(state.record.session_id, place, float(scores.totals[slot])))
    return tuple(found)


def _causes(state: SessionState, readings: Readings, base: Standing, scores: Scores, margin: float) -> Iterator[Cause]:
    """Yield what held the session back in the ranking, in the order of the steps."""
    nodes = [node for node in state.all_nodes() if base.allowed[node]]
    best = max(map(scores.similarities.item, nodes))
    if best <= 0:
        yield Cause("no_similar_unit", -best)
    for axis, granularity in enumerate(GRANULARITIES):
        own = [node for node in state.nodes[granularity].values() if base.allowed[node]]
        if own and _place_alone(own, axis, readings, scores) <= base.request.top_k:
            yield Cause("granularity_weight", 1 - scores.weights.item(axis), granularity.value)
    if not set(nodes) & set(scores.seeds.tolist()):
        last = float(scores.seed_scores[scores.seeds].min())
        yield Cause("not_a_seed", last - max(map(scores.seed_scores.item, nodes)))
    yield Cause("outranked", margin)


def _place_alone(own: list[int], axis: int, readings: Readings, scores: Scores) -> int:
    """Return the place of a session by its best unit's similarity at one granularity alone."""
    best = max(map(scores.similarities.item, own))
    better = scores.allowed & (readings.granularity == axis) & (scores.similarities > best)
    return 1 + len(np.unique(readings.session[better]))


def _padded(scores: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    padded = np.zeros(n, np.float32)
    padded[: len(scores)] = scores
    return padded
