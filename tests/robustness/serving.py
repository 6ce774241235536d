"""A real `chroma run` on loopback: started, killed, started again on the same folder and port."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.robustness.scale import environment

if TYPE_CHECKING:
    from chromadb.api import ClientAPI


class Server:
    """A Chroma server on a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        program = "import sys; from chromadb.cli.cli import app; sys.argv[0] = 'chroma'; app()"
        arguments = ["run", "--path", str(self._folder), "--host", "127.0.0.1", "--port", str(self.port)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], env=environment(), cwd=self._folder.parent,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the server ended")

    def kill(self) -> None:
        """Kill it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def client(self) -> ClientAPI:
        """Connect to it."""
        import chromadb

        return chromadb.HttpClient(host="127.0.0.1", port=self.port)
