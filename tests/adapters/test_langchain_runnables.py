"""Recall and save in LCEL chains, and as nodes of a hand-built LangGraph."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnablePassthrough
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_memgas import MemGASSave, create_recall_node, create_recall_runnable, create_save_node
from memgas import InvalidInputError, MemGAS, Turn
from memgas.testing import HashEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIG: Any = {"configurable": {"user_id": "ana", "thread_id": "t"}}


@pytest.fixture
def core() -> Iterator[MemGAS]:
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        for user, text in (("ana", "My sister Lena keeps bees."), ("ben", "My sister Lena restores pianos.")):
            memory.add([Turn("user", text), Turn("assistant", "How nice.")], namespace=user, session_id="past")
        yield memory


def said(core: MemGAS, namespace: str = "ana", conversation_id: str = "t") -> list[str]:
    records = core.list_sessions(namespace=namespace, conversation_id=conversation_id)
    turns = [turn for record in records for turn in core.get(record.session_id, namespace=namespace).turns]
    return [f"{turn.speaker}: {turn.text}" for turn in turns]


def model(*replies: str) -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage(reply) for reply in replies]))


# LCEL


def chain(core: MemGAS, *replies: str, seen: list[str] | None = None) -> Runnable[Any, Any]:
    def look(prompt: PromptValue) -> PromptValue:
        if seen is not None:
            seen.append(prompt.to_string())
        return prompt

    prompt = ChatPromptTemplate.from_messages([("system", "{memories}"), ("human", "{input}")])
    answer = prompt | look | model(*replies) | StrOutputParser()
    recall = create_recall_runnable(core, min_score=0.0)
    return RunnablePassthrough.assign(memories=recall) | RunnablePassthrough.assign(output=answer) | MemGASSave(core)


async def test_recall_and_save_in_a_chain(core: MemGAS) -> None:
    """Invoke and ainvoke: the prompt holds what matters, the exchange is stored, the value passes unchanged."""
    seen: list[str] = []
    its = chain(core, "bees", "still bees", seen=seen)
    first = its.invoke({"input": "What does Lena do?"}, CONFIG)
    second = await its.ainvoke({"input": "Sure about Lena?"}, CONFIG)
    assert first["output"] == "bees"
    assert second["output"] == "still bees"
    assert all("My sister Lena keeps bees." in prompt for prompt in seen)
    assert said(core) == [
        "user: What does Lena do?",
        "assistant: bees",
        "user: Sure about Lena?",
        "assistant: still bees",
    ]


async def test_save_streams(core: MemGAS) -> None:
    """Stream and astream pass the tokens as they come, and store the exchange once, whole."""
    its = chain(core, "a b c d", "e f g h")
    pieces = [piece["output"] for piece in its.stream({"input": "one"}, CONFIG) if "output" in piece]
    assert "".join(pieces) == "a b c d"
    assert len(pieces) > 3
    pieces = [piece["output"] async for piece in its.astream({"input": "two"}, CONFIG) if "output" in piece]
    assert "".join(pieces) == "e f g h"
    assert said(core) == ["user: one", "assistant: a b c d", "user: two", "assistant: e f g h"]


async def test_abandoned_stream_keeps_the_users_words(core: MemGAS) -> None:
    """A stream that is left after the first token keeps the user's words, sync and async; a repetition stores them once."""
    its = chain(core, "a b c d", "e f g h", "i j k l")
    stream = its.stream({"input": "one"}, CONFIG)
    next(piece for piece in stream if "output" in piece)
    stream.close()  # type: ignore[attr-defined]
    assert said(core) == ["user: one"]
    its.invoke({"input": "one"}, CONFIG)
    assert said(core) == ["user: one", "assistant: e f g h"]

    events: AsyncIterator[Any] = its.astream({"input": "two"}, CONFIG)
    async for piece in events:
        if "output" in piece:
            break
    await events.aclose()  # type: ignore[attr-defined]
    assert said(core)[-1] == "user: two"


def test_batch(core: MemGAS) -> None:
    """A batch of two users' inputs: each is told its own, each is stored with its own."""
    seen: list[str] = []
    its = chain(core, *["x"] * 6, seen=seen)
    configs: Any = [{"configurable": {"user_id": ("ana", "ben")[n % 2], "thread_id": f"t{n}"}} for n in range(6)]
    its.batch([{"input": f"Lena {n}?"} for n in range(6)], configs)
    for n in range(6):
        assert said(core, ("ana", "ben")[n % 2], f"t{n}") == [f"user: Lena {n}?", "assistant: x"]
    for prompt in seen:
        n = int(prompt.rsplit("?", 1)[0][-1])
        assert ("bees" in prompt, "pianos" in prompt) == (n % 2 == 0, n % 2 == 1)


