"""Forgetting: the words are gone from everything that is said, kept and counted, and a retry does not bring them back."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from memgas import Digest, MemGAS, NewSession, Turn
from memgas.errors import InvalidInputError, NotFoundError
from memgas.testing import HashEmbedder, ScriptedLLM

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
TALK = [
    Turn("user", "I adopted a greyhound, Juno.", id="m0"),
    Turn("assistant", "Congratulations on Juno!", id="m1"),
    Turn("user", "My pin is zebra-4711, by the way.", id="m2"),
    Turn("assistant", "I will not repeat it.", id="m3"),
    Turn("user", "Juno sleeps all day.", id="m4"),
]
OTHERS = [Turn("user", "Juno the greyhound needs a coat."), Turn("assistant", "A warm one for the greyhound.")]


def _llm_reply(prompt: str) -> str:
    """Answer with the words of the prompt, as a model that leaks all it reads."""
    said = "zebra-4711" if "zebra" in prompt else "Juno"
    return f'{{"summary": "They spoke of {said}.", "keywords": ["{said}"]}}'


@pytest.fixture(params=[False, True], ids=["extractive", "llm"])
def memory(request: pytest.FixtureRequest) -> Iterator[MemGAS]:
    """Give a memory, without and with a language model."""
    llm = ScriptedLLM(default=_llm_reply) if request.param else None
    with MemGAS.in_memory(embedder=HashEmbedder(), llm=llm, clock=lambda: NOON) as memory:
        for number in range(3):
            memory.add(OTHERS, namespace="n", session_id=f"other-{number}")
        yield memory


def _everything(memory: MemGAS, namespace: str = "n") -> str:
    """Return all that a memory says and keeps of a namespace, as text."""
    memory._workspace.drain()
    out = io.StringIO()
    memory.export_jsonl(out, namespace=namespace)
    hits = [
        memory.retrieve(query, namespace=namespace, top_k=20, kind=None).hits for query in ("zebra-4711", "pin", "Juno")
    ]
    sessions = [
        memory.get(s.session_id, namespace=namespace) for s in memory.list_sessions(namespace=namespace, kind=None)
    ]
    rows = list(memory._workspace.store._spaces[namespace].rows.values())  # type: ignore[attr-defined]
    with memory._workspace.reading(namespace) as index:
        terms = [*index.lexical.terms, *index.words._units.values()]
    return repr([out.getvalue(), hits, sessions, [(row.unit, row.associations) for row in rows], terms])


def _check_edges(memory: MemGAS) -> None:
    graph = memory.graph("n")
    with memory._workspace.reading("n") as index:
        units = {index.unit_id(node) for state in index.visible_sessions() for node in state.all_nodes()}
    assert set(graph.nodes) == units
    for one, other in graph.edges:
        assert graph.nodes[one]["session_id"] != graph.nodes[other]["session_id"]


def test_a_turn_is_forgotten(memory: MemGAS) -> None:
    """The words of a deleted turn are nowhere: hits, summary, keywords, export, index, rows; its place and id stay."""
    memory.add(TALK, namespace="n", session_id="s")
    assert "zebra" in _everything(memory)
    memory.delete_turn("s", 2, namespace="n")
    assert "zebra" not in _everything(memory)
    session = memory.get("s", namespace="n")
    assert session.turns[2] == Turn("user", "", id="m2")
    assert session.turns[:2] + session.turns[3:] == tuple(TALK[:2] + TALK[3:])
    assert session.digest is not None
    assert not session.is_pending
    assert {e.position for hit in memory.retrieve("Juno", namespace="n").hits for e in hit.evidence} >= {0, 1, 3, 4}
    _check_edges(memory)


def test_a_retry_does_not_revive_it(memory: MemGAS) -> None:
    """The same session given again, or the same message ids or positions appended again, leaves the turn deleted."""
    memory.add(TALK, namespace="n", session_id="s")
    memory.delete_turn("s", 2, namespace="n")
    _everything(memory)
    n_prompts = memory.llm.n_calls if memory.llm else 0
    assert memory.add(TALK, namespace="n", session_id="s").n_new_turns == 0
    assert memory.append(TALK, namespace="n", session_id="s").n_new_turns == 0
    bare = [Turn(turn.speaker, turn.text) for turn in TALK]
    assert memory.append(bare, namespace="n", session_id="s", at=0).n_new_turns == 0
    assert (memory.llm.n_calls if memory.llm else 0) == n_prompts
    assert "zebra" not in _everything(memory)


def test_growth_does_not_revive_it(memory: MemGAS) -> None:
    """A session that is given again with more turns grows by those; its new digest does not have the deleted words."""
    memory.add(TALK[:4], namespace="n", session_id="s")
    memory.delete_turn("s", 2, namespace="n")
    assert memory.add(TALK, namespace="n", session_id="s").n_new_turns == 1
    assert "zebra" not in _everything(memory)
    session = memory.get("s", namespace="n")
    assert (len(session.turns), session.is_pending, session.digest is not None) == (5, False, True)
    given = NewSession([*TALK, Turn("user", "Bye")], "s", digest=Digest("They spoke of zebra-4711.", ()))
    memory.add_many([given], namespace="n")
    assert "zebra" not in _everything(memory)


def test_a_turn_of_an_open_session(memory: MemGAS) -> None:
    """In a session that is open, also one that was closed before, the turn goes and the session stays open and grows."""
    memory.append(TALK[:3], namespace="n", conversation_id="thread")
    memory.delete_turn("thread", 2, namespace="n")
    assert "zebra" not in _everything(memory)
    assert memory.append(TALK[2:], namespace="n", conversation_id="thread").n_new_turns == 2
    memory.close_session("thread", namespace="n")
    assert "zebra" not in _everything(memory)
    memory.append(Turn("user", "zebra-4711 again"), namespace="n", session_id="thread")
    memory.close_session("thread", namespace="n")
    memory._workspace.drain()
    memory.append(Turn("user", "more"), namespace="n", session_id="thread")
    memory.delete_turn("thread", 5, namespace="n")
    assert "zebra" not in _everything(memory)
    assert memory.get("thread", namespace="n").is_open


def test_every_turn_of_a_session(memory: MemGAS) -> None:
    """A session whose turns were all deleted is still there, empty, found by nothing, and may grow."""
    memory.add(TALK, namespace="n", session_id="s")
    for position in range(5):
        memory.delete_turn("s", position, namespace="n")
    assert "zebra" not in _everything(memory)
    session = memory.get("s", namespace="n")
    assert [turn.text for turn in session.turns] == [""] * 5
    assert (session.digest, session.is_pending) == (None, False)
    assert "s" not in {hit.session_id for hit in memory.retrieve("Juno", namespace="n").hits}
    memory.append(Turn("user", "A new walnut tree."), namespace="n", session_id="s")
    assert memory.retrieve("walnut", namespace="n").hits[0].session_id == "s"
    memory.close_session("s", namespace="n")
    memory._workspace.drain()
    assert memory.get("s", namespace="n").digest is not None


def test_the_only_turn_there_is() -> None:
    """A namespace whose only words were deleted answers with nothing, without asking a model."""
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        memory.add(TALK[:1], namespace="n", session_id="s")
        memory.delete_turn("s", 0, namespace="n")
        n_texts = memory.embedder.n_texts
        assert memory.retrieve("Juno", namespace="n").hits == ()
        assert memory.embedder.n_texts == n_texts
        memory.delete_turn("s", 0, namespace="n")


@pytest.mark.parametrize("position", [-1, 5, 99, True, "0", 1.0])
def test_no_such_turn(memory: MemGAS, position: int) -> None:
    """A position where no turn is, is an error, and nothing changes."""
    memory.add(TALK, namespace="n", session_id="s")
    before = _everything(memory)
    with pytest.raises(NotFoundError, match="turns 0 to 4"):
        memory.delete_turn("s", position, namespace="n")
    assert memory.get("s", namespace="n").turns == tuple(TALK)
    assert len(_everything(memory)) == pytest.approx(len(before), abs=200)


def test_while_the_digest_is_being_written() -> None:
    """A turn deleted while the language model reads it is not in the digest that comes out."""

    def slow(prompt: str) -> str:
        if "zebra" in prompt:
            opened.delete_turn("s", 2, namespace="n")
        return _llm_reply(prompt)

    with MemGAS.in_memory(embedder=HashEmbedder(), llm=ScriptedLLM(default=slow)) as opened:
        opened.append(TALK, namespace="n", session_id="s")
        opened.close_session("s", namespace="n")
        assert "zebra" not in _everything(opened)
        assert opened.get("s", namespace="n").digest == Digest("They spoke of Juno.", ("Juno",), "llm")


def test_a_session_is_forgotten(memory: MemGAS) -> None:
    """A deleted session is nowhere, its edges neither; its id may be used again, and begins anew."""
    memory.add(TALK, namespace="n", session_id="s")
    memory.delete_session("s", namespace="n")
    assert "zebra" not in _everything(memory)
    with pytest.raises(NotFoundError):
        memory.get("s", namespace="n")
    with pytest.raises(NotFoundError):
        memory.delete_session("s", namespace="n")
    _check_edges(memory)
    added = memory.add(TALK[:2], namespace="n", session_id="s")
    assert added.n_new_turns == 2
    assert memory.list_sessions(namespace="n")[-1].session_id == "s"
    assert "zebra" not in _everything(memory)


def test_a_conversation_is_forgotten(memory: MemGAS) -> None:
    """All sittings of one conversation go, and nothing of another; one that never was is fine."""
    for number, turn in enumerate(TALK):
        moment = NOON + timedelta(hours=2 * number)
        memory.append(Turn(turn.speaker, turn.text, moment), namespace="n", conversation_id="thread")
    memory.append(OTHERS, namespace="n", conversation_id="thread#2")
    assert len(memory.list_sessions(namespace="n", conversation_id="thread")) == 5
    memory.delete_conversation("thread", namespace="n")
    memory.delete_conversation("never", namespace="n")
    assert "zebra" not in _everything(memory)
    assert memory.list_sessions(namespace="n", conversation_id="thread") == []
    assert len(memory.list_sessions(namespace="n", conversation_id="thread#2")) == 1
    assert memory.append(TALK[0], namespace="n", conversation_id="thread").session_id == "thread"
    _check_edges(memory)


def test_a_namespace_is_forgotten(memory: MemGAS) -> None:
    """One namespace goes and the others stay; a blank one is refused, not taken for all; one that never was is fine."""
    memory.add(TALK, namespace="other", session_id="s")
    memory.delete_namespace("n")
    memory.delete_namespace("never")
    for bad in ("", " ", None):
        with pytest.raises(InvalidInputError):
            memory.delete_namespace(bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError):
            memory.delete_session("s", namespace=bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError):
            memory.delete_conversation("c", namespace=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        memory.erase("")
    assert memory.namespaces() == ["other"]
    assert memory.retrieve("Juno", namespace="n").hits == ()
    assert memory.stats("n").n_namespaces == 0
    assert memory.retrieve("zebra", namespace="other").hits
    memory.erase("other")
    assert memory.namespaces() == ["other"]


def test_a_replaced_session_forgets(memory: MemGAS) -> None:
    """What a session held before it was replaced is nowhere; its number and times stay."""
    memory.add(TALK, namespace="n", session_id="s", happened_at=NOON - timedelta(days=3))
    before = memory.get("s", namespace="n")
    memory.replace_session(TALK[:2], namespace="n", session_id="s")
    assert "zebra" not in _everything(memory)
    after = memory.get("s", namespace="n")
    assert (after.sequence, after.happened_at, after.turns) == (before.sequence, before.happened_at, tuple(TALK[:2]))
    _check_edges(memory)
