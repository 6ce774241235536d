"""The ranking of a retrieval, computed again from the stored units by other means."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import chain

import networkx
import numpy as np
import pytest
from numpy.typing import NDArray

from memgas import MemGAS, MemGASConfig, Turn
from memgas.lexical import tokenize
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder
from memgas.types import GRANULARITIES, MemoryUnit

START = datetime(2023, 3, 1, tzinfo=UTC)
TALKS = [
    ["My sister Lena keeps bees.", "How many hives has she got?", "Four, behind the barn."],
    ["I planted tomatoes and beans.", "Lovely, will they get enough sun?"],
    ["Lena's bees swarmed yesterday.", "Did she catch them?", "Yes, into an old hive."],
    ["The barn roof leaks again.", "Call the roofer, then."],
    ["We ate tomatoes from the garden.", "How did they taste?", "Sweet."],
    ["Lena sold her first honey.", "Where?", "At the market in Halden."],
    ["I work at Halden Bank now.", "Congratulations!"],
    ["The beans were eaten by slugs.", "Try beer traps."],
]
QUERIES = ["What does Lena do with her bees?", "What did I plant?", "What happened in May 2023?", "roof", "xyzzy"]


@pytest.fixture
def memory() -> MemGAS:
    memory = MemGAS(store=InMemoryStore(), embedder=HashEmbedder(n_dims=48))
    for number, talk in enumerate(TALKS):
        turns = [Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(talk)]
        memory.add(turns, namespace="u", session_id=str(number), happened_at=START + timedelta(days=20 * number))
    return memory


def z(values: NDArray[np.float64]) -> NDArray[np.float64]:
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-12 else np.zeros_like(values)


def bm25(units: list[MemoryUnit], query: str, config: MemGASConfig) -> NDArray[np.float64]:
    """BM25 as the textbook has it, over one granularity."""
    texts = [Counter(tokenize(unit.text)) for unit in units]
    average = sum(chain.from_iterable(text.values() for text in texts)) / len(texts)
    scores = np.zeros(len(units))
    for term in tokenize(query):
        df = sum(term in text for text in texts)
        idf = math.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
        for row, text in enumerate(texts):
            norm = config.bm25_k1 * (1 - config.bm25_b + config.bm25_b * text.total() / average)
            scores[row] += idf * text[term] / (text[term] + norm)
    return scores


def expected_scores(memory: MemGAS, query: str, in_may: bool) -> dict[str, float]:
    """Rank by the formulas of the documentation, with networkx for PageRank."""
    config, embedder = memory.config, memory.embedder
    batches = list(memory._workspace.store.load("u"))
    units = [unit for batch in batches for unit in batch.units]
    vectors = np.concatenate([batch.vectors for batch in batches])
    cosines = (vectors @ embedder.embed_query(query)).astype(np.float64)
    similarity = np.zeros(len(units))
    priors = [config.session_prior, config.turn_prior, config.summary_prior, config.keyword_prior]
    weight = {}
    for g, prior in zip(GRANULARITIES, priors, strict=True):
        rows = [i for i, unit in enumerate(units) if unit.granularity is g]
        words = bm25([units[i] for i in rows], query, config)
        similarity[rows] = z(np.round(z(cosines[rows]) + config.lexical_weight * z(words), 9))
        share = np.exp(similarity[rows] / config.router_temperature)
        share /= share.sum()
        entropy = -(share * np.log(share)).sum()
        by_entropy = 1 / (config.router_floor + entropy / math.log(len(rows)))
        weight[g] = prior * (by_entropy if config.router == "normalised_entropy" else 1)
    total = sum(weight.values())
    days = {str(i): (START + timedelta(days=20 * i)).date() for i in range(len(TALKS))}
    gap = [
        max(0, (datetime(2023, 5, 1).date() - d).days, (d - datetime(2023, 5, 31).date()).days) for d in days.values()
    ]
    gaps = np.array(gap)
    faded = np.where(gaps <= 4 * config.date_decay_days, np.exp(-gaps / config.date_decay_days), 0)
    near = z(faded) if in_may else np.zeros(len(days))
    dated = dict(zip(days, config.date_weight * near, strict=True))
    seed_score = np.array(
        [weight[u.granularity] / total * (s + dated[u.session_id]) for u, s in zip(units, similarity, strict=True)]
    )
    seeds = np.argsort(-seed_score, kind="stable")[: config.n_seeds]
    restart = np.maximum(seed_score[seeds], 0)
    restart /= restart.sum()
    graph = memory.graph("u")
    personalization = dict.fromkeys(graph, 0.0) | {units[i].id: p for i, p in zip(seeds, restart, strict=True)}
    ranks = networkx.pagerank(
        graph, config.damping, personalization, weight="similarity", dangling=personalization, tol=1e-12, max_iter=500
    )
    flow = np.array([0.0 if personalization[u.id] else ranks[u.id] for u in units])
    lifted = similarity.copy()
    scores = dict(dated)
    for g in GRANULARITIES:
        rows = [i for i, unit in enumerate(units) if unit.granularity is g]
        lifted[rows] += config.association_weight * z(np.sqrt(flow[rows]))
        for session_id in days:
            best = max(lifted[i] for i in rows if units[i].session_id == session_id)
            scores[session_id] += weight[g] / total * best
    return scores


@pytest.mark.parametrize("query", QUERIES[:4])
def test_rank_scores_are_what_the_formulas_say(memory: MemGAS, query: str) -> None:
    """Similarity, router, seeds, PageRank, dates and their sum agree with a computation by other means."""
    found = memory.retrieve(query, namespace="u", top_k=10)

    expected = expected_scores(memory, query, in_may="May" in query)

    assert {hit.session_id: hit.rank_score for hit in found.hits} == pytest.approx(expected, abs=2e-3)
    assert [hit.session_id for hit in found.hits] == sorted(expected, key=lambda key: -expected[key])


@pytest.mark.parametrize("query", QUERIES)
def test_parts_sum_to_the_rank_score_and_scores_never_rise(memory: MemGAS, query: str) -> None:
    """Every hit's parts sum to its rank score; hits are in that order; absolute scores are in [0, 1] and fall."""
    hits = memory.retrieve(query, namespace="u", top_k=10).hits

    assert [hit.rank_score for hit in hits] == pytest.approx([sum(hit.parts.values()) for hit in hits])
    assert [hit.rank_score for hit in hits] == sorted((hit.rank_score for hit in hits), reverse=True)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(0 <= hit.score <= 1 for hit in hits)


