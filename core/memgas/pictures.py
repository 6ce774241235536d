"""Pictures of a memory: its association graph, degrees, similarities with the fitted mixture, router weights.

A picture is written by its file's ending. A page (`html`) needs no network and no other file; `png` and `svg` need matplotlib.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from memgas.association import accept_mask, decision_threshold, fit_mixtures, rank_candidates
from memgas.errors import InvalidInputError, NotFoundError
from memgas.extras import require_extra
from memgas.types import GRANULARITIES, JSON, Granularity

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from memgas.memory import MemGAS

By = Literal["unit", "session"]

MAX_NODES = 800
"""Most nodes of a drawn graph: above that, sessions are drawn in place of units."""
COLOURS = {"session": "#3b6fb6", "turn": "#2f8f6b", "summary": "#b5651d", "keyword": "#8a5bb5"}
_CHINESE_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "WenQuanYi Zen Hei",
)  # fmt: skip
_PAGE_ENDINGS = (".html", ".png", ".svg", ".json")


@dataclass(frozen=True, slots=True)
class UnitFit:
    """What the mixture saw when one unit was associated.

    Attributes
    ----------
    similarities
        To the most similar older units, largest first.
    accepted
        How many of them are associated: the first ones.
    means, deviations, weights
        Of the two components; empty where nothing could be fitted.
    threshold
        From which similarity on is accepted; None where nothing could be fitted.
    """

    granularity: Granularity
    position: int
    similarities: tuple[float, ...]
    accepted: int
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    weights: tuple[float, ...]
    threshold: float | None


def write_graph(memory: MemGAS, namespace: str, out: str | Path, *, by: By | None = None) -> None:
    """Draw the association graph of a namespace.

    Parameters
    ----------
    out
        `*.html`, `*.png`, `*.svg`, `*.graphml` or `*.json`.
    by
        A node a unit or a session. None: units, unless a drawing would have more than 800.

    Raises
    ------
    InvalidInputError
        The file has another ending.
    NotFoundError
        The namespace holds nothing.
    MissingExtraError
        `png` and `svg` need matplotlib.
    """
    ending = _ending(out, (*_PAGE_ENDINGS, ".graphml"))
    graph = memory.graph(namespace)
    if not graph:
        raise NotFoundError(f"there is nothing in namespace {namespace!r} to draw")
    is_drawn = ending not in (".json", ".graphml")
    if by == "session" or (by is None and is_drawn and len(graph) > MAX_NODES):
        graph = by_session(graph)
    if ending == ".graphml":
        import networkx

        networkx.write_graphml(graph, out)
    elif ending == ".json":
        Path(out).write_text(json.dumps(graph_data(graph), ensure_ascii=False), "utf-8")
    elif ending == ".html":
        Path(out).write_text(_graph_page(graph, namespace), "utf-8")
    else:
        _save(_drawn_graph(graph, namespace), out, ending[1:])


def by_session(graph: nx.Graph[str]) -> nx.Graph[str]:
    """Merge a graph's units into their sessions: edges with the number of associations, and the largest similarity."""
    import networkx

    merged: nx.Graph[str] = networkx.Graph()
    for _, data in graph.nodes(data=True):
        merged.add_node(data["session_id"], session_id=data["session_id"], granularity="session", position=0)
    for source, target, data in graph.edges(data=True):
        ends = graph.nodes[source]["session_id"], graph.nodes[target]["session_id"]
        known = merged.get_edge_data(*ends, default={"n": 0, "similarity": -1.0})
        merged.add_edge(*ends, n=known["n"] + 1, similarity=max(known["similarity"], data["similarity"]))
    return merged


def graph_data(graph: nx.Graph[str]) -> dict[str, JSON]:
    """Return a graph as `{"nodes": [{"id", ...}], "edges": [{"source", "target", ...}]}`. No memory text."""
    return {
        "nodes": [{"id": node, **data} for node, data in graph.nodes(data=True)],
        "edges": [{"source": a, "target": b, **data} for a, b, data in graph.edges(data=True)],
    }


