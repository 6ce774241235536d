"""The explanation of a retrieval: each figure computed again from the stored units by other means."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memgas import MemGAS, MemGASConfig, Turn
from memgas.graph import AssociationGraph
from memgas.lexical import tokenize
from memgas.pagerank import push_pagerank
from memgas.paths import strongest_path, strongest_paths
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder, ScriptedLLM
from memgas.types import GRANULARITIES, MemoryUnit, Reason

START = datetime(2023, 3, 1, tzinfo=UTC)
WORDS = "lena bees hive barn honey market halden bank slug bean tomato garden roof swarm trap queen smoke".split()  # noqa: SIM905


def z(values: NDArray[np.floating]) -> NDArray[np.float64]:
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-6 * (abs(values.mean()) + spread) else np.zeros_like(values)


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


def filled(talks: list[list[list[str]]], config: MemGASConfig) -> MemGAS:
    """Remember talks, each a list of turns, each a list of words."""
    memory = MemGAS(store=InMemoryStore(), embedder=HashEmbedder(n_dims=48), config=config)
    for number, talk in enumerate(talks):
        turns = [Turn("assistant" if i % 2 else "user", " ".join(words)) for i, words in enumerate(talk)]
        memory.add(turns, namespace="u", session_id=str(number), happened_at=START + timedelta(days=20 * number))
    return memory


class Oracle:
    """Figures of one query, from the units in the store, by numpy and networkx."""

    def __init__(self, memory: MemGAS, query: str, in_may: bool) -> None:
        config = memory.config
        batches = list(memory._workspace.store.load("u"))
        self.units = [unit for batch in batches for unit in batch.units]
        vectors = np.concatenate([batch.vectors for batch in batches])
        cosines = np.asarray(vectors @ memory.embedder.embed_query(query), np.float64).round(6)
        n = len(self.units)
        self.dense, self.words, self.flow_z = np.zeros(n), np.zeros(n), np.zeros(n)
        self.rows = {g: [i for i, unit in enumerate(self.units) if unit.granularity is g] for g in GRANULARITIES}
        self.entropy, weight = {}, {}
        priors = [config.session_prior, config.turn_prior, config.summary_prior, config.keyword_prior]
        for g, prior in zip(GRANULARITIES, priors, strict=True):
            rows = self.rows[g]
            dense = z(cosines[rows])
            words = config.lexical_weight * z(bm25([self.units[i] for i in rows], query, config))
            spread = np.round(dense + words, 9).std()
            self.dense[rows], self.words[rows] = (dense / spread, words / spread) if spread > 1e-6 else (0, 0)
            share = np.exp((self.dense[rows] + self.words[rows]) / config.router_temperature)
            share /= share.sum()
            self.entropy[g] = float(-(share * np.log(share)).sum())
            by_entropy = 1 / (config.router_floor + self.entropy[g] / math.log(len(rows)))
            weight[g] = prior * (by_entropy if config.router == "normalised_entropy" else 1)
        self.weight = {g: w / sum(weight.values()) for g, w in weight.items()}
        self.similarity = self.dense + self.words
        self._dates(config, in_may)
        self._walk(memory, config)

    def _dates(self, config: MemGASConfig, in_may: bool) -> None:
        sessions = sorted({unit.session_id for unit in self.units}, key=int)
        days = [(START + timedelta(days=20 * int(s))).date() for s in sessions]
        first, last = datetime(2023, 5, 1).date(), datetime(2023, 5, 31).date()
        gap = np.array([max(0, (first - d).days, (d - last).days) for d in days], float)
        fading = np.where(gap <= 4 * config.date_decay_days, np.exp(-gap / config.date_decay_days), 0.0)
        near = z(fading) if in_may else np.zeros(len(days))
        self.date = dict(zip(sessions, config.date_weight * near, strict=True))

    def _walk(self, memory: MemGAS, config: MemGASConfig) -> None:
        score = np.array(
            [
                self.weight[u.granularity] * (s + self.date[u.session_id])
                for u, s in zip(self.units, self.similarity, strict=True)
            ]
        )
        seeds = np.argsort(-np.round(score, 7), kind="stable")[: config.n_seeds]
        self.seed_scores = sorted(score[seeds].tolist(), reverse=True)
        restart = np.maximum(score[seeds], 0)
        restart = restart / restart.sum() if restart.sum() > 0 else np.full(len(seeds), 1 / len(seeds))
        self.graph = memory.graph("u")
        start = dict.fromkeys(self.graph, 0.0) | {self.units[i].id: p for i, p in zip(seeds, restart, strict=True)}
        ranks = networkx.pagerank(
            self.graph, config.damping, start, weight="similarity", dangling=start, tol=1e-12, max_iter=500
        )
        flow = np.array([0.0 if start[u.id] else ranks[u.id] for u in self.units])
        for rows in self.rows.values():
            self.flow_z[rows] = config.association_weight * z(np.sqrt(np.round(flow[rows], 9)))

    def of(self, session_id: str) -> tuple[float, float]:
        """A session's score without and with associations."""
        plain = lifted = self.date[session_id]
        for g, rows in self.rows.items():
            own = [i for i in rows if self.units[i].session_id == session_id]
            plain += self.weight[g] * max(self.similarity[own])
            lifted += self.weight[g] * max((self.similarity + self.flow_z)[own])
        return plain, lifted


