"""Why these hits came, in this order: as words, as a dict, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime

from memgas.errors import InvalidInputError
from memgas.types import JSON, Hit, Path, Reason, Route, Share, Trace, UnitScore

_REASON = ("session_id", "place", "place_before", "date", "shares")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one retrieval decided. `str()` gives it in words.

    Attributes
    ----------
    query
        As it was asked.
    hits
        Those that came back.
    trace
        Every figure.
    """

    query: str
    hits: tuple[Hit, ...]
    trace: Trace

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield it line by line."""
        trace = self.trace
        yield f"query: {self.query}"
        yield from _overview(trace)
        yield from (line for route in trace.routes for line in _route(route))
        if trace.seeds:
            yield "seeds: " + ", ".join(f"{unit_name(seed)} {seed.score:.2f}" for seed in trace.seeds)
        paths = {path.session_id: path for path in trace.paths}
        reasons = {reason.session_id: reason for reason in trace.reasons}
        for number, hit in enumerate(self.hits, 1):
            parts = " + ".join(f"{name} {value:.4f}" for name, value in hit.parts.items() if value)
            yield f"{number}. {hit.session_id}  score {hit.score:.2f}  rank score {hit.rank_score:.4f} = {parts or 0}"
            if hit.session_id in reasons:
                yield from (f"   {line}" for line in reason_lines(reasons[hit.session_id]))
            if hit.session_id in paths:
                yield f"   {path_line(paths[hit.session_id])}"
        if (verdict := trace.verdict) is not None:
            dropped = ", ".join(verdict.dropped) or "none"
            yield f"filter: kept {len(verdict.kept)}, dropped {dropped}{verdict.note and f' ({verdict.note})'}"
        yield from (f"degraded: {what}" for what in trace.degraded)

    def as_dict(self) -> dict[str, JSON]:
        """Return it as JSON's types: the query, the trace's fields, and for each hit its scores, reason and path.

        No memory text but session ids, and the query.
        """
        trace = self.trace
        paths = {path.session_id: plain(path) for path in trace.paths}
        reasons = {reason.session_id: plain(reason) for reason in trace.reasons}
        hits: list[JSON] = [
            {
                "session_id": hit.session_id,
                "score": hit.score,
                "rank_score": hit.rank_score,
                "parts": dict(hit.parts),
                "happened_at": hit.happened_at.isoformat(),
                "reason": reasons.get(hit.session_id),
                "path": paths.get(hit.session_id),
            }
            for hit in self.hits
        ]
        told = ("namespace", "n_sessions", "n_units", "routes", "seeds", "verdict", "seconds", "degraded")
        return {"query": self.query, **{name: plain(getattr(trace, name)) for name in told}, "hits": hits}

    def as_json(self, *, indent: int | None = 2) -> str:
        """Return `as_dict` as JSON text."""
        return json.dumps(self.as_dict(), ensure_ascii=False, indent=indent)


def reason_lines(reason: Reason) -> Iterator[str]:
    """Yield the lines that say what brought a session where it stands."""
    moved = reason.place_before - reason.place
    by = (
        "did not move it" if not moved else f"moved it {'up' if moved > 0 else 'down'} from place {reason.place_before}"
    )
    brought = sum(share.association for share in reason.shares)
    yield f"associations {by} ({brought:+.4f})"
    yield from (_share(share) for share in reason.shares)
    if reason.date:
        yield f"date      {reason.date:+.4f}"


def path_line(path: Path) -> str:
    """Return how a session was reached, in one line."""
    if len(path.steps) == 1:
        what = "a seed itself" if path.steps[0].score > 0 else "reached by no association, best unit"
        return f"{what}: {unit_name(path.steps[0])}"
    links = [
        f" -{similarity:.2f}-> {unit_name(step)}"
        for step, similarity in zip(path.steps[1:], path.similarities, strict=True)
    ]
    return f"path: {unit_name(path.steps[0])}{''.join(links)}"


def unit_name(unit: UnitScore) -> str:
    """Name a unit for people."""
    return f"{unit.session_id}/{unit.granularity.value}/{unit.position}"


def plain(value: object) -> JSON:
    """Return a result as one JSON value: dataclasses as objects, times in ISO 8601.

    Raises
    ------
    InvalidInputError
        It holds something that has no JSON form.
    """
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        names = _REASON if isinstance(value, Reason) else [field.name for field in fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    raise InvalidInputError(f"a {type(value).__name__} has no JSON form")


def _share(share: Share) -> str:
    return (
        f"{share.unit.granularity.value:<9} {share.dense + share.lexical:+.4f} = meaning {share.dense:+.4f}"
        f" + words {share.lexical:+.4f}; associations {share.association:+.4f}; weight {share.weight:.3f},"
        f" best unit {unit_name(share.unit)}"
    )


def _overview(trace: Trace) -> Iterator[str]:
    total = sum(trace.seconds.values())
    stages = ", ".join(f"{stage} {1000 * seconds:.1f}" for stage, seconds in trace.seconds.items())
    yield f"namespace: {trace.namespace}: {trace.n_sessions} sessions, {trace.n_units} units"
    yield f"milliseconds: {1000 * total:.1f} ({stages})"


def _route(route: Route) -> Iterator[str]:
    entropy = "  -  " if route.entropy is None else f"{route.entropy:5.2f}"
    yield (
        f"router: {route.granularity.value:<8} weight {route.weight:.3f}  entropy {entropy}  over {route.n_units} units"
        + (": " if route.best else "")
        + ", ".join(f"{unit_name(unit)} {unit.score:.2f}" for unit in route.best)
    )
