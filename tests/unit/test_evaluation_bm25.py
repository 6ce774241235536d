"""The baselines' own BM25."""

import math

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memgas.evaluation.bm25 import BM25, terms_of

WORDS = ["kayak", "loom", "tortoise", "scarf", "river", "river", "oven"]


def test_terms_of_english() -> None:
    """Lower case, no stop words, no single letters, stems."""
    assert terms_of("The weavers were WEAVING a scarf, and it's 42!") == ["weaver", "were", "weav", "scarf", "42"]


def test_terms_of_chinese_and_japanese() -> None:
    """Scripts without spaces become character bigrams; a lone character stays; Latin words beside them are words."""
    assert terms_of("我喜欢tea和茶") == ["我喜", "喜欢", "tea", "和茶"]
    assert terms_of("茶!") == ["茶"]
    assert terms_of("ラーメン") == ["ラー", "ーメ", "メン"]


def test_terms_of_nothing() -> None:
    """Text without words has no terms."""
    assert terms_of(" … 😀 ") == []


def test_scores_by_hand() -> None:
    """Two documents, one term: Lucene's idf times the saturated count."""
    index = BM25([["river", "river", "oven"], ["loom"]])
    idf = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    norm = 1.5 * (1 - 0.75 + 0.75 * 3 / 2)
    assert index.scores(["river"]).tolist() == pytest.approx([idf * 2 / (2 + norm), 0.0])
    assert index.scores(["river", "river"])[0] == pytest.approx(2 * index.scores(["river"])[0])
    assert index.scores(["unknown"]).tolist() == [0.0, 0.0]


def test_empty_documents_and_no_documents() -> None:
    """A document without terms scores 0; no document gives no score."""
    assert BM25([[], ["loom"]]).scores(["loom"])[0] == 0.0
    assert BM25([]).scores(["loom"]).shape == (0,)
    assert BM25([[], []]).scores(["loom"]).tolist() == [0.0, 0.0]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), min_size=2, max_size=8),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4, unique=True),
)
def test_scores_agree_with_bm25s(documents: list[list[str]], query: list[str]) -> None:
    """The oracle is bm25s with its defaults."""
    oracle = bm25s.BM25(method="lucene")
    oracle.index(documents, show_progress=False)
    known = [term for term in query if any(term in document for document in documents)]
    expected = oracle.get_scores(known) if known else np.zeros(len(documents))
    np.testing.assert_allclose(BM25(documents).scores(query), expected, atol=2e-6)


def test_terms_agree_with_bm25s_on_english() -> None:
    """On English text the terms are those of bm25s with English stop words and PyStemmer."""
    stemmer = pytest.importorskip("Stemmer")
    text = "Yesterday the choirs were singing shanties in Ghent; Tobias's ankle isn't healed, he's resting at No. 7 a while."
    tokens = bm25s.tokenize(
        text, stopwords="en", stemmer=stemmer.Stemmer("english"), return_ids=False, show_progress=False
    )
    assert terms_of(text) == tokens[0]
