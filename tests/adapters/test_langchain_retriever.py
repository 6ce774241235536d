"""`MemGASRetriever`, alone and inside chains. Runs on LangChain 0.3 as well."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnablePassthrough
from pydantic import ValidationError

from langchain_memgas import MemGASRetriever
from memgas import InvalidInputError, MemGAS, Turn
from memgas.testing import HashEmbedder, ScriptedLLM

DAY = datetime(2024, 1, 10, tzinfo=UTC)
TOPICS = [
    "I adopted a greyhound, Juno.",
    "My sister Lena keeps bees.",
    "I take grandma to the dentist.",
    "I bake bread.",
]


@pytest.fixture
def core() -> Iterator[MemGAS]:
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        fill(memory, "ana", TOPICS)
        fill(memory, "ben", ["My sister Lena restores pianos."])
        yield memory


def fill(memory: MemGAS, namespace: str, topics: list[str]) -> None:
    for n, text in enumerate(topics):
        memory.add(
            [Turn("user", text), Turn("assistant", "I see.")], namespace=namespace, session_id=f"s{n}",
            happened_at=DAY + timedelta(days=n), metadata={"n": n},
        )  # fmt: skip


def ids(documents: list[Document]) -> list[str | None]:
    return [document.id for document in documents]


def test_documents_are_excerpts_with_json_metadata(core: MemGAS) -> None:
    """A document says what was said; its id is the session's; its metadata is JSON: session, time, score, granularity."""
    found = MemGASRetriever(memory=core, namespace="ana", k=1).invoke("What does Lena keep?")[0]
    assert found.page_content == "user: My sister Lena keeps bees.\nassistant: I see."
    metadata = json.loads(json.dumps(found.metadata))
    assert metadata == found.metadata
    assert found.id == metadata["session_id"] == metadata["memory_id"] == "s1"
    assert metadata["happened_at"] == "2024-01-11T00:00:00+00:00"
    assert 0 < metadata["score"] <= 1
    assert metadata["granularity"] in ("turn", "session", "summary", "keyword")
    assert metadata["metadata"] == {"n": 1}


def test_scores_fall(core: MemGAS) -> None:
    """Documents come best first, and their scores never rise."""
    scores = [one.metadata["score"] for one in MemGASRetriever(memory=core, namespace="ana").invoke("bees and bread")]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 4


async def test_namespace_from_everywhere(core: MemGAS) -> None:
    """Whose memory it is comes from the constructor, the call, or the configuration; sync, async, and in a batch alike."""
    query = "What does Lena do?"
    free = MemGASRetriever(memory=core, k=1)
    fixed = MemGASRetriever(memory=core, namespace="ben", k=1)
    config = {"configurable": {"user_id": "ben"}}
    results = [
        fixed.invoke(query), await fixed.ainvoke(query), free.invoke(query, namespace="ben"),
        await free.ainvoke(query, namespace="ben"), free.invoke(query, config), await free.ainvoke(query, config),  # type: ignore[arg-type]
        free.batch([query], config)[0], (await free.abatch([query], config))[0],  # type: ignore[arg-type]
        free.batch([query], namespace="ben")[0], free.bind(namespace="ben").invoke(query),
    ]  # fmt: skip
    for documents in results:
        assert "pianos" in documents[0].page_content
    assert "bees" in free.invoke(query, namespace="ana")[0].page_content


@pytest.mark.parametrize("user", [None, "", " "])
async def test_no_user_is_refused(core: MemGAS, user: str | None) -> None:
    """Without a user, or with a blank one, nothing is searched: there is no shared memory."""
    config: Any = {"configurable": {"user_id": user}}
    with pytest.raises(InvalidInputError, match="namespace"):
        MemGASRetriever(memory=core).invoke("What does Lena do?", config)
    with pytest.raises(InvalidInputError, match="namespace"):
        await MemGASRetriever(memory=core).ainvoke("What does Lena do?", config)


def test_unknown_user_finds_nothing(core: MemGAS) -> None:
    """A user of whom nothing is known gets nothing, never somebody else's."""
    assert MemGASRetriever(memory=core, namespace="eve").invoke("What does Lena do?") == []


async def test_k_since_until_per_call(core: MemGAS) -> None:
    """`k`, `since` and `until` hold per call, sync, async and in a batch, and by constructor."""
    its = MemGASRetriever(memory=core, namespace="ana")
    assert len(its.invoke("bees", k=2)) == len(await its.ainvoke("bees", k=2)) == len(its.batch(["bees"], k=2)[0]) == 2
    late = DAY + timedelta(days=2)
    assert sorted(map(str, ids(its.invoke("bees", since=late)))) == ["s2", "s3"]
    assert sorted(map(str, ids(await its.ainvoke("bees", until=DAY + timedelta(days=1))))) == ["s0", "s1"]
    assert ids(MemGASRetriever(memory=core, namespace="ana", since=late, until=late).invoke("bees")) == ["s2"]


