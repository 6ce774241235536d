"""Out as JSONL and in again: the same memory; what no export says is refused with the number of its line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from memgas import MemGAS, MemGASConfig, NewSession, Turn
from memgas.errors import InvalidInputError, SessionConflictError
from memgas.testing import HashEmbedder, ScriptedLLM
from memgas.types import JSON

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SUBJECTS = ("greyhounds", "tea", "piano lessons", "rye bread", "bees", "old boats")


class Reversed(HashEmbedder):
    """Another model of the same width."""

    def _embed(self, text: str) -> NDArray[np.float64]:
        return super()._embed(text)[::-1]


@pytest.fixture
def full() -> Iterator[MemGAS]:
    """Give a memory with some of everything."""
    with MemGAS.in_memory(embedder=HashEmbedder(), clock=lambda: NOON) as memory:
        for number, subject in enumerate(SUBJECTS * 2):
            turns = [
                Turn(
                    "user", f"Tell me about {subject} in {number} ways.", NOON + timedelta(seconds=number), f"m{number}"
                ),
                Turn("Ines 茶", f'About {subject}:\n\u2028 line two\x85 👍 "quoted" \\ done.'),
                Turn("user", f"More of {subject} please"),
            ]
            memory.add(turns, namespace="n", session_id=f"s{number}", metadata={"n": number, "tags": ["a", None]})
        memory.add([], namespace="n", session_id="item", kind="item", metadata=[1, 2.5, "x"])
        for minutes in (0, 10, 100):
            turn = Turn("user", f"minute {minutes}", NOON + timedelta(minutes=minutes))
            memory.append(turn, namespace="n", conversation_id="thread")
        memory.delete_turn("s3", 1, namespace="n")
        memory._workspace.drain()
        yield memory


def _lines(memory: MemGAS, namespace: str = "n") -> list[str]:
    out = io.StringIO()
    assert memory.export_jsonl(out, namespace=namespace) == len(memory.list_sessions(namespace=namespace, kind=None))
    return out.getvalue().split("\n")[:-1]


def _edges(memory: MemGAS, namespace: str) -> dict[frozenset[tuple[str, str, int]], float]:
    graph = memory.graph(namespace)
    place = {node: (d["session_id"], d["granularity"], d["position"]) for node, d in graph.nodes(data=True)}
    return {frozenset((place[a], place[b])): round(d["similarity"], 3) for a, b, d in graph.edges(data=True)}


def _sessions(memory: MemGAS, namespace: str) -> list[tuple[object, ...]]:
    listed = memory.list_sessions(namespace=namespace, kind=None)
    return [
        (
            s.session_id,
            s.turns,
            s.happened_at,
            s.added_at,
            s.metadata,
            s.conversation_id,
            s.digest,
            s.kind,
            r.first_turn,
        )
        for r in listed
        for s in [memory.get(r.session_id, namespace=namespace)]
    ]


def test_round_trip(full: MemGAS) -> None:
    """Sessions, tombstones, times, metadata, digests and associations come back, and so does what is found."""
    lines = _lines(full)
    with MemGAS.in_memory(embedder=HashEmbedder()) as other:
        done: list[int] = []
        assert other.import_jsonl(lines, namespace="m", progress=done.append) == len(lines) - 1  # an item has no turn
        assert done[-1] == len(lines)
        wanted = [s[:6] + s[7:] if s[5] else s for s in _sessions(full, "n")]
        got = [s[:6] + s[7:] if s[5] else s for s in _sessions(other, "m")]
        assert got == wanted
        kept = _edges(full, "n")
        assert len(kept) > 10
        assert {e: s for e, s in _edges(other, "m").items() if not any("thread" in p[0] for p in e)} == {
            e: s for e, s in kept.items() if not any("thread" in p[0] for p in e)
        }
        found = full.retrieve("rye bread", namespace="n").hits
        again = other.retrieve("rye bread", namespace="m").hits
        assert [hit.session_id for hit in found][:2] == [hit.session_id for hit in again][:2]
        ids = [json.loads(line)["session_id"] for line in _lines(other, "m")]
        assert ids == [json.loads(line)["session_id"] for line in lines]


def test_a_line_is_readable(full: MemGAS) -> None:
    """A line is plain JSON without vectors, with characters as they are; a tombstone has an empty text."""
    lines = _lines(full)
    data = [json.loads(line) for line in lines]
    assert "茶" in lines[0]
    assert data[3]["turns"][1] == {"speaker": "Ines 茶", "text": ""}
    assert data[0]["turns"][0] == {
        "speaker": "user", "text": "Tell me about greyhounds in 0 ways.", "happened_at": NOON.isoformat(), "id": "m0"
    }  # fmt: skip
    assert [d["sequence"] for d in data] == sorted(d["sequence"] for d in data)
    assert data[-1]["first_turn"] == 2
    older = {d["session_id"]: number for number, d in enumerate(data)}
    assert all(older[edge[2]] < number for number, d in enumerate(data) for edge in d["associations"])


def test_importing_twice_is_harmless(full: MemGAS, tmp_path: Path) -> None:
    """A file that is imported again, or into where it came from, changes nothing and embeds nothing."""
    path = tmp_path / "n.jsonl"
    full.export_jsonl(path, namespace="n")
    head, n_texts = full._workspace.store.head("n"), full.embedder.n_texts
    assert full.import_jsonl(path, namespace="n") == 0
    assert full.import_jsonl(str(path), namespace="m") == len(SUBJECTS) * 2 + 2
    n_more = full.embedder.n_texts
    assert n_more > n_texts
    assert full.import_jsonl(path, namespace="m") == 0
    assert full.embedder.n_texts == n_more
    kept = full._workspace.store.head("n")
    assert (kept and kept.next_number) == (head and head.next_number)


def test_into_a_namespace_that_holds_something(full: MemGAS) -> None:
    """What is there stays; other words under a known session id are a conflict; what came before the conflict is kept."""
    lines = _lines(full)
    full.add([Turn("user", "mine")], namespace="m", session_id="own")
    assert full.import_jsonl(lines[:2], namespace="m") == 2
    assert [s.session_id for s in full.list_sessions(namespace="m")] == ["own", "s0", "s1"]
    full.add([Turn("user", "mine")], namespace="m", session_id="s3")
    with pytest.raises(SessionConflictError, match="s3"):
        full.import_jsonl(lines, namespace="m")
    assert full.get("s3", namespace="m").turns == (Turn("user", "mine"),)


def test_another_embedder_computes_anew(full: MemGAS) -> None:
    """With another embedder the associations of the file are not believed; with the same one they are kept."""
    lines = _lines(full)
    with MemGAS.in_memory(embedder=Reversed(name="hash")) as other, MemGAS.in_memory(embedder=Reversed()) as fresh:
        other.import_jsonl(lines, namespace="n")
        for line in lines:
            data = json.loads(line)
            del data["embedder"], data["associations"]
            fresh.import_jsonl([json.dumps(data)], namespace="n")
        assert _edges(other, "n") == _edges(fresh, "n")


def test_no_model_is_asked_for_what_has_a_digest(full: MemGAS) -> None:
    """An imported digest is kept as it is; a session without one gets one."""
    lines = [line for line in _lines(full) if "thread" not in line]
    llm = ScriptedLLM(default='{"summary": "Made now.", "keywords": ["now"]}')
    with MemGAS.in_memory(embedder=HashEmbedder(), llm=llm) as other:
        other.import_jsonl(lines, namespace="n")
        assert llm.prompts == []
        data = json.loads(lines[0]) | {"session_id": "bare", "digest": None}
        other.import_jsonl([json.dumps(data)], namespace="n")
        digest = other.get("bare", namespace="n").digest
        assert digest is not None
        assert digest.summary == "Made now."


def test_a_deleted_turn_stays_deleted(full: MemGAS) -> None:
    """An export from before a deletion, imported after it, does not bring the words back."""
    lines = _lines(full)
    full.delete_turn("s5", 0, namespace="n")
    full.import_jsonl(lines, namespace="n")
    assert full.get("s5", namespace="n").turns[0].text == ""
    longer = json.loads(lines[5])
    longer["turns"].append({"speaker": "user", "text": "and more"})
    assert full.import_jsonl([json.dumps(longer)], namespace="n") == 1
    full._workspace.drain()
    assert "5 ways" not in "".join(_lines(full))


def _line(**changes: object) -> dict[str, object]:
    fingerprint = {"name": "hash", "probe": list(MemGAS.in_memory(embedder=HashEmbedder())._fingerprint().probe[:8])}
    return {
        "version": 1, "session_id": "s", "happened_at": NOON.isoformat(), "added_at": NOON.isoformat(),
        "turns": [{"speaker": "user", "text": "hello"}, {"speaker": "user", "text": "hello"}], "embedder": fingerprint,
        "exchanges": [0],
    } | changes  # fmt: skip


EDGE = ["turn", 0, "t", "turn", 0, 0.5]
DEEP: JSON = 1
for _ in range(200):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": 2}, "version must be 1; got 2"),
        ({"version": None}, "version must be 1"),
        ({"session_id": ""}, "session_id"),
        ({"session_id": 5}, "session_id"),
        ({"kind": "note"}, "kind"),
        ({"first_turn": -1}, "first_turn"),
        ({"first_turn": "0"}, "first_turn"),
        ({"turns": []}, "at least one turn"),
        ({"turns": {"speaker": "u"}}, "list"),
        ({"turns": ["hello"]}, "speaker and a text"),
        ({"turns": [{"speaker": "u"}]}, "'text' is missing"),
        ({"turns": [{"speaker": "u", "text": 5}]}, "speaker and a text"),
        ({"turns": [{"speaker": "u", "text": "\u200b"}]}, "blank"),
        ({"turns": [{"speaker": "u", "text": "a", "id": 5}]}, "id of a turn"),
        ({"turns": [{"speaker": "u", "text": "a", "happened_at": "2024-05-01"}]}, "time zone"),
        ({"happened_at": "yesterday"}, "isoformat"),
        ({"happened_at": 5}, "ISO time"),
        ({"added_at": "2024-05-01T12:00:00"}, "time zone"),
        ({"conversation_id": " "}, "conversation_id"),
        ({"metadata": float("nan")}, "nan"),
        ({"metadata": DEEP}, "levels"),
        ({"digest": "text"}, "digest"),
        ({"digest": {"summary": None, "keywords": []}}, "digest"),
        ({"digest": {"summary": "x"}}, "'keywords' is missing"),
        ({"associations": [EDGE[:-1]]}, "six parts"),
        ({"associations": [[*EDGE[:-1], float("nan")]]}, "cosine"),
        ({"associations": [[*EDGE[:-1], 1e9]]}, "cosine"),
        ({"associations": [[*EDGE[:-1], 10**400]]}, "too large"),
        ({"associations": [["word", *EDGE[1:]]]}, "word"),
        ({"associations": "x"}, "list"),
        ({"embedder": {"name": "hash", "probe": [10**400] * 8}}, "too large"),
    ],
)
def test_what_no_export_says(changes: dict[str, object], says: str) -> None:
    """A field that cannot be used is refused, with the number of its line; the lines before it are another chunk's."""
    lines = [json.dumps(_line(session_id="t")), "", json.dumps(_line(**changes))]
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        with pytest.raises(InvalidInputError, match=says) as caught:
            memory.import_jsonl(lines, namespace="n")
        assert "line 3" in str(caught.value)
        assert memory.namespaces() == []
        assert memory.import_jsonl(lines[:1], namespace="n") == 1


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "null", '"x"', '{"version": 1', "[" * 100_000, '{"version": 1' + "0" * 5_000 + "}", 5, b"{}", None],
)
def test_what_is_no_json(line: object) -> None:
    """A line that was cut off or is no JSON object is refused by its number."""
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory, pytest.raises(InvalidInputError, match="line 1"):
        memory.import_jsonl([line], namespace="n")  # type: ignore[list-item]


