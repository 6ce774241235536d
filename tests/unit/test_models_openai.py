"""OpenAI-compatible models against a small server on this machine."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from memgas.errors import EmbedderError, LLMError, MissingExtraError
from memgas.models.openai import OpenAIChat, OpenAIEmbedder
from memgas.types import JSON

pytest.importorskip("openai")

KEY = "sk-secret-0123456789"
Answer = tuple[int, dict[str, str], str]


class _Server(ThreadingHTTPServer):
    """Gives the answers it was told to give, then embeds every text as `[length, 1]`; keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: deque[Answer | Callable[[], Answer]] = deque()
        self.requests: list[tuple[str, dict[str, JSON], str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: object, client_address: object) -> None:
        """Pass over a client that did not wait for its answer."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, body, self.headers.get("Authorization", "")))
        answer = self.server.answers.popleft() if self.server.answers else embedded(body["input"])
        status, headers, text = answer() if callable(answer) else answer
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(text.encode())),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def embedded(texts: list[str]) -> Answer:
    """Embed in reverse order, as a server may."""
    rows = [{"object": "embedding", "index": n, "embedding": [len(text), 1]} for n, text in enumerate(texts)]
    return (
        200,
        {},
        json.dumps(
            {"object": "list", "model": "m", "data": rows[::-1], "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        ),
    )


def said(content: str | None, reason: str = "stop") -> Answer:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return (
        200,
        {},
        json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}),
    )


BUSY: Answer = (429, {"Retry-After": "1", "retry-after-ms": "1"}, '{"error": {"message": "slow down"}}')
BROKEN: Answer = (500, {"retry-after-ms": "1"}, '{"error": {"message": "oh no"}}')


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def embedder(server: _Server) -> Iterator[OpenAIEmbedder]:
    embedder = OpenAIEmbedder("m", base_url=server.url, api_key=KEY, n_dims=2, batch_size=3)
    yield embedder
    embedder.close()


@pytest.fixture
def chat(server: _Server) -> Iterator[OpenAIChat]:
    chat = OpenAIChat("m", base_url=server.url, api_key=KEY)
    yield chat
    chat.close()


def test_embedding(server: _Server, embedder: OpenAIEmbedder) -> None:
    """Texts go out in batches as plain numbers, and come back in the order they were sent."""
    vectors = embedder.embed_documents(["a", "bb", "ccc", "d\ud800\x00d"])
    np.testing.assert_array_equal(vectors, [[1, 1], [2, 1], [3, 1], [4, 1]])
    assert vectors.dtype == np.float32
    assert [request[1] for request in server.requests] == [
        {"model": "m", "input": ["a", "bb", "ccc"], "encoding_format": "float"},
        {"model": "m", "input": ["d? d"], "encoding_format": "float"},
    ]
    assert embedder.embed_query("ee").tolist() == [2, 1]
    assert embedder.embed_documents([]).shape == (0, 2)
    assert {request[2] for request in server.requests} == {f"Bearer {KEY}"}


def test_width_is_learnt_once_or_asked_for(server: _Server) -> None:
    """Not given: one short call finds out. `dimensions` is sent along; without it nothing is."""
    embedder = OpenAIEmbedder("m", base_url=server.url)
    assert (embedder.n_dims, embedder.n_dims, len(server.requests)) == (2, 2, 1)
    embedder.close()
    embedder = OpenAIEmbedder("m", base_url=server.url, dimensions=2)
    assert embedder.n_dims == 2
    embedder.embed_query("x")
    assert server.requests[-1][1]["dimensions"] == 2
    assert "dimensions" not in server.requests[0][1]
    embedder.close()


@pytest.mark.parametrize("trouble", [[BUSY], [BROKEN], [BUSY, BROKEN]])
def test_a_busy_server_is_asked_again(
    server: _Server, embedder: OpenAIEmbedder, chat: OpenAIChat, trouble: list[Answer]
) -> None:
    """429 and 500 are repeated, after as long as the server says, and then all is well."""
    server.answers.extend(trouble)
    assert embedder.embed_query("a").tolist() == [1, 1]
    server.answers.extend([*trouble, said("yes")])
    assert chat.complete("?") == "yes"
    assert len(server.requests) == 2 * len(trouble) + 2


def test_a_broken_server_is_an_error_in_the_end(server: _Server, embedder: OpenAIEmbedder, chat: OpenAIChat) -> None:
    """After three attempts, one of ours, with the server's words."""
    server.answers.extend([BROKEN] * 3)
    with pytest.raises(EmbedderError, match=r"embedding with m failed: InternalServerError.*oh no"):
        embedder.embed_query("a")
    server.answers.extend([BUSY] * 3)
    with pytest.raises(LLMError, match=r"asking m failed: RateLimitError.*slow down"):
        chat.complete("?")
    assert len(server.requests) == 6


def test_the_key_is_never_shown(server: _Server, embedder: OpenAIEmbedder, chat: OpenAIChat) -> None:
    """Neither in a repr, nor among the attributes, nor in an error that quotes it, nor in what that one is chained to."""
    server.answers.append((401, {}, json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}})))
    with pytest.raises(EmbedderError, match=r"AuthenticationError.*\*\*\*") as caught:
        embedder.embed_query("a")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    for thing in (embedder, chat, vars(embedder), vars(chat), vars(chat._connection), caught.value):
        assert KEY not in repr(thing)
    assert "user:pass" not in repr(OpenAIChat("m", base_url="http://user:pass@host/v1"))


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, "{ not json"),
        (200, {"Content-Type": "text/html"}, "<html>gateway</html>"),
        (200, {}, "{}"),
        (200, {}, "[]"),
        (200, {}, "null"),
        (200, {}, '{"data": []}'),
        (200, {}, '{"data": [{"embedding": [1, 2]}]}'),
        (200, {}, '{"data": [{"index": 0}]}'),
        (200, {}, '{"data": [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}]}'),
        (200, {}, '{"data": [{"index": 0, "embedding": ["x"]}]}'),
        (200, {}, '{"data": [{"index": 1, "embedding": [1, 2]}]}'),
        (200, {}, '{"choices": [{"message": {}}]}'),
        (400, {}, '{"error": {"message": "no such model"}}'),
        (404, {}, ""),
    ],
)
def test_other_answers_are_errors(server: _Server, embedder: OpenAIEmbedder, chat: OpenAIChat, answer: Answer) -> None:
    """No JSON, another JSON, a page of a gateway, a refusal: one of ours, at once."""
    server.answers.append(answer)
    with pytest.raises(EmbedderError):
        embedder.embed_query("a")
    server.answers.append(answer)
    with pytest.raises(LLMError):
        chat.complete("?")
    assert len(server.requests) == 2


