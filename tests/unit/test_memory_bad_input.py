"""Bad input: each a clear error or a documented result; nothing lost, nothing half-written, no model called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from memgas import MemGAS, NewSession, Turn
from memgas.errors import InvalidConfigError, InvalidInputError, MemGASError, NotFoundError
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder
from memgas.types import JSON

NAIVE = datetime(2024, 5, 1, 12)
GOOD = [Turn("user", "the greyhound Juno"), Turn("assistant", "ah")]


@pytest.fixture
def memory() -> Iterator[MemGAS]:
    """Give a memory that holds one session."""
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        memory.add(GOOD, namespace="n", session_id="s")
        yield memory


Call = Callable[[MemGAS], object]


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.add([], namespace="n"),
        lambda m: m.add(None, namespace="n"),
        lambda m: m.add([Turn("u", "")], namespace="n"),
        lambda m: m.add([Turn("u", None)], namespace="n"),  # type: ignore[arg-type]
        lambda m: m.add([Turn("u", "\u200b")], namespace="n"),
        lambda m: m.add([*GOOD, Turn("u", " ")], namespace="n"),
        lambda m: m.add("hello", namespace="n"),
        lambda m: m.add(GOOD, namespace=""),
        lambda m: m.add(GOOD, namespace=None),
        lambda m: m.add(GOOD, namespace="n", session_id=" "),
        lambda m: m.add(GOOD, namespace="n", happened_at=NAIVE),
        lambda m: m.add(GOOD, namespace="n", happened_at="2024-05-01"),
        lambda m: m.add(GOOD, namespace="n", metadata={1, 2}),
        lambda m: m.add(GOOD, namespace="n", metadata=float("nan")),
        lambda m: m.add(GOOD, namespace="n", kind="note"),
        lambda m: m.add_many(None, namespace="n"),
        lambda m: m.add_many(GOOD, namespace="n"),
        lambda m: m.add_many([NewSession(GOOD, digest="text")], namespace="n"),  # type: ignore[arg-type]
        lambda m: m.append(Turn("u", ""), namespace="n", session_id="s"),
        lambda m: m.append([], namespace="n", session_id="s"),
        lambda m: m.append(GOOD, namespace=" ", session_id="s"),
        lambda m: m.append(Turn("u", "x", NAIVE), namespace="n", session_id="s"),
        lambda m: m.replace_session([], namespace="n", session_id="s"),
        lambda m: m.replace_session(GOOD, namespace="n", session_id=None),
        lambda m: m.replace_session(GOOD, namespace="n", session_id="s", happened_at=NAIVE),
        lambda m: m.retrieve("", namespace="n"),
        lambda m: m.retrieve(" \n", namespace="n"),
        lambda m: m.retrieve(None, namespace="n"),
        lambda m: m.retrieve("x", namespace=""),
        lambda m: m.retrieve("x", namespace="n", top_k=0),
        lambda m: m.retrieve("x", namespace="n", top_k=-3),
        lambda m: m.retrieve("x", namespace="n", top_k=2.5),
        lambda m: m.retrieve("x", namespace="n", since=NAIVE),
        lambda m: m.retrieve("x", namespace="n", until="today"),
        lambda m: m.retrieve("x", namespace="n", min_score=2),
        lambda m: m.retrieve("x", namespace="n", where={"a": {"$in": [1]}}),
        lambda m: m.retrieve("x", namespace="n", where="a"),
        lambda m: m.retrieve("x", namespace="n", granularities=["word"]),
        lambda m: m.retrieve("x", namespace="n", granularities="turn"),
        lambda m: m.retrieve("x", namespace="n", exclude_sessions="s"),
        lambda m: m.retrieve("x", namespace="n", exclude_turns=["s"]),
        lambda m: m.retrieve("x", namespace="n", kind="note"),
        lambda m: m.retrieve("x", namespace="n", query_vector=[1.0]),
        lambda m: m.retrieve("x", namespace="n", query_vector=[float("nan")] * 64),
        lambda m: m.retrieve("x", namespace="n", query_vector="x"),
        lambda m: m.list_sessions(namespace="n", kind="note"),
        lambda m: m.list_sessions(namespace="n", since=NAIVE),
        lambda m: m.list_sessions(namespace="n", where={1: 2}),
        lambda m: m.list_sessions(namespace=""),
        lambda m: m.get("", namespace="n"),
        lambda m: m.get("s", namespace=""),
        lambda m: m.graph(""),
        lambda m: m.stats(""),
        lambda m: m.digest_pending(namespace=""),
        lambda m: m.close_session("s", namespace=""),
        lambda m: m.delete_turn("s", 0, namespace=""),
        lambda m: m.delete_session("", namespace="n"),
        lambda m: m.delete_conversation("", namespace="n"),
        lambda m: m.export_jsonl("x", namespace=""),
        lambda m: m.import_jsonl([], namespace=""),
        lambda m: m.retrieve("x", namespace="n").context(max_tokens=0),
    ],
)
def test_refused(memory: MemGAS, call: Call) -> None:
    """The call raises InvalidInputError, which is a ValueError too, and everything is as before."""
    before, n_texts, head = memory.get("s", namespace="n"), memory.embedder.n_texts, memory._workspace.store.head("n")
    with pytest.raises(InvalidInputError) as caught:
        call(memory)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, MemGASError)
    assert len(str(caught.value)) > 20
    assert (memory.get("s", namespace="n"), memory._workspace.store.head("n")) == (before, head)
    assert memory.namespaces() == ["n"]
    assert memory.embedder.n_texts - n_texts <= 1  # the last one asks before it counts
    assert memory.check() == []


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.get("t", namespace="n"),
        lambda m: m.get("s", namespace="m"),
        lambda m: m.close_session("t", namespace="n"),
        lambda m: m.delete_session("t", namespace="n"),
        lambda m: m.delete_turn("t", 0, namespace="n"),
        lambda m: m.delete_turn("s", 7, namespace="n"),
        lambda m: m.delete_turn("s", 0, namespace="m"),
    ],
)
def test_not_found(memory: MemGAS, call: Call) -> None:
    """What is not there is a NotFoundError, which is a LookupError; no namespace comes into being by asking."""
    with pytest.raises(NotFoundError) as caught:
        call(memory)
    assert isinstance(caught.value, LookupError)
    assert memory.namespaces() == ["n"]


@pytest.mark.parametrize(
    "given", [{}, {"path": "x", "store": InMemoryStore()}, {"store": InMemoryStore(), "client": 5}]
)
def test_where_to_keep(given: dict[str, object]) -> None:
    """Exactly one of path, client and store is needed, and the message tells of both ways to begin."""
    with pytest.raises(InvalidInputError, match=r"exactly one.*in_memory"):
        MemGAS(embedder=HashEmbedder(), **given)  # type: ignore[arg-type]


def test_a_clock_without_zone() -> None:
    """A clock that tells no zone is refused at the first write, and nothing is written."""
    with MemGAS.in_memory(embedder=HashEmbedder(), clock=lambda: NAIVE) as memory:
        with pytest.raises(InvalidInputError, match="clock"):
            memory.add(GOOD, namespace="n")
        assert memory.namespaces() == []


def test_hostile_metadata(memory: MemGAS) -> None:
    """Metadata that holds itself, is very deep or very large a number is refused; odd but plain JSON comes back."""
    loop: list[object] = []
    loop.append(loop)
    for bad in (loop, 10**5_000, {"a\x00": 1, "a ": 2}):
        with pytest.raises(InvalidInputError, match="metadata"):
            memory.add(GOOD, namespace="n", metadata=bad)  # type: ignore[arg-type]
    odd: JSON = {"": "", "$gt": 1, "é": [[], {}], "n": 2**70, "f": 1e300}
    memory.add(GOOD, namespace="n", session_id="odd", metadata=odd)
    assert memory.get("odd", namespace="n").metadata == odd
    assert memory.list_sessions(namespace="n", where={"n": {"$gt": 1}})[0].session_id == "odd"


def test_times_at_the_ends_of_the_calendar(memory: MemGAS) -> None:
    """The first and the last moment that Python knows can be stored, filtered by and exported."""
    for name, moment in (("first", datetime.min), ("last", datetime.max)):
        memory.add([Turn("u", "the greyhound")], namespace="n", session_id=name, happened_at=moment.replace(tzinfo=UTC))
    found = memory.retrieve("greyhound", namespace="n", since=datetime.max.replace(tzinfo=UTC))
    assert [hit.session_id for hit in found.hits] == ["last"]
    assert found.context()
    assert (
        memory.retrieve("greyhound", namespace="n", until=datetime.min.replace(tzinfo=UTC)).hits[0].session_id
        == "first"
    )


def test_the_papers_units_are_not_kept_on_disk() -> None:
    """The published code's configuration is refused for a folder, before anything is made there."""
    from memgas import MemGASConfig

    with pytest.raises(InvalidConfigError, match="in_memory"):
        MemGAS("never-made", embedder=HashEmbedder(), config=MemGASConfig.paper())
