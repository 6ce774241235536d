"""`MemGASMemory`: for everything that takes `memory=`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, Self

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import BaseMemoryBlock, Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from pydantic import PrivateAttr

from llama_index_memgas._convert import content_text
from llama_index_memgas._models import AnyEmbedder, Model
from llama_index_memgas._recall import MIN_SCORE, afail_open, run
from llama_index_memgas.block import MemGASMemoryBlock, NamespaceOf
from memgas import InvalidInputError, MemGAS


class MemGASMemory(Memory):
    """Memory for chat engines, `FunctionAgent` and `AgentWorkflow`: short-term as `Memory`, and long-term.

    Made by `MemGASMemory.from_defaults(memory, namespace="user-1")`. Each message is remembered when it is put; what the
    user said is thus stored even if nobody reads the answer's stream to its end. `get` adds what matters of earlier
    conversations, and of what short-term memory has dropped.

    Notes
    -----
    `reset()` empties this chat and ends its sitting. What was remembered stays; `forget()` deletes that too, of this
    chat and no other. To be called with the same `session_id` again, the chat's own history needs a database that lasts:
    `async_database_uri="sqlite+aiosqlite:///chats.db"`.
    """

    _is_reconciled: bool = PrivateAttr(default=False)

    @classmethod
    def class_name(cls) -> str:
        """Name in dumps."""
        return "MemGASMemory"

    @classmethod
    def from_defaults(  # type: ignore[override]  # noqa: PLR0913  # as the base class itself does
        cls,
        memory: MemGAS | None = None,
        *,
        namespace: str | NamespaceOf,
        path: str | os.PathLike[str] | None = None,
        embed_model: AnyEmbedder | None = None,
        llm: Model | None = None,
        session_id: str | None = None,
        chat_history: list[ChatMessage] | None = None,
        memory_blocks: Sequence[BaseMemoryBlock[Any]] = (),
        top_k: int = 5,
        max_tokens: int = 1_000,
        min_score: float = MIN_SCORE,
        filter: Literal["llm"] | None = None,
        strict: bool = False,
        **options: Any,  # noqa: ANN401  # the base class checks them
    ) -> Self:
        """Make a memory.

        Parameters
        ----------
        memory
            An open memory. Or what builds one:
        path, embed_model, llm
            A folder, a `BaseEmbedding` (None: the offline default), an `LLM` for digests and the filter.
        namespace
            Whose memory it is; or a function from the `session_id` to it.
        session_id
            Which conversation. None: a new one.
        chat_history
            What was said so far.
        memory_blocks
            Others, beside ours.
        top_k, max_tokens, min_score, filter
            How much is recalled: sessions, tokens, the lowest score, and "llm" to let the memory's language model choose.
        strict
            Raise when a model or the store fails, instead of going on without long-term memory.
        **options
            Whatever `Memory.from_defaults` takes: `token_limit`, `async_database_uri`, `insert_method`, ...

        Raises
        ------
        InvalidInputError
            A blank namespace, no memory.
        """
        # Priority 1: cut to fit where history and memories together are too long. 0 would never be cut.
        block = MemGASMemoryBlock(
            memory, namespace=namespace, path=path, embed_model=embed_model, llm=llm, top_k=top_k, max_tokens=max_tokens,
            min_score=min_score, filter=filter, strict=strict, priority=1, accept_short_term_memory=False,
        )  # fmt: skip
        made = super().from_defaults(session_id=session_id, memory_blocks=[block, *memory_blocks], **options)
        if not isinstance(made, cls):
            raise TypeError(f"Memory.from_defaults made a {type(made).__name__}")
        block.scope(made.session_id)
        if chat_history is not None:
            made.set(chat_history)
        return made

    @property
    def block(self) -> MemGASMemoryBlock:
        """The block that remembers."""
        for block in self.memory_blocks:
            if isinstance(block, MemGASMemoryBlock):
                return block
        raise InvalidInputError("this memory has no MemGASMemoryBlock; make it by MemGASMemory.from_defaults(...)")

    async def aput(self, message: ChatMessage) -> None:
        """Add a message, and remember it."""
        await self._reconcile()
        await super().aput(message)
        await self._remember([message])

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Add messages, and remember them."""
        if messages:  # an empty list would be an error in the chat store
            await self._reconcile()
            await super().aput_messages(messages)
            await self._remember(messages)

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Replace the chat's history, and remember what is new in it."""
        await super().aset(messages)
        self._is_reconciled = False
        await self._reconcile()

    async def aget(self, input: str | ChatMessage | None = None, **block_kwargs: object) -> list[ChatMessage]:
        """Return the chat's history and what matters of the past."""
        text = content_text(input) if isinstance(input, ChatMessage) else input  # of a message, blocks see nothing
        return await super().aget(input=text or None, **block_kwargs)

    async def areset(self, status: MessageStatus | None = None) -> None:
        """Empty the chat and end its sitting; what was remembered stays."""
        await self._reconcile()
        await super().areset(status)
        if status is None:
            await self.block.aend(self.session_id)

    async def asave(self) -> int:
        """Remember now what failed before; return how many turns were stored.

        Raises
        ------
        ModelError, StoreError
            Nothing is lost: the same call stores it later.
        """
        n_stored = await self.block.asave(self)
        self._is_reconciled = True
        return n_stored

    async def aforget(self) -> None:
        """Empty the chat, and delete what was remembered of it; of no other."""
        await super().areset()
        await self.block.aforget(self.session_id)

    # The base class's own twins answer every RuntimeError, ours too, with advice on nested loops.

    def get(self, input: str | ChatMessage | None = None, **block_kwargs: object) -> list[ChatMessage]:
        """Return the chat's history and what matters of the past."""
        return run(self.aget(input, **block_kwargs))

    def put(self, message: ChatMessage) -> None:
        """Add a message, and remember it."""
        run(self.aput(message))

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Add messages, and remember them."""
        run(self.aput_messages(messages))

    def set(self, messages: list[ChatMessage]) -> None:
        """Replace the chat's history, and remember what is new in it."""
        run(self.aset(messages))

    def reset(self) -> None:
        """Empty the chat and end its sitting; what was remembered stays."""
        run(self.areset())

    def save(self) -> int:
        """Do what `asave` does."""
        return run(self.asave())

    def forget(self) -> None:
        """Do what `aforget` does."""
        run(self.aforget())

    async def _reconcile(self) -> None:
        """Once, remember what stands in the chat's history and is not stored: a process may have ended in between."""
        if not self._is_reconciled:
            await afail_open("saving", self.asave(), None, strict=self.block.strict)

    async def _remember(self, messages: Sequence[ChatMessage]) -> None:
        saying = self.block.asay(messages, session_id=self.session_id)
        await afail_open("saving", saying, None, strict=self.block.strict)

    def _estimate_token_count(self, message_or_blocks: Any) -> int:  # noqa: ANN401  # a message, blocks, or text
        """Count tokens; of tool calls too, which the base class takes for none."""
        counted: int = super()._estimate_token_count(message_or_blocks)
        messages = message_or_blocks if isinstance(message_or_blocks, list) else [message_or_blocks]
        calls = [
            f"{getattr(block, 'tool_name', '')} {getattr(block, 'tool_kwargs', '')}"
            for message in messages
            if isinstance(message, ChatMessage)
            for block in message.blocks
            if getattr(block, "block_type", None) == "tool_call"
        ]
        called: int = sum(len(self.tokenizer_fn(call)) for call in calls)
        return counted + called