talks = st.lists(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=3, max_size=7), min_size=2, max_size=5), min_size=5, max_size=9
)
queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(talks, queries, st.booleans(), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.0, 0.15, 0.6]))
def test_every_figure_is_what_the_units_say(
    said: list[list[list[str]]], query: str, in_may: bool, lexical_weight: float, association_weight: float
) -> None:
    """Entropies, weights, best units, seeds, dense and lexical shares, associations, dates and places, computed anew."""
    config = MemGASConfig(lexical_weight=lexical_weight, association_weight=association_weight)
    memory = filled(said, config)
    query = f"{query} in May 2023" if in_may else query
    found = memory.retrieve(query, namespace="u", top_k=20)
    oracle = Oracle(memory, query, in_may)
    trace = found.explain().trace

    for route in trace.routes:
        rows = oracle.rows[route.granularity]
        assert route.entropy == pytest.approx(oracle.entropy[route.granularity], abs=1e-4)
        assert route.weight == pytest.approx(oracle.weight[route.granularity], abs=1e-4)
        best = sorted(oracle.similarity[rows].tolist(), reverse=True)[:3]
        assert [unit.score for unit in route.best] == pytest.approx(best, abs=1e-3)
    assert [seed.score for seed in trace.seeds] == pytest.approx(oracle.seed_scores, abs=1e-3)
    by_id = {unit.id: i for i, unit in enumerate(oracle.units)}
    for reason in trace.reasons:
        assert reason.date == pytest.approx(oracle.date[reason.session_id], abs=1e-6)
        for share in reason.shares:
            row, weight = by_id[share.unit.unit_id], oracle.weight[share.unit.granularity]
            assert share.weight == pytest.approx(weight, abs=1e-4)
            assert share.dense == pytest.approx(weight * oracle.dense[row], abs=2e-3)
            assert share.lexical == pytest.approx(weight * oracle.words[row], abs=2e-3)
        plain, lifted = oracle.of(reason.session_id)
        assert sum(share.association for share in reason.shares) == pytest.approx(lifted - plain, abs=1e-2)
    check_places(trace.reasons, {key: oracle.of(key)[0] for key in oracle.date})


def check_places(reasons: tuple[Reason, ...], before: dict[str, float]) -> None:
    """A place without associations counts those that are better by more than rounding, and at most those as good."""
    for reason in reasons:
        own = before[reason.session_id]
        better = sum(score > own + 1e-3 for score in before.values())
        as_good = sum(score > own - 1e-3 for score in before.values())
        assert better + 1 <= reason.place_before <= as_good


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(talks, queries, st.sampled_from([MemGASConfig(), MemGASConfig(session_score="sum")]))
def test_the_shares_sum_to_the_score(said: list[list[list[str]]], query: str, config: MemGASConfig) -> None:
    """Dense and lexical share make each part, associations and date the others, and all of them the rank score."""
    for number, hit in enumerate((found := filled(said, config).retrieve(query, namespace="u", top_k=20)).hits):
        reason = found.trace.reasons[number]
        assert hit.session_id == reason.session_id
        assert number + 1 == reason.place
        for share in reason.shares:
            assert share.dense + share.lexical == pytest.approx(hit.parts[share.unit.granularity.value], abs=1e-6)
        assert sum(share.association for share in reason.shares) == pytest.approx(hit.parts["association"], abs=1e-9)
        total = reason.date + sum(share.dense + share.lexical + share.association for share in reason.shares)
        assert total == pytest.approx(hit.rank_score, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.1, 0.5, 0.85]), st.booleans())
