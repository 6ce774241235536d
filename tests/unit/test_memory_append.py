"""Turns that are said one at a time: found at once, cut into sittings, digested when one is over, harmless to repeat."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memgas import MemGAS, MemGASConfig, Turn
from memgas.errors import EmbedderError, InvalidInputError, NotFoundError, SessionConflictError
from memgas.testing import HashEmbedder, ScriptedLLM
from memgas.types import GRANULARITIES

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
TALK = [
    Turn("user", "I adopted a greyhound, Juno."),
    Turn("assistant", "Congratulations! How old is she?"),
    Turn("user", "Four. She sleeps all day."),
    Turn("assistant", "Greyhounds do."),
    Turn("user", "And she steals socks."),
]
BEFORE = [
    [Turn("user", f"{subject} in {place}"), Turn("assistant", f"Tell me about {subject} in {place}")]
    for subject in ("greyhounds", "tea", "piano lessons")
    for place in ("Kyoto", "Lisbon")
]
REPLY = '{"summary": "Juno the greyhound.", "keywords": ["Juno", "greyhound"]}'


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:  # noqa: D102
        return self.now

    def wait(self, minutes: float) -> None:
        """Let time pass."""
        self.now += timedelta(minutes=minutes)


class Fails(HashEmbedder):
    """Raises when a text holds a word."""

    word = "\x00"

    def embed_documents(self, texts):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D102
        if any(self.word in text for text in texts):
            raise ConnectionError("no route")
        return super().embed_documents(texts)


def _memory(clock: Clock | None = None, llm: ScriptedLLM | None = None, **settings: object) -> MemGAS:
    config = MemGASConfig(**settings)  # type: ignore[arg-type]
    return MemGAS.in_memory(embedder=HashEmbedder(), llm=llm, config=config, clock=clock or Clock())


def _drain(memory: MemGAS) -> None:
    memory._workspace.drain()


def _told(memory: MemGAS, namespace: str = "n") -> dict[str, object]:
    """Return everything that is stored of a namespace: records, units with their ids, vectors and edges."""
    workspace = memory._workspace
    units = []
    for batch in workspace.store.load(namespace):
        for unit, vector in zip(batch.units, batch.vectors, strict=True):
            units.append(
                (unit, vector.tolist(), sorted((e.target, e.similarity) for e in batch.associations.get(unit.id, ())))
            )
    records = [
        (
            r.session_id,
            r.sequence,
            r.generation,
            r.n_turns,
            r.n_units,
            r.happened_at,
            r.digest_source,
            r.is_open,
            r.is_pending,
        )
        for r in memory.list_sessions(namespace=namespace)
    ]
    return {"units": units, "records": records}


def _ids(memory: MemGAS, conversation_id: str = "thread") -> list[str]:
    return [s.session_id for s in memory.list_sessions(namespace="n", conversation_id=conversation_id)]


@pytest.mark.parametrize("llm", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_grown_is_added(llm: bool, steps: int) -> None:
    """A session appended in pieces and closed has the ids, texts, vectors, digest and edges of one added whole."""
    grown, added = (_memory(llm=ScriptedLLM(default=REPLY) if llm else None) for _ in range(2))
    for memory in (grown, added):
        for number, turns in enumerate(BEFORE):
            memory.add(turns, namespace="n", session_id=f"before-{number}", happened_at=NOON)
    for start in range(0, len(TALK), steps):
        grown.append(TALK[start : start + steps], namespace="n", session_id="s")
    grown.close_session("s", namespace="n")
    _drain(grown)
    added.add(TALK, namespace="n", session_id="s")
    assert grown.get("s", namespace="n").digest == added.get("s", namespace="n").digest
    assert _told(grown) == _told(added)
    assert grown.stats("n").n_associations > 0
    grown.close()
    added.close()


TEXTS = st.text(st.sampled_from("ab 茶👍.!\n"), min_size=1, max_size=30).filter(lambda text: bool(text.strip()))
TURNS = st.lists(st.builds(Turn, st.sampled_from("uv"), TEXTS), min_size=1, max_size=6)


@settings(max_examples=30, deadline=None)
@given(TURNS)
def test_grown_is_added_whatever_was_said(turns: list[Turn]) -> None:
    """The same, for any turns, among them those of which no summary or keyword can be made."""
    with (
        _memory(max_exchange_turns=3, max_exchange_chars=100) as grown,
        _memory(max_exchange_turns=3, max_exchange_chars=100) as added,
    ):
        for turn in turns:
            grown.append(turn, namespace="n", session_id="s")
        grown.close_session("s", namespace="n")
        _drain(grown)
        added.add(turns, namespace="n", session_id="s")
        assert grown.get("s", namespace="n").digest == added.get("s", namespace="n").digest
        assert _told(grown) == _told(added)


def test_found_the_moment_it_is_said() -> None:
    """A turn is found by the next call, while its session is open, without a digest and without asking a model for one."""
    llm = ScriptedLLM()
    memory = _memory(llm=llm)
    added = memory.append(TALK[0], namespace="n", conversation_id="thread")
    assert (added.session_id, added.n_new_turns, added.pending) == ("thread", 1, False)
    hit = memory.retrieve("greyhound Juno", namespace="n").hits[0]
    assert (hit.session_id, hit.evidence[0].turn, hit.summary) == ("thread", TALK[0], "")
    assert llm.prompts == []
    assert memory.stats("n").n_open == 1
    memory.close()


@pytest.mark.parametrize("by", ["id", "position"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_retry_changes_nothing(by: str, whole: bool) -> None:
    """The same message ids, or the same position, again: nothing is written, no model is called."""
    llm = ScriptedLLM(default=REPLY)
    memory = _memory(llm=llm)
    turns = [Turn(t.speaker, t.text, id=f"m{i}" if by == "id" else None) for i, t in enumerate(TALK)]
    at: Callable[[int], int | None] = (lambda i: i) if by == "position" else (lambda i: None)
    for i, turn in enumerate(turns):
        memory.append(turn, namespace="n", conversation_id="thread", at=at(i))
    memory.close_session("thread", namespace="n")
    _drain(memory)
    told, n_texts, head = _told(memory), memory.embedder.n_texts, memory._workspace.store.head("n")
    n_prompts = len(llm.prompts)
    for start in (0, 2):
        given = turns[start:] if whole else turns[start : start + 1]
        assert memory.append(given, namespace="n", conversation_id="thread", at=at(start)).n_new_turns == 0
    assert (_told(memory), memory.embedder.n_texts, memory._workspace.store.head("n")) == (told, n_texts, head)
    assert len(llm.prompts) == n_prompts
    memory.close()


def test_an_overlap_is_skipped() -> None:
    """Of a history that is given again with new turns at its end, only those are stored."""
    memory = _memory()
    memory.append(TALK[:3], namespace="n", conversation_id="thread", at=0)
    assert memory.append(TALK, namespace="n", conversation_id="thread", at=0).n_new_turns == 2
    named = [Turn("user", text, id=text) for text in ("one", "two", "three")]
    memory.append(named[:2], namespace="n", conversation_id="other")
    assert memory.append([named[1], named[1], named[2]], namespace="n", conversation_id="other").n_new_turns == 1
    assert [t.text for t in memory.get("other", namespace="n").turns] == ["one", "two", "three"]
    memory.close()


@pytest.mark.parametrize("where", [{"conversation_id": "thread"}, {"session_id": "s"}])
def test_another_text_is_a_conflict(where: dict[str, str]) -> None:
    """Another text under a known message id, or at a stored position, is refused, and nothing of the call is stored."""
    memory = _memory()
    memory.append([Turn("u", "one", id="m1"), Turn("u", "two")], namespace="n", **where)  # type: ignore[arg-type]
    told = _told(memory)
    with pytest.raises(SessionConflictError, match="message id 'm1'"):
        memory.append([Turn("u", "new"), Turn("u", "other", id="m1")], namespace="n", **where)  # type: ignore[arg-type]
    with pytest.raises(SessionConflictError, match="position 1"):
        memory.append([Turn("u", "other")], namespace="n", at=1, **where)
    with pytest.raises(SessionConflictError, match="position 1"):
        memory.append([Turn("v", "two")], namespace="n", at=1, **where)
    assert _told(memory) == told
    memory.close()


def test_idle_time_begins_another_sitting() -> None:
    """After an hour without a word the conversation goes on in `thread#2`; `thread` is closed and digested."""
    clock = Clock()
    memory = _memory(clock)
    memory.append(TALK[:2], namespace="n", conversation_id="thread")
    clock.wait(60)
    memory.append(TALK[2], namespace="n", conversation_id="thread")
    clock.wait(61)
    assert memory.append(TALK[3], namespace="n", conversation_id="thread").session_id == "thread#2"
    _drain(memory)
    first, second = memory.list_sessions(namespace="n", conversation_id="thread")
    assert (first.is_open, first.is_pending, first.digest_source) == (False, False, "extractive")
    assert (second.is_open, second.first_turn) == (True, 3)
    assert memory.append(TALK[:4], namespace="n", conversation_id="thread", at=0).n_new_turns == 0
    assert memory.append(TALK[3:], namespace="n", conversation_id="thread", at=3).n_new_turns == 1
    memory.close()


def test_a_full_session_is_closed_at_an_exchange() -> None:
    """A session that is full is left at the next exchange, at the latest at twice its size."""
    memory = _memory(max_session_turns=4)
    turns = [Turn("ua"[i % 2], f"number {i}") for i in range(10)]
    memory.append(turns, namespace="n", conversation_id="thread")
    sizes = [s.n_turns for s in memory.list_sessions(namespace="n", conversation_id="thread")]
    assert sizes == [4, 4, 2]
    assert _ids(memory) == ["thread", "thread#2", "thread#3"]
    memory.append([Turn("u", f"word {i}") for i in range(20)], namespace="n", conversation_id="alone")
    sizes = [s.n_turns for s in memory.list_sessions(namespace="n", conversation_id="alone")]
    assert sum(sizes) == 20
    assert max(sizes) <= 8
    memory.close()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("uv"), st.sampled_from([1, 5, 90])), min_size=1, max_size=14), st.integers(1, 5)
)
def test_sittings_do_not_depend_on_how_turns_come(steps: list[tuple[str, int]], size: int) -> None:
    """Dated turns given one at a time, a few at a time, or all at once are cut into the same sessions."""
    moment, turns = NOON, []
    for number, (speaker, minutes) in enumerate(steps):
        moment += timedelta(minutes=minutes)
        turns.append(Turn(speaker, f"number {number}", moment))
    cuts = []
    for n in (1, size, len(turns)):
        clock = Clock()
        clock.now = moment
        with _memory(clock, max_session_turns=3, max_exchange_turns=2) as memory:
            for start in range(0, len(turns), n):
                memory.append(turns[start : start + n], namespace="n", conversation_id="thread")
            cuts.append([memory.get(name, namespace="n").turns for name in _ids(memory)])
    assert cuts[0] == cuts[1] == cuts[2]


def test_names_that_are_taken() -> None:
    """A conversation's sessions step over session ids that something else has."""
    memory = _memory()
    memory.add(TALK[:2], namespace="n", session_id="thread")
    assert memory.append(TALK[0], namespace="n", conversation_id="thread").session_id == "thread#2"
    assert memory.append(TALK[0], namespace="n", conversation_id="thread#2").session_id == "thread#2#2"
    assert memory.get("thread", namespace="n").conversation_id is None
    memory.close()


