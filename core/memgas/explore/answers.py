"""What the page asks for, as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memgas.explaining import path_line, plain
from memgas.lexical import CJK, tokenize, word_pattern
from memgas.types import GRANULARITIES, JSON, Evidence, Hit

if TYPE_CHECKING:
    from memgas.index import NamespaceIndex
    from memgas.memory import MemGAS
    from memgas.retrieval import Retrieval

MAX_NODES = 90
MAX_SESSIONS = 60
_NEIGHBOURS = 4
_GRAM = re.compile(f"[{CJK}]")


def sessions(memory: MemGAS, namespace: str) -> list[JSON]:
    """Return the sessions of a namespace, oldest first."""
    records = sorted(
        memory.list_sessions(namespace=namespace, kind=None), key=lambda record: (record.happened_at, record.sequence)
    )
    return [
        {
            "id": record.session_id, "at": record.happened_at.isoformat(), "n_turns": record.n_turns,
            "pending": record.is_pending, "open": record.is_open, "kind": record.kind,
        }
        for record in records
    ]  # fmt: skip


def session(memory: MemGAS, namespace: str, session_id: str) -> JSON:
    """Return one session with its words."""
    found = memory.get(session_id, namespace=namespace)
    digest = found.digest
    return {
        "id": found.session_id, "at": found.happened_at.isoformat(), "pending": found.is_pending, "open": found.is_open,
        "metadata": found.metadata, "summary": digest.summary if digest else "",
        "keywords": list(digest.keywords) if digest else [],
        "turns": [{"speaker": turn.speaker, "text": turn.text} for turn in found.turns],
    }  # fmt: skip


def search(memory: MemGAS, namespace: str, query: str, top_k: int) -> JSON:
    """Return the hits of a query with their evidence marked, what was decided, and the part of the graph it is about."""
    found = memory.retrieve(query, namespace=namespace, top_k=top_k)
    terms = set(tokenize(query))
    paths = {path.session_id: path for path in found.trace.paths}
    reasons = {reason.session_id: reason for reason in found.trace.reasons}
    hits: list[JSON] = [
        {
            **_hit(hit, terms),
            "path": [step.unit_id for step in paths[hit.session_id].steps],
            "path_text": path_line(paths[hit.session_id]),
            "reason": plain(reasons[hit.session_id]),
        }
        for hit in found.hits
    ]
    trace = found.trace
    return {
        "query": query, "hits": hits, "routes": plain(trace.routes), "seconds": plain(trace.seconds),
        "degraded": list(trace.degraded), "n_sessions": trace.n_sessions, "graph": neighbourhood(memory, namespace, found),
    }  # fmt: skip


def marked(text: str, terms: set[str]) -> list[JSON]:
    """Cut a text into `[piece, whether it holds a word of the query]`."""
    cuts, end = list[JSON](), 0
    for start, stop in _merged(_marks(text, terms)):
        if start > end:
            cuts.append([text[end:start], False])
        cuts.append([text[start:stop], True])
        end = stop
    return [*cuts, [text[end:], False]] if end < len(text) else cuts


def _marks(text: str, terms: set[str]) -> Iterator[tuple[int, int]]:
    for match in word_pattern().finditer(text):
        word = match.group()
        if _GRAM.search(word):
            for at in range(len(word)):
                pair = word[at : at + 2]
                if len(pair) == 2 and pair in terms:
                    yield match.start() + at, match.start() + at + 2
        elif terms.intersection(tokenize(word)):
            yield match.span()


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    last: tuple[int, int] | None = None
    for span in sorted(spans):
        if last is not None and span[0] <= last[1]:
            last = last[0], max(last[1], span[1])
        else:
            if last is not None:
                yield last
            last = span
    if last is not None:
        yield last


def _hit(hit: Hit, terms: set[str]) -> dict[str, JSON]:
    return {
        "id": hit.session_id, "at": hit.happened_at.isoformat(), "score": hit.score, "rank_score": hit.rank_score,
        "parts": dict(hit.parts), "summary": marked(hit.summary, terms), "same_matter": list(hit.same_matter),
        "evidence": [_evidence(piece, terms) for piece in hit.evidence],
    }  # fmt: skip


def _evidence(piece: Evidence, terms: set[str]) -> JSON:
    return {
        "position": piece.position, "speaker": piece.turn.speaker, "is_best": piece.similarity is not None,
        "text": marked(piece.turn.text, terms),
    }  # fmt: skip


def neighbourhood(memory: MemGAS, namespace: str, found: Retrieval) -> JSON:
    """Return the part of the graph that a retrieval is about: seeds, the hits' best units, paths, strong neighbours."""
    trace = found.trace
    wanted = {step.unit_id for path in trace.paths for step in path.steps}
    wanted |= {share.unit.unit_id for reason in trace.reasons for share in reason.shares}
    seeds = {seed.unit_id for seed in trace.seeds}
    with memory._workspace.reading(namespace) as index:
        known = {index.unit_id(node): node for node in map(int, np.flatnonzero(index.alive))}
        nodes = [known[uid] for uid in dict.fromkeys([*wanted, *seeds]) if uid in known]
        kept = _with_neighbours(index, nodes)
        source, target, weight = _edges_among(index, kept)
        told: list[JSON] = [
            {
                "id": index.unit_id(node), "session": state.record.session_id, "position": index.position(node),
                "granularity": GRANULARITIES[index.granularity.item(node)].value, "seed": index.unit_id(node) in seeds,
            }
            for node in kept.tolist()
            if (state := index.state(index.session.item(node))) is not None
        ]  # fmt: skip
        edges: list[JSON] = [
            {"source": index.unit_id(a), "target": index.unit_id(b), "similarity": round(w, 3)}
            for a, b, w in zip(source.tolist(), target.tolist(), weight.tolist(), strict=True)
        ]
    return {"nodes": placed(told, edges), "edges": edges, "by": "unit"}


