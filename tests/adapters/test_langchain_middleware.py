"""`MemGASMiddleware` inside real agents of `create_agent`."""

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, SummarizationMiddleware
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatResult
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import Field

from langchain_memgas import LangChainLLM, MemGASMiddleware
from memgas import EmbedderError, InvalidInputError, MemGAS, Retrieval, Turn
from memgas.testing import HashEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Model(GenericFakeChatModel):
    """LangChain's own fake model, with a note of what it was shown."""

    seen: list[list[BaseMessage]] = Field(default_factory=list)

    def bind_tools(self, tools: Sequence[BaseTool], **kwargs: object) -> "Model":  # type: ignore[override]
        """Take the tools and say nothing."""
        return self

    def system(self, call: int = -1) -> str:
        """Return the system message of a call."""
        return "\n".join(message.text for message in self.seen[call] if message.type == "system")

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        self.seen.append(messages)
        return super()._generate(messages, stop, run_manager, **kwargs)


def model(*replies: str | AIMessage) -> Model:
    return Model(messages=iter([AIMessage(reply) if isinstance(reply, str) else reply for reply in replies]))


@tool
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


CALL = AIMessage("", tool_calls=[{"name": "shout", "args": {"text": "bee"}, "id": "call-1"}])


@pytest.fixture
def core() -> Iterator[MemGAS]:
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        for user, text in (("ana", "My sister Lena keeps bees."), ("ben", "My sister Lena restores pianos.")):
            memory.add([Turn("user", text), Turn("assistant", "How nice.")], namespace=user, session_id="past")
        yield memory


def said(core: MemGAS, namespace: str, conversation_id: str = "t") -> list[str]:
    records = core.list_sessions(namespace=namespace, conversation_id=conversation_id)
    turns = [turn for record in records for turn in core.get(record.session_id, namespace=namespace).turns]
    return [f"{turn.speaker}: {turn.text}" for turn in turns]


def configured(user: str | None = "ana", thread: str = "t") -> Any:  # noqa: ANN401
    return {"configurable": {"user_id": user, "thread_id": thread}}


def ask(text: str) -> Any:  # noqa: ANN401
    return {"messages": [{"role": "user", "content": text}]}


def agent(core: MemGAS, llm: Model, *others: AgentMiddleware[Any, Any, Any], **options: Any) -> Any:  # noqa: ANN401
    settings = {"min_score": 0.0, **options.pop("memory", {})}
    return create_agent(
        llm, options.pop("tools", []), middleware=[MemGASMiddleware(core, **settings), *others],
        checkpointer=options.pop("checkpointer", InMemorySaver()), **options,
    )  # fmt: skip


def test_recalls_then_answers_then_stores(core: MemGAS) -> None:
    """The agent is told what matters of earlier conversations, in its system message only; both sides are stored."""
    llm = model("She keeps bees.")
    result = agent(core, llm, system_prompt="Be brief.").invoke(ask("What does Lena do?"), configured())
    assert llm.system().startswith("Be brief.")
    assert "My sister Lena keeps bees." in llm.system()
    assert [message.type for message in result["messages"]] == ["human", "ai"]
    assert set(result) == {"messages"}
    assert said(core, "ana") == ["user: What does Lena do?", "assistant: She keeps bees."]


async def test_async_and_streams(core: MemGAS) -> None:
    """invoke, ainvoke, stream and astream recall and store alike."""
    llm = model("one", "two", "three", "four")
    its = agent(core, llm)
    its.invoke(ask("Lena 1"), configured())
    await its.ainvoke(ask("Lena 2"), configured())
    assert list(its.stream(ask("Lena 3"), configured(), stream_mode="messages"))
    assert [chunk async for chunk in its.astream(ask("Lena 4"), configured(), stream_mode="updates")]
    expected = [f"user: Lena {n}" for n in range(1, 5)], [f"assistant: {w}" for w in ("one", "two", "three", "four")]
    assert said(core, "ana") == [line for pair in zip(*expected, strict=True) for line in pair]
    assert all("bees" in llm.system(n) for n in range(4))


