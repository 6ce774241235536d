"""The LlamaIndex examples run offline, and show what they claim."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# LlamaIndex itself calls old names of pydantic's, and leaves event loops and connections open.
QUIET = ["-W", "error", "-W", "ignore::DeprecationWarning", "-W", "ignore::ResourceWarning"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("llama_index_query_engine.py", ["  2023-05-08  user: I adopted a greyhound, Juno.", "Query: What is my greyhound called?"]),
        ("llama_index_chat.py", ["> user: I adopted a greyhound, her name is Juno.", "Your greyhound is called Juno.", "remembered: 2"]),
        ("llama_index_agent.py", ["> user: I adopted a greyhound", "Kept for ana: Ana is allergic to walnuts."]),
    ],
)  # fmt: skip
def test_example_runs(name: str, shown: list[str], tmp_path: Path) -> None:
    """An example runs as it is, without a network or a key, leaves nothing behind, and shows its point."""
    environment = {key: value for key, value in os.environ.items() if key != "MEMGAS_EXAMPLE_MODEL"}
    run = subprocess.run(
        [sys.executable, *QUIET, str(EXAMPLES / name)], capture_output=True, text=True, cwd=tmp_path, env=environment,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    for text in shown:
        assert text in run.stdout, run.stdout
    assert list(tmp_path.iterdir()) == []
