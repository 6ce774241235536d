"""The command line."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from memgas import memory
from memgas.cli import main
from memgas.errors import EmbedderError
from memgas.testing import HashEmbedder

Run = Callable[..., Result]

CHAT = (
    "maya: I adopted a greyhound called Juno from the rescue centre.\nassistant: Congratulations on your greyhound!\n"
)
WORK = "maya: I start at the bridge office on Monday morning.\nassistant: Enjoy the bridges, engineer!\n"


def invoke(folder: Path, *arguments: str, text: str | None = None) -> Result:
    """Run a command in this process on the memory in a folder, with the embedder that needs no model."""
    options = {"MEMGAS_PATH": str(folder)}
    return CliRunner().invoke(main, [*arguments, "--embedder", "hash"], input=text, env=options)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run commands on a memory of their own."""

    def run_in(*arguments: str, text: str | None = None, path: str = "memory") -> Result:
        return invoke(tmp_path / path, *arguments, text=text)

    return run_in


@pytest.fixture(scope="module")
def two_sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a memory of two sessions, to be copied."""
    folder = tmp_path_factory.mktemp("made") / "memory"
    for session_id, text in (("dog", CHAT), ("work", WORK)):
        result = invoke(folder, "add", "-n", "maya", "--session", session_id, text=text)
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def filled(run: Run, two_sessions: Path, tmp_path: Path) -> Run:
    """Run commands on a memory of two sessions."""
    shutil.copytree(two_sessions, tmp_path / "memory")
    return run


def test_what_was_added_is_found(filled: Run) -> None:
    """A search shows the session, its score and the words that were said."""
    result = filled("search", "Who is my greyhound?", "-n", "maya", "-k", "1")

    assert result.exit_code == 0
    assert "dog" in result.stdout
    assert "I adopted a greyhound called Juno" in result.stdout
    assert "bridge" not in result.stdout


def test_the_same_turns_again_change_nothing(filled: Run) -> None:
    """Adding a session a second time adds no turn."""
    result = filled("add", "-n", "maya", "--session", "dog", "--json", text=CHAT)

    assert json.loads(result.stdout)["n_new_turns"] == 0


def test_conversations_grow_and_retries_are_harmless(run: Run) -> None:
    """Turns are appended to a conversation; with their position given, the same ones again change nothing."""
    counts = [
        json.loads(run("add", "-n", "maya", "--conversation", "c", "--at", at, "--json", text=text).stdout)[
            "n_new_turns"
        ]
        for at, text in (("0", CHAT), ("2", WORK), ("2", WORK))
    ]

    assert [2, 2, 0] == counts


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "greyhound", "-n", "maya"),
        ("search", "greyhound", "-n", "maya", "--context", "200"),
        ("explain", "greyhound", "-n", "maya"),
        ("stats",),
        ("stats", "-n", "maya"),
        ("doctor",),
        ("doctor", "--repair"),
        ("forget", "-n", "maya", "--session", "dog", "--yes"),
    ],
    ids=" ".join,
)
def test_json_is_all_there_is_on_stdout(filled: Run, arguments: tuple[str, ...]) -> None:
    """With `--json`, stdout is one JSON object and nothing else; without it, text for people."""
    as_json = filled(*arguments, "--json")

    assert as_json.exit_code == 0, as_json.output
    assert isinstance(json.loads(as_json.stdout), dict)
    if arguments[0] != "forget":
        text = filled(*arguments)
        assert text.exit_code == 0, text.output
        assert text.stdout.strip()
        assert not text.stdout.startswith("{")


def test_export_and_import_carry_a_memory_over(filled: Run, tmp_path: Path) -> None:
    """What `export` writes, to a file or to stdout alike, `import` reads: the other memory finds the same."""
    to_stdout = filled("export", "-n", "maya").stdout
    file = tmp_path / "maya.jsonl"
    assert filled("export", str(file), "-n", "maya").exit_code == 0
    assert file.read_text("utf-8") == to_stdout

    imported = filled("import", str(file), "-n", "maya", "--json", path="other")

    assert imported.exit_code == 0, imported.output
    assert {"n_sessions": 2} == json.loads(imported.stdout)
    searches = [filled("search", "greyhound", "-n", "maya", "--json", path=path) for path in ("memory", "other")]
    hits = [json.loads(search.stdout)["hits"] for search in searches]
    assert [hit["session_id"] for hit in hits[0]] == [hit["session_id"] for hit in hits[1]]
    assert hits[0][0]["evidence"] == hits[1][0]["evidence"]


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (("add", "-n", "maya"), "", "the input is empty"),
        (("add", "-n", "maya"), "nobody speaks", "line 1 does not say who speaks"),
        (("add", "-n", " "), CHAT, "namespace"),
        (("add",), CHAT, "Missing option '-n'"),
        (("add", "-n", "maya", "--happened-at", "2024-05-08T10:00"), CHAT, "--happened-at needs a time zone"),
        (("add", "-n", "maya", "--metadata", "{topic}"), CHAT, "is no JSON"),
        (("add", "-n", "maya", "--session", "dog"), WORK, "replace_session"),
        (("add", "-n", "maya", "--session", "s", "--conversation", "c"), CHAT, "--conversation goes with neither"),
        (("search", " ", "-n", "maya"), None, "query"),
        (("search", "dog", "-n", "maya", "-k", "0"), None, "top_k"),
        (("search", "dog", "-n", "maya", "--since", "soon"), None, "--since must be a date or time"),
        (("search", "dog", "-n", "maya", "--where", "[1]"), None, "must be a JSON object"),
        (("search", "dog", "-n", "maya", "--where", '{"a": {"$near": 1}}'), None, "$near"),
        (("export", "-n", "nobody"), None, "there is no namespace 'nobody'"),
        (("forget", "-n", "maya", "--session", "nowhere", "--yes"), None, "nowhere"),
        (("forget", "-n", "nobody", "--yes"), None, "nobody"),
        (("forget", "-n", "maya", "--turn", "1", "--yes"), None, "give the session too"),
        (("import", "-n", "maya"), "no json", "JSON"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(
    filled: Run, arguments: tuple[str, ...], text: str | None, message: str
) -> None:
    """What cannot be used is said in a sentence on stderr, with exit code 2, no traceback, and nothing on stdout."""
    result = filled(*arguments, text=text)

    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", [["search", "dog", "-n", "maya"], ["stats"], ["export", "-n", "a"], ["doctor"]])
def test_no_memory_is_made_by_looking(run: Run, command: list[str], tmp_path: Path) -> None:
    """A command that only reads refuses a path without a memory, and leaves none behind."""
    result = run(*command, path="nothing")

    assert result.exit_code == 2
    assert "there is no memory at" in result.stderr
    assert not (tmp_path / "nothing").exists()


def test_an_unknown_embedder_is_bad_input(tmp_path: Path) -> None:
    """An embedder's name that is not known is answered with those that are."""
    arguments = ["add", "-n", "maya", "--path", str(tmp_path), "--embedder", "no-such"]
    result = CliRunner().invoke(main, arguments, input=CHAT)

    assert result.exit_code == 2
    assert "fast-use" in result.stderr


