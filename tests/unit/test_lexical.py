"""The tokenizer and BM25 that grows in place."""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from string import ascii_lowercase

import bm25s
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snowballstemmer.english_stemmer import EnglishStemmer

from memgas import lexical, postings
from memgas.errors import InvalidInputError
from memgas.lexical import LexicalIndex, tokenize, tokenize_all


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I was running to the shelters", ["run", "shelter"]),
        ("What is my dog's name?", ["dog", "name"]),
        ("Don't you've it’s", []),
        ("KX-7714B", ["kx-7714b", "kx", "7714b"]),
        ("ＫＸ－７７１４Ｂ", ["kx-7714b", "kx", "7714b"]),
        ("john.smith@mail.com", ["john.smith@mail.com", "john.smith", "john", "smith", "mail.com", "mail", "com"]),
        ("v2.3.1", ["v2.3.1", "v2", "3", "1"]),
        ("file_names", ["file_names", "file", "name"]),
        ("at 7:30", ["7:30", "7", "30"]),
        ("1,000 or 1000", ["1000", "1000"]),
        ("3.14", ["3.14", "3", "14"]),
        ("C++ and C#", ["c++", "c", "c#", "c"]),
        ("O'Brien", ["obrien", "brien"]),
        ("Café İstanbul Straße", ["cafe", "istanbul", "strass"]),
        ("Привет, мир", ["привет", "мир"]),
        ("مَرْحَبا مرحبا", ["مرحبا", "مرحبا"]),
        ("हिन्दी", ["हिन्दी"]),
        ("٣ ۴", ["3", "4"]),
        ("看牙医", ["看", "牙", "医", "看牙", "牙医"]),
        ("我用Python写", ["用", "写", "我用", "python"]),
        ("タワー", ["タ", "ワ", "ー", "タワ", "ワー"]),
        ("안녕", ["안", "녕", "안녕"]),
        ("ครับ", ["คร", "รั", "ับ"]),
        ("", []),
        ("🎉 --- ... ___ '", []),
        ("a" * 500, ["a" * 200]),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    """Each kind of text becomes these terms."""
    assert sorted(tokenize(text)) == sorted(expected)


def test_urls_come_whole_and_in_parts() -> None:
    """An address is found by the whole of it, by its host, and by any word in it; full stops after it do not count."""
    terms = tokenize("See https://www.example.com/docs/install?x=1.")
    assert {"example.com/docs/install?x=1", "example.com", "doc", "instal"} <= set(terms)
    assert not {"https", "www"} & set(terms)


def test_composed_and_decomposed_text_is_the_same() -> None:
    """The two ways of writing an accent give the same terms."""
    assert tokenize("re\u0301sume\u0301") == tokenize("r\u00e9sum\u00e9") == tokenize("RESUME")


@settings(deadline=None)
@given(
    st.lists(
        st.text(st.sampled_from("ab1 ,.'\n\r\u2028\u0301\u00e9\u4e2d\u6587\u0e01\uac00-/"), max_size=30), max_size=6
    )
)
def test_texts_together_or_alone(texts: list[str]) -> None:
    """Tokenized together, line by line, texts have the terms that each has alone."""
    joined = [*texts, "\n".join(texts)]
    assert [sorted(terms) for terms in tokenize_all(joined)] == [sorted(tokenize(text)) for text in joined]


@given(st.text(st.characters(max_codepoint=127), max_size=80))
def test_words_in_ascii(text: str) -> None:
    """The pattern for ASCII finds what the one for all scripts finds."""
    assert lexical._ASCII_WORD.findall(text.lower()) == lexical.word_pattern().findall(text.lower())


@settings(deadline=None)
@given(st.text(st.characters(), max_size=200))
def test_tokenizing_never_fails_and_is_stable(text: str) -> None:
    """Any text, lone surrogates among it, gives lower-case terms without white space, always the same."""
    terms = tokenize(text)
    assert terms == tokenize(text)
    assert all(term and term.split() == [term] and len(term) <= 200 for term in terms)


