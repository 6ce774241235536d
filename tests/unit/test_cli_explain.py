"""The command line: explain, graph, explore."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result

from memgas.cli import main

CHAT = "maya: I adopted a greyhound called Juno.\nassistant: Congratulations!\n"
WORK = "maya: I start at the bridge office on Monday.\nassistant: Enjoy the bridges!\n"
QUERY = "Who is my greyhound?"


def run(folder: Path, *arguments: str, text: str | None = None) -> Result:
    options = {"MEMGAS_PATH": str(folder)}
    return CliRunner().invoke(main, [*arguments, "--embedder", "hash"], input=text, env=options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a memory of two sessions, only to be read."""
    folder = tmp_path_factory.mktemp("made") / "memory"
    for session_id, text in (("dog", CHAT), ("work", WORK)):
        assert run(folder, "add", "-n", "maya", "--session", session_id, text=text).exit_code == 0
    return folder


def test_explain_shows_each_hits_scores_and_path(folder: Path) -> None:
    """As text: router, seeds, a line a granularity; with --json: the same figures as one value."""
    text = run(folder, "explain", QUERY, "-n", "maya").stdout
    data = json.loads(run(folder, "explain", QUERY, "-n", "maya", "--json").stdout)

    assert "router: turn" in text
    assert "1. dog" in text
    assert ["dog", "work"] == [hit["session_id"] for hit in data["hits"]]
    hit = data["hits"][0]
    assert f"rank score {hit['rank_score']:.4f}" in text
    shares = hit["reason"]["shares"]
    assert sum(s["dense"] + s["lexical"] + s["association"] for s in shares) == pytest.approx(hit["rank_score"])


def test_explain_session_tells_why_not(folder: Path) -> None:
    """With --session: where it was lost, and what brings it in; a session that is not there is not found."""
    missed = run(folder, "explain", QUERY, "-n", "maya", "-k", "1", "--session", "work")
    data = json.loads(run(folder, "explain", QUERY, "-n", "maya", "-k", "1", "--session", "work", "--json").stdout)
    nobody = run(folder, "explain", QUERY, "-n", "maya", "--session", "nobody")

    assert "outranked" in missed.stdout
    assert ("rank", 2) == (data["stage"], data["place"])
    assert {"setting": "top_k", "now": 1, "needed": 2, "place": 2} in data["changes"]
    assert "not found" in nobody.stdout


def test_graph_writes_a_file(folder: Path, tmp_path: Path) -> None:
    """Each picture lands in its file; what cannot be drawn exits with 2 and says why."""
    out = tmp_path / "g.json"
    assert run(folder, "graph", "-n", "maya", "--out", str(out)).exit_code == 0
    assert {"dog", "work"} == {node["session_id"] for node in json.loads(out.read_text("utf-8"))["nodes"]}
    for what in (["degrees"], ["similarities", "--session", "work"], ["router", "--query", QUERY]):
        assert run(folder, "graph", "-n", "maya", "--of", *what, "-o", str(out)).exit_code == 0
    assert QUERY in json.loads(out.read_text("utf-8"))["weights"]

    for arguments in (["-n", "maya", "-o", "g.gif"], ["-n", "nobody", "-o", "g.json"]):
        refused = run(folder, "graph", *arguments)
        assert refused.exit_code == 2
        assert refused.stderr


def test_explore_serves_until_interrupted(folder: Path) -> None:
    """The address is printed; the page answers there; Ctrl-C ends it without a traceback."""
    command = [sys.executable, "-m", "memgas.cli", "explore", str(folder), "--embedder", "hash"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().strip()
        with urlopen(f"{url}api/state", timeout=60) as answer:
            state = json.load(answer)
        process.send_signal(signal.SIGINT)
        code, told = process.wait(60), process.stderr.read()

    assert {"namespaces": ["maya"], "allow_forget": False} == state
    assert (code, "Traceback" in told) == (0, False)
