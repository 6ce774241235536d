"""Every store keeps the contract: in memory, in an embedded Chroma, behind a Chroma server."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memgas.stores import ChromaStore, InMemoryStore
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
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{port}/api/v2/heartbeat").raise_for_status()
                break
            except httpx.HTTPError:
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
        client = chromadb.HttpClient(host="127.0.0.1", port=port)
        yield client
        client.close()  # type: ignore[attr-defined]  # of the class that HttpClient returns
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