def unit_fits(memory: MemGAS, namespace: str, session_id: str | None = None) -> list[UnitFit]:
    """Fit the mixtures of a session's units again, to the units that were there before it.

    Parameters
    ----------
    session_id
        None: the newest.

    Raises
    ------
    NotFoundError
        There is no such session.
    """
    config = memory.config
    with memory._workspace.reading(namespace) as index:
        states = index.visible_sessions()
        state = index.visible(session_id) if session_id is not None else (states[-1] if states else None)
        if state is None:
            raise NotFoundError(f"there is no session {session_id or ''!r} in namespace {namespace!r}")
        older = np.flatnonzero(index.candidates_for(state.record) & (index.age >> 34 < state.record.sequence))
        older = older[np.argsort(index.age[older], kind="stable")]
        nodes = [(g, position, node) for g in GRANULARITIES for position, node in sorted(state.nodes[g].items())]
        vectors = index.vectors[[node for _, _, node in nodes]].astype(np.float64)
        _, ranked = rank_candidates(vectors @ index.vectors[older].astype(np.float64).T)
    ranked = ranked[:, : config.n_candidates]
    accepted = accept_mask(
        ranked, n_components=config.n_components, accept=config.accept, max_associations=config.max_associations
    ).sum(axis=1)
    mixture = fit_mixtures(ranked)
    thresholds = decision_threshold(mixture)
    deviations = np.sqrt(mixture.variances)
    found = []
    for row, (granularity, position, _) in enumerate(nodes):
        parts = [
            tuple(v[row].tolist()) if mixture.is_fitted[row] else ()
            for v in (mixture.means, deviations, mixture.weights)
        ]
        threshold = float(thresholds[row]) if mixture.is_fitted[row] and config.accept != "all" else None
        found.append(UnitFit(
            granularity, position, tuple(ranked[row].tolist()), int(accepted[row]), parts[0], parts[1], parts[2], threshold
        ))  # fmt: skip
    return found


def write_degrees(memory: MemGAS, namespace: str, out: str | Path) -> None:
    """Draw how many associations the units have, by granularity; raises as `write_graph`."""
    graph = memory.graph(namespace)
    degrees = {
        g.value: sorted(n for node, n in graph.degree() if graph.nodes[node]["granularity"] == g.value)
        for g in GRANULARITIES
    }

    def draw(axes: Sequence[Axes]) -> None:
        largest = max((values[-1] for values in degrees.values() if values), default=0)
        axes[0].hist(
            [*degrees.values()], bins=[n - 0.5 for n in range(largest + 2)], stacked=True, label=[*degrees],
            color=[COLOURS[name] for name in degrees],
        )  # fmt: skip
        axes[0].set_title(f"{namespace}: associations of a unit", parse_math=False)
        axes[0].set(xlabel="associations", ylabel="units")
        axes[0].legend()

    _write_chart(out, {"degrees": degrees}, draw, n_axes=1, title="Associations of a unit")


def write_similarities(memory: MemGAS, namespace: str, out: str | Path, *, session_id: str | None = None) -> None:
    """Draw the similarities that a session's units were associated by, and the mixtures; raises as `write_graph`."""
    fits = [fit for fit in unit_fits(memory, namespace, session_id) if fit.similarities]
    if not fits:
        raise NotFoundError("there was nothing older to associate this session with; name another one")
    shown = fits[:6]

    def draw(axes: Sequence[Axes]) -> None:
        for ax, fit in zip(axes, shown, strict=True):
            _draw_fit(ax, fit)

    data: list[JSON] = [
        {
            "granularity": fit.granularity.value, "position": fit.position, "similarities": list(fit.similarities),
            "accepted": fit.accepted, "means": list(fit.means), "deviations": list(fit.deviations),
            "weights": list(fit.weights), "threshold": fit.threshold,
        }
        for fit in fits
    ]  # fmt: skip
    _write_chart(out, {"units": data}, draw, n_axes=len(shown), title="Similarities and their mixtures")


def write_router(memory: MemGAS, namespace: str, queries: Sequence[str], out: str | Path) -> None:
    """Draw what the router weighs the granularities with, for each query; raises as `write_graph`."""
    if not queries:
        raise InvalidInputError("the router's weights are for queries; give at least one")
    routes = {q: memory.retrieve(q, namespace=namespace, top_k=1).trace.routes for q in queries}
    weights = {q: {route.granularity.value: route.weight for route in of_query} for q, of_query in routes.items()}

    def draw(axes: Sequence[Axes]) -> None:
        rows, left = np.arange(len(weights)), np.zeros(len(weights))
        for name, colour in COLOURS.items():
            widths = np.array([of_query.get(name, 0.0) for of_query in weights.values()])
            axes[0].barh(rows, widths, left=left, color=colour, label=name)
            left += widths
        axes[0].set_yticks(rows, [q if len(q) < 40 else f"{q[:39]}…" for q in weights], parse_math=False)
        axes[0].invert_yaxis()
        axes[0].set_title(f"{namespace}: router weights", parse_math=False)
        axes[0].set_xlim(0, 1)
        axes[0].legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.1))

    _write_chart(out, {"weights": weights}, draw, n_axes=1, title="Router weights")


def _draw_fit(ax: Axes, fit: UnitFit) -> None:
    values = np.array(fit.similarities)
    _, edges, _ = ax.hist(
        [values[: fit.accepted], values[fit.accepted :]], bins=12, stacked=True, color=["#2f8f6b", "#b9c0c9"],
        label=["associated", "not"],
    )  # fmt: skip
    at = np.linspace(edges[0], edges[-1], 200)
    scale = len(values) * (edges[1] - edges[0])
    for mean, deviation, weight in zip(fit.means, fit.deviations, fit.weights, strict=True):
        bell = np.exp(-0.5 * ((at - mean) / deviation) ** 2) / (deviation * np.sqrt(2 * np.pi))
        ax.plot(at, scale * weight * bell, color="#b5651d")
    if fit.threshold is not None:
        ax.axvline(fit.threshold, color="#333", linestyle="--", label="threshold")
    ax.set(title=f"{fit.granularity.value} {fit.position}", xlabel="cosine")
    ax.set_ylim(top=1.6 * max(1, np.histogram(values, edges)[0].max()))
    ax.legend(fontsize="small")


