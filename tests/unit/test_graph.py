"""The association graph against the plainest model of it: a dictionary of who started what."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import memgas.graph
from memgas.errors import InvalidInputError, ShapeError
from memgas.graph import MIN_WEIGHT, AssociationGraph

N_NODES = 9
WEIGHTS = st.integers(1, 9).map(lambda n: n / 10)
NODES = st.integers(0, N_NODES - 1)
EDGES = st.lists(st.tuples(NODES, NODES, WEIGHTS).filter(lambda edge: edge[0] != edge[1]), max_size=12)
STEPS = st.one_of(
    st.tuples(st.just("add"), EDGES),
    st.tuples(st.just("clear"), st.lists(NODES, max_size=3)),
    st.tuples(st.just("drop"), st.lists(NODES, max_size=2)),
)


def graph_of(n_nodes: int, edges: list[tuple[int, int, float]]) -> AssociationGraph:
    graph = AssociationGraph()
    graph.add_nodes(n_nodes)
    add(graph, edges)
    return graph


def add(graph: AssociationGraph, edges: list[tuple[int, int, float]]) -> None:
    source, target, weight = (np.array([edge[i] for edge in edges]) for i in range(3))
    graph.add_edges(source.astype(np.intp), target.astype(np.intp), weight.astype(np.float64))


def nodes(*numbers: int) -> NDArray[np.intp]:
    return np.array(numbers, np.intp)


def dense(started: dict[tuple[int, int], float]) -> NDArray[np.float64]:
    """What the graph should be: of two directions the larger weight."""
    matrix = np.zeros((N_NODES, N_NODES))
    for (source, target), weight in started.items():
        matrix[source, target] = matrix[target, source] = max(matrix[source, target], weight)
    return matrix


def gathered(graph: AssociationGraph, of: NDArray[np.intp]) -> NDArray[np.float64]:
    """The rows of `of`, as `neighbours` tells them; fails where an edge comes twice."""
    matrix = np.zeros((len(of), graph.n_nodes))
    for index, neighbour, weight in zip(*graph.neighbours(of), strict=True):
        assert matrix[index, neighbour] == 0
        matrix[index, neighbour] = weight
    return matrix


def test_edges_are_followed_both_ways() -> None:
    """An edge that one end started is a neighbour of both, and counts in the strength and degree of both."""
    graph = graph_of(4, [(2, 0, 0.5), (2, 1, 0.25)])

    index, neighbour, weight = graph.neighbours(nodes(1, 2, 3))
    assert sorted(zip(index.tolist(), neighbour.tolist(), weight.tolist(), strict=True)) == [
        (0, 2, 0.25),
        (1, 0, 0.5),
        (1, 1, 0.25),
    ]
    assert graph.strength.tolist() == [0.5, 0.25, 0.75, 0]
    assert graph.degree.tolist() == [1, 1, 2, 0]
    assert graph.n_edges == 2


def test_two_ends_may_accept_each_other() -> None:
    """Both directions between two nodes are one edge of the larger weight; it stays while one end stands by it."""
    graph = graph_of(2, [(0, 1, 0.5), (1, 0, 0.75)])

    assert graph.to_csr().toarray().tolist() == [[0, 0.75], [0.75, 0]]
    graph.clear_sources(nodes(1))
    assert graph.to_csr().toarray().tolist() == [[0, 0.5], [0.5, 0]]
    graph.clear_sources(nodes(0))
    assert graph.n_edges == 0
    assert graph.strength.tolist() == [0, 0]


def test_a_rewritten_node_keeps_what_others_started() -> None:
    """The open exchange is rewritten: what it started is replaced, what others started with it stays."""
    graph = graph_of(4, [(1, 0, 0.5), (2, 1, 0.25)])

    graph.clear_sources(nodes(1))
    add(graph, [(1, 3, 0.75)])

    assert gathered(graph, nodes(1)).tolist() == [[0, 0, 0.25, 0.75]]


def test_dropped_nodes_are_isolated() -> None:
    """Edges to dropped nodes vanish, whoever started them; numbers stay."""
    graph = graph_of(4, [(1, 0, 0.5), (2, 1, 0.25), (3, 2, 0.75)])

    graph.drop_nodes(nodes(1))

    assert graph.n_nodes == 4
    assert graph.degree.tolist() == [0, 0, 1, 1]
    assert graph.strength.tolist() == [0, 0, 0.75, 0.75]


def test_weak_associations_can_be_walked() -> None:
    """An accepted similarity at or below 0 is an edge of the least weight, never none and never a negative one."""
    graph = graph_of(3, [(1, 0, -0.2), (2, 0, 0.0)])

    assert graph.degree.tolist() == [2, 1, 1]
    assert graph.strength[1] == MIN_WEIGHT


@pytest.mark.parametrize("least_tail", [1, 4, 1_000])
@settings(deadline=None, max_examples=60)
@given(steps=st.lists(STEPS, max_size=10))
def test_graph_is_the_model(least_tail: int, steps: list[tuple[str, list[object]]]) -> None:
    """Whatever is added, cleared and dropped in whatever order: the graph is the dictionary, sorted or in its tail."""
    before = memgas.graph._MIN_TAIL
    memgas.graph._MIN_TAIL = least_tail
    started: dict[tuple[int, int], float] = {}
    graph = graph_of(N_NODES, [])
    try:
        for kind, values in steps:
            apply(graph, started, kind, values)
            expected = dense(started)
            np.testing.assert_array_equal(graph.to_csr().toarray(), expected)
            np.testing.assert_array_equal(gathered(graph, nodes(8, 0, 3)), expected[[8, 0, 3]])
            np.testing.assert_allclose(graph.strength, expected.sum(axis=1), atol=1e-12)
            assert graph.degree.tolist() == (expected > 0).sum(axis=1).tolist()
            assert (graph.strength[graph.degree == 0] == 0).all()
    finally:
        memgas.graph._MIN_TAIL = before


def apply(graph: AssociationGraph, started: dict[tuple[int, int], float], kind: str, values: list[object]) -> None:
    if kind == "add":
        edges = [edge for edge in values if isinstance(edge, tuple)]
        add(graph, edges)
        for source, target, weight in edges:
            started[source, target] = max(weight, started.get((source, target), 0))
        return
    chosen = [node for node in values if isinstance(node, int)]
    (graph.clear_sources if kind == "clear" else graph.drop_nodes)(nodes(*chosen))
    for source, target in list(started):
        if source in chosen or (kind == "drop" and target in chosen):
            del started[source, target]


def test_growth_equals_one_load() -> None:
    """Node by node or at once: the same graph; thousands of edges pass from the tail into the sorted part."""
    oracle = nx.gnm_random_graph(400, 5_000, seed=1)
    edges = [(max(pair), min(pair), 0.1 + (sum(pair) % 7) / 10) for pair in oracle.edges]
    grown = AssociationGraph()

    for node in range(400):
        grown.add_nodes(1)
        add(grown, [edge for edge in edges if edge[0] == node])

    whole = graph_of(400, edges)
    np.testing.assert_array_equal(grown.to_csr().toarray(), whole.to_csr().toarray())
    assert grown.n_edges == whole.n_edges == 5_000
    assert grown._n_base > 0
    np.testing.assert_allclose(gathered(grown, np.arange(400)), whole.to_csr().toarray())
    np.testing.assert_allclose(grown.strength, whole.strength)


@pytest.mark.parametrize("edge", [(0, 0, 0.5), (0, 3, 0.5), (-1, 0, 0.5), (0, 1, float("nan")), (0, 1, float("inf"))])
def test_impossible_edges_are_refused(edge: tuple[int, int, float]) -> None:
    """A loop, an unknown node, a weight that is no number: an error, and the graph is as before."""
    graph = graph_of(3, [(2, 1, 0.5)])

    with pytest.raises(InvalidInputError):
        add(graph, [(1, 0, 0.5), edge])
    assert graph.n_edges == 1
    with pytest.raises(ShapeError, match="one length"):
        graph.add_edges(nodes(0, 1), nodes(2), np.ones(2))


def test_empty_graph() -> None:
    """Without nodes, without edges, with nothing to do: nothing happens."""
    graph = AssociationGraph()
    graph.add_edges(nodes(), nodes(), np.zeros(0))
    assert graph.to_csr().shape == (0, 0)

    graph.add_nodes(2)
    graph.drop_nodes(nodes(0, 1))
    graph.clear_sources(nodes())

    assert [len(part) for part in graph.neighbours(nodes(0, 1))] == [0, 0, 0]
    assert graph.n_edges == 0


@given(st.lists(STEPS, min_size=1, max_size=6), st.lists(NODES, unique=True), st.booleans(), st.integers(0, 10_000))
def test_spread_is_the_product_with_the_adjacency(
    steps: list[tuple[str, list[Any]]], of: list[int], weighted: bool, seed: int
) -> None:
    """Gathered by node or in one pass over all edges, with an unsorted tail and with edges that are gone: the same sums."""
    graph = graph_of(N_NODES, [])
    for number, (step, what) in enumerate(steps):
        if step == "add":
            add(graph, what)
        else:
            (graph.clear_sources if step == "clear" else graph.drop_nodes)(nodes(*what))
        if (seed >> number) % 2:
            graph.sort()
    values = np.random.default_rng(seed).uniform(0.1, 1, len(of))
    sent = np.zeros(N_NODES)
    sent[of] = values
    adjacency = graph.to_csr().toarray()
    expected = (adjacency if weighted else adjacency > 0) @ sent

    for ratio in (0, 10**6):  # never in one pass; always, unless there is no edge
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memgas.graph, "_SCATTERED", ratio)
            sums = np.ones(N_NODES)
            arrived = graph.spread(nodes(*of), values, sums, weighted=weighted)
        assert sums == pytest.approx(1 + expected)
        assert set(arrived.tolist()) == set(np.flatnonzero(expected).tolist())
