"""The router: hand-worked entropies, and every case of the table."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import entropy

from memgas.config import MemGASConfig
from memgas.router import Rule, entropy_weights, softmax_entropy

FloatArray = NDArray[np.float64]
RULES: tuple[Rule, ...] = ("entropy", "normalised_entropy", "uniform")
NONE = np.zeros(0)


def test_weights_by_hand() -> None:
    """Two equal units have H = log 2; odds of 3 to 1 have H = .5623; the weights are as 1 / H."""
    entropies, weights = entropy_weights(
        [np.zeros(2), np.array([np.log(3), 0.0])], temperature=1.0, floor=1e-6, rule="entropy"
    )

    h0, h1 = np.log(2), 0.25 * np.log(4) + 0.75 * np.log(4 / 3)
    np.testing.assert_allclose(entropies, [h0, h1])
    np.testing.assert_allclose(weights, [h1 / (h0 + h1), h0 / (h0 + h1)])


def test_normalised_weights_by_hand() -> None:
    """The same units by the default rule: 1 / (.5 + H / log 2), so 1 / 1.5 against 1 / 1.3113."""
    _, weights = entropy_weights(
        [np.zeros(2), np.array([np.log(3), 0.0])], temperature=1.0, floor=0.5, rule="normalised_entropy"
    )

    raw = np.array([1 / 1.5, 1 / (0.5 + 0.811278124459)])
    np.testing.assert_allclose(weights, raw / raw.sum(), rtol=1e-9)


@settings(deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=40), st.floats(0.01, 10))
def test_entropy_is_scipys(similarities: list[float], temperature: float) -> None:
    """Oracle: scipy's entropy of scipy's softmax."""
    values = np.array(similarities)

    expected = entropy(softmax(values / temperature))
    assert softmax_entropy(values, temperature=temperature) == pytest.approx(expected, abs=1e-9)


def test_scale() -> None:
    """Scale: on raw cosines of a compressed embedder λ = 0.2 does nothing (measured: all weights .3333 ± .0001 for every
    query); on z-scores λ = 0.2 is a hard switch (0…1).
    """  # noqa: D205
    rng = np.random.default_rng(0)
    cosines = [rng.normal(0.87, 0.03, 200) for _ in range(3)]
    standard = [(c - c.mean()) / c.std() for c in cosines]
    standard[0][0] = 6.0

    _, on_cosines = entropy_weights(cosines, temperature=0.2, floor=1e-6, rule="entropy")
    _, on_z = entropy_weights(standard, temperature=0.2, floor=1e-6, rule="entropy")

    np.testing.assert_allclose(on_cosines, 1 / 3, atol=1e-3)
    assert on_z[0] > 0.98


def test_different_number_of_units() -> None:
    """Different `n` per granularity: entropy grows with log n: 1 / (ε + H / log n) does not, and is bounded by ε (one
    outlier in 2,000 units gives H = 3e-92); `paper()` keeps raw H, floored at 1e-6; the default has priors alone.
    """  # noqa: D205
    flat = [np.zeros(2_000), np.zeros(50)]
    outlier = np.zeros(2_000)
    outlier[7] = np.sqrt(2_000.0)

    _, by_raw = entropy_weights(flat, temperature=1.0, floor=1e-6, rule="entropy")
    _, by_normalised = entropy_weights(flat, temperature=1.0, floor=0.5, rule="normalised_entropy")
    entropies, bounded = entropy_weights([outlier, flat[1]], temperature=0.2, floor=0.5, rule="normalised_entropy")
    _, floored = entropy_weights([outlier, flat[1]], temperature=0.2, floor=1e-6, rule="entropy")

    assert by_raw[1] / by_raw[0] == pytest.approx(np.log(2_000) / np.log(50))
    np.testing.assert_allclose(by_normalised, 0.5)
    assert 0 < entropies[0] < 1e-80
    np.testing.assert_allclose(bounded, [0.75, 0.25])
    assert floored[0] / floored[1] == pytest.approx(np.log(50) / 1e-6)
    paper = MemGASConfig.paper()
    assert (paper.router, paper.router_floor, MemGASConfig().router) == ("entropy", 1e-6, "uniform")


def test_one_unit_cannot_be_judged() -> None:
    """Fewer than 2 units at a granularity: it cannot be judged: it gets the mean weight of those that can; all cannot:
    uniform. (Flooring H would hand it everything: a store with one session is every newcomer's first).
    """  # noqa: D205
    one = np.array([0.9])
    pair, odds = np.zeros(2), np.array([np.log(3), 0.0])

    entropies, weights = entropy_weights([pair, one, odds], temperature=1.0, floor=1e-6, rule="entropy")
    _, alone = entropy_weights([one, one, NONE, one], temperature=1.0, floor=1e-6, rule="entropy")

    assert np.isnan(entropies).tolist() == [False, True, False]
    assert weights[1] == pytest.approx((weights[0] + weights[2]) / 2)
    np.testing.assert_allclose(alone, [1 / 3, 1 / 3, 0, 1 / 3])


@pytest.mark.parametrize("rule", RULES)
def test_empty_granularity(rule: Rule) -> None:
    """Empty granularity (no digest yet): weight 0, the others renormalised; a pending session is compared on what it
    has.
    """  # noqa: D205
    full = [np.array([0.3, 0.1, 0.2]), np.array([0.9, 0.1])]

    _, without = entropy_weights(full, temperature=0.5, floor=0.5, rule=rule)
    entropies, weights = entropy_weights([full[0], NONE, full[1], NONE], temperature=0.5, floor=0.5, rule=rule)

    np.testing.assert_allclose(weights, [without[0], 0, without[1], 0])
    assert np.isnan(entropies).tolist() == [False, True, False, True]


def test_uniform() -> None:
    """The uniform rule weighs alike whatever is not empty, and still reports the entropies."""
    entropies, weights = entropy_weights(
        [np.array([0.9, 0.1]), np.array([0.4]), NONE], temperature=0.1, floor=0.5, rule="uniform"
    )

    np.testing.assert_allclose(weights, [0.5, 0.5, 0])
    assert np.isfinite(entropies[0])


def test_no_units_at_all() -> None:
    """Without any unit all weights are 0."""
    _, weights = entropy_weights([NONE] * 4, temperature=1.0, floor=0.5, rule="entropy")

    assert weights.tolist() == [0, 0, 0, 0]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), max_size=12), min_size=1, max_size=4),
    st.floats(1e-300, 1e6), st.floats(1e-300, 10), st.sampled_from(RULES),
)  # fmt: skip
def test_weights_are_always_a_distribution(
    similarities: list[list[float]], temperature: float, floor: float, rule: Rule
) -> None:
    """However extreme scale, temperature and floor: no NaN, nothing negative, sum 1, and 0 exactly where it is empty."""
    arrays = [np.array(values, np.float64) for values in similarities]

    entropies, weights = entropy_weights(arrays, temperature=temperature, floor=floor, rule=rule)

    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0 if any(similarities) else 0.0)
    for values, h, weight in zip(arrays, entropies, weights, strict=True):
        assert np.isnan(h) == (len(values) < 2)
        assert np.isnan(h) or 0 <= h <= np.log(len(values)) + 1e-9
        assert len(values) > 0 or weight == 0


@settings(deadline=None)
@given(st.permutations(range(4)))
def test_order_of_granularities_does_not_matter(order: list[int]) -> None:
    """Permuted granularities have permuted weights."""
    arrays = [np.array([0.1, 0.9]), np.array([0.5]), np.array([0.2, 0.1, 0.4]), NONE]

    _, plain = entropy_weights(arrays, temperature=0.3, floor=0.5, rule="normalised_entropy")
    _, permuted = entropy_weights(
        [arrays[at] for at in order], temperature=0.3, floor=0.5, rule="normalised_entropy"
    )  # fmt: skip

    np.testing.assert_allclose(permuted, plain[order])
