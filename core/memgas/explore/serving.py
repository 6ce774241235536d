"""Start and stop the page's server."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from memgas.errors import InvalidInputError
from memgas.extras import require_extra

if TYPE_CHECKING:
    import uvicorn

    from memgas.memory import MemGAS


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A page that can be served.

    Attributes
    ----------
    url
        With the token that nobody else knows.
    """

    url: str
    _server: uvicorn.Server
    _socket: socket.socket

    def serve(self) -> None:
        """Serve until interrupted."""
        self._server.run(sockets=[self._socket])

    @contextmanager
    def in_background(self) -> Iterator[str]:
        """Serve meanwhile; yields the URL."""
        thread = Thread(target=self.serve, name="memgas-explore", daemon=True)
        thread.start()
        try:
            yield self.url
        finally:
            self._server.should_exit = True
            thread.join()


def open_page(memory: MemGAS, *, port: int = 0, allow_forget: bool = False) -> Page:
    """Take a port of the loopback interface and make the page.

    Parameters
    ----------
    memory
        What is shown; the caller closes it, after the page.
    port
        0: any that is free.
    allow_forget
        Whether sessions may be deleted from the page.

    Raises
    ------
    MissingExtraError
        starlette or uvicorn is not installed.
    InvalidInputError
        The port is taken.
    """
    for module in ("starlette", "uvicorn"):
        require_extra(module, extra="explore", purpose="the page")
    import uvicorn

    from memgas.explore.app import make_app

    token = secrets.token_urlsafe(24)
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen(128)  # who comes before the server has started, waits
    except (OSError, OverflowError) as error:
        listening.close()
        raise InvalidInputError(f"port {port} cannot be used ({error}); give another, or none") from error
    app = make_app(memory, token=token, allow_forget=allow_forget)
    settings = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
    )
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/{token}/"
    return Page(url, uvicorn.Server(settings), listening)
