"""The page's server: who is let in, and what it says."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from urllib.parse import urlencode, urlsplit

import pytest

from memgas import InvalidInputError, MemGAS, NotFoundError, Turn
from memgas.explore.answers import marked
from memgas.explore.app import HEADERS
from memgas.explore.serving import open_page
from memgas.lexical import tokenize
from memgas.testing import HashEmbedder

Ask = Callable[..., tuple[int, dict[str, str], bytes]]


@pytest.fixture
def memory() -> MemGAS:
    memory = MemGAS.in_memory(embedder=HashEmbedder())
    memory.add([Turn("user", "Lena keeps bees.")], namespace="u", session_id="s")
    return memory


def asking(url: str) -> Ask:
    """Ask the server behind a URL."""
    at = urlsplit(url)

    def ask(
        path: str, *, method: str = "GET", body: str | None = None, token: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        line = http.client.HTTPConnection(at.hostname or "", at.port, timeout=120)
        prefix = at.path if token is None else f"/{token}/"
        line.request(method, prefix + path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = line.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        line.close()
        return found

    return ask


@pytest.fixture
def ask(memory: MemGAS) -> Iterator[Ask]:
    with open_page(memory).in_background() as url:
        yield asking(url)


@pytest.mark.parametrize(
    "path", ["", "explore.js", "api/state", "api/sessions?namespace=u", "api/search?namespace=u&q=bees"]
)
def test_only_who_knows_the_token_is_let_in(ask: Ask, path: str) -> None:
    """With the token there is an answer; with another, a shorter one or none, there is nothing."""
    assert ask(path)[0] == 200
    for token in ("wrong", "%E4%BA%8C", ""):
        assert ask(path, token=token)[0] == 404
    assert b"memgas" not in ask("", token="wrong")[2].lower()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil.example", "["]
)
def test_another_name_for_this_machine_is_refused(ask: Ask, host: str) -> None:
    """A page of another origin that a name was bent for (DNS rebinding) sees nothing, even with the token."""
    assert ask("api/state", Host=host)[0] == 404


def test_a_request_from_another_origin_is_refused(ask: Ask) -> None:
    """The browser says where a request comes from; only the page itself may ask."""
    assert ask("api/state", Origin="http://evil.example")[0] == 403


def test_every_answer_forbids_what_the_page_does_not_need(ask: Ask) -> None:
    """The policy stands on pages, data and refusals, and allows no inline script, no other origin, no frame."""
    for path, token in (("", None), ("api/state", None), ("api/nothing", None), ("", "wrong")):
        headers = ask(path, token=token)[1]
        if path != "api/nothing":
            assert {name.lower(): value for name, value in HEADERS.items()}.items() <= headers.items()
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_it_listens_to_this_machine_alone(memory: MemGAS) -> None:
    """The socket is bound to the loopback address; a port that is taken is said so."""
    page = open_page(memory)
    address, port = page._socket.getsockname()

    assert address == "127.0.0.1"
    with pytest.raises(InvalidInputError, match=str(port)):
        open_page(memory, port=port)
    page._socket.close()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("api/search?namespace=u&q=", 400), ("api/search?namespace=&q=a", 400), ("api/search?namespace=u&q=a&k=0", 400),
        ("api/search?namespace=u&q=a&k=x", 400), ("api/session?namespace=u&id=nobody", 404),
        ("api/session?namespace=other&id=s", 404), ("api/forget", 404), ("../pyproject.toml", 404),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_said(ask: Ask, path: str, status: int) -> None:
    """Bad input is 400, what is not there is 404, and the message is JSON."""
    found, headers, body = ask(path)
    assert found == status
    if headers.get("content-type") == "application/json":
        assert json.loads(body)["error"]


def test_reading_only_nothing_is_forgotten(ask: Ask, memory: MemGAS) -> None:
    """Without --allow-forget there is no way to delete."""
    body = json.dumps({"namespace": "u", "id": "s"})
    assert ask("api/forget", method="POST", body=body)[0] == 404
    assert memory.get("s", namespace="u").turns


def test_forgetting_where_it_is_allowed(memory: MemGAS) -> None:
    """With --allow-forget a session is deleted by a POST from the page; not by a GET, from elsewhere, or with nonsense."""
    with open_page(memory, allow_forget=True).in_background() as url:
        ask = asking(url)
        body = json.dumps({"namespace": "u", "id": "s"})
        assert ask("api/forget", method="POST", body=body, Origin="http://evil.example")[0] == 403
        assert ask("api/forget")[0] == 405
        assert [ask("api/forget", method="POST", body=bad)[0] for bad in ("no json", "[]", "{}")] == [400, 400, 400]
        assert memory.get("s", namespace="u").turns
        assert ask("api/forget", method="POST", body=body)[0] == 200
    with pytest.raises(NotFoundError):
        memory.get("s", namespace="u")


def test_a_search_says_what_the_memory_says(ask: Ask, memory: MemGAS) -> None:
    """Hits, weights and reasons are those of `retrieve`; why-not is that of `explain`."""
    found = json.loads(ask(f"api/search?{urlencode({'namespace': 'u', 'q': 'Who keeps bees?'})}")[2])
    told = memory.retrieve("Who keeps bees?", namespace="u")
    why = json.loads(ask(f"api/why?{urlencode({'namespace': 'u', 'q': 'Who keeps bees?', 'id': 's'})}")[2])

    assert [hit["id"] for hit in found["hits"]] == [hit.session_id for hit in told.hits]
    assert found["hits"][0]["parts"] == pytest.approx(dict(told.hits[0].parts))
    assert [route["weight"] for route in found["routes"]] == pytest.approx([r.weight for r in told.trace.routes])
    assert ["found", 1] == [why["stage"], why["place"]]


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("Lena keeps bees.", "the bee", ["bees"]),
        ("😀 bees, Bees!", "bees", ["bees", "Bees"]),
        ("我今天开始学二胡了", "二胡课", ["二胡"]),
        ("nothing here", "bees", []),
        ("KX-7714B is broken", "kx-7714b", ["KX-7714B"]),
    ],
)
def test_words_of_the_query_are_marked(text: str, query: str, expected: list[str]) -> None:
    """What BM25 matched is marked, stems and Chinese pairs too, and the pieces are the text."""
    pieces = marked(text, set(tokenize(query)))
    cut = [piece for piece in pieces if isinstance(piece, list)]

    assert "".join(str(piece[0]) for piece in cut) == text
    assert [piece[0] for piece in cut if piece[1]] == expected
