"""Similarities -> accept sets (Gaussian mixture) -> associations.

Everything that decides an edge is computed in float64 and rounded to 6 digits, and ties go to the older unit, so that
equal vectors give equal edges, one at a time or in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memgas.errors import ShapeError

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
Accept = Literal["threshold", "predict", "all"]
Ranked = tuple[IndexArray, FloatArray]
"""Columns and similarities of one unit, `(n,)` each."""

N_DIGITS = 6
MIN_CANDIDATES = 4
# Ten steps of the rounding: values that lie closer together differ by noise alone.
MIN_SPREAD = 1e-5
# Least variance of a component relative to that of the row: no component shrinks onto one value.
VARIANCE_FLOOR = 1e-4
# EM stops when the weight and the first two moments of a component move by less, relative to the row's spread.
TOLERANCE = 1e-7
MAX_CYCLES = 300
# Values fitted, or similarities held, at once: bounds the memory of a bulk import.
_FIT_BLOCK = 1 << 18
_PRODUCT_BLOCK = 1 << 24
_WIDEN_BLOCK = 1 << 21
_HALF_LOG_TWO_PI = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Two-component, one-dimensional Gaussian mixtures, one a row. Component 1 has the larger mean.

    Attributes
    ----------
    means, variances, weights : (n_rows, 2) float64
        NaN where nothing was fitted.
    log_likelihood : (n_rows,) float64
        Mean over the row's values, in nats.
    is_fitted : (n_rows,) bool
        False: too few values, or no spread.
    """

    means: FloatArray
    variances: FloatArray
    weights: FloatArray
    log_likelihood: FloatArray
    is_fitted: NDArray[np.bool_]


def associate(
    new_vectors: NDArray[np.float32],
    old_vectors: NDArray[np.float32],
    old_mask: NDArray[np.bool_],
    old_age: NDArray[np.int64],
    *,
    n_candidates: int | None,
    n_components: int,
    accept: Accept,
    max_associations: int | None,
) -> list[Ranked]:
    """Find what each new unit is associated with.

    Parameters
    ----------
    new_vectors : (n_new, n_dims) float32
        Normalised.
    old_vectors : (n_old, n_dims) float32
        Normalised.
    old_mask : (n_old,) bool
        Which of them may be associated: alive, and of another session.
    old_age : (n_old,) int64
        Key that orders them from the oldest on; settles ties.
    n_candidates
        How many of the most similar units the mixture sees; None: all.
    n_components
        Components of the mixture.
    accept
        From the decision threshold up, by hard prediction (the published code), or every candidate, without a mixture.
    max_associations
        Most associations of one new unit, the strongest kept; None: no cap.

    Returns
    -------
    list of (columns, similarities)
        For each new unit the accepted rows of `old_vectors`, strongest first, with their cosine rounded to 6 digits.

    Raises
    ------
    ShapeError
        The widths differ, or mask or ages are of another length.
    """
    found = find_candidates(new_vectors, old_vectors, old_mask, old_age, n_candidates=n_candidates)
    return accept_candidates(found, n_components=n_components, accept=accept, max_associations=max_associations)


