"""Whole sessions: remembered once, in order, the same one by one and in bulk; failing models lose nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from numpy.typing import NDArray

from memgas import Digest, MemGAS, MemGASConfig, NewSession, Turn
from memgas.errors import EmbedderError, InvalidInputError, NotFoundError, SessionConflictError
from memgas.testing import HashEmbedder, ScriptedLLM

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SUBJECTS = ("greyhounds", "tea", "piano lessons", "rye bread", "bees", "old boats", "walnut trees")
REPLY = '{"summary": "They spoke of it.", "keywords": ["it"]}'


def _talk(number: int) -> list[Turn]:
    subject, other = SUBJECTS[number % 7], SUBJECTS[number * 3 % 5]
    return [
        Turn("user", f"Tell me about {subject} and {other}, number {number}."),
        Turn("assistant", f"Well, {subject} are older than {other}. Some say {number} times."),
        Turn("user", f"I never knew that of {subject}!"),
    ]


def _open(embedder: HashEmbedder | None = None, llm: ScriptedLLM | None = None, **settings: object) -> MemGAS:
    config = MemGASConfig(**settings)  # type: ignore[arg-type]
    return MemGAS.in_memory(embedder=embedder or HashEmbedder(), llm=llm, config=config, clock=lambda: NOON)


def _rows(memory: MemGAS, namespace: str = "n") -> list[object]:
    """Return every unit with its vector and edges, in order."""
    return [
        (unit, vector.tolist(), sorted((e.target, e.similarity) for e in batch.associations.get(unit.id, ())))
        for batch in memory._workspace.store.load(namespace)
        for unit, vector in zip(batch.units, batch.vectors, strict=True)
    ]


def test_what_is_kept() -> None:
    """A session comes back with its turns, time, metadata and digest; its id and time have sensible defaults."""
    with _open() as memory:
        moment = NOON - timedelta(days=9)
        added = memory.add(_talk(0), namespace="n", session_id="s", happened_at=moment, metadata={"k": [1, None]})
        assert (added.session_id, added.n_new_turns, added.pending, added.degraded) == ("s", 3, False, ())
        session = memory.get("s", namespace="n")
        assert (session.turns, session.happened_at, session.added_at) == (tuple(_talk(0)), moment, NOON)
        assert (session.metadata, session.is_open, session.kind) == ({"k": [1, None]}, False, "chat")
        assert session.digest is not None
        assert session.digest.summary
        one, two = (memory.add(_talk(1), namespace="n").session_id for _ in range(2))
        assert one != two
        assert memory.get(one, namespace="n").happened_at == NOON
        memory.add([Turn("u", "dated", moment)], namespace="n", session_id="d")
        assert memory.get("d", namespace="n").happened_at == moment


@pytest.mark.parametrize("llm", [False, True])
def test_in_bulk_is_one_by_one(llm: bool) -> None:
    """`add_many` gives the ids, vectors, digests and associations of as many `add`s, also over more than one chunk."""
    bulk, single = (_open(llm=ScriptedLLM(default=REPLY) if llm else None) for _ in range(2))
    given = [NewSession(_talk(i), f"s{i}", NOON + timedelta(days=i)) for i in range(20)]
    seen: list[int] = []
    results = bulk.add_many(iter(given), namespace="n", progress=seen.append)
    for one in given:
        single.add(one.turns, namespace="n", session_id=one.session_id, happened_at=one.happened_at)
    assert [r.session_id for r in results] == [one.session_id for one in given]
    assert seen[-1] == 20
    assert _rows(bulk) == _rows(single)
    assert bulk.stats("n").n_associations > 20
    assert [h.session_id for h in bulk.retrieve("bees", namespace="n").hits] == [
        h.session_id for h in single.retrieve("bees", namespace="n").hits
    ]
    bulk.close()
    single.close()


def test_the_same_again_calls_no_model() -> None:
    """The same turns again, alone, in bulk or twice in one bulk, change nothing and ask neither model."""
    embedder, llm = HashEmbedder(), ScriptedLLM(default=REPLY)
    with _open(embedder, llm) as memory:
        memory.add_many([NewSession(_talk(0), "s"), NewSession(_talk(0), "s")], namespace="n")
        assert len(llm.prompts) == 1
        rows, n_texts, head = _rows(memory), embedder.n_texts, memory._workspace.store.head("n")
        assert memory.add(_talk(0), namespace="n", session_id="s").n_new_turns == 0
        again = memory.add_many([NewSession(_talk(0), "s")] * 3, namespace="n")
        assert [r.n_new_turns for r in again] == [0, 0, 0]
        assert (_rows(memory), embedder.n_texts, memory._workspace.store.head("n")) == (rows, n_texts, head)
        assert len(llm.prompts) == 1


def test_a_session_grows_by_the_rest() -> None:
    """Stored turns as a prefix let it grow: the same turns and summary as added whole, with its number and time kept."""
    with _open() as grown, _open() as whole:
        grown.add(_talk(0)[:1], namespace="n", session_id="s")
        added = grown.add(_talk(0), namespace="n", session_id="s", happened_at=NOON - timedelta(days=5))
        assert added.n_new_turns == 2
        whole.add(_talk(0), namespace="n", session_id="s")
        one, other = grown.get("s", namespace="n"), whole.get("s", namespace="n")
        assert (one.turns, one.happened_at, one.sequence) == (other.turns, NOON, 0)
        assert one.digest is not None
        assert other.digest is not None
        assert one.digest.summary == other.digest.summary
        assert grown.stats("n") == whole.stats("n")
        assert grown.check() == []


@pytest.mark.parametrize("turns", [_talk(1), _talk(0)[:2], [*_talk(0)[1:], *_talk(0)], list(reversed(_talk(0)))])
def test_anything_else_is_a_conflict(turns: list[Turn]) -> None:
    """Other turns under a stored id are refused, alone or amid a bulk; `replace_session` overwrites."""
    with _open() as memory:
        memory.add(_talk(0), namespace="n", session_id="s")
        rows = _rows(memory)
        with pytest.raises(SessionConflictError, match="replace_session"):
            memory.add(turns, namespace="n", session_id="s")
        assert _rows(memory) == rows
        with pytest.raises(SessionConflictError):
            memory.add_many([NewSession(_talk(2), "new"), NewSession(turns, "s")], namespace="n")
        memory.replace_session(turns, namespace="n", session_id="s")
        assert memory.get("s", namespace="n").turns == tuple(turns)


def test_one_bad_session_of_a_bulk() -> None:
    """A bad session in a chunk is refused by name, nothing of its chunk is written, and the call can be made again."""
    with _open() as memory:
        given = [NewSession(_talk(i), f"s{i}") for i in range(5)]
        with pytest.raises(InvalidInputError, match="turn 1 is blank"):
            memory.add_many([*given, NewSession([Turn("u", "x"), Turn("u", " ")], "bad")], namespace="n")
        assert memory.namespaces() == []
        assert len(memory.add_many(given, namespace="n")) == 5


def test_few_calls_of_the_embedder() -> None:
    """A bulk's texts are embedded together: three calls for a chunk of short sessions, however many."""
    counts = []
    for n in (1, 4):
        embedder = HashEmbedder()
        with _open(embedder, ScriptedLLM(default=REPLY)) as memory:
            memory.add([Turn("u", "first")], namespace="n")
            before = embedder.n_calls
            memory.add_many([NewSession([Turn("u", f"hello {i}")], f"s{i}") for i in range(n)], namespace="n")
            counts.append(embedder.n_calls - before)
    assert counts == [2, 2]