def test_recall_takes_text_messages_and_mappings(core: MemGAS) -> None:
    """A recall takes text, a message, a list of messages, or a mapping with any of these under its key."""
    recall = create_recall_runnable(core, namespace="ana", input_key="q", min_score=0.0)
    question = HumanMessage("What does Lena do?")
    inputs = ["Lena?", question, [question], {"q": "Lena?"}, {"q": [SystemMessage("x"), question]}]
    for value in inputs:
        assert "keeps bees" in recall.invoke(value)
    assert recall.invoke([AIMessage("hello")]) == ""
    assert recall.invoke({"q": " "}) == ""
    with pytest.raises(InvalidInputError, match="no input 'q'"):
        recall.invoke({"input": "Lena?"})


def test_messages_in_the_input_are_not_recalled(core: MemGAS) -> None:
    """A history that the chain hands in is not told again."""
    core.append(
        [Turn("user", "The heron stood by the pond"), Turn("assistant", "Noted")], namespace="ana", conversation_id="t"
    )
    recall = create_recall_runnable(core, min_score=0.0)
    history = [HumanMessage("The heron stood by the pond"), AIMessage("Noted")]
    assert "heron" in recall.invoke({"input": "Where is the heron?"}, CONFIG)
    assert "heron" not in recall.invoke({"input": "Where is the heron?", "history": history}, CONFIG)


def test_save_takes_messages(core: MemGAS) -> None:
    """A list of messages: its last exchange is stored, once by id; tool and system messages are not."""
    save = MemGASSave(core)
    messages: list[BaseMessage] = [
        HumanMessage("old", id="0"), AIMessage("older", id="1"), HumanMessage("new", id="2"),
        AIMessage("", id="3", tool_calls=[{"name": "f", "args": {}, "id": "c"}]), ToolMessage("r", tool_call_id="c", id="4"),
        AIMessage("answer", id="5"),
    ]  # fmt: skip
    for _ in range(2):
        assert save.invoke(messages, CONFIG) is messages
    assert said(core) == ["user: new", "assistant: answer"]


class Parsed(BaseModel):
    """What a parser makes of an answer."""

    mood: str


def test_save_takes_any_answer(core: MemGAS) -> None:
    """A parsed answer is stored as JSON; a prompt into which memories were put is stored without them."""
    recalled = create_recall_runnable(core, namespace="ana", min_score=0.0).invoke("Lena")
    MemGASSave(core).invoke({"input": f"{recalled}\nHow is she?", "output": Parsed(mood="glad")}, CONFIG)
    assert said(core) == ["user: How is she?", 'assistant: {"mood":"glad"}']


@pytest.mark.parametrize(
    "config", [{}, {"configurable": {"user_id": " ", "thread_id": "t"}}, {"configurable": {"user_id": "ana"}}]
)
async def test_missing_names_are_said(core: MemGAS, config: Any) -> None:  # noqa: ANN401
    """Without a user, or without a thread to save to, it raises: sync, async, streaming."""
    save = MemGASSave(core)
    value = {"input": "a", "output": "b"}
    with pytest.raises(InvalidInputError):
        save.invoke(value, config)
    with pytest.raises(InvalidInputError):
        await save.ainvoke(value, config)
    with pytest.raises(InvalidInputError):
        list(save.transform(iter([value]), config))
    assert core.namespaces() == ["ana", "ben"]
    with pytest.raises(InvalidInputError, match="no 'output'"):
        save.invoke({"input": "a"}, CONFIG)


class _Down(HashEmbedder):
    def embed_documents(self, texts: Any) -> "NDArray[np.float32]":  # noqa: ANN401
        raise OSError("no route to host")

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        raise OSError("no route to host")


def test_fails_open(caplog: pytest.LogCaptureFixture) -> None:
    """With the embedder down a chain answers; the log says so without a word of what was said."""
    with MemGAS.in_memory(embedder=_Down()) as core, caplog.at_level(logging.WARNING, "langchain_memgas"):
        assert chain(core, "x").invoke({"input": "secret"}, CONFIG)["output"] == "x"
        assert caplog.records
        assert "secret" not in caplog.text


# nodes


class State(TypedDict):
    """The state of a hand-built graph."""

    messages: Annotated[list[AnyMessage], add_messages]
    memories: str


def graph(core: MemGAS, *replies: str, seen: list[str] | None = None, **options: Any) -> Any:  # noqa: ANN401
    llm = model(*replies)

    def answer(state: State) -> dict[str, Any]:
        if seen is not None:
            seen.append(state["memories"])
        return {"messages": [llm.invoke([SystemMessage(state["memories"]), *state["messages"]])]}

    save = create_save_node(core)
    builder = StateGraph(State, **options)
    builder.add_node("hear", save)
    builder.add_node("recall", create_recall_node(core, min_score=0.0))
    builder.add_node("answer", answer)
    builder.add_node("save", save)
    for pair in ((START, "hear"), ("hear", "recall"), ("recall", "answer"), ("answer", "save"), ("save", END)):
        builder.add_edge(*pair)
    return builder.compile(checkpointer=InMemorySaver())


