# ruff: noqa: ANN401, D102
"""A scripted model for LlamaIndex's hosts, and a memory with a past. Run on llama-index-core 0.13 and 0.14."""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from llama_index.core.llms import ChatMessage, ChatResponse, CompletionResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from pydantic import PrivateAttr

from memgas import MemGAS, StoreError, Turn
from memgas.testing import HashEmbedder

Reply = str | tuple[str, dict[str, str]] | BaseException
JUNO = "I adopted a greyhound called Juno."


class Model(FunctionCallingLLM):
    """Answers with the next reply: text, a tool call, or an exception. Streams a word at a time."""

    is_chat: bool = True
    _replies: deque[Reply] = PrivateAttr()
    _seen: list[str] = PrivateAttr(default_factory=list)

    def __init__(self, *replies: Reply, **fields: bool) -> None:
        super().__init__(**fields)
        self._replies = deque(replies)

    @property
    def seen(self) -> list[str]:
        """What it was shown, a text a call."""
        return self._seen

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=self.is_chat, is_function_calling_model=True, model_name="scripted")

    def _next(self, seen: str) -> ChatMessage:
        self._seen.append(seen)
        reply = self._replies.popleft() if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, str):
            return ChatMessage(role="assistant", content=reply)
        call = {"id": f"call-{len(self._seen)}", "name": reply[0], "arguments": reply[1]}
        return ChatMessage(role="assistant", blocks=[], additional_kwargs={"tool_calls": [call]})

    def chat(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponse:
        return ChatResponse(message=self._next("\n".join(f"{one.role.value}: {one.content}" for one in messages)))

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponse:
        return self.chat(messages)

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: object) -> Generator[ChatResponse, None, None]:
        message = self.chat(messages).message
        return self._pieces(message)

    def _pieces(self, message: ChatMessage) -> Generator[ChatResponse, None, None]:
        words, said = (message.content or "").split(" "), ""
        for word in words:
            delta = f" {word}" if said else word
            said += delta
            partly = ChatMessage(role="assistant", content=said, additional_kwargs=message.additional_kwargs)
            yield ChatResponse(message=partly if message.content else message, delta=delta)

    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: object
    ) -> AsyncGenerator[ChatResponse, None]:
        pieces = self.stream_chat(messages)

        async def stream() -> AsyncGenerator[ChatResponse, None]:
            for piece in pieces:
                yield piece

        return stream()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: object) -> CompletionResponse:
        return CompletionResponse(text=self._next(prompt).content or "")

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: object) -> CompletionResponse:
        return self.complete(prompt)

    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: object
    ) -> Generator[CompletionResponse, None, None]:
        raise NotImplementedError

    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: object
    ) -> AsyncGenerator[CompletionResponse, None]:
        raise NotImplementedError

    def _prepare_chat_with_tools(  # type: ignore[override]  # the rest is among the keywords
        self, tools: object, user_msg: object = None, chat_history: list[ChatMessage] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        return {"messages": list(chat_history or [])}

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        calls = response.message.additional_kwargs.get("tool_calls", [])
        return [
            ToolSelection(tool_id=call["id"], tool_name=call["name"], tool_kwargs=call["arguments"]) for call in calls
        ]


def memory_with_past() -> MemGAS:
    """Return a memory in which the user adopted a dog, and somebody else a cat."""
    memory = MemGAS.in_memory(embedder=HashEmbedder())
    when = datetime(2023, 5, 8, tzinfo=UTC)
    memory.add(
        [Turn("user", JUNO), Turn("assistant", "Congratulations on Juno!")],
        namespace="ana", session_id="may", happened_at=when,
    )  # fmt: skip
    memory.add([Turn("user", "My greyhound is called Rex.")], namespace="ben", session_id="may", happened_at=when)
    return memory


def stored(memory: MemGAS, conversation_id: str, namespace: str = "ana") -> list[tuple[str, str]]:
    """Return speakers and texts of a conversation, in order."""
    return [
        (turn.speaker, turn.text)
        for record in memory.list_sessions(namespace=namespace, conversation_id=conversation_id)
        for turn in memory.get(record.session_id, namespace=namespace).turns
        if not turn.is_tombstone
    ]


@contextmanager
def failing(memory: MemGAS, name: str, *, is_done_first: bool = False) -> Iterator[None]:
    """Let a method of a memory fail, before or after its work is done."""
    real: Callable[..., object] = getattr(memory, name)

    def broken(*args: object, **kwargs: object) -> None:
        if is_done_first:
            real(*args, **kwargs)
        raise StoreError("out of reach")

    with patch.object(memory, name, broken):
        yield
