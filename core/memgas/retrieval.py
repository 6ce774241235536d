"""What `retrieve` returns: hits and how they came about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from memgas.context import render_context
from memgas.types import Hit, Path, Trace, UnitScore


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The hits of one query, best first, and the trace of how they were found.

    Attributes
    ----------
    query
        As it was asked.
    hits
        At most `top_k`.
    trace
        Router, seeds, paths, filter, times, and what degraded.
    count_tokens
        What `context` counts its budget with.
    """

    query: str
    hits: tuple[Hit, ...]
    trace: Trace
    count_tokens: Callable[[str], int] = field(repr=False, compare=False)

    def context(self, max_tokens: int = 1_000) -> str:
        """Return text for the answering model: dated evidence in rank order, then summaries, within a budget.

        Parameters
        ----------
        max_tokens
            The budget, as the embedder estimates tokens.

        Raises
        ------
        InvalidInputError
            The budget is below 1.
        """
        return render_context(self.hits, max_tokens=max_tokens, count_tokens=self.count_tokens)

    def explain(self) -> str:
        """Tell in words why these hits came, in this order."""
        lines = [f"query: {self.query}", *_overview(self.trace), *_routes(self.trace), *_seeds(self.trace)]
        paths = {path.session_id: path for path in self.trace.paths}
        for rank, hit in enumerate(self.hits, 1):
            parts = " + ".join(f"{name} {value:.4f}" for name, value in hit.parts.items() if value)
            lines.append(f"{rank}. {hit.session_id}  score {hit.score:.2f}  rank score {hit.rank_score:.4f} = {parts}")
            if hit.session_id in paths:
                lines.append(f"   {_path(paths[hit.session_id])}")
        verdict = self.trace.verdict
        if verdict is not None:
            dropped = ", ".join(verdict.dropped) or "none"
            lines.append(f"filter: kept {len(verdict.kept)}, dropped {dropped}{verdict.note and f' ({verdict.note})'}")
        lines += [f"degraded: {what}" for what in self.trace.degraded]
        return "\n".join(lines)


def _overview(trace: Trace) -> list[str]:
    total = sum(trace.seconds.values())
    stages = ", ".join(f"{stage} {1000 * seconds:.1f}" for stage, seconds in trace.seconds.items())
    return [
        f"namespace: {trace.namespace}: {trace.n_sessions} sessions, {trace.n_units} units",
        f"milliseconds: {1000 * total:.1f} ({stages})",
    ]


def _routes(trace: Trace) -> list[str]:
    return [
        f"router: {route.granularity.value:<8} weight {route.weight:.3f}  "
        + ("entropy   -  " if route.entropy is None else f"entropy {route.entropy:.2f}")
        + f"  over {route.n_units} units"
        for route in trace.routes
    ]


def _seeds(trace: Trace) -> list[str]:
    if not trace.seeds:
        return []
    return ["seeds: " + ", ".join(f"{_name(seed)} {seed.score:.2f}" for seed in trace.seeds)]


def _path(path: Path) -> str:
    if len(path.steps) == 1:
        return f"a seed itself: {_name(path.steps[0])}"
    links = [
        f" -{similarity:.2f}-> {_name(step)}"
        for step, similarity in zip(path.steps[1:], path.similarities, strict=True)
    ]
    return f"path: {_name(path.steps[0])}{''.join(links)}"


def _name(unit: UnitScore) -> str:
    return f"{unit.session_id}/{unit.granularity.value}/{unit.position}"
