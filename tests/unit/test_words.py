"""Units shown lately: held within bounds, and gone from memory as soon as they are gone from the store."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from memgas import MemGAS, Turn
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder
from memgas.types import Granularity, MemoryUnit
from memgas.words import RecentWords


def unit(name: str, text: str = "word") -> MemoryUnit:
    return MemoryUnit(name, "n", "s", 0, Granularity.TURN, 0, text)


def test_worked_by_hand() -> None:
    """Room for nine characters: of three texts of four, the one asked for longest ago is let go."""
    words = RecentWords(max_chars=9)
    words.keep([unit("a"), unit("b")])
    assert words.known(["a", "x"]) == {"a": unit("a")}
    words.keep([unit("c")])
    assert words.known(["a", "b", "c"]) == {"a": unit("a"), "c": unit("c")}
    words.keep([unit("a", "longer")])
    assert words.known(["a", "c"]) == {"a": unit("a", "longer")}
    words.forget("a")
    words.forget("a")
    assert (len(words), words.n_chars) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 12))), st.integers(0, 20))
def test_never_holds_more_than_it_may(kept: list[tuple[str, int]], most: int) -> None:
    """Whatever is kept, the characters held are counted right, and are never too many."""
    words = RecentWords(max_chars=most)
    for name, length in kept:
        words.keep([unit(name, "x" * length)])
        held = words.known("abcdef")
        assert words.n_chars == sum(len(one.text) for one in held.values()) <= most
        assert len(held) == len(words)


class Asked(InMemoryStore):
    """Notes which ids are fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def fetch(self, namespace: str, ids: Sequence[str]) -> list[MemoryUnit]:  # noqa: D102
        self.fetched += ids
        return super().fetch(namespace, ids)


def test_what_was_shown_is_not_fetched_again_and_what_changed_is() -> None:
    """The same question twice reads the store once; after more was said, the hit shows the new words too."""
    store = Asked()
    memory = MemGAS(store=store, embedder=HashEmbedder())
    memory.append([Turn("user", "Juno is a greyhound.")], namespace="n", conversation_id="c")
    memory.append([Turn("user", "The boat is green.")], namespace="n", conversation_id="d")
    first = memory.retrieve("Juno", namespace="n").hits
    store.fetched.clear()
    assert memory.retrieve("Juno", namespace="n").hits == first
    assert store.fetched == []
    memory.append([Turn("assistant", "Juno sleeps a lot.")], namespace="n", conversation_id="c")
    said = [piece.turn.text for hit in memory.retrieve("Juno", namespace="n").hits for piece in hit.evidence]
    assert {"Juno is a greyhound.", "Juno sleeps a lot."} <= set(said)
    assert len(store.fetched) == 1


def test_deleted_words_are_not_held() -> None:
    """After each way of deleting or replacing what was shown, its words are not in memory any more."""
    memory = MemGAS.in_memory(embedder=HashEmbedder())
    turns = [Turn("user", "The zebra is ill."), Turn("assistant", "Poor zebra."), Turn("user", "It eats again.")]

    def held() -> str:
        with memory._workspace.reading("n") as index:
            return repr(list(index.words.known([index.unit_id(node) for node in range(index.n_nodes)]).values()))

    def shown(session_id: str) -> None:
        memory.add(turns, namespace="n", session_id=session_id)
        memory.retrieve("zebra", namespace="n")
        assert "zebra" in held()

    shown("a")
    memory.delete_session("a", namespace="n")
    assert "zebra" not in held()
    shown("b")
    memory.replace_session([Turn("user", "A horse.")], namespace="n", session_id="b")
    assert "zebra" not in held()
    shown("c")
    memory.delete_turn("c", 0, namespace="n")
    memory.delete_turn("c", 1, namespace="n")
    assert "zebra" not in held()
    shown("d")
    memory.delete_namespace("n")
    assert "zebra" not in held()


def test_words_that_came_too_late_are_not_held() -> None:
    """What was fetched before the namespace changed is not kept after it."""
    memory = MemGAS.in_memory(embedder=HashEmbedder())
    memory.add([Turn("user", "The zebra is ill.")], namespace="n", session_id="a")
    workspace = memory._workspace
    with workspace.reading("n") as index:
        head, uid = index.head, index.unit_id(0)
    fetched = workspace.store.fetch("n", [uid])
    memory.delete_session("a", namespace="n")
    workspace.keep_words(index, head, fetched)
    assert len(index.words) == 0
