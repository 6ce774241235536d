"""LangChain's embeddings and models, handed to MemGAS as they are. Runs on LangChain 0.3 as well."""

import json
from pathlib import Path

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.language_models import FakeListChatModel, FakeListLLM, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from pydantic import ValidationError

from langchain_memgas import LangChainEmbedder, LangChainLLM, MemGASRetriever, as_embedder, as_llm, open_memory
from memgas import LLM, Embedder, EmbedderError, StoreMismatchError, Turn
from memgas.testing import HashEmbedder, ScriptedLLM


def test_embeddings_become_an_embedder() -> None:
    """`Embeddings` become an `Embedder` with the right width and the same vectors; whatever is one already stays itself."""
    embeddings = DeterministicFakeEmbedding(size=12)
    embedder = as_embedder(embeddings)
    assert isinstance(embedder, Embedder)
    assert embedder.n_dims == 12
    assert embedder.embed_documents(["a", "b"]).shape == (2, 12)
    assert embedder.embed_query("a").tolist() == np.array(embeddings.embed_query("a"), np.float32).tolist()
    own = HashEmbedder()
    assert as_embedder(own) is own
    assert as_embedder("hash") == "hash"
    assert as_embedder(None) is None


def test_model_name_is_in_the_embedders_name() -> None:
    """The name that messages use tells class and model."""

    class Named(DeterministicFakeEmbedding):
        model: str = "small-3"

    assert LangChainEmbedder(Named(size=4)).name == "Named(small-3)"
    assert LangChainEmbedder(DeterministicFakeEmbedding(size=4)).name == "DeterministicFakeEmbedding"


@pytest.mark.parametrize(
    "model",
    [
        FakeListChatModel(responses=["yes"]),
        FakeListLLM(responses=["yes"]),
        GenericFakeChatModel(
            messages=iter([AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}])])
        ),
    ],
    ids=["chat", "completion", "blocks"],
)
def test_models_become_an_llm(model: FakeListChatModel) -> None:
    """A chat model, a completion model, a model that answers in blocks: each becomes an `LLM` that returns text."""
    llm = as_llm(model)
    assert isinstance(llm, LangChainLLM)
    assert isinstance(llm, LLM)
    assert llm.complete("really?") == "yes"


def test_own_models_stay() -> None:
    """What is an `LLM` already is not wrapped."""
    llm = ScriptedLLM()
    assert as_llm(llm) is llm
    assert as_llm(None) is None


def test_digests_and_filter_through_a_chat_model() -> None:
    """A memory opened with a chat model writes its digests with it, and filters with it."""
    digest = json.dumps({"summary": "Ana adopted a greyhound.", "keywords": ["greyhound"]})
    with open_memory(embeddings=HashEmbedder(), llm=FakeListChatModel(responses=[digest, "[]"])) as memory:
        memory.add([Turn("user", "I adopted a greyhound, Juno.")], namespace="ana", session_id="s")
        session = memory.get("s", namespace="ana")
        assert session.digest is not None
        assert (session.digest.source, session.digest.summary) == ("llm", "Ana adopted a greyhound.")
        assert memory.retrieve("greyhound", namespace="ana", filter="llm").hits == ()


async def test_its_calls_do_not_stream_into_the_host() -> None:
    """A digest or a verdict, made inside somebody's chain, does not show among that chain's streamed events."""
    llm = LangChainLLM(FakeListChatModel(responses=["housekeeping"]))

    def work(text: str) -> str:
        assert llm.complete(text) == "housekeeping"
        return "done"

    events = [event["event"] async for event in RunnableLambda(work).astream_events("x", version="v2")]
    assert events
    assert not [event for event in events if "model" in event]


def test_failing_embeddings_are_an_embedder_error() -> None:
    """What embeddings raise comes out as an EmbedderError that names them; nothing is stored."""

    class Down(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise OSError("no route to host")

        def embed_query(self, text: str) -> list[float]:
            return [1.0, 0.0]

    with open_memory(embeddings=Down()) as memory:
        with pytest.raises(EmbedderError, match="Down failed: OSError: no route to host"):
            memory.add([Turn("user", "hello")], namespace="ana")
        assert memory.list_sessions(namespace="ana") == []


def test_other_embeddings_are_refused_on_disk(tmp_path: Path) -> None:
    """A memory made with one model is not opened with another: the error names both widths."""
    with open_memory(tmp_path / "memory", embeddings=DeterministicFakeEmbedding(size=8)) as memory:
        memory.add([Turn("user", "hello")], namespace="ana")
    with pytest.raises(StoreMismatchError, match=r"8.*12|12.*8"):
        open_memory(tmp_path / "memory", embeddings=DeterministicFakeEmbedding(size=12))


def test_memory_or_what_builds_one() -> None:
    """An open memory together with embeddings for another one is a mistake that is told."""
    with open_memory(embeddings=HashEmbedder()) as memory, pytest.raises(ValidationError, match="either memory"):
        MemGASRetriever(memory=memory, embeddings=HashEmbedder(), namespace="ana")
