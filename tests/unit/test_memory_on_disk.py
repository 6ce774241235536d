"""On disk: the same life as in memory, the same after reopening, and nothing left of what was erased."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memgas import MemGAS, MemGASConfig, NewSession, Turn
from memgas.errors import InvalidConfigError, StoreLockedError
from memgas.forgetting import files_with
from memgas.stores import ChromaStore
from memgas.testing import HashEmbedder

pytestmark = pytest.mark.slow

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SUBJECTS = ("greyhounds", "tea", "piano lessons", "rye bread", "bees", "old boats")
QUERIES = ("greyhounds and tea", "zebra", "word 3", "bread for the bees", "茶")
ODD = "👍 \U0001fae8 a\ud800b nul\x00nul मेरा 茶 \u2028 \x85 \u202eabc"


def _live(memory: MemGAS) -> None:
    """Do something of everything."""
    given = [
        NewSession(
            [Turn("user", f"Tell me of {subject}, {i}."), Turn("Ines", f"Well, {subject}.", NOON, f"m{i}")],
            f"s{i}", NOON + timedelta(days=i), {"i": i, "deep": [{"a": None}]},
        )
        for i, subject in enumerate(SUBJECTS * 2)
    ]  # fmt: skip
    memory.add_many(given, namespace="n")
    memory.add([Turn("user", ODD)], namespace="n", session_id="odd\n'#", metadata=ODD)
    memory.add([Turn("user", "filler " * 2_000 + "the last words are zebra")], namespace="n", session_id="long")
    for i in range(4):
        memory.append(
            Turn("user", f"word {i}", NOON + timedelta(minutes=40 * i)), namespace="n", conversation_id="thread"
        )
    memory.append(Turn("user", "later", NOON + timedelta(days=1)), namespace="n", conversation_id="thread")
    memory._workspace.drain()
    memory.delete_turn("s3", 0, namespace="n")
    memory.replace_session([Turn("user", "A secret of xylophones")], namespace="n", session_id="s4")
    memory.delete_session("s5", namespace="n")
    memory.append(Turn("user", "one more thing"), namespace="n", session_id="s6")
    memory.add([], namespace="n", session_id="item", kind="item", metadata=5)
    memory.add([Turn("user", "greyhounds of another")], namespace="m/../x", session_id="s1")


def _told(memory: MemGAS) -> dict[str, object]:
    """Return all that a memory says of itself."""
    said: dict[str, object] = {}
    for name in memory.namespaces():
        listed = memory.list_sessions(namespace=name, kind=None)
        said[name] = (
            [memory.get(record.session_id, namespace=name) for record in listed],
            [(record.n_units, record.is_pending, record.first_turn) for record in listed],
            memory.stats(name),
            {(*sorted(edge), round(d["similarity"], 3)) for *edge, d in memory.graph(name).edges(data=True)},
            [
                [(h.session_id, round(h.score, 4), h.summary, [e.turn for e in h.evidence]) for h in found.hits]
                for found in (memory.retrieve(query, namespace=name, top_k=20, min_score=0.2) for query in QUERIES)
            ],
        )
    return said


def _open(path: Path) -> MemGAS:
    return MemGAS(path, embedder=HashEmbedder(), clock=lambda: NOON)


def test_a_life_on_disk(tmp_path: Path) -> None:
    """Whatever was done, a memory on disk tells what one in memory tells, and the same again when it is reopened."""
    with MemGAS.in_memory(embedder=HashEmbedder(), clock=lambda: NOON) as reference:
        _live(reference)
        wanted = _told(reference)
    with _open(tmp_path) as memory, _open(tmp_path) as twin:
        _live(memory)
        assert _told(twin) == _told(memory) == wanted
        assert memory.check() == []
    with _open(tmp_path) as memory:
        assert _told(memory) == wanted
        assert memory.check() == []
        given = [Turn("user", "Tell me of greyhounds, 0."), Turn("Ines", "Well, greyhounds.", NOON, "m0")]
        n_texts = memory.embedder.n_texts
        assert memory.add(given, namespace="n", session_id="s0").n_new_turns == 0
        assert memory.append(Turn("user", "word 3"), namespace="n", conversation_id="thread", at=3).n_new_turns == 0
        assert memory.embedder.n_texts == n_texts
        assert (
            memory.append(Turn("user", "later still"), namespace="n", conversation_id="thread", at=5).n_new_turns == 1
        )


def test_a_path_opened_twice_is_one_memory(tmp_path: Path) -> None:
    """By whatever name a folder is opened again, it is shared: each finds what the other wrote; the last to close lets go."""
    (tmp_path / "link").symlink_to(tmp_path / "memory")
    first = _open(tmp_path / "memory")
    second = _open(tmp_path / "link")
    third = MemGAS(str(tmp_path / "x" / ".." / "memory"), embedder=HashEmbedder())
    first.add([Turn("user", "the greyhound")], namespace="n", session_id="a")
    second.append(Turn("user", "the boat"), namespace="n", session_id="b")
    for memory in (first, second, third):
        assert {hit.session_id for hit in memory.retrieve("greyhound boat", namespace="n").hits} == {"a", "b"}
    first.close()
    third.delete_session("a", namespace="n")
    third.close()
    assert [s.session_id for s in second.list_sessions(namespace="n")] == ["b"]
    with pytest.raises(StoreLockedError):
        ChromaStore.open(tmp_path / "memory")
    second.close()
    ChromaStore.open(tmp_path / "memory").close()


def test_closed_is_closed(tmp_path: Path) -> None:
    """After `close` nothing holds a file of the folder any more: it can be copied, moved and deleted at once."""
    for number in range(12):
        with _open(tmp_path) as memory:
            memory.add([Turn("user", f"garden {number}")], namespace="n")
            assert memory.retrieve("garden", namespace="n").hits
        names = {file.name for file in tmp_path.iterdir()}
        assert not {name for name in names if name.endswith(("-wal", "-shm", "-journal"))}


def test_erased(tmp_path: Path) -> None:
    """After `erase`, no byte of a deleted turn, session or namespace is in any file; what was kept still is."""
    with _open(tmp_path) as memory:
        for number in range(3):
            turns = [Turn("user", f"keepsake-{number} of Juno"), Turn("user", f"quixotic-{number} pin zebra-4711")]
            memory.add(turns, namespace="n", session_id=f"s{number}", metadata={"note": f"tangerine-{number}"})
        memory.add([Turn("user", "quixotic-9 whale")], namespace="m", session_id="s")
        for number in range(3):
            memory.delete_turn(f"s{number}", 1, namespace="n")
        memory.delete_session("s2", namespace="n")
        memory.delete_namespace("m")
        memory.erase()
        assert memory.retrieve("quixotic pin", namespace="n").hits
    assert files_with(tmp_path, ["quixotic", "zebra-47", "tangerine-2"]) == []
    assert files_with(tmp_path, ["keepsake-0"]) != []


def test_the_papers_units_are_not_kept_on_disk(tmp_path: Path) -> None:
    """The published code's configuration is refused for a folder, and nothing is made there."""
    with pytest.raises(InvalidConfigError, match="in_memory"):
        MemGAS(tmp_path / "new", embedder=HashEmbedder(), config=MemGASConfig.paper())
    assert not (tmp_path / "new").exists()
