"""The baselines, worked out by hand and pinned."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.errors import ClosedError, InvalidInputError
from memgas.evaluation import (
    METHODS,
    BestOf,
    CachedEmbedder,
    evaluate,
    memgas_variant,
    methods_named,
    read_locomo,
    read_longmemeval,
)
from memgas.evaluation.dialogues import Dialogue, DialogueSession, Question
from memgas.evaluation.memories import ranked_by, recalled
from memgas.evaluation.methods import ABLATIONS, Method, OracleOf, Ranking, dense, lexical, z_sum
from memgas.evaluation.scoring import max_per_session, mean_per_session, orders_of, reciprocal_ranks, standardise
from memgas.evaluation.views import Views
from memgas.protocols import Embedder
from memgas.types import Turn

FIXTURES = Path(__file__).parent.parent / "fixtures"


class FrozenEmbedder:
    """Hashed words and nothing of the product's: pinned values must not move with its tokenizer."""

    name = "frozen"
    n_dims = 64
    max_tokens: int | None = None
    is_thread_safe = True

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Count hashed words: `(n_texts, 64)`."""
        vectors = np.zeros((len(texts), self.n_dims), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                number = int.from_bytes(blake2b(word.strip(".,?!").encode(), digest_size=4).digest(), "little")
                vectors[row, number % self.n_dims] += 1.0 if number & 64 else -1.0
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """As a document of the same words."""
        vector: NDArray[np.float32] = self.embed_documents([text])[0]
        return vector

    def count_tokens(self, text: str) -> int:
        """Count words."""
        return len(text.split())


def views_of(*texts: str | Sequence[str], ask: Sequence[str] = ("loom",), embedder: Embedder | None = None) -> Views:
    """Return views of sessions that hold these turns; their summaries are the first of them."""
    said = [[text] if isinstance(text, str) else text for text in texts]
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    sessions = tuple(
        DialogueSession(tuple(Turn("ab"[i % 2], turn) for i, turn in enumerate(turns)), moment, turns[0])
        for turns in said
    )
    questions = tuple(Question(str(i), text, "t", None, frozenset({0})) for i, text in enumerate(ask))
    dialogue = Dialogue("d", sessions, questions)
    return Views(dialogue, CachedEmbedder(embedder or FrozenEmbedder()), summaries="from-file")


def rank(name: str, views: Views) -> list[list[int]]:
    method = METHODS[name]
    assert isinstance(method, Method)
    return [order.tolist() for order in method.rank(views).orders]


# scores


def test_max_and_mean_per_session_by_hand() -> None:
    """Three texts of two sessions: the best score of each, and the mean vector of each."""
    owners = np.array([0, 0, 1])
    assert max_per_session(np.array([[1.0, 3.0, 2.0], [-5.0, -6.0, -7.0]]), owners).tolist() == [[3, 2], [-5, -7]]
    assert mean_per_session(np.array([[1.0, 3.0], [3.0, 5.0], [2.0, 2.0]]), owners).tolist() == [[2, 4], [2, 2]]


def test_standardise_by_hand() -> None:
    """Mean 0, spread 1 along the last axis; where nothing varies, 0 and no warning."""
    assert standardise(np.array([[1.0, 2.0, 3.0], [0.1, 0.1, 0.1], [0.0, 0.0, 0.0]])).tolist() == [
        pytest.approx([-(1.5**0.5), 0, 1.5**0.5]), [0, 0, 0], [0, 0, 0],
    ]  # fmt: skip
    assert standardise(np.array([5.0])).tolist() == [0.0]


@settings(deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=20))
def test_standardise_keeps_the_order(scores: list[float]) -> None:
    """A scale never changes who is before whom."""
    before = np.array(scores)
    after = standardise(before)
    assert np.isfinite(after).all()
    assert (np.diff(after[np.argsort(before, kind="stable")]) >= 0).all()


def test_orders_put_ties_to_the_earlier_session() -> None:
    """Best first; equal scores in the order of the sessions."""
    assert orders_of(np.array([1.0, 2.0, 2.0, 0.0, 1.0])).tolist() == [1, 2, 0, 4, 3]


def test_reciprocal_ranks_by_hand() -> None:
    """1 / (60 + rank), rank 1 the best."""
    assert reciprocal_ranks(np.array([0.5, 9.0, 1.0])).tolist() == pytest.approx([1 / 63, 1 / 61, 1 / 62])


# views


def test_views_cut_exchanges_and_texts_as_a_memory_does() -> None:
    """An exchange is an utterance and its reply, with the speakers; the session's text is all of its turns."""
    views = views_of(["hello loom", "what loom", "a big one"], "kayak")
    assert views.turn.texts == ("a: hello loom\nb: what loom", "a: a big one", "a: kayak")
    assert views.turn.owners.tolist() == [0, 0, 1]
    assert views.session.texts == ("a: hello loom\nb: what loom\na: a big one", "a: kayak")
    assert views.summary.texts == ("hello loom", "kayak")


