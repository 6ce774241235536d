"""How much is tried: little in `make test`, the whole in `make robustness`, more in `make soak`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NAME = os.environ.get("MEMGAS_SCALE", "short")
"""`short`, `full` or `soak`."""

ROOT = Path(__file__).parents[2]


def scaled(short: int, full: int, soak: int | None = None) -> int:
    """Return how many of something to try."""
    return {"short": short, "full": full, "soak": full if soak is None else soak}[NAME]


def environment() -> dict[str, str]:
    """Return an environment in which the tests and the library are found, and no thread is wasted."""
    path = os.pathsep.join([str(ROOT / "core"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}


def run(program: str, *arguments: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end; one that takes longer than any busy machine would hangs."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, env=environment(), capture_output=True, text=True,
        check=False, timeout=timeout,
    )  # fmt: skip
