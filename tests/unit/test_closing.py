"""The log of Chroma's database after the last connection is closed: moved into the database, whoever closed last."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from memgas.stores import segments


def _written(root: Path) -> sqlite3.Connection:
    """Write a row to a database with a log, and return the connection, which holds both open."""
    root.mkdir()
    database = sqlite3.connect(root / "chroma.sqlite3")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE words (word)")
    database.execute("INSERT INTO words VALUES ('greyhound')")
    database.commit()
    return database


def _names(root: Path) -> set[str]:
    return {file.name for file in root.iterdir()}


def test_a_log_that_nobody_moved(tmp_path: Path) -> None:
    """Two connections closed at the same moment leave the log, since neither was the last: it is moved, nothing is lost."""
    with closing(_written(tmp_path / "open")):
        shutil.copytree(tmp_path / "open", tmp_path / "left")
    assert "chroma.sqlite3-wal" in _names(tmp_path / "left")
    segments.wait_until_closed(tmp_path / "left")
    assert _names(tmp_path / "left") == {"chroma.sqlite3"}
    with closing(sqlite3.connect(tmp_path / "left" / "chroma.sqlite3")) as database:
        assert database.execute("SELECT word FROM words").fetchall() == [("greyhound",)]


def test_a_log_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as this process has the database open it is not opened by another SQLite; the wait has an end."""
    monkeypatch.setattr(segments, "_CLOSING_SECONDS", 0.05)
    with closing(_written(tmp_path / "open")) as database:
        log = (tmp_path / "open" / "chroma.sqlite3-wal").read_bytes()
        segments.wait_until_closed(tmp_path / "open")
        assert (tmp_path / "open" / "chroma.sqlite3-wal").read_bytes() == log
        assert database.execute("SELECT word FROM words").fetchall() == [("greyhound",)]
    segments.wait_until_closed(tmp_path / "open")
    assert _names(tmp_path / "open") == {"chroma.sqlite3"}


def test_no_database(tmp_path: Path) -> None:
    """A folder that was never written to is closed."""
    segments.wait_until_closed(tmp_path)
    assert not _names(tmp_path)
