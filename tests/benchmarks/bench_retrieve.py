"""What a retrieval costs: against one pass over the same rows, against Chroma's own query, and right after an append."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import thread_time

import numpy as np
import pytest

from memgas import MemGAS, Turn
from memgas.stores.chroma import ChromaStore
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder
from tests.benchmarks.generated import N_DIMS, UNITS_A_SESSION, batches, queries
from tests.benchmarks.timing import Table, ms, side_by_side

pytestmark = pytest.mark.benchmark

SIZES = (1_000, 10_000, 100_000)
GOLDEN = Path(__file__).parents[1] / "golden" / "generated.json"


def asking(memory: MemGAS, n_questions: int = 20) -> Callable[[], object]:
    """Return a retrieval of the next of some questions at each call; none embeds."""
    asked = cycle(queries(n_questions))

    def ask() -> object:
        text, vector = next(asked)
        return memory.retrieve(text, namespace="u", query_vector=vector)

    return ask


def filled(n_units: int) -> MemGAS:
    """Return a memory of about so many units, without Chroma, whose part in a retrieval is the words of five hits."""
    store = InMemoryStore()
    for batch in batches("u", n_units // UNITS_A_SESSION, page=200):
        store.put(batch)
    return MemGAS(store=store, embedder=HashEmbedder(N_DIMS))


def like_before(memory: MemGAS, n_units: int) -> None:
    """Assert that retrievals are those of `golden/generated.json`: the same sessions in the same order, scores to 1e-5.

    No speed-up may change them. After a change that is meant, write the file anew: `MEMGAS_WRITE_GOLDEN=1`.
    """
    now = [
        [[hit.session_id, round(hit.score, 7), round(hit.rank_score, 7)] for hit in hits]
        for text, vector in queries(20)
        for hits in [memory.retrieve(text, namespace="u", query_vector=vector, top_k=10).hits]
    ]
    known = json.loads(GOLDEN.read_text("utf-8"))
    if os.environ.get("MEMGAS_WRITE_GOLDEN"):
        write_golden({**known, str(n_units): now})
        return
    for hits, was in zip(now, known[str(n_units)], strict=True):
        assert [session_id for session_id, *_ in hits] == [session_id for session_id, *_ in was]
        scores, before = (np.array([row[1:] for row in rows], np.float64) for rows in (hits, was))
        np.testing.assert_allclose(scores, before, rtol=0, atol=1e-5)


def write_golden(found: dict[str, list[list[list[object]]]]) -> None:
    """Write a question a line."""
    sizes = [f' "{n}": [\n' + ",\n".join(f"  {json.dumps(hits)}" for hits in of) + "\n ]" for n, of in found.items()]
    GOLDEN.write_text("{\n" + ",\n".join(sizes) + "\n}\n", "utf-8")


@pytest.mark.parametrize("n_units", SIZES)
def test_against_one_pass(n_units: int, table: Table) -> None:
    """At most 1.5 of one float32 pass over the same rows, window rows counted, plus 2 ms; after an append as before it."""
    memory = filled(n_units)
    like_before(memory, n_units)
    stats = memory.stats("u")
    n_rows = sum(stats.n_units.values()) + stats.n_windows
    rows = np.random.default_rng(0).normal(size=(n_rows, N_DIMS)).astype(np.float32)
    vector, ask = rows[0].copy(), asking(memory)

    times = side_by_side(ask, lambda: rows @ vector, repeats=60)

    for name, (ours, one_pass) in (("median", times.cpu), ("best", times.best)):
        table.add("retrieve", f"{n_rows:,} rows, {name}, of 1.5 passes + 2 ms", ours / (1.5 * one_pass + 2e-3), 1.0,
                  f"{ms(ours)}, a pass {ms(one_pass)}")  # fmt: skip
    _after_append(memory, n_units, table)


def _after_append(memory: MemGAS, n_units: int, table: Table) -> None:
    ask = asking(memory)
    plain: list[float] = []
    after: list[float] = []
    for number in range(40):
        for kept in (plain, after):
            if kept is after:
                memory.append(
                    [Turn("ann", f"told you {number} of bafen")], namespace="u", conversation_id=f"c{number // 20}"
                )
            began = thread_time()
            ask()
            kept.append(thread_time() - began)
    table.add("retrieve after an append", f"{n_units:,} units, of a plain one", median(after) / median(plain), 1.2,
              f"{ms(median(after))}, plain {ms(median(plain))}")  # fmt: skip


@contextmanager
def on_disk(n_units: int) -> Iterator[ChromaStore]:
    """Yield a store on disk of about so many units."""
    with TemporaryDirectory() as folder:
        store = ChromaStore.open(Path(folder))
        for batch in batches("u", n_units // UNITS_A_SESSION, page=200):
            store.put(batch)
        try:
            yield store
        finally:
            store.close()


@pytest.mark.parametrize("n_units", [1_000, 10_000])
def test_on_disk(n_units: int, table: Table) -> None:
    """Within two passes and 10 ms; faster than Chroma's own query over the four collections; an append writes twice at most."""
    with on_disk(n_units) as store:
        memory = MemGAS(store=store, embedder=HashEmbedder(N_DIMS))
        _against_two_passes(memory, n_units, table)
        _against_chroma(memory, store, n_units, table)
        n_calls = _calls_of_an_append(memory, store)
        table.add("append", f"{n_units:,} units, calls of Chroma that write", n_calls, 2, f"{n_calls} calls")
        memory.close()


