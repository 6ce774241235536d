"""The second journey: query -> similarities -> router -> seeds -> PageRank -> sessions -> hits -> filter."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.errors import LLMError
from memgas.filtering import Verdict, apply_verdict, parse_verdict
from memgas.fingerprint import Fingerprint
from memgas.hits import (
    HitDraft,
    absolute_scores_of,
    draft_hit,
    item_text,
    with_same_matter,
    with_words,
)
from memgas.index import NamespaceIndex
from memgas.lexical import tokenize
from memgas.losing import open_case, smallest_changes
from memgas.prompts import filter_prompt
from memgas.protocols import LLM, Embedder
from memgas.request import Request
from memgas.retrieval import Retrieval
from memgas.scoring import allowed_nodes, read_nodes, score_nodes
from memgas.stored import fetch_named
from memgas.tracing import traced
from memgas.types import FilterVerdict, Trace
from memgas.why_not import WhyNot
from memgas.workspace import Workspace


@dataclass(slots=True)
class _Stopwatch:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


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
                drafts, trace = self._rank(index, request, vector, terms, fingerprint, watch)
                wanted = {uid: granularity for draft in drafts for uid, (granularity, _) in draft.wanted.items()}
                head, units = index.head, index.words.known(wanted)
            watch.lap("rank")
            if unknown := {uid: granularity for uid, granularity in wanted.items() if uid not in units}:
                fetched = fetch_named(workspace.store, request.namespace, unknown)
                workspace.keep_words(index, head, fetched)
                units.update({unit.id: unit for unit in fetched})
            watch.lap("fetch")
            if len(units) == len(wanted):
                break  # else a session was rewritten in between: rank what is there now
        hits = [with_words(draft, units, request.exclude_turns, n=self._config.n_neighbours) for draft in drafts]
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
        items = [(hit.happened_at, item_text(hit)) for hit in found.hits]
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

    def why_not(
        self, request: Request, session_id: str, fingerprint: Fingerprint,
        query_vector: NDArray[np.float32] | None = None,
    ) -> WhyNot:  # fmt: skip
        """Tell at which stage a session was lost, and what would bring it in."""
        workspace = self._open()
        missing = WhyNot(request.query, request.namespace, session_id, "not_found", request.top_k)
        with workspace.reading(request.namespace) as index:
            if index.visible(session_id) is None:
                return missing
        vector = self._embedder.embed_query(request.query) if query_vector is None else query_vector
        with workspace.reading(request.namespace) as index:
            if index.visible(session_id) is None:
                return missing
            terms = tokenize(request.query)
            case, told = open_case(
                index, session_id, request, vector, terms, fingerprint=fingerprint, config=self._config
            )
        if told.stage == "found":
            return told
        changes, unhelpful = smallest_changes(case)
        note = "" if changes else "nothing tried brings it in alone: more than one thing keeps it out"
        return replace(told, changes=changes, unhelpful=unhelpful, note=note)

    def _rank(
        self, index: NamespaceIndex, request: Request, vector: NDArray[np.float32], terms: list[str],
        fingerprint: Fingerprint, watch: _Stopwatch,
    ) -> tuple[list[HitDraft], Trace]:  # fmt: skip
        trace = Trace(request.namespace, len(index.by_slot.in_order()), int(np.count_nonzero(index.alive)))
        allowed = allowed_nodes(index, request)
        if not allowed.any():
            return [], trace
        readings = read_nodes(index, vector, terms, request)
        scores = score_nodes(readings, allowed, self._config, top_k=request.top_k)
        found = [state for slot in scores.order.tolist() if (state := index.state(slot)) is not None]
        drafts, ceiling = [], 1.0
        for state, absolute in zip(
            found, absolute_scores_of(index, found, readings, allowed, terms, fingerprint), strict=True
        ):
            if absolute < request.min_score:
                continue
            ceiling = min(ceiling, absolute)
            drafts.append(draft_hit(index, state, scores, ceiling, n_evidence=self._config.n_evidence))
        watch.lap("rank")
        states = [index.sessions[draft.hit.session_id] for draft in drafts]
        trace = traced(trace, index, readings, scores, states, self._config)
        watch.lap("trace")
        return with_same_matter(index, drafts, fingerprint), trace