def find_candidates(
    new_vectors: NDArray[np.float32],
    old_vectors: NDArray[np.float32],
    old_mask: NDArray[np.bool_],
    old_age: NDArray[np.int64],
    *,
    n_candidates: int | None,
) -> list[Ranked]:
    """Find what the mixture of each new unit is fitted to; parameters and errors as of `associate`.

    Returns
    -------
    list of (columns, similarities)
        For each new unit its candidates, most similar first, ties to the older; cosines rounded to 6 digits.
    """
    if not old_mask.shape == old_age.shape == old_vectors.shape[:1]:
        raise ShapeError(
            f"old_mask and old_age must be {old_vectors.shape[:1]}, one entry an old vector; "
            f"got {old_mask.shape} and {old_age.shape}"
        )
    if new_vectors.ndim != 2 or old_vectors.ndim != 2 or new_vectors.shape[1] != old_vectors.shape[1]:
        raise ShapeError(
            f"new and old vectors must be matrices of one width; got {new_vectors.shape} and {old_vectors.shape}"
        )
    is_bounded = n_candidates is not None and n_candidates < np.count_nonzero(old_mask)
    found: list[Ranked] = []
    for block in _row_blocks(len(new_vectors), max(1, _PRODUCT_BLOCK // max(1, len(old_vectors)))):
        if is_bounded and n_candidates is not None:
            columns, similarities = strongest_candidates(
                new_vectors[block], old_vectors, old_mask, old_age, n_candidates=n_candidates
            )
        else:
            columns, similarities = _all_candidates(new_vectors[block], old_vectors, old_mask, old_age)
        found += zip(columns, similarities, strict=True)
    return found


def accept_candidates(
    candidates: Sequence[Ranked], *, n_components: int, accept: Accept, max_associations: int | None
) -> list[Ranked]:
    """Choose among candidates from `find_candidates`; what one unit is associated with does not depend on the others.

    Of many units at once, the mixtures are fitted several times as fast as of a dozen.
    """
    lengths = np.array([len(columns) for columns, _ in candidates])
    accepted: list[Ranked] = list(candidates)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length).tolist()
        mask = accept_mask(
            np.stack([candidates[row][1] for row in rows]),
            n_components=n_components,
            accept=accept,
            max_associations=max_associations,
        )
        for row, of_row in zip(rows, mask, strict=True):
            columns, similarities = candidates[row]
            accepted[row] = columns[of_row], similarities[of_row]
    return accepted


def accept_sets(
    similarities: FloatArray,
    *,
    n_candidates: int | None,
    n_components: int,
    accept: Accept,
    max_associations: int | None,
) -> list[IndexArray]:
    """Choose accept sets from all similarities: what `associate` computes, without its shortcuts.

    Parameters
    ----------
    similarities : (n_new, n_old) float64
        Columns in order of age, oldest first.
    n_candidates, n_components, accept, max_associations
        As for `associate`.

    Returns
    -------
    list of intp arrays
        For each row the accepted columns, strongest first, ties to the older.
    """
    order, ranked = rank_candidates(similarities)
    accepted = accept_mask(
        ranked[:, :n_candidates], n_components=n_components, accept=accept, max_associations=max_associations
    )
    return [columns[:n_candidates][a] for columns, a in zip(order, accepted, strict=True)]


def rank_candidates(similarities: FloatArray) -> tuple[IndexArray, FloatArray]:
    """Round similarities and sort each row, largest first, ties to the lower column.

    Parameters
    ----------
    similarities : (n_new, n_old) float64

    Returns
    -------
    order : (n_new, n_old) intp
    ranked : (n_new, n_old) float64
    """
    rounded = np.round(similarities, N_DIGITS)
    order = np.argsort(-rounded, axis=1, kind="stable")
    return order, np.take_along_axis(rounded, order, axis=1)


def strongest_candidates(
    new_vectors: NDArray[np.float32],
    old_vectors: NDArray[np.float32],
    old_mask: NDArray[np.bool_],
    old_age: NDArray[np.int64],
    *,
    n_candidates: int,
) -> tuple[IndexArray, FloatArray]:
    """Find the `n_candidates` most similar old units of each new one, as exactly as if all were computed in float64.

    One product in float32 preselects; what remains of each row is computed again in float64.

    Parameters
    ----------
    new_vectors : (n_new, n_dims) float32
    old_vectors : (n_old, n_dims) float32
    old_mask : (n_old,) bool
        At least `n_candidates` of them set.
    old_age : (n_old,) int64
    n_candidates
        How many.

    Returns
    -------
    columns : (n_new, n_candidates) intp
    similarities : (n_new, n_candidates) float64
        Largest first, ties to the older; rounded to 6 digits.
    """
    similarities32 = new_vectors @ old_vectors.T
    similarities32[:, ~old_mask] = -np.inf
    columns = np.empty((len(new_vectors), n_candidates), dtype=np.intp)
    similarities = np.empty((len(new_vectors), n_candidates))
    margin = selection_margin(new_vectors.shape[1])
    for row, found in enumerate(candidate_columns(similarities32, n_candidates=n_candidates, margin=margin)):
        kept = found[np.argsort(old_age[found], kind="stable")]
        exact = _exact_similarities(new_vectors[row], old_vectors, kept)
        order, ranked = rank_candidates(exact[np.newaxis])
        columns[row] = kept[order[0, :n_candidates]]
        similarities[row] = ranked[0, :n_candidates]
    return columns, similarities


def candidate_columns(similarities32: NDArray[np.float32], *, n_candidates: int, margin: float) -> list[IndexArray]:
    """Preselect, per row, all columns that may be among the `n_candidates` largest.

    Parameters
    ----------
    similarities32 : (n_new, n_old) float32
        As computed in float32; -inf: never selected.
    n_candidates
        How many are wanted, at most `n_old`.
    margin
        How far below the `n_candidates`-th largest a column is kept: twice the error of one similarity.

    Returns
    -------
    list of intp arrays
        Columns in ascending order, at least `n_candidates` of them where as many are finite.
    """
    at = similarities32.shape[1] - n_candidates
    kept = []
    for row in similarities32:
        threshold = max(float(np.partition(row, at)[at]) - margin, float(np.finfo(np.float32).min))
        kept.append(np.flatnonzero(row >= np.float32(threshold)))
    return kept


def selection_margin(n_dims: int) -> float:
    """Return twice the worst rounding error of a float32 dot product of unit vectors, and of the 6 digits.

    The bound is `n_dims * 2**-24` whatever the order of summation (Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.1); the two places more are for the vectors' own norm and the threshold's rounding.
    """
    return 2 * (n_dims + 2) * 2.0**-24 + 2 * 10.0**-N_DIGITS


def accept_mask(
    similarities: FloatArray, *, n_components: int, accept: Accept, max_associations: int | None
) -> NDArray[np.bool_]:
    """Decide which candidates each new unit is associated with.

    Parameters
    ----------
    similarities : (n_new, n_candidates) float64
        Rounded, largest first.
    n_components, accept, max_associations
        As for `associate`.

    Returns
    -------
    (n_new, n_candidates) bool
        A mixture accepts nothing in a row of fewer than 4 candidates, or without spread.
    """
    if accept == "all":
        accepted = np.ones(similarities.shape, dtype=np.bool_)
    elif n_components == 2:
        mixture = fit_mixtures(similarities)
        accepted = _accept(mixture, similarities, accept)
    else:
        accepted = np.zeros(similarities.shape, dtype=np.bool_)
        for row in np.flatnonzero(_is_fittable(similarities)):
            accepted[row] = _accept_of_many(similarities[row], n_components, accept)
    if max_associations is not None:
        accepted &= np.cumsum(accepted, axis=1) <= max_associations
    return accepted


def fit_mixtures(values: FloatArray) -> Mixture:
    """Fit a two-component Gaussian mixture to each row by expectation-maximisation.

    Three starts are tried, and the one that ends at the largest likelihood is kept: the best two-means split, the best
    split into two Gaussians of their own width (both found exactly, over all splits of the sorted row), and the upper
    third. There is no chance in it, and a row's fit does not depend on the other rows.

    Parameters
    ----------
    values : (n_rows, n_values) float64
        All rows of equal length; any order.

    Returns
    -------
    Mixture
        A row is not fitted when it has fewer than 4 values, or all of them within 1e-5 of each other.

    Notes
    -----
    EM converges to a local maximum. It is accelerated by squared extrapolation (Varadhan and Roland, Scandinavian
    Journal of Statistics 35, 2008, scheme S3), which is undone wherever it would lower the likelihood. No variance falls
    below 1e-4 of the row's. The published code runs scikit-learn's `GaussianMixture(2, random_state=0)`, which stops
    earlier (1e-3) and starts from one run of k-means.
    """
    n_rows, n_values = values.shape
    fitted = _is_fittable(values)
    means, variances, weights = (np.full((n_rows, 2), np.nan) for _ in range(3))
    log_likelihood = np.full(n_rows, np.nan)
    rows = np.flatnonzero(fitted)
    for block in _row_blocks(len(rows), max(1, _FIT_BLOCK // max(1, n_values))):
        at = rows[block]
        means[at], variances[at], weights[at], log_likelihood[at] = _fit(np.sort(values[at], axis=1)[:, ::-1])
    return Mixture(means, variances, weights, log_likelihood, fitted)


def decision_threshold(mixture: Mixture) -> FloatArray:
    """Find where, between the two means, the weighted densities cross.

    Between the means the log ratio of the densities only grows, so there is one crossing or none.

    Returns
    -------
    (n_rows,) float64
        The crossing; the midpoint where there is none; NaN where nothing was fitted.
    """
    (m0, m1), (v0, v1) = mixture.means.T, mixture.variances.T
    gap = m1 - m0
    # With t from the lower mean up, the log ratio is  a t^2 + b t + c.
    c0, b, a = _log_odds(gap, v0, v1, mixture.weights[:, 1])
    discriminant = np.maximum(b * b - 4 * a * c0, 0)
    denominator = b + np.sqrt(discriminant)
    crossing = np.divide(-2 * c0, denominator, out=np.full_like(gap, -1.0), where=denominator > 0)
    is_between = (crossing >= 0) & (crossing <= gap)
    threshold: FloatArray = m0 + np.where(is_between, crossing, gap / 2)
    return threshold


def _log_odds(
    gap: FloatArray, v0: FloatArray, v1: FloatArray, w1: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the coefficients, constant first, of the log ratio of the upper density to the lower, from its mean up."""
    constant = np.log(w1 / (1 - w1)) - 0.5 * np.log(v1 / v0) - gap * gap / (2 * v1)
    return constant, gap / v1, 0.5 / v0 - 0.5 / v1


def _accept(mixture: Mixture, similarities: FloatArray, accept: Accept) -> NDArray[np.bool_]:
    """Accept from the threshold up, or what the upper component explains better."""
    accepted: NDArray[np.bool_]
    if accept == "threshold":
        accepted = similarities >= np.round(decision_threshold(mixture), N_DIGITS)[:, np.newaxis]
        return accepted
    (m0, m1), (v0, v1) = mixture.means.T, mixture.variances.T
    c, b, a = (coefficient[:, np.newaxis] for coefficient in _log_odds(m1 - m0, v0, v1, mixture.weights[:, 1]))
    t = similarities - m0[:, np.newaxis]
    accepted = (a * t + b) * t + c > 0
    return accepted


def _accept_of_many(similarities: FloatArray, n_components: int, accept: Accept) -> NDArray[np.bool_]:
    """Accept what belongs to the component of the largest mean, of three or more."""
    from sklearn.mixture import GaussianMixture

    n_components = min(n_components, len(np.unique(similarities)))
    if n_components == 2:
        return accept_mask(similarities[np.newaxis], n_components=2, accept=accept, max_associations=None).ravel()
    center, spread = similarities.mean(), similarities.std()
    standard = ((similarities - center) / spread)[:, np.newaxis]
    # The limit is never met: the likelihood is bounded, and every step but the last adds 1e-3.
    model = GaussianMixture(n_components, random_state=0, reg_covar=VARIANCE_FLOOR, max_iter=10_000).fit(standard)
    below, top = np.argsort(model.means_[:, 0], kind="stable")[-2:]
    if accept == "predict":
        predicted: NDArray[np.bool_] = model.predict(standard) == top
        return predicted
    pair = [below, top]
    weights = model.weights_[pair] / model.weights_[pair].sum()
    upper = Mixture(
        center + spread * model.means_[pair, 0][np.newaxis],
        spread**2 * model.covariances_[pair, 0, 0][np.newaxis],
        weights[np.newaxis],
        np.full(1, np.nan),
        np.ones(1, dtype=np.bool_),
    )
    accepted: NDArray[np.bool_] = _accept(upper, similarities[np.newaxis], accept)[0]
    return accepted


def _is_fittable(values: FloatArray) -> NDArray[np.bool_]:
    """Tell which rows have enough values, and spread."""
    if values.shape[1] < MIN_CANDIDATES:
        return np.zeros(len(values), dtype=np.bool_)
    has_spread: NDArray[np.bool_] = np.ptp(values, axis=1) > MIN_SPREAD
    return has_spread


def _fit(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Fit rows that have a spread, sorted, largest first: means, variances, weights, mean log-likelihood."""
    n_rows = len(values)
    center, spread = values.mean(axis=1), values.std(axis=1)
    standard = (values - center[:, np.newaxis]) / spread[:, np.newaxis]
    starts = np.stack(_starts(standard))
    moments, likelihood = np.empty((3, starts[..., 0].size)), np.full(starts[..., 0].size, -np.inf)
    # Equal starts end alike. Of equal ends, the first start's is taken.
    is_known = [(starts[:number] == start).all(axis=2).any(axis=0) for number, start in enumerate(starts)]
    tried = np.flatnonzero(~np.concatenate(is_known))
    moments[:, tried], likelihood[tried] = _maximise(standard[tried % n_rows], starts.reshape(-1, 3)[tried].T)
    by_start = np.round(likelihood.reshape(len(starts), n_rows), 9)
    best = np.arange(n_rows) + n_rows * np.argmax(by_start, axis=0)
    totals = _moments(standard, np.ones_like(standard))
    weights, means, variances = (x.T for x in _components(moments[:, best], totals))
    order = np.argsort(means, axis=1, kind="stable")
    means, variances, weights = (np.take_along_axis(x, order, axis=1) for x in (means, variances, weights))
    scale = spread[:, np.newaxis]
    return (
        center[:, np.newaxis] + scale * means, scale**2 * variances, weights, likelihood[best] - np.log(spread),
    )  # fmt: skip


def _starts(standard: FloatArray) -> list[FloatArray]:
    """Return, for each start, the moments `(n_rows, 3)` of what it gives to the upper component."""
    upper, lower = _split_moments(standard)
    between = upper[..., 1] ** 2 / upper[..., 0] + lower[..., 1] ** 2 / lower[..., 0]
    likelihood = np.zeros(upper.shape[:2])
    for part in (upper, lower):
        share, mean = part[..., 0], part[..., 1] / part[..., 0]
        variance = np.maximum(part[..., 2] / share - mean * mean, VARIANCE_FLOOR)
        likelihood += share * (np.log(share) - 0.5 * np.log(variance))
    likelihood[:, [0, -1]] = -np.inf  # one value has no width
    third = (standard.shape[1] - 1) // 3
    return [_at_best(upper, between), _at_best(upper, likelihood), upper[:, third]]


def _split_moments(standard: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return share, first and second moment `(n_rows, n_values - 1, 3)` above and below each split of sorted rows."""
    n_values = standard.shape[1]
    powers = np.stack([np.ones_like(standard), standard, standard * standard], axis=2) / n_values
    upper = np.cumsum(powers, axis=1)
    return upper[:, :-1], upper[:, -1:] - upper[:, :-1]


def _at_best(moments: FloatArray, criterion: FloatArray) -> FloatArray:
    """Pick each row's moments where the criterion is largest."""
    best: FloatArray = moments[np.arange(len(moments)), np.argmax(criterion, axis=1)]
    return best


def _components(moments: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Turn the moments of the upper component into shares, means and variances of both, each `(2, n_rows)`."""
    both = np.empty((3, 2, moments.shape[1]))
    np.subtract(totals, moments, out=both[:, 0])
    both[:, 1] = moments
    share = np.maximum(both[0], 1e-9)
    means: FloatArray = both[1] / share
    variances = both[2] / share
    variances -= means * means
    return share, means, np.maximum(variances, VARIANCE_FLOOR, out=variances)


def _step(values: FloatArray, moments: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Take one EM step; also return the mean log-likelihood of where it started from.

    A component's share, first and second moment `(3, n_rows)` are all that EM hands on: the other component has the rest.
    """
    share, means, variances = _components(moments, totals)
    # log(share * density) of each component is  constant + linear x - precision x^2.
    precision = 0.5 / variances
    linear = 2 * means * precision
    constant = np.log(share / np.sqrt(variances)) - means * means * precision
    # In place: of a dozen rows, which most calls have, making arrays takes as long as filling them.
    odds = (precision[0] - precision[1])[:, np.newaxis] * values
    odds += (linear[1] - linear[0])[:, np.newaxis]
    odds *= values
    odds += (constant[1] - constant[0])[:, np.newaxis]
    np.maximum(odds, -700, out=odds)  # exp(700) is still a number
    weight = np.negative(odds)
    np.exp(weight, out=weight)
    weight += 1
    np.divide(1, weight, out=weight)
    # log(density) = log(lower) + odds - log(weight), and the mean of log(lower) follows from the totals.
    odds -= np.log(weight)
    lower = constant[0] + linear[0] * totals[1] - precision[0] * totals[2]
    likelihood = lower + np.add.reduce(odds, axis=1) / values.shape[1] - _HALF_LOG_TWO_PI
    return _moments(values, weight), likelihood


def _moments(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the weighted mean of 1, x and x squared: `(3, n_rows)`."""
    powers = np.empty((3, *values.shape))
    powers[0] = weight
    np.multiply(weight, values, out=powers[1])
    np.multiply(powers[1], values, out=powers[2])
    moments: FloatArray = np.add.reduce(powers, axis=2)
    moments /= values.shape[1]
    return moments


def _maximise(values: FloatArray, start: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Run accelerated EM until each row stands still; rows that do are frozen and left out.

    Parameters
    ----------
    values : (n_rows, n_values)
        Standardised.
    start : (3, n_rows)

    Returns
    -------
    moments : (3, n_rows)
    likelihood : (n_rows,)
    """
    result, likelihood = start.copy(), np.full(len(values), -np.inf)
    at, totals = np.arange(len(values)), _moments(values, np.ones_like(values))
    first = safe_first = safe_second = start
    reached = likelihood
    for _ in range(MAX_CYCLES):
        second, gained = _step(values, first, totals)
        is_worse = gained < reached
        if is_worse.any():
            first, second = np.where(is_worse, safe_first, first), np.where(is_worse, safe_second, second)
        third, reached = _step(values, second, totals)
        is_moving = np.maximum.reduce(np.abs(third - second)) >= TOLERANCE
        result[:, at], likelihood[at] = second, reached
        if not is_moving.all():
            at, values, totals, reached = at[is_moving], values[is_moving], totals[:, is_moving], reached[is_moving]
            first, second, third = first[:, is_moving], second[:, is_moving], third[:, is_moving]
            if not len(at):
                break
        first, safe_first, safe_second = _extrapolate(first, second, third), second, third
    return result, likelihood


def _extrapolate(first: FloatArray, second: FloatArray, third: FloatArray) -> FloatArray:
    """Leap along the path of three EM iterates `(3, n_rows)`, where that leads to a mixture at all."""
    step = second - first
    bend = third - second - step
    length = np.sqrt(np.add.reduce(step * step) / np.maximum(np.add.reduce(bend * bend), 1e-300))
    length = np.minimum(np.maximum(length, 1), 64)
    leap = first + 2 * length * step + length * length * bend
    return np.where((leap[0] > 1e-6) & (leap[0] < 1 - 1e-6), leap, third)


def _exact_similarities(vector: NDArray[np.float32], old: NDArray[np.float32], columns: IndexArray) -> FloatArray:
    """Compute in float64 the cosines of one new unit with some old ones."""
    wide = vector.astype(np.float64)
    parts = [
        old[columns[block]].astype(np.float64) @ wide
        for block in _row_blocks(len(columns), max(1, _WIDEN_BLOCK // max(1, len(wide))))
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _all_candidates(
    new: NDArray[np.float32], old: NDArray[np.float32], mask: NDArray[np.bool_], age: NDArray[np.int64]
) -> tuple[IndexArray, FloatArray]:
    """Rank all old units that may be associated, in float64: `(n_new, n_alive)` columns and similarities."""
    alive = np.flatnonzero(mask)
    alive = alive[np.argsort(age[alive], kind="stable")]
    similarities = np.empty((len(new), len(alive)))
    wide = new.astype(np.float64)
    for block in _row_blocks(len(alive), max(1, _WIDEN_BLOCK // max(1, new.shape[1]))):
        similarities[:, block] = wide @ old[alive[block]].astype(np.float64).T
    order, ranked = rank_candidates(similarities)
    return alive[order], ranked


def _row_blocks(n_rows: int, size: int) -> Iterator[slice]:
    """Yield slices that cover `n_rows` rows, `size` at a time."""
    return (slice(start, start + size) for start in range(0, n_rows, size))
