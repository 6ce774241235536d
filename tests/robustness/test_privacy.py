"""No connection but those that were asked for, no pickle of ours, no secret in any text."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from memgas import MemGAS, Turn
from memgas.testing import HashEmbedder
from tests.robustness.conftest import Figure
from tests.robustness.scale import ROOT, run

pytestmark = pytest.mark.slow

LIFE = """
import socket, sys
touched = []
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request"):
        touched.append((event, str(arguments)[:200]))
sys.addaudithook(watch)
from memgas import MemGAS, NewSession, Turn
for embedder in ("hash", "fast-use"):
    with MemGAS(sys.argv[1] + embedder, embedder=embedder) as memory:
        memory.add_many([NewSession([Turn("user", f"boat {n}")], f"s{n}") for n in range(3)], namespace="n")
        memory.append(Turn("user", "hello"), namespace="n", conversation_id="c")
        memory.digest_pending()
        assert memory.retrieve("boat", namespace="n").context(max_tokens=100)
        memory.graph("n"), memory.stats(), memory.export_jsonl(sys.argv[1] + ".jsonl", namespace="n")
        memory.delete_session("s1", namespace="n")
        memory.erase()
        assert memory.check() == []
MemGAS.reembed(sys.argv[1] + "hash", embedder="fast-use")
import langchain_memgas, llama_index_memgas
print(touched)
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("127.0.0.1", 9))
print(len(touched))
"""


def test_no_connection_is_made(tmp_path: Path) -> None:
    """A whole life on disk, offline embedders, erasing and moving: no socket is connected, no name is looked up.

    `strace` of the process is not needed: Chroma's telemetry is Python's; its Rust part opens no connection when embedded,
    which the next test sees from outside.
    """
    result = run(LIFE, str(tmp_path / "m"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["[]", "1"]  # none, and the one that was made to see that it is noticed


def test_no_socket_is_open(tmp_path: Path) -> None:
    """Seen from outside, a process with an embedded memory holds no network socket: not of Chroma's Rust part either."""
    program = """
import os, socket, sys
from memgas import MemGAS, Turn
from memgas.testing import HashEmbedder
def connected():
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    rows = [line.split()[9] for kind in ("tcp", "tcp6", "udp", "udp6") for line in open(f"/proc/self/net/{kind}").readlines()[1:]]
    return len(inodes & set(rows))
seen = []
memory = MemGAS(sys.argv[1], embedder=HashEmbedder())
seen.append(connected())
for n in range(30):
    memory.add([Turn("user", f"boat {n}")], namespace="n")
    memory.retrieve("boat", namespace="n")
    seen.append(connected())
memory.erase()
seen.append(connected())
memory.close()
seen.append(connected())
own = socket.create_server(("127.0.0.1", 0))
print(max(seen), connected())
"""
    if not Path("/proc/self/net/tcp").exists():
        pytest.skip("needs Linux")
    assert run(program, str(tmp_path)).stdout == "0 1\n"  # and one that is there is seen


def test_no_pickle_of_ours() -> None:
    """The library's source loads no pickle, shelve, marshal or eval; Chroma's metadata is read by what refuses a class."""
    found = []
    for folder in ("core/memgas", "langchain_memgas", "llama_index_memgas"):
        for file in (ROOT / folder).rglob("*.py"):
            text = file.read_text("utf-8")
            for word in re.findall(
                r"\b(?:pickle|shelve|marshal|joblib|dill)\.(?:loads?|Unpickler|dumps?)|\beval\(|\bexec\(", text
            ):
                found.append((file.name, word))
            if "allow_pickle=True" in text:
                found.append((file.name, "allow_pickle"))
    assert sorted(found) == [("segments.py", "pickle.Unpickler")]


def test_secrets_are_in_no_text(caplog: pytest.LogCaptureFixture, tmp_path: Path, figure: Figure) -> None:
    """API keys are in no repr, error, log line, trace or export; memory text is in no log line."""
    pytest.importorskip("openai")
    from memgas.models.openai import OpenAIChat, OpenAIEmbedder

    key = "sk-very-secret-0123456789"
    url = "http://127.0.0.1:9/v1"
    embedder = OpenAIEmbedder("m", base_url=url, api_key=key, n_dims=64, max_retries=0, timeout=2)
    llm = OpenAIChat("m", base_url=url, api_key=key, max_retries=0, timeout=2)
    shown = [repr(embedder), repr(llm)]
    with caplog.at_level(logging.DEBUG), MemGAS(tmp_path, embedder=HashEmbedder(), llm=llm) as memory:
        added = memory.add([Turn("user", "the word is Quarzuhr")], namespace="n", session_id="s")
        found = memory.retrieve("Quarzuhr", namespace="n", filter="llm")
        memory.export_jsonl(tmp_path / "out.jsonl", namespace="n")
        shown += [repr(added), repr(found), repr(memory), repr(memory.llm), (tmp_path / "out.jsonl").read_text("utf-8")]
        shown += [repr(memory.get("s", namespace="n"))]
    try:
        embedder.embed_query("x")
    except RuntimeError as error:
        shown += [repr(error), repr(error.__cause__)]
    assert key not in "".join(shown)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("memgas")]
    assert ours
    assert not [line for line in ours if key in line or "Quarzuhr" in line]
    figure("texts searched for secrets, 0 found", len(shown) + len(ours))


PLANTED = """
import sys
import chromadb
from chromadb.utils.embedding_functions import register_embedding_function
from memgas import MemGAS, Turn
from memgas.errors import StoreMismatchError
from memgas.testing import HashEmbedder
built = []
@register_embedding_function
class Planted(chromadb.EmbeddingFunction):
    def __init__(self): built.append(1)
    def __call__(self, input): raise AssertionError
    @staticmethod
    def name(): return "planted"
    def get_config(self): return {}
    @staticmethod
    def build_from_config(config): return Planted()
planted = Planted()
def connected():
    return chromadb.PersistentClient(sys.argv[1], settings=chromadb.config.Settings(anonymized_telemetry=False))
client = connected()
client.create_collection(sys.argv[2], configuration={"hnsw": {"space": "cosine"}, "embedding_function": planted})
built.clear()
own = client.get_collection(sys.argv[2], embedding_function=None)
own.upsert(ids=["x"], embeddings=[[0.0, 1.0]], documents=["x"])
by_chroma = len(built)
client.close()
built.clear()
for where in (lambda: {"path": sys.argv[1]}, lambda: {"client": connected()}):
    try:
        with MemGAS(**where(), embedder=HashEmbedder()) as memory:
            memory.add([Turn("user", "boat")], namespace="n")
        print("opened")
    except StoreMismatchError as error:
        print("'planted'" in str(error))
print(by_chroma > 0, len(built))
"""


@pytest.mark.parametrize("name", ["memgas_turn", "memgas_session", "memgas_keyword"])
def test_a_planted_embedder_is_not_built(tmp_path: Path, name: str) -> None:
    """A collection that names an embedder, which Chroma would build and so run its code, is refused before anything is."""
    result = run(PLANTED, str(tmp_path), name)
    assert result.stdout == "True\nTrue\nTrue 0\n", result.stderr
