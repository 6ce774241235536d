"""The first journey: turns -> units -> digest -> vectors -> associations -> one batch for the store.

Every method here is called by the namespace's only writer; nothing but `Workspace` touches store and mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from memgas.association import Ranked, accept_candidates, find_candidates
from memgas.config import MemGASConfig
from memgas.digest import extract_summary, keyword_candidates, rank_keywords
from memgas.embedding import VectorTable
from memgas.index import NamespaceIndex, SessionState
from memgas.protocols import Embedder
from memgas.types import (
    GRANULARITIES,
    JSON,
    Association,
    Batch,
    Digest,
    Granularity,
    Head,
    Kind,
    MemoryUnit,
    SessionRecord,
    Turn,
)
from memgas.units import digest_units, exchange_unit, pooled_unit, split_exchanges, turns_of
from memgas.workspace import Workspace

_MAX_PENDING = 1 << 22  # similarities held until their mixtures are fitted together


@dataclass(frozen=True, slots=True)
class GivenEdge:
    """An association that is to be kept (an import), by where its ends stand: ids are given anew."""

    granularity: Granularity
    position: int
    target_session: str
    target_granularity: Granularity
    target_position: int
    similarity: float


@dataclass(frozen=True, slots=True)
class Draft:
    """A session that is to be written in full.

    Attributes
    ----------
    digest
        None: made by extraction, unless the session stays pending.
    is_pending
        Written without a digest; one is to follow.
    associations
        Given ones, to older sessions; None: computed.
    """

    session_id: str
    turns: tuple[Turn, ...]
    happened_at: datetime
    added_at: datetime
    metadata: JSON = None
    conversation_id: str | None = None
    first_turn: int = 0
    kind: Kind = "chat"
    digest: Digest | None = None
    is_pending: bool = False
    associations: Sequence[GivenEdge] | None = None

    @classmethod
    def of(cls, record: SessionRecord, turns: tuple[Turn, ...], digest: Digest | None) -> Draft:
        """Return a draft that rewrites a stored session."""
        return cls(
            record.session_id, turns, record.happened_at, record.added_at, record.metadata, record.conversation_id,
            record.first_turn, record.kind, digest,
        )  # fmt: skip


class Remembering:
    """Writes sessions of one workspace.

    Parameters
    ----------
    workspace
        Returns where to; raises ClosedError when the memory is closed.
    embedder
        Returns normalised vectors and is safe to call from any thread.
    config
        Settings read when a memory is added.
    """

    def __init__(self, workspace: Callable[[], Workspace], embedder: Embedder, config: MemGASConfig) -> None:
        self._open = workspace
        self._embedder = embedder
        self._config = config

    # whole sessions

    def add(self, index: NamespaceIndex, drafts: Sequence[Draft], now: datetime) -> None:
        """Write new sessions, in order, in one batch: the result is that of adding them one by one.

        The turns of all are staged in the mirror first, unseen, since the keywords of each are weighed by what the
        namespace had said up to then; then the texts of all are embedded together; then each is associated with what
        is older.
        """
        head = next_head(index)
        table = self._table()
        records, turn_units = [], []
        for draft in drafts:
            number, head = _take_number(head)
            record = _record_of(draft, index.namespace, number, number, head.revision, now)
            units = self._turn_units(draft.turns, *_place(record))
            records.append(replace(record, n_units=_count(units)))
            turn_units.append(units)
        self._embed(table, [unit for units in turn_units for unit in units])
        digests = self._stage(index, drafts, records, turn_units, table, head)
        added = [
            self._digest_units(digest, draft, record)
            for draft, record, digest in zip(drafts, records, digests, strict=True)
        ]
        self._embed(table, [unit for units in added for unit in units])
        batches, linking = [], _Linking()
        for draft, record, digest, turns, rest in zip(drafts, records, digests, turn_units, added, strict=True):
            units = [*turns, *rest]
            whole = replace(record, n_units=_count(units), digest_source=digest.source if digest else "")
            self._open().stage(index, _batch(head, [whole], rest, table, {}))
            if draft.associations is not None:
                linking.edges |= _given(index, whole, units, draft.associations)
            else:
                linking.add(*self._linkable(index, whole, units, table))
            if linking.n_values > _MAX_PENDING:
                self._link(index, linking)
            batches.append(_batch(head, [whole], units, table, {}))
        self._link(index, linking)
        self._open().stage(index, _batch(head, [], [], table, linking.edges))
        self._open().publish(index, replace(merged(head, batches), associations=linking.edges))

    def _stage(
        self,
        index: NamespaceIndex,
        drafts: Sequence[Draft],
        records: Sequence[SessionRecord],
        turn_units: Sequence[Sequence[MemoryUnit]],
        table: VectorTable,
        head: Head,
    ) -> list[Digest | None]:
        """Put the turns of new sessions into the mirror, unseen, and make the digests that are to be extracted."""
        summaries, candidates = [], []
        for draft, record, units in zip(drafts, records, turn_units, strict=True):
            self._open().stage(index, _batch(head, [record], units, table, {}))
            wanted = draft.digest is None and not draft.is_pending and draft.kind == "chat"
            summaries.append(self._summary(index, draft.turns) if wanted else "")
            candidates.append(self._candidates(index, draft.turns) if wanted else [])
        table.embed(text for texts in candidates for text in texts)
        return [
            self._digest(summary, texts, units, table) if summary else draft.digest
            for draft, summary, texts, units in zip(drafts, summaries, candidates, turn_units, strict=True)
        ]

    def rewrite(
        self, index: NamespaceIndex, state: SessionState, draft: Draft, now: datetime, *, is_open: bool
    ) -> None:
        """Write the next generation of a session in full; the old one is visible until then.

        An open session keeps a digest that is given, as the stale one; a closed one without a digest gets one by
        extraction, unless it stays pending.
        """
        self._rewrite(index, state, draft, now, self._table_of(index, state), is_open=is_open)

    def rewrite_now(
        self, index: NamespaceIndex, state: SessionState, draft: Draft, now: datetime, *, is_open: bool
    ) -> None:
        """Do what `rewrite` does, whether or not the embedder answers: what it does not embed is owed a vector."""
        self._rewrite(index, state, draft, now, self._table_of(index, state, may_owe=True), is_open=is_open)

    def _rewrite(
        self, index: NamespaceIndex, state: SessionState, draft: Draft, now: datetime, table: VectorTable, *,
        is_open: bool,
    ) -> None:  # fmt: skip
        number, head = _take_number(next_head(index))
        record = _record_of(draft, index.namespace, state.record.sequence, number, head.revision, now)
        units = self._turn_units(draft.turns, *_place(record))
        self._embed(table, units)
        digest = draft.digest
        wanted = digest is None and not draft.is_pending and not is_open and draft.kind == "chat"
        if wanted and any(unit.text for unit in units):
            digest = self.extract(index, draft.turns, units, table)
        if not is_open or digest is not None:
            units += self._digest_units(digest, draft, record)
        self._embed(table, units)
        record = replace(
            record, n_units=_count(units), is_open=is_open, is_pending=draft.is_pending,
            digest_source=digest.source if digest else "",
        )  # fmt: skip
        edges = self._associate(index, record, units, table)
        obsolete = [index.unit_id(node) for node in state.all_nodes()]
        self._open().commit(index, replace(_batch(head, [record], units, table, edges), obsolete=obsolete))

    def _table(self, *, may_owe: bool = False) -> VectorTable:
        return VectorTable(self._embedder, max_window_tokens=self._config.max_window_tokens, may_owe=may_owe)

    def _table_of(self, index: NamespaceIndex, state: SessionState, *, may_owe: bool = False) -> VectorTable:
        """Return a table that knows the vectors a session has already."""
        table = self._table(may_owe=may_owe)
        nodes = {index.unit_id(node): node for node in state.all_nodes()}
        for unit in self._open().store.fetch(index.namespace, list(nodes)):
            if unit.text and unit.n_windows:
                node = nodes[unit.id]
                table.know(unit.text, index.vectors[node].copy(), index.windows_of(node).copy())
        return table

    # growth

    def embedded(self, groups: Sequence[Sequence[Turn]]) -> VectorTable:
        """Embed the exchanges of sessions that are to be begun, before anything is written."""
        table = self._table()
        nowhere = ("", "", 0)
        self._embed(table, [unit for turns in groups for unit in self._turn_units(turns, *nowhere)])
        return table

    def open(
        self,
        index: NamespaceIndex,
        draft: Draft,
        now: datetime,
        table: VectorTable,
        *,
        closing: Sequence[SessionRecord],
    ) -> None:
        """Begin a session that is to grow, from what `embedded` returned; records of sessions that this closes go along."""
        number, head = _take_number(next_head(index))
        record = replace(_record_of(draft, index.namespace, number, number, head.revision, now), is_open=True)
        units = self._turn_units(draft.turns, *_place(record))
        self._put_turns(index, head, replace(record, n_units=_count(units)), units, table, closing)

    def grow(self, index: NamespaceIndex, state: SessionState, turns: Sequence[Turn], now: datetime) -> None:
        """Add turns to an open session: its last exchange is renewed in place, what follows is new."""
        last = state.last_exchange
        if last is None:
            raise ValueError("an open session has at least one exchange")
        head = next_head(index)
        units = self._turn_units([*turns_of([last]), *turns], *_place(state.record), from_exchange=last)
        n_turns = state.n_turns + len(turns)
        n_units = list(state.record.n_units)
        n_units[Granularity.TURN.axis] = units[-1].position + 1
        record = replace(state.record, n_turns=n_turns, n_units=_four(n_units), revision=head.revision, updated_at=now)
        table = self._table()
        self._put_turns(index, head, record, units, table, ())

    def _put_turns(
        self,
        index: NamespaceIndex,
        head: Head,
        record: SessionRecord,
        units: Sequence[MemoryUnit],
        table: VectorTable,
        closing: Sequence[SessionRecord],
    ) -> None:
        self._embed(table, units)
        edges = self._associate(index, record, units, table)
        closed = [replace(old, revision=head.revision) for old in closing]
        self._open().commit(index, _batch(head, [record, *closed], units, table, edges))

    def mark(self, index: NamespaceIndex, records: Sequence[SessionRecord]) -> None:
        """Write changed records and nothing else."""
        if not records:
            return
        head = next_head(index)
        marked = [replace(record, revision=head.revision) for record in records]
        obsolete = [
            index.unit_id(node)
            for record in records
            if record.is_deleted
            for state in index.sessions.values()
            if state.record.sequence == record.sequence
            for node in state.all_nodes()
        ]
        table = self._table()
        self._open().commit(index, replace(_batch(head, marked, [], table, {}), obsolete=obsolete))

    def finish(
        self, index: NamespaceIndex, state: SessionState, turns: tuple[Turn, ...], digest: Digest | None, now: datetime
    ) -> None:
        """Give a closed session its digest, an extracted one if none is given."""
        record = state.record
        if any(n for g, n in zip(GRANULARITIES, record.n_units, strict=True) if g is not Granularity.TURN):
            self.rewrite(index, state, Draft.of(record, turns, digest), now, is_open=False)
            return
        head = next_head(index)
        table = self._table_of(index, state)
        units = self._turn_units(turns, *_place(record))
        self._embed(table, units)
        digest = digest or self.extract(index, turns, units, table)
        added = digest_units(digest, turns, index.namespace, record.session_id, record.generation)
        self._embed(table, added)
        done = replace(
            record, n_units=_count([*units, *added]), revision=head.revision, updated_at=now, is_open=False,
            is_pending=False, digest_source=digest.source,
        )  # fmt: skip
        edges = self._associate(index, done, added, table)
        self._open().commit(index, _batch(head, [done], added, table, edges))

    def exchange_starts(self, turns: Sequence[Turn]) -> list[int]:
        """Return where each exchange of turns would begin."""
        return [unit.first_turn for unit in self._turn_units(turns, "", "", 0)]

    # vectors made anew

    def renewed(
        self,
        index: NamespaceIndex,
        head: Head,
        sessions: Sequence[tuple[SessionRecord, Sequence[MemoryUnit]]],
        kept: Mapping[str, Sequence[Association]],
        show: Callable[[Batch], None],
    ) -> list[Batch]:
        """Embed units again, ids and texts as they are, and associate those anew that have no associations in `kept`.

        The texts of all sessions are embedded together; `show` is given each session's batch before the next session's
        associations are looked for.
        """
        table = self._table()
        self._embed(table, [unit for _, units in sessions for unit in units])
        batches = []
        for record, units in sessions:
            bare = [unit for unit in units if unit.id not in kept]
            older = index.older_nodes(record.sequence)
            edges = {
                **self._associate(index, record, bare, table, older),
                **{u.id: kept[u.id] for u in units if u.id in kept},
            }
            batches.append(_batch(head, [record], units, table, edges))
            show(batches[-1])
        return batches

    # steps

    def extract(
        self, index: NamespaceIndex, turns: Sequence[Turn], units: Sequence[MemoryUnit], table: VectorTable
    ) -> Digest:
        """Make a digest without a language model."""
        candidates = self._candidates(index, turns)
        table.embed(candidates)
        return self._digest(self._summary(index, turns), candidates, units, table)

    def _summary(self, index: NamespaceIndex, turns: Sequence[Turn]) -> str:
        return extract_summary(turns, self._idf(index), n_sentences=self._config.n_summary_sentences)

    def _candidates(self, index: NamespaceIndex, turns: Sequence[Turn]) -> list[str]:
        return keyword_candidates(turns, self._idf(index), n=3 * self._config.n_keywords)

    def _digest(
        self, summary: str, candidates: Sequence[str], units: Sequence[MemoryUnit], table: VectorTable
    ) -> Digest:
        vectors = np.array([table[text].vector for text in candidates], np.float32).reshape(-1, table.n_dims)
        session_vector = np.mean([table[unit.text].vector for unit in units], axis=0)
        keywords = rank_keywords(candidates, vectors, session_vector, None, n_keywords=self._config.n_keywords)
        return Digest(summary, keywords, "extractive")

    @staticmethod
    def _idf(index: NamespaceIndex) -> partial[NDArray[np.float64]]:
        return partial(index.lexical.idf, Granularity.TURN.axis)

    @staticmethod
    def _digest_units(digest: Digest | None, draft: Draft, record: SessionRecord) -> list[MemoryUnit]:
        """Return a chat's session-level units; an item's words are its turns alone."""
        if draft.kind == "item":
            return []
        return digest_units(digest, draft.turns, record.namespace, record.session_id, record.generation)

    def _turn_units(
        self,
        turns: Sequence[Turn],
        namespace: str,
        session_id: str,
        generation: int,
        from_exchange: MemoryUnit | None = None,
    ) -> list[MemoryUnit]:
        """Cut turns into units; `from_exchange` is the unit that the first of them begins."""
        where = (namespace, session_id, generation)
        if self._config.turn_units == "pooled_pairs":
            return [pooled_unit(turns, *where)]
        exchanges = split_exchanges(
            turns, max_turns=self._config.max_exchange_turns, max_chars=self._config.max_exchange_chars
        )
        first, at = (from_exchange.position, from_exchange.first_turn) if from_exchange else (0, 0)
        return [
            exchange_unit(replace(exchange, first_turn=at + exchange.first_turn), *where, first + number)
            for number, exchange in enumerate(exchanges)
        ]

    def _embed(self, table: VectorTable, units: Sequence[MemoryUnit]) -> None:
        if self._config.long_text == "windows":
            table.embed(unit.text for unit in units)
            return
        for unit in units:
            if unit.granularity is Granularity.TURN:
                turns = [f"{turn.speaker}: {turn.text}" for turn in turns_of([unit])]
                table.embed_pooled(unit.text, ["\n".join(turns[i : i + 2]) for i in range(0, len(turns), 2)])
        table.embed_truncated(unit.text for unit in units)

    def _associate(
        self,
        index: NamespaceIndex,
        record: SessionRecord,
        units: Sequence[MemoryUnit],
        table: VectorTable,
        among: NDArray[np.bool_] | None = None,
    ) -> dict[str, list[Association]]:
        """Link units to those of other sessions: of all that are visible, and of older ones being written along.

        `among`, `(n_nodes,)`, narrows them.
        """
        linking = _Linking()
        linking.add(*self._linkable(index, record, units, table, among))
        self._link(index, linking)
        return linking.edges

    def _linkable(
        self,
        index: NamespaceIndex,
        record: SessionRecord,
        units: Sequence[MemoryUnit],
        table: VectorTable,
        among: NDArray[np.bool_] | None = None,
    ) -> tuple[list[str], list[Ranked]]:
        """Return the ids of the units that may be linked, and the nodes that each may be linked to."""
        units = [unit for unit in units if unit.text and not table[unit.text].is_owed]
        if not units or index.n_older(record.sequence) < self._config.warmup_sessions:
            return [], []
        vectors = np.stack([table[unit.text].vector for unit in units])
        allowed = index.candidates_for(record)
        found = find_candidates(
            vectors, index.vectors, allowed if among is None else allowed & among, index.age,
            n_candidates=self._config.n_candidates,
        )  # fmt: skip
        return [unit.id for unit in units], found

    def _link(self, index: NamespaceIndex, linking: _Linking) -> None:
        """Decide which candidates become associations."""
        config, sources, candidates = self._config, linking.sources, linking.candidates
        accepted = accept_candidates(
            candidates, n_components=config.n_components, accept=config.accept,
            max_associations=config.max_associations,
        )  # fmt: skip
        for source, (nodes, similarities) in zip(sources, accepted, strict=True):
            if len(nodes):
                linking.edges[source] = [
                    Association(source, index.unit_id(node), float(similarity))
                    for node, similarity in zip(nodes.tolist(), similarities.astype(np.float16).tolist(), strict=True)
                ]
        linking.sources, linking.candidates, linking.n_values = [], [], 0


@dataclass(slots=True)
class _Linking:
    """Units that wait for their mixtures to be fitted, with their candidates; and the associations decided on.

    Attributes
    ----------
    n_values
        Similarities held.
    """

    sources: list[str] = field(default_factory=list)
    candidates: list[Ranked] = field(default_factory=list)
    edges: dict[str, list[Association]] = field(default_factory=dict)
    n_values: int = 0

    def add(self, sources: Sequence[str], candidates: Sequence[Ranked]) -> None:
        """Let units wait."""
        self.sources += sources
        self.candidates += candidates
        self.n_values += sum(len(columns) for columns, _ in candidates)


def _place(record: SessionRecord) -> tuple[str, str, int]:
    """Return what the ids of a session's units are made of."""
    return record.namespace, record.session_id, record.generation