def test_a_silent_server_times_out(server: _Server) -> None:
    """When it does not answer in time, that is an error too."""
    release = threading.Event()

    def wait() -> Answer:
        release.wait(30)
        return said("late")

    server.answers.append(wait)
    chat = OpenAIChat("m", base_url=server.url, timeout=0.05, max_retries=0)
    with pytest.raises(LLMError, match="asking m failed: APITimeoutError"):
        chat.complete("?")
    release.set()
    chat.close()


def test_nobody_there() -> None:
    """A port that nobody listens on is an error."""
    chat = OpenAIChat("m", base_url="http://127.0.0.1:9/v1", max_retries=0)
    with pytest.raises(LLMError, match="APIConnectionError"):
        chat.complete("?")
    chat.close()


def test_chat(server: _Server) -> None:
    """The prompt is one message of the user; options go along only when given; no text is an error that says why."""
    chat = OpenAIChat("m", base_url=server.url, temperature=0.0, max_output_tokens=99)
    server.answers.extend([said("hello"), said(""), said(None, "content_filter")])
    assert (chat.complete("外婆?"), chat.complete("x")) == ("hello", "")
    with pytest.raises(LLMError, match="without text; it stopped because of 'content_filter'"):
        chat.complete("x")
    path, body, _ = server.requests[0]
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "外婆?"}],
        "temperature": 0.0,
        "max_tokens": 99,
    }
    chat.close()


def test_a_key_from_the_environment_and_none_at_all(server: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's key is sent; a server of one's own needs none; OpenAI itself does, and the error says so."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    embedder = OpenAIEmbedder("m", base_url=server.url, n_dims=2)
    monkeypatch.delenv("OPENAI_API_KEY")
    embedder.embed_query("a")
    assert server.requests[0][2] == f"Bearer {KEY}"
    embedder.close()
    OpenAIEmbedder("m", base_url=server.url, n_dims=2).embed_query("a")
    with pytest.raises(EmbedderError, match="OPENAI_API_KEY"):
        OpenAIEmbedder("m", n_dims=2).embed_query("a")


def test_a_missing_extra_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message holds the pip line."""
    monkeypatch.setattr("memgas.extras.find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=r'pip install "memgas\[openai\]"'):
        OpenAIChat("m")
