"""The page's server: a handful of routes behind a random token, for this machine alone."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memgas.errors import InvalidInputError, MemGASError, NotFoundError
from memgas.explaining import path_line
from memgas.explore import answers
from memgas.types import JSON

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from memgas.memory import MemGAS

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_PAGE = {"": "index.html", **{name: name for name in ("explore.css", "explore.js", "cytoscape.min.js", "icon.svg")}}
_MAX_TOP_K = 50
_HERE = frozenset({"127.0.0.1", "localhost", "[::1]"})

Answer = Callable[[Request], Awaitable[JSON]]


def make_app(memory: MemGAS, *, token: str, allow_forget: bool) -> ASGIApp:
    """Make the server's application.

    Parameters
    ----------
    memory
        What is shown.
    token
        Begins every path; without it, everything is 404.
    allow_forget
        Whether sessions may be deleted.
    """

    async def state(_request: Request) -> JSON:
        return {"namespaces": [*await memory.anamespaces()], "allow_forget": allow_forget}

    async def sessions(request: Request) -> JSON:
        return await run_in_threadpool(answers.sessions, memory, _asked(request, "namespace"))

    async def session(request: Request) -> JSON:
        return await run_in_threadpool(answers.session, memory, _asked(request, "namespace"), _asked(request, "id"))

    async def search(request: Request) -> JSON:
        namespace, query = _asked(request, "namespace"), _asked(request, "q")
        return await run_in_threadpool(answers.search, memory, namespace, query, _top_k(request))

    async def overview(request: Request) -> JSON:
        return await run_in_threadpool(answers.overview, memory, _asked(request, "namespace"))

    async def why(request: Request) -> JSON:
        told = await memory.aexplain(
            _asked(request, "q"), namespace=_asked(request, "namespace"), session_id=_asked(request, "id"),
            top_k=_top_k(request),
        )  # fmt: skip
        return {**told.as_dict(), "path_text": path_line(told.path) if told.path else ""}

    async def forget(request: Request) -> JSON:
        data = json.loads(await request.body())
        if not isinstance(data, dict):
            raise InvalidInputError("expected a JSON object")
        await memory.adelete_session(str(data.get("id", "")), namespace=str(data.get("namespace", "")))
        return {"forgotten": True}

    routes = [Route(f"/{path}", _asset(name)) for path, name in _PAGE.items()]
    asked = (state, sessions, session, search, overview, why)
    routes += [Route(f"/api/{answer.__name__}", _answering(answer)) for answer in asked]
    if allow_forget:
        routes.append(Route("/api/forget", _answering(forget), methods=["POST"]))
    return _Guard(Starlette(routes=routes), token)


class _Guard:
    """Lets in only who knows the token, by a name of this machine, and from the page itself."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        token, slash, rest = scope["path"].lstrip("/").partition("/")
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        is_known = secrets.compare_digest(token.encode(), self._token) and slash
        if not is_known or _name(f"//{headers.get(b'host', '')}") not in _HERE:
            await Response("Not found", 404, HEADERS)(scope, receive, send)
        elif b"origin" in headers and urlsplit(headers[b"origin"]).netloc != headers.get(b"host"):
            await Response("Forbidden", 403, HEADERS)(scope, receive, send)
        else:
            await self._app({**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}, receive, send)


def _name(url: str) -> str:
    """Return the host of a URL as it is written there, without the port."""
    try:
        return urlsplit(url).netloc.rpartition(":")[0] if urlsplit(url).port else urlsplit(url).netloc
    except ValueError:
        return ""


def _answering(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    """Make an endpoint of what returns JSON or raises."""

    async def endpoint(request: Request) -> Response:
        try:
            return _json(await answer(request), 200)
        except NotFoundError as error:
            return _json({"error": str(error)}, 404)
        except (InvalidInputError, json.JSONDecodeError) as error:
            return _json({"error": str(error)}, 400)
        except MemGASError as error:
            return _json({"error": str(error)}, 500)

    return endpoint


def _asset(name: str) -> Callable[[Request], Awaitable[Response]]:
    body = (files("memgas") / "explore" / "assets" / name).read_bytes()
    kind = _TYPES[name.rpartition(".")[2]]

    async def endpoint(_request: Request) -> Response:
        return Response(body, headers=HEADERS, media_type=kind)

    return endpoint


def _json(value: JSON, status: int) -> Response:
    body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status, HEADERS, "application/json")


def _asked(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


def _top_k(request: Request) -> int:
    asked = _asked(request, "k") or "5"
    if not asked.isascii() or not asked.isdecimal() or not 1 <= int(asked[:9]) <= _MAX_TOP_K:
        raise InvalidInputError(f"k must be from 1 to {_MAX_TOP_K}; got {asked[:20]!r}")
    return int(asked)