def test_a_failing_language_model() -> None:
    """The session is stored, found by its turns, counted as pending, told in `degraded`; `digest_pending` mends it."""
    llm = ScriptedLLM([ConnectionError("down"), REPLY, "rubbish", REPLY, REPLY])
    with _open(llm=llm) as memory:
        bad, good, worse = memory.add_many([NewSession(_talk(i), f"s{i}") for i in range(3)], namespace="n")
        failed = [r for r in (bad, good, worse) if r.pending]
        assert len(failed) == 2
        assert all("digest pending" in r.degraded[0] for r in failed)
        assert memory.stats("n").n_pending == 2
        assert memory.stats("n").n_units == {"session": 3, "turn": 6, "summary": 1, "keyword": 1}
        hit = memory.retrieve("number 0", namespace="n").hits[0]
        assert hit.session_id == "s0"
        assert memory.add(_talk(0), namespace="n", session_id="s0").n_new_turns == 0
        assert memory.digest_pending(namespace="n") == 2
        assert memory.stats("n").n_pending == 0
        assert {memory.get(f"s{i}", namespace="n").digest for i in range(3)} == {
            Digest("They spoke of it.", ("it",), "llm")
        }
        assert memory.digest_pending() == 0
        assert memory.check() == []


def test_the_log_holds_no_words(caplog: pytest.LogCaptureFixture) -> None:
    """What a failing model said or was asked is in no log."""
    with caplog.at_level(logging.DEBUG), _open(llm=ScriptedLLM([ValueError("secret greyhound")])) as memory:
        memory.add(_talk(0), namespace="n", session_id="s")
    assert "LLMError" in caplog.text
    assert "greyhound" not in caplog.text


