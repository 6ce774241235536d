"""Two things timed side by side, and the table of what came out."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter, process_time, thread_time

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """Of two works done in turns, ours and theirs, in seconds.

    Attributes
    ----------
    wall, cpu
        Medians: by the clock, and of processor time of the calling thread, which other processes disturb least.
    best
        Least processor time.
    """

    wall: tuple[float, float]
    cpu: tuple[float, float]
    best: tuple[float, float]


def side_by_side(ours: Work, theirs: Work, *, repeats: int, of_process: bool = False) -> Times:
    """Time two works in turns, after one unmeasured turn each; `of_process`: count all threads' processor time."""
    clock = process_time if of_process else thread_time
    walls: tuple[list[float], list[float]] = ([], [])
    cpus: tuple[list[float], list[float]] = ([], [])
    ours(), theirs()
    gc.collect()
    for _ in range(repeats):
        for number, work in enumerate((ours, theirs)):
            began, cpu_began = perf_counter(), clock()
            work()
            cpus[number].append(clock() - cpu_began)
            walls[number].append(perf_counter() - began)
    return Times((median(walls[0]), median(walls[1])), (median(cpus[0]), median(cpus[1])), (min(cpus[0]), min(cpus[1])))


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of the table.

    Attributes
    ----------
    ratio, goal
        The ratio measured, and the bound on it: a most unless `at_least`; None: shown only.
    times
        What was timed, in words, with absolute times: of this machine, never asserted.
    """

    work: str
    setting: str
    ratio: float
    goal: float | None
    at_least: bool
    times: str

    @property
    def is_met(self) -> bool:
        """Whether the ratio is within the goal."""
        if self.goal is None:
            return True
        return bool(self.ratio >= self.goal if self.at_least else self.ratio <= self.goal)

    def to_json(self) -> dict[str, object]:
        """Return it as JSON."""
        return {**asdict(self), "is_met": self.is_met}


@dataclass(slots=True)
class Table:
    """What was measured so far."""

    rows: list[Measured] = field(default_factory=list)

    def add(
        self, work: str, setting: str, ratio: float, goal: float | None, times: str, *, at_least: bool = False
    ) -> None:
        """Add a row."""
        self.rows.append(Measured(work, setting, float(ratio), goal, at_least, times))

    def lines(self) -> list[str]:
        """Return the table as text."""
        lines = [f"{'work':34} {'setting':40} {'ratio':>8}  {'goal':>8}         times"]
        for row in self.rows:
            goal = "" if row.goal is None else f"{'>=' if row.at_least else '<='} {row.goal:.4g}"
            verdict = "shown " if row.goal is None else "met   " if row.is_met else "MISSED"
            lines.append(f"{row.work:34} {row.setting:40} {row.ratio:8.3g}  {goal:>8} {verdict}  {row.times}")
        return lines


def ms(seconds: float) -> str:
    """Write a duration."""
    return f"{1e3 * seconds:.3g} ms"
