"""The demo's dialogue, and what becomes of it: units, associations, hits. Speed-ups must not change them.

After a change that is meant: `MEMGAS_WRITE_GOLDEN=1 pytest tests/unit/test_golden.py`, and read the difference.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memgas import MemGAS
from memgas.demo import PEOPLE, read_dialogue
from memgas.testing import HashEmbedder

GOLDEN = Path(__file__).parents[1] / "golden" / "retrieval.json"
ASKED_AT = datetime(2025, 1, 6, 12, tzinfo=UTC)
QUESTIONS = {
    "maya": (
        "Who looked after Juno while we were away?",
        "What has been wrong with Juno's paw?",
        "What did I do in May?",
    ),
    "林晓": ("给妈妈准备点心要注意什么？", "我的二胡课是什么时候？"),
}


def observed() -> dict[str, object]:
    """Return everything that must stay, with scores as they are."""
    memory = MemGAS.in_memory(embedder=HashEmbedder(n_dims=96))
    found: dict[str, object] = {}
    for name, file in PEOPLE.items():
        for session in read_dialogue(file):
            memory.add(session.turns, namespace=name, session_id=session.session_id, happened_at=session.happened_at)
        graph = memory.graph(name)
        place = {
            node: f"{data['session_id']}/{data['granularity']}/{data['position']}" for node, data in graph.nodes.items()
        }
        digests = [
            memory.get(record.session_id, namespace=name).digest for record in memory.list_sessions(namespace=name)
        ]
        found[name] = {
            "units": sorted(place.values()),
            "keywords": [digest.keywords for digest in digests if digest],
            "edges": sorted(
                [*sorted((place[a], place[b])), round(data["similarity"], 5)] for a, b, data in graph.edges(data=True)
            ),
            "hits": {
                question: [
                    [hit.session_id, hit.score, hit.rank_score, [piece.position for piece in hit.evidence]]
                    for hit in memory.retrieve(question, namespace=name, asked_at=ASKED_AT).hits
                ]
                for question in QUESTIONS[name]
            },
        }
    return found


def test_a_known_dialogue_gives_what_it_gave() -> None:
    """The same units, keywords, associations and order of hits; scores to 1e-5."""
    now = json.loads(json.dumps(observed()))
    if os.environ.get("MEMGAS_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(now, ensure_ascii=False, indent=1) + "\n", "utf-8")

    was = json.loads(GOLDEN.read_text("utf-8"))

    for name in QUESTIONS:
        for what in ("units", "keywords", "edges"):
            assert was[name][what] == now[name][what]
        for question, hits in was[name]["hits"].items():
            present = now[name]["hits"][question]
            assert [(hit[0], hit[3]) for hit in hits] == [(hit[0], hit[3]) for hit in present]
            assert [hit[1:3] for hit in present] == [pytest.approx(hit[1:3], abs=1e-5) for hit in hits]
