"""Threads, event loops, cancellation: everything mixed, nothing lost, the loop stays free."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from memgas import MemGAS, NewSession, Turn
from memgas.errors import NotFoundError
from memgas.testing import HashEmbedder
from tests.robustness.conftest import Figure
from tests.robustness.scale import scaled

pytestmark = pytest.mark.slow

N_THREADS = scaled(8, 32)
N_COROUTINES = scaled(60, 200)
N_EACH = scaled(8, 20)


class OneAtATime(HashEmbedder):
    """Does not say that two threads may call it, and notices when they do; and when the event loop's thread does."""

    is_thread_safe = False

    def __init__(self, *, seconds: float = 0.0) -> None:
        super().__init__()
        self.forbidden: set[int] = set()
        self.n_intrusions = 0
        self.seconds = seconds
        self._busy = threading.Lock()

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed; count whoever is here at the same time."""
        return self._alone(lambda: super(OneAtATime, self).embed_documents(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed; count whoever is here at the same time."""
        return self._alone(lambda: super(OneAtATime, self).embed_query(text))

    def _alone(self, call: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
        self.n_intrusions += threading.get_ident() in self.forbidden
        if not self._busy.acquire(blocking=False):
            self.n_intrusions += 1
            return call()
        try:
            time.sleep(self.seconds)
            return call()
        finally:
            self._busy.release()


def talk(who: int, n: int) -> list[Turn]:
    """Return a session's turns."""
    return [Turn("user", f"worker {who} says {n} about the boat"), Turn("assistant", f"noted {who} {n}")]


def live(memory: MemGAS, who: int) -> set[tuple[str, str]]:
    """Do a share of everything; return what must be there at the end."""
    dice = random.Random(who)
    namespace = f"n{who % 4}"
    kept: set[tuple[str, str]] = set()
    for n in range(N_EACH):
        session_id = f"{who}-{n}"
        if dice.random() < 0.5:
            memory.add(talk(who, n), namespace=namespace, session_id=session_id)
        else:
            for turn in talk(who, n):
                memory.append(turn, namespace=namespace, session_id=session_id)
        kept.add((namespace, session_id))
        hits = memory.retrieve(f"worker {who} says {n}", namespace=namespace, top_k=100).hits
        assert all(0 <= hit.score <= 1 for hit in hits)
        if dice.random() < 0.3:
            _, gone = dice.choice(sorted(kept))
            memory.delete_session(gone, namespace=namespace)
            kept.discard((namespace, gone))
            with pytest.raises(NotFoundError):
                memory.get(gone, namespace=namespace)
    return kept


def check(memory: MemGAS, kept: set[tuple[str, str]]) -> None:
    """Check that what must be there is there, and nothing else."""
    found = {
        (namespace, record.session_id)
        for namespace in memory.namespaces()
        for record in memory.list_sessions(namespace=namespace)
    }
    assert found == kept
    for namespace, session_id in kept:
        who, n = map(int, session_id.split("-"))
        assert memory.get(session_id, namespace=namespace).turns == tuple(talk(who, n))
    assert memory.check() == []


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "disk"])
def test_threads(tmp_path: Path, is_on_disk: bool, figure: Figure) -> None:
    """Threads that add, append, search and delete lose nothing, and an embedder for one thread meets only one."""
    embedder = OneAtATime()
    with MemGAS(tmp_path, embedder=embedder) if is_on_disk else MemGAS.in_memory(embedder=embedder) as memory:
        with ThreadPoolExecutor(N_THREADS) as pool:
            kept = set().union(*pool.map(lambda who: live(memory, who), range(N_THREADS)))
        check(memory, kept)
    assert embedder.n_intrusions == 0
    figure("threads at once, 0 sessions lost", N_THREADS)
    figure("sessions kept by threads and coroutines", len(kept))


async def alive(memory: MemGAS, who: int) -> set[tuple[str, str]]:
    """Do a share of everything as a coroutine; some of it is cancelled, and is there wholly or not at all."""
    dice = random.Random(who)
    namespace, session_id = f"n{who % 4}", f"{who}-0"
    adding = asyncio.ensure_future(memory.aadd(talk(who, 0), namespace=namespace, session_id=session_id))
    if who % 5 == 0:
        await asyncio.sleep(dice.uniform(0, 0.05))
        adding.cancel()
    await asyncio.gather(adding, return_exceptions=True)
    await memory.aretrieve(f"worker {who}", namespace=namespace)
    if who % 7 == 3 and not adding.cancelled():
        await memory.adelete_session(session_id, namespace=namespace)
        return set()
    return set() if adding.cancelled() else {(namespace, session_id)}