def test_reopening_a_closed_session() -> None:
    """Appending to a closed session by its id opens it again; its digest is stale until it is closed again."""
    memory = _memory()
    memory.add(TALK[:4], namespace="n", session_id="s", metadata={"topic": "dogs"})
    before = memory.get("s", namespace="n")
    memory.append(TALK[4], namespace="n", session_id="s")
    during = memory.get("s", namespace="n")
    assert (during.is_open, during.is_pending, during.digest) == (True, True, before.digest)
    assert memory.retrieve("socks", namespace="n").hits[0].evidence
    assert memory.digest_pending(namespace="n") == 0
    memory.close_session("s", namespace="n")
    _drain(memory)
    after = memory.get("s", namespace="n")
    assert (after.is_open, after.is_pending, after.turns) == (False, False, tuple(TALK))
    assert (after.metadata, after.sequence, after.added_at) == ({"topic": "dogs"}, before.sequence, before.added_at)
    with _memory() as whole:
        whole.add(TALK, namespace="n", session_id="s")
        assert after.digest == whole.get("s", namespace="n").digest
    memory.close()


def test_closing_digests_behind_the_call() -> None:
    """`close_session` returns before the language model is asked; `close` waits for it."""
    llm = ScriptedLLM(default=REPLY)
    memory = _memory(llm=llm)
    memory.append(TALK, namespace="n", session_id="s")
    memory.close_session("s", namespace="n")
    memory.close_session("s", namespace="n")
    workspace = memory._workspace
    workspace.acquire()
    memory.close()
    assert len(llm.prompts) == 1
    (record,) = [r for batch in workspace.store.load("n") for r in batch.records]
    assert (record.digest_source, record.is_pending) == ("llm", False)
    assert record.n_units == (1, 3, 1, 1)
    workspace.release()


