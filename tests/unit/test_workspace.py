"""What is shared in a process: one store, mirrors in an LRU, two locks a namespace, background jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from memgas import MemGAS, MemGASConfig, NewSession, Turn
from memgas.errors import ClosedError, SessionConflictError, StoreError
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder, ScriptedLLM
from memgas.types import Batch, Head
from memgas.workspace import Workspace

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Stubborn(InMemoryStore):
    """Refuses to write when told to, and counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses = False
        self.n_loads = 0
        self.n_closed = 0

    def put(self, batch: Batch) -> None:  # noqa: D102
        if self.refuses:
            raise StoreError("the disk is full")
        super().put(batch)

    def load(self, namespace: str, since: int | None = None) -> Iterator[Batch]:  # noqa: D102
        self.n_loads += 1
        return super().load(namespace, since)

    def close(self) -> None:  # noqa: D102
        self.n_closed += 1
        super().close()


class Shared(Stubborn):
    """May be written to by others."""

    breaks_off = False

    @property
    def is_exclusive(self) -> bool:  # noqa: D102
        return False

    def load(self, namespace: str, since: int | None = None) -> Iterator[Batch]:  # noqa: D102
        for batch in super().load(namespace, since):
            for record in batch.records:
                wanted = [unit for unit in batch.units if unit.session_id == record.session_id]
                rows = [batch.units.index(unit) for unit in wanted]
                yield Batch(
                    batch.head, [record], wanted, batch.vectors[rows], batch.window_owners, batch.windows,
                    {unit.id: batch.associations.get(unit.id, ()) for unit in wanted},
                )  # fmt: skip
                if self.breaks_off:
                    raise StoreError("the network is gone")


def _open(store: InMemoryStore, **settings: object) -> MemGAS:
    return MemGAS(store=store, embedder=HashEmbedder(), config=MemGASConfig(**settings))  # type: ignore[arg-type]


def _say(memory: MemGAS, text: str, session_id: str | None = None, namespace: str = "n") -> None:
    memory.add([Turn("user", text)], namespace=namespace, session_id=session_id)


def test_one_store_is_opened_once() -> None:
    """Handles on one store share it: what one writes the other finds at once; the last one to close closes it."""
    store = Stubborn()
    first, second = _open(store), _open(store)
    _say(first, "the greyhound")
    assert second.retrieve("greyhound", namespace="n").hits
    assert store.n_loads <= 1
    first.close()
    first.close()
    assert store.n_closed == 0
    with pytest.raises(ClosedError, match="open it again"):
        first.retrieve("greyhound", namespace="n")
    assert second.retrieve("greyhound", namespace="n").hits
    second.close()
    assert store.n_closed == 1


def test_every_call_after_close_says_so() -> None:
    """A closed memory refuses everything with one sentence, but for closing it again."""
    memory = _open(Stubborn())
    _say(memory, "tea", "s")
    memory.close()
    for call in (
        lambda: memory.add([Turn("u", "x")], namespace="n"),
        lambda: memory.append(Turn("u", "x"), namespace="n", session_id="s"),
        lambda: memory.retrieve("x", namespace="n"),
        lambda: memory.get("s", namespace="n"),
        lambda: memory.close_session("s", namespace="n"),
        lambda: memory.delete_turn("s", 0, namespace="n"),
        lambda: memory.delete_session("s", namespace="n"),
        lambda: memory.delete_namespace("n"),
        lambda: memory.list_sessions(namespace="n"),
        memory.digest_pending,
        lambda: memory.graph("n"),
        memory.namespaces,
        memory.stats,
        memory.erase,
        memory.check,
        memory.repair,
    ):
        with pytest.raises(ClosedError):
            call()


