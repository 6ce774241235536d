"""One call of `retrieve`, checked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memgas.index import SessionState
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
