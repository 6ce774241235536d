"""The log event of each call."""

import logging

import pytest

from memgas import MemGAS, NotFoundError, Turn
from memgas.testing import HashEmbedder

SECRET = "xylophone"


def events(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """Return the structured events so far."""
    return [vars(record)["memgas"] for record in caplog.records if "memgas" in vars(record)]


@pytest.fixture
def memory() -> MemGAS:
    return MemGAS.in_memory(embedder=HashEmbedder())


async def test_one_event_a_call_and_no_word_of_memory(memory: MemGAS, caplog: pytest.LogCaptureFixture) -> None:
    """Each call logs one event with its ids, time and counts, the async twin too, and no word that was said or asked."""
    caplog.set_level(logging.INFO, "memgas")
    memory.add([Turn("user", f"I bought a {SECRET}.")], namespace="u", session_id="s")
    memory.retrieve(f"Where is my {SECRET}?", namespace="u")
    await memory.aretrieve(f"Where is my {SECRET}?", namespace="u")
    memory.explain(f"Where is my {SECRET}?", namespace="u", session_id="s")
    memory.stats()
    memory.delete_session("s", namespace="u")

    told = events(caplog)
    assert [event["call"] for event in told] == ["add", "retrieve", "retrieve", "explain", "stats", "delete_session"]
    assert all(isinstance(event["seconds"], float) and event["seconds"] >= 0 for event in told)
    assert {"namespace": "u", "session_id": "s", "n_new_turns": 1, "pending": 0}.items() <= told[0].items()
    assert {"namespace": "u", "top_k": 5, "n_hits": 1, "n_sessions": 1}.items() <= told[1].items()
    stages = told[1]["stages"]
    assert isinstance(stages, dict)
    assert {"embed", "rank", "fetch"} <= set(stages)
    assert ("found", "s") == (told[3]["stage"], told[5]["session_id"])
    assert SECRET not in caplog.text + repr([vars(record) for record in caplog.records])


def test_a_call_that_fails_is_told_too(memory: MemGAS, caplog: pytest.LogCaptureFixture) -> None:
    """The event of a call that raised names the error's class; the error itself is the caller's."""
    caplog.set_level(logging.INFO, "memgas")
    with pytest.raises(NotFoundError):
        memory.get("nobody", namespace="u")

    assert [("get", "NotFoundError")] == [(event["call"], event["error"]) for event in events(caplog)]


def test_nobody_listens_nothing_is_told(memory: MemGAS, caplog: pytest.LogCaptureFixture) -> None:
    """Above INFO there are no events, and wrong arguments raise as they would."""
    caplog.set_level(logging.WARNING, "memgas")
    memory.stats()
    assert [] == events(caplog)

    caplog.set_level(logging.INFO, "memgas")
    with pytest.raises(TypeError, match="nonsense"):
        memory.stats(nonsense=1)  # type: ignore[call-arg]