@pytest.mark.parametrize("write", ["add", "add_many", "append", "delete", "replace", "close"])
def test_a_write_that_fails_shows_nothing(write: str) -> None:
    """When the store refuses a write, what is found is as before, and the same write works later."""
    store = Stubborn()
    memory = _open(store)
    memory.append([Turn("user", "the greyhound Juno"), Turn("assistant", "ah")], namespace="n", session_id="open")
    _say(memory, "the old boat", "s")
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: _say(memory, "a walnut tree", "new"),
        "add_many": lambda: memory.add_many(
            [NewSession([Turn("user", f"a walnut tree {i}")], f"many{i}") for i in range(3)], namespace="n"
        ),
        "append": lambda: memory.append(Turn("user", "a walnut tree"), namespace="n", session_id="open"),
        "delete": lambda: memory.delete_session("s", namespace="n"),
        "replace": lambda: memory.replace_session([Turn("user", "a walnut tree")], namespace="n", session_id="s"),
        "close": lambda: memory.close_session("open", namespace="n"),
    }
    told = _told(memory)
    store.refuses = True
    with pytest.raises(StoreError, match="disk is full"):
        calls[write]()
    assert _told(memory) == told
    store.refuses = False
    calls[write]()
    memory._workspace.drain()
    assert _told(memory) != told
    if write not in ("delete", "close"):
        assert "walnut" in repr(memory.retrieve("walnut", namespace="n").hits)
    memory.close()


def _told(memory: MemGAS) -> object:
    sessions = memory.list_sessions(namespace="n")
    found = [memory.retrieve(query, namespace="n").hits for query in ("greyhound", "boat", "walnut")]
    return sessions, [memory.get(s.session_id, namespace="n") for s in sessions], found, memory.stats("n")


def test_a_refusal_keeps_the_mirror() -> None:
    """A conflict, noticed before anything was written, does not make the next call read the store again."""
    store = Stubborn()
    memory = _open(store)
    _say(memory, "the greyhound", "s")
    n_loads = store.n_loads
    with pytest.raises(SessionConflictError):
        _say(memory, "another", "s")
    assert memory.retrieve("greyhound", namespace="n").hits
    assert store.n_loads == n_loads
    memory.close()


def test_least_recently_used_mirrors_go() -> None:
    """No more namespaces than set are held; one that was dropped is read again and finds the same."""
    store = Stubborn()
    memory = _open(store, n_cached_namespaces=2)
    for name in "abc":
        _say(memory, f"the greyhound of {name}", namespace=name)
    assert list(memory._workspace._entries) == ["b", "c"]
    n_loads = store.n_loads
    assert memory.retrieve("greyhound", namespace="b").hits
    assert store.n_loads == n_loads
    assert memory.retrieve("greyhound", namespace="a").hits[0].evidence[0].turn.text == "the greyhound of a"
    assert store.n_loads == n_loads + 1
    assert list(memory._workspace._entries) == ["b", "a"]
    memory.close()


def test_a_namespace_in_use_is_not_dropped() -> None:
    """A mirror somebody is inside of stays, whatever else is opened meanwhile."""
    memory = _open(Stubborn(), n_cached_namespaces=1)
    _say(memory, "the greyhound")
    workspace = memory._workspace
    with workspace.reading("n") as index:
        _say(memory, "other", namespace="m")
        with workspace.reading("n") as again:
            assert again is index
    memory.close()


def test_a_reader_does_not_wait_for_a_writer() -> None:
    """While a writer is inside and waits for a model, others read; another writer of the namespace waits."""
    memory = _open(Stubborn())
    _say(memory, "the greyhound")
    workspace = memory._workspace
    wrote = threading.Event()

    def write() -> None:
        _say(memory, "the second")
        wrote.set()

    with ThreadPoolExecutor(2) as pool:
        with workspace.writing("n"):
            assert pool.submit(memory.retrieve, "greyhound", namespace="n").result(120).hits
            pool.submit(_say, memory, "elsewhere", None, "m").result(120)
            waiting = pool.submit(write)
            assert not wrote.wait(0.05)
        waiting.result(120)
    assert memory.stats("n").n_sessions == 2
    memory.close()


