"""An agent that remembers: `FunctionAgent` with `memory=MemGASMemory`, and the two memory tools.

Runs offline with a scripted model. With a real one, of an OpenAI-compatible server:
pip install llama-index-llms-openai-like, then MEMGAS_EXAMPLE_MODEL=gpt-4o-mini python llama_index_agent.py
"""

import asyncio
import os
import tempfile
from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import LLMMetadata
from llama_index.core.llms import ChatMessage, ChatResponse
from llama_index.core.llms import MockLLM as Mock
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection

from llama_index_memgas import MemGASMemory, create_memgas_tools
from memgas import MemGAS

REPLIES: list[str | dict[str, str]] = [
    "How lovely! Greyhounds love to sleep.",
    "Your greyhound is called Juno.",
    {"action": "remember", "content": "Ana is allergic to walnuts."},
    "I will remember that you cannot eat walnuts.",
    "I do not know of any greyhound of yours.",
]


class Scripted(Mock, FunctionCallingLLM):
    """LlamaIndex's mock model, that says what it is told to say and calls tools."""

    @property
    def metadata(self) -> LLMMetadata:
        """What it is."""
        return LLMMetadata(model_name="scripted", is_chat_model=True, is_function_calling_model=True)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:  # noqa: ARG002, ANN401
        """Say it, or call the tool."""
        reply = REPLIES.pop(0)
        if isinstance(reply, str):
            return ChatResponse(message=ChatMessage(role="assistant", content=reply))
        return ChatResponse(message=ChatMessage(role="assistant", additional_kwargs={"note": reply}))

    def _prepare_chat_with_tools(self, tools: Any, chat_history: Any = None, **kwargs: Any) -> dict[str, Any]:  # noqa: ARG002, ANN401
        return {"messages": chat_history}

    def get_tool_calls_from_response(self, response: ChatResponse, **kwargs: Any) -> list[ToolSelection]:  # noqa: ARG002, ANN401
        """Return the call that a reply is."""
        note = response.message.additional_kwargs.get("note")
        return [ToolSelection(tool_id="1", tool_name="manage_memory", tool_kwargs=note)] if note else []


def chat_model() -> FunctionCallingLLM:
    """Return the model that the environment names, or one that says what it is told to."""
    name = os.environ.get("MEMGAS_EXAMPLE_MODEL")
    if not name:
        return Scripted()
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(
        model=name, api_base=os.environ.get("OPENAI_BASE_URL"), is_chat_model=True, is_function_calling_model=True
    )


async def talk(memory: MemGAS, user: str, day: str, text: str) -> None:
    """Say one thing to an agent of one user, in a chat of its own."""
    agent = FunctionAgent(
        llm=chat_model(), tools=list(create_memgas_tools(memory, namespace=user)), streaming=False,
        system_prompt="You are a friendly assistant. Remember what the user asks you to.",
    )  # fmt: skip
    chat = MemGASMemory.from_defaults(memory, namespace=user, session_id=day)
    print(f"\n{user}: {text}")
    told = (await chat.aget(input=text))[:1]
    print("\n".join(line for message in told for line in (message.content or "").splitlines() if line.startswith(">")))
    print("AI:", await agent.run(user_msg=text, memory=chat))


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, MemGAS(folder) as memory:
        await talk(memory, "ana", "monday", "I adopted a greyhound, her name is Juno.")
        await talk(memory, "ana", "friday", "What is my greyhound called?")
        await talk(memory, "ana", "sunday", "Remember that I am allergic to walnuts.")
        await talk(memory, "ben", "today", "What is my greyhound called?")
        print(
            "\nKept for ana:",
            memory.retrieve("Which nuts is Ana allergic to?", namespace="ana").hits[0].evidence[0].turn.text,
        )


if __name__ == "__main__":
    asyncio.run(main())
