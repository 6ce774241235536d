"""Processes that are killed: when, and what they had acknowledged."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from tests.robustness.scale import ROOT, environment

_PATIENCE = 10
"""Seconds that a kill waits for an index to be written; it comes anyway."""


def kill_when(
    module: str, *arguments: str, folder: Path, n_lines: int, at_index: bool, dice: random.Random
) -> tuple[list[int], bool]:
    """Run a module that prints a number for whatever it has done, kill it, return the numbers, and whether in an index write.

    Parameters
    ----------
    folder
        Where it writes.
    n_lines
        Numbers to wait for before the kill.
    at_index
        Kill it a few milliseconds after the files of an index began to change, and not just a few after the last number.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(n_lines)]
        assert all(lines), "the process died by itself"
        is_written = False
        if at_index:
            before, deadline = _index_state(folder), time.monotonic() + _PATIENCE
            while process.poll() is None and not is_written and time.monotonic() < deadline:
                time.sleep(0.0005)
                is_written = _index_state(folder) != before
            time.sleep(dice.uniform(0, 0.03))
        else:
            time.sleep(dice.uniform(0, 0.3))
        process.kill()
        lines += process.stdout.readlines()
    return [int(line) for line in lines if line.endswith("\n")], is_written


def _index_state(folder: Path) -> list[tuple[str, int, int]]:
    """Return what shows that an index is being written."""
    states = []
    for file in sorted(file for segment in folder.glob("*-*-*-*-*") for file in segment.glob("*.bin")):
        try:
            state = file.stat()
        except FileNotFoundError:
            continue
        states.append((str(file), state.st_mtime_ns, state.st_size))
    return states