def test_a_failure_is_exit_code_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails at work, a model for one, is a sentence too, with exit code 1."""

    def broken(name: str) -> None:
        raise EmbedderError(f"{name} has no weights")

    monkeypatch.setattr(memory, "load_embedder", broken)
    result = run("add", "-n", "maya", text=CHAT)

    assert result.exit_code == 1
    assert result.stderr == "Error: hash has no weights\n"


def test_forget_asks_first(filled: Run) -> None:
    """Without `--yes` a deletion is asked about, and a no leaves everything as it was."""
    result = filled("forget", "-n", "maya", text="n\n")

    assert result.exit_code == 1
    assert "Delete everything of namespace 'maya'?" in result.stderr
    assert "Juno" in filled("search", "greyhound", "-n", "maya").stdout


@pytest.mark.parametrize(
    ("target", "gone", "stays"),
    [
        (["--session", "dog"], "greyhound called Juno", "bridge office"),
        (["--session", "dog", "--turn", "0"], "greyhound called Juno", "Congratulations"),
        ([], "greyhound called Juno", None),
    ],
    ids=["session", "turn", "namespace"],
)
def test_forgetting_is_proven(filled: Run, target: list[str], gone: str, stays: str | None, tmp_path: Path) -> None:
    """With `--erase --prove`, no result, no export and no byte on disk holds the words; all else is still there."""
    result = filled("forget", "-n", "maya", *target, "--yes", "--erase", "--prove", "--json")

    assert result.exit_code == 0, result.output
    proof = json.loads(result.stdout)["proof"]
    assert ([], [], []) == (proof["in_results"], proof["in_export"], proof["in_files"])
    assert proof["n_pieces"] > 0
    files = [path for path in (tmp_path / "memory").rglob("*") if path.is_file()]
    assert not [path.name for path in files if gone.encode() in path.read_bytes()]
    if stays is not None:
        assert stays in filled("export", "-n", "maya").stdout


def test_bytes_that_are_left_are_told(filled: Run) -> None:
    """Deleted but not erased, the bytes are still on the disk: the proof says so, with exit code 1."""
    result = filled("forget", "-n", "maya", "--session", "dog", "--yes", "--prove")

    assert result.exit_code == 1
    assert "in search results  nothing" in result.stdout
    assert "in the files       FOUND" in result.stdout
    assert "the bytes go with --erase" in result.stdout


def test_a_memory_moves_to_another_embedder(filled: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`reembed` embeds every session once with the embedder that is named; the old one is refused from then on."""
    before = filled("export", "-n", "maya").stdout
    assert json.loads(filled("reembed", "--json").stdout) == {"n_sessions": 0}

    monkeypatch.setattr(memory, "load_embedder", lambda name: HashEmbedder(48, name="wide"))
    refused = filled("search", "greyhound", "-n", "maya")
    moved = filled("reembed", "--json")
    again = filled("reembed", "--json")

    assert refused.exit_code == 1
    assert "'hash'" in refused.stderr
    assert "memgas reembed" in refused.stderr
    assert [json.loads(result.stdout) for result in (moved, again)] == [{"n_sessions": 2}, {"n_sessions": 0}]
    assert "greyhound called Juno" in filled("search", "greyhound", "-n", "maya").stdout
    assert filled("doctor").exit_code == 0
    kept = [
        [json.loads(line)["turns"] for line in text.splitlines()]
        for text in (before, filled("export", "-n", "maya").stdout)
    ]
    assert kept[0] == kept[1]
    monkeypatch.undo()
    assert "'wide'" in filled("stats").stderr
    assert "there is no memory" in invoke(tmp_path / "nothing", "reembed").stderr


def test_help_is_light() -> None:
    """`memgas --help` loads no database, no model and no scientific stack but numpy."""
    code = "import sys\nfrom memgas.cli import main\nmain(['--help'], standalone_mode=False)\nprint(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert set() == {"chromadb", "scipy", "sklearn", "networkx", "jieba"} & set(shown.split())


@pytest.mark.slow
def test_two_processes_share_a_memory(tmp_path: Path) -> None:
    """What one process added through a pipe, the next one finds, with the real command and the offline embedder."""
    environment = {**os.environ, "MEMGAS_PATH": str(tmp_path / "memory"), "PYTHONWARNINGS": "error"}

    def command(*arguments: str, text: str | None = None) -> str:
        run = subprocess.run(
            [sys.executable, "-m", "memgas.cli", *arguments],
            input=text, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (run.returncode, run.stderr) == (0, "")
        return run.stdout

    command("add", "-n", "maya", "--session", "dog", "--happened-at", "2024-05-08", text=CHAT)
    found = json.loads(command("search", "What is my dog called?", "-n", "maya", "--json"))

    assert found["hits"][0]["session_id"] == "dog"
    assert found["hits"][0]["happened_at"] == "2024-05-08T00:00:00+00:00"
