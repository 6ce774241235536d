"""What everything that opened one store shares in this process: the store, its mirrors, their locks, the threads."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from memgas import index as mirror
from memgas.errors import ClosedError
from memgas.index import NamespaceIndex
from memgas.protocols import Store
from memgas.types import Batch, Head, MemoryUnit

_CLOSED = "this memory is closed; open it again with MemGAS(...)"
_log = logging.getLogger("memgas")


@dataclass(slots=True)
class _Entry:
    """One namespace's mirror and its locks.

    Attributes
    ----------
    is_touched
        The present writer has changed the mirror, or has begun to write to the store.
    users
        How many are inside: the entry is not dropped under them.
    """

    index: NamespaceIndex | None = None
    is_touched: bool = False
    users: int = 0
    writer: threading.RLock = field(default_factory=threading.RLock)
    guard: threading.RLock = field(default_factory=threading.RLock)


class Workspace:
    """A store with its mirrors, shared and reference-counted.

    Parameters
    ----------
    store
        Owned from here on: closed with the last handle.
    n_dims
        Width of the vectors.
    k1, b
        Of BM25.
    n_cached
        Most namespaces held at once.
    n_threads
        Threads of `pool`.

    Notes
    -----
    Two locks a namespace: `writer` is held through a whole write, `guard` for the moments in which the mirror is read
    or changed. A reader never waits for a model, and for the disk only while rows that it may know are deleted.
    """

    def __init__(self, store: Store, n_dims: int, *, k1: float, b: float, n_cached: int, n_threads: int) -> None:
        self.store = store
        self.n_dims = n_dims
        self._k1, self._b, self._n_cached = k1, b, n_cached
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._handles = 0
        self._is_closed = False
        self._digesters = ThreadPoolExecutor(1, "memgas-digest")
        self._jobs: set[Future[object]] = set()
        self.pool = ThreadPoolExecutor(n_threads, "memgas")

    # handles

    def acquire(self) -> None:
        """Count one more handle."""
        self._handles += 1

    def release(self) -> bool:
        """Count one handle less; with the last one finish the digests and close the store. Tell whether it was that."""
        self._handles -= 1
        if self._handles:
            return False
        self.drain()
        with self._lock:
            self._is_closed = True
        self._digesters.shutdown()
        self.pool.shutdown(wait=False)
        self._entries.clear()
        self.store.close()
        return True

    # mirrors

    @contextmanager
    def reading(self, namespace: str) -> Iterator[NamespaceIndex]:
        """Hold the namespace's mirror, up to date, while it is read."""
        with self._inside(namespace) as entry, entry.guard:
            yield self._fresh(namespace, entry)

    @contextmanager
    def writing(self, namespace: str) -> Iterator[NamespaceIndex]:
        """Be the only writer of the namespace. The mirror may be read meanwhile.

        When a write fails half way, the mirror is dropped, to be read again from the store. What is refused before
        anything was written costs nothing.
        """
        with self._inside(namespace) as entry, entry.writer:
            with entry.guard:
                index = self._fresh(namespace, entry)
            entry.is_touched = False
            is_done = False
            try:
                yield index
                is_done = True
            finally:
                if (entry.is_touched and not is_done) or _is_mostly_dead(index):
                    with entry.guard:
                        entry.index = None

    def stage(self, index: NamespaceIndex, batch: Batch) -> None:
        """Take new sessions into the mirror before they are stored; within `writing`, and followed by `publish`."""
        with self._inside(index.namespace) as entry, entry.guard:
            entry.is_touched = True
            index.stage(batch)

    def publish(self, index: NamespaceIndex, batch: Batch) -> None:
        """Store what was staged, then show it."""
        with self._inside(index.namespace) as entry:
            self.store.put(batch)
            with entry.guard:
                index.publish(batch.head)

    def commit(self, index: NamespaceIndex, batch: Batch) -> None:
        """Store a batch, then show it; within `writing`."""
        with self._inside(index.namespace) as entry:
            entry.is_touched = True
            # Who reads by the mirror must not find rows gone that it still names.
            with entry.guard if batch.obsolete else nullcontext():
                self.store.put(batch)
                with entry.guard:
                    index.apply(batch)

    def keep_words(self, index: NamespaceIndex, head: Head | None, units: Sequence[MemoryUnit]) -> None:
        """Hold units that were fetched while a mirror was at a head; once either has changed they may be stale."""
        with self._inside(index.namespace) as entry, entry.guard:
            if entry.index is index and index.head == head:
                index.words.keep(units)

    def forget(self, namespace: str) -> None:
        """Delete a namespace from the store and from memory."""
        with self._inside(namespace) as entry, entry.writer, entry.guard:
            entry.index = None
            self.store.delete(namespace)

    def drop_mirrors(self) -> None:
        """Read every namespace again at its next use: the store was changed past the mirrors."""
        with self._lock:
            entries = list(self._entries.values())
        for entry in entries:
            with entry.guard:
                entry.index = None

    @contextmanager
    def _inside(self, namespace: str) -> Iterator[_Entry]:
        with self._lock:
            if self._is_closed:
                raise ClosedError(_CLOSED)
            entry = self._entries.setdefault(namespace, _Entry())
            self._entries.move_to_end(namespace)
            entry.users += 1
        try:
            yield entry
        finally:
            with self._lock:
                entry.users -= 1
                self._evict()

    def _evict(self) -> None:
        n_spare = len(self._entries) - self._n_cached
        idle = [namespace for namespace, entry in self._entries.items() if not entry.users]
        for namespace in idle[: max(n_spare, 0)]:
            del self._entries[namespace]

    def _fresh(self, namespace: str, entry: _Entry) -> NamespaceIndex:
        """Return the mirror as the store is now: loaded, or brought up to date by what changed."""
        index, entry.index = entry.index, None  # a delta that is cut off must not be taken for whole
        if index is not None and not self.store.is_exclusive:
            head = self.store.head(namespace)
            if head != index.head:
                same_life = head is not None and index.head is not None and head.epoch == index.head.epoch
                if same_life and index.head is not None:
                    for batch in self.store.load(namespace, since=index.head.revision):
                        index.apply(batch)
                else:
                    index = None
        if index is None:
            batches = self.store.load(namespace)
            index = mirror.load(namespace, self.n_dims, batches, k1=self._k1, b=self._b)
        entry.index = index
        return index

    # the digests that follow a call

    def later(self, job: Callable[[], object]) -> None:
        """Run a job in the background, one at a time."""
        with self._lock:
            if self._is_closed:
                raise ClosedError(_CLOSED)
            future = self._digesters.submit(job)
            self._jobs.add(future)
        future.add_done_callback(self._finished)

    def _finished(self, future: Future[object]) -> None:
        self._jobs.discard(future)
        if (error := future.exception()) is not None:
            _log.error("a background digest failed", exc_info=error)

    def drain(self) -> None:
        """Wait until no job is left."""
        while jobs := list(self._jobs):
            wait(jobs)


