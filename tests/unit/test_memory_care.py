"""Care: an embedder that is away stops no erasure and no repair; what has no vector is embedded again; stores move to another."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from memgas import MemGAS, MemGASConfig, NewSession, Turn
from memgas.errors import EmbedderError, InvalidInputError, SessionConflictError, StoreLockedError, StoreMismatchError
from memgas.stores import ChromaStore, InMemoryStore
from memgas.testing import HashEmbedder
from memgas.types import Batch, MemoryUnit

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
THINGS = ("greyhound Juno", "cello lessons", "rye bread", "harbour ferry", "kitchen paint", "chess club")


class Moody(HashEmbedder):
    """Answers until it is told not to; learns its width from a first call, as remote ones do."""

    is_down = False

    @property
    def n_dims(self) -> int:
        """Width, or an error."""
        self._ask()
        return self._width

    @n_dims.setter
    def n_dims(self, value: int) -> None:
        self._width = value

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed, or raise."""
        self._ask()
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed, or raise."""
        self._ask()
        return super().embed_query(text)

    def _ask(self) -> None:
        if self.is_down:
            raise ConnectionError("nobody answers")


def talk(number: int, n_turns: int = 6) -> list[Turn]:
    """Return turns about a few things, with message ids."""
    return [
        Turn(
            ("user", "assistant")[n % 2],
            f"About {THINGS[(number + n // 2) % 6]}, part {number} {n}.",
            id=f"m{number}-{n}",
        )
        for n in range(n_turns)
    ]


def fill(memory: MemGAS, n_sessions: int = 6, namespace: str = "n") -> None:
    """Add sessions."""
    memory.add_many([NewSession(talk(n), f"s{n}", NOON) for n in range(n_sessions)], namespace=namespace)


def edges(memory: MemGAS, namespace: str = "n") -> dict[frozenset[str], float]:
    """Return the graph's edges by unit ids."""
    return {frozenset((a, b)): round(d["similarity"], 3) for a, b, d in memory.graph(namespace).edges(data=True)}


def test_a_turn_is_deleted_while_the_embedder_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """Erasing depends on no model: the words go at once, what cannot be embedded is found by its words, told and mended."""
    embedder = Moody()
    with MemGAS.in_memory(embedder=embedder, clock=lambda: NOON) as memory:
        fill(memory)
        embedder.is_down = True
        with caplog.at_level(logging.WARNING):
            memory.delete_turn("s3", 1, namespace="n")
        assert "without a vector" in caplog.text
        assert "part 3" not in caplog.text
        assert memory.get("s3", namespace="n").turns[1].is_tombstone
        assert any("embedded again" in line for line in memory.check())
        assert any("embedder failed" in line for line in memory.repair())
        vector = HashEmbedder().embed_query("part 3 0")
        found = memory.retrieve("part 3 0", namespace="n", query_vector=vector, top_k=6)
        assert "s3" in [hit.session_id for hit in found.hits]
        assert "part 3 1" not in repr(found)
        embedder.is_down = False
        assert any(line.startswith("embedded again") for line in memory.repair())
        assert memory.check() == memory.repair() == []
        with memory._workspace.reading("n") as index:
            assert np.linalg.norm(index.vectors[index.alive], axis=1) == pytest.approx(1, abs=1e-5)
        with MemGAS.in_memory(embedder=HashEmbedder(), clock=lambda: NOON) as other:
            fill(other)
            other.delete_turn("s3", 1, namespace="n")
            ours, theirs = ({u.text for u in _units(m) if u.granularity != "keyword"} for m in (memory, other))
            assert ours == theirs  # which keywords come first is for the vectors to say


def _units(memory: MemGAS) -> list[MemoryUnit]:
    return [unit for page in memory._workspace.store.load("n") for unit in page.units]


def test_a_store_opens_and_forgets_without_its_embedder(tmp_path: Path) -> None:
    """A folder whose embedder is away from the start is opened, read, searched by vector, and words are deleted from it."""
    embedder = Moody()
    with MemGAS(tmp_path, embedder=embedder, clock=lambda: NOON) as memory:
        fill(memory, 2)
    away = Moody()
    away.is_down = True
    with MemGAS(tmp_path, embedder=away) as memory:
        assert memory.get("s0", namespace="n").turns[0].text.startswith("About greyhound")
        found = memory.retrieve("greyhound", namespace="n", query_vector=HashEmbedder().embed_query("greyhound"))
        assert found.hits[0].session_id == "s0"
        with pytest.raises(EmbedderError, match="ConnectionError"):
            memory.retrieve("greyhound", namespace="n")
        memory.delete_turn("s0", 0, namespace="n")
        memory.delete_session("s1", namespace="n")
        assert not memory.get("s0", namespace="n").turns[0].text
    with MemGAS(tmp_path, embedder=HashEmbedder()) as memory:
        assert all("embedded again" in line for line in memory.check())
        assert memory.check()
        assert any(line.startswith("embedded again") for line in memory.repair())
        assert memory.check() == memory.repair() == []
        assert memory.retrieve("part 0 2", namespace="n").hits[0].score > 0.5
    away.is_down = True
    with pytest.raises(EmbedderError):
        MemGAS(tmp_path / "new", embedder=away)
    MemGAS(tmp_path / "new", embedder=HashEmbedder()).close()  # the failure left no lock behind


