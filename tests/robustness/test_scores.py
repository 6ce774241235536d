"""Scores are finite, in [0, 1], and the same in every run and process, for stores of 0, 1, 2 identical and very many units."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime

import pytest

from memgas import MemGAS, NewSession, Turn
from memgas.testing import HashEmbedder
from memgas.testing.store_batches import N_DIMS, make_batch, make_record, make_units
from memgas.types import Head
from tests.robustness import hostile
from tests.robustness.conftest import Figure
from tests.robustness.scale import run, scaled

pytestmark = pytest.mark.slow

NOON = datetime(2024, 5, 1, tzinfo=UTC)
N_SESSIONS = scaled(200, 1_000)
N_ROWS = scaled(10_000, 100_000)
N_TURNS = 12

PROGRAM = """
import json
from datetime import UTC, datetime
from memgas import MemGAS, NewSession, Turn
from memgas.testing import HashEmbedder
with MemGAS.in_memory(embedder=HashEmbedder(), clock=lambda: datetime(2024, 5, 1, tzinfo=UTC)) as memory:
    memory.add_many([NewSession([Turn("user", f"boat {n} {n % 7} sail"), Turn("assistant", f"wind {n % 5}")], f"s{n}")
                     for n in range(120)], namespace="n")
    found = memory.retrieve("boat wind 3", namespace="n", top_k=50)
    print(json.dumps([[h.session_id, h.score, h.rank_score] for h in found.hits]))
"""


def test_scores_of_small_stores(figure: Figure) -> None:
    """Nothing, one, and identical sessions get finite scores in [0, 1] that never grow down the list, for any query."""
    dice = random.Random(23)
    queries = ["boat", "unheard of", *(hostile.text(dice) for _ in range(scaled(10, 60)))]
    for n_sessions in (0, 1, 2, 3):
        with MemGAS.in_memory(embedder=HashEmbedder(), clock=lambda: NOON) as memory:
            same = [NewSession([Turn("user", "my boat is blue")], f"s{n}") for n in range(n_sessions)]
            memory.add_many(same, namespace="n")
            for query in queries:
                check(memory, query)
    figure("queries whose scores were looked at", 4 * len(queries))


def check(memory: MemGAS, query: str) -> None:
    """Check the scores of one query."""
    hits = memory.retrieve(query, namespace="n", top_k=1_000).hits
    scores = [hit.score for hit in hits]
    assert all(math.isfinite(score) and 0 <= score <= 1 for score in scores)
    assert all(math.isfinite(hit.rank_score) for hit in hits)
    assert scores == sorted(scores, reverse=True)
    assert len({hit.session_id for hit in hits}) == len(hits)


def test_scores_are_the_same_in_every_process() -> None:
    """Two processes with different hash seeds give the same hits and scores, to the last digit."""
    first, second = (json.loads(run(PROGRAM).stdout) for _ in range(2))
    assert len(first) == 50
    assert first == second


def test_scores_of_a_large_store(figure: Figure) -> None:
    """With very many units scores stay in [0, 1] and finite, and the right session is first."""
    words = [f"topic{n}" for n in range(997)]
    dice = random.Random(29)
    news = [
        NewSession([Turn(("user", "assistant")[n % 2], " ".join(dice.choices(words, k=8))) for n in range(N_TURNS)], f"s{i}")
        for i in range(N_SESSIONS)
    ]  # fmt: skip
    with MemGAS.in_memory(embedder=HashEmbedder(32), clock=lambda: NOON) as memory:
        memory.add_many(news, namespace="n")
        for number in dice.sample(range(N_SESSIONS), 20):
            asked = " ".join(turn.text for turn in news[number].turns[2:4])
            check(memory, asked)
            assert memory.retrieve(asked, namespace="n").hits[0].session_id == f"s{number}"
        n_units = sum(memory.stats("n").n_units.values())
    figure("most units in one namespace whose right session came first", n_units)
    figure("queries whose scores were looked at", 20)


def test_scores_of_a_hundred_thousand_units(figure: Figure) -> None:
    """With a hundred thousand units, put into the store as they are, scores stay finite, in [0, 1] and in order."""
    with MemGAS.in_memory(embedder=HashEmbedder(N_DIMS), clock=lambda: NOON) as memory:
        memory.add([Turn("user", "boat")], namespace="other")
        for n in range(N_ROWS // 1_000):
            record = make_record("n", f"s{n}", n, generation=n, revision=n, n_units=(1, 997, 1, 1))
            units = make_units(record, f"word{n} boat")
            memory._workspace.store.put(make_batch([record], units, head=Head("n", "epoch", n, n + 1), seed=n))
        for query in ("word7 boat", "boat turn 3", "unheard of", "x"):
            check(memory, query)
        assert sum(memory.stats("n").n_units.values()) == N_ROWS
    figure("most units in one namespace", N_ROWS)
    figure("queries whose scores were looked at", 4)
