"""What it costs to tell why: tracing and explaining against a retrieve, and why-not. Least seconds by the clock, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import numpy as np
import pytest

from memgas import Digest, MemGAS, NewSession, Retrieval, Turn, recalling
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder
from memgas.tracing import traced
from memgas.types import Trace
from memgas.words import RecentWords
from tests.benchmarks.timing import Table, ms

pytestmark = pytest.mark.benchmark

N_UNITS = 10_000
QUESTIONS = 60
CHANCE = 1 / np.arange(1, 5_001)  # of each of 5,000 words, by Zipf's law
CHANCE /= CHANCE.sum()
QUERIES = ("w1 w17 w230 w4000", "w2 w5 w1000", "w33 w4 w77 w900 w12")


def sessions() -> list[NewSession]:
    """Sessions of 20 exchanges with a digest: 23 units each, 10,000 in all."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(5_000)])
    made = []
    for number in range(N_UNITS // 23):
        said = [" ".join(rng.choice(words, 14, p=CHANCE)) for _ in range(40)]
        turns = [Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(said)]
        made.append(NewSession(turns, str(number), digest=Digest(" ".join(said[:3]), tuple(said[3].split()[:6]))))
    return made


@pytest.fixture(scope="module")
def memory() -> MemGAS:
    """Return a memory without Chroma, and without a model."""
    memory = MemGAS(store=InMemoryStore(), embedder=HashEmbedder(n_dims=384))
    memory.add_many(sessions(), namespace="u")
    return memory


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemGAS]:
    """Yield a memory as a user has it: on disk, with the model that comes with it."""
    with MemGAS(str(tmp_path_factory.mktemp("memory"))) as memory:
        memory.add_many(sessions(), namespace="u")
        yield memory


def least(
    works: Sequence[Callable[[str], object]],
    queries: Sequence[str],
    repeats: int,
    prepare: Callable[[], object] = lambda: None,
) -> list[float]:
    """Return the least seconds of each work for each query, the works in turns, summed over the queries."""
    totals = [0.0] * len(works)
    for query in queries:
        seconds = [np.inf] * len(works)
        for _ in range(repeats):
            for number, work in enumerate(works):
                prepare()
                began = perf_counter()
                work(query)
                seconds[number] = min(seconds[number], perf_counter() - began)
        totals = [total + of_query for total, of_query in zip(totals, seconds, strict=True)]
    return totals


def untraced(trace: Trace, *_: object) -> Trace:
    """Leave out what `traced` records."""
    return trace


def asked(memory: MemGAS, patch: pytest.MonkeyPatch) -> tuple[Callable[[str], Retrieval], Callable[[str], Retrieval]]:
    """Return a retrieve without a trace, and one with."""

    def by(trace: Callable[..., Trace]) -> Callable[[str], Retrieval]:
        def ask(query: str) -> Retrieval:
            patch.setattr(recalling, "traced", trace)
            return memory.retrieve(query, namespace="u")

        return ask

    return by(untraced), by(traced)


def test_tracing_costs_little(on_disk: MemGAS, monkeypatch: pytest.MonkeyPatch, table: Table) -> None:
    """What tracing adds to a retrieve as a user makes it: the question embedded, the words read from disk."""
    rng = np.random.default_rng(1)
    queries = [" ".join(f"w{number}" for number in rng.choice(5_000, 6, p=CHANCE)) for _ in range(QUESTIONS)]
    ask_plain, ask = asked(on_disk, monkeypatch)
    for name, goal in (("asked first", 0.05), ("asked again", None)):

        def prepare(is_first: bool = goal is not None) -> None:
            if is_first:  # what it showed last is not at hand
                with on_disk._workspace.reading("u") as index:
                    index.words = RecentWords(max_chars=1_000_000)

        plain, with_trace = least([ask_plain, ask], queries, 5, prepare)
        share = with_trace / plain - 1
        table.add("tracing, of a retrieve", f"{N_UNITS:,} units on disk, {name}", share, goal,
                  f"{ms(with_trace / QUESTIONS)}, without {ms(plain / QUESTIONS)}")  # fmt: skip
        assert share < (goal or 0.10)


def test_telling_costs_little(memory: MemGAS, monkeypatch: pytest.MonkeyPatch, table: Table) -> None:
    """`explain()` as text and JSON: at most three retrieves, and these without a disk and a model."""
    ask_plain, ask = asked(memory, monkeypatch)

    def tell(query: str) -> str:
        explanation = ask(query).explain()
        return str(explanation) + explanation.as_json()

    plain, with_trace, told = least([ask_plain, ask, tell], QUERIES, 60)
    table.add("tracing, of a retrieve", f"{N_UNITS:,} units in memory, HashEmbedder", with_trace / plain - 1, None,
              f"{ms(with_trace / len(QUERIES))}, without {ms(plain / len(QUERIES))}")  # fmt: skip
    table.add("a retrieve with explain(), of one", f"{N_UNITS:,} units, text and JSON", told / plain, 3.0,
              f"{ms(told / len(QUERIES))}")  # fmt: skip
    assert told / plain < 3
    assert with_trace / plain - 1 < 0.10  # fails: 0.10 to 0.14, see docs/performance.md


def test_why_not_is_told_in_time(memory: MemGAS, table: Table) -> None:
    """A session far down the list, every value of every setting tried: under 2 s."""
    cost = least([lambda query: memory.explain(query, namespace="u", session_id="7")], QUERIES[:1], 3)[0]
    table.add("why-not, every setting tried", f"{N_UNITS:,} units, of 2 s", cost / 2, 1.0, ms(cost))
    assert cost < 2
