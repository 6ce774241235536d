"""Against a real Chroma server that is killed and started again; several workers; a lost index."""

from __future__ import annotations

import logging
import random
import shutil
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from memgas import MemGAS, NewSession, Turn
from memgas.errors import StoreError
from memgas.testing import HashEmbedder
from tests.robustness.conftest import Figure
from tests.robustness.scale import ROOT, environment, scaled
from tests.robustness.serving import Server

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]  # sockets of killed servers

N_KILLS = scaled(1, 6, 30)
N_WORKERS = scaled(2, 4)
N_SESSIONS = scaled(6, 25)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Run a server."""
    server = Server(tmp_path / "served")
    yield server
    server.kill()


def talk(number: int) -> list[Turn]:
    """Return a session's turns."""
    return [Turn(("user", "assistant")[n % 2], f"session {number} says {n} of the boat") for n in range(12)]


def test_a_server_is_killed(server: Server, figure: Figure) -> None:
    """Every acknowledged session is there after each kill and restart, and none is half there."""
    dice = random.Random(N_KILLS)
    n_kept = 0
    for _ in range(N_KILLS):
        memory = MemGAS(client=server.client(), embedder=HashEmbedder())
        timer = threading.Timer(dice.uniform(0, 0.5), server.kill)
        last_in_peace = n_kept + dice.randint(1, 6)
        try:
            while True:
                memory.add(talk(n_kept), namespace="n", session_id=f"s{n_kept}")
                n_kept += 1
                if n_kept == last_in_peace:
                    timer.start()
        except StoreError:
            pass
        timer.join()
        server.start()
        with MemGAS(client=server.client(), embedder=HashEmbedder()) as memory:
            listed = [record.session_id for record in memory.list_sessions(namespace="n")]
            assert listed in ([f"s{n}" for n in range(n_kept)], [f"s{n}" for n in range(n_kept + 1)])
            n_kept = len(listed)
            for n in range(n_kept):
                assert memory.get(f"s{n}", namespace="n").turns == tuple(talk(n))
            memory.repair()
            assert memory.check() == []
    figure("kills of a server, 0 acknowledged sessions lost", N_KILLS)
    figure("sessions acknowledged by servers", n_kept)


def test_a_server_that_lost_its_index(server: Server, tmp_path: Path, figure: Figure) -> None:
    """What a server's torn index lost is told by `check` and embedded again by `repair`: found and scored as before."""
    with MemGAS(client=server.client(), embedder=HashEmbedder()) as memory:
        news = [NewSession(talk(n) * 9, f"s{n}") for n in range(22)]
        memory.add_many(news, namespace="n")
        memory._workspace.drop_mirrors()  # vectors as they come back from the server
        hits = memory.retrieve("session 7 says 3", namespace="n", top_k=22).hits
        wanted = {hit.session_id: hit.rank_score for hit in hits}
        edges = memory.graph("n").number_of_edges()
        with memory._workspace.reading("n") as index:
            n_units = int(index.alive.sum())
    server.kill()
    for segment in (tmp_path / "served").glob("*-*-*-*-*"):
        shutil.rmtree(segment)
    server.start()
    with MemGAS(client=server.client(), embedder=HashEmbedder()) as memory:
        assert memory.check()
        assert any(line.startswith("embedded again") for line in memory.repair())
        assert memory.check() == []
        found = memory.retrieve("session 7 says 3", namespace="n", top_k=22).hits
        # The server rounds: sessions that nearly tie may change places.
        assert {hit.session_id: hit.rank_score for hit in found} == pytest.approx(wanted, abs=2e-2)
        assert memory.graph("n").number_of_edges() == edges
    figure("units on a server whose index was lost, all embedded again", n_units)


def test_a_token_of_the_server_is_in_no_text(server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bearer token that is sent to the server is in no repr, log line, export or error, nor when the server is gone."""
    import chromadb

    token = "very-secret-0123456789"
    client = chromadb.HttpClient(port=server.port, headers={"Authorization": f"Bearer {token}"})
    memory = MemGAS(client=client, embedder=HashEmbedder())
    with caplog.at_level(logging.DEBUG, logger="memgas"):
        memory.add(talk(1), namespace="n", session_id="s")
        shown = [repr(memory), repr(memory.retrieve("boat", namespace="n")), repr(memory._workspace.store)]
        memory.export_jsonl(tmp_path / "out.jsonl", namespace="n")
        server.kill()
        with pytest.raises(StoreError) as caught:
            memory.add(talk(2), namespace="n", session_id="t")
    shown += [(tmp_path / "out.jsonl").read_text("utf-8"), caplog.text]
    shown += traceback.format_exception(caught.value)
    assert token not in "".join(shown)


WORKER = """
import sys
import chromadb
from memgas import MemGAS, Turn
from memgas.testing import HashEmbedder
port, name, n_sessions, names = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].split(",")
memory = MemGAS(client=chromadb.HttpClient(host="127.0.0.1", port=port), embedder=HashEmbedder())
for n in range(n_sessions):
    memory.append(Turn("user", f"{name} says {n}"), namespace=name, session_id=f"s{n}")
    if n % 5 == 4:
        memory.delete_session(f"s{n - 2}", namespace=name)
    for other in names:
        for record in memory.list_sessions(namespace=other):
            try:
                text = memory.get(record.session_id, namespace=other).turns[0].text
            except LookupError:
                continue  # deleted since it was listed
            assert text.startswith(f"{other} says")
print("ready", flush=True)
for line in sys.stdin:
    other, session_id = line.split()
    try:
        print(memory.get(session_id, namespace=other).turns[-1].text, flush=True)
    except LookupError:
        print("gone", flush=True)
memory.close()
"""


def test_workers_see_each_other(server: Server, figure: Figure) -> None:
    """Processes that write their own namespaces and read all see what another wrote or deleted at their next call."""
    names = [f"w{n}" for n in range(N_WORKERS)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(server.port), name, str(N_SESSIONS), ",".join(names)], cwd=ROOT,
            env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name in names
    ]  # fmt: skip

    def ask(worker: subprocess.Popen[str], question: str) -> str:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(question + "\n")
        worker.stdin.flush()
        return worker.stdout.readline().strip()

    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        n_seen = 0
        with MemGAS(client=server.client(), embedder=HashEmbedder()) as memory:
            kept = [n for n in range(N_SESSIONS) if n % 5 != 2 or n + 2 >= N_SESSIONS]
            for name in names:
                assert [r.session_id for r in memory.list_sessions(namespace=name)] == [f"s{n}" for n in kept]
            for round_ in range(5):
                for name in names:
                    text = f"{name} says again {round_}"
                    memory.append(Turn("user", text), namespace=name, session_id=f"s{kept[-1]}")
                    assert {ask(worker, f"{name} s{kept[-1]}") for worker in workers} == {text}
                    memory.delete_session(f"s{kept[round_]}", namespace=name)
                    assert {ask(worker, f"{name} s{kept[round_]}") for worker in workers} == {"gone"}
                    n_seen += 2 * len(workers)
            assert memory.check() == []
    finally:
        for worker in workers:
            worker.communicate("")
    assert [worker.returncode for worker in workers] == [0] * len(workers)
    figure("writes seen by other processes at their next call", n_seen)
