"""Growth, turn by turn: what a call means for a session, or for a conversation and its sittings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from memgas import growth
from memgas.config import MemGASConfig
from memgas.digests import Digests
from memgas.embedding import VectorTable
from memgas.errors import InvalidInputError
from memgas.index import NamespaceIndex, SessionState
from memgas.remembering import Draft, Remembering
from memgas.stored import fetch_digest, fetch_turns, find
from memgas.types import Added, SessionRecord, Turn
from memgas.units import split_exchanges, turns_of
from memgas.workspace import Workspace


class Conversations:
    """Decides which of the given turns are new, and which session they belong to.

    Parameters
    ----------
    workspace
        Returns where sessions are kept; raises ClosedError when the memory is closed.
    remembering
        Writes them.
    digests
        Follow when a session is closed.
    config
        Settings read when a memory is added.
    clock
        Tells the time, with a zone.
    """

    def __init__(
        self,
        workspace: Callable[[], Workspace],
        remembering: Remembering,
        digests: Digests,
        config: MemGASConfig,
        clock: Callable[[], datetime],
    ) -> None:
        self._open = workspace
        self._remembering = remembering
        self._digests = digests
        self._config = config
        self._clock = clock

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
        self._digests.later(namespace, due)
        return Added(session_id, len(fresh), is_pending)

    def converse(self, namespace: str, conversation_id: str, turns: Sequence[Turn], at: int | None) -> Added:
        """Append to a conversation: to its open session, or to the next one."""
        with self._open().writing(namespace) as index:
            states = index.conversation(conversation_id)
            stored, end = growth.positions(_places(index, conversation_id, states))
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
        self._digests.later(namespace, due)
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
        whole = (*fetch_turns(self._open().store, index, state), *turns)
        draft = replace(
            Draft.of(state.record, whole, fetch_digest(self._open().store, index, state)),
            is_pending=state.record.kind == "chat",
        )
        self._remembering.rewrite(index, state, draft, now, is_open=True)

    def close_session(self, namespace: str, session_id: str) -> None:
        """Mark a session closed; its digest follows in the background."""
        with self._open().writing(namespace) as index:
            record = find(index, session_id).record
            due = [record] if record.is_open else []
            self._close(index, due)
        self._digests.later(namespace, due)

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


def _places(
    index: NamespaceIndex, conversation_id: str, states: Sequence[SessionState]
) -> list[tuple[int, Sequence[growth.TurnKey]]]:
    """Return first position and keys of a conversation's sessions, deleted ones among them, oldest first."""
    places: list[tuple[int, int, Sequence[growth.TurnKey]]] = [
        (state.record.sequence, state.record.first_turn, state.keys) for state in states
    ]
    for record in index.tombstones.values():
        if (gone := growth.buried(record, conversation_id)) is not None:
            places.append((record.sequence, *gone))
    return [(first, keys) for _, first, keys in sorted(places, key=lambda place: place[0])]


def _closed(record: SessionRecord) -> SessionRecord:
    return replace(record, is_open=False, is_pending=record.kind == "chat")


def _tail(state: SessionState) -> growth.Tail:
    """Return the end of a session that is in the mirror."""
    last = state.last_exchange
    if last is None:
        return growth.Tail(state.n_turns, state.record.updated_at, ())
    return growth.Tail(state.n_turns, last.spans[-1].happened_at or state.record.updated_at, turns_of([last]))
