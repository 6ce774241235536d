"""Overlap of answers with expected answers."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memgas.evaluation.overlap import bleu4, f1, rouge_l, words_of

WORDS = st.lists(st.sampled_from(["the", "a", "red", "kayak", "on", "lake", "may"]), max_size=8).map(" ".join)


def test_words_of_mixed_text() -> None:
    """Lower case, no punctuation; Chinese and Japanese by character."""
    assert words_of("On 7 May, she's in 南京!") == ["on", "7", "may", "she", "s", "in", "南", "京"]
    assert words_of("...") == []


def test_f1_by_hand() -> None:
    """Two of three words given, two of four expected: 2·2/7. Articles and case do not count."""
    assert f1("red Kayak today", "a red kayak in May") == pytest.approx(2 * 2 / (3 + 4))
    assert f1("The kayak", "kayak") == 1.0
    assert f1("loom", "kayak") == 0.0
    assert f1("周日下午", "周六下午") == pytest.approx(0.75)


def test_bleu_by_hand() -> None:
    """Of `red kayak on lake` against `a red kayak on lake may`: all n-grams match, and the answer is two words short."""
    assert bleu4("red kayak on lake", "a red kayak on lake may") == pytest.approx(math.exp(1 - 6 / 4))
    # Unigrams 2/3, bigrams (1 + 1)/(2 + 1), trigrams (0 + 1)/(1 + 1), no 4-grams: (0 + 1)/(0 + 1).
    assert bleu4("red kayak may", "red kayak on") == pytest.approx((2 / 3 * 2 / 3 * 1 / 2 * 1) ** 0.25)
    assert bleu4("loom", "kayak") == 0.0


def test_rouge_l_by_hand() -> None:
    """The longest common subsequence of `a b c d` and `b x d` is `b d`: 2·2/7."""
    assert rouge_l("a b c d", "b x d") == pytest.approx(4 / 7)
    assert rouge_l("d b", "b d") == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("answer", "expected", "bleu", "rouge"),
    [
        ("in may on the lake", "the red kayak was on the lake in may", 0.271518, 0.428571),
        ("the the the the", "the lake", 0.319472, 0.333333),
        ("a red kayak today", "a red kayak today", 1.0, 1.0),
    ],
)
def test_values_of_the_usual_packages(answer: str, expected: str, bleu: float, rouge: float) -> None:
    """What sacrebleu 2.6.0 (sentence, add-k 1, tokenize none, no effective order) and rouge-score 0.1.2 (no stemmer) say."""
    assert bleu4(answer, expected) == pytest.approx(bleu, abs=1e-5)
    assert rouge_l(answer, expected) == pytest.approx(rouge, abs=1e-5)


@pytest.mark.parametrize("measure", [f1, bleu4, rouge_l])
def test_nothing_against_something(measure: object) -> None:
    """An empty answer scores 0, nothing against nothing 1."""
    assert callable(measure)
    assert (measure("", "kayak"), measure("kayak", ""), measure("", "?!")) == (0.0, 0.0, 1.0)


@settings(deadline=None)
@given(WORDS, WORDS)
def test_overlap_is_a_share(answer: str, expected: str) -> None:
    """Each is in [0, 1], 1 for the same words in the same order; F1 and ROUGE-L do not care which is which."""
    for measure in (f1, bleu4, rouge_l):
        assert 0.0 <= measure(answer, expected) <= 1.0 + 1e-12
        assert measure(answer, answer) == pytest.approx(1.0)
    assert f1(answer, expected) == f1(expected, answer)
    assert rouge_l(answer, expected) == rouge_l(expected, answer)
