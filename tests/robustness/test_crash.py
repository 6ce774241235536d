"""A store on disk loses nothing that it acknowledged, whenever its process is killed, and shows no half of anything."""

from __future__ import annotations

import logging
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from memgas.errors import StoreCorruptError, StoreError, StoreLockedError
from memgas.stores import ChromaStore, recovery, segments, upkeep
from memgas.stores.journal import Journal
from memgas.stores.tables import Table
from memgas.testing.store_batches import Loaded, assert_same, load_all, make_session
from tests.robustness.conftest import Figure
from tests.robustness.killing import kill_when
from tests.robustness.scale import run
from tests.robustness.writer import NAMESPACE, replay

pytestmark = pytest.mark.slow

N_KILLS = int(os.environ.get("MEMGAS_KILLS", "4"))
"""How many writers are killed; set MEMGAS_KILLS for many."""

N_TURN_UNITS = 90
"""Some ten sessions and an index is written."""


def test_a_killed_writer_loses_nothing(tmp_path: Path, figure: Figure) -> None:
    """After each kill every acknowledged batch is there whole, the one under way wholly or not at all."""
    dice = random.Random(N_KILLS)
    acknowledged = n_batches = n_in_all = -1
    n_written = 0
    for n in range(N_KILLS):
        folder = tmp_path / str(n // 4)  # a new one now and then: all that was written is compared each time
        if n % 4 == 0:
            acknowledged, n_in_all = -1, n_in_all + n_batches
        done, is_written = kill_when(
            "tests.robustness.writer", str(folder), str(N_TURN_UNITS), folder=folder, n_lines=dice.randint(1, 6),
            at_index=n % 2 == 0, dice=dice,
        )  # fmt: skip
        acknowledged = max([acknowledged, *done])
        n_written += is_written
        store = ChromaStore.open(folder)
        head = store.head(NAMESPACE)
        n_batches = head.next_number if head else 0
        assert n_batches - 1 in (acknowledged, acknowledged + 1)
        wanted = load_all(replay(n_batches, N_TURN_UNITS), NAMESPACE)
        assert_same(load_all(store, NAMESPACE), wanted)
        store.repair()
        assert store.check() == []
        assert_same(load_all(store, NAMESPACE), wanted)
        store.close()
        assert n_batches > 0
        acknowledged = n_batches - 1
    figure("kills of a store, 0 acknowledged batches lost", N_KILLS)
    figure("kills within 30 ms of an index write", n_written)
    figure("batches acknowledged between kills", max(n_in_all, 0) + n_batches)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Loaded]:
    """Return a folder whose index of turn units was written to disk, and what is in it."""
    folder = tmp_path_factory.mktemp("indexed")
    store = ChromaStore.open(folder)
    store.put(make_session(NAMESPACE, "large", 0, n_turn_units=1_100))
    store.put(make_session("another", "small", 0))
    wanted = load_all(store, NAMESPACE)
    store.close()
    (segment,) = (segment for segment in segments.segments_of(folder) if (segment / "index_metadata.pickle").exists())
    assert segments.torn(segment) is None
    return folder, wanted


def cut(name: str, share: float) -> Callable[[Path], None]:
    """Return a way to tear an index: cut a file to a share of its length, or blow it up, sparsely."""

    def tear(segment: Path) -> None:
        os.truncate(segment / name, int((segment / name).stat().st_size * share))

    return tear


def no_file(name: str) -> Callable[[Path], None]:
    """Return a way to tear an index: leave a file out."""
    return lambda segment: (segment / name).unlink()


def a_class(segment: Path) -> None:
    """Put an object that could run code where Chroma's metadata should be."""
    (segment / "index_metadata.pickle").write_bytes(pickle.dumps(Path("x")))


def nonsense(segment: Path) -> None:
    """Write lengths that no level has into the links."""
    size = (segment / "link_lists.bin").stat().st_size
    (segment / "link_lists.bin").write_bytes(b"\x07" * size)


