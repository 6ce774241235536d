"""A long time with one user: memory and files grow with what was said, not with what was asked, and nothing gets slow."""

from __future__ import annotations

import gc
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from memgas import MemGAS, Turn
from memgas.testing import HashEmbedder
from tests.robustness.conftest import Figure
from tests.robustness.scale import scaled
from tests.robustness.story import WORDS

pytestmark = pytest.mark.slow

N_ROUNDS = scaled(300, 2_000, 8_000)
"""A round is two turns said and two questions; two hours of a fast talker are some 2,000."""

N_NAMESPACES = 10


def rss() -> float:
    """Return this process's memory in MB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the files of a folder and their lengths in bytes."""
    return {str(file.relative_to(folder)): file.stat().st_size for file in folder.rglob("*") if file.is_file()}


def test_asking_costs_nothing_that_stays(tmp_path: Path, figure: Figure) -> None:
    """Thousands of questions to a settled memory leave its files as they were and its process within a few MB."""
    with MemGAS(tmp_path, embedder=HashEmbedder()) as memory:
        for n in range(20):
            memory.add([Turn("user", f"{WORDS[n % 16]} boat {n}")] * 4, namespace="n", session_id=f"s{n}")
        for n in range(200):
            memory.retrieve(f"{WORDS[n % 16]} boat", namespace="n")
        memory._workspace.drain()
        files, before = sizes_of(tmp_path), rss()
        n_asked = scaled(500, 5_000, 20_000)
        for n in range(n_asked):
            memory.retrieve(f"{WORDS[n % 16]} boat {n}", namespace="n").context(max_tokens=200)
        grown = rss() - before
        assert sizes_of(tmp_path) == files
        assert grown < 12, f"{grown:.1f} MB more"
    figure("questions asked of a settled memory, files unchanged", n_asked)
    figure("most MB that a process grew by questions alone", round(grown, 1))


def test_a_long_talk(tmp_path: Path, figure: Figure) -> None:
    """At the end a turn and a question take less than 1.5 times what they took at a tenth.

    Processor time, and where the machine itself became slower meanwhile, which a namespace shows that no longer grows, that
    much is taken off.
    """
    dice = random.Random(31)
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    seconds: list[tuple[float, float, float]] = []
    sizes = []
    tenth = N_ROUNDS // 10
    with MemGAS(tmp_path, embedder=HashEmbedder(), clock=lambda: moment) as memory:
        for n in range(N_ROUNDS):
            moment += timedelta(seconds=90 if n % 40 else 7_200)
            namespace = f"n{n % N_NAMESPACES}"
            said = f"{' '.join(dice.choices(WORDS, k=8))} {n}"
            if n < tenth and n % N_NAMESPACES == 0:
                memory.append([Turn("user", said), Turn("assistant", "I see.")], namespace="still", conversation_id="c")
            began = time.process_time()
            memory.append([Turn("user", said), Turn("assistant", "I see.")], namespace=namespace, conversation_id="c")
            memory._workspace.drain()
            after_turn = time.process_time()
            for _ in range(2):
                found = memory.retrieve(said, namespace=namespace, exclude_sessions=())
            after_questions = time.process_time()
            assert found.hits[0].evidence
            if tenth <= n < 2 * tenth or n >= N_ROUNDS - tenth:
                memory.retrieve(said, namespace="still")
            seconds.append((after_turn - began, after_questions - after_turn, time.process_time() - after_questions))
            if n + 1 in (N_ROUNDS // 2, N_ROUNDS):
                sizes.append(sum(sizes_of(tmp_path).values()))
        assert memory.check() == []
        assert sum(memory.stats(f"n{n}").n_turns for n in range(N_NAMESPACES)) == 2 * N_ROUNDS
    early = np.median(seconds[tenth : 2 * tenth], axis=0)
    late = np.median(seconds[-tenth:], axis=0)
    turn, question, machine = late / early
    ratios = np.array([turn, question]) / max(machine, 1.0)
    assert sizes[1] < 2.5 * sizes[0]
    if N_ROUNDS >= 2_000:  # before that a tenth is a memory that is nearly empty
        assert ratios.max() < 1.5, (turn, question, machine)
    figure("rounds of a long talk", N_ROUNDS)
    figure("most times slower in the end, a turn", round(float(ratios[0]), 2))
    figure("most times slower in the end, a question", round(float(ratios[1]), 2))
    figure("most times slower in the end, the machine itself", round(float(machine), 2))
