"""What a retrieval costs against one pass over the same vectors. Ratios are printed; only a generous bound is asserted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter

import numpy as np
import pytest

from memgas import Digest, MemGAS, NewSession, Turn
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder

pytestmark = pytest.mark.benchmark

N_DIMS = 384
N_UNITS = 10_000


def sessions(n: int) -> Iterator[NewSession]:
    """Sessions of 40 turns: 20 exchanges, with a digest, so 23 units each."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(5_000)])
    chance = 1 / np.arange(1, 5_001)
    chance /= chance.sum()
    for number in range(n):
        said = [" ".join(rng.choice(words, 14, p=chance)) for _ in range(40)]
        turns = [Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(said)]
        yield NewSession(turns, str(number), digest=Digest(" ".join(said[:3]), tuple(said[3].split()[:6])))


@pytest.fixture(scope="module")
def memory() -> MemGAS:
    memory = MemGAS(store=InMemoryStore(), embedder=HashEmbedder(n_dims=N_DIMS))
    memory.add_many(sessions(N_UNITS // 23), namespace="u")
    return memory


def milliseconds(work: Callable[[], object], repeats: int = 30) -> float:
    """Median duration."""
    work()
    durations = []
    for _ in range(repeats):
        began = perf_counter()
        work()
        durations.append(perf_counter() - began)
    return 1e3 * median(durations)


def test_retrieve_against_one_pass(memory: MemGAS) -> None:
    """Without the embedder, 10,000 units: under twice one numpy pass over the same vectors, plus 10 ms."""
    n_units = sum(memory.stats("u").n_units.values())
    rows = n_units + memory.stats("u").n_windows
    vectors = np.random.default_rng(0).normal(size=(rows, N_DIMS)).astype(np.float32)
    vector = memory.embedder.embed_query("w1 w17 w230 w4000")

    ours = milliseconds(lambda: memory.retrieve("w1 w17 w230 w4000", namespace="u", query_vector=vector))
    one_pass = milliseconds(lambda: vectors @ vector)

    print(  # noqa: T201
        f"\nretrieve, {n_units} units ({rows} rows): {ours:.2f} ms, one pass {one_pass:.2f} ms; "
        f"bound 2 x + 10 ms = {2 * one_pass + 10:.2f} ms, used {ours / (2 * one_pass + 10):.0%}"
    )
    assert ours < 2 * one_pass + 10


def test_append_does_not_slow_the_next_retrieve(memory: MemGAS) -> None:
    """A retrieve right after an append costs what any costs: nothing is rebuilt."""
    vector = memory.embedder.embed_query("w1 w17 w230 w4000")

    def retrieve() -> None:
        memory.retrieve("w1 w17 w230 w4000", namespace="u", query_vector=vector)

    plain = milliseconds(retrieve)
    after = []
    for number in range(15):
        memory.append([Turn("user", f"w{number} w3 w900")], namespace="u", conversation_id="c")
        after.append(milliseconds(retrieve, repeats=1))

    print(f"\nretrieve after an append: {median(after) / plain:.2f} x a plain one ({plain:.2f} ms)")  # noqa: T201
    assert median(after) < 2 * plain
