"""One call of `retrieve`, checked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from memgas.index import NamespaceIndex, SessionState
from memgas.slots import microseconds
from memgas.types import GRANULARITIES, Granularity, Kind
from memgas.where import Where, matches


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


def admitted(index: NamespaceIndex, request: Request) -> NDArray[np.bool_]:
    """Return which sessions may be returned, `(n_slots,)`: those that `Request.admits`, all at once."""
    table = index.by_slot
    may = table.is_visible
    if len(request.kinds) == 1:
        may &= table.is_chat if "chat" in request.kinds else ~table.is_chat
    if request.since is not None:
        may &= table.time >= microseconds(request.since)
    if request.until is not None:
        may &= table.time <= microseconds(request.until)
    for session_id in request.exclude_sessions:
        if (state := index.sessions.get(session_id)) is not None:
            may[state.slot] = False
    if request.where:
        for slot in np.flatnonzero(may).tolist():
            state = index.state(slot)
            may[slot] = state is not None and matches(state.record.metadata, request.where)
    return may
