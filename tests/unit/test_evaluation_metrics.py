"""How good a ranking is, worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from memgas.errors import InvalidInputError, ShapeError
from memgas.evaluation.metrics import (
    bootstrap_means,
    gold_ranks,
    measure,
    measure_names,
    ndcg,
    paired_difference,
    recall,
    recall_all,
    recall_any,
    reciprocal_rank,
)

ORDER = [4, 2, 0, 3, 1]


def test_gold_ranks_by_hand() -> None:
    """Ranks begin at 1 and ascend; a gold session that was not ranked is at infinity."""
    assert gold_ranks(ORDER, {0, 4}).tolist() == [1.0, 3.0]
    assert gold_ranks(ORDER[:2], {0, 4}).tolist() == [1.0, math.inf]


def test_gold_ranks_refuses_nonsense() -> None:
    """No gold cannot be judged, and a session ranked twice would be counted twice."""
    with pytest.raises(InvalidInputError, match="evidence"):
        gold_ranks(ORDER, set())
    with pytest.raises(InvalidInputError, match="once"):
        gold_ranks([1, 1], {1})


def test_recalls_by_hand() -> None:
    """Gold at 1 and 3: any within 1, all only within 3, half of them within 2."""
    ranks = np.array([1.0, 3.0])
    assert [recall_any(ranks, k) for k in (1, 2, 3)] == [1, 1, 1]
    assert [recall_all(ranks, k) for k in (1, 2, 3)] == [0, 0, 1]
    assert [recall(ranks, k) for k in (1, 2, 3)] == [0.5, 0.5, 1]


def test_ndcg_by_hand() -> None:
    """Rank 2 is discounted: 1/log2(3); the best possible has both gold on top."""
    ranks = np.array([1.0, 3.0])
    assert ndcg(ranks, 3) == pytest.approx((1 + 1 / 2) / (1 + 1 / math.log2(3)))
    assert ndcg(np.array([2.0]), 3) == pytest.approx(0.6309, abs=1e-4)
    assert ndcg(np.array([1.0]), 3) == 1.0
    assert ndcg(np.array([4.0]), 3) == 0.0


def test_ndcg_with_more_gold_than_places() -> None:
    """Four gold sessions cannot all be in the top 3: three of them there are perfect."""
    assert ndcg(np.array([1.0, 2.0, 3.0, 9.0]), 3) == pytest.approx(1.0)


def test_reciprocal_rank_by_hand() -> None:
    """It is that of the best gold session, 0 where none was ranked."""
    assert reciprocal_rank(np.array([4.0, 5.0])) == 0.25
    assert reciprocal_rank(np.array([math.inf])) == 0.0


def test_measure_is_in_the_order_of_its_names() -> None:
    """The columns are what their names say."""
    ranks = np.array([2.0, 6.0])
    found = dict(zip(measure_names((3, 10)), measure(ranks, (3, 10)).tolist(), strict=True))
    assert found["recall_all@3"] == 0.0
    assert found["recall_all@10"] == 1.0
    assert found["recall_any@3"] == 1.0
    assert found["recall@3"] == 0.5
    assert found["ndcg@10"] == pytest.approx(ndcg(ranks, 10))
    assert found["mrr"] == 0.5


@settings(deadline=None)
@given(
    st.integers(2, 12).flatmap(
        lambda n: st.tuples(st.permutations(range(n)), st.sets(st.integers(0, n - 1), min_size=1))
    )
)
def test_ndcg_agrees_with_scikit_learn(drawn: tuple[list[int], set[int]]) -> None:
    """The oracle is scikit-learn's NDCG on binary gains."""
    order, gold = drawn
    truth = [[1.0 if session in gold else 0.0 for session in range(len(order))]]
    scores = [[-float(order.index(session)) for session in range(len(order))]]
    for k in (1, 3, len(order)):
        assert ndcg(gold_ranks(order, gold), k) == pytest.approx(ndcg_score(truth, scores, k=k))


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6, unique=True))
def test_measures_are_ordered_and_grow_with_k(places: list[int]) -> None:
    """All is at most the share, the share at most any; each is within [0, 1] and never falls as k grows."""
    ranks = np.sort(np.array(places, dtype=float))
    for k in range(1, 31):
        assert 0 <= recall_all(ranks, k) <= recall(ranks, k) <= recall_any(ranks, k) <= 1
        assert 0 <= ndcg(ranks, k) <= 1 + 1e-12
        assert recall(ranks, k) <= recall(ranks, k + 1)
    assert recall_all(ranks, 30) == 1


def test_bootstrap_interval_has_the_textbook_width() -> None:
    """For 400 coin tosses the interval is near mean ± 1.96 standard errors, and repeats with its seed."""
    tosses = np.tile([0.0, 1.0, 1.0, 1.0], 100)[:, None]
    low, high = bootstrap_means(tosses, n_resamples=4_000, confidence=0.95, seed=1)
    error = 1.96 * tosses.std() / 20
    assert low[0] == pytest.approx(0.75 - error, abs=0.006)
    assert high[0] == pytest.approx(0.75 + error, abs=0.006)
    again = bootstrap_means(tosses, n_resamples=4_000, confidence=0.95, seed=1)
    assert (again[0][0], again[1][0]) == (low[0], high[0])


def test_bootstrap_of_a_constant_is_a_point() -> None:
    """What never varies has no spread; one question is enough, none is not."""
    low, high = bootstrap_means(np.ones((1, 2)), n_resamples=50, confidence=0.95, seed=0)
    assert (low.tolist(), high.tolist()) == ([1, 1], [1, 1])
    with pytest.raises(ShapeError, match="at least one question"):
        bootstrap_means(np.ones((0, 2)), n_resamples=50, confidence=0.95, seed=0)


def test_paired_difference_sees_what_unpaired_intervals_hide() -> None:
    """A method better on 8 of 100 questions and never worse is above 0, though both intervals overlap widely."""
    rng = np.random.default_rng(5)
    others = (rng.random(100) < 0.5).astype(float)
    values = others.copy()
    values[np.flatnonzero(others == 0)[:8]] = 1.0
    gap = paired_difference(values, others, n_resamples=2_000, confidence=0.95, seed=0)
    assert gap.mean == pytest.approx(0.08)
    assert 0 < gap.low < gap.mean < gap.high < 0.15
    _, high = bootstrap_means(others[:, None], n_resamples=2_000, confidence=0.95, seed=0)
    assert high[0] > values.mean()


def test_paired_difference_needs_the_same_questions() -> None:
    """Arrays over different questions are refused."""
    with pytest.raises(ShapeError, match="same questions"):
        paired_difference(np.ones(3), np.ones(4), n_resamples=10, confidence=0.95, seed=0)
