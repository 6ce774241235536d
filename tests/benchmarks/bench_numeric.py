"""The numeric steps against what they replace, side by side in one run. Ratios are printed; only results are asserted."""

from collections.abc import Callable
from time import perf_counter

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture

from memgas.association import associate, fit_mixtures
from memgas.graph import AssociationGraph
from memgas.pagerank import personalized_pagerank, push_pagerank

pytestmark = pytest.mark.benchmark

N_NODES = 100_000


def seconds(work: Callable[[], object], *, repeats: int) -> float:
    """Median duration."""
    work()
    durations = []
    for _ in range(repeats):
        began = perf_counter()
        work()
        durations.append(perf_counter() - began)
    return float(np.median(durations))


def report(what: str, ours: float, theirs: float) -> None:
    print(f"\n{what}: {theirs / ours:.1f}x ({ours * 1e3:.3f} ms against {theirs * 1e3:.3f} ms)")  # noqa: T201


def community_edges() -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """About a million edges as association makes them: to older units, most of them of the same matter (500 matters)."""
    rng = np.random.default_rng(0)
    source = np.repeat(np.arange(1, N_NODES), 13)
    related = source - 500 * rng.integers(1, 40, len(source))
    target = np.where(rng.random(len(source)) < 0.85, related, rng.integers(0, N_NODES, len(source)))
    kept = (target >= 0) & (target < source)
    return source[kept], target[kept], rng.uniform(0.3, 0.9, int(kept.sum()))


def test_mixtures() -> None:
    """Our mixtures against one scikit-learn fit a row, for a 12-unit session and in bulk."""
    cosines = np.random.default_rng(0).normal(0.3, 0.08, (240, 5_000))
    values = np.round(np.sort(cosines, axis=1)[:, :-31:-1], 6)

    for n_rows in (12, 240):
        rows = values[:n_rows]
        ours = seconds(lambda rows=rows: fit_mixtures(rows), repeats=9) / n_rows  # type: ignore[misc]
        theirs = seconds(
            lambda: [GaussianMixture(2, random_state=0).fit(row[:, np.newaxis]) for row in values[:12]], repeats=3
        )
        report(f"mixtures, {n_rows} rows, a row", ours, theirs / 12)


@pytest.mark.parametrize("n_old", [10_000, 100_000])
def test_associate(n_old: int) -> None:
    """Associating a 12-unit session against the similarity product alone."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(n_old + 12, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    old, new = vectors[:n_old], vectors[n_old:]
    mask, age = np.ones(n_old, np.bool_), np.arange(n_old)

    product = seconds(lambda: new @ old.T, repeats=9)
    whole = seconds(
        lambda: associate(new, old, mask, age, n_candidates=30, n_components=2, accept="threshold",
                          max_associations=10), repeats=9)  # fmt: skip
    report(f"similarity product, {n_old} units, of associating", whole, product)


def test_pagerank() -> None:
    """PageRank against networkx, and the push against our own full iteration, on about a million edges."""
    source, target, weight = community_edges()
    graph = AssociationGraph()
    graph.add_nodes(N_NODES)
    graph.add_edges(source, target, weight)
    adjacency = graph.to_csr()
    seeds = 500 * np.arange(15) + 40_003
    start = np.linspace(1, 0.2, 15)
    personalization = np.zeros(N_NODES)
    personalization[seeds] = start
    by_node = {int(seed): float(value) for seed, value in zip(seeds, start, strict=True)}
    oracle = nx.from_scipy_sparse_array(adjacency)

    began = perf_counter()
    theirs = nx.pagerank(oracle, alpha=0.1, personalization=by_node, dangling=by_node, tol=1e-13)
    their_time = perf_counter() - began
    full = seconds(
        lambda: personalized_pagerank(adjacency, personalization, damping=0.1, tolerance=1e-8), repeats=5
    )  # fmt: skip
    local = seconds(
        lambda: push_pagerank(graph, seeds, start, damping=0.1, tolerance=9e-5, weighted=True), repeats=9
    )  # fmt: skip
    report(f"full iteration, {graph.n_edges} edges, against networkx", full, their_time)
    report("push, against networkx", local, their_time)
    report("push, against the full iteration", local, full)

    exact = personalized_pagerank(adjacency, personalization, damping=0.1, tolerance=1e-8)
    ranks = np.zeros(N_NODES)
    nodes, scores = push_pagerank(graph, seeds, start, damping=0.1, tolerance=9e-5, weighted=True)
    ranks[nodes] = scores
    assert np.abs(exact - np.array([theirs[node] for node in range(N_NODES)])).sum() < 1e-8
    assert np.abs(ranks - exact).sum() < 1e-4
    assert set(np.argsort(-ranks)[:50]) == set(np.argsort(-exact)[:50])


def test_growing_the_graph() -> None:
    """Ten edges added to a graph of a million, against sorting all of it anew."""
    source, target, weight = community_edges()
    graph = AssociationGraph()
    graph.add_nodes(N_NODES)
    graph.add_edges(source, target, weight)
    new, old = np.full(10, N_NODES - 1), np.arange(10)

    def add_and_clear() -> None:
        graph.add_edges(new, old, np.full(10, 0.5))
        graph.clear_sources(new[:1])

    report("adding 10 edges and taking them back, against sorting", seconds(add_and_clear, repeats=99),
           seconds(graph.sort, repeats=3))  # fmt: skip