TEARS: dict[str, Callable[[Path], None]] = {
    "header": cut("header.bin", 0.5),
    "vectors": cut("data_level0.bin", 0.5),
    "lengths": cut("length.bin", 0.9),
    "links": cut("link_lists.bin", 0.9),
    "huge links": cut("link_lists.bin", 1e8),
    "odd links": nonsense,
    "no links": no_file("link_lists.bin"),
    "metadata": cut("index_metadata.pickle", 0.7),
    "no metadata": no_file("index_metadata.pickle"),
    "an object": a_class,
}


def copy(indexed: tuple[Path, Loaded], tmp_path: Path) -> tuple[Path, Path]:
    """Return a copy of the folder, and the written index in it."""
    folder = tmp_path / "copy"
    shutil.copytree(indexed[0], folder)
    (segment,) = (segment for segment in segments.segments_of(folder) if (segment / "index_metadata.pickle").exists())
    return folder, segment


@pytest.mark.parametrize("tear", TEARS)
def test_every_tear_is_found(indexed: tuple[Path, Loaded], tmp_path: Path, tear: str) -> None:
    """The files alone tell that an index is torn."""
    _, segment = copy(indexed, tmp_path)
    TEARS[tear](segment)
    assert segments.torn(segment) is not None


@pytest.mark.parametrize("tear", ["vectors", "huge links", "metadata"])
def test_a_torn_index_is_rebuilt(
    indexed: tuple[Path, Loaded], tmp_path: Path, tear: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Opening a store with a torn index says so, and gives the same rows, a sound index, and no trace of the torn one."""
    folder, segment = copy(indexed, tmp_path)
    TEARS[tear](segment)
    with caplog.at_level(logging.WARNING):
        store = ChromaStore.open(folder)
    assert "is torn" in caplog.text
    assert_same(load_all(store, NAMESPACE), indexed[1])
    assert store.check() == []
    store.put(make_session(NAMESPACE, "later", 1))
    store.close()
    assert not list(folder.glob(".memgas.[rt]*"))
    caplog.clear()
    store = ChromaStore.open(folder)
    assert store.check() == []
    assert not caplog.text
    store.close()


def test_a_rebuild_that_was_cut_short_is_done_again(
    indexed: tuple[Path, Loaded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in the middle of a rebuild leaves a mark: the next opening rebuilds, though nothing looks torn any more."""
    folder, segment = copy(indexed, tmp_path)
    TEARS["metadata"](segment)
    with monkeypatch.context() as patch:
        patch.setattr(recovery, "rebuild_index", lambda table, journal, width: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ChromaStore.open(folder)
    assert not [segment for segment in segments.segments_of(folder) if segments.torn(segment)]
    store = ChromaStore.open(folder)
    assert store.check() == []
    assert_same(load_all(store, NAMESPACE), indexed[1])
    store.close()


def test_a_lost_journal_is_taken_from_chroma(indexed: tuple[Path, Loaded], tmp_path: Path) -> None:
    """Without its journal a store says that vectors are missing, and `repair` reads them back."""
    folder, _ = copy(indexed, tmp_path)
    for file in folder.glob("vectors.sqlite*"):
        file.unlink()
    store = ChromaStore.open(folder)
    with pytest.raises(StoreCorruptError, match="repair"):
        list(store.load(NAMESPACE))
    assert store.check()
    store.repair()
    assert store.check() == []
    assert_same(load_all(store, NAMESPACE), indexed[1])
    store.close()


def test_a_broken_journal_is_told(indexed: tuple[Path, Loaded], tmp_path: Path) -> None:
    """A journal that is no database is told by name, with what to do."""
    folder, _ = copy(indexed, tmp_path)
    for file in folder.glob("vectors.sqlite*"):
        file.unlink()
    (folder / "vectors.sqlite").write_bytes(b"no database at all" * 1_000)
    with pytest.raises(StoreCorruptError, match=r"vectors\.sqlite.*repair"):
        ChromaStore.open(folder)
    (folder / "vectors.sqlite").unlink()
    ChromaStore.open(folder).close()


def test_a_broken_database_is_told(tmp_path: Path) -> None:
    """A database that is none raises StoreCorruptError or StoreError, and the folder is not left locked."""
    (tmp_path / "chroma.sqlite3").write_bytes(b"no database at all" * 1_000)
    for _ in range(2):
        with pytest.raises(StoreError):
            ChromaStore.open(tmp_path)


def test_a_killed_erase_keeps_every_row(indexed: tuple[Path, Loaded], tmp_path: Path) -> None:
    """A kill between the deletion of a collection and the renaming of its copy loses no row."""
    folder, _ = copy(indexed, tmp_path)
    program = """
import os, sys
from memgas.stores import ChromaStore, recovery
def replace_by_copy(client, name):
    if name.endswith("turn"):
        client.delete_collection(name)
        os._exit(9)
    before(client, name)
before, recovery.replace_by_copy = recovery.replace_by_copy, replace_by_copy
ChromaStore.open(sys.argv[1]).erase()
"""
    assert run(program, str(folder)).returncode == 9
    store = ChromaStore.open(folder)
    assert_same(load_all(store, NAMESPACE), indexed[1])
    assert store.check() == []
    store.erase()
    assert_same(load_all(store, NAMESPACE), indexed[1])
    store.close()


def test_an_erase_that_fails_leaves_the_store_in_order(
    indexed: tuple[Path, Loaded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When copying fails, the error comes out, and the store goes on with every row."""
    folder, _ = copy(indexed, tmp_path)
    store = ChromaStore.open(folder)
    copy_rows = upkeep.copy_rows

    def fail_at_turns(source: Table, target: Table, journal: Journal | None, width: int) -> None:
        copy_rows(source, target, journal, width)
        if source.name.endswith("turn"):
            raise StoreError("the disk is full")

    monkeypatch.setattr(upkeep, "copy_rows", fail_at_turns)
    with pytest.raises(StoreError, match="disk is full"):
        store.erase()
    assert_same(load_all(store, NAMESPACE), indexed[1])
    store.put(make_session(NAMESPACE, "later", 1))
    assert store.check() == []
    store.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """A folder that is open is refused at once, in this process and in others, with the way to share it."""
    store = ChromaStore.open(tmp_path)
    with pytest.raises(StoreLockedError, match="in this process"):
        ChromaStore.open(tmp_path / "." / ".." / tmp_path.name)
    program = "import sys; from memgas.stores import ChromaStore; ChromaStore.open(sys.argv[1])"
    refused = run(program, str(tmp_path))
    assert refused.returncode == 1
    assert f"StoreLockedError: {tmp_path} is open in another process (pid {os.getpid()})" in refused.stderr
    assert f"chroma run --path {tmp_path}" in refused.stderr
    assert "chromadb" not in refused.stderr
    store.close()
    ChromaStore.open(tmp_path).close()


def test_a_fork_is_told_and_does_not_keep_the_lock(tmp_path: Path) -> None:
    """In a forked child every call raises at once instead of hanging; a child that lives on holds no lock."""
    program = """
import os, sys
from memgas.errors import StoreError
from memgas.stores import ChromaStore
store = ChromaStore.open(sys.argv[1])
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.close(write)
    try:
        store.head("user-1")
    except StoreError as error:
        said = "after the fork" in str(error)
    store.close()
    os.read(read, 1)
    os._exit(7 if said else 1)
store.head("user-1")
store._lock.drop()
store._lock = None
ChromaStore.open(sys.argv[1] + "/other").close()
import fcntl
with open(sys.argv[1] + "/.memgas.lock") as file:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.close(write)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    result = run(program, str(tmp_path))
    assert result.returncode == 7, result.stderr


def test_a_stray_env_file_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chroma reads settings from a `.env` of the working directory; a store does not let it."""
    (tmp_path / ".env").write_text("chroma_server_http_port=not-a-number\nis_persistent=false\n")
    monkeypatch.chdir(tmp_path)
    store = ChromaStore.open(tmp_path / "memory")
    store.put(make_session(NAMESPACE))
    store.close()
    assert (tmp_path / "memory" / "chroma.sqlite3").exists()