def test_tool_loop(core: MemGAS, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a tool loop every model call is told the same, recalled once; tool calls and results are not stored."""
    queries: list[str] = []
    retrieve = core.retrieve

    def counted(query: str, **options: Any) -> Retrieval:  # noqa: ANN401
        queries.append(query)
        return retrieve(query, **options)

    monkeypatch.setattr(core, "retrieve", counted)
    llm = model(CALL, "BEE, said loudly")
    agent(core, llm, tools=[shout]).invoke(ask("Shout bee for Lena"), configured())
    assert len(llm.seen) == 2
    assert queries == ["Shout bee for Lena"]
    assert llm.system(0) == llm.system(1) != ""
    assert said(core, "ana") == ["user: Shout bee for Lena", "assistant: BEE, said loudly"]


def test_a_thread_is_stored_once(core: MemGAS) -> None:
    """Turn after turn, with the whole thread in the state each time, a message is stored once, by its id."""
    llm = model(*[f"answer {n}" for n in range(5)])
    its = agent(core, llm)
    for _ in range(5):
        its.invoke(ask("The same words"), configured())
    assert said(core, "ana") == [line for n in range(5) for line in ("user: The same words", f"assistant: answer {n}")]


def test_what_the_model_sees_is_not_recalled(core: MemGAS) -> None:
    """Turns that are in the thread's messages are not told again in the system message."""
    llm = model("noted", "again")
    its = agent(core, llm)
    its.invoke(ask("The heron stood by the pond"), configured())
    its.invoke(ask("Where did the heron stand, by the pond?"), configured())
    assert "heron" not in llm.system()


def test_recall_is_never_stored(core: MemGAS) -> None:
    """What was recalled is in no checkpoint, and is not stored again, whatever the number of turns."""
    its = agent(core, model("one", "two"))
    for text in ("What does Lena do?", "What does Lena keep?"):
        its.invoke(ask(text), configured())
    state = its.get_state(configured()).values
    assert "memgas_context" not in state
    assert "bees" not in repr(state)
    assert not [line for line in said(core, "ana") if "recalled" in line or "bees" in line]


@dataclass
class Context:
    """What an application hands to a run."""

    user_id: str


async def test_user_from_runtime_context(core: MemGAS) -> None:
    """The user comes from the runtime context, a dataclass or a dict, sync and async."""
    llm = model("a", "b")
    its = agent(core, llm, context_schema=Context)
    its.invoke(ask("What does Lena do?"), {"configurable": {"thread_id": "t"}}, context=Context("ben"))
    await its.ainvoke(ask("And Lena?"), {"configurable": {"thread_id": "t"}}, context={"user_id": "ben"})
    for call in (0, 1):
        assert "pianos" in llm.system(call)
        assert "bees" not in llm.system(call)
    assert len(said(core, "ben")) == 4
    assert said(core, "ana") == []


@pytest.mark.parametrize("user", [None, "", "  "])
async def test_no_user_is_refused(core: MemGAS, user: str | None) -> None:
    """A missing or blank user raises, and never falls into a shared memory."""
    its = agent(core, model("x", "y"))
    with pytest.raises(InvalidInputError, match="namespace"):
        its.invoke(ask("hello"), configured(user))
    with pytest.raises(InvalidInputError, match="namespace"):
        await its.ainvoke(ask("hello"), configured(user))
    assert core.namespaces() == ["ana", "ben"]


def test_abandoned_stream_keeps_the_users_words(core: MemGAS) -> None:
    """A stream that nobody reads to its end keeps the user's words; the next turn goes on, and stores what was answered."""
    its = agent(core, model("a long answer", "the next answer"))
    stream = its.stream(ask("My locker code is walnut seven"), configured(), stream_mode="messages")
    next(stream)
    stream.close()
    assert said(core, "ana")[0] == "user: My locker code is walnut seven"
    its.invoke(ask("What is my code?"), configured())
    kept = said(core, "ana")
    assert kept[-2:] == ["user: What is my code?", "assistant: the next answer"]
    assert len(kept) == len(set(kept))


async def test_abandoned_async_stream_keeps_the_users_words(core: MemGAS) -> None:
    """The same for an async stream."""
    its = agent(core, model("a long answer"))
    stream = its.astream(ask("My locker code is walnut seven"), configured(), stream_mode="messages")
    await anext(stream)
    await stream.aclose()
    assert said(core, "ana")[0] == "user: My locker code is walnut seven"


class Broken(Model):
    """Fails on its first call."""

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:  # noqa: ANN401
        if not self.seen:
            self.seen.append([])
            raise RuntimeError("the model is down")
        return super()._generate(*args, **kwargs)


def test_failing_model_keeps_the_users_words(core: MemGAS) -> None:
    """When the model fails, the user's words are stored; going on from the checkpoint stores the answer, once."""
    its = agent(core, Broken(messages=iter([AIMessage("better now")])))
    with pytest.raises(RuntimeError, match="down"):
        its.invoke(ask("What does Lena do?"), configured())
    assert said(core, "ana") == ["user: What does Lena do?"]
    its.invoke(None, configured())
    assert said(core, "ana") == ["user: What does Lena do?", "assistant: better now"]


def test_resumed_run_is_still_informed(core: MemGAS) -> None:
    """After an interrupt, a run that is resumed is told the same memories, though no checkpoint holds them."""
    llm = model(CALL, "done")
    its = agent(core, llm, HumanInTheLoopMiddleware({"shout": True}), tools=[shout])
    its.invoke(ask("Shout bee for Lena"), configured())
    its.invoke(Command(resume={"decisions": [{"type": "approve"}]}), configured())
    assert "keeps bees" in llm.system(1)
    assert said(core, "ana") == ["user: Shout bee for Lena", "assistant: done"]


def test_summarised_thread(core: MemGAS) -> None:
    """Beside SummarizationMiddleware, which replaces the messages: every word of both sides is stored once, its summary never."""
    summarizer = SummarizationMiddleware(
        FakeListChatModel(responses=["They talked."]), trigger=("messages", 4), keep=("messages", 2)
    )
    its = agent(core, model(*[f"answer {n}" for n in range(6)]), summarizer)
    for n in range(6):
        its.invoke(ask(f"question {n}"), configured())
    assert said(core, "ana") == [line for n in range(6) for line in (f"user: question {n}", f"assistant: answer {n}")]


def test_trimmed_words_are_recalled(core: MemGAS) -> None:
    """What fell out of the thread's messages is found by recall."""
    summarizer = SummarizationMiddleware(
        FakeListChatModel(responses=["They talked."]), trigger=("messages", 4), keep=("messages", 1)
    )
    llm = model(*[f"answer {n}" for n in range(6)])
    its = agent(core, llm, summarizer)
    its.invoke(ask("My locker code is walnut seven"), configured())
    for n in range(4):
        its.invoke(ask(f"small talk {n}"), configured())
    its.invoke(ask("What is my locker code?"), configured())
    assert "My locker code is walnut seven" in llm.system()


def test_forgotten_conversation_stays_forgotten(core: MemGAS) -> None:
    """After its memory was deleted, a thread that goes on does not bring the old words back."""
    its = agent(core, model("one", "two"))
    its.invoke(ask("My locker code is walnut seven"), configured())
    core.delete_conversation("t", namespace="ana")
    its.invoke(ask("Good evening"), configured())
    assert said(core, "ana") == ["user: Good evening", "assistant: two"]


def test_without_checkpointer(core: MemGAS) -> None:
    """An application that hands in the whole history with each run, under new ids, stores each turn once."""
    its = agent(core, model("one", "two", "three"), checkpointer=None)
    history: list[dict[str, str]] = []
    for text in ("first", "second", "third"):
        history.append({"role": "user", "content": text})
        result = its.invoke({"messages": history}, configured())
        history.append({"role": "assistant", "content": result["messages"][-1].text})
    assert said(core, "ana") == [
        "user: first", "assistant: one", "user: second", "assistant: two", "user: third", "assistant: three",
    ]  # fmt: skip


def test_without_checkpointer_a_retry_is_harmless(core: MemGAS) -> None:
    """A run that failed and is repeated, under a new message id, stores the user's words once."""
    its = agent(core, Broken(messages=iter([AIMessage("better now")])), checkpointer=None)
    with pytest.raises(RuntimeError, match="down"):
        its.invoke(ask("hello"), configured())
    its.invoke(ask("hello"), configured())
    assert said(core, "ana") == ["user: hello", "assistant: better now"]


def test_without_thread(core: MemGAS) -> None:
    """A run without a thread is a conversation of its own, and is recalled later."""
    llm = model("noted", "walnut seven")
    its = agent(core, llm, checkpointer=None)
    config = {"configurable": {"user_id": "ana"}}
    its.invoke(ask("My locker code is walnut seven"), config)
    its.invoke(ask("What is my locker code?"), config)
    assert "My locker code is walnut seven" in llm.system()
    conversations = {record.conversation_id for record in core.list_sessions(namespace="ana")} - {None}
    assert len(conversations) == 2


def test_multimodal_and_parallel_tool_calls(core: MemGAS) -> None:
    """Of a picture a placeholder is stored beside the text; parallel tool calls do no harm."""
    calls = [{"name": "shout", "args": {"text": t}, "id": t} for t in ("a", "b")]
    llm = model(AIMessage("", tool_calls=calls), "both said")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content: list[str | dict[Any, Any]] = [{"type": "text", "text": "Look, Lena"}, picture]
    agent(core, llm, tools=[shout]).invoke({"messages": [HumanMessage(content)]}, configured())
    assert said(core, "ana") == ["user: Look, Lena\n[image]", "assistant: both said"]


def test_system_message_keeps_its_parts(core: MemGAS) -> None:
    """A system message of several parts, with a cache mark, keeps them in front of what is added."""
    from langchain_core.messages import SystemMessage

    llm = model("x")
    part: dict[Any, Any] = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    agent(core, llm, system_prompt=SystemMessage([part])).invoke(ask("Lena"), configured())
    content = llm.seen[0][0].content
    assert isinstance(content, list)
    assert len(content) == 2
    assert "cache_control" in str(content[0])


def test_greeting_is_told_nothing(core: MemGAS) -> None:
    """With the default gate, a greeting adds nothing to the system message; with a question about Lena it is told."""
    llm = model("hi", "bees")
    its = agent(core, llm, memory={"min_score": MemGASMiddleware(core)._options.min_score})
    its.invoke(ask("Good morning!"), configured())
    assert llm.system() == ""
    its.invoke(ask("Does my sister Lena keep bees?"), configured())
    assert "keeps bees" in llm.system()


def test_edited_message_keeps_its_first_wording(core: MemGAS, caplog: pytest.LogCaptureFixture) -> None:
    """A message that comes again under its id with other words does not stop the run; the log says what was kept."""
    its = agent(core, model("one", "two"), checkpointer=None)
    its.invoke({"messages": [HumanMessage("I like tea", id="m1")]}, configured())
    with caplog.at_level(logging.WARNING, "langchain_memgas"):
        its.invoke({"messages": [HumanMessage("I like coffee", id="m1")]}, configured())
    assert said(core, "ana") == ["user: I like tea", "assistant: one", "assistant: two"]
    assert "edited" in caplog.text


class _Waiting(HashEmbedder):
    """Waits until it is let go; gives up when nobody is there to do so."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.go = threading.Event(), threading.Event()
        self.go.set()

    def embed_documents(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        self.waits.set()
        if not self.go.wait(120):
            raise RuntimeError("the event loop is blocked")
        return super().embed_documents(texts)


class _Faulty(HashEmbedder):
    fails = False

    def embed_documents(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        if self.fails:
            raise OSError("no route to host")
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        if self.fails:
            raise OSError("no route to host")
        return super().embed_query(text)


async def test_fails_open(caplog: pytest.LogCaptureFixture) -> None:
    """With the embedder down the agent answers, and the log holds no word of what was said.

    Once the embedder is back, what was missed is stored. `strict` raises instead.
    """
    embedder = _Faulty()
    with MemGAS.in_memory(embedder=embedder) as core:
        its = agent(core, model("zero", "one", "two", "three"))
        its.invoke(ask("begin"), configured())
        embedder.fails = True
        with caplog.at_level(logging.WARNING, "langchain_memgas"):
            its.invoke(ask("secret words"), configured())
            await its.ainvoke(ask("more secrets"), configured())
        assert len(caplog.records) >= 4
        assert "secret" not in caplog.text
        with pytest.raises(EmbedderError, match="no route"):
            agent(core, model("x"), memory={"strict": True}).invoke(ask("hello"), configured())
        embedder.fails = False
        its.invoke(ask("back"), configured())
        assert said(core, "ana") == [
            "user: begin", "assistant: zero", "user: secret words", "assistant: one", "user: more secrets",
            "assistant: two", "user: back", "assistant: three",
        ]  # fmt: skip


def test_two_memories_in_one_agent(core: MemGAS) -> None:
    """Two memories with names of their own stand beside each other, and each tells what it knows."""
    with MemGAS.in_memory(embedder=HashEmbedder()) as team:
        team.add([Turn("user", "Lena leads the harbour project.")], namespace="team")
        llm = model("both", "again")
        second = MemGASMiddleware(team, namespace="team", min_score=0.0, name="team-memory")
        its = agent(core, llm, second)
        its.invoke(ask("What does Lena do?"), configured())
        its.invoke(ask("And Lena?"), configured())
        assert llm.system().count("keeps bees") == llm.system().count("harbour project") == 1
        assert len(said(core, "ana")) == len(said(team, "team")) == 4


async def test_twenty_conversations_of_two_users(core: MemGAS) -> None:
    """20 concurrent threads of two users through one agent: nothing crosses, nothing is lost."""

    class Echo(Model):
        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:  # noqa: ANN401
            self.messages = iter([AIMessage(f"echo {messages[-1].text}")])
            return super()._generate(messages, *args, **kwargs)

    llm = Echo(messages=iter([]))
    its = agent(core, llm)

    async def talk(n: int) -> None:
        for i in range(3):
            await its.ainvoke(ask(f"word {n} {i}"), configured(("ana", "ben")[n % 2], f"t{n}"))

    await asyncio.gather(*[talk(n) for n in range(20)])
    for n in range(20):
        expected = [line for i in range(3) for line in (f"user: word {n} {i}", f"assistant: echo word {n} {i}")]
        assert said(core, ("ana", "ben")[n % 2], f"t{n}") == expected
        assert said(core, ("ben", "ana")[n % 2], f"t{n}") == []
    for seen in llm.seen:
        system = "\n".join(message.text for message in seen if message.type == "system")
        parity = int(seen[-1].text.split()[1]) % 2
        assert ("pianos", "bees")[parity] not in system


async def test_slow_memory_does_not_block_the_loop() -> None:
    """While the hooks wait for a slow embedder, the event loop goes on: here it is the loop that ends the waiting."""
    with MemGAS.in_memory(embedder=(embedder := _Waiting())) as core:
        core.add([Turn("user", "Something was said.")], namespace="ana")
        embedder.go.clear()
        embedder.waits.clear()
        task = asyncio.ensure_future(
            agent(core, model("x"), memory={"strict": True}).ainvoke(ask("What?"), configured())
        )
        while not embedder.waits.is_set() and not task.done():
            await asyncio.sleep(0.001)
        embedder.go.set()
        await task
        assert said(core, "ana") == ["user: What?", "assistant: x"]


async def test_the_filters_tokens_do_not_reach_the_user() -> None:
    """With `filter="llm"`, a message stream of the agent shows the answer alone, not the verdict."""
    verdicts = FakeListChatModel(responses=['{"summary": "s", "keywords": []}', "[1]", "[1]"])
    with MemGAS.in_memory(embedder=HashEmbedder(), llm=LangChainLLM(verdicts)) as core:
        core.add([Turn("user", "My sister Lena keeps bees.")], namespace="ana")
        llm = model("bees", "bees")
        its = agent(core, llm, memory={"filter": "llm"})
        shown = [piece.text for piece, _ in its.stream(ask("Lena?"), configured(), stream_mode="messages")]
        shown += [piece.text async for piece, _ in its.astream(ask("Lena?"), configured(), stream_mode="messages")]
        assert "keeps bees" in llm.system()
        assert "".join(shown) == "beesbees"
