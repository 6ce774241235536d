"""The strongest path by which PageRank reached a unit: from a seed, edge by edge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memgas.graph import AssociationGraph

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]


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
