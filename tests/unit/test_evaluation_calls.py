"""The log of calls: nothing is paid twice, nothing goes over the cap."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memgas.errors import InvalidInputError, LLMError
from memgas.evaluation.call_log import CallLog, Cap, CapReachedError, LoggedLLM, Price
from memgas.testing.scripted_llm import ScriptedLLM

NO_CAP = Cap()


class Counting:
    """Echoes the prompt, and says that it took 100 and 10 tokens."""

    is_thread_safe = True

    def __init__(self) -> None:
        self.n_calls = 0
        self._lock = threading.Lock()

    def complete(self, prompt: str) -> str:
        """Answer."""
        return self.complete_counted(prompt)[0]

    def complete_counted(self, prompt: str) -> tuple[str, int, int]:
        """Answer and count."""
        with self._lock:
            self.n_calls += 1
        return f"echo {prompt}", 100, 10


def test_a_reply_in_the_log_is_not_paid_again(tmp_path: Path) -> None:
    """The same prompt to the same model is asked once, in this run and in the next; another model is asked itself."""
    path, model = tmp_path / "calls.jsonl", Counting()
    for expected in (2, 2):
        log = CallLog(path, prices={}, cap=NO_CAP)
        llm = LoggedLLM(model, "m", log, kind="answer")
        assert [llm.complete(prompt) for prompt in ("a", "b", "a")] == ["echo a", "echo b", "echo a"]
        assert model.n_calls == expected
        log.close()
    log = CallLog(path, prices={}, cap=NO_CAP)
    assert (log.n_made, log.n_reused, len(log.calls)) == (0, 0, 2)
    assert LoggedLLM(model, "other", log, kind="judge").complete("a") == "echo a"
    assert model.n_calls == 3
    log.close()
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [(line["model"], line["kind"], line["n_prompt_tokens"]) for line in lines] == [
        ("m", "answer", 100), ("m", "answer", 100), ("other", "judge", 100),
    ]  # fmt: skip


def test_a_line_that_a_kill_cut_is_asked_again(tmp_path: Path) -> None:
    """What was written whole stays; of a torn last line nothing is left, and its call is made again."""
    path = tmp_path / "calls.jsonl"
    log = CallLog(path, prices={}, cap=NO_CAP)
    llm = LoggedLLM(Counting(), "m", log, kind="answer")
    llm.complete("a")
    llm.complete("b 字")
    log.close()
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole), 7):
        path.write_bytes(whole[:cut])
        model = Counting()
        log = CallLog(path, prices={}, cap=NO_CAP)
        assert len(log.calls) == 1
        again = LoggedLLM(model, "m", log, kind="answer")
        again.complete("a")
        again.complete("b 字")
        log.close()
        assert model.n_calls == 1
        assert len(path.read_bytes().splitlines()) == 2


def test_threads_that_ask_the_same_share_one_call(tmp_path: Path) -> None:
    """Many threads, few prompts: each is asked once."""
    model = Counting()
    log = CallLog(tmp_path / "calls.jsonl", prices={}, cap=NO_CAP)
    llm = LoggedLLM(model, "m", log, kind="answer")
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(llm.complete, [str(i % 5) for i in range(200)]))
    assert replies == [f"echo {i % 5}" for i in range(200)]
    assert (model.n_calls, log.n_made, log.n_reused) == (5, 5, 195)
    log.close()


def test_the_cap_on_calls_is_never_passed(tmp_path: Path) -> None:
    """Whatever the number of threads, and counting earlier runs: no call beyond the cap; what is known stays free."""
    model, path = Counting(), tmp_path / "calls.jsonl"
    for max_calls in (3, 5):
        log = CallLog(path, prices={}, cap=Cap(max_calls=max_calls))
        llm = LoggedLLM(model, "m", log, kind="answer")

        def ask(prompt: int, llm: LoggedLLM = llm) -> bool:
            try:
                llm.complete(str(prompt))
            except CapReachedError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(ask, range(40))) >= max_calls
        assert model.n_calls == max_calls
        log.close()


def test_the_cap_on_cost_reckons_before_it_pays() -> None:
    """A call is made only if its prompt and its longest reply fit; the cost is exact, by the model's own count."""
    model = Counting()
    log = CallLog(
        None, prices={"m": Price(prompt=1_000.0, reply=10_000.0)}, cap=Cap(max_cost=0.45, max_reply_tokens=10)
    )
    llm = LoggedLLM(model, "m", log, kind="answer")
    llm.complete("a")
    assert log.cost == pytest.approx(100 * 0.001 + 10 * 0.01)
    llm.complete("b")
    with pytest.raises(CapReachedError, match=r"cap on cost, 0\.45"):
        llm.complete("c")
    assert model.n_calls == 2
    assert log.cost == pytest.approx(0.4)


def test_a_failed_call_is_not_written(tmp_path: Path) -> None:
    """A model that raises costs nothing and leaves nothing; the next try asks again."""
    model = ScriptedLLM([OSError("down"), "yes"])
    log = CallLog(tmp_path / "calls.jsonl", prices={}, cap=Cap(max_calls=1))
    llm = LoggedLLM(model, "m", log, kind="judge")
    with pytest.raises(LLMError, match="down"):
        llm.complete("a")
    assert list(log.calls) == []
    assert llm.complete("a") == "yes"
    assert [call.is_estimated for call in log.calls] == [True]
    log.close()


@pytest.mark.parametrize("content", ["no json\n", "no line", '{"key": 1}\n', "[]\n", '{"a":\n'])
def test_another_file_is_refused(content: str, tmp_path: Path) -> None:
    """A file that is no log is named with its line, and left as it is."""
    path = tmp_path / "notes.jsonl"
    path.write_text(content, "utf-8")
    with pytest.raises(InvalidInputError, match=r"notes\.jsonl, line 1"):
        CallLog(path, prices={}, cap=NO_CAP)
    assert path.read_text("utf-8") == content


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A folder is no log."""
    with pytest.raises(InvalidInputError, match="log that can be written"):
        CallLog(tmp_path, prices={}, cap=NO_CAP)
