"""What it costs to tell why: tracing and explaining against a retrieve, and why-not. Medians of processor time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from statistics import median
from time import thread_time

import numpy as np
import pytest

from memgas import Digest, MemGAS, NewSession, Turn
from memgas.hits import HitDraft
from memgas.index import NamespaceIndex
from memgas.recalling import Recalling
from memgas.scoring import Readings, Scores
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder
from memgas.types import Trace

pytestmark = pytest.mark.benchmark

N_UNITS = 10_000
QUERIES = ("w1 w17 w230 w4000", "w2 w5 w1000", "w33 w4 w77 w900 w12")


@pytest.fixture(scope="module")
def memory() -> MemGAS:
    """Sessions of 20 exchanges with a digest: 23 units each, 10,000 in all."""
    memory = MemGAS(store=InMemoryStore(), embedder=HashEmbedder(n_dims=384))
    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(5_000)])
    chance = 1 / np.arange(1, 5_001)
    chance /= chance.sum()
    made = []
    for number in range(N_UNITS // 23):
        said = [" ".join(rng.choice(words, 14, p=chance)) for _ in range(40)]
        turns = [Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(said)]
        made.append(NewSession(turns, str(number), digest=Digest(" ".join(said[:3]), tuple(said[3].split()[:6]))))
    memory.add_many(made, namespace="u")
    return memory


def milliseconds(works: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Median processor time of this thread, the works in turns."""
    costs: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for work, of_work in zip(works, costs, strict=True):
            began = thread_time()
            work()
            of_work.append(1e3 * (thread_time() - began))
    return [median(of_work[1:]) for of_work in costs]


def untraced(
    _self: Recalling,
    _index: NamespaceIndex,
    _readings: Readings,
    _scores: Scores,
    _drafts: list[HitDraft],
    trace: Trace,
) -> Trace:
    """Leave out what `Recalling._traced` records."""
    return trace


def test_tracing_costs_little(memory: MemGAS, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retrieve with its trace against one without, the query's embedding left out; and `explain()` as text and JSON."""
    vectors = {query: memory.embedder.embed_query(query) for query in QUERIES}

    traced_by = Recalling._traced
    asked, asked_too, asked_as_well = cycle(QUERIES), cycle(QUERIES), cycle(QUERIES)

    def plain() -> None:
        query = next(asked)
        monkeypatch.setattr(Recalling, "_traced", untraced)
        memory.retrieve(query, namespace="u", query_vector=vectors[query])

    def traced() -> None:
        query = next(asked_too)
        monkeypatch.setattr(Recalling, "_traced", traced_by)
        memory.retrieve(query, namespace="u", query_vector=vectors[query])

    def explained() -> str:
        query = next(asked_as_well)
        explanation = memory.retrieve(query, namespace="u", query_vector=vectors[query]).explain()
        return str(explanation) + explanation.as_json()

    without, with_trace, told = milliseconds([plain, traced, explained], 90)
    share, ratio = with_trace / without - 1, told / without
    print(f"\nretrieve {without:.2f} ms, tracing {share:+.1%}; with explain() as text and JSON {ratio:.2f} x")  # noqa: T201
    assert share < 0.10
    assert ratio < 3


def test_why_not_is_told_in_time(memory: MemGAS) -> None:
    """A session far down the list, every value of every setting tried: under 2 s."""
    (cost,) = milliseconds([lambda: memory.explain(QUERIES[0], namespace="u", session_id="7")], 3)

    print(f"\nwhy-not over {N_UNITS} units: {cost:.0f} ms")  # noqa: T201
    assert cost < 2_000