def test_views_need_a_summary_to_take_it_from_the_file() -> None:
    """A data set without summaries cannot be evaluated with its own: what to do is said."""
    dialogue = read_longmemeval(FIXTURES / "longmemeval_tiny.json").dialogues[0]
    with pytest.raises(InvalidInputError, match=r"tiny_a, session 1.*summaries='extractive'"):
        _ = Views(dialogue, CachedEmbedder(FrozenEmbedder()), summaries="from-file").summary


def test_views_cut_nothing_from_long_text() -> None:
    """What stands at the end of a text longer than the embedder reads is found: it has a window of its own."""
    short = FrozenEmbedder()
    short.max_tokens = 20
    far = " ".join(f"filler{i % 7}" for i in range(300)) + " tortoise"
    views = views_of("kayak on the river", far, ask=["tortoise"], embedder=short)
    assert len(views.vectors("session")[0]) > 10
    assert rank("session", views)[0][0] == 1


# methods


def test_every_method_ranks_every_session_once() -> None:
    """Each baseline gives a permutation of the sessions for each question."""
    views = views_of(
        "the loom is blue", ["kayak", "river", "oven"], "tortoise", ask=["loom", "river", "nothing of this"]
    )
    for name in (
        "session",
        "turn",
        "turn-mean",
        "summary",
        "bm25-session",
        "bm25-turn",
        "rrf-session",
        "rrf-turn",
        "zsum",
    ):
        orders = rank(name, views)
        assert [sorted(order) for order in orders] == [[0, 1, 2]] * 3, name


def test_dense_turn_takes_the_best_exchange_and_turn_mean_the_average() -> None:
    """One fitting exchange among many wins by its best, and is drowned in the mean."""
    many = ["loom", "yes", *("kayak river oven scarf " * 3, "boat water bread wool " * 3) * 4]
    views = views_of(many, "loom kayak river oven", ask=["loom"])
    assert rank("turn", views)[0] == [0, 1]
    assert rank("turn-mean", views)[0] == [1, 0]


def test_bm25_prefers_the_rare_word() -> None:
    """The session with the rarer of two words comes first, whatever its place."""
    views = views_of("kayak one", "kayak two", "tortoise three", ask=["kayak tortoise"])
    assert rank("bm25-session", views)[0][0] == 2
    assert rank("bm25-turn", views)[0][0] == 2


def test_zsum_is_the_sum_of_its_four_parts() -> None:
    """The formula is fixed: dense turn, BM25 turn, BM25 session, BM25 summary, each a z-score over the sessions."""
    views = views_of(
        ["the loom is blue", "what loom"], ["kayak", "river", "loom", "x"], "oven", ask=["blue loom", "kayak"]
    )
    parts = [dense(views, "turn"), *(lexical(views, granularity) for granularity in ("turn", "session", "summary"))]
    expected = sum((part - part.mean(1, keepdims=True)) / part.std(1, keepdims=True) for part in parts)
    np.testing.assert_allclose(z_sum(views), expected)


def test_unknown_method_lists_what_there_is() -> None:
    """A method that does not exist is bad input, with the names that do."""
    with pytest.raises(InvalidInputError, match=r"session, turn, .*memgas.*ablation, all; got 'colbert'"):
        methods_named(["bm25", "colbert"])


class Fixed:
    """Puts the sessions in one order, whatever is asked."""

    def __init__(self, name: str, order: Sequence[int]) -> None:
        self.name = name
        self.order = np.array(order, dtype=np.intp)

    def rank(self, views: Views) -> Ranking:
        """Rank."""
        return Ranking([self.order] * len(views.dialogue.judged), 0.0, 0.0)


def test_best_of_takes_the_stronger_form_at_each_cut_off() -> None:
    """A baseline's row is its strongest form at each k, ties to the one that is best at 3, and says which they are."""
    data = read_locomo(FIXTURES / "locomo_tiny.json")
    forms: tuple[Method, ...] = (Fixed("late", [5, 4, 1, 0, 2, 3]), Fixed("early", [3, 0, 2, 1, 4, 5]))
    rows: list[str | Method | BestOf | OracleOf] = [BestOf("fixed", forms), *forms]
    report = evaluate(data, rows, embedder=FrozenEmbedder(), ks=(1, 3, 6), summaries="from-file")
    fixed, late, early = report.methods
    assert (fixed.name, fixed.chosen) == ("fixed", "early")
    assert fixed.measures[:, 1].mean() == pytest.approx(8 / 14)
    for column in range(3):
        means = [result.measures[:, column].mean() for result in (late, early)]
        assert fixed.measures[:, column].mean() == max(means)