class Moody(HashEmbedder):
    """Behaves badly from a given call on."""

    def __init__(self, mood: str) -> None:
        super().__init__()
        self.mood = mood
        self.n_good = 10**9

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:  # noqa: D102
        vectors = super().embed_documents(texts)
        self.n_good -= 1
        if self.n_good >= 0:
            return vectors
        if self.mood == "raises":
            raise ConnectionError("no route")
        if self.mood == "nan":
            vectors[-1, 0] = np.nan
        if self.mood == "width":
            return vectors[:, :-1]
        if self.mood == "rows":
            return vectors[:-1]
        if self.mood == "none":
            return None  # type: ignore[return-value]
        return vectors


@pytest.mark.parametrize("mood", ["raises", "nan", "width", "rows", "none"])
def test_a_failing_embedder(mood: str) -> None:
    """Whichever call of the embedder fails, and however, nothing is half-written, and the same call works afterwards."""
    embedder = Moody(mood)
    with _open(embedder) as memory:
        memory.add(_talk(5), namespace="n", session_id="before")
        memory.append(_talk(6)[:2], namespace="n", session_id="open")
        rows, stats = _rows(memory), memory.stats()
        for n_good in range(3):
            embedder.n_good = n_good
            with pytest.raises(EmbedderError):
                memory.add_many([NewSession(_talk(i), f"s{i}") for i in range(3)], namespace="n")
            assert (_rows(memory), memory.stats()) == (rows, stats)
        embedder.n_good = 0
        for call in (
            lambda: memory.append(_talk(6)[2:], namespace="n", session_id="open"),
            lambda: memory.append(Turn("u", "more of it"), namespace="n", session_id="before"),
            lambda: memory.replace_session(_talk(1), namespace="n", session_id="before"),
            lambda: memory.add([*_talk(5), Turn("u", "more of it")], namespace="n", session_id="before"),
            lambda: memory.add(_talk(0), namespace="empty", session_id="s"),
        ):
            with pytest.raises(EmbedderError):
                call()  # type: ignore[no-untyped-call]
            assert (_rows(memory), memory.namespaces()) == (rows, ["n"])
        embedder.n_good = 10**9
        assert memory.add(_talk(0), namespace="n", session_id="s0").n_new_turns == 3
        assert memory.check() == []


