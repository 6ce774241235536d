"""`create_memgas_tools`: called, and in the hands of a real agent."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_memgas import create_memgas_tools
from memgas import EmbedderError, InvalidInputError, MemGAS, NotFoundError, Turn
from memgas.testing import HashEmbedder

ANA: Any = {"configurable": {"user_id": "ana"}}


@pytest.fixture
def core() -> Iterator[MemGAS]:
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        for user, text in (("ana", "My sister Lena keeps bees."), ("ben", "My sister Lena restores pianos.")):
            memory.add([Turn("user", text), Turn("assistant", "How nice.")], namespace=user, session_id="past")
        yield memory


def tools(core: MemGAS, **options: Any) -> tuple[BaseTool, BaseTool]:  # noqa: ANN401
    search, manage = create_memgas_tools(core, **options)
    return search, manage


def test_the_model_cannot_choose_a_user(core: MemGAS) -> None:
    """Neither schema shows namespace, user or config; such arguments, made up by a model, change nothing."""
    search, manage = tools(core)
    assert set(convert_to_openai_tool(search)["function"]["parameters"]["properties"]) == {"query", "limit"}
    assert set(convert_to_openai_tool(manage)["function"]["parameters"]["properties"]) == {
        "action",
        "content",
        "memory_id",
    }
    spoofed = {"query": "Lena", "config": {"configurable": {"user_id": "ben"}}, "namespace": "ben", "user_id": "ben"}
    assert "bees" in search.invoke(spoofed, ANA)
    assert "pianos" not in search.invoke(spoofed, ANA)


def test_search_returns_ids_dates_and_an_artifact(core: MemGAS) -> None:
    """The text names what was said with memory id and date; the artifact is JSON."""
    search, _ = tools(core)
    call = {"type": "tool_call", "name": "search_memory", "args": {"query": "Lena", "limit": 1}, "id": "1"}
    message = search.invoke(call, ANA)
    assert isinstance(message, ToolMessage)
    assert message.text.startswith("[past/0] 20")
    assert "user: My sister Lena keeps bees." in message.text
    assert json.loads(json.dumps(message.artifact)) == message.artifact
    assert message.artifact[0]["memory_id"] == "past/0"


def test_remember_is_found_and_stored_once(core: MemGAS) -> None:
    """A remembered statement is found at once, by recall as well; the same again is stored once."""
    search, manage = tools(core)
    first = manage.invoke({"action": "remember", "content": "Ana is allergic to walnuts."}, ANA)
    again = manage.invoke({"action": "remember", "content": "Ana is allergic to walnuts."}, ANA)
    assert first.startswith("Remembered as note-")
    assert again.startswith("Already remembered as note-")
    assert search.invoke({"query": "walnuts allergy"}, ANA).count("allergic to walnuts") == 1
    assert "walnuts" in core.retrieve("allergic?", namespace="ana").context()
    assert core.stats("ana").n_sessions == 2
    assert "walnuts" not in search.invoke({"query": "walnuts"}, {"configurable": {"user_id": "ben"}})


def memory_id(said: str) -> str:
    return said.split(" as ")[1].rstrip(".")


def test_correct(core: MemGAS) -> None:
    """A note is replaced; what somebody said is kept, and the correction stands beside it as a newer note."""
    search, manage = tools(core)
    note = memory_id(manage.invoke({"action": "remember", "content": "Ana works at Halden Bank."}, ANA))
    fixed = {"action": "correct", "memory_id": note, "content": "Ana works at Orrin Labs."}
    assert manage.invoke(fixed, ANA).startswith("Remembered")
    found = search.invoke({"query": "Where does Ana work?"}, ANA)
    assert "Orrin" in found
    assert "Halden" not in found

    kept = manage.invoke({"action": "correct", "memory_id": "past/0", "content": "Lena keeps wasps."}, ANA)
    assert "was kept" in kept
    assert core.get("past", namespace="ana").turns[0].text == "My sister Lena keeps bees."
    assert "wasps" in search.invoke({"query": "Lena keeps"}, ANA)


def test_a_correction_never_loses_a_note(core: MemGAS) -> None:
    """A note corrected to its own words stays; when the memory fails half way, the old note is still there."""
    _, manage = tools(core)
    note = memory_id(manage.invoke({"action": "remember", "content": "Ana works at Halden Bank."}, ANA))
    manage.invoke({"action": "correct", "memory_id": note, "content": "Ana works at Halden Bank."}, ANA)
    assert core.get(note.rpartition("/")[0], namespace="ana").turns[0].text == "Ana works at Halden Bank."

    def fail(*args: object, **options: object) -> None:
        raise EmbedderError("the embedder is down")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "add", fail)
        said = manage.invoke({"action": "correct", "memory_id": note, "content": "Ana works at Orrin Labs."}, ANA)
    assert "nothing was changed" in said
    assert core.get(note.rpartition("/")[0], namespace="ana").turns[0].text == "Ana works at Halden Bank."


def test_forget(core: MemGAS) -> None:
    """A note, and a single turn of a conversation, are gone after `forget`; their neighbours stay."""
    search, manage = tools(core)
    note = memory_id(manage.invoke({"action": "remember", "content": "Ana is allergic to walnuts."}, ANA))
    assert manage.invoke({"action": "forget", "memory_id": note}, ANA) == f"Forgot {note}."
    assert manage.invoke({"action": "forget", "memory_id": "[past/0]"}, ANA).startswith("Forgot")
    found = search.invoke({"query": "Lena bees walnuts"}, ANA)
    assert "bees" not in found
    assert "walnuts" not in found
    with pytest.raises(NotFoundError):
        core.get(note.rpartition("/")[0], namespace="ana")
    assert [turn.text for turn in core.get("past", namespace="ana").turns] == ["", "How nice."]


@pytest.mark.parametrize("memory", ["nowhere/0", "past/9", "past", "", "past/x", "/0", "past/-1"])
def test_unknown_ids_are_said(core: MemGAS, memory: str) -> None:
    """An id that does not exist (or is another user's) is answered in words, and changes nothing."""
    _, manage = tools(core)
    for arguments in ({"action": "forget"}, {"action": "correct", "content": "x"}):
        answer = manage.invoke({**arguments, "memory_id": memory}, ANA)
        assert answer.startswith("There is no memory")
    assert core.stats("ana").n_turns == 2


def test_another_users_memory_cannot_be_touched(core: MemGAS) -> None:
    """An id of one user means nothing to another."""
    _, manage = tools(core)
    note = memory_id(manage.invoke({"action": "remember", "content": "Ana is allergic to walnuts."}, ANA))
    answer = manage.invoke({"action": "forget", "memory_id": note}, {"configurable": {"user_id": "ben"}})
    assert answer.startswith("There is no memory")
    assert core.stats("ana").n_sessions == 2


@pytest.mark.parametrize("blank", ["", "  ", "\u200b"])
def test_blanks_are_said(core: MemGAS, blank: str) -> None:
    """A blank query or content is answered in words; nothing is stored, nothing returned."""
    search, manage = tools(core)
    assert "blank" in search.invoke({"query": blank}, ANA)
    assert "blank" in manage.invoke({"action": "remember", "content": blank}, ANA)
    assert "blank" in manage.invoke({"action": "correct", "memory_id": "past/0", "content": blank}, ANA)
    assert core.stats("ana").n_sessions == 1


@pytest.mark.parametrize("config", [None, {}, {"configurable": {"user_id": " "}}])
async def test_no_user_is_refused(core: MemGAS, config: Any) -> None:  # noqa: ANN401
    """Without a user the tools raise: that is for the programmer to mend."""
    search, manage = tools(core)
    with pytest.raises(InvalidInputError, match="namespace"):
        search.invoke({"query": "Lena"}, config)
    with pytest.raises(InvalidInputError, match="namespace"):
        await manage.ainvoke({"action": "remember", "content": "x"}, config)


async def test_failing_store_is_said_in_words() -> None:
    """What fails is a status the model can read, never an exception that ends the run."""

    class Down(HashEmbedder):
        def embed_documents(self, texts: Sequence[str]) -> Any:  # noqa: ANN401
            raise OSError("no route to host")

    with MemGAS.in_memory(embedder=Down()) as core:
        search, manage = tools(core)
        assert "right now" in await manage.ainvoke({"action": "remember", "content": "x"}, ANA)
        core.close()
        assert "right now" in await search.ainvoke({"query": "x"}, ANA)


class Model(GenericFakeChatModel):
    """LangChain's own fake model, that takes tools."""

    def bind_tools(self, tools: Sequence[BaseTool], **kwargs: object) -> "Model":  # type: ignore[override]
        """Take the tools and say nothing."""
        return self


async def test_user_from_runtime_context(core: MemGAS) -> None:
    """In an agent, the user may come from the runtime context alone, sync and async."""
    call = {"name": "search_memory", "args": {"query": "Lena"}, "id": "1"}
    for is_async in (False, True):
        llm = Model(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("done")]))
        its: Any = create_agent(llm, create_memgas_tools(core), context_schema=dict)
        given = {"messages": [{"role": "user", "content": "Lena?"}]}
        context = {"user_id": "ben"}
        result = await its.ainvoke(given, context=context) if is_async else its.invoke(given, context=context)
        assert "pianos" in result["messages"][2].text


async def test_in_an_agent(core: MemGAS) -> None:
    """In `create_agent`, with the user in the configuration: an agent remembers, searches, and reads what it found."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("manage_memory", {"action": "remember", "content": "Ana is allergic to walnuts."}),
        ("search_memory", {"query": "allergic"}),
    ]
    messages = [AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}]) for name, args in calls]
    its = create_agent(Model(messages=iter([*messages, AIMessage("Noted.")])), create_memgas_tools(core))
    result = await its.ainvoke({"messages": [{"role": "user", "content": "I cannot eat walnuts"}]}, ANA)
    answers = [message.text for message in result["messages"] if isinstance(message, ToolMessage)]
    assert answers[0].startswith("Remembered")
    assert "allergic to walnuts" in answers[1]
