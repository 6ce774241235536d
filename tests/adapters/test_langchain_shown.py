"""Which stored turns a host shows itself."""

from langchain_memgas._chat import shown_among
from langchain_memgas._scope import Scope
from memgas import MemGAS, Turn
from memgas.testing import HashEmbedder


def test_as_many_copies_as_the_host_shows() -> None:
    """One shown "Noted." is the newest one: earlier exchanges answered the same way can still be recalled."""
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        said = ["My cat is called Pixel.", "Noted.", "My dog is called Juno.", "Noted."]
        turns = [Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(said)]
        memory.append(turns, namespace="ana", conversation_id="thread")

        shown = shown_among(memory, Scope("ana", "thread"), turns[2:])

        assert {position for _, position in shown.places} == {2, 3}
