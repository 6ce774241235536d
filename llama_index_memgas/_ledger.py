"""Each message exactly once: which of what a host hands over is new.

LlamaIndex's messages have no ids, and the same message comes by up to three ways: when it is said, with the whole history
(`asave`), and when short-term memory overflows (the flush). So every turn is stored under an id of ours that says by which
way it came; it stays the same through retries, and the store keeps it through a restart and a deletion. What is a copy and
what was said again is told by counting:

- what is said is new;
- of a history, as many copies of a text are stored as it holds;
- a flush hands over each message once, the oldest first. So a message in it is stored already if a history was saved that
  had it and no flush has handed it over since, and then that copy is used up.

A message with an id of its own (`additional_kwargs["message_id"]` or `["id"]`) is known by that alone.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from uuid import uuid4

from llama_index_memgas._recall import Scope
from memgas import MemGAS, SessionConflictError, Turn

Said = tuple[str, str]
_log = logging.getLogger("llama_index_memgas")
_N_KEPT = 1_000
_SAVED, _FLUSHED = "saved-", "flushed-"


@dataclass(slots=True)
class _Known:
    """What is known of what the store holds of one conversation.

    Attributes
    ----------
    stored
        Copies by speaker and text, deleted ones with those whose text could be told.
    ahead
        Those of them that came with a history and that a flush may still hand over.
    n_deleted
        Deleted turns whose text could not be told; each may be any text that seems to be missing.
    n_turns
        Of the conversation, when this was true.
    with_history
        Deleted turns were looked up in the host's history.
    is_stale
        A write failed, and may have been done or not.
    """

    stored: Counter[Said] = field(default_factory=Counter)
    ahead: Counter[Said] = field(default_factory=Counter)
    n_deleted: int = 0
    n_turns: int = 0
    with_history: bool = False
    is_stale: bool = False


@dataclass(slots=True)
class _Account:
    """One conversation.

    Attributes
    ----------
    known
        None: nothing was read from the store yet.
    pending
        What could not be stored, in order, with the ids it keeps.
    waiting
        Flushed turns of which it could not be told which are new.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    known: _Known | None = None
    pending: list[Turn] = field(default_factory=list)
    waiting: list[Turn] = field(default_factory=list)


