"""Whole sessions: what is new in them, replacing, deleting, reading. One writer a namespace at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from uuid import uuid4

from memgas import growth
from memgas.checks import check_digest, check_json, check_name, check_time, clean_turns
from memgas.config import MemGASConfig
from memgas.digests import Digests
from memgas.errors import InvalidInputError, LLMError, NotFoundError
from memgas.index import NamespaceIndex, SessionState
from memgas.protocols import LLM
from memgas.remembering import Draft, Remembering, deleted
from memgas.stored import fetch_session, fetch_turns, find
from memgas.types import Added, NewSession, Session, SessionRecord, Turn
from memgas.workspace import Workspace

_CHUNK = 16
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
    """Decides what is new in sessions that are given whole, and lets `Remembering` write it.

    Parameters
    ----------
    workspace
        Returns where sessions are kept; raises ClosedError when the memory is closed.
    remembering
        Writes them.
    digests
        Asks for digests.
    llm
        Whether there is one decides who makes digests.
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
        llm: LLM | None,
        config: MemGASConfig,
        clock: Callable[[], datetime],
    ) -> None:
        self._open = workspace
        self._remembering = remembering
        self._digests = digests
        self._llm = llm
        self._config = config
        self._clock = clock

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
            return replace(
                given, draft=replace(given.draft, digest=self._digests.ask(given.turns, given.draft.happened_at))
            )
        except LLMError as error:
            _log.warning("the digest of session %r is pending: %s", given.session_id, type(error).__name__)
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
        turns = (*fetch_turns(self._open().store, index, state), *fresh)
        # A digest of what was given would still have the words that were deleted here.
        digest = None if any(turn.is_tombstone for turn in turns) else given.draft.digest
        is_pending = digest is None and self._llm is not None and state.record.kind == "chat"
        draft = replace(Draft.of(state.record, turns, digest), is_pending=is_pending)
        self._remembering.rewrite(index, state, draft, now, is_open=False)
        if is_pending and not given.degraded:
            self._digests.later(index.namespace, [state.record])
        return Added(given.session_id, len(fresh), draft.is_pending, given.degraded)

    def exchange_starts(self, turns: Sequence[Turn]) -> list[int]:
        """Return where each exchange of turns would begin."""
        return self._remembering.exchange_starts(turns)

    # forgetting

    def delete_turn(self, namespace: str, session_id: str, position: int) -> None:
        """Make a turn a tombstone and write its session anew, so that no derived text holds its words."""
        with self._open().writing(namespace) as index:
            state = find(index, session_id)
            if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < state.n_turns:
                raise NotFoundError(f"session {session_id!r} has turns 0 to {state.n_turns - 1}; got {position!r}")
            turns = list(fetch_turns(self._open().store, index, state))
            turns[position] = replace(turns[position], text="")
            is_open = state.record.is_open
            is_chat = state.record.kind == "chat"
            wants_llm = self._llm is not None and is_chat and any(turn.text for turn in turns)
            draft = replace(Draft.of(state.record, tuple(turns), None), is_pending=wants_llm and not is_open)
            self._remembering.rewrite_now(index, state, draft, self._clock(), is_open=is_open)
            due = [index.sessions[session_id].record] if draft.is_pending else []
        self._digests.later(namespace, due)

    def delete_sessions(
        self, namespace: str, *, session_id: str | None = None, conversation_id: str | None = None
    ) -> None:
        """Delete one session, or all of a conversation."""
        with self._open().writing(namespace) as index:
            if session_id is not None:
                gone = [_buried(find(index, session_id))]
            else:
                name = conversation_id or ""
                records = [state.record for state in index.conversation(name)]
                buried = [record for record in index.tombstones.values() if growth.buried(record, name) is not None]
                gone = [deleted(record) for record in (*records, *buried)]  # it may begin anew, with the same ids
            self._remembering.mark(index, gone)

    # reading

    def has_words(self, namespace: str) -> bool:
        """Tell whether there is anything to find."""
        with self._open().reading(namespace) as index:
            return index.has_words

    def get(self, namespace: str, session_id: str) -> Session:
        """Return a session with its words."""
        with self._open().reading(namespace) as index:
            state = find(index, session_id)
            return fetch_session(self._open().store, index, state)


def _buried(state: SessionState) -> SessionRecord:
    """Return a session's tombstone; that of a conversation's session still knows the retries of its turns."""
    record = state.record
    if record.conversation_id is None:
        return deleted(record)
    return deleted(record, growth.tombstone(record.conversation_id, record.first_turn, state.keys))


def _new_turns(state: SessionState | None, given: _Given) -> Sequence[Turn]:
    if state is None:
        return given.turns
    return growth.new_turns_of_session(state.keys, given.turns, session_id=given.session_id)


def _needs_none(state: SessionState | None, given: _Given) -> bool:
    """Tell whether adding a session needs no digest now: nothing is new, or it goes on growing."""
    return state is not None and (state.record.is_open or not _new_turns(state, given))


def _added(given: _Given) -> Added:
    return Added(given.session_id, len(given.turns), given.draft.is_pending, given.degraded)
