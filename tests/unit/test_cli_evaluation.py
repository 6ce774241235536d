"""The commands that measure."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from memgas.cli import main
from memgas.evaluation import ABLATIONS, METHODS

FIXTURES = Path(__file__).parent.parent / "fixtures"
LOCOMO, LONGMEMEVAL = str(FIXTURES / "locomo_tiny.json"), str(FIXTURES / "longmemeval_tiny.json")


def run(*arguments: str) -> Result:
    """Run a command with the embedder that needs no model."""
    return CliRunner().invoke(main, [*arguments, "--embedder", "hash"])


def test_evaluate_prints_tables() -> None:
    """The usual methods, without being asked; how long it takes is told beforehand, on stderr."""
    result = run("evaluate", "locomo", LOCOMO, "--summaries", "from-file")
    assert result.exit_code == 0, result.output
    assert "overall, n = 14" in result.stdout
    for name in ("session", "turn", "summary", "keyword", "bm25", "zsum", "paper", "memgas"):
        assert f"\n  {name} " in result.stdout
    assert "to embed with hash" in result.stderr


def test_evaluate_as_json_is_nothing_else() -> None:
    """One JSON value on stdout, in the documented shape, for the methods and groups asked for."""
    result = run("evaluate", "locomo", LOCOMO, "--methods", "bm25, ablation", "--json")
    found = json.loads(result.stdout)
    assert list(found["methods"]) == ["bm25", "memgas", *ABLATIONS]
    assert found["n_questions"] == 14


def test_reports_are_written_where_asked(tmp_path: Path) -> None:
    """Every method in files of every kind from one run; the cache folder spares the next run the embedding."""
    out = [tmp_path / name for name in ("r.md", "r.json", "r.html")]
    cache = tmp_path / "cache"
    options = [option for path in out for option in ("--out", str(path))]
    first = run("evaluate", "longmemeval", LONGMEMEVAL, "--methods", "all", "--cache", str(cache), *options)
    assert first.exit_code == 0, first.output
    for path in out:
        text = path.read_text("utf-8")
        assert all(name in text for name in METHODS), path
    again = run("evaluate", "longmemeval", LONGMEMEVAL, "--methods", "all", "--cache", str(cache), "--json")
    assert json.loads(again.stdout)["embedding"]["n_embedded"] == 0


def test_several_data_sets_are_pooled() -> None:
    """`pooled` takes data sets with their files."""
    result = run("evaluate", "pooled", f"locomo={LOCOMO}", f"longmemeval={LONGMEMEVAL}", "--methods", "zsum,memgas")
    assert result.exit_code == 0, result.output
    assert "locomo + longmemeval: 17 questions" in result.stdout
    assert "type longmemeval, n = 3" in result.stdout


def test_own_chats_are_evaluated(tmp_path: Path) -> None:
    """Two files of your own: sessions, and questions with the session or the words expected."""
    said = [("dog", "I adopted a greyhound called Juno."), ("job", "I start at the bridge office.")]
    sessions, questions = tmp_path / "sessions.jsonl", tmp_path / "questions.jsonl"
    sessions.write_text("".join(
        json.dumps({"session_id": name, "happened_at": f"2024-0{i}-01", "turns": [{"speaker": "maya", "text": text}]}) + "\n"
        for i, (name, text) in enumerate(said, 1)
    ))  # fmt: skip
    asked = [
        {"question": "Which greyhound?", "expected": "dog"},
        {"question": "Which office?", "phrase": "bridge office"},
    ]
    questions.write_text("".join(json.dumps(entry) + "\n" for entry in asked))
    result = run("evaluate", "own", str(sessions), str(questions), "--methods", "memgas", "--json")
    assert json.loads(result.stdout)["methods"]["memgas"]["overall"]["mrr"] == 1.0


def test_sweep_measures_every_point(tmp_path: Path) -> None:
    """A grid of two settings has all combinations, beside the base; one setting is drawn as a curve."""
    result = run("sweep", "locomo", LOCOMO, "--set", "n_seeds=5,15", "--set", "damping=0.1,0.5", "--json")
    assert list(json.loads(result.stdout)["methods"]) == [
        "memgas", *(f"n_seeds={n} damping={d}" for n in (5, 15) for d in (0.1, 0.5)),
    ]  # fmt: skip
    page = tmp_path / "sweep.html"
    result = run("sweep", "locomo", LOCOMO, "--preset", "paper-lambda", "--base", "paper", "--out", str(page))
    assert result.exit_code == 0, result.output
    assert "recall_all by router_temperature" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "locomo", "missing.json"], "missing.json"),
        (["evaluate", "squad", LOCOMO], "a data set must be one of"),
        (["evaluate", "own", LOCOMO], "takes two files"),
        (["evaluate", "locomo", LOCOMO, LOCOMO], "takes one file; got 2"),
        (["evaluate", "pooled", LOCOMO], "locomo=FILE"),
        (["evaluate", "pooled", f"pooled={LOCOMO}"], "locomo=FILE"),
        (["evaluate", "locomo", LOCOMO, "--methods", "best"], "a method must be one of"),
        (["evaluate", "locomo", LOCOMO, "--out", "report.pdf"], "ends in .md, .json or .html"),
        (["evaluate", "locomo", LOCOMO, "--sample", "0"], "at least 1 question"),
        (["sweep", "locomo", LOCOMO], "at least one setting"),
        (["sweep", "locomo", LOCOMO, "--set", "n_seeds=x"], "of type int"),
        (["answer", "locomo", LOCOMO, "--llm-model", "m", "--methods", "bm25"], "a method to answer by"),
        (["answer", "locomo", LOCOMO, "--llm-model", "m", "--max-cost", "1"], "prices of every model"),
        (["answer", "locomo", LOCOMO], "--llm-model"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(arguments: list[str], message: str) -> None:
    """What cannot be used is told in words, on stderr, before anything is embedded or asked."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
