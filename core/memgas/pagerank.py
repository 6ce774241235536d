"""Personalized PageRank: where a walker is who starts at the seeds, follows an edge or starts again.

`personalized_pagerank` is the reference, over the whole graph. `push_pagerank` touches only what the walker reaches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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


def strongest_path(
    graph: AssociationGraph, ranks: FloatArray, seeds: IndexArray, target: int, *, damping: float, weighted: bool
) -> tuple[IndexArray, FloatArray]:
    """Find the path from a seed to a node that carries the most mass.

    Parameters
    ----------
    graph
        The walker's.
    ranks : (n_nodes,) float64
        Scores of PageRank from these seeds, 0 where it did not reach.
    seeds : (n_seeds,) intp
    target
        A node.
    damping, weighted
        As for `push_pagerank`.

    Returns
    -------
    nodes : (n_steps,) intp
        The seed first and the target last; the target alone when it is a seed, or was not reached.
    weights : (n_steps - 1,) float64
        Of the edges between.

    Notes
    -----
    Of all paths over nodes with a rank, the one with the largest  rank(seed) · Π d w / strength: what the walker carries
    along it. The search goes back from the target, and gives up what cannot carry more than the best path found.
    """
    is_seed = np.zeros(graph.n_nodes, np.bool_)
    is_seed[seeds] = ranks[seeds] > 0
    if is_seed[target] or ranks[target] <= 0 or not is_seed.any():
        return np.array([target], np.intp), np.zeros(0)
    strength = graph.strength if weighted else graph.degree
    carried, following, edge = np.zeros(graph.n_nodes), np.full(graph.n_nodes, -1, np.intp), np.zeros(graph.n_nodes)
    carried[target] = 1.0
    frontier, best, best_seed, most = np.array([target], np.intp), 0.0, -1, ranks[seeds].max()
    while len(frontier):
        index, node, weight = graph.neighbours(frontier)
        gain = damping * carried[frontier[index]] * (weight if weighted else 1.0) / strength[node]
        is_better = (gain > carried[node]) & (gain * most > best) & (ranks[node] > 0)
        # Ascending, so that the best of several ways to a node is written last.
        order = np.flatnonzero(is_better)[np.argsort(gain[is_better], kind="stable")]
        node = node[order]
        carried[node], following[node], edge[node] = gain[order], frontier[index[order]], weight[order]
        frontier = np.unique(node)
        ends = frontier[is_seed[frontier]]
        if len(ends) and (carried[ends] * ranks[ends]).max() > best:
            best_seed = int(ends[np.argmax(carried[ends] * ranks[ends])])
            best = float(carried[best_seed] * ranks[best_seed])
        frontier = frontier[carried[frontier] * damping * most > best]
    if best_seed < 0:
        return np.array([target], np.intp), np.zeros(0)
    path = [best_seed]
    while path[-1] != target:
        path.append(int(following[path[-1]]))
    return np.array(path, np.intp), edge[path[:-1]]


def strongest_paths(
    graph: AssociationGraph,
    ranks: FloatArray,
    seeds: IndexArray,
    targets: IndexArray,
    *,
    damping: float,
    weighted: bool,
) -> list[tuple[IndexArray, FloatArray]]:
    """Find the strongest path to each of several nodes.

    Parameters
    ----------
    graph, ranks, seeds, damping, weighted
        As for `strongest_path`.
    targets : (n_targets,) intp
        Distinct.

    Returns
    -------
    list of (nodes, weights)
        As of `strongest_path`.

    Notes
    -----
    The first step from the seeds is made once for all targets, and so is the last one to the targets. What lies between
    is searched back from each target, where a longer path could carry more than the best one found.
    """
    found = [(targets[i : i + 1], np.zeros(0)) for i in range(len(targets))]
    starts = seeds[ranks[seeds] > 0]
    is_far = ranks[targets] > 0
    is_far &= (targets[:, None] != starts).all(axis=1)
    if not is_far.any() or not len(starts):
        return found
    walk = _Walk(graph, ranks, damping, weighted)
    first = walk.first_steps(starts)
    far = np.flatnonzero(is_far)
    index, *edges = walk.steps_back(targets[far])
    for at, i in enumerate(far.tolist()):
        of_target = index == at
        nodes, weights = _search(walk, first, int(targets[i]), *(column[of_target] for column in edges))
        if len(nodes):
            found[i] = np.array([*nodes, targets[i]], np.intp), np.array(weights)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _FirstSteps:
    """The most mass that reaches each node from a seed by one step, or by none.

    Attributes
    ----------
    mass : (n_nodes,) float64
    step : (n_nodes,) intp
        Entry of the next two; -1 where a seed has it from the start.
    sender : (n_steps,) intp
    weight : (n_steps,) float64
    most_by_more
        No node gets more than this by two steps or more.
    """

    mass: FloatArray
    step: IndexArray
    sender: IndexArray
    weight: FloatArray
    most_by_more: float


@dataclass(frozen=True, slots=True, eq=False)
class _Walk:
    """A walker's graph and where it went."""

    graph: AssociationGraph
    ranks: FloatArray
    damping: float
    weighted: bool

    def first_steps(self, starts: IndexArray) -> _FirstSteps:
        """Make the first step from the seeds that the walk begins at."""
        index, node, weight = self.graph.neighbours(starts)
        sender = starts[index]
        sent = self._shares(sender, weight) * self.ranks[sender]
        order = np.argsort(sent, kind="stable")  # ascending, so that the most is written last
        mass, step = np.zeros(self.graph.n_nodes), np.zeros(self.graph.n_nodes, np.intp)
        mass[node[order]], step[node[order]] = sent[order], order
        own = starts[self.ranks[starts] >= mass[starts]]
        mass[own], step[own] = self.ranks[own], -1
        return _FirstSteps(mass, step, sender, weight, self.damping * sent.max(initial=0.0))

    def steps_back(self, nodes: IndexArray) -> tuple[IndexArray, IndexArray, FloatArray, FloatArray]:
        """Gather the edges of distinct nodes, as `neighbours` does, and which share of the mass at the other end comes in."""
        index, node, weight = self.graph.neighbours(nodes)
        return index, node, weight, self._shares(node, weight) * (self.ranks[node] > 0)

    def _shares(self, node: IndexArray, weight: FloatArray) -> FloatArray:
        """Return which share of the mass at a node leaves it over an edge: `(n_edges,)`, as its arguments."""
        if self.weighted:
            return weight * (self.damping / self.graph.strength[node])
        return self.damping / self.graph.degree[node]


