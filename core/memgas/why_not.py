"""Why a session is not among the hits: where it was lost, by how much, and what would bring it in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from memgas.explaining import path_line, plain, reason_lines
from memgas.types import JSON, FilterVerdict, Path, Reason

Stage = Literal[
    "found", "not_found", "kind", "excluded", "time", "metadata", "words", "rank", "score", "filter"
]  # fmt: skip
"""`found`: it is a hit. The others, in the order in which a retrieval loses sessions: there is no such session in this
namespace; it is an item, or a chat, and the other kind was asked for; it was excluded; it lies outside `since` and `until`;
`where` does not match; none of its units may be found; others rank higher; its score is below `min_score`; the language model
dropped it."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that held a session back in the ranking.

    Attributes
    ----------
    name
        `no_similar_unit`: none of its units is above the average of its granularity; the margin is how far the best is below.
        `granularity_weight`: at one granularity it would have been among the first `top_k`; the margin is how much the
        router's weight of that granularity lacks to 1. `not_a_seed`: the margin is what its best unit lacks to the last
        seed, in weighed similarity. `outranked`: what its rank score lacks to the last that came in.
    granularity
        Of `granularity_weight`.
    """

    name: Literal["no_similar_unit", "granularity_weight", "not_a_seed", "outranked"]
    margin: float
    granularity: str = ""


@dataclass(frozen=True, slots=True)
class Rival:
    """A session that ranks higher."""

    session_id: str
    place: int
    rank_score: float


@dataclass(frozen=True, slots=True)
class Change:
    """The smallest change of one setting alone that brings the session in.

    Attributes
    ----------
    setting
        An argument of `retrieve`, or a field of `MemGASConfig`.
    now, needed
        Its present value, and the nearest one that does.
    place
        The session's place then, from 1.
    """

    setting: str
    now: JSON
    needed: JSON
    place: int


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why a session is not among the hits of a query, or that it is. `str()` gives it in words.

    Attributes
    ----------
    stage
        Where it was lost.
    margin
        By how much: seconds outside the span for `time`, rank score for `rank`, absolute score for `score`. None
        elsewhere.
    top_k
        How many hits were asked for.
    place, n_candidates
        Its place by rank score among the sessions that may be found, and their number. None before the ranking.
    score, rank_score
        As a hit would show them.
    outranked_by
        Those that came in its place, best first; at most ten.
    causes
        What held it back in the ranking.
    reason, path
        What each granularity and its associations brought, and how it was reached.
    is_pending
        Its digest is missing or stale: it is compared by its turns.
    changes
        For each setting that alone brings it in, the smallest change on the grid.
    unhelpful
        Settings that were tried, and whose whole grid does not help.
    note
        What the changes do not say.
    """

    query: str
    namespace: str
    session_id: str
    stage: Stage
    top_k: int
    margin: float | None = None
    place: int | None = None
    n_candidates: int | None = None
    score: float | None = None
    rank_score: float | None = None
    outranked_by: tuple[Rival, ...] = ()
    causes: tuple[Cause, ...] = ()
    reason: Reason | None = None
    path: Path | None = None
    is_pending: bool = False
    changes: tuple[Change, ...] = ()
    unhelpful: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield it line by line."""
        yield f"query: {self.query}"
        yield f"session {self.session_id}: {self.sentence()}"
        if self.place is not None and self.score is not None and self.rank_score is not None:
            yield (
                f"place {self.place} of {self.n_candidates}, rank score {self.rank_score:.4f}, score {self.score:.2f};"
                f" {self.top_k} were asked for"
            )
        if self.is_pending:
            yield "its digest is pending: it was compared by what it has"
        yield from (f"cause: {_cause(cause)}" for cause in self.causes)
        if self.outranked_by:
            yield "ahead of it: " + ", ".join(
                f"{r.place}. {r.session_id} {r.rank_score:.4f}" for r in self.outranked_by
            )
        if self.reason is not None:
            yield from reason_lines(self.reason)
        if self.path is not None:
            yield path_line(self.path)
        for change in self.changes:
            yield f"would come in, at place {change.place}, with {change.setting} {_value(change.needed)} instead of {_value(change.now)}"
        if self.unhelpful:
            yield f"no value tried helps alone: {', '.join(self.unhelpful)}"
        if self.note:
            yield self.note

    def sentence(self) -> str:
        """Say in one sentence where it was lost."""
        return {
            "found": "it is among the hits",
            "not_found": "not found: there is no such session in this namespace",
            "kind": "not asked for: it is of another kind",
            "excluded": "excluded by the call",
            "time": f"outside of since and until by {self.margin or 0:.0f} seconds",
            "metadata": "its metadata does not match",
            "words": "none of its units may be found by this call",
            "rank": f"outranked: its rank score lacks {self.margin or 0:.4f} to the last hit",
            "score": f"its score is {self.margin or 0:.4f} below min_score",
            "filter": "dropped by the language model",
        }[self.stage]

    def as_dict(self) -> dict[str, JSON]:
        """Return it as JSON's types."""
        found = plain(self)
        assert isinstance(found, dict)
        return {**found, "sentence": self.sentence()}


def with_verdict(told: WhyNot, verdict: FilterVerdict | None) -> WhyNot:
    """Add what the language model decided about a session that came as far as the filter."""
    if verdict is None or told.session_id not in verdict.dropped:
        return told
    without = Change("filter", "llm", None, told.place or 1)
    return replace(told, stage="filter", changes=(without,), note=verdict.note)


def _value(value: JSON) -> str:
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else repr(value)


def _cause(cause: Cause) -> str:
    return {
        "no_similar_unit": f"no similar unit: its best one is {cause.margin:.4f} below the average of its granularity",
        "granularity_weight": f"it would have come in by {cause.granularity} alone, whose weight lacks {cause.margin:.4f} to 1",
        "not_a_seed": f"not a seed: its best unit lacks {cause.margin:.4f} to the last seed",
        "outranked": f"outranked by {cause.margin:.4f}",
    }[cause.name]
