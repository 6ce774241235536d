"""From scores to hits: what each one shows, how it was reached, and which others speak of the same matter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from memgas.calibration import absolute_scores
from memgas.config import MemGASConfig
from memgas.fingerprint import Fingerprint
from memgas.index import NamespaceIndex, SessionState
from memgas.pagerank import strongest_paths
from memgas.scoring import PUSH_TOLERANCE, Readings, Scores
from memgas.types import GRANULARITIES, Evidence, Granularity, Hit, MemoryUnit, Path, UnitScore
from memgas.units import turns_of

_SAME_MATTER = 4.0  # spreads above the embedder's background
_MAX_ITEM_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class HitDraft:
    """A hit before its words were fetched."""

    hit: Hit
    best: tuple[tuple[int, float], ...]  # exchange positions and their similarity, best first
    wanted: dict[str, tuple[Granularity, int]]  # unit ids to fetch


def draft_hit(index: NamespaceIndex, state: SessionState, scores: Scores, score: float, *, n_evidence: int) -> HitDraft:
    """Describe a hit, and name the units whose words it needs."""
    record = state.record
    parts = {name: float(part[state.slot]) for name, part in scores.parts.items()}
    rank_score = sum(parts.values())
    turns = state.nodes[Granularity.TURN]
    ranked = sorted(
        ((float(scores.similarities[node]), -position) for position, node in turns.items() if scores.allowed[node]),
        reverse=True,
    )
    best = tuple((-position, similarity) for similarity, position in ranked[:n_evidence])
    around = {position + step for position, _ in best for step in (-1, 0, 1)}
    wanted = {
        index.unit_id(node): (Granularity.TURN, position) for position, node in turns.items() if position in around
    }
    for granularity in (Granularity.SUMMARY, Granularity.KEYWORD):
        for position, node in state.nodes[granularity].items():
            wanted[index.unit_id(node)] = (granularity, position)
    hit = Hit(
        record.session_id, score, rank_score, parts, record.happened_at, metadata=record.metadata,
        conversation_id=record.conversation_id, kind=record.kind,
    )  # fmt: skip
    return HitDraft(hit, best, wanted)


def absolute_score(
    index: NamespaceIndex, state: SessionState, readings: Readings, allowed: NDArray[np.bool_], terms: list[str],
    fingerprint: Fingerprint,
) -> float:  # fmt: skip
    """Return the absolute score of a session: its best unit's."""
    return absolute_scores_of(index, [state], readings, allowed, terms, fingerprint)[0]


def absolute_scores_of(
    index: NamespaceIndex, states: Sequence[SessionState], readings: Readings, allowed: NDArray[np.bool_],
    terms: list[str], fingerprint: Fingerprint,
) -> list[float]:  # fmt: skip
    """Return the absolute scores of sessions: each its best unit's; 0 where no unit is allowed."""
    by_state = [state.all_nodes() for state in states]
    nodes = np.array(list(chain.from_iterable(by_state)), np.intp)
    owner = np.repeat(np.arange(len(states)), [len(own) for own in by_state])
    nodes, owner = nodes[allowed[nodes]], owner[allowed[nodes]]
    best = np.zeros(len(states))
    coverage = index.lexical.coverage(terms, nodes)
    np.maximum.at(best, owner, absolute_scores(readings.cosines[nodes], coverage, fingerprint))
    scores: list[float] = best.tolist()
    return scores


def paths_to(
    index: NamespaceIndex, scores: Scores, states: Sequence[SessionState], config: MemGASConfig
) -> tuple[Path, ...]:
    """Return how PageRank reached each session's best unit; its best unit alone where it did not."""
    targets = np.array([_reached_most(state, scores) for state in states], np.intp)
    found = strongest_paths(
        index.graph,
        scores.ranks,
        scores.seeds,
        targets,
        damping=config.damping,
        weighted=config.weighted_edges,
        error=PUSH_TOLERANCE,
    )
    steps = iter(unit_scores(index, np.concatenate([nodes for nodes, _ in found]), scores.ranks) if found else ())
    return tuple(
        Path(state.record.session_id, tuple(islice(steps, len(nodes))), tuple(edges.tolist()))
        for state, (nodes, edges) in zip(states, found, strict=True)
    )