def overview(memory: MemGAS, namespace: str) -> JSON:
    """Return the sessions with the most associations, and how many there are between each two."""
    with memory._workspace.reading(namespace) as index:
        if not index.n_nodes:
            return {"nodes": [], "edges": [], "by": "session"}
        edges = index.graph.to_csr().tocoo()
        a, b = index.session[edges.row], index.session[edges.col]
        n_of = np.bincount(a, minlength=index.n_slots)
        is_visible = np.zeros(index.n_slots, bool)
        is_visible[[state.slot for state in index.visible_sessions()]] = True
        chosen = np.argsort(-np.where(is_visible, n_of, -1), kind="stable")[: min(MAX_SESSIONS, int(is_visible.sum()))]
        among = np.isin(a, chosen) & np.isin(b, chosen) & (a < b)
        pairs, n_shared = np.unique(np.stack([a[among], b[among]]), axis=1, return_counts=True)
        names = {slot: state.record.session_id for slot in chosen.tolist() if (state := index.state(slot)) is not None}
    strongest = np.argsort(-n_shared, kind="stable")[: 4 * MAX_SESSIONS]
    told: list[JSON] = [
        {"id": name, "session": name, "position": 0, "granularity": "session", "seed": False} for name in names.values()
    ]
    links: list[JSON] = [
        {"source": names[x], "target": names[y], "similarity": min(1.0, n / 12)}
        for x, y, n in zip(*pairs[:, strongest].tolist(), n_shared[strongest].tolist(), strict=True)
    ]
    return {"nodes": placed(told, links), "edges": links, "by": "session"}


def placed(nodes: Sequence[JSON], edges: Sequence[JSON]) -> list[JSON]:
    """Give each node a place in the unit square, the same each time."""
    import networkx

    graph: networkx.Graph[str] = networkx.Graph()
    told = [node for node in nodes if isinstance(node, dict)]
    graph.add_nodes_from(str(node["id"]) for node in told)
    graph.add_edges_from((str(e["source"]), str(e["target"])) for e in edges if isinstance(e, dict))
    if not len(graph):
        return []
    layout = networkx.spring_layout(graph, seed=0, iterations=80, k=2.2 / len(graph) ** 0.5)
    across, down = (_spread(np.array([layout[str(node["id"])][axis] for node in told])) for axis in (0, 1))
    return [
        {**node, "x": round(x, 4), "y": round(y, 4)}
        for node, x, y in zip(told, across.tolist(), down.tolist(), strict=True)
    ]


def _spread(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bring places into [0, 1], and part what lies close together: half by place, half by rank."""
    width = float(np.ptp(places)) or 1.0
    rank = np.argsort(np.argsort(places, kind="stable"), kind="stable") / max(len(places) - 1, 1)
    spread: NDArray[np.float64] = 0.4 * (places - places.min()) / width + 0.6 * rank
    return spread


def _with_neighbours(index: NamespaceIndex, nodes: Sequence[int]) -> NDArray[np.intp]:
    """Add the strongest neighbours of each node, while there is room."""
    kept = np.array(nodes[:MAX_NODES], np.intp)
    owner, neighbour, weight = index.graph.neighbours(kept)
    found = list(dict.fromkeys(kept.tolist()))
    for at in range(len(kept)):
        mine = np.flatnonzero(owner == at)
        for edge in mine[np.argsort(-weight[mine], kind="stable")][:_NEIGHBOURS].tolist():
            node = int(neighbour[edge])
            if node not in found and len(found) < MAX_NODES:
                found.append(node)
    return np.array(found, np.intp)


def _edges_among(
    index: NamespaceIndex, nodes: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    owner, neighbour, weight = index.graph.neighbours(nodes)
    source = nodes[owner]
    among = np.isin(neighbour, nodes) & (source < neighbour)
    return source[among], neighbour[among], weight[among]