def test_tokenizing_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads stem the same new words to the same terms: the stemmer, which keeps state, is locked."""
    stemmer = EnglishStemmer()  # the pure one, which a thread may leave in the middle of a word
    monkeypatch.setattr(lexical, "_stemmer", lambda: stemmer)
    words = [f"{letter}{stem}ations" for stem in ("gener", "oper", "organiz", "communic") for letter in ascii_lowercase]
    alone = [lexical._expand.__wrapped__(word) for word in words]
    lexical._expand.cache_clear()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: [lexical._expand.__wrapped__(word) for word in words], range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert found == [alone] * 8


def make_index(docs: dict[int, tuple[int, list[str]]]) -> LexicalIndex:
    """Return an index of documents with group and terms, added in the order given."""
    index = LexicalIndex(n_groups=2, k1=1.2, b=0.75)
    for doc, (group, terms) in docs.items():
        index.add(doc, group, terms)
    return index


def test_worked_by_hand() -> None:
    """Two documents, ["a", "b"] and ["a", "c", "c"], and the query "a c", on paper."""
    index = make_index({0: (0, ["a", "b"]), 1: (0, ["a", "c", "c"])})
    idf_a, idf_c = math.log(1 + 0.5 / 2.5), math.log(1 + 1.5 / 1.5)
    norm_0 = 1.2 * (0.25 + 0.75 * 2 / 2.5)
    norm_1 = 1.2 * (0.25 + 0.75 * 3 / 2.5)
    expected = [idf_a / (1 + norm_0), idf_a / (1 + norm_1) + idf_c * 2 / (2 + norm_1)]
    np.testing.assert_allclose(index.scores(["a", "c"]), expected, rtol=1e-6)
    np.testing.assert_allclose(index.idf(0, ["a", "c", "z"]), [idf_a, idf_c, math.log(1 + 2.5 / 0.5)])


WORDS = st.lists(st.sampled_from("abcdefghij"), max_size=12)
CORPUS = st.lists(st.tuples(st.integers(0, 1), WORDS), min_size=1, max_size=30)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=12), min_size=2, max_size=40), WORDS)
def test_bm25s_agrees(docs: list[list[str]], query: list[str]) -> None:
    """Scores equal those of bm25s, method "lucene", to 2e-6, so the ranking does too."""
    query = [term for term in query if any(term in doc for doc in docs)]
    if not query:
        return
    oracle = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    oracle.index(docs, show_progress=False)
    index = make_index({doc: (0, terms) for doc, terms in enumerate(docs)})
    np.testing.assert_allclose(index.scores(query), oracle.get_scores(query), rtol=2e-6, atol=2e-6)


@pytest.fixture(params=["in a tail", "sorted in at once"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep small indexes as large ones are kept: pages are sorted in, and so is a tail of four."""
    if request.param == "sorted in at once":
        monkeypatch.setattr(lexical, "_MIN_PAGE", 1)
        monkeypatch.setattr(postings, "_MIN_TAIL", 4)


@pytest.mark.usefixtures("sizes")
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CORPUS, WORDS, st.booleans(), st.data())
def test_grown_and_shrunk_equals_built_anew(
    corpus: list[tuple[int, list[str]]], query: list[str], at_once: bool, data: st.DataObject
) -> None:
    """Added in any order, some removed, some replaced, some added again: bit for bit as if built from what is left."""
    order = data.draw(st.permutations(range(len(corpus))))
    index = LexicalIndex(n_groups=2, k1=1.2, b=0.75)
    for doc in order:
        index.add(doc, 1 - corpus[doc][0], ["z", "a", "a"])
        if not at_once:
            index.add(doc, *corpus[doc])
    if at_once:
        index.add_many(order, [corpus[doc][0] for doc in order], [corpus[doc][1] for doc in order])
    removed = data.draw(st.sets(st.sampled_from(range(len(corpus)))))
    for doc in removed:
        index.remove(doc)
        index.remove(doc)
    again = data.draw(st.sets(st.sampled_from(sorted(removed)))) if removed else set()
    for doc in again:
        index.add(doc, *corpus[doc])
    left = {doc: corpus[doc] for doc in range(len(corpus)) if doc not in removed - again}
    rebuilt = make_index(left)
    np.testing.assert_array_equal(index.scores(query)[: rebuilt.n_docs], rebuilt.scores(query))
    assert not index.scores(query)[rebuilt.n_docs :].any()
    docs = np.arange(-1, len(corpus) + 2)
    np.testing.assert_array_equal(index.coverage(query, docs), rebuilt.coverage(query, docs))
    for group in (0, 1):
        np.testing.assert_array_equal(index.idf(group, list("abz")), rebuilt.idf(group, list("abz")))
    assert set(index.terms) == {term for _, terms in left.values() for term in terms}


