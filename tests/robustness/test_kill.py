"""`kill -9` at any moment of anything: what was acknowledged is there, nothing is half there, `doctor` finds nothing."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memgas import MemGAS, NewSession
from memgas.errors import StoreMismatchError
from memgas.testing import HashEmbedder
from tests.robustness.conftest import Figure
from tests.robustness.killing import kill_when
from tests.robustness.scale import ROOT, environment, scaled
from tests.robustness.story import START, Clock, State, Story, opened, state_of, turns

pytestmark = pytest.mark.slow

N_STORY_KILLS = scaled(2, 30, 150)
N_MOVE_KILLS = scaled(2, 12, 60)
N_IMPORT_KILLS = scaled(1, 6, 30)
N_IMPORTED = 100
NEW = HashEmbedder(48, name="new")


def test_a_killed_memory_loses_nothing(tmp_path: Path, figure: Figure) -> None:
    """After each kill the memory is what the acknowledged steps make of it, or those and the one under way."""
    dice = random.Random(N_STORY_KILLS)
    clock = Clock()
    model = opened(None, clock)
    story = Story(model, clock)
    told = step = n_written = 0
    for n in range(N_STORY_KILLS):
        done, is_written = kill_when(
            "tests.robustness.story", str(tmp_path), str(step), folder=tmp_path, n_lines=dice.randint(1, 12),
            at_index=n % 3 == 2, dice=dice,
        )  # fmt: skip
        step = max(done) + 1
        n_written += is_written
        for told in range(told, step):  # noqa: B020 (goes on where it was)
            story.take(told)
        told = step
        clock.step = step
        with opened(str(tmp_path), clock) as memory:
            assert memory.check() == []
            found = state_of(memory)
            if found != state_of(model):
                story.take(step)
                told = step = step + 1
                assert differences(found, state_of(model)) == []
            for namespace in memory.namespaces():
                graph = memory.graph(namespace)
                assert all("session_id" in graph.nodes[node] for node in graph)
                memory.digest_pending(namespace=namespace)
                assert memory.retrieve("garden boat", namespace=namespace, top_k=3, kind=None).hits
            assert state_of(memory) == found
            assert memory.check() == []
            assert memory.stats().n_pending <= memory.stats().n_open
    model.close()
    figure("kills of a memory, 0 acknowledged steps lost", N_STORY_KILLS)
    figure("kills within 30 ms of an index write", n_written)
    figure("steps acknowledged between kills", told)


def differences(found: State, wanted: State) -> list[object]:
    """Return the sessions that only one of two memories has, and which has them."""
    names = sorted(found.keys() | wanted.keys())
    pairs = [(name, found.get(name, []), wanted.get(name, [])) for name in names]
    return [
        (name, whose, session)
        for name, one, other in pairs
        for whose, has, lacks in (("found", one, other), ("wanted", other, one))
        for session in has
        if session not in lacks
    ]


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a memory with enough in it to be killed while it is moved."""
    folder = tmp_path_factory.mktemp("settled")
    dice = random.Random(1)
    clock = Clock()
    with opened(str(folder), clock) as memory:
        for namespace in ("ana", "bo"):
            news = [NewSession(turns(dice, n, 60), f"s{n}", START) for n in range(40)]
            memory.add_many(news, namespace=namespace)
    return folder


MOVE = """
import sys
from memgas import MemGAS
from memgas.testing import HashEmbedder
MemGAS.reembed(sys.argv[1], embedder=HashEmbedder(48, name="new"), progress=lambda n: print(n, flush=True))
print("done", flush=True)
"""


def test_a_killed_move_goes_on(settled: Path, tmp_path: Path, figure: Figure) -> None:
    """A move to another embedder that is killed again and again ends with every id, every word and every vector new."""
    dice = random.Random(N_MOVE_KILLS)
    n_kills = 0
    while n_kills < N_MOVE_KILLS:
        folder = tmp_path / f"copy{n_kills}"
        shutil.copytree(settled, folder)
        with opened(str(folder), Clock()) as memory:
            before = state_of(memory)
            ids = set(memory.graph("ana")) | set(memory.graph("bo"))
        is_done = False
        while not is_done:
            command = [sys.executable, "-c", MOVE, str(folder)]
            with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as mover:
                assert mover.stdout is not None
                line = mover.stdout.readline()
                time.sleep(dice.uniform(0, 0.3))
                mover.kill()
                is_done = "done\n" in [line, *mover.stdout.readlines()]
            n_kills += 1
            if not is_done:
                refused_with_what_to_do(folder)
            if n_kills >= N_MOVE_KILLS and not is_done:
                MemGAS.reembed(folder, embedder=NEW)
                is_done = True
        with MemGAS(folder, embedder=NEW) as memory:
            assert memory.check() == []
            assert state_of(memory) == before
            assert set(memory.graph("ana")) | set(memory.graph("bo")) == ids
            assert memory.graph("ana").number_of_edges() > 100
    figure("kills of a move to another embedder, 0 ids or words lost", n_kills)


def refused_with_what_to_do(folder: Path) -> None:
    """Check that a store that is being moved says so, unless the kill came after the change."""
    try:
        MemGAS(folder, embedder=NEW).close()
    except StoreMismatchError as error:
        assert "memgas reembed" in str(error)  # noqa: PT017 (either is right)


IMPORT = """
import sys
from memgas import MemGAS
from memgas.testing import HashEmbedder
with MemGAS(sys.argv[1], embedder=HashEmbedder()) as memory:
    memory.import_jsonl(sys.argv[2], namespace="n", progress=lambda n: print(n, flush=True))
print("done", flush=True)
"""


def test_a_killed_import_goes_on(tmp_path: Path, figure: Figure) -> None:
    """Of an import that is killed the first sessions are there whole, all that were acknowledged, and the next call adds the rest."""
    dice = random.Random(N_IMPORT_KILLS)
    file = tmp_path / "sessions.jsonl"
    with opened(None, Clock()) as source:
        source.add_many([NewSession(turns(dice, n, 12), f"s{n}", START) for n in range(N_IMPORTED)], namespace="n")
        source.export_jsonl(file, namespace="n")
        wanted = state_of(source)["n"]
        edges = source.graph("n").number_of_edges()
    n_kills = 0
    while n_kills < N_IMPORT_KILLS:
        folder = tmp_path / f"memory{n_kills}"
        is_done = False
        while not is_done:
            is_last = n_kills >= N_IMPORT_KILLS
            command = [sys.executable, "-c", IMPORT, str(folder), str(file)]
            with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as importer:
                assert importer.stdout is not None
                lines = [importer.stdout.readline()]
                if not is_last:
                    time.sleep(dice.uniform(0, 0.3))
                    importer.kill()
                    n_kills += 1
                lines += importer.stdout.readlines()
            is_done = "done\n" in lines
            acknowledged = max([0, *(int(line) for line in lines if line[:-1].isdigit() and line.endswith("\n"))])
            with MemGAS(folder, embedder=HashEmbedder()) as memory:
                assert memory.check() == []
                found = state_of(memory).get("n", [])
                assert found == wanted[: len(found)]
                assert acknowledged <= len(found)
        assert found == wanted
        with MemGAS(folder, embedder=HashEmbedder()) as memory:
            assert memory.graph("n").number_of_edges() == edges
    figure("kills of an import, 0 acknowledged sessions lost", n_kills)
