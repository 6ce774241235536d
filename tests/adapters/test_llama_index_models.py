# ruff: noqa: ANN401
"""LlamaIndex's models as MemGAS's, the tools, and what the adapter never touches."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.tools import FunctionTool

from llama_index_memgas import (
    LlamaIndexEmbedder,
    LlamaIndexLLM,
    MemGASFilter,
    MemGASMemory,
    MemGASRetriever,
    as_embedder,
    as_llm,
    create_memgas_tools,
    open_memory,
)
from memgas import LLM, Embedder, MemGAS, StoreError, Turn
from memgas.testing import HashEmbedder, ScriptedLLM
from tests.adapters.llama_index_models import JUNO, Model, failing, memory_with_past

QUERY = "What is my greyhound called?"


class Embedding(BaseEmbedding):
    """Hashes words; questions and texts are embedded by different methods."""

    def _get_text_embedding(self, text: str) -> Any:
        return HashEmbedder(16).embed_query(f"passage: {text}")

    def _get_query_embedding(self, query: str) -> list[float]:
        return [float(value) for value in HashEmbedder(16).embed_query(f"query: {query}")]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def test_embedder() -> None:
    """A `BaseEmbedding` becomes an Embedder: texts and questions by their own methods, float32, batches of any size."""
    embedder = LlamaIndexEmbedder(Embedding(model_name="tiny"))

    assert isinstance(embedder, Embedder)
    assert (embedder.n_dims, embedder.name, embedder.max_tokens, embedder.is_thread_safe) == (
        16,
        "Embedding(tiny)",
        None,
        False,
    )
    texts = [f"text {at}" for at in range(23)]
    vectors = embedder.embed_documents(texts)
    assert vectors.shape == (23, 16)
    assert vectors.dtype == embedder.embed_query("text").dtype == np.float32
    assert np.allclose(vectors[7], HashEmbedder(16).embed_query("passage: text 7"))
    assert np.allclose(embedder.embed_query("text 7"), HashEmbedder(16).embed_query("query: text 7"))
    assert embedder.count_tokens("word") > 0


@pytest.mark.parametrize("is_chat", [True, False])
def test_llm(is_chat: bool) -> None:
    """An LLM becomes an LLM: with its system prompt, asked as a chat model if it is one, braces in the prompt verbatim."""
    model = Model("yes", is_chat=is_chat)
    model.system_prompt = "Be brief."
    llm = LlamaIndexLLM(model)

    assert isinstance(llm, LLM)
    assert llm.name == "scripted"
    assert llm.complete('{"a": {text}} {x}') == "yes"
    assert '{"a": {text}} {x}' in model.seen[0]
    assert "Be brief." in model.seen[0]


def test_what_is_ours_already_is_left_alone() -> None:
    """What is no model of LlamaIndex's is passed on as it is."""
    embedder, llm = HashEmbedder(), ScriptedLLM()
    assert as_embedder(embedder) is embedder
    assert as_embedder("fast-use") == "fast-use"
    assert as_embedder(None) is None
    assert as_llm(llm) is llm
    assert as_llm(None) is None


def test_open_memory(tmp_path: Path) -> None:
    """`open_memory` takes LlamaIndex's models, on disk and not; digests come from the model."""
    digest = '{"summary": "Ana adopted Juno.", "keywords": ["Juno"]}'
    for path in (None, tmp_path):
        with open_memory(path, embed_model=Embedding(), llm=Model(digest)) as memory:
            memory.add([Turn("user", JUNO)], namespace="ana", session_id="may")
            (hit,) = memory.retrieve(QUERY, namespace="ana").hits
            assert hit.summary == "Ana adopted Juno."


