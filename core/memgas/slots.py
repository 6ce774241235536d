"""What is asked of all sessions of a mirror at once: their order, dates, kinds, as arrays by slot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from memgas.types import SessionRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NONE = -1


class SessionTable:
    """Columns over the slots that sessions have in a mirror. A deleted session keeps its slot, and is in none of them.

    Attributes
    ----------
    n_slots
        Slots ever given.
    """

    def __init__(self) -> None:
        self.n_slots = 0
        self._sequence = np.full(16, _NONE, np.int64)
        self._time = np.zeros(16, np.int64)
        self._day = np.zeros(16, np.int64)
        self._is_chat = np.zeros(16, bool)
        self._is_staged = np.zeros(16, bool)
        self._in_order: NDArray[np.intp] | None = None

    def put(self, slot: int, record: SessionRecord) -> None:
        """Write a session's row; a new slot is the next one."""
        if slot == self.n_slots:
            self._reserve(slot + 1)
            self.n_slots += 1
        self._sequence[slot] = record.sequence
        self._time[slot] = microseconds(record.happened_at)
        self._day[slot] = record.happened_at.toordinal()
        self._is_chat[slot] = record.kind == "chat"
        self._in_order = None

    def drop(self, slot: int) -> None:
        """Forget a session that was deleted."""
        self._sequence[slot] = _NONE
        self._in_order = None

    def stage(self, slot: int) -> None:
        """Hide a session that is not stored yet."""
        self._is_staged[slot] = True
        self._in_order = None

    def publish(self) -> None:
        """Show what was hidden."""
        self._is_staged[: self.n_slots] = False
        self._in_order = None

    @property
    def is_staging(self) -> bool:
        """Whether something is hidden."""
        return bool(self._is_staged.any())

    @property
    def is_staged(self) -> NDArray[np.bool_]:
        """Which sessions are not stored yet, `(n_slots,)`."""
        return self._is_staged[: self.n_slots]

    @property
    def is_visible(self) -> NDArray[np.bool_]:
        """Which slots hold a session that is stored, `(n_slots,)`."""
        visible: NDArray[np.bool_] = (self.sequence != _NONE) & ~self.is_staged
        return visible

    @property
    def is_chat(self) -> NDArray[np.bool_]:
        """Which sessions are chats, `(n_slots,)`; the others are items."""
        return self._is_chat[: self.n_slots]

    @property
    def sequence(self) -> NDArray[np.int64]:
        """Sequence number of each session, `(n_slots,)`; -1 where it was deleted."""
        return self._sequence[: self.n_slots]

    @property
    def time(self) -> NDArray[np.int64]:
        """When each happened, in microseconds since 1970, `(n_slots,)`."""
        return self._time[: self.n_slots]

    @property
    def day(self) -> NDArray[np.int64]:
        """The day each happened, where it happened: a proleptic Gregorian ordinal, `(n_slots,)`."""
        return self._day[: self.n_slots]

    def in_order(self) -> NDArray[np.intp]:
        """Return the slots of the sessions that are stored, oldest first, `(n_sessions,)`."""
        if self._in_order is None:
            visible = np.flatnonzero(self.is_visible)
            self._in_order = visible[np.argsort(self.sequence[visible], kind="stable")]
        return self._in_order

    def n_older(self, sequence: int) -> int:
        """Count the sessions that are older than a sequence number, those not stored yet among them."""
        return int(np.count_nonzero((self.sequence != _NONE) & (self.sequence < sequence)))

    def slot_of(self, sequence: int) -> int | None:
        """Return the slot of the session with a sequence number."""
        found = np.flatnonzero(self.sequence == sequence)
        return int(found[0]) if len(found) else None

    def _reserve(self, n_slots: int) -> None:
        if n_slots <= len(self._sequence):
            return
        more = max(n_slots, len(self._sequence) * 3 // 2) - len(self._sequence)
        for name in ("_sequence", "_time", "_day", "_is_chat", "_is_staged"):
            column = getattr(self, name)
            setattr(
                self, name, np.concatenate([column, np.full(more, _NONE if name == "_sequence" else 0, column.dtype)])
            )


def microseconds(when: datetime) -> int:
    """Return an aware time as microseconds since 1970, exactly."""
    return (when - _EPOCH) // _MICROSECOND