def _write_chart(
    out: str | Path, data: Mapping[str, JSON], draw: Callable[[Sequence[Axes]], None], *, n_axes: int, title: str
) -> None:
    ending = _ending(out, _PAGE_ENDINGS)
    if ending == ".json":
        Path(out).write_text(json.dumps(data, ensure_ascii=False), "utf-8")
        return
    figure = _figure(n_axes)
    draw(figure.axes)
    if ending == ".html":
        svg = StringIO()
        _save(figure, svg, "svg")
        Path(out).write_text(
            _template("chart.html", {"TITLE": title, "SVG": svg.getvalue().partition("<svg")[2]}), "utf-8"
        )
    else:
        _save(figure, out, ending[1:])


def _figure(n_axes: int) -> Figure:
    require_extra("matplotlib", extra="pictures", purpose="a drawing")
    from matplotlib.figure import Figure

    columns = min(n_axes, 3)
    rows = -(-n_axes // columns)
    figure = Figure(figsize=(max(7, 4 * columns), 4 * rows), layout="constrained")
    for number in range(n_axes):
        figure.add_subplot(rows, columns, number + 1)
    return figure


def _save(figure: Figure, out: str | Path | StringIO, format: str) -> None:
    """Write a figure; Chinese in a font that has it, where there is one; the text of an SVG stays text."""
    import matplotlib
    from matplotlib.font_manager import fontManager
    from matplotlib.text import Text

    installed = {font.name for font in fontManager.ttflist}
    families = ["DejaVu Sans", *(name for name in _CHINESE_FONTS if name in installed)]
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_fontfamily(families)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(out, format=format, dpi=150)


def _positions(graph: nx.Graph[str]) -> dict[str, tuple[float, float]]:
    """Lay a graph out, the same way each time."""
    import networkx

    layout = networkx.spring_layout(graph, weight="similarity", seed=0, iterations=60, k=2 / np.sqrt(len(graph)))
    return {node: (float(x), float(y)) for node, (x, y) in layout.items()}


def _drawn_graph(graph: nx.Graph[str], namespace: str) -> Figure:
    import networkx

    figure = _figure(1)
    figure.set_size_inches(10, 8)
    ax, places = figure.axes[0], _positions(graph)
    strength = [data["similarity"] for _, _, data in graph.edges(data=True)]
    networkx.draw_networkx_edges(
        graph, places, ax=ax, width=[0.3 + max(0.0, s) for s in strength], edge_color="#c3c9d1"
    )
    for name, colour in COLOURS.items():
        nodes = [node for node, data in graph.nodes(data=True) if data["granularity"] == name]
        if nodes:
            networkx.draw_networkx_nodes(
                graph, places, nodelist=nodes, node_size=28, node_color=colour, ax=ax, label=name
            )
    ax.set_title(f"{namespace}: {len(graph)} nodes, {graph.number_of_edges()} associations", parse_math=False)
    ax.legend()
    ax.axis("off")
    return figure


def _graph_page(graph: nx.Graph[str], namespace: str) -> str:
    places = _positions(graph)
    elements = [
        {
            "data": {
                "id": node, "label": data["session_id"], "colour": COLOURS[data["granularity"]],
                "about": f"{data['session_id']} / {data['granularity']} {data['position']}",
            },
            "position": {"x": 1000 * places[node][0], "y": 1000 * places[node][1]},
        }
        for node, data in graph.nodes(data=True)
    ]  # fmt: skip
    edges = [
        {"data": {"source": a, "target": b, "similarity": data["similarity"]}} for a, b, data in graph.edges(data=True)
    ]
    told = {"namespace": namespace, "nodes": elements, "edges": edges}
    data = json.dumps(told, ensure_ascii=False).replace("<", "\\u003c")
    return _template("graph.html", {"CYTOSCAPE": _asset("cytoscape.min.js"), "DATA": data})


def _template(name: str, values: Mapping[str, str]) -> str:
    """Fill a page's places, each a comment of its name."""
    page = _asset(name)
    for key, value in values.items():
        before, _, after = page.partition(f"/*{key}*/")
        page = before + value + after
    return page


def _asset(name: str) -> str:
    return (files("memgas") / "explore" / "assets" / name).read_text("utf-8")


def _ending(out: str | Path, endings: Sequence[str]) -> str:
    ending = Path(out).suffix.casefold()
    if ending not in endings:
        raise InvalidInputError(f"a picture's file ends with {', '.join(endings)}; got {str(out)!r}")
    return ending