class Ledger:
    """Stores what is new, and keeps what failed for the next call.

    Parameters
    ----------
    memory
        Where to.

    Notes
    -----
    May be called from any thread. Each method raises what `MemGAS.append` raises, and loses nothing then.
    """

    def __init__(self, memory: MemGAS) -> None:
        self._memory = memory
        self._accounts: OrderedDict[Scope, _Account] = OrderedDict()
        self._lock = threading.Lock()

    def said(self, scope: Scope, turns: Sequence[Turn]) -> int:
        """Store what was just said; return how many turns were stored, with those that had failed before."""
        account = self._account(scope)
        with account.lock:
            return self._write(scope, account, _named(turns, _SAVED))

    def saved(self, scope: Scope, history: Sequence[Turn], active: Sequence[Turn]) -> int:
        """Store what is new in a history.

        Parameters
        ----------
        history
            All turns, in order.
        active
            Those of them that no flush has handed over yet.
        """
        account = self._account(scope)
        with account.lock:
            n_stored = self._write(scope, account, [])
            known = self._known(scope, account, history)
            n_stored += self._write(scope, account, _named(_missing(known, history), _SAVED))
            # What failed in a flush is part of the history.
            account.waiting = []
            known.ahead = Counter(map(_said, active)) & Counter(map(_said, history))
            return n_stored

    def flushed(self, scope: Scope, turns: Sequence[Turn]) -> int:
        """Store what is new in a flush."""
        account = self._account(scope)
        with account.lock:
            account.waiting += turns
            n_stored = self._write(scope, account, [])
            fresh = _named(_not_ahead(self._known(scope, account, None), account.waiting), _FLUSHED)
            account.waiting = []
            return n_stored + self._write(scope, account, fresh)

    def forget(self, scope: Scope) -> None:
        """Forget what is known of a conversation, and what is still to be stored."""
        with self._lock:
            self._accounts.pop(scope, None)

    def _account(self, scope: Scope) -> _Account:
        with self._lock:
            account = self._accounts.setdefault(scope, _Account())
            self._accounts.move_to_end(scope)
            n_spare = max(len(self._accounts) - _N_KEPT, 0)
            settled = (old for old, one in self._accounts.items() if not one.pending and not one.waiting)
            for old in list(islice(settled, n_spare)):
                del self._accounts[old]
            return account

    def _write(self, scope: Scope, account: _Account, turns: list[Turn]) -> int:
        """Append what failed before and these turns; keep them if it fails again."""
        account.pending += turns
        if not account.pending:
            return 0
        known = account.known
        was_stale = known is None or known.is_stale
        if known is not None:
            known.is_stale = True
        n_stored = self._append(scope, account.pending)
        if known is not None:
            known.ahead.update(_said(turn) for turn in account.pending if _came(turn, _SAVED))
            if not was_stale and n_stored == len(account.pending):
                known.stored.update(map(_said, account.pending))
                known.n_turns += n_stored
                known.is_stale = False
        account.pending = []
        return n_stored

    def _append(self, scope: Scope, turns: Sequence[Turn]) -> int:
        """Append; of a message that was edited under its own id, the first wording is kept."""
        try:
            return self._memory.append(
                turns, namespace=scope.namespace, conversation_id=scope.conversation_id
            ).n_new_turns
        except SessionConflictError:
            n_stored = 0
            for turn in turns:
                try:
                    added = self._memory.append(turn, namespace=scope.namespace, conversation_id=scope.conversation_id)
                    n_stored += added.n_new_turns
                except SessionConflictError:
                    _log.warning("a message was edited after it was remembered; the first wording is kept")
            return n_stored

    def _known(self, scope: Scope, account: _Account, history: Sequence[Turn] | None) -> _Known:
        """Return what is known, read from the store if that is not up to date."""
        old = account.known
        if old is None:
            account.known = _read(self._turns(scope), history)
            return account.known
        # Fewer turns than were stored: a session was deleted, and must not come back.
        is_current = not old.is_stale and self._n_turns(scope) <= old.n_turns
        if not is_current or (history is not None and not old.with_history):
            account.known = replace(_read(self._turns(scope), history), ahead=old.ahead)
        return account.known or old

    def _n_turns(self, scope: Scope) -> int:
        records = self._memory.list_sessions(namespace=scope.namespace, conversation_id=scope.conversation_id)
        return max((record.first_turn + record.n_turns for record in records), default=0)

    def _turns(self, scope: Scope) -> list[Turn | None]:
        """Return the conversation's turns as they are stored; None where a session was deleted."""
        turns: list[Turn | None] = []
        for record in self._memory.list_sessions(namespace=scope.namespace, conversation_id=scope.conversation_id):
            turns += [None] * (record.first_turn - len(turns))
            turns += self._memory.get(record.session_id, namespace=scope.namespace).turns
        return turns


def _said(turn: Turn) -> Said:
    return turn.speaker, turn.text


def _named(turns: Iterable[Turn], way: str) -> list[Turn]:
    """Give turns without an id one that says by which way they came."""
    return [turn if turn.id is not None else replace(turn, id=f"{way}{uuid4().hex}") for turn in turns]


def _read(stored: Sequence[Turn | None], history: Sequence[Turn] | None) -> _Known:
    """Count what is stored; what was deleted is looked up in the history, as far as the two run alike."""
    known = _Known(n_turns=len(stored), with_history=history is not None)
    n_alike = 0
    for turn, here in zip(stored, history or (), strict=False):
        if turn is not None and not turn.is_tombstone and _said(turn) != _said(here):
            break
        known.stored[_said(here)] += 1
        known.ahead[_said(here)] += not _came(turn, _FLUSHED)
        n_alike += 1
    for turn in stored[n_alike:]:
        if turn is not None and not turn.is_tombstone:
            known.stored[_said(turn)] += 1
            known.ahead[_said(turn)] += _came(turn, _SAVED)
        else:
            known.n_deleted += history is not None or not _came(turn, _FLUSHED)
    return known


def _came(turn: Turn | None, way: str) -> bool:
    return turn is not None and turn.id is not None and turn.id.startswith(way)


def _missing(known: _Known, history: Sequence[Turn]) -> Iterator[Turn]:
    """Yield what a history has more of than is stored."""
    left = known.stored.copy()
    for turn in history:
        if turn.id is not None:
            yield turn
        elif left[_said(turn)] > 0:
            left[_said(turn)] -= 1
        elif known.n_deleted > 0:
            known.n_deleted -= 1
            known.stored[_said(turn)] += 1
        else:
            yield turn


def _not_ahead(known: _Known, turns: Sequence[Turn]) -> Iterator[Turn]:
    """Yield what no history had, and use up what one had."""
    for turn in turns:
        if turn.id is not None:
            yield turn
        elif known.ahead[_said(turn)] > 0:
            known.ahead[_said(turn)] -= 1
        elif known.n_deleted > 0:
            known.n_deleted -= 1
        else:
            yield turn