def test_what_others_wrote_is_read() -> None:
    """On a store that others write to, each call looks first; changes come as a delta, a new life as a whole."""
    store = Shared()
    here, there = _open(store), Workspace(store, 64, k1=1.2, b=0.75, n_cached=4, n_threads=1)
    _say(here, "the greyhound", "a")
    with there.reading("n") as index:
        assert set(index.sessions) == {"a"}
    _say(here, "the boat", "b")
    here.delete_session("a", namespace="n")
    with there.reading("n") as again:
        assert again is index
        assert set(index.sessions) == {"b"}
    here.delete_namespace("n")
    with there.reading("n") as empty:
        assert empty is not index
        assert empty.sessions == {}
    _say(here, "the walnut", "c")
    with there.reading("n") as born:
        assert set(born.sessions) == {"c"}
    here.close()


def test_a_delta_that_breaks_off() -> None:
    """A delta of which only the first page came is not taken for the whole: the next call has all of it."""
    store = Shared()
    here, there = _open(store), Workspace(store, 64, k1=1.2, b=0.75, n_cached=4, n_threads=1)
    _say(here, "the greyhound", "a")
    with there.reading("n"):
        pass
    _say(here, "the boat", "b")
    _say(here, "the walnut", "c")
    store.breaks_off = True
    with pytest.raises(StoreError, match="network"), there.reading("n"):
        pass
    store.breaks_off = False
    with there.reading("n") as index:
        assert set(index.sessions) == {"a", "b", "c"}
    here.close()


def test_a_session_being_written_is_not_there() -> None:
    """Between staging and storing, a session is in no answer at all: not found, listed, got, counted or drawn."""
    seen: list[object] = []

    class Watched(InMemoryStore):
        def put(self, batch: Batch) -> None:
            seen.append(_look(memory))
            super().put(batch)

    memory = _open(Watched())
    _say(memory, "the greyhound", "a")
    before = _look(memory)
    _say(memory, "the greyhound again", "b")
    assert seen[1] == before
    assert seen[0] == ([], 0, [], 0, None)
    assert _look(memory) != before
    memory.close()


def _look(memory: MemGAS) -> object:
    try:
        got: object = memory.get("b", namespace="n")
    except LookupError:
        got = None
    hits = [hit.session_id for hit in memory.retrieve("greyhound", namespace="n").hits]
    listed = [s.session_id for s in memory.list_sessions(namespace="n")]
    return hits, memory.stats("n").n_turns, listed, len(memory.graph("n")), got


def test_close_waits_for_background_jobs() -> None:
    """`close` of any handle finishes the digests that are due, and one that fails in an unforeseen way is logged."""
    store = Stubborn()
    llm = ScriptedLLM(default='{"summary": "x", "keywords": []}')
    memory = MemGAS(store=store, embedder=HashEmbedder(), llm=llm)
    keeper = _open(store)
    for number in range(5):
        memory.append(Turn("user", f"number {number}"), namespace="n", session_id=f"s{number}")
        memory.close_session(f"s{number}", namespace="n")
    memory.close()
    assert len(llm.prompts) == 5
    assert keeper.stats("n").n_pending == 0
    keeper.close()


def test_a_job_that_fails_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A background job that raises is logged, and the next one runs."""
    workspace = Workspace(InMemoryStore(), 4, k1=1.2, b=0.75, n_cached=4, n_threads=1)
    workspace.acquire()
    done: list[int] = []
    workspace.later(lambda: 1 / 0)
    workspace.later(lambda: done.append(1))
    workspace.drain()
    assert done == [1]
    assert "ZeroDivisionError" in caplog.text
    workspace.release()
    with pytest.raises(ClosedError):
        workspace.later(lambda: None)
    with pytest.raises(ClosedError), workspace.reading("n"):
        pass


def test_a_new_life_begins_at_one() -> None:
    """A namespace that was deleted and begun again has another epoch, and its numbers begin anew."""
    memory = _open(Stubborn())
    _say(memory, "tea")
    first = memory._workspace.store.head("n")
    memory.delete_namespace("n")
    assert memory._workspace.store.head("n") is None
    _say(memory, "tea")
    second = memory._workspace.store.head("n")
    assert isinstance(first, Head)
    assert isinstance(second, Head)
    assert first.epoch != second.epoch
    assert (second.revision, second.next_number) == (1, 1)
    memory.close()