async def test_misspelt_keyword_raises(core: MemGAS) -> None:
    """A keyword that does not exist is never ignored, at construction or per call."""
    its = MemGASRetriever(memory=core, namespace="ana")
    with pytest.raises(TypeError, match="top"):
        its.invoke("bees", top=1)
    with pytest.raises(TypeError, match="top"):
        await its.ainvoke("bees", top=1)
    with pytest.raises(ValidationError):
        MemGASRetriever.model_validate({"memory": core, "namespace": "ana", "search_kwargs": {}})


def test_irrelevant_query_finds_nothing_with_a_gate(core: MemGAS) -> None:
    """`min_score` empties the result of a question about something else, and keeps that of a real one."""
    its = MemGASRetriever(memory=core, namespace="ana", min_score=0.3)
    assert its.invoke("quantum chromodynamics lecture") == []
    assert ids(its.invoke("my sister Lena keeps bees"))[0] == "s1"


@pytest.mark.parametrize("query", ["", "  ", "\n\t"])
async def test_blank_query_is_refused(core: MemGAS, query: str) -> None:
    """A blank query raises, sync and async, and never returns whatever is there."""
    its = MemGASRetriever(memory=core, namespace="ana")
    with pytest.raises(InvalidInputError, match="query"):
        its.invoke(query)
    with pytest.raises(InvalidInputError, match="query"):
        await its.ainvoke(query)


def test_inside_a_chain(core: MemGAS) -> None:
    """In an LCEL chain it fills the prompt, with the user from the chain's configuration."""
    seen: list[str] = []

    def look(prompt: PromptValue) -> PromptValue:
        seen.append(prompt.to_string())
        return prompt

    chain = (
        {"context": MemGASRetriever(memory=core, k=1), "question": RunnablePassthrough()}
        | ChatPromptTemplate.from_template("{context} {question}")
        | look
        | FakeListChatModel(responses=["pianos"])
        | StrOutputParser()
    )
    assert chain.invoke("What does Lena do?", {"configurable": {"user_id": "ben"}}) == "pianos"
    assert "restores pianos" in seen[0]


def test_configurable_fields(core: MemGAS) -> None:
    """`configurable_fields` changes `k` and the namespace per call, without opening anything anew."""
    its = MemGASRetriever(memory=core, namespace="ana").configurable_fields(
        k=ConfigurableField(id="k"), namespace=ConfigurableField(id="whose")
    )
    found = its.invoke("Lena", {"configurable": {"k": 1, "whose": "ben"}})
    assert [document.id for document in found] == ["s0"]
    assert len(its.invoke("Lena", {"configurable": {"k": 2}})) == 2


def test_traced_as_a_retriever(core: MemGAS) -> None:
    """Callbacks see the documents; the trace names retriever and embedder, and holds no secret and no memory object."""

    class Watch(BaseCallbackHandler):
        def __init__(self) -> None:
            self.metadata: dict[str, Any] = {}
            self.documents: list[Document] = []

        def on_retriever_start(self, *args: object, metadata: dict[str, Any] | None = None, **kwargs: object) -> None:
            self.metadata = metadata or {}

        def on_retriever_end(self, documents: Any, **kwargs: object) -> None:  # noqa: ANN401
            self.documents = list(documents)

    watch = Watch()
    its = MemGASRetriever(memory=core, namespace="ana", k=1)
    its.invoke("bees", {"callbacks": [watch]})
    assert len(watch.documents) == 1
    assert watch.metadata["ls_retriever_name"] == "memgas"
    assert watch.metadata["ls_embedding_model"] == "hash"
    assert "MemGAS object" not in repr(its)


def test_filter_by_the_memorys_model() -> None:
    """`filter="llm"` lets the memory's language model drop documents."""
    llm = ScriptedLLM(default="{}")
    with MemGAS.in_memory(embedder=HashEmbedder(), llm=llm) as core:
        fill(core, "ana", TOPICS)
        llm.replies.append("[1]")
        assert len(MemGASRetriever(memory=core, namespace="ana", filter="llm").invoke("Lena and her bees")) == 1


def test_on_disk(tmp_path: Path) -> None:
    """Built from a path with LangChain's embeddings, it finds what another object wrote there in the same process."""
    embeddings = DeterministicFakeEmbedding(size=16)
    its = MemGASRetriever(path=tmp_path / "memory", embeddings=embeddings, namespace="ana", k=1)
    again = MemGASRetriever(path=tmp_path / "memory", embeddings=embeddings, namespace="ana", k=1)
    with its.memory, again.memory:
        fill(its.memory, "ana", TOPICS)
        assert "bees" in again.invoke("What does Lena keep, bees?")[0].page_content


async def test_hundred_at_once(core: MemGAS) -> None:
    """Concurrent queries of two users return each user's own, always."""
    its = MemGASRetriever(memory=core, k=1)
    users = ["ana", "ben"] * 50
    found = await asyncio.gather(
        *[its.ainvoke("What does Lena do?", {"configurable": {"user_id": user}}) for user in users]
    )
    for user, documents in zip(users, found, strict=True):
        assert ("bees" if user == "ana" else "pianos") in documents[0].page_content
