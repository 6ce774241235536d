"""Look at Chroma's vector index files before Chroma does: opening a torn one crashes, or fills the disk.

Each collection's index is a folder named by a UUID, beside `chroma.sqlite3`. Every thousand rows its files are written in
place; a process killed in those milliseconds leaves them torn. Everything here reads plain files, no Chroma needed, and
must run while no client is open on the folder.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from memgas.errors import StoreCorruptError, StoreError

_HEADER = struct.Struct("<i6QiI3QdQ")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ASIDE = ".memgas.torn"
_CLOSING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Header:
    """What `header.bin` says that the other files must bear out."""

    n_elements: int
    element_bytes: int
    top_level: int
    max_links: int


class _PlainUnpickler(pickle.Unpickler):
    """Reads builtins only: the real file holds nothing else, and anything else could run code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse every class."""
        raise pickle.UnpicklingError(f"unexpected object {module}.{name}")


def segments_of(root: Path) -> Iterator[Path]:
    """Yield the index folders of a database, of whichever collection."""
    return (folder for folder in sorted(root.iterdir()) if _UUID.fullmatch(folder.name) and folder.is_dir())


def torn(segment: Path) -> str | None:
    """Say what is torn in an index folder, or None if it is sound.

    No elements and no metadata are sound: such an index was never written, its rows are in the database's log.
    """
    sizes = {file.name: file.stat().st_size for file in segment.iterdir()}
    if sizes.get("header.bin", 0) < _HEADER.size:
        return "header.bin is short or missing"
    header = _read_header(segment)
    if header.n_elements == 0 and "index_metadata.pickle" not in sizes:
        return None
    return _short_file(header, sizes) or _broken_links(segment, header, sizes) or _broken_pickle(segment)


def collection_names(root: Path) -> dict[str, str]:
    """Read which collection each index folder belongs to; a database that is not there has none.

    Raises
    ------
    StoreCorruptError
        The database cannot be read.
    """
    file = root / "chroma.sqlite3"
    if not file.exists():
        return {}
    query = "SELECT s.id, c.name FROM segments s JOIN collections c ON c.id = s.collection"
    try:
        with closing(sqlite3.connect(file)) as database:
            return dict(database.execute(query).fetchall())
    except sqlite3.Error as error:
        raise StoreCorruptError(f"{file} cannot be read: {error}") from error


def prepare(root: Path) -> None:
    """Let the database write its log ahead: a write of Chroma's, which stops every other thread, takes 3 ms, not 40.

    A mode of the file: it stays with it. Chroma syncs the log at checkpoints only: see `sync_log`.

    Raises
    ------
    StoreCorruptError
        The database cannot be read.
    StoreError
        It cannot be written to.
    """
    file = root / "chroma.sqlite3"
    try:
        with closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA journal_mode = WAL").fetchall()
    except sqlite3.OperationalError as error:
        raise StoreError(f"{file} cannot be opened to write: {error}") from error
    except sqlite3.Error as error:
        raise StoreCorruptError(f"{file} cannot be read: {error}") from error


def sync_log(root: Path) -> None:
    """Bring what Chroma has committed on to the disk. May run while a client is open: no lock is on this file."""
    try:
        log = os.open(root / "chroma.sqlite3-wal", os.O_RDONLY)
    except FileNotFoundError:
        return  # the log was closed: all of it is in the database
    try:
        os.fsync(log)
    finally:
        os.close(log)


def wait_until_closed(root: Path) -> None:
    """Wait for the last connection to the database to be closed, which moves the log into the database.

    Until then deleted words may be in the log, and a copy of the folder may miss a file. Where two connections are closed
    at the same moment, neither takes itself for the last one and the log stays: then it is moved here. Given up after a
    few seconds: a client that the caller opened on the same folder has connections too, and keeps them.
    """
    log, deadline = root / "chroma.sqlite3-wal", time.monotonic() + _CLOSING_SECONDS
    while log.exists() and time.monotonic() < deadline:
        if not _is_open_here(root):
            with suppress(sqlite3.Error), closing(sqlite3.connect(root / "chroma.sqlite3")) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        time.sleep(0.001)


def move_aside(root: Path, segment: Path) -> None:
    """Move an index folder to where Chroma does not see it."""
    aside = root / _ASIDE
    aside.mkdir(exist_ok=True)
    target = aside / segment.name
    if target.exists():
        shutil.rmtree(target)
    segment.rename(target)


def drop_aside(root: Path) -> None:
    """Delete what was moved aside."""
    shutil.rmtree(root / _ASIDE, ignore_errors=True)


def vacuum(root: Path) -> None:
    """Rewrite the database so that no deleted byte is left in it, and delete index folders of no collection.

    Raises
    ------
    StoreCorruptError
        The database cannot be rewritten.
    """
    try:
        with closing(sqlite3.connect(root / "chroma.sqlite3", isolation_level=None)) as database:
            database.execute("INSERT INTO embedding_fulltext_search(embedding_fulltext_search) VALUES ('optimize')")
            database.execute("VACUUM")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        raise StoreCorruptError(f"{root / 'chroma.sqlite3'} cannot be vacuumed: {error}") from error
    names = collection_names(root)
    for segment in list(segments_of(root)):
        if segment.name not in names:
            shutil.rmtree(segment)


def wipe_slack(root: Path) -> None:
    """Empty the unused ends of index files: Chroma fills them with whatever its process had in memory, texts too.

    Must run before anything is written to an index that is open. Torn indexes are left alone.
    """
    for segment in segments_of(root):
        if torn(segment) is not None:
            continue
        header = _read_header(segment)
        for name, element_bytes in (("data_level0.bin", header.element_bytes), ("length.bin", 4)):
            file = segment / name
            size = file.stat().st_size if file.exists() else 0
            used = header.n_elements * element_bytes
            if size > used:
                os.truncate(file, used)
                os.truncate(file, size)


def _is_open_here(root: Path) -> bool:
    """Tell whether this process has the database or its log open.

    Chroma brings its own SQLite, and the locks of two SQLites in one process do not see each other
    (https://sqlite.org/howtocorrupt.html, 2.2.1): as long as one has the files open, the other must not open them.
    """
    files = []
    for name in ("chroma.sqlite3", "chroma.sqlite3-wal"):
        with suppress(FileNotFoundError):
            files.append((root / name).stat())
    try:
        handles = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return os.name == "posix"  # cannot be told; elsewhere locks belong to the handle, not to the process
    for handle in handles:
        with suppress(OSError):  # the handle of the listing itself is closed by now
            held = os.fstat(handle)
            if any(os.path.samestat(held, file) for file in files):
                return True
    return False


def _read_header(segment: Path) -> _Header:
    """Read `header.bin`."""
    fields = _HEADER.unpack_from((segment / "header.bin").read_bytes())
    return _Header(n_elements=fields[3], element_bytes=fields[4], top_level=fields[7], max_links=fields[9])


def _short_file(header: _Header, sizes: dict[str, int]) -> str | None:
    """Say which file is shorter than the header says."""
    if header.n_elements * header.element_bytes > sizes.get("data_level0.bin", 0):
        return "data_level0.bin is shorter than the header says"
    if header.n_elements * 4 > sizes.get("length.bin", 0):
        return "length.bin is shorter than the header says"
    return None


def _broken_links(segment: Path, header: _Header, sizes: dict[str, int]) -> str | None:
    """Say what is wrong with the links: per element a length, then as many bytes, a whole number of levels."""
    if "link_lists.bin" not in sizes:
        return "link_lists.bin is missing"
    level_bytes = header.max_links * 4 + 4
    longest = level_bytes * max(1, header.top_level)
    if sizes["link_lists.bin"] > header.n_elements * (4 + longest):  # before reading: a torn one may be 3 TB, sparse
        return "link_lists.bin is impossibly large"
    links, at = (segment / "link_lists.bin").read_bytes(), 0
    length_at = struct.Struct("<I").unpack_from
    for _ in range(header.n_elements):
        if at + 4 > len(links):
            return "link_lists.bin ends early"
        (n_bytes,) = length_at(links, at)
        if n_bytes > longest or n_bytes % level_bytes:
            return "link_lists.bin holds an impossible length"
        at += 4 + n_bytes
    return None


def _broken_pickle(segment: Path) -> str | None:
    """Say why the metadata cannot be read."""
    try:
        with (segment / "index_metadata.pickle").open("rb") as file:
            _PlainUnpickler(file).load()
    except (OSError, EOFError, IndexError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        return f"index_metadata.pickle: {error}"
    return None