def _reached_most(state: SessionState, scores: Scores) -> int:
    nodes = [node for node in state.all_nodes() if scores.allowed[node]]
    best = max(nodes, key=scores.ranks.item)
    return best if scores.ranks[best] > 0 else max(nodes, key=scores.similarities.item)


def seeds_of(index: NamespaceIndex, scores: Scores) -> tuple[UnitScore, ...]:
    """Return the seeds, best first, with the scores they were chosen by."""
    return unit_scores(index, scores.seeds, scores.seed_scores)


def unit_scores(index: NamespaceIndex, nodes: NDArray[np.intp], scores: NDArray[np.float64]) -> tuple[UnitScore, ...]:
    """Name the units of some nodes, with their scores."""
    columns = (index.session[nodes].tolist(), index.granularity[nodes].tolist(), scores[nodes].tolist())
    return tuple(
        UnitScore(
            index.unit_id(node), state.record.session_id if (state := index.state(slot)) else "", GRANULARITIES[axis],
            index.position(node), score,
        )
        for node, slot, axis, score in zip(nodes.tolist(), *columns, strict=True)
    )  # fmt: skip


def with_same_matter(index: NamespaceIndex, drafts: list[HitDraft], fingerprint: Fingerprint) -> list[HitDraft]:
    """Tell each hit which others speak of the same matter: their best exchanges are associated, and well above chance."""
    having = [draft for draft in drafts if draft.best]
    ids = [draft.hit.session_id for draft in having]
    nodes = np.array(
        [index.sessions[i].nodes[Granularity.TURN][draft.best[0][0]] for i, draft in zip(ids, having, strict=True)],
        np.intp,
    )
    at, linked, _ = index.graph.neighbours(nodes)
    near = fingerprint.background_mean + _SAME_MATTER * fingerprint.background_spread
    vectors = index.vectors[nodes]
    is_alike = (vectors @ vectors.T >= near).tolist()
    place = {node: number for number, node in enumerate(nodes.tolist())}
    for one, node in zip(at.tolist(), linked.tolist(), strict=True):
        if node in place:
            is_alike[one][place[node]] = True
    alike = {
        session_id: tuple(other for other, is_so in zip(ids, row, strict=True) if is_so and other != session_id)
        for session_id, row in zip(ids, is_alike, strict=True)
    }
    return [
        replace(draft, hit=replace(draft.hit, same_matter=matter))
        if (matter := alike.get(draft.hit.session_id, ()))
        else draft
        for draft in drafts
    ]


def with_words(draft: HitDraft, units: dict[str, MemoryUnit], excluded: Collection[tuple[str, int]], *, n: int) -> Hit:
    """Fill a hit with its evidence, summary and keywords; `n` neighbouring turns on each side."""
    found = [units[uid] for uid in draft.wanted if uid in units]
    by_position = {unit.position: unit for unit in found if unit.granularity is Granularity.TURN}
    turns = {
        unit.first_turn + offset: turn for unit in by_position.values() for offset, turn in enumerate(turns_of([unit]))
    }
    similarity: dict[int, float | None] = {}
    for position, value in draft.best:
        unit = by_position.get(position)
        if unit is None:
            continue
        own = range(unit.first_turn, unit.first_turn + len(unit.spans))
        for neighbour in (*range(own.start - n, own.start), *range(own.stop, own.stop + n)):
            similarity.setdefault(neighbour, None)
        similarity.update(dict.fromkeys(own, value))
    session_id = draft.hit.session_id
    evidence = tuple(
        Evidence(session_id, position, turns[position], similarity[position])
        for position in sorted(similarity)
        if position in turns and turns[position].text and (session_id, position) not in excluded
    )
    texts = {unit.granularity: unit.text for unit in found}
    keywords = tuple(word for word in texts.get(Granularity.KEYWORD, "").split("; ") if word)
    return replace(draft.hit, evidence=evidence, summary=texts.get(Granularity.SUMMARY, ""), keywords=keywords)


def item_text(hit: Hit) -> str:
    """Render a hit for the filter: what was said, or the summary where there is no evidence."""
    said = "\n".join(f"{piece.turn.speaker}: {piece.turn.text}" for piece in hit.evidence)
    return (said or hit.summary)[:_MAX_ITEM_CHARS]