def test_files_of_other_encodings(tmp_path: Path) -> None:
    """A byte order mark is skipped; bytes that are not UTF-8 are refused; the lines before them were read."""
    path = tmp_path / "x.jsonl"
    text = json.dumps(_line()).encode()
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        path.write_bytes(b"\xef\xbb\xbf" + text + b"\r\n")
        assert memory.import_jsonl(path, namespace="n") == 1
        path.write_bytes(b"\xff\xfe\n" + text)
        with pytest.raises(InvalidInputError, match="UTF-8"):
            memory.import_jsonl(path, namespace="m")
        assert memory.namespaces() == ["n"]


def test_hostile_associations() -> None:
    """An association within one session, to a younger or to an unknown one, is left out; the others stay."""
    edges = [
        ["turn", 0, "s", "turn", 0, 0.5],
        ["turn", 0, "s", "session", 0, 0.5],
        ["turn", 0, "unknown", "turn", 0, 0.5],
        ["turn", 7, "t", "turn", 0, 0.5],
        ["turn", 0, "t", "turn", -1, 0.5],
        ["turn", 0, "u", "turn", 0, 0.5],
        EDGE,
    ]
    lines = [_line(session_id="t"), _line(associations=edges), _line(session_id="u")]
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        assert memory.import_jsonl(map(json.dumps, lines), namespace="n") == 3
        assert _edges(memory, "n") == {frozenset({("s", "turn", 0), ("t", "turn", 0)}): 0.5}
        assert memory.check() == []


