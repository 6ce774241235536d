"""Personalized PageRank: where a walker is who starts at the seeds, follows an edge or starts again.

`personalized_pagerank` is the reference, over the whole graph. `push_pagerank` touches only what the walker reaches.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memgas.errors import InvalidInputError, ShapeError
from memgas.graph import AssociationGraph

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]


def personalized_pagerank(
    adjacency: csr_array, personalization: FloatArray, *, damping: float, tolerance: float
) -> FloatArray:
    """Compute personalized PageRank by power iteration.

    Parameters
    ----------
    adjacency : (n_nodes, n_nodes) csr
        Symmetric, weights not negative.
    personalization : (n_nodes,) float64
        Where the walker starts again; any scale.
    damping
        Chance of following an edge, in [0, 1).
    tolerance
        Largest L1 error of the result, above 0.

    Returns
    -------
    (n_nodes,) float64
        Sums to 1.

    Raises
    ------
    ShapeError
        The personalization is not one number a node.
    InvalidInputError
        It is negative somewhere, not finite, or 0 everywhere.

    Notes
    -----
    x = d (W x + p · mass at nodes without edges) + (1 - d) p, with W the column-normalised adjacency: the mass at a node
    without edges goes back to the personalization, as in networkx with `dangling=personalization` and in igraph. Each
    iteration shrinks the error, 2 at most, by `d`; a change of `tolerance (1 - d) / d` leaves at most `tolerance`.
    """
    n_nodes = adjacency.shape[0]
    if personalization.shape != (n_nodes,):
        raise ShapeError(f"personalization must be ({n_nodes},), one number a node; got {personalization.shape}")
    start = _normalised(personalization)
    strength = np.asarray(adjacency.sum(axis=1), np.float64).ravel()
    is_dangling = strength == 0
    share = np.divide(1.0, strength, out=np.zeros(n_nodes), where=~is_dangling)
    ranks = start
    # Known beforehand: rounding may keep the change from ever getting as small as a tight tolerance asks.
    n_enough = 1 if damping == 0 else math.ceil(math.log(min(tolerance, 1.0) / 2) / math.log(damping))
    for _ in range(n_enough):
        followed = adjacency @ (ranks * share) + start * ranks[is_dangling].sum()
        moved: FloatArray = damping * followed + (1 - damping) * start
        change = np.abs(moved - ranks).sum()
        ranks = moved
        if change * damping <= tolerance * (1 - damping):
            break
    return ranks


def push_pagerank(
    graph: AssociationGraph,
    seeds: IndexArray,
    personalization: FloatArray,
    *,
    damping: float,
    tolerance: float,
    weighted: bool,
) -> tuple[IndexArray, FloatArray]:
    """Compute personalized PageRank by pushing mass outwards from the seeds, until what is still moving is little.

    Parameters
    ----------
    graph
        Nodes without edges return their mass to the personalization.
    seeds : (n_seeds,) intp
        Distinct.
    personalization : (n_seeds,) float64
        Of each seed; any scale.
    damping
        Chance of following an edge, in [0, 1).
    tolerance
        Largest L1 error of the result, above 0.
    weighted
        Whether an edge is followed in proportion to its weight, or each as likely.

    Returns
    -------
    nodes : (n_reached,) intp
        Ascending.
    scores : (n_reached,) float64
        Never above the exact scores. What they lack to the sum of 1 is the L1 error, at most `tolerance`.

    Raises
    ------
    ShapeError
        The personalization is not one number a seed.
    InvalidInputError
        It is negative somewhere, not finite, or 0 everywhere.

    Notes
    -----
    The forward push of Andersen, Chung and Lang (Local Graph Partitioning using PageRank Vectors, FOCS 2006), a whole
    frontier at a time: of the residual `r` at a node, `(1 - d) r` stays and `d r` moves on. A residual that is not
    pushed any more leaves its `(1 - d) r` behind, so only `d r` is lost. Each round pushes every residual above its share
    of the tolerance.
    """
    if personalization.shape != seeds.shape:
        raise ShapeError(f"personalization must be {seeds.shape}, one number a seed; got {personalization.shape}")
    start = _normalised(personalization)
    strength = graph.strength if weighted else graph.degree
    scores, residual = np.zeros(graph.n_nodes), np.zeros(graph.n_nodes)
    is_reached = np.zeros(graph.n_nodes, np.bool_)
    residual[seeds], is_reached[seeds] = start, True
    while len(frontier := _frontier(residual, int(np.count_nonzero(is_reached)), damping, tolerance)):
        mass = residual[frontier]
        residual[frontier] = 0.0
        scores[frontier] += (1 - damping) * mass
        leaving = strength[frontier]
        is_dangling = leaving == 0
        if is_dangling.any():
            residual[seeds] += damping * mass[is_dangling].sum() * start
            leaving[is_dangling] = 1.0
        is_reached[graph.spread(frontier, damping * mass / leaving, residual, weighted=weighted)] = True
    reached = np.flatnonzero(is_reached)
    return reached, scores[reached] + (1 - damping) * residual[reached]


def _normalised(personalization: FloatArray) -> FloatArray:
    """Scale a personalization to the sum of 1, or say what is wrong with it."""
    largest = personalization.max(initial=0.0)
    if not (np.isfinite(personalization).all() and personalization.min(initial=0.0) >= 0 and largest > 0):
        raise InvalidInputError(
            "personalization must be finite, not negative, and above 0 somewhere; clip it, or make it uniform"
        )
    # By the largest first: a sum of large numbers overflows, and one of tiny ones is not exact.
    scaled = personalization / largest
    start: FloatArray = scaled / scaled.sum()
    return start


def _frontier(residual: FloatArray, n_reached: int, damping: float, tolerance: float) -> IndexArray:
    """Choose the nodes to push: those whose residual is more than its share of the tolerance.

    When none is left, stopping loses `damping` times the residuals, which is within the tolerance. The rule looks at each
    node alone, so that a node's score does not depend on its number, as a choice of the largest would through ties.
    """
    if damping == 0:
        return np.zeros(0, np.intp)
    return np.flatnonzero(residual > tolerance / (damping * n_reached))
