"""A LangGraph graph with `MemGASStore` as its long-term store.

Runs offline with a scripted model. With a real one: MEMGAS_EXAMPLE_MODEL=openai:gpt-4o-mini python langgraph_store.py
"""

import os
import tempfile
from dataclasses import dataclass

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime

from langchain_memgas import MemGASStore
from memgas import MemGAS


@dataclass
class Context:
    """What the application hands to a run: who is talking."""

    user_id: str


def chat_model() -> BaseChatModel:
    """Return the model that the environment names, or one that says what it is told to."""
    name = os.environ.get("MEMGAS_EXAMPLE_MODEL")
    replies = ["Noted: window seats.", "Noted: no walnuts.", "A window seat, as always."]
    return init_chat_model(name) if name else FakeListChatModel(responses=replies)


MODEL = chat_model()


def answer(state: MessagesState, runtime: Runtime[Context]) -> dict[str, list[AnyMessage]]:
    """Look up what is known of the user, answer, and keep what they said."""
    store, path = runtime.store, ("preferences", runtime.context.user_id)
    assert store is not None
    said = state["messages"][-1].text
    found = store.search(path, query=said, limit=2)
    known = "\n".join(f"- {item.value['text']} (score {item.score:.2f})" for item in found if item.score)
    print(f"known to the model: {known or 'nothing'}")
    reply = MODEL.invoke([SystemMessage(f"What the user said before:\n{known}"), *state["messages"]])
    store.put(path, f"note-{len(store.search(path, limit=1_000))}", {"text": said})
    return {"messages": [reply]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, MemGAS(folder) as memory:
        builder = StateGraph(MessagesState, context_schema=Context)
        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        graph = builder.compile(store=MemGASStore(memory, namespace="travel-desk", fields=["text"]))
        for text in (
            "I always want a window seat on the train.",
            "I cannot eat walnuts.",
            "Which seat do I want on the train?",
        ):
            result = graph.invoke({"messages": [HumanMessage(text)]}, context=Context("ana"))
            print(f"ana: {text}\n  AI: {result['messages'][-1].text}")


if __name__ == "__main__":
    main()
