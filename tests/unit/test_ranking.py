"""Similarities on one scale, seeds, session scores, the order of sessions: by hand and against plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.ranking import (
    cells_of,
    choose_seeds,
    largest,
    session_scores,
    standardise,
    top_sessions,
    unit_similarities,
    units_by_granularity,
)

FloatArray = NDArray[np.float64]
SCORES = st.integers(-20, 20).map(lambda n: n / 10)


def test_standardise_by_hand() -> None:
    """1, 2, 3 have mean 2 and variance 2/3; what the mask leaves out neither counts nor gets a score."""
    z = np.sqrt(1.5)

    np.testing.assert_allclose(standardise(np.array([1.0, 2.0, 3.0]), None), [-z, 0, z])
    masked = standardise(np.array([1.0, 99.0, 2.0, 3.0]), np.array([True, False, True, True]))
    np.testing.assert_allclose(masked, [-z, 0, 0, z])


@pytest.mark.parametrize(
    "values",
    [[], [0.4], [0.3] * 7, [0.0] * 5, [0.87, 0.8700001, 0.86999995]],
    ids=["empty", "one", "equal", "zero", "float32 noise"],
)
def test_constant_column_is_zero(values: list[float]) -> None:
    """The z of a constant column (no term matched) is 0, and the rounding of float32 is no difference."""
    assert standardise(np.array(values, np.float32), None).tolist() == [0.0] * len(values)


def test_unit_similarities_by_hand() -> None:
    """z(z(cosine) + z(BM25)) within each granularity, over the units that are alive."""
    cosines = np.array([0.1, 0.3, 0.9, 0.8, 5.0])
    lexical = np.array([2.0, 0.0, 0.0, 0.0, 7.0])
    granularity = np.array([0, 0, 1, 1, 1], np.int8)
    alive = np.array([True, True, True, True, False])

    equal = unit_similarities(cosines, lexical, units_by_granularity(granularity, alive), lexical_weight=1.0)[0]
    lexical_first = unit_similarities(cosines, lexical, units_by_granularity(granularity, alive), lexical_weight=2.0)[0]

    # Turn 0 and 1: z of cosine is -1, 1 and of BM25 1, -1: they cancel. At granularity 1 no term matched.
    np.testing.assert_allclose(equal, [0, 0, 1, -1, 0], atol=1e-12)
    np.testing.assert_allclose(lexical_first, [1, -1, 1, -1, 0], atol=1e-12)


def test_paper_is_the_cosine_alone() -> None:
    """`paper()`: the cosine alone, raw, whatever BM25 says."""
    cosines, lexical = np.array([0.1, 0.7], np.float32), np.array([9.0, 0.0], np.float32)

    weight = MemGASConfig.paper().lexical_weight
    found = unit_similarities(cosines, lexical, [np.arange(2)], lexical_weight=weight)[0]

    np.testing.assert_allclose(found, cosines)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 30), st.integers(0, 3), st.booleans()), max_size=40))
def test_unit_similarities_have_one_scale(rows: list[tuple[float, float, int, bool]]) -> None:
    """In each granularity the units alive have mean 0, and variance 1 or, when nothing sets them apart, 0."""
    cosines, lexical, axes, states = ([row[i] for row in rows] for i in range(4))
    granularity, alive = np.array(axes, np.int8), np.array(states, np.bool_)

    units = units_by_granularity(granularity, alive)

    found = unit_similarities(np.array(cosines), np.array(lexical), units, lexical_weight=1.0)[0]

    assert (found[~alive] == 0).all()
    for axis in range(4):
        of_axis = found[alive & (granularity == axis)]
        if len(of_axis):
            assert of_axis.mean() == pytest.approx(0, abs=1e-6)
            assert of_axis.var() == pytest.approx(1) or of_axis.var() == 0


def test_seeds_by_hand() -> None:
    """The `n_seeds` best units are the seeds; their scores, clipped at 0 and normalised, are the personalization."""
    scores = np.array([0.5, 3.0, -1.0, 1.0, 9.0])
    allowed = np.array([True, True, True, True, False])

    seeds, personalization = choose_seeds(scores, allowed, np.arange(5), n_seeds=3)

    assert seeds.tolist() == [1, 3, 0]
    np.testing.assert_allclose(personalization, [3 / 4.5, 1 / 4.5, 0.5 / 4.5])


def test_fewer_units_than_seeds() -> None:
    """Fewer units than seeds: all of them, clipped at 0; none: none."""
    seeds, personalization = choose_seeds(np.array([-1.0, 2.0]), np.ones(2, np.bool_), np.arange(2), n_seeds=15)

    assert seeds.tolist() == [1, 0]
    assert personalization.tolist() == [1.0, 0.0]
    assert [len(part) for part in choose_seeds(np.zeros(3), np.zeros(3, np.bool_), np.arange(3), n_seeds=15)] == [0, 0]


def test_all_zero_is_uniform() -> None:
    """All zero: uniform over the seeds, the older units first."""
    age = np.array([1, 8, 2, 4])

    seeds, personalization = choose_seeds(np.array([-3.0, 0.0, -1.0, 0.0]), np.ones(4, np.bool_), age, n_seeds=3)

    assert seeds.tolist() == [3, 1, 2]
    np.testing.assert_allclose(personalization, [1 / 3] * 3)


@settings(deadline=None)
@given(st.lists(SCORES, max_size=60), st.integers(0, 70))
def test_largest_is_a_stable_sort(values: list[float], n: int) -> None:
    """Oracle: the head of a full stable sort; ties go to the lower index, which is the older."""
    expected = sorted(range(len(values)), key=lambda at: -values[at])[:n]

    assert largest(np.array(values, np.float64), n).tolist() == expected


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.integers(1, 20))
def test_personalization_is_a_distribution(values: list[float], n_seeds: int) -> None:
    """It is never negative, sums to 1, and falls from the first seed on."""
    seeds, personalization = choose_seeds(
        np.array(values), np.ones(len(values), np.bool_), np.arange(len(values)), n_seeds=n_seeds
    )

    assert len(seeds) == min(n_seeds, len(values))
    assert personalization.sum() == pytest.approx(1)
    assert (personalization >= 0).all()
    assert (np.diff(personalization) <= 1e-12).all()


def test_session_scores_by_hand() -> None:
    """Session score = Σ over granularities of the max over its units there; `paper()`: the sum of its nodes."""
    scores = np.array([0.4, 0.1, 0.3, 0.2, 0.7, 9.0])
    session = np.array([0, 0, 0, 2, 2, 2], np.int32)
    granularity = np.array([1, 1, 2, 0, 1, 3], np.int8)
    allowed = np.array([True] * 5 + [False])

    best = session_scores(scores, cells_of(session, granularity), allowed, n_sessions=3, reduce="max")
    total = session_scores(scores, cells_of(session, granularity), allowed, n_sessions=3, reduce="sum")

    np.testing.assert_allclose(best, np.array([[0, 0.4, 0.3, 0], [0, 0, 0, 0], [0.2, 0.7, 0, 0]]))
    np.testing.assert_allclose(total, np.array([[0, 0.5, 0.3, 0], [0, 0, 0, 0], [0.2, 0.7, 0, 0]]))
    assert (MemGASConfig().session_score, MemGASConfig.paper().session_score) == ("max", "sum")


@settings(deadline=None)
@given(st.lists(st.tuples(SCORES, st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=50))
def test_session_scores_are_those_of_a_loop(rows: list[tuple[float, int, int, bool]]) -> None:
    """Oracle: a loop over the units; below 0 the best is still the best, and 0 only where there is no unit."""
    scores, sessions, axes, states = (np.array([row[i] for row in rows]) for i in range(4))
    cells: dict[tuple[int, int], list[float]] = {}
    for score, of_session, axis, is_allowed in rows:
        if is_allowed:
            cells.setdefault((of_session, axis), []).append(score)

    best, total = (
        session_scores(
            scores.astype(np.float64), cells_of(sessions.astype(np.int32), axes.astype(np.int8)),
            states.astype(np.bool_), n_sessions=5, reduce=reduce,
        )
        for reduce in ("max", "sum")
    )  # fmt: skip

    for at in np.ndindex(5, 4):
        assert best[at] == max(cells.get((at[0], at[1]), [0.0]))
        assert total[at] == pytest.approx(sum(cells.get((at[0], at[1]), [])))


def test_unreached_sessions_are_ordered_by_their_plain_score() -> None:
    """Unreached sessions are ordered by their plain score, never left tied at 0; reached ones come first."""
    scores = np.array([0.0, 0.2, 0.0, 0.5, 0.0])
    plain = np.array([1.0, -9.0, 3.0, 0.0, 3.0])

    everyone = np.ones(5, np.bool_)
    assert top_sessions(scores, plain, everyone, top_k=5).tolist() == [3, 1, 2, 4, 0]
    assert top_sessions(scores, plain, everyone, top_k=3).tolist() == [3, 1, 2]
    assert top_sessions(scores, plain, scores == 0, top_k=9).tolist() == [2, 4, 0]


@settings(deadline=None)
@given(st.lists(st.tuples(SCORES, SCORES, st.booleans()), max_size=40), st.integers(0, 12))
def test_top_sessions_are_the_head_of_a_full_sort(rows: list[tuple[float, float, bool]], top_k: int) -> None:
    """Oracle: sort all by score, plain score, age; a longer list only ever adds to the end of a shorter one."""
    scores, plain, allowed = (np.array([row[i] for row in rows], np.float64) for i in range(3))
    expected = [at for at in sorted(range(len(rows)), key=lambda at: (-rows[at][0], -rows[at][1])) if rows[at][2]]

    assert top_sessions(scores, plain, allowed.astype(np.bool_), top_k=top_k).tolist() == expected[:top_k]
