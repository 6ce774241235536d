"""A second copy of the vectors, beside an embedded Chroma, whose own copy a killed process can lose.

It is a journal, not a database: text, metadata and associations are Chroma's alone, and a vector here without a row there
counts for nothing. It is written before Chroma, and is what a load reads, for it is ten times as fast.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np

from memgas.errors import StoreCorruptError, StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_IDS_A_QUERY = 10_000
_VECTOR = np.dtype("<f4")


class Journal:
    """Vectors by unit id in one SQLite file. Any number of threads may call it at once.

    Parameters
    ----------
    path
        The file; created when there is none.
    name
        Of the table: two stores may share a folder.

    Raises
    ------
    StoreCorruptError
        The file cannot be read.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._table = f'"{name}"'
        self._lock = RLock()
        with self._errors():
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        """Set the file up: an acknowledged vector is on disk, a deleted one is overwritten."""
        with self._errors():
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA secure_delete = ON")
            if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (self._table[1:-1],)).fetchone():
                self._db.execute(
                    f"CREATE TABLE {self._table} (id BLOB NOT NULL, window INTEGER NOT NULL, vector BLOB NOT NULL, "
                    "UNIQUE (id, window))"
                )

    @property
    def n_dims(self) -> int:
        """Width of the vectors; 0 when there are none."""
        with self._lock, self._errors():
            row = self._db.execute(f"SELECT length(vector) FROM {self._table} LIMIT 1").fetchone()
        return int(row[0]) // _VECTOR.itemsize if row else 0

    def save(self, ids: Sequence[str], vectors: NDArray[np.float32], windows: Sequence[NDArray[np.float32]]) -> None:
        """Write the vectors of units, and those of their windows, in place of what was there; all or nothing.

        Parameters
        ----------
        vectors : (n_units, n_dims)
        windows
            Of each unit: `(n_windows, n_dims)`, no rows when the text was read whole.
        """
        keys = [bytes.fromhex(uid) for uid in ids]
        rows = [
            (key, window, vector.astype(_VECTOR).tobytes())
            for key, own, others in zip(keys, vectors, windows, strict=True)
            for window, vector in enumerate([own, *others])
        ]
        with self._transaction():
            self._db.executemany(f"DELETE FROM {self._table} WHERE id = ?", [(key,) for key in keys])
            self._db.executemany(f"INSERT INTO {self._table} VALUES (?, ?, ?)", rows)

    def load(self, ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Read vectors: `(1 + n_windows, n_dims)` a unit, its own first. Unknown ids are left out.

        Raises
        ------
        StoreCorruptError
            Vectors have different widths.
        """
        found: dict[str, NDArray[np.float32]] = {}
        for start in range(0, len(ids), _IDS_A_QUERY):
            keys = [bytes.fromhex(uid) for uid in ids[start : start + _IDS_A_QUERY]]
            marks = ",".join("?" * len(keys))
            with self._lock, self._errors():
                rows = self._db.execute(
                    f"SELECT id, vector FROM {self._table} WHERE id IN ({marks}) ORDER BY id, window", keys
                ).fetchall()
            for key, group in groupby(rows, itemgetter(0)):
                found[key.hex()] = self._matrix([row[1] for row in group])
        if len({vectors.shape[1] for vectors in found.values()}) > 1:
            raise StoreCorruptError(f"{self._path} holds vectors of different widths")
        return found

    def ids(self) -> set[str]:
        """Read the ids of all units that have a vector."""
        with self._lock, self._errors():
            return {key.hex() for (key,) in self._db.execute(f"SELECT DISTINCT id FROM {self._table}")}

    def delete(self, ids: Sequence[str]) -> None:
        """Delete vectors; unknown ids are fine."""
        if ids:
            with self._transaction():
                keys = [(bytes.fromhex(uid),) for uid in ids]
                self._db.executemany(f"DELETE FROM {self._table} WHERE id = ?", keys)

    def drop(self, name: str) -> None:
        """Drop the table of another name, if there is one."""
        with self._lock, self._errors():
            self._db.execute(f'DROP TABLE IF EXISTS "{name}"')

    def vacuum(self) -> None:
        """Rewrite the file so that no deleted byte is left in it, nor in its log."""
        with self._lock, self._errors():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Release the file. Twice is fine."""
        with self._lock, self._errors():
            self._db.close()

    def _matrix(self, blobs: list[bytes]) -> NDArray[np.float32]:
        """Stack vectors."""
        if len({len(blob) for blob in blobs}) > 1:
            raise StoreCorruptError(f"{self._path} holds vectors of different widths")
        matrix = np.frombuffer(b"".join(blobs), _VECTOR).reshape(len(blobs), -1)
        return matrix.astype(np.float32, copy=False)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Do all or nothing."""
        with self._lock, self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate what SQLite raises."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self._path}: {error}") from error
        except sqlite3.Error as error:
            raise StoreCorruptError(
                f"{self._path} cannot be read: {error}. Move it away, open the store again and call `repair()`: the "
                "vectors are then taken from Chroma's own index"
            ) from error
