"""langmem's two tools on `MemGASStore`. langmem brings OpenAI's and Anthropic's packages, so it is installed for this test only."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool

from memgas import MemGAS
from memgas.testing import HashEmbedder

langmem = pytest.importorskip("langmem", reason="langmem is installed in an environment of its own")

from langchain.agents import create_agent  # noqa: E402

from langchain_memgas import MemGASStore  # noqa: E402

ANA: Any = {"configurable": {"user_id": "ana"}}
PATH = ("memories", "{user_id}")


@pytest.fixture
def store() -> Iterator[MemGASStore]:
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        yield MemGASStore(memory, namespace="tenant")


def tools(store: MemGASStore) -> tuple[BaseTool, BaseTool]:
    manage = langmem.create_manage_memory_tool(PATH, store=store)
    return manage, langmem.create_search_memory_tool(PATH, store=store)


def found(search: BaseTool, query: str, config: Any = ANA) -> list[dict[str, Any]]:  # noqa: ANN401
    items: list[dict[str, Any]] = json.loads(search.invoke({"query": query}, config))
    return items


def test_create_update_delete(store: MemGASStore) -> None:
    """Langmem's manage tool creates, updates and deletes; its search tool finds the best first."""
    manage, search = tools(store)
    manage.invoke({"action": "create", "content": "Ana is allergic to walnuts."}, ANA)
    manage.invoke({"action": "create", "content": "The train to Bern leaves at noon."}, ANA)
    first = found(search, "allergic to walnuts")
    assert len(first) == 2
    assert first[0]["value"]["content"] == "Ana is allergic to walnuts."
    changed = {"action": "update", "id": first[0]["key"], "content": "Ana is allergic to hazelnuts."}
    manage.invoke(changed, ANA)
    assert found(search, "allergic to hazelnuts")[0]["value"]["content"] == "Ana is allergic to hazelnuts."
    manage.invoke({"action": "delete", "id": first[0]["key"]}, ANA)
    assert [item["value"]["content"] for item in found(search, "allergic")] == ["The train to Bern leaves at noon."]


async def test_users_are_apart(store: MemGASStore) -> None:
    """Langmem's namespace template keeps users apart, sync and async."""
    manage, search = tools(store)
    await manage.ainvoke({"action": "create", "content": "Ana is allergic to walnuts."}, ANA)
    assert found(search, "walnuts", {"configurable": {"user_id": "ben"}}) == []
    assert len(json.loads(await search.ainvoke({"query": "walnuts"}, ANA))) == 1
    assert store.list_namespaces() == [("memories", "ana")]


class Model(GenericFakeChatModel):
    """LangChain's own fake model, that takes tools."""

    def bind_tools(self, tools: Sequence[BaseTool], **kwargs: object) -> "Model":  # type: ignore[override]
        """Take the tools and say nothing."""
        return self


def test_in_an_agent(store: MemGASStore) -> None:
    """In `create_agent(store=...)` the tools find the store by themselves."""
    pair = [langmem.create_manage_memory_tool(PATH), langmem.create_search_memory_tool(PATH)]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("manage_memory", {"action": "create", "content": "Ana is allergic to walnuts."}),
        ("search_memory", {"query": "walnuts"}),
    ]
    messages = [AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}]) for name, args in calls]
    agent = create_agent(Model(messages=iter([*messages, AIMessage("Noted.")])), pair, store=store)
    result = agent.invoke({"messages": [{"role": "user", "content": "I cannot eat walnuts"}]}, ANA)
    answers = [message.text for message in result["messages"] if isinstance(message, ToolMessage)]
    assert "created memory" in answers[0]
    assert "allergic to walnuts" in answers[1]