def test_an_item() -> None:
    """An item may have no turns; it is listed and found only when items are asked for."""
    with _open() as memory:
        memory.add([], namespace="n", session_id="i", kind="item", metadata={"colour": "green"})
        memory.add([Turn("u", "the green greyhound")], namespace="n", session_id="j", kind="item")
        assert memory.list_sessions(namespace="n") == []
        assert [s.session_id for s in memory.list_sessions(namespace="n", kind=None)] == ["i", "j"]
        assert memory.list_sessions(namespace="n", kind="item", where={"colour": "green"})[0].session_id == "i"
        assert memory.retrieve("greyhound", namespace="n").hits == ()
        assert [h.session_id for h in memory.retrieve("greyhound", namespace="n", kind="item").hits] == ["j"]
        assert memory.get("i", namespace="n").turns == ()
        memory.replace_session([], namespace="n", session_id="j", kind="item", metadata=5)
        assert memory.get("j", namespace="n").metadata == 5
        assert memory.stats("n").n_units["turn"] == 0


def test_a_given_digest() -> None:
    """A digest that is handed in is kept as it is, and no model is asked for one."""
    llm = ScriptedLLM()
    with _open(llm=llm) as memory:
        memory.add_many([NewSession(_talk(0), "s", digest=Digest("A walk.", ("dog", "park")))], namespace="n")
        assert memory.get("s", namespace="n").digest == Digest("A walk.", ("dog", "park"), "given")
        assert memory.retrieve("park", namespace="n").hits[0].keywords == ("dog", "park")
        assert llm.prompts == []


@pytest.mark.parametrize(
    "names", [("a", "A"), ("a", "a "), ("a/b", "a"), ("x", "x\n"), ("é", "e\u0301"), ("u", "u\u200b")]
)
def test_namespaces_never_mix(names: tuple[str, str]) -> None:
    """Names that nearly agree are two memories: reads, lists, graphs, exports and deletions of one leave the other alone."""
    with _open() as memory:
        for number, name in enumerate(names):
            memory.add(_talk(number), namespace=name, session_id="s")
            memory.add(_talk(number + 2), namespace=name, session_id="t")
        assert memory.namespaces() == sorted(names)
        for number, name in enumerate(names):
            hits = memory.retrieve("greyhounds tea", namespace=name).hits
            said = {e.turn.text for h in hits for e in h.evidence}
            assert said <= {t.text for n in (number, number + 2) for t in _talk(n)}
            assert memory.get("s", namespace=name).turns == tuple(_talk(number))
        assert not set(memory.graph(names[0])) & set(memory.graph(names[1]))
        memory.delete_namespace(names[0])
        assert memory.get("s", namespace=names[1]).turns == tuple(_talk(1))
        with pytest.raises(NotFoundError):
            memory.get("s", namespace=names[0])


def test_two_people_without_roles() -> None:
    """Names stand for roles; a turn without a speaker is somebody's unknown; order and number are kept."""
    turns = [Turn(s, f"{s or 'nobody'} says {i}") for i, s in enumerate(("Ines", "Radu", "Radu", "Ines", ""))]
    with _open() as memory:
        memory.add(turns, namespace="n", session_id="s")
        got = memory.get("s", namespace="n").turns
        assert [t.speaker for t in got] == ["Ines", "Radu", "Radu", "Ines", "unknown"]
        assert memory.add(turns, namespace="n", session_id="s").n_new_turns == 0


def test_early_sessions_start_no_associations() -> None:
    """The first `warmup_sessions` of a namespace start none; a later one starts some, and may lead to an early one."""
    config = MemGASConfig(warmup_sessions=3)
    with MemGAS.in_memory(embedder=HashEmbedder(), config=config) as memory:
        for number in range(6):
            words = f"Juno the greyhound {number} sleeps on the sofa and barks at cat {number % 2}"
            memory.add(
                [Turn("user", words), Turn("assistant", f"Noted {number}.")], namespace="n", session_id=str(number)
            )
        batches = list(memory._workspace.store.load("n"))
    units = {unit.id: unit.session_id for batch in batches for unit in batch.units}
    starting = {units[source] for batch in batches for source, edges in batch.associations.items() if edges}
    reached = {units[edge.target] for batch in batches for edges in batch.associations.values() for edge in edges}

    assert starting <= {"3", "4", "5"}
    assert starting
    assert reached & {"0", "1", "2"}
