"""From scores to hits: what each one shows, how it was reached, and which others speak of the same matter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from memgas.calibration import absolute_scores
from memgas.fingerprint import Fingerprint
from memgas.index import NamespaceIndex, SessionState
from memgas.scoring import Readings, Scores
from memgas.types import Evidence, Granularity, Hit, MemoryUnit
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