def test_coroutines(tmp_path: Path, figure: Figure) -> None:
    """Coroutines in one loop, then in another on the same object: no core call on the loop's thread, all or nothing."""
    embedder = OneAtATime()
    embedder.forbidden.add(threading.get_ident())

    async def crowd(memory: MemGAS, first: int) -> set[tuple[str, str]]:
        shares = await asyncio.gather(*(alive(memory, first + n) for n in range(N_COROUTINES)))
        return set().union(*shares)

    async def opened() -> MemGAS:
        return await asyncio.to_thread(MemGAS, tmp_path, embedder=embedder)

    memory = asyncio.run(opened())
    kept = asyncio.run(crowd(memory, 0)) | asyncio.run(crowd(memory, N_COROUTINES))
    memory._workspace.pool.submit(lambda: None).result()
    asyncio.run(memory.aclose())
    embedder.forbidden.clear()
    with MemGAS(tmp_path, embedder=embedder) as memory:
        listed = {(f"n{n}", r.session_id) for n in range(4) for r in memory.list_sessions(namespace=f"n{n}")}
        assert kept <= listed  # a cancelled add may have been done: then it was done wholly
        check(memory, listed)
    assert embedder.n_intrusions == 0
    figure("coroutines at once, 0 sessions lost", N_COROUTINES)
    figure("sessions kept by threads and coroutines", len(listed))


def lateness(busy: Callable[[int], object], n_beats: int, every_tenth: Callable[[], Awaitable[object]]) -> float:
    """Return by how many seconds an event loop is late, p99, while two threads call something without a pause."""
    late: list[float] = []
    stop = threading.Event()

    def keep_busy(who: int) -> None:
        while not stop.is_set():
            busy(who)

    async def heartbeat() -> None:
        for _ in range(n_beats):
            began = time.perf_counter()
            await asyncio.sleep(0.01)
            late.append(time.perf_counter() - began - 0.01)
            if len(late) % 10 == 0:
                await every_tenth()

    threads = [threading.Thread(target=keep_busy, args=(who,)) for who in (1, 2)]
    for thread in threads:
        thread.start()
    try:
        asyncio.run(heartbeat())
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return float(np.percentile(late, 99))


def test_the_loop_stays_free(tmp_path: Path, figure: Figure) -> None:
    """While two threads write and search without a pause, the event loop is late by less than 100 ms in 99 of 100 cases.

    In the best of some rounds, for whatever else the machine does comes on top. On one that is slow by itself the measure is
    twice how late two threads of plain arithmetic make the loop, and how long its disk takes to take in a page: Chroma
    holds the interpreter's lock while it waits for that.
    """
    interval = sys.getswitchinterval()
    numbers = count()
    n_beats = scaled(100, 200)
    with MemGAS(tmp_path / "memory", embedder=HashEmbedder()) as memory:
        memory.add_many([NewSession(talk(0, n) * 4, f"s{n}") for n in range(scaled(40, 200))], namespace="n")

        def live_on(who: int) -> None:
            n = next(numbers)
            memory.add(talk(who, n), namespace=f"b{who}", session_id=f"s{n}")
            memory.retrieve(f"worker {who} boat", namespace="n")

        for _ in range(6):
            late = lateness(live_on, n_beats, lambda: memory.aretrieve("worker boat", namespace="n"))
            disk = Disk(tmp_path)
            bare = lateness(disk.count_and_write, n_beats, lambda: asyncio.to_thread(_count_up))
            allowed = max(0.1, 2 * (bare + disk.slowest()))
            if late < allowed:
                break
    assert sys.getswitchinterval() == interval
    assert late < allowed, (
        f"{late:.3f} s late; {bare:.3f} s with plain arithmetic; the disk takes {disk.slowest():.3f} s"
    )
    figure("most milliseconds that the event loop was late, p99, with two busy threads", round(late * 1e3, 1))
    figure("most milliseconds so under two threads of plain arithmetic", round(bare * 1e3, 1))
    figure("most milliseconds that the disk took for a page meanwhile, p99", round(disk.slowest() * 1e3, 1))


class Disk:
    """Writes pages between pieces of plain arithmetic, and measures how long each takes to be on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seconds: list[float] = []

    def count_and_write(self, who: int) -> None:
        """Count up, then write a page."""
        _count_up()
        with (self._folder / f"page{who}").open("wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            self._seconds.append(time.perf_counter() - began)

    def slowest(self) -> float:
        """Return the 99th percentile of the seconds."""
        return float(np.percentile(self._seconds, 99))


def _count_up() -> int:
    return sum(range(50_000))