def ask(text: str) -> Any:  # noqa: ANN401
    return {"messages": [HumanMessage(text)]}


async def test_nodes_in_a_graph(core: MemGAS) -> None:
    """In a StateGraph, sync, async and streaming: each turn is told what matters, and stored once by message id."""
    seen: list[str] = []
    its = graph(core, "one", "two", "three", "four", seen=seen)
    its.invoke(ask("Lena 1"), CONFIG)
    await its.ainvoke(ask("Lena 2"), CONFIG)
    assert list(its.stream(ask("Lena 3"), CONFIG, stream_mode="messages"))
    assert [piece async for piece in its.astream(ask("Lena 4"), CONFIG)]
    words = zip([f"user: Lena {n}" for n in range(1, 5)], ["one", "two", "three", "four"], strict=True)
    assert said(core) == [line for user, answer in words for line in (user, f"assistant: {answer}")]
    for memories in seen:
        assert "keeps bees" in memories
        assert "Lena 1" not in memories


def test_nodes_keep_the_users_words(core: MemGAS) -> None:
    """A save node in front keeps the user's words when the model fails, or the stream is left."""
    its = graph(core)
    with pytest.raises(RuntimeError):
        its.invoke(ask("hello"), CONFIG)
    assert said(core) == ["user: hello"]
    its = graph(core, "never read")
    stream = its.stream(ask("good bye"), {"configurable": {"user_id": "ana", "thread_id": "u"}})
    next(stream)
    stream.close()
    assert said(core, "ana", "u") == ["user: good bye"]


def test_nodes_read_the_runtime_context(core: MemGAS) -> None:
    """The user may come from the graph's runtime context."""

    class Context(TypedDict):
        user_id: str

    seen: list[str] = []
    its = graph(core, "x", seen=seen, context_schema=Context)
    its.invoke(ask("Lena?"), {"configurable": {"thread_id": "t"}}, context={"user_id": "ben"})
    assert "pianos" in seen[0]
    assert said(core, "ben") == ["user: Lena?", "assistant: x"]


def test_nodes_take_other_schemas(core: MemGAS) -> None:
    """A pydantic state, and messages as dicts, do as well."""

    class Room(BaseModel):
        talk: list[dict[str, str]]
        found: str = ""

    builder = StateGraph(Room)
    builder.add_node("recall", create_recall_node(core, messages_key="talk", context_key="found", min_score=0.0))
    builder.add_node("save", create_save_node(core, messages_key="talk"))
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "save")
    its: Any = builder.compile()
    for _ in range(2):  # a retry without ids
        result = its.invoke(Room(talk=[{"role": "user", "content": "What does Lena do?"}]), CONFIG)
    assert "keeps bees" in result["found"]
    assert said(core) == ["user: What does Lena do?"]


def test_nodes_need_their_names(core: MemGAS) -> None:
    """Without a user, or a thread to save to, a node raises and says what to give."""
    for config in ({"configurable": {"thread_id": "t"}}, {"configurable": {"thread_id": "t", "user_id": ""}}):
        with pytest.raises(InvalidInputError, match="namespace"):
            graph(core, "x").invoke(ask("hi"), config)
    with pytest.raises(InvalidInputError, match="messages_key"):
        create_recall_node(core, namespace="ana").invoke({"other": []})
    with pytest.raises(InvalidInputError, match="conversation"):
        create_save_node(core, namespace="ana").invoke({"messages": [HumanMessage("hi")]})


async def test_twenty_threads_of_two_users(core: MemGAS) -> None:
    """20 concurrent threads of two users through one graph: nothing crosses, nothing is lost."""
    its = graph(core, *["reply"] * 60)

    async def talk(n: int) -> None:
        for i in range(3):
            config = {"configurable": {"user_id": ("ana", "ben")[n % 2], "thread_id": f"t{n}"}}
            await its.ainvoke(ask(f"word {n} {i}"), config)

    await asyncio.gather(*[talk(n) for n in range(20)])
    for n in range(20):
        expected = [line for i in range(3) for line in (f"user: word {n} {i}", "assistant: reply")]
        assert said(core, ("ana", "ben")[n % 2], f"t{n}") == expected
        assert said(core, ("ben", "ana")[n % 2], f"t{n}") == []


def test_itemgetter_idiom(core: MemGAS) -> None:
    """The documented line ends with the answer alone."""
    its = chain(core, "bees") | itemgetter("output")
    assert its.invoke({"input": "Lena?"}, CONFIG) == "bees"
