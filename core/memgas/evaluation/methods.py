"""Ways to rank the sessions of a dialogue for a question: the baselines, the paper, and MemGAS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.errors import InvalidInputError
from memgas.evaluation.bm25 import BM25
from memgas.evaluation.cached_embedder import Clock
from memgas.evaluation.memories import ranked_by, recalled
from memgas.evaluation.scoring import (
    FloatArray,
    max_per_session,
    mean_per_session,
    orders_of,
    reciprocal_ranks,
    standardise,
)
from memgas.evaluation.settings import with_settings
from memgas.evaluation.views import Views, normalised

_N_TIMED = 5


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


@runtime_checkable
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
        clock = Clock(views.embedder)
        orders = orders_of(self.score(views))
        return Ranking(tuple(orders), 0.0, clock.read())


@dataclass(frozen=True, slots=True)
class BestOf:
    """At each cut-off the candidate with the best recall_all there, over the whole data set: a baseline's strongest form."""

    name: str
    candidates: tuple[Method, ...]


@dataclass(frozen=True, slots=True)
class OracleOf:
    """For each question and measure the best of its candidates: an upper bound that nobody can reach without the answers."""

    name: str
    candidates: tuple[Method, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """MemGAS itself, under some configuration."""

    name: str
    config: MemGASConfig

    def rank(self, views: Views) -> Ranking:
        """Add the sessions to an empty memory in memory, and ask it each question."""
        told = views.told(self.config)
        asked = views.dialogue.judged
        orders = [ranked_by(told, self.config, views.dialogue, question) for question in asked]
        with told.under(self.config) as memory:
            clock = Clock(views.embedder)
            for question in asked[:_N_TIMED]:  # what a user waits for: hits with their evidence, not the order alone
                recalled(memory, views.dialogue, question, top_k=5)
            seconds = clock.read() / max(1, len(asked[:_N_TIMED]))
            return Ranking(orders, told.add_seconds, seconds * len(asked))


Entry = Method | BestOf | OracleOf
"""A row of a report."""


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


def newest_first(views: Views) -> FloatArray:
    """Score by time alone: what is left of the full history where the context window is too short for all of it."""
    return np.tile(np.arange(views.n_sessions, dtype=np.float64), (len(views.dialogue.judged), 1))


def _methods() -> dict[str, Entry]:
    granularities = [_dense_by("session"), _dense_by("turn"), _dense_by("summary"), _dense_by("keyword")]
    turn_mean = Baseline("turn-mean", dense_turn_mean)
    bm25 = (_bm25_by("session"), _bm25_by("turn"))
    rrf = (_rrf_with("session"), _rrf_with("turn"))
    every: list[Entry] = [
        Baseline("full-history", newest_first),
        *granularities,
        turn_mean,
        _dense_by("hybrid"),
        *bm25,
        BestOf("bm25", bm25),
        BestOf("dense", (*granularities, turn_mean)),
        *rrf,
        BestOf("rrf", rrf),
        Baseline("zsum", z_sum),
        OracleOf("oracle-granularity", tuple(granularities)),
        Memory("paper", MemGASConfig.paper()),
        Memory("memgas", MemGASConfig()),
        *(Memory(name, with_settings(MemGASConfig(), changed)) for name, changed in ABLATIONS.items()),
    ]
    return {method.name: method for method in every}


ABLATIONS: Mapping[str, Mapping[str, object]] = {
    "no-association": {"association_weight": 0.0},
    "no-gmm": {"accept": "all"},
    "no-pagerank": {"association_weight": 0.0},
    "one-hop": {"damping": 0.01},
    "no-router": {"router": "uniform"},
    "entropy-router": {"router": "normalised_entropy"},
    "no-lexical": {"lexical_weight": 1e-9},
    "no-dense": {"lexical_weight": 1e6},
    "no-dates": {"date_weight": 0.0},
    "no-sessions": {"session_prior": 0.0},
    "no-turns": {"turn_prior": 0.0},
    "no-summaries": {"summary_prior": 0.0},
    "no-keywords": {"keyword_prior": 0.0},
    "no-all": {
        "association_weight": 0.0, "router": "uniform", "lexical_weight": 1e-9, "date_weight": 0.0, "turn_prior": 0.0,
        "summary_prior": 0.0, "keyword_prior": 0.0,
    },
}  # fmt: skip
"""The default without one of its parts: what it takes away, as settings.

PageRank is the one way in which associations reach the score, so that `no-pagerank` is `no-association`; `one-hop` keeps
its first step: below a damping of about 0.01 nothing but the seeds' own neighbours passes the push's tolerance, and the scale
of what arrives is divided out. `no-gmm` associates a unit with its most similar ones, however many a mixture would take, up to
the same cap. The default weighs the granularities by fixed priors, so that `no-router` is the default; `entropy-router` puts
the router in. `no-lexical` and `no-dense` keep the scale and let one side outweigh the other. `no-all` is the cosine of the
session's text, the paper's "without all".
"""

METHODS: Mapping[str, Entry] = _methods()
"""Every method by its name. `turn` is the max over exchanges; `bm25`, `dense` and `rrf` are the best of their forms."""

DEFAULT_METHODS = ("session", "turn", "summary", "keyword", "bm25", "zsum", "paper", "memgas")

GROUPS: Mapping[str, tuple[str, ...]] = {
    "default": DEFAULT_METHODS,
    "ablation": ("memgas", *ABLATIONS),
    "all": tuple(METHODS),
}
"""Names that stand for several methods."""


def methods_named(names: Sequence[str]) -> list[Entry]:
    """Return the methods of these names, groups spelt out, each once.

    Raises
    ------
    InvalidInputError
        There is no method of a name.
    """
    for name in names:
        if name not in METHODS and name not in GROUPS:
            raise InvalidInputError(
                f"a method must be one of {', '.join(METHODS)}, or a group: {', '.join(GROUPS)}; got {name!r}"
            )
    spelt = dict.fromkeys(name for given in names for name in GROUPS.get(given, (given,)))
    return [METHODS[name] for name in spelt]
