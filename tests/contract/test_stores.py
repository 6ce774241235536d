"""Every store keeps the contract: in memory, in an embedded Chroma, behind a Chroma server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memgas.errors import InvalidInputError, StoreCorruptError, StoreError
from memgas.stores import ChromaStore, InMemoryStore
from memgas.stores.segments import segments_of
from memgas.stores.tables import chroma_errors
from memgas.testing.store_batches import (
    assert_same,
    load_all,
    make_batch,
    make_record,
    make_session,
    make_units,
    rich_batch,
    unit_vectors,
)
from memgas.testing.store_contract import OpenStore, PersistentStoreContract, StoreContract

if TYPE_CHECKING:
    from chromadb.api import ClientAPI


class TestInMemoryStore(StoreContract):
    """The reference."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """Return empty stores."""
        return InMemoryStore


@pytest.mark.slow
class TestEmbeddedChroma(PersistentStoreContract):
    """A folder."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        """Open one folder, again and again."""
        return lambda: ChromaStore.open(tmp_path / "memory")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientAPI]:
    """Start `chroma run` on a free port of loopback, wait until it answers, and stop it in the end."""
    import chromadb
    import httpx

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("server")
    starter = "import sys; sys.argv[0] = 'chroma'; from chromadb.cli.cli import app; app()"
    arguments = ["run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([sys.executable, "-c", starter, *arguments], stdout=log, stderr=log, cwd=folder)
    try:
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/api/v2/heartbeat").raise_for_status()
                break
            except httpx.HTTPError:
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
        client = chromadb.HttpClient(host="127.0.0.1", port=port)
        yield client
        for part in ("_server", "_admin_client._server"):
            attrgetter(f"{part}._session")(client).close()  # which Chroma's own close() forgets
    finally:
        server.terminate()
        server.wait()


@pytest.mark.slow
class TestChromaServer(PersistentStoreContract):
    """A real server, a prefix of its own for each test."""

    @pytest.fixture
    def open_store(self, client: ClientAPI) -> OpenStore:
        """Connect to the same collections, again and again."""
        prefix = f"t{uuid.uuid4().hex}"
        return lambda: ChromaStore.connect(client, collection_prefix=prefix)

    def test_erase_says_what_it_cannot(self, open_store: OpenStore) -> None:
        """A server's files are not ours: rows nobody names are deleted, and the error says how to erase their bytes."""
        store = open_store()
        record = make_record("user-1", "s", 0, n_units=(0, 1, 0, 0))
        units = make_units(replace(record, n_units=(0, 2, 0, 0)))
        store.put(make_batch([record], units))
        with pytest.raises(StoreError, match=r"ChromaStore\.open"):
            store.erase()
        assert store.fetch("user-1", [unit.id for unit in units]) == units[:1]
        store.close()


def test_a_server_that_is_not_there(client: ClientAPI) -> None:
    """A request that fails is a StoreError, whatever it is in Chroma."""
    store = ChromaStore.connect(client, collection_prefix=f"t{uuid.uuid4().hex}")
    client.delete_collection(store._tables.meta.name)
    with pytest.raises(StoreError, match="reading from"):
        store.head("user-1")


@pytest.mark.parametrize("prefix", ["", "a", "ä" * 5, "_memgas", "mem..gas", "a" * 300, "mem gas"])
def test_a_prefix_that_no_name_can_begin_with(tmp_path: Path, prefix: str) -> None:
    """A collection's name has rules; a prefix that breaks them is refused before anything is made."""
    with pytest.raises(InvalidInputError, match="collection_prefix"):
        ChromaStore.open(tmp_path / "memory", collection_prefix=prefix)
    assert not (tmp_path / "memory").exists()


