"""An agent that remembers: `create_agent` with `MemGASMiddleware`, and the two memory tools.

Runs offline with a scripted model. With a real one: MEMGAS_EXAMPLE_MODEL=openai:gpt-4o-mini python langchain_agent.py
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_memgas import MemGASMiddleware, create_memgas_tools
from memgas import MemGAS


@dataclass
class Context:
    """What the application hands to a run: who is talking."""

    user_id: str


class Scripted(GenericFakeChatModel):
    """LangChain's own fake model, that takes tools."""

    def bind_tools(  # type: ignore[override]
        self,
        tools: Sequence[BaseTool],  # noqa: ARG002
        **kwargs: object,  # noqa: ARG002
    ) -> "Scripted":
        """Take the tools and say nothing."""
        return self


def chat_model() -> BaseChatModel:
    """Return the model that the environment names, or one that says what it is told to."""
    name = os.environ.get("MEMGAS_EXAMPLE_MODEL")
    if name:
        return init_chat_model(name)
    note = {"action": "remember", "content": "Ana is allergic to walnuts."}
    replies = [
        AIMessage("How lovely! Greyhounds love to sleep."),
        AIMessage("Your greyhound is called Juno."),
        AIMessage("", tool_calls=[{"name": "manage_memory", "args": note, "id": "call-1"}]),
        AIMessage("I will remember that you cannot eat walnuts."),
        AIMessage("I do not know of any greyhound of yours."),
    ]
    return Scripted(messages=iter(replies))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, MemGAS(folder) as memory:
        agent = create_agent(
            chat_model(),
            create_memgas_tools(memory),
            middleware=[MemGASMiddleware(memory)],
            context_schema=Context,
            checkpointer=InMemorySaver(),
        )

        def say(user: str, thread: str, text: str) -> None:
            config: RunnableConfig = {"configurable": {"thread_id": thread}}
            result = agent.invoke({"messages": [{"role": "user", "content": text}]}, config, context=Context(user))
            print(f"{user}: {text}\n  AI: {result['messages'][-1].text}")

        say("ana", "monday", "I adopted a greyhound, her name is Juno.")
        say("ana", "friday", "What is my greyhound called?")
        say("ana", "friday", "I am allergic to walnuts, remember that.")
        say("ben", "today", "What is my greyhound called?")

        print("\nWhat is remembered of ana:", [record.session_id for record in memory.list_sessions(namespace="ana")])
        print(memory.retrieve("Is Ana allergic to walnuts?", namespace="ana", top_k=2).context(200))
        print("\nOf ben:", [record.session_id for record in memory.list_sessions(namespace="ben")])


if __name__ == "__main__":
    main()
