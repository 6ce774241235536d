"""What opening costs: a large namespace, many small ones, and the memory that a mirror takes."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import pytest

from memgas import MemGAS
from memgas.index import load
from memgas.stores.batches import all_visible_ids
from memgas.stores.chroma import ChromaStore
from memgas.testing import HashEmbedder
from memgas.types import GRANULARITIES, Granularity, Head
from tests.benchmarks.generated import N_DIMS, ROWS_A_SESSION, UNITS_A_SESSION, batches, queries
from tests.benchmarks.timing import Table, ms

pytestmark = pytest.mark.benchmark

N_UNITS = int(os.environ.get("MEMGAS_BENCH_UNITS", "100000"))
N_NAMESPACES = int(os.environ.get("MEMGAS_BENCH_NAMESPACES", "1000"))


def read_raw(store: ChromaStore, namespace: str) -> int:
    """Read the rows of a namespace as they are: metadata, texts and vectors, by id, and nothing made of them."""
    head = store.head(namespace)
    assert isinstance(head, Head)
    n = 0
    for record in store._records(head, range(head.next_number)):
        n += sum(record.n_units)
    ids: dict[Granularity, list[str]] = {g: [] for g in GRANULARITIES}
    for record in store._records(head, range(head.next_number)):
        own = iter(all_visible_ids(record))
        for granularity, count in zip(GRANULARITIES, record.n_units, strict=True):
            ids[granularity] += [next(own) for _ in range(count)]
    for granularity, table in store._tables.units.items():
        wanted = ids[granularity]
        for start in range(0, len(wanted), 2_000):
            page = wanted[start : start + 2_000]
            table._collection.get(ids=page, include=["metadatas", "documents"])
            assert store._journal is not None
            store._journal.load(page)
    return n


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
        began = process_time()
        read_raw(store, "u")
        raw = process_time() - began
        memory = MemGAS(store=store, embedder=HashEmbedder(N_DIMS))
        began = process_time()
        memory.retrieve(text, namespace="u", query_vector=vector)
        first = process_time() - began
        table.add("reopen, first retrieve", f"{N_UNITS:,} units, of reading the raw rows", first / raw, 2.0,
                  f"{first:.3g} s, raw {raw:.3g} s (processor)")  # fmt: skip
        assert list(memory._workspace._entries) == ["u"]
        memory.close()


def test_memory_of_a_mirror(table: Table) -> None:
    """What a mirror allocates, against the float32 vectors of its rows; text is not held."""
    n_sessions = N_UNITS // UNITS_A_SESSION
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        index = load("u", N_DIMS, batches("u", n_sessions), k1=0.9, b=0.4)
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
                for batch in batches(f"user-{number}", 20, seed=number % 5):
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
    table.add("many users, first retrieve", f"{N_NAMESPACES:,} namespaces of 20 sessions, of one such",
              costs[0] / costs[1], 1.5, f"{ms(costs[0])}, alone {ms(costs[1])} (processor)")  # fmt: skip