def test_settings_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Settings` is read by `from_settings()`, and by nothing else (#17434)."""
    import llama_index.core
    from llama_index.core.settings import _Settings

    class Asked(_Settings):
        n_times = 0

        @property  # type: ignore[misc]
        def llm(self) -> Any:
            Asked.n_times += 1
            return Model("yes")

        @property  # type: ignore[misc]
        def embed_model(self) -> Any:
            Asked.n_times += 1
            return Embedding()

    monkeypatch.setattr(llama_index.core, "Settings", Asked())
    memory = memory_with_past()
    MemGASFilter(llm=Model("[1]")).postprocess_nodes(
        MemGASRetriever(memory, namespace="ana").retrieve(QUERY), query_str=QUERY
    )
    chat = MemGASMemory.from_defaults(memory, namespace="ana")
    chat.get(input=QUERY)
    assert Asked.n_times == 0

    assert LlamaIndexLLM.from_settings().complete("?") == "yes"
    assert LlamaIndexEmbedder.from_settings().n_dims == 16
    assert Asked.n_times == 2


@pytest.mark.slow
def test_needs_neither_openai_nor_network() -> None:
    """Import, retriever, query engine and memory work with no OpenAI package and no network, and set no default models."""
    code = f"""
import socket, sys
sys.path.insert(0, {str(Path.cwd())!r})
for name in ("openai", "llama_index.llms.openai", "llama_index.embeddings.openai"):
    sys.modules[name] = None
def refuse(*args): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = refuse
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index_memgas import MemGASMemory, MemGASRetriever
from tests.adapters.llama_index_models import Model, memory_with_past
core, llm = memory_with_past(), Model("Juno")
print(RetrieverQueryEngine.from_args(MemGASRetriever(core, namespace="ana"), llm=llm).query({QUERY!r}))
print(SimpleChatEngine.from_defaults(llm=llm, memory=MemGASMemory.from_defaults(core, namespace="ana")).chat({QUERY!r}))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["Juno", "Juno"]


# tools


@pytest.fixture
def core() -> Iterator[MemGAS]:
    with memory_with_past() as memory:
        yield memory


def said(tool: FunctionTool, **arguments: Any) -> str:
    """Return the tool's answer, the same sync and async where it only reads."""
    answer = str(tool.call(**arguments).content)
    if tool.metadata.name == "search_memory":
        assert str(asyncio.run(tool.acall(**arguments)).content) == answer
    return answer


def test_tools_show_no_namespace(core: MemGAS) -> None:
    """Names and schemas: search and manage, with described arguments, none of which is the user."""
    tools = create_memgas_tools(core, namespace="ana")
    assert [tool.metadata.name for tool in tools] == ["search_memory", "manage_memory"]
    schemas = [tool.metadata.get_parameters_dict() for tool in tools]
    assert [sorted(schema["properties"]) for schema in schemas] == [
        ["limit", "query"],
        ["action", "content", "memory_id"],
    ]
    assert [schema["required"] for schema in schemas] == [["query"], ["action"]]
    assert schemas[1]["properties"]["action"]["enum"] == ["remember", "correct", "forget"]
    assert all("description" in one for schema in schemas for one in schema["properties"].values())


def test_tools_are_the_users_own(core: MemGAS) -> None:
    """A search finds the user's own, with dates and ids; a note is found at once, by its user only."""
    search, manage = create_memgas_tools(core, namespace="ana")
    others, _ = create_memgas_tools(core, namespace="ben")
    assert f"[may/0] 2023-05-08 user: {JUNO}" in said(search, query=QUERY)
    assert "Juno" not in said(others, query=QUERY)
    assert said(manage, action="remember", content="The greyhound is allergic to beef.").startswith(
        "Remembered as note-"
    )
    assert said(manage, action="remember", content="The greyhound is allergic to beef.").startswith("Already")
    assert "allergic to beef" in said(search, query="What is the greyhound allergic to?")
    assert "allergic to beef" not in said(others, query="What is the greyhound allergic to?")


def test_tools_correct_and_forget(core: MemGAS) -> None:
    """A note is replaced or deleted; what was said is not replaced, but can be forgotten."""
    search, manage = create_memgas_tools(core, namespace="ana")
    note_id = said(manage, action="remember", content="The vet is in Oak Street.").split()[-1].rstrip(".")
    assert "Already" in said(manage, action="correct", memory_id=note_id, content="The vet is in Oak Street.")
    assert "Remembered" in said(manage, action="correct", memory_id=note_id, content="The vet is in Elm Street.")
    found = said(search, query="Where is the vet?")
    assert "Elm Street" in found
    assert "Oak Street" not in found
    assert "was kept" in said(manage, action="correct", memory_id="may/0", content="The dog is called Juno II.")
    assert "Forgot" in said(manage, action="forget", memory_id="[may/0]")
    assert core.get("may", namespace="ana").turns[0].is_tombstone


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"action": "forget", "memory_id": "nowhere/0"}, "no memory"),
        ({"action": "forget", "memory_id": "may/9"}, "no memory"),
        ({"action": "forget", "memory_id": "may"}, "no memory"),
        ({"action": "correct", "memory_id": "may/9", "content": "x"}, "no memory"),
        ({"action": "correct", "memory_id": "may/0", "content": " "}, "blank"),
        ({"action": "remember", "content": " "}, "blank"),
        ({"action": "destroy"}, "no action"),
    ],
)
def test_tools_answer_in_words(core: MemGAS, arguments: dict[str, str], answer: str) -> None:
    """What cannot be done is said in words: an exception would end the agent's run."""
    search, manage = create_memgas_tools(core, namespace="ana")
    assert answer in said(manage, **arguments)
    assert "blank" in said(search, query=" ")
    assert said(search, query=QUERY, limit=-3)
    assert core.stats("ana").n_sessions == 1


def test_tools_of_a_failing_store(core: MemGAS) -> None:
    """A failing store is said in words as well."""
    search, manage = create_memgas_tools(core, namespace="ana")
    with failing(core, "retrieve"), failing(core, "add"):
        assert "right now" in said(search, query=QUERY)
        assert "right now" in said(manage, action="remember", content="x")
        with pytest.raises(StoreError):
            core.retrieve(QUERY, namespace="ana")


async def test_tools_in_an_agent(core: MemGAS) -> None:
    """A FunctionAgent searches and remembers; what it found goes to its model as data."""
    llm = Model(
        ("search_memory", {"query": QUERY}),
        ("manage_memory", {"action": "remember", "content": "She likes runs."}),
        "Done.",
    )
    agent = FunctionAgent(tools=list(create_memgas_tools(core, namespace="ana")), llm=llm)
    assert str(await agent.run(user_msg="What do you know of my dog?")) == "Done."
    assert JUNO in llm.seen[1]
    assert "Remembered as note-" in llm.seen[2]
    assert "She likes runs." in core.retrieve("What does she like?", namespace="ana").context()
