"""The LangChain examples run offline, and show what they claim."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("langchain_chain.py", ["> user: I adopted a greyhound, her name is Juno.", "AI: She sleeps, being a greyhound."]),
        ("langchain_agent.py", ["AI: Your greyhound is called Juno.", "> note: Ana is allergic to walnuts.", "Of ben: ['today']"]),
        ("langgraph_store.py", ["known to the model: nothing", "- I always want a window seat on the train. (score 0."]),
    ],
)  # fmt: skip
def test_example_runs(name: str, shown: list[str], tmp_path: Path) -> None:
    """An example runs as it is, without a network or a key, without a warning, leaves nothing behind, and shows its point."""
    environment = {key: value for key, value in os.environ.items() if key != "MEMGAS_EXAMPLE_MODEL"}
    run = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)], capture_output=True, text=True, cwd=tmp_path,
        env=environment, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    for text in shown:
        assert text in run.stdout, run.stdout
    assert list(tmp_path.iterdir()) == []
