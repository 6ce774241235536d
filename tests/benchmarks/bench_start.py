"""What starting costs, in processes of their own: imports, and opening an empty folder."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from tempfile import TemporaryDirectory

import pytest

from tests.benchmarks.timing import Table, ms

pytestmark = pytest.mark.benchmark

_TIMED = "from time import process_time as now\n{before}\nbegan = now()\n{work}\nprint(now() - began)"
N = 7


def seconds(*works: tuple[str, str]) -> list[float]:
    """Return the median processor time of each `work`, done after its `before` in fresh processes, in turns."""
    spent: list[list[float]] = [[] for _ in works]
    for _ in range(N):
        for kept, (before, work) in zip(spent, works, strict=True):
            with TemporaryDirectory() as folder:
                code = _TIMED.format(before=before, work=work).replace("FOLDER", folder)
                run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True)
            kept.append(float(run.stdout))
    return [median(kept) for kept in spent]


def test_importing(table: Table) -> None:
    """`import memgas` under 0.3 s; an adapter adds at most 0.3 s to its framework."""
    (core,) = seconds(("", "import memgas"))
    table.add("import memgas", "seconds", core, 0.3, f"{ms(core)} (processor), numpy's own included")
    for name, framework in (
        ("langchain_memgas", "import langchain_core.retrievers, langchain.agents.middleware, langgraph.store.base"),
        ("llama_index_memgas", "import llama_index.core, llama_index.core.memory"),
    ):
        pytest.importorskip(name)
        (added,) = seconds((framework, f"import {name}"))
        table.add(f"import {name}", "seconds over its framework", added, 0.3, f"{ms(added)} (processor)")


def test_opening_an_empty_folder(table: Table) -> None:
    """`MemGAS(path)` against `import chromadb` and a persistent client."""
    ours, theirs = seconds(
        (
            "from memgas.testing import HashEmbedder",
            "from memgas import MemGAS; MemGAS('FOLDER', embedder=HashEmbedder()).close()",
        ),
        ("", "import chromadb; chromadb.PersistentClient('FOLDER').close()"),
    )
    table.add("MemGAS(path)", "an empty folder, of Chroma's own start", ours / theirs, 1.5,
              f"{ms(ours)}, Chroma {ms(theirs)} (processor)")  # fmt: skip
