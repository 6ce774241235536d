"""The async twins and many threads: the same calls, off the event loop's thread; nothing is lost, nothing half done."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from memgas import MemGAS, NewSession, Turn
from memgas.errors import ClosedError, NotFoundError
from memgas.testing import HashEmbedder, ScriptedLLM

SYNC_ONLY = {"in_memory"}
SUBJECTS = ("greyhounds", "tea", "piano lessons", "rye bread", "bees", "old boats", "walnut trees")


class Watched(HashEmbedder):
    """Knows which threads called it, and holds them until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()
        self.go_on = threading.Event()
        self.go_on.set()
        self.was_called = threading.Event()

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:  # noqa: D102
        self.threads.add(threading.get_ident())
        self.was_called.set()
        assert self.go_on.wait(120)
        return super().embed_documents(texts)


def _turns(number: int) -> list[Turn]:
    subject = SUBJECTS[number % 7]
    return [Turn("user", f"About {subject}, number {number}."), Turn("assistant", f"{subject} then.")]


def _public() -> list[str]:
    return [
        name
        for name, member in vars(MemGAS).items()
        if not name.startswith("_") and inspect.isfunction(member) and not inspect.iscoroutinefunction(member)
    ]


@pytest.mark.parametrize("name", sorted(set(_public()) - SYNC_ONLY))
def test_every_method_has_a_twin(name: str) -> None:
    """Each public method has an async one with an `a` in front, with the same parameters."""
    twin = getattr(MemGAS, f"a{name}")
    assert inspect.iscoroutinefunction(twin)
    assert twin.__name__ == f"a{name}"
    assert list(inspect.signature(twin).parameters) == list(inspect.signature(getattr(MemGAS, name)).parameters)
    assert twin.__doc__


async def test_the_twins_do_what_the_methods_do() -> None:
    """A dialogue kept, found, listed and forgotten through the twins alone, never on the event loop's thread."""
    embedder = Watched()
    async with MemGAS.in_memory(embedder=embedder) as memory:
        await memory.aadd(_turns(0), namespace="n", session_id="a")
        await memory.aadd_many([NewSession(_turns(i), f"s{i}") for i in range(3)], namespace="n")
        await memory.aappend(_turns(4), namespace="n", conversation_id="thread")
        await memory.aclose_session("thread", namespace="n")
        assert (await memory.aretrieve("greyhounds", namespace="n")).hits
        assert len(await memory.alist_sessions(namespace="n")) == 5
        assert (await memory.aget("a", namespace="n")).turns == tuple(_turns(0))
        await memory.adelete_turn("a", 0, namespace="n")
        await memory.adelete_session("a", namespace="n")
        assert (await memory.astats("n")).n_sessions == 4
        with pytest.raises(NotFoundError):
            await memory.aget("a", namespace="n")
    assert threading.get_ident() not in embedder.threads
    with pytest.raises(ClosedError):
        await memory.aretrieve("x", namespace="n")


def test_two_event_loops() -> None:
    """One memory serves one event loop after another, and two at once in two threads."""
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        for number in range(2):
            asyncio.run(memory.aadd(_turns(number), namespace="n"))  # type: ignore[arg-type]

        def run(number: int) -> None:
            asyncio.run(memory.aadd(_turns(number), namespace="n"))  # type: ignore[arg-type]

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, range(2, 6)))
        assert memory.stats("n").n_sessions == 6