def _is_mostly_dead(index: NamespaceIndex) -> bool:
    """Tell whether a mirror wastes so much that reading it again is worth while."""
    return index.n_dead > max(4096, index.n_nodes // 2)


_open: dict[Hashable, Workspace] = {}
_private: WeakValueDictionary[Hashable, Workspace] = WeakValueDictionary()
_open_lock = threading.Lock()


def share(key: Hashable, make: Callable[[], Workspace], *, is_private: bool) -> Workspace:
    """Return the workspace that is open under a key, made if there is none; release it with `unshare`.

    Parameters
    ----------
    key
        What names it.
    make
        Makes it.
    is_private
        Its store was handed in, and goes with whoever holds it. Else it holds files or connections, which only closing
        gives back: it is kept until then.
    """
    opened: MutableMapping[Hashable, Workspace] = _private if is_private else _open
    with _open_lock:
        workspace = opened.get(key)
        if workspace is None:
            workspace = opened[key] = make()
        workspace.acquire()
        return workspace


def unshare(key: Hashable, workspace: Workspace) -> None:
    """Give a shared workspace back."""
    with _open_lock:
        if workspace.release():
            _open.pop(key, None)
            _private.pop(key, None)


def is_open(key: Hashable) -> bool:
    """Tell whether anything in this process has it open."""
    with _open_lock:
        return key in _open
