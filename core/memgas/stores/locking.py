"""Who may pass: one process a folder, many calls at once, one call alone."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import IO

from memgas.errors import StoreError, StoreLockedError

SPARE_BYTES = 24_000_000
"""Room that a write leaves: for a rollback journal, and for an index that grows by a fifth."""
DELETING_BYTES = SPARE_BYTES // 4
"""Room that a deletion leaves, so that on a disk with no room for more words some can still be deleted."""

_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


class FolderLock:
    """Holds a folder for this process, until `release` or the end of the process, however it ends.

    Attributes
    ----------
    was_abandoned
        The last holder did not release it: it was killed, perhaps in the middle of something.

    Raises
    ------
    StoreLockedError
        Somebody holds it already.
    StoreError
        This system has no such lock.
    """

    def __init__(self, root: Path) -> None:
        file = _lock(root)
        file.seek(0)
        self.was_abandoned = bool(file.read(1))
        file.seek(0)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file: IO[str] | None = file
        _held.add(self)

    def release(self) -> None:
        """Let others have the folder. Twice is fine."""
        if self._file is not None:
            import fcntl

            self._file.truncate(0)
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self.drop()

    def drop(self) -> None:
        """Close the file without unlocking: in a forked child, where the lock is the parent's."""
        if self._file is not None:
            self._file.close()
            self._file = None


def check_room(root: Path, n_bytes: int, *, spare: int) -> None:
    """Raise StoreError unless a folder has room for some bytes, and `spare` for what a database needs beside them.

    Refused before anything is written, a full disk harms nothing: Chroma, which finishes writes when it reads, could not
    read a collection that a write was cut off in.
    """
    try:
        import resource
    except ImportError:
        return
    disk = os.statvfs(root)
    free = disk.f_bavail * disk.f_frsize
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest != resource.RLIM_INFINITY:
        files = (root / "chroma.sqlite3", root / "chroma.sqlite3-wal")
        free = min(free, largest - max((file.stat().st_size for file in files if file.exists()), default=0))
    if free < spare + 4 * n_bytes:
        raise StoreError(
            f"{root} has room for {max(free, 0) / 1e6:.0f} MB more, and {(spare + 4 * n_bytes) / 1e6:.0f} MB are "
            "needed to write safely: make room and write again. Nothing was written; what is there can be read and deleted"
        )


def _lock(root: Path) -> IO[str]:
    """Lock a folder; what its lock file says is left in it."""
    try:
        import fcntl
    except ImportError:
        raise StoreError(
            "a store on disk needs Linux or macOS: here, use InMemoryStore, or a Chroma server through ChromaStore.connect"
        ) from None
    file = (root / ".memgas.lock").open("a+", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read(20).strip()
        file.close()
        where = "in this process already: share that store" if holder == str(os.getpid()) else (
            f"in another process (pid {holder or 'unknown'}): share it with `chroma run --path {root}` "
            "and ChromaStore.connect, for two processes on one folder lose vectors"
        )  # fmt: skip
        raise StoreLockedError(f"{root} is open {where}") from None
    return file


def _forget_in_child() -> None:
    """Let go of the parent's locks, which would else outlive the parent in its child."""
    for lock in list(_held):
        lock.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


class Gate:
    """Calls pass together; one that needs the place for itself waits until they are out, and keeps new ones out."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._n_inside = 0
        self._n_alone = 0
        self._is_alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Be inside with others. Never enter twice: a call that waits to be alone would lock both."""
        with self._changed:
            self._changed.wait_for(lambda: not self._n_alone)
            self._n_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be inside alone."""
        with self._changed:
            self._n_alone += 1
            try:
                self._changed.wait_for(lambda: not (self._n_inside or self._is_alone))
            except BaseException:  # interrupted while waiting: let the others in again
                self._leave()
                raise
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._leave()

    def _leave(self) -> None:
        """Stop keeping others out."""
        self._n_alone -= 1
        self._changed.notify_all()