def test_groups_do_not_mix() -> None:
    """A group's scores are the same whatever stands in the other."""
    docs = {0: (0, ["a", "b"]), 2: (0, ["a"])}
    alone = make_index(docs).scores(["a", "b"])
    beside = make_index({**docs, 1: (1, ["a"] * 9), 3: (1, ["b", "c"])}).scores(["a", "b"])
    np.testing.assert_array_equal(alone[[0, 2]], beside[[0, 2]])
    assert alone[1] == 0.0


def test_empty() -> None:
    """No documents, documents without terms, queries without terms: zeros."""
    index = LexicalIndex(n_groups=1, k1=1.2, b=0.75)
    assert index.scores(["a"]).shape == (0,)
    assert index.coverage(["a"], np.arange(2)).tolist() == [0, 0]
    index.add(3, 0, [])
    assert index.scores(["a"]).tolist() == [0, 0, 0, 0]
    assert index.scores([]).dtype == np.float32
    assert index.coverage([], np.array([3])).tolist() == [0]


def test_impossible_documents_are_refused() -> None:
    """A negative number, or a group that does not exist."""
    index = LexicalIndex(n_groups=1, k1=1.2, b=0.75)
    with pytest.raises(InvalidInputError, match=r"group in 0\.\.0; got 0 and 1"):
        index.add(0, 1, ["a"])
    with pytest.raises(InvalidInputError, match="got -1"):
        index.add(-1, 0, ["a"])


def test_coverage_means_something_in_a_store_of_one() -> None:
    """With a single document, two of three words count as about two thirds; none as 0; all as 1."""
    index = make_index({0: (0, ["dog", "juno", "greyhound"])})
    shares = [
        float(index.coverage(query, np.array([0]))[0]) for query in (["dog", "juno", "cat"], ["cat"], ["dog", "juno"])
    ]
    assert 0.55 < shares[0] < 0.7
    assert shares[1:] == [0.0, 1.0]


def test_coverage_weighs_rare_words_more_once_there_is_much_to_compare() -> None:
    """Among 1,000 documents, holding the rare one of two words covers far more of the query than holding the common one."""
    docs = {doc: (0, ["common", f"w{doc}"]) for doc in range(1000)}
    index = make_index({**docs, 1000: (0, ["rare"]), 1001: (0, ["common"])})
    rare, common = index.coverage(["common", "rare"], np.array([1000, 1001])).tolist()
    assert rare > 4 * common > 0
    assert rare + common == pytest.approx(1.0)


@settings(deadline=None)
@given(CORPUS, WORDS)
def test_coverage_is_a_share(corpus: list[tuple[int, list[str]]], query: list[str]) -> None:
    """In [0, 1]; 1 exactly for documents with every word, 0 exactly for those with none; more words never cover less."""
    index = make_index(dict(enumerate(corpus)))
    shares = index.coverage(query, np.arange(len(corpus)))
    for share, (_, terms) in zip(shares.tolist(), corpus, strict=True):
        held = set(query) & set(terms)
        assert 0 <= share <= 1
        assert (share == 0) == (not held)
        assert (share > 1 - 1e-6) == (bool(query) and held == set(query))