def test_many_paths_are_the_strongest_of_each(seed: int, damping: float, weighted: bool) -> None:
    """What the batch finds carries as much as what a search for each target alone finds, over edges that exist."""
    rng = np.random.default_rng(seed)
    graph = AssociationGraph()
    graph.add_nodes(30)
    ends = np.array([(a, b) for a, b in rng.integers(0, 30, (60, 2)) if a != b])
    graph.add_edges(ends[:, 0], ends[:, 1], rng.uniform(0.1, 1, len(ends)))
    seeds = rng.choice(30, 5, replace=False)
    reached, mass = push_pagerank(
        graph, seeds, rng.uniform(0.1, 1, 5), damping=damping, tolerance=1e-4, weighted=weighted
    )
    ranks = np.zeros(30)
    ranks[reached] = mass
    strength = graph.strength if weighted else graph.degree

    def carried(nodes: NDArray[np.intp], weights: NDArray[np.float64]) -> float:
        steps = zip(nodes[:-1], weights, strict=True)
        return float(ranks[nodes[0]] * np.prod([damping * (w if weighted else 1) / strength[n] for n, w in steps]))

    found = strongest_paths(graph, ranks, seeds, np.arange(30), damping=damping, weighted=weighted)
    for target, (nodes, weights) in enumerate(found):
        alone = strongest_path(graph, ranks, seeds, target, damping=damping, weighted=weighted)
        assert nodes[-1] == target
        assert len(nodes) == len(weights) + 1
        assert carried(nodes, weights) == pytest.approx(carried(*alone))


def test_text_dict_and_json_tell_the_same() -> None:
    """The text names each hit with its path and weights; the JSON is the dict; neither holds what was said."""
    memory = filled(
        [[["lena", "bees"], ["hive"]], [["barn", "roof"], ["slug"]], [["lena", "honey"], ["market"]]], MemGASConfig()
    )
    explanation = memory.retrieve("lena bees", namespace="u").explain()

    told: Any = explanation.as_dict()
    assert json.loads(explanation.as_json()) == json.loads(json.dumps(told))
    assert [hit.session_id for hit in explanation.hits] == [hit["session_id"] for hit in told["hits"]]
    assert {"query", "namespace", "routes", "seeds", "verdict", "seconds", "degraded", "hits"} <= set(told)
    for units, shown in (
        (explanation.trace.seeds, told["seeds"]),
        *(
            (route.best, of_route["best"])
            for route, of_route in zip(explanation.trace.routes, told["routes"], strict=True)
        ),
        *((path.steps, hit["path"]["steps"]) for path, hit in zip(explanation.trace.paths, told["hits"], strict=True)),
    ):
        assert units
        assert shown == [
            {"unit_id": u.unit_id, "session_id": u.session_id, "granularity": u.granularity.value,
             "position": u.position, "score": u.score}
            for u in units
        ]  # fmt: skip
    assert "1. 0  score" in str(explanation)
    assert "meaning" in str(explanation)
    assert "router: turn" in str(explanation)
    assert "market" not in explanation.as_json()


def test_the_filter_and_what_degraded_are_told() -> None:
    """A verdict and a failure of the filter stand in text and dict."""
    memory = MemGAS.in_memory(
        embedder=HashEmbedder(), llm=ScriptedLLM(["SUMMARY: Bees.\nKEYWORDS: bees", "[]", "no list"])
    )
    memory.add([Turn("user", "Lena keeps bees.")], namespace="u", session_id="0")

    dropped = memory.retrieve("bees", namespace="u", filter="llm").explain()
    failed = memory.retrieve("bees", namespace="u", filter="llm").explain()

    assert "filter: kept 0, dropped 0" in str(dropped)
    assert "degraded: " in str(failed)
    assert failed.as_dict()["degraded"]
