"""A full disk and a read-only one: a clear error, and what was there can still be read."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from memgas import MemGAS
from memgas.testing import HashEmbedder
from tests.robustness.conftest import Figure
from tests.robustness.scale import run, scaled
from tests.robustness.story import Clock, Story, opened, state_of

pytestmark = pytest.mark.slow

N_LIMITS = scaled(1, 4)

HEAD = """
import resource, signal, sys
from memgas import MemGAS, NewSession, Turn
from memgas.errors import StoreError
from memgas.stores import locking
from memgas.testing import HashEmbedder
folder, limit = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def turns(n):
    return [Turn(("user", "assistant")[i % 2], f"session {n} says {i} " + "word" * 30) for i in range(20)]
def fill(memory, n_kept):
    try:
        while n_kept < 500:
            memory.add(turns(n_kept), namespace="n", session_id=f"s{n_kept}")
            n_kept += 1
    except StoreError as error:
        print(str(error).replace(chr(10), " "))
        return n_kept
    sys.exit("the disk was never full")
def check(memory, n_kept):
    memory._workspace.drop_mirrors()
    assert len(memory.list_sessions(namespace="n")) == n_kept, (len(memory.list_sessions(namespace="n")), n_kept)
    for n in range(n_kept):
        assert memory.get(f"s{n}", namespace="n").turns[3].text.startswith(f"session {n} says 3")
    assert memory.retrieve("session 0 says", namespace="n").hits
def limit_to(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
"""

FILL = (
    HEAD
    + """
memory = MemGAS(folder, embedder=HashEmbedder())
memory.add(turns(0), namespace="n", session_id="s0")
limit_to(limit + locking.SPARE_BYTES)
n_kept = fill(memory, 1)
check(memory, n_kept)
assert memory.check() == []
memory.delete_session("s0", namespace="n")
memory.close()
memory = MemGAS(folder, embedder=HashEmbedder())
assert len(memory.list_sessions(namespace="n")) == n_kept - 1
limit_to(resource.RLIM_INFINITY)
memory.add(turns(0), namespace="n", session_id="s0")
check(memory, n_kept)
memory.close()
print(n_kept)
"""
)

CUT = (
    HEAD
    + """
locking.SPARE_BYTES = locking.DELETING_BYTES = -10**9
memory = MemGAS(folder, embedder=HashEmbedder())
memory.add(turns(0), namespace="n", session_id="s0")
limit_to(limit)
n_kept = fill(memory, 1)
limit_to(resource.RLIM_INFINITY)
memory._workspace.drop_mirrors()
n_found = len(memory.list_sessions(namespace="n"))
assert n_found in (n_kept, n_kept + 1), (n_found, n_kept)  # cut off after it was committed: it is there, whole
n_kept = n_found
check(memory, n_kept)
memory.add(turns(n_kept), namespace="n", session_id=f"s{n_kept}")
memory.close()
memory = MemGAS(folder, embedder=HashEmbedder())
check(memory, n_kept + 1)
memory.repair()
assert memory.check() == []
memory.close()
print(n_kept)
"""
)

READ_ONLY = """
import os, sys
import chromadb
from memgas import MemGAS
from memgas.errors import StoreError
from memgas.models import calls
from memgas import demo, opening, reembedding
from memgas.stores import ChromaStore
from memgas.testing import HashEmbedder
if os.getuid() == 0:
    os.setuid(65534)
try:
    MemGAS(sys.argv[1], embedder=HashEmbedder())
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("number", range(N_LIMITS))
@pytest.mark.parametrize("program", [FILL, CUT], ids=["nearly full", "cut off in a write"])
def test_a_full_disk(tmp_path: Path, number: int, program: str, figure: Figure) -> None:
    """A write that finds no room is refused before it begins, what is there is read and deleted; one cut off is undone, or whole."""
    result = run(program, str(tmp_path), str(700_000 + 300_001 * number))
    assert result.returncode == 0, result.stderr
    told, n_kept = result.stdout.splitlines()
    assert "MB are needed to write safely" in told if program is FILL else "writing to" in told
    figure("full disks, 0 sessions lost", 1)
    figure("sessions kept on full disks", int(n_kept))


def test_a_read_only_folder() -> None:
    """A folder that cannot be written to is refused with what to do, and a copy of it has everything."""
    folder = Path(tempfile.mkdtemp())
    try:
        clock = Clock()
        with opened(str(folder / "memory"), clock) as memory:
            story = Story(memory, clock)
            for step in range(4):
                story.take(step)
            wanted = state_of(memory)
        files = [folder, *folder.rglob("*")]
        for file in files:
            file.chmod(0o555 if file.is_dir() else 0o444)
        result = run(READ_ONLY, str(folder / "memory"))
        assert "read-only disk is opened after it was copied" in result.stdout, result.stderr
        assert os.listdir(folder / "memory")
        shutil.copytree(folder / "memory", folder.with_suffix(".copy"))
        for file in (folder.with_suffix(".copy"), *folder.with_suffix(".copy").rglob("*")):
            file.chmod(0o755)
        with MemGAS(folder.with_suffix(".copy"), embedder=HashEmbedder()) as memory:
            assert state_of(memory) == wanted
            assert memory.check() == []
    finally:
        for path in (folder, folder.with_suffix(".copy")):
            for file in (path, *path.rglob("*")):
                if file.exists():
                    file.chmod(0o755)
            shutil.rmtree(path, ignore_errors=True)
