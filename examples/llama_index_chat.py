"""A chat engine that remembers earlier chats: `memory=MemGASMemory`, and the block for a `Memory` of your own.

Runs offline with a scripted model. With a real one, of an OpenAI-compatible server:
pip install llama-index-llms-openai-like, then MEMGAS_EXAMPLE_MODEL=gpt-4o-mini python llama_index_chat.py
"""

import asyncio
import os
import tempfile
from typing import Any

from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import LLM, CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.memory import Memory

from llama_index_memgas import MemGASMemory, MemGASMemoryBlock
from memgas import MemGAS


class Scripted(CustomLLM):
    """Says what it is told to say, and shows what it was told."""

    reply: str

    @property
    def metadata(self) -> LLMMetadata:
        """What it is."""
        return LLMMetadata(model_name="scripted")

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:  # noqa: ARG002, ANN401
        """Say it."""
        print(f"--- the model is told:\n{prompt}\n---")
        return CompletionResponse(text=self.reply)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:  # noqa: ANN401
        """Say it word by word."""
        text = ""
        for word in self.complete(prompt, formatted, **kwargs).text.split():
            text += f" {word}"
            yield CompletionResponse(text=text, delta=f" {word}")


def chat_model(reply: str) -> LLM:
    """Return the model that the environment names, or one that says what it is told to."""
    name = os.environ.get("MEMGAS_EXAMPLE_MODEL")
    if not name:
        return Scripted(reply=reply)
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(model=name, api_base=os.environ.get("OPENAI_BASE_URL"), is_chat_model=True)


def with_memory(memory: MemGAS) -> None:
    """Two chats of one user: the second knows the first. Each message is remembered as it is said."""
    monday = SimpleChatEngine.from_defaults(
        llm=chat_model("Congratulations! Greyhounds love to sleep."),
        memory=MemGASMemory.from_defaults(memory, namespace="ana", session_id="monday"),
    )
    print("AI:", monday.chat("I adopted a greyhound, her name is Juno."))

    friday = SimpleChatEngine.from_defaults(
        llm=chat_model("Your greyhound is called Juno."),
        memory=MemGASMemory.from_defaults(memory, namespace="ana", session_id="friday"),
    )
    print("AI: ", end="")
    for piece in friday.stream_chat("What is my greyhound called?").response_gen:
        print(piece, end="", flush=True)
    print()


async def with_block(memory: MemGAS) -> None:
    """Put the block under a `Memory` of your own. Short-term memory does not overflow here, so the chat is saved by hand."""
    block = MemGASMemoryBlock(memory, namespace="ana")
    chat = Memory.from_defaults(session_id="saturday", memory_blocks=[block])
    engine = SimpleChatEngine.from_defaults(llm=chat_model("Then Juno will love it."), memory=chat)
    print("AI:", await engine.achat("We take my greyhound Juno to the sea."))
    print("messages remembered:", await block.asave(chat))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, MemGAS(folder) as memory:
        with_memory(memory)
        asyncio.run(with_block(memory))


if __name__ == "__main__":
    main()
