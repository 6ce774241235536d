"""Personalized PageRank: by hand, against networkx, and the local push against the whole iteration."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memgas.errors import InvalidInputError, ShapeError
from memgas.graph import AssociationGraph
from memgas.pagerank import personalized_pagerank, push_pagerank
from memgas.paths import strongest_path

FloatArray = NDArray[np.float64]
DAMPINGS = st.sampled_from([0.0, 0.1, 0.5, 0.85, 0.99])


def random_graph(n_nodes: int, n_edges: int, seed: int) -> AssociationGraph:
    """A graph in which some nodes have no edges at all."""
    rng = np.random.default_rng(seed)
    graph = AssociationGraph()
    graph.add_nodes(n_nodes)
    source, target = rng.integers(0, max(1, n_nodes * 4 // 5), (2, n_edges))
    kept = source != target
    graph.add_edges(source[kept], target[kept], rng.uniform(0.05, 1, int(kept.sum())))
    return graph


def chain(*weights: float) -> AssociationGraph:
    graph = AssociationGraph()
    graph.add_nodes(len(weights) + 1)
    graph.add_edges(np.arange(1, len(weights) + 1), np.arange(len(weights)), np.array(weights))
    return graph


def networkx_pagerank(
    graph: AssociationGraph, personalization: FloatArray, damping: float, weighted: bool
) -> FloatArray:
    oracle = nx.from_scipy_sparse_array(graph.to_csr())
    start = dict(enumerate(personalization.tolist()))
    ranks = nx.pagerank(
        oracle, alpha=damping, personalization=start, dangling=start, tol=1e-13, max_iter=10_000,
        weight="weight" if weighted else None,
    )  # fmt: skip
    return np.array([ranks[node] for node in range(graph.n_nodes)])


def push(
    graph: AssociationGraph, seeds: list[int], start: list[float], *, damping: float, tolerance: float,
    weighted: bool = True,
) -> FloatArray:  # fmt: skip
    nodes, scores = push_pagerank(
        graph, np.array(seeds, np.intp), np.array(start), damping=damping, tolerance=tolerance, weighted=weighted
    )
    assert len(set(nodes.tolist())) == len(nodes)
    ranks = np.zeros(graph.n_nodes)
    ranks[nodes] = scores
    return ranks


def test_two_nodes_by_hand() -> None:
    """Seed and neighbour: x0 = (1 - d) + d x1 and x1 = d x0, so 1 / (1 + d) and d / (1 + d)."""
    graph = chain(0.3)

    full = personalized_pagerank(graph.to_csr(), np.array([1.0, 0.0]), damping=0.1, tolerance=1e-12)
    local = push(graph, [0], [1.0], damping=0.1, tolerance=1e-10)

    np.testing.assert_allclose(full, [1 / 1.1, 0.1 / 1.1], atol=1e-12)
    np.testing.assert_allclose(local, [1 / 1.1, 0.1 / 1.1], atol=1e-10)


def test_damping_is_the_chance_of_following_an_edge() -> None:
    """Damping `d` = chance of *following* an edge (0.1 in the published code: 90 % restart): at 0 only seeds have rank."""
    graph = chain(0.3, 0.3)
    start = np.array([0.75, 0.0, 0.25])

    still = personalized_pagerank(graph.to_csr(), start, damping=0.0, tolerance=1e-8)
    moving = personalized_pagerank(graph.to_csr(), start, damping=0.1, tolerance=1e-8)

    np.testing.assert_allclose(still, start)
    assert 0 < moving[1] <= 0.1


def test_edges_weigh_by_similarity() -> None:
    """From the middle of a chain mass goes out as 3 to 1 by weight, and evenly when weights do not count."""
    graph = chain(0.6, 0.2)

    weighted = push(graph, [1], [1.0], damping=0.1, tolerance=1e-12)
    plain = push(graph, [1], [1.0], damping=0.1, tolerance=1e-12, weighted=False)

    assert weighted[0] / weighted[2] == pytest.approx(3)
    assert plain[0] == pytest.approx(plain[2])


def test_isolated_seed_keeps_its_mass() -> None:
    """Dangling mass returns to the personalization vector: an isolated seed keeps all of it."""
    graph = AssociationGraph()
    graph.add_nodes(3)

    full = personalized_pagerank(graph.to_csr(), np.array([0.0, 2.0, 0.0]), damping=0.1, tolerance=1e-8)

    np.testing.assert_allclose(full, [0, 1, 0])
    np.testing.assert_allclose(push(graph, [1], [2.0], damping=0.1, tolerance=1e-9), [0, 1, 0], atol=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 60), DAMPINGS, st.booleans())
def test_pagerank_is_networkx(seed: int, n_nodes: int, damping: float, weighted: bool) -> None:
    """Oracle: `networkx.pagerank` with the same personalization and dangling, to 1e-8."""
    graph = random_graph(n_nodes, 2 * n_nodes, seed)
    start = np.random.default_rng(seed).random(n_nodes) * (np.arange(n_nodes) % 3 == 0)
    start[-1] = 0.5  # without edges
    adjacency = graph.to_csr()
    if not weighted:
        adjacency.data[:] = 1.0

    ranks = personalized_pagerank(adjacency, start, damping=damping, tolerance=1e-9)

    assert np.abs(ranks - networkx_pagerank(graph, start, damping, weighted)).sum() < 1e-8
    assert ranks.sum() == pytest.approx(1)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000), st.integers(2, 200), st.integers(0, 800), DAMPINGS,
    st.sampled_from([1e-2, 9e-5, 1e-8]), st.booleans(),
)  # fmt: skip
def test_push_is_within_its_tolerance(
    seed: int, n_nodes: int, n_edges: int, damping: float, tolerance: float, weighted: bool
) -> None:
    """The push is below the exact scores everywhere, and what is missing is the L1 error: at most the tolerance."""
    graph = random_graph(n_nodes, n_edges, seed)
    rng = np.random.default_rng(seed)
    seeds = rng.choice(n_nodes, min(n_nodes, 15), replace=False)
    start = rng.random(len(seeds)) + 0.01
    personalization = np.zeros(n_nodes)
    personalization[seeds] = start
    adjacency = graph.to_csr()
    if not weighted:
        adjacency.data[:] = 1.0
    exact = personalized_pagerank(adjacency, personalization, damping=damping, tolerance=1e-13)

    ranks = push(graph, seeds.tolist(), start.tolist(), damping=damping, tolerance=tolerance, weighted=weighted)

    error = np.abs(ranks - exact).sum()
    assert error <= tolerance + 1e-12
    assert error == pytest.approx(1 - ranks.sum(), abs=1e-11)
    assert (ranks <= exact + 1e-12).all()


def test_push_touches_only_what_it_reaches() -> None:
    """With 90 % restart the mass beyond four edges is below the tolerance: nothing further off is touched."""
    graph = chain(*[0.5] * 1_000)

    nodes, _ = push_pagerank(
        graph, np.array([500]), np.array([1.0]), damping=0.1, tolerance=1e-4, weighted=True
    )  # fmt: skip

    assert set(nodes.tolist()) <= set(range(496, 505))


@pytest.mark.parametrize("start", [[0.0, 0.0], [-1.0, 2.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_personalization_must_be_a_distribution(start: list[float]) -> None:
    """Zero, negative, or not a number: an error that says so, from both."""
    graph = chain(0.5)

    with pytest.raises(InvalidInputError, match="personalization"):
        personalized_pagerank(graph.to_csr(), np.array(start), damping=0.1, tolerance=1e-8)
    with pytest.raises(InvalidInputError, match="personalization"):
        push(graph, [0, 1], start, damping=0.1, tolerance=1e-8)
    with pytest.raises(ShapeError, match="personalization"):
        personalized_pagerank(graph.to_csr(), np.ones(3), damping=0.1, tolerance=1e-8)
    with pytest.raises(ShapeError, match="personalization"):
        push(graph, [0], [0.5, 0.5], damping=0.1, tolerance=1e-8)


def test_path_by_hand() -> None:
    """0 - 1 - 2 by strong edges and 0 - 2 by a weak one: the path from the seed is the one that carries more."""
    graph = AssociationGraph()
    graph.add_nodes(4)
    graph.add_edges(np.array([1, 2, 2]), np.array([0, 1, 0]), np.array([0.9, 0.9, 0.01]))
    ranks = push(graph, [0], [1.0], damping=0.9, tolerance=1e-9)

    nodes, weights = strongest_path(graph, ranks, np.array([0]), 2, damping=0.9, weighted=True)

    assert nodes.tolist() == [0, 1, 2]
    assert weights.tolist() == [0.9, 0.9]
    direct, _ = strongest_path(graph, ranks, np.array([0]), 2, damping=0.9, weighted=False)
    assert direct.tolist() == [0, 2]
    for alone in (0, 3):  # the seed itself; a node that was not reached
        nodes, weights = strongest_path(graph, ranks, np.array([0]), alone, damping=0.9, weighted=True)
        assert (nodes.tolist(), len(weights)) == ([alone], 0)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(3, 9), st.sampled_from([0.1, 0.5, 0.95]), st.booleans())
def test_path_is_the_strongest(seed: int, n_nodes: int, damping: float, weighted: bool) -> None:
    """Oracle: of all simple paths from any seed, none carries more than the one found."""
    graph = random_graph(n_nodes, 2 * n_nodes, seed)
    adjacency = graph.to_csr().toarray() if weighted else (graph.to_csr().toarray() > 0).astype(np.float64)
    seeds = [0, 1]
    ranks = push(graph, seeds, [0.7, 0.3], damping=damping, tolerance=1e-10, weighted=weighted)
    oracle = nx.from_numpy_array(adjacency)

    def carried(path: list[int]) -> float:
        follows = [damping * adjacency[u, v] / adjacency[u].sum() for u, v in pairwise(path)]
        return float(ranks[path[0]] * np.prod(follows))

    for target in range(2, n_nodes):
        nodes, weights = strongest_path(
            graph, ranks, np.array(seeds), target, damping=damping, weighted=weighted
        )  # fmt: skip
        paths = [path for start in seeds for path in nx.all_simple_paths(oracle, start, target)]
        if not paths:
            assert nodes.tolist() == [target]
            continue
        assert nodes[0] in seeds
        assert nodes[-1] == target
        assert carried(nodes.tolist()) == pytest.approx(max(map(carried, paths)))
        assert weights.tolist() == [graph.to_csr()[u, v] for u, v in pairwise(nodes.tolist())]
