"""Pictures of a memory: what they show is what is stored."""

import json
from pathlib import Path

import networkx
import numpy as np
import pytest

from memgas import InvalidInputError, MemGAS, NotFoundError, Turn
from memgas.pictures import (
    by_session,
    unit_fits,
    write_degrees,
    write_graph,
    write_router,
    write_similarities,
)
from memgas.testing import HashEmbedder
from memgas.types import GRANULARITIES

WORDS = "lena bees hive barn honey market halden bank slug bean tomato garden roof swarm trap queen smoke".split()  # noqa: SIM905
HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def memory() -> MemGAS:
    memory = MemGAS.in_memory(embedder=HashEmbedder(n_dims=48))
    rng = np.random.default_rng(1)
    for number in range(12):
        turns = [Turn("user", " ".join(rng.choice(WORDS, 6))) for _ in range(3)]
        memory.add(turns, namespace="u", session_id=HOSTILE if number == 3 else str(number))
    return memory


def test_a_fit_accepts_what_is_stored(memory: MemGAS) -> None:
    """Fitted again, each unit of the newest session accepts the associations it has in the store, and no other."""
    graph = memory.graph("u")
    own = {node: data for node, data in graph.nodes(data=True) if data["session_id"] == "11"}

    for fit in unit_fits(memory, "u"):
        (node,) = [
            n for n, d in own.items() if (d["granularity"], d["position"]) == (fit.granularity.value, fit.position)
        ]
        stored = sorted((data["similarity"] for data in graph[node].values()), reverse=True)
        assert len(stored) == fit.accepted
        assert list(fit.similarities[: fit.accepted]) == pytest.approx(stored, abs=1e-3)
        if fit.threshold is not None and fit.accepted:
            assert fit.threshold <= fit.similarities[fit.accepted - 1]
            assert fit.means[0] <= fit.threshold <= fit.means[1]


def test_a_graph_is_written_whole(memory: MemGAS, tmp_path: Path) -> None:
    """JSON and GraphML hold each unit and association once, and no memory text."""
    graph = memory.graph("u")
    write_graph(memory, "u", tmp_path / "g.json")
    write_graph(memory, "u", tmp_path / "g.graphml")

    data = json.loads((tmp_path / "g.json").read_text("utf-8"))
    assert {node["id"] for node in data["nodes"]} == set(graph)
    assert {frozenset((e["source"], e["target"])) for e in data["edges"]} == {frozenset(e) for e in graph.edges}
    read = networkx.read_graphml(tmp_path / "g.graphml")
    assert dict(read.nodes(data=True)) == dict(graph.nodes(data=True))
    assert {(*sorted(e[:2]), e[2]) for e in read.edges(data="similarity")} == {
        (*sorted(e[:2]), e[2]) for e in graph.edges(data="similarity")
    }
    assert "honey" not in (tmp_path / "g.json").read_text("utf-8")


def test_sessions_merge_their_units(memory: MemGAS) -> None:
    """By session: a node a session; an edge holds the number of associations and the largest similarity."""
    graph = memory.graph("u")
    merged = by_session(graph)

    assert len(merged) == 12
    assert sum(data["n"] for *_, data in merged.edges(data=True)) == graph.number_of_edges()
    assert max(data["similarity"] for *_, data in merged.edges(data=True)) == max(
        data["similarity"] for *_, data in graph.edges(data=True)
    )


@pytest.mark.parametrize("by", ["unit", "session"])
def test_a_page_needs_nothing_else_and_takes_no_orders(memory: MemGAS, tmp_path: Path, by: str) -> None:
    """The page loads nothing, holds its data as JSON, and a session id cannot end the script it stands in."""
    write_graph(memory, "u", tmp_path / "g.html", by="unit" if by == "unit" else "session")

    page = (tmp_path / "g.html").read_text("utf-8")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert HOSTILE in {node["data"]["label"] for node in data["nodes"]}
    assert "alert(1)</script>" not in page
    assert "src=" not in page.replace("src=e", "")
    assert "default-src 'none'" in page


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.html", "a.json"])
def test_every_chart_in_every_format(memory: MemGAS, tmp_path: Path, name: str) -> None:
    """Degrees, similarities and router weights are written in each format; what an SVG shows is text."""
    pytest.importorskip("matplotlib", reason="the extra `pictures` is not installed")
    out = tmp_path / name
    write_degrees(memory, "u", out)
    degrees = out.read_bytes()
    write_similarities(memory, "u", out, session_id="9")
    similarities = out.read_bytes()
    write_router(memory, "u", ["bees $x_{", "honey"], out)

    assert len({degrees, similarities, out.read_bytes()}) == 3
    if name == "a.json":
        weights = json.loads(out.read_text("utf-8"))["weights"]["honey"]
        routes = memory.retrieve("honey", namespace="u").trace.routes
        assert weights == {route.granularity.value: pytest.approx(route.weight) for route in routes}
        assert set(json.loads(degrees)["degrees"]) == {g.value for g in GRANULARITIES}
    elif name != "a.png":
        assert "bees $x_{" in out.read_text("utf-8")


def test_a_drawn_graph_is_a_picture(memory: MemGAS, tmp_path: Path) -> None:
    """A PNG is one."""
    pytest.importorskip("matplotlib", reason="the extra `pictures` is not installed")
    write_graph(memory, "u", tmp_path / "g.png")

    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_refused(memory: MemGAS, tmp_path: Path) -> None:
    """Another ending, an empty namespace, no query, an unknown session, the very first session."""
    with pytest.raises(InvalidInputError, match=r"\.graphml"):
        write_graph(memory, "u", tmp_path / "g.gif")
    with pytest.raises(NotFoundError):
        write_graph(memory, "nobody", tmp_path / "g.json")
    with pytest.raises(InvalidInputError, match="at least one"):
        write_router(memory, "u", [], tmp_path / "r.json")
    with pytest.raises(NotFoundError):
        unit_fits(memory, "u", "nobody")
    with pytest.raises(NotFoundError, match="nothing older"):
        write_similarities(memory, "u", tmp_path / "s.json", session_id="0")