def next_head(index: NamespaceIndex) -> Head:
    """Return the head of the next write."""
    if index.head is None:
        return Head(index.namespace, uuid4().hex, 1, 0)
    return replace(index.head, revision=index.head.revision + 1)


def _take_number(head: Head) -> tuple[int, Head]:
    """Draw the next sequence or generation number."""
    return head.next_number, replace(head, next_number=head.next_number + 1)


def _record_of(
    draft: Draft, namespace: str, sequence: int, generation: int, revision: int, now: datetime
) -> SessionRecord:
    return SessionRecord(
        namespace, draft.session_id, sequence, generation, revision, draft.happened_at, draft.added_at, now,
        n_turns=len(draft.turns), conversation_id=draft.conversation_id, first_turn=draft.first_turn,
        metadata=draft.metadata, kind=draft.kind, is_pending=draft.is_pending,
    )  # fmt: skip


def deleted(record: SessionRecord, kept: JSON = None) -> SessionRecord:
    """Return the tombstone of a session: its number, and what `growth.tombstone` keeps."""
    return SessionRecord(
        record.namespace, "", record.sequence, record.generation, record.revision, record.happened_at,
        record.happened_at, record.happened_at, is_deleted=True, metadata=kept,
    )  # fmt: skip


def _count(units: Sequence[MemoryUnit]) -> tuple[int, int, int, int]:
    return _four([sum(unit.granularity is g for unit in units) for g in GRANULARITIES])


