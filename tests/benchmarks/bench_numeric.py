"""The numeric steps against what they replace, side by side. Ratios are printed; only results are asserted."""

from __future__ import annotations

from time import process_time

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture

from memgas.association import accept_mask, associate, fit_mixtures
from memgas.graph import AssociationGraph
from memgas.pagerank import personalized_pagerank, push_pagerank
from tests.benchmarks.timing import Table, ms, side_by_side

pytestmark = pytest.mark.benchmark

N_NODES = 100_000


def community_edges() -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """About a million edges as association makes them: to older units, most of them of the same matter (500 matters)."""
    rng = np.random.default_rng(0)
    source = np.repeat(np.arange(1, N_NODES), 13)
    related = source - 500 * rng.integers(1, 40, len(source))
    target = np.where(rng.random(len(source)) < 0.85, related, rng.integers(0, N_NODES, len(source)))
    kept = (target >= 0) & (target < source)
    return source[kept], target[kept], rng.uniform(0.3, 0.9, int(kept.sum()))


def test_mixtures(table: Table) -> None:
    """Our mixtures against one scikit-learn fit a row: faster, at equal or better likelihood, same accept sets."""
    cosines = np.random.default_rng(0).normal(0.3, 0.08, (240, 5_000))
    values = np.round(np.sort(cosines, axis=1)[:, :-31:-1], 6)

    def theirs() -> list[GaussianMixture]:
        return [GaussianMixture(2, random_state=0).fit(row[:, np.newaxis]) for row in values[:12]]

    for n_rows in (12, 240):
        rows = values[:n_rows]
        times = side_by_side(lambda rows=rows: fit_mixtures(rows), theirs, repeats=9)  # type: ignore[misc]
        ours, one_fit = times.cpu[0] / n_rows, times.cpu[1] / 12
        table.add("mixtures, times faster", f"{n_rows} rows of 30 values, a row", one_fit / ours, 50,
                  f"{ms(ours)}, scikit-learn {ms(one_fit)}", at_least=True)  # fmt: skip
    _like_theirs(values, table)


def _like_theirs(values: NDArray[np.float64], table: Table) -> None:
    """Compare likelihood and accept sets with fits of scikit-learn that are let run to the end.

    A component that sits on one value has no bound to its likelihood but the least variance that is allowed: rows that
    scikit-learn fits so are no measure, and are counted.
    """
    mixture = fit_mixtures(values)
    accepted = accept_mask(values, n_components=2, accept="predict", max_associations=None)
    better, fair, both, same = 0, 0, 0, 0
    for row, own_likelihood, own in zip(values, mixture.log_likelihood, accepted, strict=True):
        column = row[:, np.newaxis]
        model = GaussianMixture(2, random_state=0, tol=1e-10, max_iter=20_000, reg_covar=1e-12).fit(column)
        if model.weights_.min() * len(row) < 1.5:
            continue
        fair += 1
        better += own_likelihood >= model.score(column) - 1e-6
        if abs(own_likelihood - model.score(column)) < 1e-6:
            both += 1
            same += np.array_equal(model.predict(column) == np.argmax(model.means_[:, 0]), own)
    table.add("mixtures, likelihood", f"share of {fair} rows as likely or likelier", better / fair, 1.0,
              f"{better} of {fair}; {len(values) - fair} more where scikit-learn's has a component on one value",
              at_least=True)  # fmt: skip
    table.add("mixtures, accept sets", "share that is equal where both converge", same / both, 1.0,
              f"{same} of {both}", at_least=True)  # fmt: skip


@pytest.mark.parametrize("n_old", [10_000, 100_000])
def test_associate(n_old: int, table: Table) -> None:
    """Associating a 12-unit session against the similarity product alone."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(n_old + 12, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    old, new = vectors[:n_old], vectors[n_old:]
    mask, age = np.ones(n_old, np.bool_), np.arange(n_old)

    times = side_by_side(
        lambda: associate(
            new, old, mask, age, n_candidates=30, n_components=2, accept="threshold", max_associations=10
        ),
        lambda: new @ old.T,
        repeats=15,
    )

    table.add("association, of the product alone", f"a session of 12 units, {n_old:,} units",
              times.cpu[0] / times.cpu[1], 2.0, f"{ms(times.cpu[0])}, product {ms(times.cpu[1])}")  # fmt: skip


def test_pagerank(table: Table) -> None:
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

    began = process_time()
    theirs = nx.pagerank(oracle, alpha=0.1, personalization=by_node, dangling=by_node, tol=1e-13)
    their_time = process_time() - began
    times = side_by_side(
        lambda: push_pagerank(graph, seeds, start, damping=0.1, tolerance=1e-4, weighted=True),
        lambda: personalized_pagerank(adjacency, personalization, damping=0.1, tolerance=1e-8),
        repeats=15,
    )
    local, full = times.cpu

    edges = f"{graph.n_edges:,} edges"
    table.add("PageRank, times faster", f"{edges}, than networkx", their_time / local, 100,
              f"{ms(local)}, networkx {ms(their_time)}", at_least=True)  # fmt: skip
    table.add("PageRank, times faster", f"{edges}, than our full iteration", full / local, 3,
              f"{ms(local)}, full {ms(full)}", at_least=True)  # fmt: skip
    exact = personalized_pagerank(adjacency, personalization, damping=0.1, tolerance=1e-8)
    ranks = np.zeros(N_NODES)
    nodes, scores = push_pagerank(graph, seeds, start, damping=0.1, tolerance=1e-4, weighted=True)
    ranks[nodes] = scores
    error = float(np.abs(ranks - exact).sum())
    table.add("PageRank, L1 error", edges, error, 1e-4, f"{error:.1e}")
    assert np.abs(exact - np.array([theirs[node] for node in range(N_NODES)])).sum() < 1e-8
    assert error < 1e-4
    assert set(np.argsort(-ranks)[:50]) == set(np.argsort(-exact)[:50])


def test_growing_the_graph(table: Table) -> None:
    """Ten edges added to a graph of a million, against sorting all of it anew."""
    source, target, weight = community_edges()
    graph = AssociationGraph()
    graph.add_nodes(N_NODES)
    graph.add_edges(source, target, weight)
    new, old = np.full(10, N_NODES - 1), np.arange(10)

    def add_and_clear() -> None:
        graph.add_edges(new, old, np.full(10, 0.5))
        graph.clear_sources(new[:1])

    added = side_by_side(add_and_clear, lambda: None, repeats=50).cpu[0]
    sorting = side_by_side(graph.sort, lambda: None, repeats=3).cpu[0]
    table.add("graph, growth by ten edges", f"{graph.n_edges:,} edges, of sorting", added / sorting, 0.1,
              f"{ms(added)}, sorting {ms(sorting)}")  # fmt: skip
