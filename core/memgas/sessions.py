"""Sessions and conversations: what a call means for what is stored. One writer a namespace at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from uuid import uuid4

from memgas import growth
from memgas.checks import check_digest, check_json, check_name, check_time, clean_turns
from memgas.config import MemGASConfig
from memgas.digest import parse_digest
from memgas.embedding import VectorTable
from memgas.errors import InvalidInputError, LLMError, MemGASError, NotFoundError
from memgas.index import NamespaceIndex, SessionState
from memgas.prompts import digest_prompt
from memgas.protocols import LLM, Embedder
from memgas.remembering import Draft, Remembering, deleted
from memgas.types import Added, Digest, Granularity, NewSession, Session, SessionRecord, Turn
from memgas.units import session_text, split_exchanges, turns_of
from memgas.workspace import Workspace

_CHUNK = 16
_LOST = Turn("unknown", "")  # stands for a turn whose row a repair could not bring back
_log = logging.getLogger("memgas")


@dataclass(frozen=True, slots=True)
class _Given:
    """A checked session, and what could not be done for it."""

    draft: Draft
    degraded: tuple[str, ...] = ()

    @property
    def session_id(self) -> str:
        return self.draft.session_id

    @property
    def turns(self) -> tuple[Turn, ...]:
        return self.draft.turns


class Sessions:
    """Decides what is new, and lets `Remembering` write it.

    Parameters
    ----------
    workspace
        Returns where sessions are kept; raises ClosedError when the memory is closed.
    embedder
        Returns normalised vectors and is safe to call from any thread.
    llm
        For digests; None: they are extracted.
    config
        Settings read when a memory is added.
    clock
        Tells the time, with a zone.
    """

    def __init__(
        self,
        workspace: Callable[[], Workspace],
        embedder: Embedder,
        llm: LLM | None,
        config: MemGASConfig,
        clock: Callable[[], datetime],
    ) -> None:
        self._open = workspace
        self._llm = llm
        self._config = config
        self._clock = clock
        self._remembering = Remembering(workspace, embedder, config)

    # whole sessions

    def add(
        self, namespace: str, sessions: Iterable[NewSession], progress: Callable[[int], None] | None = None
    ) -> list[Added]:
        """Add sessions in order, a few at a time."""
        if not isinstance(sessions, Iterable):
            raise InvalidInputError(f"sessions must be a list of NewSession; got {type(sessions).__name__}")
        return self.add_drafts(namespace, map(self._check, sessions), progress)

    def add_drafts(
        self, namespace: str, drafts: Iterable[Draft], progress: Callable[[int], None] | None = None
    ) -> list[Added]:
        """Add checked sessions in order, a few at a time."""
        results: list[Added] = []
        given = map(_Given, drafts)
        while chunk := list(islice(given, _CHUNK)):
            results += self._add_chunk(namespace, self._with_digests(namespace, chunk))
            if progress is not None:
                progress(len(results))
        return results

    def replace(self, namespace: str, new: NewSession) -> Added:
        """Write a session in place of whatever it held."""
        (given,) = self._with_digests(namespace, [_Given(self._check(new))], only_new=False)
        with self._open().writing(namespace) as index:
            state = index.sessions.get(given.session_id)
            if state is None:
                return self._add_one(index, given)
            kept = state.record
            draft = replace(
                given.draft, added_at=kept.added_at, conversation_id=kept.conversation_id, first_turn=kept.first_turn,
                happened_at=kept.happened_at if new.happened_at is None else given.draft.happened_at,
            )  # fmt: skip
            self._remembering.rewrite(index, state, draft, self._clock(), is_open=False)
            return Added(given.session_id, len(given.turns), draft.is_pending, given.degraded)

    def _check(self, new: NewSession) -> Draft:
        if not isinstance(new, NewSession):
            raise InvalidInputError(f"sessions must be a list of NewSession; one is {type(new).__name__}")
        is_item = new.kind == "item"
        if new.kind not in ("chat", "item"):
            raise InvalidInputError(f"kind must be 'chat' or 'item'; got {new.kind!r}")
        turns = () if is_item and not new.turns else clean_turns(new.turns)
        session_id = uuid4().hex if new.session_id is None else check_name(new.session_id, "session_id")
        now = self._clock()
        happened_at = now if new.happened_at is None else check_time(new.happened_at, "happened_at")
        if new.happened_at is None and turns and turns[0].happened_at is not None:
            happened_at = turns[0].happened_at
        metadata = check_json(new.metadata, "metadata")
        return Draft(session_id, turns, happened_at, now, metadata, kind=new.kind, digest=check_digest(new.digest))

    def _with_digests(self, namespace: str, chunk: Sequence[_Given], *, only_new: bool = True) -> list[_Given]:
        """Ask the LLM for the digests that are needed, before anybody has to wait for them."""
        llm = self._llm
        if llm is None:
            return list(chunk)
        with self._open().reading(namespace) as index:
            wanted = [
                one.draft.digest is None
                and one.draft.kind == "chat"
                and not (only_new and (one in chunk[:number] or _needs_none(index.visible(one.session_id), one)))
                for number, one in enumerate(chunk)
            ]
        with ThreadPoolExecutor(self._config.n_threads if llm.is_thread_safe else 1) as pool:
            return list(pool.map(lambda pair: self._with_digest(*pair), zip(chunk, wanted, strict=True)))

    def _with_digest(self, given: _Given, wanted: bool) -> _Given:
        if not wanted:
            return given
        try:
            return replace(given, draft=replace(given.draft, digest=self._ask(given.turns, given.draft.happened_at)))
        except LLMError as error:
            _log.warning("the digest of session %s is pending: %s", given.session_id, type(error).__name__)
            pending = replace(given.draft, is_pending=True)
            return replace(given, draft=pending, degraded=(f"digest pending: {error}",))

    def _add_chunk(self, namespace: str, chunk: Sequence[_Given]) -> list[Added]:
        results: list[Added] = []
        with self._open().writing(namespace) as index:
            fresh: dict[str, _Given] = {}
            for given in chunk:
                if given.session_id in index.sessions or given.session_id in fresh:
                    results += self._flush(index, fresh)
                    results.append(self._regrow(index, given))
                else:
                    fresh[given.session_id] = given
            results += self._flush(index, fresh)
        return results

    def _flush(self, index: NamespaceIndex, fresh: dict[str, _Given]) -> list[Added]:
        """Write the new sessions collected so far."""
        if not fresh:
            return []
        self._remembering.add(index, [given.draft for given in fresh.values()], self._clock())
        results = [_added(given) for given in fresh.values()]
        fresh.clear()
        return results

    def _add_one(self, index: NamespaceIndex, given: _Given) -> Added:
        return self._flush(index, {given.session_id: given})[0]

    def _regrow(self, index: NamespaceIndex, given: _Given) -> Added:
        """Let a stored session grow by what was given beyond it."""
        state = index.sessions[given.session_id]
        fresh = _new_turns(state, given)
        if not fresh:
            return Added(given.session_id, 0, state.record.is_pending)
        now = self._clock()
        if state.record.is_open:
            self._remembering.grow(index, state, fresh, now)
            return Added(given.session_id, len(fresh), pending=False)
        turns = (*self._turns(index, state), *fresh)
        # A digest of what was given would still have the words that were deleted here.
        digest = None if any(turn.is_tombstone for turn in turns) else given.draft.digest
        is_pending = digest is None and self._llm is not None and state.record.kind == "chat"
        draft = replace(Draft.of(state.record, turns, digest), is_pending=is_pending)
        self._remembering.rewrite(index, state, draft, now, is_open=False)
        if is_pending and not given.degraded:
            self._digest_later(index.namespace, [state.record])
        return Added(given.session_id, len(fresh), draft.is_pending, given.degraded)

    # growth

    def append(self, namespace: str, session_id: str, turns: Sequence[Turn], at: int | None) -> Added:
        """Append to one session, however long; a closed one is opened again."""
        with self._open().writing(namespace) as index:
            state = index.sessions.get(session_id)
            stored = dict(enumerate(state.keys)) if state else {}
            where = f"session {session_id!r}"
            if at is not None and at > len(stored):
                raise InvalidInputError(f"{where} holds {len(stored)} turns: at is at most that; got {at}")
            fresh = growth.new_turns_to_append(stored, len(stored), turns, at=at, where=where)
            now = self._clock()
            due = self._idle(index, now, besides=session_id)
            if fresh and state is None:
                draft = Draft(session_id, tuple(fresh), fresh[0].happened_at or now, now)
                table = self._remembering.embedded([fresh])
                self._remembering.open(index, draft, now, table, closing=[_closed(record) for record in due])
            elif fresh and state is not None:
                self._extend(index, state, fresh, now)
            self._close(index, due)
            is_pending = index.sessions[session_id].record.is_pending
        self._digest_later(namespace, due)
        return Added(session_id, len(fresh), is_pending)

    def converse(self, namespace: str, conversation_id: str, turns: Sequence[Turn], at: int | None) -> Added:
        """Append to a conversation: to its open session, or to the next one."""
        with self._open().writing(namespace) as index:
            states = index.conversation(conversation_id)
            stored, end = growth.positions([(state.record.first_turn, state.keys) for state in states])
            where = f"conversation {conversation_id!r}"
            fresh = growth.new_turns_to_append(stored, end, turns, at=at, where=where)
            now = self._clock()
            due = self._idle(index, now, besides=states[-1].record.session_id if states else "")
            session_id = states[-1].record.session_id if states else conversation_id
            first_turn = max(end, at or 0)  # what a deletion or a replacement took keeps its places
            may_grow = bool(states) and first_turn == end
            sittings = list(self._sittings(states[-1] if may_grow else None, fresh, now))
            # All are embedded before one is written: an embedder that fails half way leaves nothing behind.
            table = self._remembering.embedded([group for is_next, group in sittings if is_next])
            for is_next, group in sittings:
                if is_next:
                    begun = self._begin_next(index, conversation_id, group, now, table, first_turn=first_turn)
                    session_id, closing = begun
                    due += closing
                else:
                    self._extend(index, states[-1], group, now)
                first_turn += len(group)
            self._close(index, due)
            state = index.sessions.get(session_id)
            is_pending = state is not None and state.record.is_pending
        self._digest_later(namespace, due)
        return Added(session_id, len(fresh), is_pending)

    def _begin_next(
        self,
        index: NamespaceIndex,
        conversation_id: str,
        turns: Sequence[Turn],
        now: datetime,
        table: VectorTable,
        *,
        first_turn: int,
    ) -> tuple[str, list[SessionRecord]]:
        """Write turns into a conversation's next session; return its id and what that closes."""
        states = index.conversation(conversation_id)
        closing = [state.record for state in states if state.record.is_open]
        session_id = growth.next_session_id(conversation_id, len(states), index.sessions)
        draft = Draft(session_id, tuple(turns), turns[0].happened_at or now, now, None, conversation_id, first_turn)
        self._remembering.open(index, draft, now, table, closing=[_closed(record) for record in closing])
        return session_id, closing

    def _sittings(
        self, state: SessionState | None, turns: Sequence[Turn], now: datetime
    ) -> Iterator[tuple[bool, list[Turn]]]:
        """Cut turns where a conversation's next session begins; tell of each piece whether it begins one."""
        is_open = state is not None and state.record.is_open
        tail = _tail(state) if state is not None and is_open else None
        group: list[Turn] = []
        is_next = not is_open
        for turn in turns:
            begins = tail is not None and self._begins_exchange(tail, turn)
            if tail is not None and growth.begins_next_session(
                tail, turn, now, max_turns=self._config.max_session_turns,
                max_idle_minutes=self._config.max_idle_minutes, begins_exchange=begins,
            ):  # fmt: skip
                if group:
                    yield is_next, group
                group, is_next, tail = [], True, None
            tail = growth.grown(tail, turn, now, begins_exchange=begins)
            group.append(turn)
        if group:
            yield is_next, group

    def _begins_exchange(self, tail: growth.Tail, turn: Turn) -> bool:
        config = self._config
        exchanges = split_exchanges(
            [*tail.exchange, turn], max_turns=config.max_exchange_turns, max_chars=config.max_exchange_chars
        )
        return len(exchanges) > 1

    def _extend(self, index: NamespaceIndex, state: SessionState, turns: Sequence[Turn], now: datetime) -> None:
        if state.record.is_open:
            self._remembering.grow(index, state, turns, now)
            return
        whole = (*self._turns(index, state), *turns)
        draft = replace(
            Draft.of(state.record, whole, self._digest_of(index, state)), is_pending=state.record.kind == "chat"
        )
        self._remembering.rewrite(index, state, draft, now, is_open=True)

    # closing and digests

    def close_session(self, namespace: str, session_id: str) -> None:
        """Mark a session closed; its digest follows in the background."""
        with self._open().writing(namespace) as index:
            record = _find(index, session_id).record
            due = [record] if record.is_open else []
            self._close(index, due)
        self._digest_later(namespace, due)

    def _close(self, index: NamespaceIndex, records: Sequence[SessionRecord]) -> None:
        """Write down that sessions are closed, unless that was done along with something else."""
        still_open = [index.sessions[record.session_id].record for record in records]
        self._remembering.mark(index, [_closed(record) for record in still_open if record.is_open])

    def _idle(self, index: NamespaceIndex, now: datetime, besides: str) -> list[SessionRecord]:
        """Return the open sessions into which nothing was said for too long."""
        limit = timedelta(minutes=self._config.max_idle_minutes)
        return [
            state.record
            for state in index.visible_sessions()
            if state.record.is_open and state.record.session_id != besides and now - state.record.updated_at > limit
        ]

    def _digest_later(self, namespace: str, records: Sequence[SessionRecord]) -> None:
        for record in records:
            self._open().later(partial(self._digest_quietly, namespace, record.session_id))

    def _digest_quietly(self, namespace: str, session_id: str) -> bool:
        """Make a pending digest; what fails stays pending, and is told in the log."""
        try:
            return self._digest(namespace, session_id)
        except MemGASError as error:
            _log.warning("the digest of a session stays pending: %s", type(error).__name__)
            return False

    def digest_pending(self, namespace: str) -> int:
        """Make the digests that are due; return how many were made."""
        with self._open().reading(namespace) as index:
            due = [
                s.record.session_id for s in index.visible_sessions() if s.record.is_pending and not s.record.is_open
            ]
        return sum(self._digest_quietly(namespace, session_id) for session_id in due)

    def _digest(self, namespace: str, session_id: str) -> bool:
        with self._open().reading(namespace) as index:
            record = _find(index, session_id).record
            turns = self._turns(index, _find(index, session_id))
        if not record.is_pending or record.is_open:
            return False
        digest = (
            self._ask(turns, record.happened_at) if self._llm is not None and any(turn.text for turn in turns) else None
        )
        with self._open().writing(namespace) as index:
            state = _find(index, session_id)
            if state.record != record:
                return False  # written to meanwhile: whoever did that left it pending again, or finished it
            self._remembering.finish(index, state, turns, digest, self._clock())
        return True

    def _ask(self, turns: Sequence[Turn], happened_at: datetime) -> Digest:
        """Ask the LLM for a digest."""
        if self._llm is None:
            raise LLMError("no language model was given")
        n_keywords = self._config.n_keywords
        prompt = digest_prompt(session_text(turns), happened_at=happened_at, n_keywords=n_keywords)
        return parse_digest(self._llm.complete(prompt), n_keywords=n_keywords)

    # forgetting

    def delete_turn(self, namespace: str, session_id: str, position: int) -> None:
        """Make a turn a tombstone and write its session anew, so that no derived text holds its words."""
        with self._open().writing(namespace) as index:
            state = _find(index, session_id)
            if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < state.n_turns:
                raise NotFoundError(f"session {session_id!r} has turns 0 to {state.n_turns - 1}; got {position!r}")
            turns = list(self._turns(index, state))
            turns[position] = replace(turns[position], text="")
            is_open = state.record.is_open
            is_chat = state.record.kind == "chat"
            wants_llm = self._llm is not None and is_chat and any(turn.text for turn in turns)
            draft = replace(Draft.of(state.record, tuple(turns), None), is_pending=wants_llm and not is_open)
            self._remembering.rewrite(index, state, draft, self._clock(), is_open=is_open)
            due = [index.sessions[session_id].record] if draft.is_pending else []
        self._digest_later(namespace, due)

    def delete_sessions(
        self, namespace: str, *, session_id: str | None = None, conversation_id: str | None = None
    ) -> None:
        """Delete one session, or all of a conversation."""
        with self._open().writing(namespace) as index:
            if session_id is not None:
                records = [_find(index, session_id).record]
            else:
                records = [state.record for state in index.conversation(conversation_id or "")]
            self._remembering.mark(index, [deleted(record) for record in records])

    # reading

    def has_words(self, namespace: str) -> bool:
        """Tell whether there is anything to find."""
        with self._open().reading(namespace) as index:
            return index.has_words

    def get(self, namespace: str, session_id: str) -> Session:
        """Return a session with its words."""
        with self._open().reading(namespace) as index:
            state = _find(index, session_id)
            return self.whole(index, state)

    def whole(self, index: NamespaceIndex, state: SessionState) -> Session:
        """Return a session with its words; under the namespace's guard."""
        record = state.record
        return Session(
            record.namespace, record.session_id, self._turns(index, state), record.happened_at, record.added_at,
            record.metadata, record.conversation_id, self._digest_of(index, state), record.is_open, record.is_pending,
            record.kind, record.sequence,
        )  # fmt: skip

    def _turns(self, index: NamespaceIndex, state: SessionState) -> tuple[Turn, ...]:
        nodes = state.nodes[Granularity.TURN]
        ids = [index.unit_id(nodes[position]) for position in sorted(nodes)]
        turns: list[Turn] = []
        for unit in self._open().store.fetch(index.namespace, ids) if ids else ():
            turns += [_LOST] * (unit.first_turn - len(turns))
            turns += turns_of([unit])
        return tuple(turns)

    def _digest_of(self, index: NamespaceIndex, state: SessionState) -> Digest | None:
        source = state.record.digest_source
        if not source:
            return None
        ids = [
            index.unit_id(node)
            for granularity in (Granularity.SUMMARY, Granularity.KEYWORD)
            for node in state.nodes[granularity].values()
        ]
        texts = {unit.granularity: unit.text for unit in self._open().store.fetch(index.namespace, ids)} if ids else {}
        keywords = tuple(word for word in texts.get(Granularity.KEYWORD, "").split("; ") if word)
        return Digest(texts.get(Granularity.SUMMARY, ""), keywords, source)


def _find(index: NamespaceIndex, session_id: str) -> SessionState:
    state = index.visible(session_id)
    if state is None:
        raise NotFoundError(f"there is no session {session_id!r} in this namespace")
    return state


def _new_turns(state: SessionState | None, given: _Given) -> Sequence[Turn]:
    if state is None:
        return given.turns
    return growth.new_turns_of_session(state.keys, given.turns, session_id=given.session_id)


def _needs_none(state: SessionState | None, given: _Given) -> bool:
    """Tell whether adding a session needs no digest now: nothing is new, or it goes on growing."""
    return state is not None and (state.record.is_open or not _new_turns(state, given))


def _added(given: _Given) -> Added:
    return Added(given.session_id, len(given.turns), given.draft.is_pending, given.degraded)


def _closed(record: SessionRecord) -> SessionRecord:
    return replace(record, is_open=False, is_pending=record.kind == "chat")


def _tail(state: SessionState) -> growth.Tail:
    """Return the end of a session that is in the mirror."""
    last = state.last_exchange
    if last is None:
        return growth.Tail(state.n_turns, state.record.updated_at, ())
    return growth.Tail(state.n_turns, last.spans[-1].happened_at or state.record.updated_at, turns_of([last]))