def test_a_failing_model_leaves_it_pending(caplog: pytest.LogCaptureFixture) -> None:
    """When the language model fails in the background, the session is found by its turns, counted, and mended later."""
    llm = ScriptedLLM([ConnectionError("down"), "no JSON", REPLY])
    memory = _memory(llm=llm)
    memory.append(TALK, namespace="n", session_id="s")
    with caplog.at_level(logging.WARNING, "memgas"):
        memory.close_session("s", namespace="n")
        _drain(memory)
    assert "stays pending: LLMError" in caplog.text
    assert "greyhound" not in caplog.text
    assert memory.stats("n").n_pending == 1
    assert memory.retrieve("Juno", namespace="n").hits
    assert memory.digest_pending(namespace="n") == 0
    assert memory.digest_pending() == 1
    assert memory.stats("n").n_pending == 0
    assert memory.get("s", namespace="n").digest is not None
    memory.close()


def test_whoever_speaks_closes_the_idle_ones() -> None:
    """A call, a mere retry too, closes and digests other sessions of the namespace that have been idle."""
    clock = Clock()
    memory = _memory(clock)
    memory.append(TALK[0], namespace="n", session_id="idle")
    memory.append(TALK[1], namespace="n", session_id="s", at=0)
    memory.append(TALK[1], namespace="n", conversation_id="thread", at=0)
    clock.wait(61)
    memory.append(TALK[1], namespace="n", session_id="s", at=0)
    _drain(memory)
    assert memory.get("idle", namespace="n").digest is not None
    assert memory.get("s", namespace="n").is_open
    assert not memory.get("thread", namespace="n").is_open
    memory.append(TALK[1], namespace="n", conversation_id="thread", at=0)
    _drain(memory)
    assert memory.get("s", namespace="n").digest is not None
    memory.close()