def test_oracle_takes_the_best_candidate_of_each_question() -> None:
    """The upper bound is at least every candidate, question by question, and is one of them each time."""
    data = read_locomo(FIXTURES / "locomo_tiny.json")
    forms: tuple[Method, ...] = (Fixed("late", [5, 4, 1, 0, 2, 3]), Fixed("early", [3, 0, 2, 1, 4, 5]))
    report = evaluate(data, [OracleOf("oracle", forms), *forms], embedder=FrozenEmbedder(), summaries="from-file")
    oracle, late, early = (result.measures for result in report.methods)
    assert (oracle == np.maximum(late, early)).all()
    assert oracle.mean() > max(late.mean(), early.mean())
    needed = [ranks.max() for ranks in report.methods[0].ranks]
    assert needed == [
        min(a.max(), b.max()) for a, b in zip(report.methods[1].ranks, report.methods[2].ranks, strict=True)
    ]


def test_full_history_is_the_newest_first() -> None:
    """Where the window is too short for everything, the newest stays."""
    assert rank("full-history", views_of("one", "two", "three", ask=["one", "two"])) == [[2, 1, 0], [2, 1, 0]]


def test_groups_stand_for_their_methods() -> None:
    """A group and one of its members give each method once."""
    assert [entry.name for entry in methods_named(["memgas", "ablation"])] == ["memgas", *ABLATIONS]
    assert {entry.name for entry in methods_named(["all"])} == set(METHODS)


def test_an_ablation_takes_away_one_part() -> None:
    """Every ablation is the default but for the settings it names, and ranks otherwise than the default somewhere."""
    data = read_locomo(FIXTURES / "locomo_tiny.json")
    report = evaluate(data, ["ablation"], embedder=FrozenEmbedder(), summaries="from-file")
    default = report.method("memgas")
    for result in report.methods[1:]:
        assert np.isfinite(result.measures).all(), result.name
    for name in ("no-lexical", "no-turns", "no-all"):
        assert any((a != b).any() for a, b in zip(default.ranks, report.method(name).ranks, strict=True)), name
    session = evaluate(data, ["session"], embedder=FrozenEmbedder(), summaries="from-file").methods[0]
    assert [ranks.tolist() for ranks in report.method("no-all").ranks] == [ranks.tolist() for ranks in session.ranks]


def test_variants_of_one_memory_add_once() -> None:
    """Settings of retrieval are tried on a memory that was told once; settings of adding need another."""
    views = views_of("the loom is blue", "kayak", "oven")
    first = views.told(MemGASConfig())
    assert views.told(MemGASConfig(n_seeds=3, router="uniform", damping=0.5)) is first
    assert views.told(MemGASConfig(n_candidates=10)) is not first
    assert views.told(MemGASConfig(bm25_k1=1.5)) is not first
    alone = views_of("the loom is blue", "kayak", "oven")
    for config in (MemGASConfig(damping=0.5), MemGASConfig(router="uniform")):
        shared, fresh = memgas_variant("v", config).rank(views), memgas_variant("v", config).rank(alone)
        assert [order.tolist() for order in shared.orders] == [order.tolist() for order in fresh.orders]
    views.close()
    alone.close()
    with pytest.raises(ClosedError):
        first.memory.stats()


@pytest.mark.parametrize("config", [MemGASConfig(), MemGASConfig.paper(), MemGASConfig(router="uniform", n_seeds=3)])
def test_the_order_is_that_of_retrieve(config: MemGASConfig) -> None:
    """What is measured is what a user gets: the numeric steps alone order sessions as `retrieve` does, on every question."""
    for data in (read_locomo(FIXTURES / "locomo_tiny.json"), read_longmemeval(FIXTURES / "longmemeval_tiny.json")):
        for dialogue in data.dialogues:
            views = Views(dialogue, CachedEmbedder(FrozenEmbedder()), summaries="extractive")
            told = views.told(config)
            with told.under(config) as memory:
                for question in dialogue.questions:
                    hits = recalled(memory, dialogue, question, top_k=len(dialogue.sessions)).hits
                    assert [int(hit.session_id) for hit in hits] == ranked_by(told, config, dialogue, question).tolist()
            views.close()


PINNED = {
    "bm25": (0.5, 0.714286, 0.791667),
    "zsum": (0.571429, 0.714286, 0.89881),
    "paper": (0.357143, 0.5, 0.758333),
}
"""recall_all@1, recall_all@2, MRR."""


@pytest.mark.parametrize("name", list(PINNED))
def test_baselines_are_pinned(name: str) -> None:
    """`bm25`, `zsum` and `paper` keep their values on the fixture: a weaker baseline is not a better memory."""
    data = read_locomo(FIXTURES / "locomo_tiny.json")
    report = evaluate(data, [name], embedder=FrozenEmbedder(), ks=(1, 2), summaries="from-file")
    found = report.methods[0].measures[:, [0, 1, -1]].mean(axis=0)
    assert tuple(found.round(6).tolist()) == PINNED[name]