@pytest.mark.slow
def test_two_prefixes_share_a_folder(tmp_path: Path) -> None:
    """Stores of two prefixes keep apart, though their units have the same ids."""
    for prefix, says in (("one", "first"), ("two", "second")):
        record = make_record("user-1", "s", 0, n_units=(0, 1, 0, 0))
        store = ChromaStore.open(tmp_path, collection_prefix=prefix)
        store.put(make_batch([record], make_units(record, says), seed=len(says)))
        store.close()
    for prefix, says in (("one", "first"), ("two", "second")):
        store = ChromaStore.open(tmp_path, collection_prefix=prefix)
        got = load_all(store, "user-1")
        assert [unit.text for unit in got.units] == [f"{says} turn 0"]
        np.testing.assert_array_equal(got.vectors, unit_vectors(1, len(says)))
        assert store.check() == []
        store.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ChromaStore]:
    """Return a store without a journal on a folder, as a server has it, with everything difficult in it."""
    import chromadb

    client = chromadb.PersistentClient(str(tmp_path))
    store = ChromaStore.connect(client)
    store.put(rich_batch("user-1"))
    yield store
    store.close()
    client.close()  # type: ignore[attr-defined]  # of the class that PersistentClient returns


@pytest.mark.slow
def test_from_a_server_to_a_folder(served: ChromaStore, tmp_path: Path) -> None:
    """A server's folder is opened after `repair`, which reads the vectors, windows too, into the journal."""
    wanted = load_all(served, "user-1")
    served._client.close()
    store = ChromaStore.open(tmp_path)
    with pytest.raises(StoreCorruptError, match="repair"):
        list(store.load("user-1"))
    assert store.repair()
    assert store.check() == []
    assert_same(load_all(store, "user-1"), wanted)
    store.erase()
    assert_same(load_all(store, "user-1"), wanted)
    assert store.check() == []
    store.close()


@pytest.mark.slow
def test_from_a_folder_to_a_server(tmp_path: Path) -> None:
    """A folder that is served gives everything but the windows of long texts, and `check` says so."""
    import chromadb

    store = ChromaStore.open(tmp_path)
    store.put(rich_batch("user-1"))
    wanted = load_all(store, "user-1")
    store.close()
    client = chromadb.PersistentClient(str(tmp_path))
    served = ChromaStore.connect(client)
    assert_same(load_all(served, "user-1"), replace(wanted, windows={}))
    assert any("windows" in line for line in served.check())
    client.close()  # type: ignore[attr-defined]  # of the class that PersistentClient returns


@pytest.mark.slow
def test_a_server_that_lost_an_index(tmp_path: Path) -> None:
    """Vectors that are nowhere any more are told; `repair` makes them zero, keeps every word, and says what to do."""
    import chromadb

    client = chromadb.PersistentClient(str(tmp_path))
    store = ChromaStore.connect(client)
    batch = make_session("user-1", n_turn_units=1_100)
    store.put(batch)
    client.close()  # type: ignore[attr-defined]  # of the class that PersistentClient returns
    for segment in segments_of(tmp_path):
        shutil.rmtree(segment)
    client = chromadb.PersistentClient(str(tmp_path))
    store = ChromaStore.connect(client)
    with pytest.raises(StoreCorruptError, match="repair"):
        list(store.load("user-1"))
    assert any("cannot read" in line for line in store.check())
    assert any("embedded again" in line for line in store.repair())
    got = load_all(store, "user-1")
    assert tuple(replace(unit, n_windows=1) for unit in got.units) == tuple(batch.units)
    lost = ~got.vectors.any(axis=1)
    assert 0 < int(lost.sum()) <= 1_100
    assert [unit.n_windows == 0 for unit in got.units] == lost.tolist()
    (line,) = store.check()
    assert "have to be embedded again" in line
    client.close()  # type: ignore[attr-defined]  # of the class that PersistentClient returns


def test_a_panic_of_chroma_is_a_store_error() -> None:
    """Chroma's Rust side panics with what is no `Exception`; that, too, comes out as StoreError."""
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    with pytest.raises(StoreError, match="writing: PanicException: unreachable"), chroma_errors("writing"):
        raise panic("unreachable")
    with pytest.raises(KeyboardInterrupt), chroma_errors("writing"):
        raise KeyboardInterrupt
