"""The table of `make bench`: each measurement is a ratio of two things timed side by side; printed, and written as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from numpy import __version__ as numpy_version

from tests.benchmarks.timing import Table

_TABLE = Table()


@pytest.fixture(scope="session")
def table() -> Iterator[Table]:
    """Collect rows; at the end, merge them into the JSON file that `MEMGAS_BENCH_JSON` names."""
    yield _TABLE
    path = Path(os.environ.get("MEMGAS_BENCH_JSON", "build/bench.json"))
    known = json.loads(path.read_text("utf-8"))["rows"] if path.exists() else []
    fresh = [row.to_json() for row in _TABLE.rows]
    names = {(row["work"], row["setting"]) for row in fresh}
    rows = [*(row for row in known if (row["work"], row["setting"]) not in names), *fresh]
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"cpus": os.cpu_count(), "numpy": numpy_version, "load": os.getloadavg()[0]}
    path.write_text(json.dumps({"machine": facts, "rows": rows}, indent=1) + "\n", "utf-8")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if _TABLE.rows:
        terminalreporter.write_sep("=", "ratios measured side by side; times are of this machine, now")
        for line in _TABLE.lines():
            terminalreporter.write_line(line)
