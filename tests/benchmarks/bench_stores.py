"""What opening costs: a large namespace, many small ones, and the memory that a mirror takes."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
import pytest

from memgas import MemGAS
from memgas.index import load
from memgas.stores.batches import visible_ids
from memgas.stores.chroma import ChromaStore
from memgas.testing import HashEmbedder
from memgas.types import GRANULARITIES, Head
from tests.benchmarks.generated import N_DIMS, ROWS_A_SESSION, UNITS_A_SESSION, batches, queries
from tests.benchmarks.timing import Table, ms

pytestmark = pytest.mark.benchmark

N_UNITS = int(os.environ.get("MEMGAS_BENCH_UNITS", "100000"))
N_NAMESPACES = int(os.environ.get("MEMGAS_BENCH_NAMESPACES", "1000"))


def read_raw(store: ChromaStore, namespace: str) -> None:
    """Read the rows of a namespace as they are: records, metadata, texts and vectors, by id, and nothing made of them."""
    head = store.head(namespace)
    assert isinstance(head, Head)
    records = store._records(head, range(head.next_number))
    ids = {g: [uid for record in records for uid in visible_ids(record, g)] for g in GRANULARITIES}
    assert store._journal is not None
    for granularity, table in store._tables.units.items():
        for start in range(0, len(ids[granularity]), 2_000):
            page = ids[granularity][start : start + 2_000]
            table._collection.get(ids=page, include=["metadatas", "documents"])
            store._journal.load(page)


def test_reopening(table: Table) -> None:
    """The first retrieval of a large namespace after opening: at most twice the reading of its raw rows."""
    text, vector = queries(1)[0]
    with TemporaryDirectory() as folder:
        store = ChromaStore.open(Path(folder))
        for batch in batches("u", N_UNITS // UNITS_A_SESSION, page=200):
            store.put(batch)
        for batch in batches("other", 50):
            store.put(batch)
        MemGAS(store=store, embedder=HashEmbedder(N_DIMS)).close()
        store = ChromaStore.open(Path(folder))
        store.head("u")
        began, wall_began = process_time(), perf_counter()
        read_raw(store, "u")
        raw, raw_wall = process_time() - began, perf_counter() - wall_began
        memory = MemGAS(store=store, embedder=HashEmbedder(N_DIMS))
        began, wall_began = process_time(), perf_counter()
        memory.retrieve(text, namespace="u", query_vector=vector)
        first, first_wall = process_time() - began, perf_counter() - wall_began
        for clock, ours, rows in (("processor", first, raw), ("wall", first_wall, raw_wall)):
            table.add("reopen, first retrieve", f"{N_UNITS:,} units, of reading the raw rows, {clock}", ours / rows, 2.0,
                      f"{ours:.3g} s, raw {rows:.3g} s")  # fmt: skip
        assert list(memory._workspace._entries) == ["u"]
        memory.close()


def test_memory_of_a_mirror(table: Table) -> None:
    """What a mirror allocates, against the float32 vectors of its rows; text is not held."""
    n_sessions = N_UNITS // UNITS_A_SESSION
    pages = list(batches("u", n_sessions, page=150))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        index = load("u", N_DIMS, pages, k1=0.9, b=0.4)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    vectors = 4 * N_DIMS * n_sessions * ROWS_A_SESSION
    assert index.n_nodes == n_sessions * UNITS_A_SESSION
    table.add("memory of a mirror", f"{index.n_nodes:,} units, of its float32 vectors", held / vectors, 2.0,
              f"{held / 1e6:.0f} MB, vectors {vectors / 1e6:.0f} MB")  # fmt: skip


def test_many_users(table: Table) -> None:
    """The first retrieval of a small namespace among many: at most 1.5 of what it costs in a store of its own."""
    text, vector = queries(1)[0]
    costs = []
    for n_namespaces in (N_NAMESPACES, 1):
        with TemporaryDirectory() as folder:
            store = ChromaStore.open(Path(folder))
            for number in range(n_namespaces):
                for batch in batches(f"user-{number}", 20, seed=number % 5, n_turns=4):
                    store.put(batch)
            memory = MemGAS(store=store, embedder=HashEmbedder(N_DIMS))
            spent = []
            for number in range(60):
                name = f"user-{number % n_namespaces}"
                memory._workspace._entries.pop(name, None)
                began = process_time()
                memory.retrieve(text, namespace=name, query_vector=vector)
                spent.append(process_time() - began)
            memory.close()
            costs.append(float(np.median(spent[5:])))
    table.add("many users, first retrieve", f"{N_NAMESPACES:,} namespaces of 20 sessions of 4 turns, of one such",
              costs[0] / costs[1], 1.5, f"{ms(costs[0])}, alone {ms(costs[1])} (processor)")  # fmt: skip