def _against_two_passes(memory: MemGAS, n_units: int, table: Table) -> None:
    stats = memory.stats("u")
    n_rows = sum(stats.n_units.values()) + stats.n_windows
    rows = np.random.default_rng(0).normal(size=(n_rows, N_DIMS)).astype(np.float32)
    vector = rows[0].copy()
    for name, ask in (("asked first", asking(memory, 80)), ("asked again", asking(memory, 10))):
        times = side_by_side(ask, lambda: rows @ vector, repeats=60, of_process=True)
        for clock, (ours, one_pass) in (
            ("wall", times.wall),
            ("processor", times.cpu),
            ("least processor", times.best),
        ):
            table.add("retrieve on disk", f"{n_units:,} units, {name}, {clock}, of 2 passes + 10 ms",
                      ours / (2 * one_pass + 1e-2), 1.0, f"{ms(ours)}, a pass {ms(one_pass)}")  # fmt: skip


def _against_chroma(memory: MemGAS, store: ChromaStore, n_units: int, table: Table) -> None:
    """Chroma is asked for what else it can find: its four collections, without a filter, which would slow it."""
    ask, asked = asking(memory, 200), cycle(queries(200))
    collections = [unit_table._collection for unit_table in store._tables.units.values()]
    counts = [collection.count() for collection in collections]  # type: ignore[attr-defined]

    def query(most: int) -> None:
        vector = next(asked)[1]
        for collection, n in zip(collections, counts, strict=True):
            collection.query(query_embeddings=[vector], n_results=min(n, most))  # type: ignore[attr-defined]

    for most, name in ((10, "10 results each"), (n_units, "all results")):
        times = side_by_side(ask, lambda most=most: query(most), repeats=20, of_process=True)  # type: ignore[misc]
        table.add("retrieve on disk", f"{n_units:,} units, of Chroma's query, {name}", times.wall[0] / times.wall[1],
                  1.0, f"{ms(times.wall[0])}, Chroma {ms(times.wall[1])}")  # fmt: skip


def _calls_of_an_append(memory: MemGAS, store: ChromaStore) -> int:
    calls: list[str] = []
    memory.append([Turn("ann", "the kettle is new")], namespace="u", conversation_id="c")
    with pytest.MonkeyPatch.context() as patch:
        for unit_table in store._tables:
            write = unit_table._collection.upsert
            patch.setattr(unit_table, "_collection", _Counting(unit_table._collection, write, calls))
        memory.append([Turn("bo", "and loud")], namespace="u", conversation_id="c")
    return len(calls)


class _Counting:
    """A collection that notes each call that writes."""

    def __init__(self, collection: object, write: Callable[..., object], calls: list[str]) -> None:
        self._collection, self._write, self._calls = collection, write, calls

    def upsert(self, **rows: object) -> object:
        self._calls.append("upsert")
        return self._write(**rows)

    def __getattr__(self, name: str) -> object:
        return getattr(self._collection, name)