def _four(counts: Sequence[int]) -> tuple[int, int, int, int]:
    session, turn, summary, keyword = counts
    return session, turn, summary, keyword


def _given(
    index: NamespaceIndex, record: SessionRecord, units: Sequence[MemoryUnit], given: Sequence[GivenEdge]
) -> dict[str, list[Association]]:
    """Attach given associations to the units they start from; one whose target is in no older session is left out."""
    sources = {(unit.granularity, unit.position): unit.id for unit in units}
    found: dict[str, list[Association]] = {}
    for edge in given:
        source = sources.get((edge.granularity, edge.position))
        state = index.sessions.get(edge.target_session)
        if source is None or state is None or state.record.sequence >= record.sequence:
            continue
        node = state.nodes[edge.target_granularity].get(edge.target_position)
        if node is not None:
            found.setdefault(source, []).append(Association(source, index.unit_id(node), edge.similarity))
    return found


def _batch(
    head: Head,
    records: Sequence[SessionRecord],
    units: Sequence[MemoryUnit],
    table: VectorTable,
    associations: Mapping[str, Sequence[Association]],
) -> Batch:
    """Put rows and their vectors side by side."""
    found = [table[unit.text] for unit in units]
    n_dims = table.n_dims
    owners = [row for row, text in enumerate(found) for _ in range(len(text.windows))]
    windows = [text.windows for text in found if len(text.windows)]
    return Batch(
        head,
        records,
        [replace(unit, n_windows=text.n_windows) for unit, text in zip(units, found, strict=True)],
        np.stack([text.vector for text in found]) if found else np.zeros((0, n_dims), np.float32),
        np.array(owners, np.intp),
        np.concatenate(windows) if windows else np.zeros((0, n_dims), np.float32),
        associations,
    )


def merged(head: Head, batches: Sequence[Batch]) -> Batch:
    """Join batches that are to be stored together."""
    offsets = np.cumsum([0, *(len(batch.units) for batch in batches)])
    return Batch(
        head,
        [record for batch in batches for record in batch.records],
        [unit for batch in batches for unit in batch.units],
        np.concatenate([batch.vectors for batch in batches]),
        np.concatenate([batch.window_owners + start for batch, start in zip(batches, offsets[:-1], strict=True)]),
        np.concatenate([batch.windows for batch in batches]),
        {uid: edges for batch in batches for uid, edges in batch.associations.items()},
    )
