"""Ways to rank the sessions of a dialogue for a question: the baselines, the paper, and MemGAS."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.errors import InvalidInputError
from memgas.evaluation.bm25 import BM25
from memgas.evaluation.memories import memory_of, ranked_by
from memgas.evaluation.scoring import (
    FloatArray,
    max_per_session,
    mean_per_session,
    orders_of,
    reciprocal_ranks,
    standardise,
)
from memgas.evaluation.views import Views, normalised


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a method made of one dialogue.

    Attributes
    ----------
    orders
        For each judged question of the dialogue the session indices, best first.
    add_seconds
        To take in the sessions, once.
    query_seconds
        For all the questions together. Both without what the embedder took.
    """

    orders: Sequence[NDArray[np.intp]]
    add_seconds: float
    query_seconds: float


class Method(Protocol):
    """One way to rank."""

    @property
    def name(self) -> str:
        """Its name in tables."""
        ...

    def rank(self, views: Views) -> Ranking:
        """Rank all sessions for each judged question of a dialogue."""
        ...


Score = Callable[[Views], FloatArray]
"""Views of a dialogue to scores, `(n_questions, n_sessions)`, higher is better."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A method that is one formula."""

    name: str
    score: Score

    def rank(self, views: Views) -> Ranking:
        """Rank by the formula, ties to the earlier session."""
        self.score(views)  # makes the views that all methods share, which is nobody's time
        clock = _Clock(views)
        orders = orders_of(self.score(views))
        return Ranking(tuple(orders), 0.0, clock.read())


@dataclass(frozen=True, slots=True)
class BestOf:
    """The candidate with the best recall_all@3 over the whole data set: the strongest form of a baseline."""

    name: str
    candidates: tuple[Method, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """MemGAS itself, under some configuration."""

    name: str
    config: MemGASConfig

    def rank(self, views: Views) -> Ranking:
        """Add the sessions to an empty memory in memory, and ask it each question."""
        digests = views.digests
        clock = _Clock(views)
        with memory_of(views.dialogue, digests, embedder=views.embedder, config=self.config) as memory:
            add_seconds = clock.read()
            clock = _Clock(views)
            orders = [ranked_by(memory, views.dialogue, question) for question in views.dialogue.judged]
            return Ranking(orders, add_seconds, clock.read())


def memgas_variant(name: str, config: MemGASConfig) -> Memory:
    """Return a row for MemGAS under another configuration: an ablation, or one point of a sweep."""
    return Memory(name, config)


def dense(views: Views, granularity: str) -> FloatArray:
    """Score by cosine, a session by its best text: `(n_questions, n_sessions)`."""
    vectors, owners = views.vectors(granularity)
    return max_per_session(views.query_vectors @ vectors.T, owners)


def dense_turn_mean(views: Views) -> FloatArray:
    """Score by the cosine to the mean of a session's exchanges, as the published code does."""
    vectors, owners = views.vectors("turn")
    means = mean_per_session(vectors, owners)
    return views.query_vectors @ normalised(means.astype(np.float32)).T


def lexical(views: Views, granularity: str) -> FloatArray:
    """Score by BM25, a session by its best text: `(n_questions, n_sessions)`."""
    index = BM25(views.terms(granularity))
    scores = np.array([index.scores(terms) for terms in views.query_terms])
    return max_per_session(scores, views.texts(granularity).owners)


def z_sum(views: Views) -> FloatArray:
    """Add up z(dense max-turn), z(BM25 max-turn), z(BM25 session) and z(BM25 summary). Fixed: never to be tuned."""
    return (
        standardise(dense(views, "turn"))
        + standardise(lexical(views, "turn"))
        + standardise(lexical(views, "session"))
        + standardise(lexical(views, "summary"))
    )


def _dense_by(granularity: str) -> Baseline:
    return Baseline(granularity, lambda views: dense(views, granularity))


def _bm25_by(granularity: str) -> Baseline:
    return Baseline(f"bm25-{granularity}", lambda views: lexical(views, granularity))


def _rrf_with(granularity: str) -> Baseline:
    """Fuse the ranks of dense max-turn and BM25."""
    return Baseline(
        f"rrf-{granularity}",
        lambda views: reciprocal_ranks(dense(views, "turn")) + reciprocal_ranks(lexical(views, granularity)),
    )


def _methods() -> dict[str, Method | BestOf]:
    single = [_dense_by("session"), _dense_by("turn"), Baseline("turn-mean", dense_turn_mean), _dense_by("summary"),
              _dense_by("keyword")]  # fmt: skip
    bm25 = (_bm25_by("session"), _bm25_by("turn"))
    rrf = (_rrf_with("session"), _rrf_with("turn"))
    every: list[Method | BestOf] = [
        *single,
        _dense_by("hybrid"),
        *bm25,
        BestOf("bm25", bm25),
        BestOf("dense", tuple(single)),
        *rrf,
        BestOf("rrf", rrf),
        Baseline("zsum", z_sum),
        Memory("paper", MemGASConfig.paper()),
        Memory("memgas", MemGASConfig()),
    ]
    return {method.name: method for method in every}


METHODS: Mapping[str, Method | BestOf] = _methods()
"""Every method by its name. `turn` is the max over exchanges; `bm25`, `dense` and `rrf` are the best of their forms."""

DEFAULT_METHODS = ("session", "turn", "summary", "keyword", "bm25", "zsum", "paper", "memgas")


def methods_named(names: Sequence[str]) -> list[Method | BestOf]:
    """Return the methods of these names.

    Raises
    ------
    InvalidInputError
        There is no method of a name.
    """
    for name in names:
        if name not in METHODS:
            raise InvalidInputError(f"a method must be one of {', '.join(METHODS)}; got {name!r}")
    return [METHODS[name] for name in names]


class _Clock:
    """Seconds gone by, less those that the embedder took meanwhile."""

    def __init__(self, views: Views) -> None:
        self._embedder = views.embedder
        self._started = time.perf_counter() - views.embedder.seconds

    def read(self) -> float:
        return max(0.0, time.perf_counter() - self._embedder.seconds - self._started)
