"""The association graph: nodes are units, edges are followed both ways and know who started them.

It grows, shrinks and is rewritten in place. Adding a handful of edges costs microseconds at any size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from memgas.errors import InvalidInputError, ShapeError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]

_T = TypeVar("_T", bound=np.generic)

MIN_WEIGHT = 1e-3
"""Least weight of an edge: an accepted association can be walked, whatever its cosine."""

_SPARSE = 50  # adding one value at an index costs what adding this many in a row does
_SCATTERED = 6  # gathering an edge by its node costs what passing over this many in a row does
_MIN_TAIL = 1024
_TAIL_SHARE = 0.02


class AssociationGraph:
    """An undirected, weighted graph over nodes `0 .. n_nodes - 1` that grows.

    Between two nodes there is one edge. Each end may have started it, with its own weight; the edge's weight is the
    larger one, and it exists as long as one of them stands by it.

    Notes
    -----
    An edge is two *slots*, one for each end, that know each other. The slots `[0, n_base)` are sorted by node and are
    found by offset, as in a CSR matrix; later ones, the tail, are scanned. When the tail holds more than 2 % of the
    edges, and more than 1,024, all are sorted anew.
    """

    def __init__(self) -> None:
        self.n_nodes = 0
        self._n_slots = 0
        self._n_base = 0
        self._n_gone = 0  # how often an edge was taken away since the last sorting
        self._place = np.zeros(0, np.int32)  # of a node among those asked for, while the tail is scanned; else -1
        # A slot: the node it belongs to, the node at the other end, the weight that this end started it with (0: it did
        # not), the edge's weight (0: no edge any more), the other end's slot.
        self._node = np.zeros(0, np.int32)
        self._other = np.zeros(0, np.int32)
        self._started = np.zeros(0)
        self._weight = np.zeros(0)
        self._mate = np.zeros(0, np.int32)
        self._start = np.zeros(1, np.intp)
        self._strength = np.zeros(0)
        self._degree = np.zeros(0, np.intp)

    @property
    def strength(self) -> FloatArray:
        """Sum of the weights of each node's edges, `(n_nodes,)`. Read only."""
        return self._strength[: self.n_nodes]

    @property
    def degree(self) -> IndexArray:
        """Number of each node's edges, `(n_nodes,)`. Read only."""
        return self._degree[: self.n_nodes]

    @property
    def n_edges(self) -> int:
        """Number of edges, each counted once."""
        return int(self.degree.sum()) // 2

    def add_nodes(self, n: int) -> None:
        """Append `n` nodes without edges."""
        end = self.n_nodes + n
        if end > len(self._degree):
            capacity = max(end, 2 * len(self._degree), 64)
            self._strength = _grown(self._strength, capacity)
            self._degree = _grown(self._degree, capacity)
            self._place = np.full(capacity, -1, np.int32)
        self.n_nodes = end

    def add_edges(self, source: IndexArray, target: IndexArray, weight: NDArray[np.floating]) -> None:
        """Add edges that `source` starts. Where it has started the same one before, the larger weight is kept.

        Parameters
        ----------
        source, target : (n_new,) intp
        weight : (n_new,) float
            Similarities; lifted to 0.001 where they are below.

        Raises
        ------
        ShapeError
            The arrays differ in length.
        InvalidInputError
            A node that does not exist, an edge from a node to itself, or a weight that is not finite.
        """
        source, target = np.asarray(source, np.intp), np.asarray(target, np.intp)
        weights = np.maximum(np.asarray(weight, np.float64), MIN_WEIGHT)
        self._check(source, target, weights)
        if not len(source):
            return
        source, target, weights = _without_repeats(source, target, weights, self.n_nodes)
        slots = self._find(source, target)
        self._restart(slots[slots >= 0], weights[slots >= 0])
        is_new = slots < 0
        if is_new.any():
            self._append(source[is_new], target[is_new], weights[is_new])

    def clear_sources(self, nodes: IndexArray) -> None:
        """Forget the edges that `nodes` started; those that the other end started as well stay, with its weight."""
        _, slots = self._slots_of(np.unique(np.asarray(nodes, np.intp)))
        self._started[slots] = 0.0
        self._set_from_both(slots)

    def drop_nodes(self, nodes: IndexArray) -> None:
        """Remove all edges of `nodes`. Their numbers stay, and are isolated."""
        _, slots = self._slots_of(np.unique(np.asarray(nodes, np.intp)))
        self._started[slots] = self._started[self._mate[slots]] = 0.0
        self._set_from_both(slots)

    def neighbours(self, nodes: IndexArray) -> tuple[IndexArray, IndexArray, FloatArray]:
        """Gather the edges of some nodes.

        Parameters
        ----------
        nodes : (n,) intp
            Distinct.

        Returns
        -------
        index : (n_edges,) intp
            Which entry of `nodes` an edge leaves from.
        neighbour : (n_edges,) intp
        weight : (n_edges,) float64
            Above 0.
        """
        index, slots = self._slots_of(nodes)
        weight = self._weight[slots]
        if self._n_gone:
            exists = weight > 0
            index, slots, weight = index[exists], slots[exists], weight[exists]
        return index, self._other[slots].astype(np.intp), weight

    def spread(self, nodes: IndexArray, values: FloatArray, sums: FloatArray, *, weighted: bool) -> IndexArray:
        """Send a value from each of some nodes over all its edges, and add it up where it arrives.

        Parameters
        ----------
        nodes : (n,) intp
            Distinct.
        values : (n,) float64
            Above 0. Over an edge goes this times its weight.
        sums : (n_nodes,) float64
            Added to in place.
        weighted
            Whether weights count; else each is 1.

        Returns
        -------
        (n_arrived,) intp
            Where something arrived, perhaps more than once.
        """
        if int(self.degree[nodes].sum()) * _SCATTERED > self._n_slots:
            return self._spread_all(nodes, values, sums, weighted=weighted)
        index, neighbour, weight = self.neighbours(nodes)
        _add_at(sums, neighbour, values[index] * weight if weighted else values[index])
        return neighbour

    def edges(self) -> tuple[IndexArray, IndexArray, FloatArray]:
        """Return all edges once: their ends, the higher node first, and weights, each `(n_edges,)`."""
        here, there = self._node[: self._n_slots], self._other[: self._n_slots]
        slots = np.flatnonzero((here > there) & (self._weight[: self._n_slots] > 0))
        return here[slots].astype(np.intp), there[slots].astype(np.intp), self._weight[slots]

    def to_csr(self) -> csr_array:
        """Return the symmetric adjacency matrix `(n_nodes, n_nodes)`, float64."""
        from scipy.sparse import csr_array

        slots = np.flatnonzero(self._weight[: self._n_slots] > 0)
        at = (self._node[slots], self._other[slots])
        return csr_array((self._weight[slots], at), shape=(self.n_nodes, self.n_nodes))

    def _check(self, source: IndexArray, target: IndexArray, weights: FloatArray) -> None:
        """Raise unless these are edges between nodes of this graph."""
        if not source.shape == target.shape == weights.shape == (source.size,):
            raise ShapeError(
                f"source, target and weight must be vectors of one length; "
                f"got {source.shape}, {target.shape}, {weights.shape}"
            )
        if not len(source):
            return
        lowest, highest = min(source.min(), target.min()), max(source.max(), target.max())
        if lowest < 0 or highest >= self.n_nodes:
            raise InvalidInputError(
                f"edges must join nodes 0 .. {self.n_nodes - 1}; got node {lowest if lowest < 0 else highest}"
            )
        if (source == target).any():
            raise InvalidInputError(
                f"an edge must join two nodes; got one from node {source[source == target][0]} to itself"
            )
        if not np.isfinite(weights).all():
            raise InvalidInputError("weights must be finite; check the vectors for NaN")

    def _slots_of(self, nodes: IndexArray) -> tuple[IndexArray, IndexArray]:
        """Return the slots of distinct nodes, and the entry of `nodes` each belongs to."""
        # Nodes that came after the last sorting have nothing in the base.
        begin = self._start.take(nodes, mode="clip")
        lengths = self._start.take(nodes + 1, mode="clip") - begin
        index = np.repeat(np.arange(len(nodes)), lengths)
        slots = np.repeat(begin - np.cumsum(lengths) + lengths, lengths)
        slots += np.arange(len(index))
        if self._n_slots == self._n_base:
            return index, slots
        self._place[nodes] = np.arange(len(nodes))
        in_tail = self._place[self._node[self._n_base : self._n_slots]]
        self._place[nodes] = -1
        listed = np.flatnonzero(in_tail >= 0)
        return np.concatenate([index, in_tail[listed].astype(np.intp)]), np.concatenate([slots, listed + self._n_base])

    def _spread_all(self, nodes: IndexArray, values: FloatArray, sums: FloatArray, *, weighted: bool) -> IndexArray:
        """Do what `spread` does by a pass over all edges in the order they are stored."""
        from scipy.sparse import csr_array

        leaving, arrived = np.zeros(self.n_nodes), np.zeros(self.n_nodes)
        leaving[nodes] = values
        tail = slice(self._n_base, self._n_slots)
        weight = self._weight if weighted else (self._weight[: self._n_slots] > 0).astype(np.float64)
        _add_at(arrived, self._other[tail], leaving[self._node[tail]] * weight[tail])
        # Both ends have a slot, so that what arrives at a node is what stands at the other ends of its own slots.
        n_sorted = len(self._start) - 1
        rows = (weight[: self._n_base], self._other[: self._n_base], self._start.astype(np.int32))
        base: csr_array = csr_array(rows, shape=(n_sorted, self.n_nodes))
        arrived[:n_sorted] += np.asarray(base @ leaving)
        sums += arrived
        return np.flatnonzero(arrived)

    def _find(self, source: IndexArray, target: IndexArray) -> IndexArray:
        """Return the slot of each pair at its source, -1 where they are not joined yet."""
        unique = np.unique(source)
        index, slots = self._slots_of(unique)
        found = np.full(len(source), -1, np.intp)
        if not len(slots):
            return found
        keys = unique[index] * self.n_nodes + self._other[slots]
        order = np.argsort(keys)
        wanted = source * self.n_nodes + target
        at = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
        candidates = order[at]
        is_found = keys[candidates] == wanted
        found[is_found] = slots[candidates[is_found]]
        return found

    def _restart(self, slots: IndexArray, weights: FloatArray) -> None:
        """Let the node of each slot start its edge, unless it has with a larger weight."""
        if len(slots):
            self._started[slots] = np.maximum(self._started[slots], weights)
            self._set_from_both(slots)

    def _set_from_both(self, slots: IndexArray) -> None:
        """Weigh edges by what their ends started. An edge may be named from both of its ends; the sums see it once."""
        once = np.unique(np.minimum(slots, self._mate[slots]))
        self._set(once, np.maximum(self._started[once], self._started[self._mate[once]]))

    def _set(self, slots: IndexArray, weight: FloatArray) -> None:
        """Give edges another weight, each named by the slot of one end, and keep the sums right."""
        mates = self._mate[slots]
        change = weight - self._weight[slots]
        count = (weight > 0).astype(np.intp) - (self._weight[slots] > 0)
        self._weight[slots] = self._weight[mates] = weight
        self._n_gone += int(np.count_nonzero(count < 0))
        for ends in (self._node[slots], self._node[mates]):
            np.add.at(self._strength, ends, change)
            np.add.at(self._degree, ends, count)
            # Without edges the sum is 0, not what rounding left of it.
            self._strength[ends[self._degree[ends] == 0]] = 0.0

    def _append(self, source: IndexArray, target: IndexArray, weights: FloatArray) -> None:
        """Add edges between nodes that are not joined; a pair may come in both directions."""
        low, high = np.minimum(source, target), np.maximum(source, target)
        keys, which = np.unique(low * self.n_nodes + high, return_inverse=True)
        n_pairs = len(keys)
        ends = np.concatenate([keys // self.n_nodes, keys % self.n_nodes])
        started = np.zeros(2 * n_pairs)
        started[which + n_pairs * (source == high)] = weights
        slots = self._reserve(2 * n_pairs)
        self._node[slots] = ends
        self._other[slots] = np.roll(ends, n_pairs)
        self._started[slots] = started
        self._weight[slots] = 0.0
        self._mate[slots] = np.roll(np.arange(slots.start, slots.stop), n_pairs)
        here = np.arange(slots.start, slots.start + n_pairs)
        self._set(here, np.maximum(started[:n_pairs], started[n_pairs:]))
        if self._n_slots - self._n_base > 2 * max(_MIN_TAIL, _TAIL_SHARE * self._n_base / 2):
            self.sort()

    def _reserve(self, n: int) -> slice:
        """Make room for `n` more slots."""
        first, self._n_slots = self._n_slots, self._n_slots + n
        if self._n_slots > len(self._node):
            capacity = max(self._n_slots, len(self._node) + len(self._node) // 2, 256)
            for name in ("_node", "_other", "_started", "_weight", "_mate"):
                setattr(self, name, _grown(getattr(self, name), capacity))
        return slice(first, self._n_slots)

    def sort(self) -> None:
        """Sort all slots by node, leave out those without an edge, and sum up anew: what is asked next is found faster."""
        kept = np.flatnonzero(self._weight[: self._n_slots] > 0)
        order = kept[np.argsort(self._node[kept], kind="stable")]
        place = np.zeros(self._n_slots, np.int32)
        place[order] = np.arange(len(order))
        self._mate = place[self._mate[order]]
        for name in ("_node", "_other", "_started", "_weight"):
            setattr(self, name, getattr(self, name)[order])
        self._n_slots = self._n_base = len(order)
        self._n_gone = 0
        counts = np.bincount(self._node, minlength=self.n_nodes)
        self._start = np.concatenate([[0], np.cumsum(counts)])
        self._strength[: self.n_nodes] = np.bincount(self._node, self._weight, minlength=self.n_nodes)


def _without_repeats(
    source: IndexArray, target: IndexArray, weights: FloatArray, n_nodes: int
) -> tuple[IndexArray, IndexArray, FloatArray]:
    """Keep the largest weight of each directed pair."""
    keys, which = np.unique(source * n_nodes + target, return_inverse=True)
    if len(keys) == len(source):
        return source, target, weights
    largest = np.zeros(len(keys))
    np.maximum.at(largest, which, weights)
    return keys // n_nodes, keys % n_nodes, largest


def _add_at(sums: FloatArray, at: NDArray[np.integer], values: FloatArray) -> None:
    """Add values to sums in place, each at its index; of many values a pass over all sums costs the least."""
    if len(at) > len(sums) // _SPARSE:
        sums += np.bincount(at, values, minlength=len(sums))
    else:
        np.add.at(sums, at, values)


def _grown(array: NDArray[_T], capacity: int) -> NDArray[_T]:
    """Return a longer copy, its new end 0."""
    longer = np.zeros(capacity, array.dtype)
    longer[: len(array)] = array
    return longer