def test_an_embedder_that_fails_half_way() -> None:
    """A call that would fill several sittings stores all of them or, when the embedder fails, none of its turns."""
    embedder = Fails()
    memory = MemGAS.in_memory(embedder=embedder, config=MemGASConfig(max_session_turns=2), clock=Clock())
    memory.append(TALK[0], namespace="n", conversation_id="thread")
    told = _told(memory)
    embedder.word = "number 5"
    turns = [Turn("ua"[i % 2], f"number {i}") for i in range(8)]
    with pytest.raises(EmbedderError):
        memory.append(turns, namespace="n", conversation_id="thread")
    assert _told(memory) == told
    embedder.word = "\x00"
    assert memory.append(turns, namespace="n", conversation_id="thread").n_new_turns == 8
    memory.close()


def test_an_item_that_grows_has_no_digest() -> None:
    """Turns appended to an item are found when items are asked for; it is never pending and gets no summary."""
    llm = ScriptedLLM()
    memory = _memory(llm=llm)
    memory.add([], namespace="n", session_id="item", kind="item", metadata={"k": 1})
    memory.append(TALK[:2], namespace="n", session_id="item")
    memory.close_session("item", namespace="n")
    _drain(memory)
    memory.delete_turn("item", 1, namespace="n")
    assert memory.digest_pending() == 0
    assert memory.stats("n").n_units == {"session": 0, "turn": 1, "summary": 0, "keyword": 0}
    assert memory.retrieve("Juno", namespace="n").hits == ()
    assert memory.retrieve("Juno", namespace="n", kind="item").hits[0].metadata == {"k": 1}
    assert llm.prompts == []
    memory.close()


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"conversation_id": "a", "session_id": "b"},
        {"conversation_id": " "},
        {"session_id": ""},
        {"conversation_id": "a", "at": -1},
        {"conversation_id": "a", "at": True},
        {"conversation_id": "a", "at": "0"},
    ],
)
def test_bad_arguments(bad: dict[str, object]) -> None:
    """Neither or both of conversation and session, a blank one, or a position that is none, is refused."""
    with _memory() as memory, pytest.raises(InvalidInputError):
        memory.append(TALK[0], namespace="n", **bad)  # type: ignore[arg-type]