def test_a_large_import_is_one_at_a_time() -> None:
    """An import of more sessions than are written at once finds the associations across, as adding them one by one does."""
    given = [NewSession([Turn("user", f"{SUBJECTS[i % 6]} {i}")], f"s{i}", NOON) for i in range(40)]
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        memory.add_many(given, namespace="n")
        memory.import_jsonl(_lines(memory), namespace="m")
        assert _edges(memory, "m") == _edges(memory, "n")


def test_an_import_under_other_exchange_bounds() -> None:
    """Where exchanges are cut otherwise than in the export, no association is hung on the wrong one: they are made anew."""
    turns = [Turn("user" if n % 4 < 3 else "assistant", f"{SUBJECTS[n % 6]} number {n}") for n in range(12)]
    given = [NewSession(turns[i:] + turns[:i], f"s{i}", NOON) for i in range(8)]
    narrow = MemGASConfig(max_exchange_turns=2)
    with MemGAS.in_memory(embedder=HashEmbedder()) as wide, MemGAS.in_memory(embedder=HashEmbedder()) as alike:
        wide.add_many(given, namespace="n")
        alike.import_jsonl(_lines(wide), namespace="n")
        assert _edges(alike, "n") == _edges(wide, "n")
        with (
            MemGAS.in_memory(embedder=HashEmbedder(), config=narrow) as imported,
            MemGAS.in_memory(embedder=HashEmbedder(), config=narrow) as added,
        ):
            cut = MemGASConfig(max_exchange_chars=100)
            assert imported.import_jsonl(_lines(wide), namespace="n") == 8
            kept = [
                wide.get(new.session_id or "", namespace="n").digest for new in given
            ]  # how turns are cut decides keywords
            added.add_many([replace(new, digest=one) for new, one in zip(given, kept, strict=True)], namespace="n")
            long = [NewSession([Turn("user", "x " * 60), *turns], "long", NOON)]
            added.add_many(long, namespace="n")
            assert _edges(imported, "n") == {k: v for k, v in _edges(added, "n").items() if "long" not in str(k)}
            with MemGAS.in_memory(embedder=HashEmbedder(), config=cut) as other:
                other.import_jsonl(_lines(added), namespace="n")
                known = {
                    (d["session_id"], d["granularity"], d["position"]) for _, d in other.graph("n").nodes(data=True)
                }
                assert {place for edge in _edges(other, "n") for place in edge} <= known
