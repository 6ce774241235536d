"""Figures that robustness tests report, printed together at the end of a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Figure = Callable[[str, float], None]
"""Call it with what was counted and how many."""

_MARK = "robustness: "


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Report a count; those of one name are added up, those that begin with "most" or "least" are not."""
    return lambda name, count: record_property(_MARK + name, count)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures."""
    figures: dict[str, float] = {}
    for report in terminalreporter.stats.get("passed", []):
        for key, value in report.user_properties:
            if report.when == "call" and key.startswith(_MARK):
                name = key.removeprefix(_MARK)
                pick = max if name.startswith("most") else min if name.startswith("least") else float.__add__
                figures[name] = pick(figures[name], float(value)) if name in figures else float(value)
    if figures:
        terminalreporter.section("robustness")
        for name, value in sorted(figures.items()):
            terminalreporter.write_line(f"{value:>12,.10g}  {name}")