def test_vectors_that_are_lost_are_embedded_again() -> None:
    """Units marked as lost get their vectors, windows too, and keep the associations that they had."""
    config = MemGASConfig(max_window_tokens=16)
    with MemGAS.in_memory(embedder=HashEmbedder(), config=config, clock=lambda: NOON) as memory:
        fill(memory)
        wanted, before = edges(memory), memory.retrieve("cello", namespace="n").hits
        store = memory._workspace.store
        for page in list(store.load("n")):
            hurt = [replace(unit, n_windows=0) for unit in page.units]
            none = page.windows[:0]
            head = replace(page.head, revision=page.head.revision + 1)
            store.put(
                Batch(head, page.records, hurt, 0 * page.vectors, page.window_owners[:0], none, page.associations)
            )
        memory._workspace.drop_mirrors()
        assert len(memory.check()) == 1
        assert memory.repair() == [f"embedded again: {len(_units(memory))} unit(s) of namespace 'n'"]
        assert memory.check() == []
        assert edges(memory) == wanted
        assert memory.retrieve("cello", namespace="n").hits == before


def test_a_private_store_goes_with_its_memory() -> None:
    """A memory in memory that nobody holds any more is gone, closed or not; a store of the caller's stays the caller's."""
    memory = MemGAS.in_memory(embedder=HashEmbedder())
    memory.add(talk(0), namespace="n")
    seen = weakref.ref(memory._workspace.store)
    del memory
    gc.collect()
    assert seen() is None
    store = InMemoryStore()
    first = MemGAS(store=store, embedder=HashEmbedder())
    first.add(talk(0), namespace="n")
    second = MemGAS(store=store, embedder=HashEmbedder())
    assert first._shared is second._shared
    del first
    gc.collect()
    assert second.namespaces() == ["n"]
    second.close()


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "disk"])
def test_a_namespace_without_sessions_is_not_listed(tmp_path: Path, is_on_disk: bool) -> None:
    """A namespace whose sessions were all deleted is listed no more, counted no more, and may be written to again."""
    store = ChromaStore.open(tmp_path) if is_on_disk else InMemoryStore()
    with MemGAS(store=store, embedder=HashEmbedder()) as memory:
        for namespace in ("one", "two"):
            fill(memory, 2, namespace)
        memory.delete_session("s0", namespace="one")
        assert memory.namespaces() == ["one", "two"]
        memory.delete_session("s1", namespace="one")
        assert memory.namespaces() == ["two"]
        assert memory.stats().n_namespaces == 1
        fill(memory, 1, "one")
        assert memory.namespaces() == ["one", "two"]


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "disk"])
def test_a_retry_does_not_revive_a_deleted_sitting(tmp_path: Path, is_on_disk: bool) -> None:
    """Turns of a conversation's deleted session stay deleted when they come again, by message id or by position.

    The conversation goes on behind them, and begins anew only when it was deleted as a whole.
    """
    path = tmp_path / "memory"

    config = MemGASConfig(max_session_turns=2)
    store = None if is_on_disk else InMemoryStore()

    def memory_of() -> MemGAS:
        where = {"path": path} if store is None else {"store": store}
        return MemGAS(**where, embedder=HashEmbedder(), config=config, clock=lambda: NOON)

    with memory_of() as memory:
        for number, turn in enumerate(talk(0)):
            memory.append(turn, namespace="n", conversation_id="thread", at=number)
        names = [s.session_id for s in memory.list_sessions(namespace="n")]
        assert len(names) == 3
        for name in names[1:]:
            memory.delete_session(name, namespace="n")
        memory.erase()
        if store is not None:
            store.close = lambda: None  # type: ignore[method-assign] # it is used again
    with memory_of() as memory:
        for number, turn in enumerate(talk(0)):
            assert memory.append(turn, namespace="n", conversation_id="thread").n_new_turns == 0
            unnamed = replace(turn, id=None)
            assert memory.append(unnamed, namespace="n", conversation_id="thread", at=number).n_new_turns == 0
        assert [s.session_id for s in memory.list_sessions(namespace="n")] == names[:1]
        added = memory.append(Turn("user", "And then?", id="new"), namespace="n", conversation_id="thread")
        assert added.n_new_turns == 1
        assert [s.first_turn for s in memory.list_sessions(namespace="n")] == [0, 6]
        with pytest.raises(SessionConflictError):
            memory.append(Turn("user", "Other words.", id="new"), namespace="n", conversation_id="thread")
        assert memory.append(talk(0)[5], namespace="n", conversation_id="another").n_new_turns == 1
        memory.delete_conversation("thread", namespace="n")
        assert memory.append(talk(0), namespace="n", conversation_id="thread").n_new_turns == 6