def test_closing_what_is_not_there() -> None:
    """An unknown session cannot be closed, and asking leaves the mirror where it is."""
    with _memory() as memory:
        memory.append(TALK[0], namespace="n", session_id="s")
        with memory._workspace.reading("n") as before, pytest.raises(NotFoundError, match="'t'"):
            memory.close_session("t", namespace="n")
        with memory._workspace.reading("n") as after:
            assert before is after


def test_every_position_has_one_key() -> None:
    """All granularities of a closed session start at position 0."""
    with _memory() as memory:
        memory.append(TALK, namespace="n", session_id="s")
        memory.close_session("s", namespace="n")
        _drain(memory)
        with memory._workspace.reading("n") as index:
            nodes = index.sessions["s"].nodes
            assert [sorted(nodes[g]) for g in GRANULARITIES] == [[0], [0, 1, 2], [0], [0]]


def test_positions_survive_what_else_is_done() -> None:
    """Turns are given by position, and retried, whatever became of earlier sittings: grown by id, replaced, deleted."""
    later = NOON + timedelta(hours=5)

    def say(position: int, moment: datetime) -> int:
        turn = Turn("u", f"word {position}", moment)
        return memory.append(turn, namespace="n", conversation_id="thread", at=position).n_new_turns

    with _memory() as memory:
        assert [say(i, NOON) for i in range(3)] == [1, 1, 1]
        assert say(3, later) == 1
        memory.append([Turn("u", "by id", id="x"), Turn("u", "again")], namespace="n", session_id="thread")
        assert [say(4, later), say(4, later), say(0, NOON)] == [1, 0, 0]
        known = Turn("u", "by id", id="x")
        assert memory.append(known, namespace="n", conversation_id="thread").n_new_turns == 0
        memory.replace_session([Turn("u", "short")], namespace="n", session_id="thread#2")
        assert [say(5, later), say(5, later), say(4, later)] == [1, 0, 0]
        memory.delete_session("thread#3", namespace="n")
        assert [say(6, later), say(6, later)] == [1, 0]
        firsts = [s.first_turn for s in memory.list_sessions(namespace="n", conversation_id="thread")]
        assert firsts == [0, 3, 6]


def test_a_session_has_no_gaps() -> None:
    """A position beyond the end of a session is refused: a retry could not be told from something new."""
    with _memory() as memory:
        memory.append(TALK[:2], namespace="n", session_id="s")
        with pytest.raises(InvalidInputError, match="holds 2 turns"):
            memory.append(TALK[3], namespace="n", session_id="s", at=3)
        assert memory.append(TALK[2], namespace="n", session_id="s", at=2).n_new_turns == 1