def test_a_path_leads_from_a_seed_over_real_edges(memory: MemGAS) -> None:
    """Each step of a path is an edge of the graph, with its similarity; it begins at a seed unless nothing reached it."""
    found = memory.retrieve(QUERIES[0], namespace="u", top_k=10)
    graph = memory.graph("u")
    seeds = {seed.unit_id for seed in found.trace.seeds}

    for path in found.trace.paths:
        ids = [step.unit_id for step in path.steps]
        assert len(ids) == 1 or ids[0] in seeds
        for source, target, similarity in zip(ids, ids[1:], path.similarities, strict=False):
            assert graph.edges[source, target]["similarity"] == pytest.approx(similarity)


def test_the_date_of_asking_decides_what_three_weeks_ago_was(memory: MemGAS) -> None:
    """The same words ask for other days when they are asked on another day."""
    asked = START + timedelta(days=81)
    query = "What happened three weeks ago?"

    then = memory.retrieve(query, namespace="u", asked_at=asked).hits[0]
    later = memory.retrieve(query, namespace="u", asked_at=asked + timedelta(days=60)).hits[0]

    assert ("3", "6") == (then.session_id, later.session_id)
    assert then.parts["date"] > 0


def test_paper_ranks_by_pagerank_alone() -> None:
    """The published settings order sessions by the sum of their nodes' PageRank."""
    memory = MemGAS.in_memory(embedder=HashEmbedder(n_dims=48), config=MemGASConfig.paper())
    for number, talk in enumerate(TALKS):
        turns = [Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(talk)]
        memory.add(turns, namespace="u", session_id=str(number), happened_at=START + timedelta(days=20 * number))

    hits = memory.retrieve(QUERIES[0], namespace="u", top_k=10).hits

    assert {"session", "turn", "summary", "keyword"} == set(hits[0].parts)
    assert 1 == pytest.approx(sum(hit.rank_score for hit in hits), abs=1e-3)
    assert {"turn": len(TALKS)}.items() <= memory.stats("u").n_units.items()


@pytest.mark.parametrize("n_same", [2, 3])
def test_identical_sessions_score_the_same(n_same: int) -> None:
    """What was said twice is found twice, with the same score; the older comes first."""
    memory = MemGAS(store=InMemoryStore(), embedder=HashEmbedder(n_dims=48))
    for number in range(n_same):
        memory.add([Turn("user", "Lena keeps bees.")], namespace="u", session_id=str(number), happened_at=START)

    hits = memory.retrieve("Who keeps bees?", namespace="u", top_k=10).hits

    assert [str(number) for number in range(n_same)] == [hit.session_id for hit in hits]
    assert 1 == len({round(hit.rank_score, 9) for hit in hits}) == len({hit.score for hit in hits})


def test_a_reloaded_mirror_ranks_the_same() -> None:
    """After rewriting and deleting, a mirror read anew gives the same hits and the same scores."""
    store = InMemoryStore()
    memory = MemGAS(store=store, embedder=HashEmbedder(n_dims=48))
    for number, talk in enumerate(TALKS * 3):
        turns = [Turn("assistant" if i % 2 else "user", f"{text} {number}") for i, text in enumerate(talk)]
        memory.add(turns, namespace="u", session_id=str(number), happened_at=START + timedelta(days=number))
    for number in (3, 11, 17):
        memory.delete_turn(str(number), 0, namespace="u")
    memory.delete_session("5", namespace="u")
    before = [memory.retrieve(query, namespace="u", top_k=30, asked_at=START).hits for query in QUERIES]

    with memory._workspace._inside("u") as entry:
        entry.index = None
    after = [memory.retrieve(query, namespace="u", top_k=30, asked_at=START).hits for query in QUERIES]

    for old, new in zip(before, after, strict=True):
        assert [hit.session_id for hit in old] == [hit.session_id for hit in new]
        assert [hit.rank_score for hit in new] == pytest.approx([hit.rank_score for hit in old], abs=1e-6)