async def test_the_loop_goes_on_meanwhile() -> None:
    """While an add waits for its model, the event loop runs; a blocking call inside a running loop works too."""
    embedder = Watched()
    with MemGAS.in_memory(embedder=embedder) as memory:
        memory.add(_turns(0), namespace="n")
        embedder.go_on.clear()
        adding = asyncio.ensure_future(memory.aadd(_turns(1), namespace="n"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not adding.done()
        assert (await memory.aretrieve("greyhounds", namespace="n")).hits
        embedder.go_on.set()
        await adding
        assert memory.stats("n").n_sessions == 2


async def test_a_cancelled_add_is_all_or_nothing() -> None:
    """Cancelled while its model works, an add has stored all of the session in the end; one that had not begun, nothing."""
    embedder = Watched()
    with MemGAS.in_memory(embedder=embedder) as memory:
        memory.add(_turns(0), namespace="n")
        embedder.was_called.clear()
        embedder.go_on.clear()
        begun = asyncio.ensure_future(memory.aadd(_turns(1), namespace="n", session_id="begun"))
        await asyncio.to_thread(embedder.was_called.wait, 120)
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
        embedder.go_on.set()
        pool = memory._pool
        for _ in range(4):
            await asyncio.get_running_loop().run_in_executor(pool, lambda: None)
        with memory._workspace.writing("n"):
            pass
        assert memory.get("begun", namespace="n").turns == tuple(_turns(1))
        assert memory.check() == []


async def test_twenty_adds_at_once() -> None:
    """Twenty concurrent adds ask their language model side by side, and all are stored once."""
    meeting = threading.Barrier(4, timeout=120)

    def slow(prompt: str) -> str:
        meeting.wait()  # passes only if four are asked at the same time
        return '{"summary": "It was said.", "keywords": ["it"]}'

    with MemGAS.in_memory(embedder=HashEmbedder(), llm=ScriptedLLM(default=slow)) as memory:
        await asyncio.gather(*(memory.aadd(_turns(i), namespace="n", session_id=f"s{i}") for i in range(20)))
        stats = memory.stats("n")
        assert (stats.n_sessions, stats.n_pending, stats.n_turns) == (20, 0, 40)
        assert memory.check() == []


@pytest.mark.parametrize("namespaces", [("n",), ("n", "m", "o")])
def test_eight_threads(namespaces: Sequence[str]) -> None:
    """Eight threads that add, append, find, delete and list in one namespace or several: nothing lost, nothing doubled."""
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        name = namespaces[worker % len(namespaces)]
        try:
            for step in range(6):
                sid = f"{worker}-{step}"
                memory.add(_turns(worker + step), namespace=name, session_id=sid)
                memory.append(Turn("user", f"{sid} word"), namespace=name, conversation_id=f"thread-{worker}", at=step)
                for hit in memory.retrieve(SUBJECTS[step], namespace=name, top_k=3).hits:
                    assert hit.evidence or hit.summary
                if step % 3 == 2:
                    memory.delete_session(f"{worker}-{step - 1}", namespace=name)
                    memory.delete_turn(f"{worker}-{step}", 0, namespace=name)
                if step == 4:
                    memory.close_session(f"thread-{worker}", namespace=name)
                    memory.add(_turns(0), namespace=name, session_id=f"shared-{name}")
                assert len(memory.get(sid, namespace=name).turns) == 2
                memory.stats(name)
        except BaseException as error:
            errors.append(error)
            raise

    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert errors == []
        memory._workspace.drain()
        for position, name in enumerate(namespaces):
            workers = [w for w in range(8) if w % len(namespaces) == position]
            held = {s.session_id for s in memory.list_sessions(namespace=name)}
            kept = {f"{w}-{step}" for w in workers for step in (0, 2, 3, 5)}
            threads = {f"thread-{w}{tail}" for w in workers for tail in ("", "#2")}
            assert held == kept | threads | {f"shared-{name}"}
            for worker in workers:
                said = [
                    t.text for tail in ("", "#2") for t in memory.get(f"thread-{worker}{tail}", namespace=name).turns
                ]
                assert said == [f"{worker}-{step} word" for step in range(6)]
        assert memory.check() == []
        assert memory.stats().n_pending == 0


def test_readers_of_one_session_being_rewritten() -> None:
    """While a session is rewritten again and again, a reader sees one version of it whole, never a mixture or nothing."""
    stop = threading.Event()
    seen: set[str] = set()

    def read() -> None:
        while not stop.is_set():
            turns = memory.get("s", namespace="n").turns
            versions = {turn.text.split()[-1] for turn in turns}
            assert len(versions) == 1
            assert len(turns) == 4
            hits = memory.retrieve("greyhounds", namespace="n").hits
            assert [hit.session_id for hit in hits] == ["s"]
            assert len({e.turn.text.split()[-1] for e in hits[0].evidence}) == 1
            seen.update(versions)

    def version(number: int) -> list[Turn]:
        return [Turn("ua"[i % 2], f"greyhounds {i} v{number}") for i in range(4)]

    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        memory.add(version(0), namespace="n", session_id="s")
        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read) for _ in range(3)]
            for number in range(1, 25):
                memory.replace_session(version(number), namespace="n", session_id="s")
            stop.set()
            for reader in readers:
                reader.result(20)
    assert seen