def _search(
    walk: _Walk, first: _FirstSteps, target: int, node: IndexArray, weight: FloatArray, gain: FloatArray
) -> tuple[list[int], list[float]]:
    """Search the strongest path backwards from the edges of a target, level by level.

    Parameters
    ----------
    node, weight, gain : (n_edges,)
        The other end of each edge, its weight, and which share of the mass there comes in.

    Returns
    -------
    nodes : (n_steps,)
        Without the target; none if no path leads there.
    weights : (n_steps,)
        Of the edge after each.
    """
    levels: list[tuple[IndexArray, FloatArray, IndexArray]] = []
    best, ending, came = 0.0, (-1, -1), node
    carried: FloatArray | None = None
    while len(node):
        levels.append((node, weight, came))
        whole = gain * first.mass[node]
        if whole[at := int(np.argmax(whole))] > best:
            best, ending = float(whole[at]), (len(levels) - 1, at)
        open_ = np.flatnonzero(gain * first.most_by_more > best)
        if not len(open_):
            break
        if carried is None:
            carried = np.zeros(walk.graph.n_nodes)
            carried[target] = 1.0
        carried[node] = np.maximum(carried[node], gain)
        index, node, weight, share = walk.steps_back(node[open_])
        gain = gain[open_[index]] * share
        is_better = np.flatnonzero(gain > carried[node])
        falling = is_better[np.argsort(-gain[is_better], kind="stable")]
        kept = falling[np.unique(node[falling], return_index=True)[1]]  # of several ways to a node the best
        node, weight, gain, came = node[kept], weight[kept], gain[kept], open_[index[kept]]
    nodes: list[int] = []
    weights: list[float] = []
    level, at = ending
    while level >= 0:
        node, weight, came = levels[level]
        nodes.append(int(node[at]))
        weights.append(float(weight[at]))
        level, at = level - 1, int(came[at])
    if nodes and (step := first.step[nodes[0]]) >= 0:
        nodes.insert(0, int(first.sender[step]))
        weights.insert(0, float(first.weight[step]))
    return nodes, weights


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
