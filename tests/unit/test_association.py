"""Similarities -> accept sets: hand-worked mixtures, scikit-learn as oracle, brute force for the preselection."""

import sys
from subprocess import run

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.mixture import GaussianMixture

from memgas.association import (
    Accept,
    Mixture,
    _accept,
    accept_candidates,
    accept_mask,
    accept_sets,
    associate,
    candidate_columns,
    decision_threshold,
    find_candidates,
    fit_mixtures,
    selection_margin,
    strongest_candidates,
)
from memgas.config import MemGASConfig
from memgas.errors import ShapeError

FloatArray = NDArray[np.float64]

TWO_CLUSTERS = np.array([[0.84, 0.82, 0.80, 0.14, 0.12, 0.10]])


def top_similarities(n_rows: int, *, seed: int, n_candidates: int = 30) -> FloatArray:
    """Draw rows like the cosines of an embedder: the largest of thousands, some of them of the same matter."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_rows):
        cosines = rng.normal(0.3, 0.08, 5_000)
        n_related = rng.integers(0, 40)
        cosines[:n_related] += rng.normal(0.2, 0.08, n_related)
        rows.append(np.sort(cosines)[::-1][:n_candidates])
    values: FloatArray = np.array(rows, np.float64).round(6)
    return values


def unit_vectors(n: int, n_dims: int, *, seed: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).normal(size=(n, n_dims))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32)


def mixture(means: list[float], variances: list[float], weights: list[float]) -> Mixture:
    return Mixture(
        np.array([means]), np.array([variances]), np.array([weights]), np.zeros(1), np.ones(1, dtype=np.bool_)
    )


def log_density(values: FloatArray, fit: Mixture, row: int) -> FloatArray:
    """Weighted log density of both components, `(n_values, 2)`."""
    density: FloatArray = norm.logpdf(values[:, np.newaxis], fit.means[row], np.sqrt(fit.variances[row]))
    density += np.log(fit.weights[row])
    return density


def test_two_clusters_are_found() -> None:
    """Two clusters far apart: each component is the mean, variance and share of its cluster, the larger mean second."""
    fit = fit_mixtures(TWO_CLUSTERS)

    assert fit.is_fitted.all()
    np.testing.assert_allclose(fit.means, [[0.12, 0.82]], atol=1e-9)
    np.testing.assert_allclose(fit.variances, [[0.0008 / 3, 0.0008 / 3]], atol=1e-9)
    np.testing.assert_allclose(fit.weights, [[0.5, 0.5]], atol=1e-9)
    np.testing.assert_allclose(decision_threshold(fit), [0.47], atol=1e-9)


def test_log_likelihood_is_that_of_the_mixture() -> None:
    """The likelihood returned is the mean log density of the row under its own mixture."""
    values = top_similarities(20, seed=1)

    fit = fit_mixtures(values)

    for row, of_row in enumerate(values):
        expected = np.logaddexp(*log_density(of_row, fit, row).T).mean()
        assert fit.log_likelihood[row] == pytest.approx(expected, abs=1e-8)


def test_likelihood_is_at_least_that_of_scikit_learn() -> None:
    """Oracle: no fit is less likely than scikit-learn's, by more than 1e-6 a value.

    Left out are rows where theirs gives a component to a single value, whose likelihood only its least variance bounds.
    """
    values = top_similarities(100, seed=2)
    fit = fit_mixtures(values)
    n_compared = 0

    for row, of_row in enumerate(values):
        oracle = GaussianMixture(2, random_state=0).fit(of_row[:, np.newaxis])
        if oracle.weights_.min() * len(of_row) > 1.5:
            n_compared += 1
            assert fit.log_likelihood[row] >= oracle.score(of_row[:, np.newaxis]) - 1e-6
    assert n_compared >= 90


@pytest.mark.parametrize("accept", ["threshold", "predict"])
def test_accept_sets_are_those_of_scikit_learn_where_both_converge(accept: Accept) -> None:
    """Oracle: where scikit-learn, run to the end, reaches the same likelihood, the accept set is the same."""
    values = top_similarities(40, seed=3)
    fit = fit_mixtures(values)
    ours = accept_mask(values, n_components=2, accept=accept, max_associations=None)
    n_same = 0

    for row, of_row in enumerate(values):
        oracle = GaussianMixture(2, random_state=0, tol=1e-10, reg_covar=1e-12, max_iter=20_000)
        oracle.fit(of_row[:, np.newaxis])
        if abs(oracle.score(of_row[:, np.newaxis]) - fit.log_likelihood[row]) > 1e-7:
            continue
        n_same += 1
        predicted = oracle.predict(of_row[:, np.newaxis]) == np.argmax(oracle.means_[:, 0])
        if accept == "threshold":
            # Their upper set: between the means there is one crossing, beyond them the tail may flip.
            between = of_row <= oracle.means_.max()
            predicted = np.where(between & (of_row >= oracle.means_.min()), predicted, ~between)
        np.testing.assert_array_equal(ours[row], predicted)
    assert n_same >= 15


@settings(deadline=None, max_examples=60)
@given(arrays(np.float64, (5, 12), elements=st.integers(-999_999, 999_999).map(lambda n: n / 1e6)))
def test_a_row_is_fitted_the_same_alone(values: FloatArray) -> None:
    """Order, determinism: one at a time and in one batch give the same mixture, to the last bit, and never a NaN."""
    together = fit_mixtures(values)

    for row in range(len(values)):
        alone = fit_mixtures(values[row : row + 1])
        np.testing.assert_array_equal(together.means[row], alone.means[0])
        np.testing.assert_array_equal(together.variances[row], alone.variances[0])
        np.testing.assert_array_equal(together.weights[row], alone.weights[0])
        assert alone.is_fitted[0] == (np.ptp(values[row]) > 1e-5)
        if alone.is_fitted[0]:
            assert np.isfinite(alone.log_likelihood[0])
            assert alone.means[0, 0] <= alone.means[0, 1]
            assert alone.weights[0].sum() == pytest.approx(1)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.01, 20), st.floats(-3, 3))
def test_fit_moves_with_the_scale(seed: int, scale: float, shift: float) -> None:
    """One embedder's cosines are .87 ± .03, another's .39 ± .16: shifted and stretched values give the same split."""
    values = top_similarities(1, seed=seed)

    plain, moved = fit_mixtures(values), fit_mixtures(values * scale + shift)

    np.testing.assert_allclose(moved.means, plain.means * scale + shift, rtol=1e-3, atol=1e-3 * scale)
    np.testing.assert_allclose(moved.weights, plain.weights, atol=1e-3)


def test_threshold_of_equal_variances() -> None:
    """By hand: with one variance v the densities cross at the midpoint + v / gap · log(w0 / w1)."""
    fit = mixture([0.2, 0.6], [0.01, 0.01], [0.8, 0.2])

    expected = 0.4 + 0.01 / 0.4 * np.log(0.8 / 0.2)
    np.testing.assert_allclose(decision_threshold(fit), [expected], rtol=1e-12)


@settings(deadline=None)
@given(
    st.floats(-1, 1), st.floats(1e-3, 1), st.floats(1e-3, 0.5), st.floats(1e-3, 0.5), st.floats(0.01, 0.99)
)  # fmt: skip
def test_threshold_is_where_the_densities_cross(low: float, gap: float, sd0: float, sd1: float, share: float) -> None:
    """The threshold lies between the means; there the weighted densities are equal, or else it is the midpoint."""
    fit = mixture([low, low + gap], [sd0**2, sd1**2], [1 - share, share])

    threshold = decision_threshold(fit)

    assert low <= threshold[0] <= low + gap + 1e-12
    at_means = log_density(fit.means[0], fit, 0)
    crosses = at_means[0, 0] > at_means[0, 1] and at_means[1, 1] > at_means[1, 0]
    if crosses:
        densities = log_density(threshold, fit, 0)[0]
        assert densities[0] == pytest.approx(densities[1], abs=1e-5 * max(1.0, abs(densities[0])))
    elif at_means[0, 0] < at_means[0, 1] - 1e-9 or at_means[1, 1] < at_means[1, 0] - 1e-9:
        assert threshold[0] == pytest.approx(low + gap / 2)


def test_candidates_are_the_largest() -> None:
    """Candidates: the text fits the whole similarity vector, the published code only the `n_candidates` (30) largest,
    pooled over granularities. A setting, 30 in both.
    """  # noqa: D205
    rng = np.random.default_rng(5)
    similarities = np.concatenate([[0.95, 0.94, 0.93, 0.7, 0.69, 0.68], rng.uniform(0, 0.2, 60)])[np.newaxis]

    few, everything = (
        accept_sets(similarities, n_candidates=n, n_components=2, accept="threshold", max_associations=None)[0]
        for n in (6, None)
    )

    assert few.tolist() == [0, 1, 2]
    assert everything.tolist() == [0, 1, 2, 3, 4, 5]
    assert MemGASConfig().n_candidates == MemGASConfig.paper().n_candidates == 30


def test_accept_is_everything_from_the_threshold_up() -> None:
    """Accept: everything at or above the decision threshold between the two means. (A hard prediction is not always an
    upper set: with unequal variances the far tail can fall to the wider component).
    """  # noqa: D205
    narrow = 0.5 + np.linspace(-0.004, 0.004, 12)
    wide = np.array([0.95, 0.41, 0.36, 0.33, 0.27, 0.21, 0.15, 0.08, 0.02])
    similarities = np.concatenate([narrow, wide])[np.newaxis]
    by_threshold, by_prediction = (
        accept_sets(similarities, n_candidates=None, n_components=2, accept=accept, max_associations=None)[0]
        for accept in ("threshold", "predict")
    )

    assert by_threshold.tolist() == [12, *range(11, -1, -1)]
    assert by_prediction.tolist() == list(range(11, -1, -1))


def test_all_candidates_can_be_accepted() -> None:
    """Without a mixture each unit takes its most similar ones, up to the cap, however few or alike they are."""
    for similarities in (np.array([[0.9, 0.5, 0.1, 0.0, -0.2]]), np.array([[0.3, 0.2]]), np.full((1, 5), 0.4)):
        everything = accept_mask(similarities, n_components=2, accept="all", max_associations=None)
        assert everything.all()
        capped = accept_mask(similarities, n_components=2, accept="all", max_associations=2)
        assert capped.tolist() == [[True, True] + [False] * (similarities.shape[1] - 2)]


def test_a_value_at_the_threshold_is_accepted() -> None:
    """Everything *at* or above: .47 lies midway between equal components, and rounding does not push it out."""
    fit = mixture([0.12, 0.82], [0.0003, 0.0003], [0.5, 0.5])

    accepted = _accept(fit, np.array([[0.82, 0.470001, 0.47, 0.469999]]), "threshold")

    assert accepted.tolist() == [[True, True, True, False]]


@pytest.mark.parametrize("n_components", [2, 3])
@pytest.mark.parametrize(
    "similarities",
    [[], [0.9], [0.9, 0.1, 0.1], [0.5] * 5, [0.0] * 40, [0.500001, 0.5, 0.5, 0.5, 0.500002]],
    ids=["none", "one", "three", "five equal", "forty zeros", "within rounding"],
)
def test_no_mixture_without_spread(similarities: list[float], n_components: int) -> None:
    """Fewer than 4 candidates, all equal, or no spread: no mixture, nothing is linked. Never a phantom component
    (scikit-learn's `GaussianMixture(2)` on five equal values invents one at 0).
    """  # noqa: D205
    values = np.array([similarities, similarities])

    found = accept_sets(
        values, n_candidates=30, n_components=n_components, accept="threshold", max_associations=None
    )  # fmt: skip

    assert [len(columns) for columns in found] == [0, 0]
    fit = fit_mixtures(values)
    assert not fit.is_fitted.any()
    assert np.isnan(fit.means).all()


def test_no_absolute_threshold() -> None:
    """No absolute cosine threshold anywhere: the same pattern at .87 ± .03 and at .39 ± .16 has the same accept set."""
    pattern = top_similarities(1, seed=8)
    pattern = (pattern - pattern.mean()) / pattern.std()

    sets = [
        accept_sets(center + spread * pattern, n_candidates=None, n_components=2, accept="threshold",
                    max_associations=None)[0].tolist()
        for center, spread in [(0.87, 0.03), (0.39, 0.16)]
    ]  # fmt: skip

    assert sets[0] == sets[1] != []


def test_cap_keeps_the_strongest() -> None:
    """Components not separated: cap at `max_associations` a unit, keep the strongest."""
    similarities = np.random.default_rng(0).normal(0.3, 0.05, (4, 60))
    uncapped, capped = (
        accept_sets(similarities, n_candidates=None, n_components=2, accept="threshold", max_associations=cap)
        for cap in (None, 10)
    )

    assert max(map(len, uncapped)) > 10
    for row, (before, after) in enumerate(zip(uncapped, capped, strict=True)):
        assert after.tolist() == before[:10].tolist()
        assert (np.diff(similarities[row, after]) <= 1e-6).all()


def test_early_sessions_setting() -> None:
    """Early sessions: the published code gives the first five sessions no outgoing edges: 5 in `paper()`, else 0."""
    assert (MemGASConfig.paper().warmup_sessions, MemGASConfig().warmup_sessions) == (5, 0)


def test_ties_go_to_the_older() -> None:
    """What decides an edge is rounded to 6 digits, and ties go to the older unit."""
    similarities = np.array([[0.1, 0.8000001, 0.8000004, 0.1, 0.8, 0.12, 0.11]])

    found = accept_sets(similarities, n_candidates=6, n_components=2, accept="threshold", max_associations=2)

    assert found[0].tolist() == [1, 2]


def by_brute_force(
    new: NDArray[np.float32], old: NDArray[np.float32], mask: NDArray[np.bool_], age: NDArray[np.int64],
    n_candidates: int | None,
) -> list[list[int]]:  # fmt: skip
    columns = np.array(sorted(np.flatnonzero(mask), key=lambda column: int(age[column])), np.intp)
    similarities = new.astype(np.float64) @ old[columns].astype(np.float64).T
    found = accept_sets(
        similarities, n_candidates=n_candidates, n_components=2, accept="threshold", max_associations=10
    )
    return [columns[accepted].tolist() for accepted in found]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1_000), st.integers(0, 200), st.sampled_from([4, 30, None]))
def test_associate_is_brute_force_in_float64(seed: int, n_old: int, n_candidates: int | None) -> None:
    """Preselecting in float32 loses nothing: the edges are those of all similarities in float64, ties and all."""
    rng = np.random.default_rng(seed)
    old = unit_vectors(n_old, 24, seed=seed)
    if n_old:
        old = old[rng.integers(0, max(1, n_old // 3), n_old)]  # many units say the same
    mask, age = rng.random(n_old) < 0.8, rng.permutation(n_old).astype(np.int64)
    new = unit_vectors(5, 24, seed=seed + 1)

    found = associate(new, old, mask, age, n_candidates=n_candidates, n_components=2, accept="threshold",
                      max_associations=10)  # fmt: skip

    assert [columns.tolist() for columns, _ in found] == by_brute_force(new, old, mask, age, n_candidates)
    for row, (columns, similarities) in enumerate(found):
        assert mask[columns].all()
        np.testing.assert_allclose(similarities, old[columns] @ new[row], atol=2e-6)


def test_one_at_a_time_and_in_one_batch() -> None:
    """Order, determinism: one at a time and in one batch give the same edge set."""
    old, new = unit_vectors(3_000, 64, seed=1), unit_vectors(40, 64, seed=2)
    mask, age = np.ones(3_000, np.bool_), np.arange(3_000)

    def edges(rows: slice) -> list[list[int]]:
        found = associate(new[rows], old, mask, age, n_candidates=30, n_components=2, accept="threshold",
                          max_associations=10)  # fmt: skip
        return [columns.tolist() for columns, _ in found]

    assert edges(slice(None)) == [edges(slice(row, row + 1))[0] for row in range(40)]


@pytest.mark.parametrize("n_candidates", [30, None])
def test_sessions_of_a_growing_memory_together_or_apart(n_candidates: int | None) -> None:
    """Units that see ever more older ones, 0 to 60 of them, are linked together as they are apart."""
    old, new = unit_vectors(60, 24, seed=3), unit_vectors(24, 24, seed=4)
    age, settings = np.arange(60), {"n_components": 2, "accept": "threshold", "max_associations": 10}
    candidates = []
    apart = []
    for row in range(24):
        args = (new[row : row + 1], old, age < 3 * row, age)
        candidates += find_candidates(*args, n_candidates=n_candidates)
        apart += associate(*args, n_candidates=n_candidates, **settings)  # type: ignore[arg-type]

    together = accept_candidates(candidates, **settings)  # type: ignore[arg-type]

    assert len({len(columns) for columns, _ in candidates}) > 5
    assert sum(len(columns) for columns, _ in apart) > 24
    for (columns, similarities), (alone, of_alone) in zip(together, apart, strict=True):
        np.testing.assert_array_equal(columns, alone)
        np.testing.assert_array_equal(similarities, of_alone)
    assert accept_candidates([], **settings) == []  # type: ignore[arg-type]


def test_preselection_survives_the_error_of_float32() -> None:
    """Candidates nearer to the last one than float32 can tell are all computed again, even at 3,072 dimensions."""
    rng = np.random.default_rng(4)
    base = unit_vectors(1, 3_072, seed=3)[0]
    old = np.repeat(base[np.newaxis], 300, axis=0) + rng.normal(0, 2e-7, (300, 3_072)).astype(np.float32)
    new = unit_vectors(2, 3_072, seed=6)

    columns, similarities = strongest_candidates(
        new, old, np.ones(300, np.bool_), np.arange(300)[::-1], n_candidates=7
    )  # fmt: skip

    exact = np.round(new.astype(np.float64) @ old.astype(np.float64).T, 6)
    for row in range(2):
        expected = sorted(range(300), key=lambda column: (-exact[row, column], -column))[:7]
        assert columns[row].tolist() == expected
        np.testing.assert_array_equal(similarities[row], exact[row, expected])


def test_candidate_columns_keep_what_may_be_among_the_largest() -> None:
    """By hand: the second largest is .8, so .7995 stays within a margin of .001, and masked columns never come."""
    row = np.array([[0.1, 0.9, -np.inf, 0.8, 0.7995, 0.798]], np.float32)

    assert candidate_columns(row, n_candidates=2, margin=1e-3)[0].tolist() == [1, 3, 4]
    assert candidate_columns(row, n_candidates=6, margin=1e-3)[0].tolist() == [0, 1, 3, 4, 5]
    assert 1e-5 < selection_margin(384) < 1e-4


def test_zero_vectors_link_nothing() -> None:
    """A text without words has a zero vector: every similarity is 0, so there is no spread and no association."""
    old = unit_vectors(50, 8, seed=0)

    found = associate(
        np.zeros((1, 8), np.float32), old, np.ones(50, np.bool_), np.arange(50),
        n_candidates=30, n_components=2, accept="threshold", max_associations=10,
    )  # fmt: skip

    assert len(found[0][0]) == 0


@pytest.mark.parametrize("accept", ["threshold", "predict"])
def test_more_components_accept_the_topmost(accept: Accept) -> None:
    """Three clusters and three components: the accept set is the cluster of the largest mean."""
    similarities = np.array([[0.9, 0.91, 0.92, 0.5, 0.51, 0.52, 0.1, 0.11, 0.12, 0.13]])

    found = accept_sets(similarities, n_candidates=None, n_components=3, accept=accept, max_associations=None)

    assert found[0].tolist() == [2, 1, 0]


def test_more_components_than_values() -> None:
    """Ten components of two distinct values are two; nothing warns and nothing fails."""
    similarities = np.array([[0.9, 0.9, 0.1, 0.1, 0.1]])

    found = accept_sets(similarities, n_candidates=None, n_components=10, accept="threshold", max_associations=None)

    assert found[0].tolist() == [0, 1]


def test_shapes_are_checked() -> None:
    """Vectors of another width, or a mask of another length, raise an error that names both shapes."""
    old, mask, age = np.zeros((3, 8), np.float32), np.ones(3, np.bool_), np.arange(3)

    for new, of_mask in [(np.zeros((1, 9), np.float32), mask), (np.zeros((1, 8), np.float32), mask[:2])]:
        with pytest.raises(ShapeError, match="must be"):
            associate(new, old, of_mask, age, n_candidates=30, n_components=2, accept="threshold",
                      max_associations=10)  # fmt: skip


def test_two_components_do_without_scikit_learn() -> None:
    """The mixture is ours: associating imports neither scikit-learn nor scipy."""
    code = (
        "import sys, numpy as np; from memgas.association import accept_sets;"
        "accept_sets(np.random.rand(3, 40), n_candidates=30, n_components=2, accept='predict', max_associations=3);"
        "sys.exit(any(name.split('.')[0] in ('sklearn', 'scipy') for name in sys.modules))"
    )

    assert run([sys.executable, "-c", code], check=False).returncode == 0