@pytest.mark.slow
def test_a_store_moves_to_another_embedder(tmp_path: Path) -> None:
    """Reembedding keeps ids, texts, digests; vectors and associations are as if all had been added with the new one.

    The old embedder is refused from then on.
    """
    new = HashEmbedder(48, name="new", max_tokens=20)
    with MemGAS(tmp_path, embedder=HashEmbedder(), clock=lambda: NOON) as memory:
        fill(memory, 20)
        memory.append(talk(3), namespace="m", conversation_id="thread")
        memory.delete_session("s7", namespace="n")
        before = {unit.id: unit.text for unit in _units(memory)}
        sessions = [memory.get(s.session_id, namespace="n") for s in memory.list_sessions(namespace="n")]
        with pytest.raises(StoreLockedError, match="close it first"):
            MemGAS.reembed(tmp_path, embedder=new)
    for other in (new, HashEmbedder(64, name="turned")):
        if other is not new:
            other._embed = lambda text, f=other._embed: f(text)[::-1]  # type: ignore[method-assign,misc]
        with pytest.raises(StoreMismatchError, match=rf"'hash'.*'{other.name}'.*reembed"):
            MemGAS(tmp_path, embedder=other)
    done: list[int] = []
    assert MemGAS.reembed(tmp_path, embedder=new, progress=done.append) == 20
    assert sorted(done) == [1, 16, 19]
    assert MemGAS.reembed(tmp_path, embedder=new) == 0
    with pytest.raises(StoreMismatchError, match=r"'new' \(48 dimensions\).*'hash'"):
        MemGAS(tmp_path, embedder=HashEmbedder())
    with MemGAS(tmp_path, embedder=new, clock=lambda: NOON) as memory:
        assert memory.check() == []
        assert {unit.id: unit.text for unit in _units(memory)} == before
        assert [memory.get(s.session_id, namespace="n") for s in sessions] == sessions
        with MemGAS.in_memory(embedder=new, clock=lambda: NOON) as fresh:
            fresh.add_many(
                [NewSession(s.turns, s.session_id, s.happened_at, None, s.digest) for s in sessions], namespace="n"
            )
            assert len(edges(fresh)) > 20
            assert sorted(edges(memory).values()) == sorted(edges(fresh).values())
            for thing in THINGS:
                ours, theirs = (m.retrieve(thing, namespace="n").hits for m in (memory, fresh))
                assert [(h.session_id, h.score) for h in ours] == [(h.session_id, h.score) for h in theirs]
        memory.add(talk(50), namespace="n", session_id="later")
        memory.delete_session("s1", namespace="n")
        memory.erase()
        assert memory.check() == []


@pytest.mark.slow
def test_a_move_that_fails_is_gone_on_with_or_given_up(tmp_path: Path) -> None:
    """An embedder that fails half way leaves the store refusing to open, with what to do; the next call does the rest.

    The first embedder gives the move up.
    """
    with MemGAS(tmp_path, embedder=HashEmbedder(), clock=lambda: NOON) as memory:
        fill(memory, 40)
        wanted = edges(memory)
    failing = Moody(48, name="new")
    original = Moody.embed_documents

    def fail_later(texts: Sequence[str]) -> NDArray[np.float32]:
        if any("part 20" in text for text in texts):
            raise ConnectionError("nobody answers")
        return original(failing, texts)

    failing.embed_documents = fail_later  # type: ignore[method-assign]
    with pytest.raises(EmbedderError):
        MemGAS.reembed(tmp_path, embedder=failing)
    for embedder in (HashEmbedder(), Moody(48, name="new")):
        with pytest.raises(StoreMismatchError, match=r"moved from 'hash' to 'new'.*memgas reembed"):
            MemGAS(tmp_path, embedder=embedder)
    assert MemGAS.reembed(tmp_path, embedder=HashEmbedder()) == 0
    with MemGAS(tmp_path, embedder=HashEmbedder()) as memory:
        assert edges(memory) == wanted
        assert memory.check() == []
    with pytest.raises(EmbedderError):
        MemGAS.reembed(tmp_path, embedder=failing)
    assert MemGAS.reembed(tmp_path, embedder=Moody(48, name="new")) == 40 - 16
    with MemGAS(tmp_path, embedder=Moody(48, name="new")) as memory:
        assert memory.stats("n").n_sessions == 40
        assert memory.check() == []


def test_what_cannot_be_moved() -> None:
    """Reembedding needs a path or a client, and not both."""
    with pytest.raises(InvalidInputError, match="path and client"):
        MemGAS.reembed(embedder=HashEmbedder())
