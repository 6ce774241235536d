"""`MemGASMemoryBlock`: long-term memory below LlamaIndex's `Memory`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import BaseMemoryBlock, Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.utils import get_tokenizer
from pydantic import ConfigDict, Field, PrivateAttr

from llama_index_memgas._convert import ASSISTANT, last_words, mark, marked_text, turns_of
from llama_index_memgas._ledger import Ledger
from llama_index_memgas._models import AnyEmbedder, Model, given_memory
from llama_index_memgas._recall import MIN_SCORE, RecallOptions, Scope, fail_open, recall, shown_among
from memgas import InvalidInputError, MemGAS, Turn
from memgas.checks import check_name

_N_KEPT = 1_000
NamespaceOf = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _Recalled:
    """What was recalled for one question: the words, and the how manieth of the user's they are."""

    query: str
    n_questions: int
    text: str


class MemGASMemoryBlock(BaseMemoryBlock[str]):
    """Long-term memory for LlamaIndex's `Memory`: `Memory.from_defaults(memory_blocks=[MemGASMemoryBlock(...)])`.

    `Memory` hands a block messages only when short-term memory overflows (after some 21,000 tokens). Call
    `await block.asave(memory)` after a turn, so that a short chat is remembered too; or use `MemGASMemory`, which does
    that by itself. In any order of the two, and through failures and restarts, a message is stored once.

    Parameters
    ----------
    memory
        An open memory. Or what builds one:
    path, embed_model, llm
        A folder, a `BaseEmbedding` (None: the offline default), an `LLM` for digests and the filter.
    namespace
        Whose memory it is; or, for a block that several users share, a function from the `session_id` of a chat to it.
    top_k, max_tokens, min_score, filter
        How much is recalled: sessions, tokens, the lowest score, and "llm" to let the memory's language model choose.
    strict
        Raise when a model or the store fails, instead of going on without memory. What could not be stored is kept for
        the next call either way.
    name, description, priority, accept_short_term_memory
        As of every block.

    Raises
    ------
    InvalidInputError
        A blank namespace, no memory.

    Notes
    -----
    The `session_id` of the chat names a conversation. What the model is shown of it anyway is not recalled.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    name: str = "memgas"
    memory: MemGAS = Field(exclude=True, repr=False)
    namespace: str | NamespaceOf = Field(exclude=True, repr=False)
    top_k: int = Field(default=5, ge=1)
    max_tokens: int = Field(default=1_000, ge=1)
    min_score: float = Field(default=MIN_SCORE, ge=0, le=1)
    filter: Literal["llm"] | None = None
    strict: bool = False

    _ledger: Ledger = PrivateAttr()
    _recalled: OrderedDict[Scope, _Recalled] = PrivateAttr(default_factory=OrderedDict)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)
    _own_conversation: str = PrivateAttr(default_factory=lambda: f"block-{uuid4().hex}")

    def __init__(
        self,
        memory: MemGAS | None = None,
        *,
        namespace: str | NamespaceOf,
        path: str | os.PathLike[str] | None = None,
        embed_model: AnyEmbedder | None = None,
        llm: Model | None = None,
        **options: object,
    ) -> None:
        if not callable(namespace):
            check_name(namespace, "namespace")
        opened = given_memory(memory, path, embed_model, llm)
        fields: dict[str, Any] = {**options, "memory": opened, "namespace": namespace}
        super().__init__(**fields)
        self._ledger = Ledger(opened)

    # reading

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: object) -> str:
        session_id = block_kwargs.get("session_id")
        known = session_id if isinstance(session_id, str) else None
        return await asyncio.to_thread(self._recall, list(messages or ()), known)

    def _recall(self, messages: Sequence[ChatMessage], session_id: str | None) -> str:
        scope = self.scope(session_id)
        query = last_words(messages)
        turns = turns_of(messages)
        n_questions = _n_questions(turns)
        with self._lock:
            held = self._recalled.get(scope)
        # An agent asks at each of its steps; the question stays the same.
        if held is not None and (held.query, held.n_questions) == (query, n_questions):
            return held.text
        options = RecallOptions(
            top_k=self.top_k, max_tokens=self.max_tokens, min_score=self.min_score, filter=self.filter
        )

        def search() -> str | None:
            shown = shown_among(self.memory, scope, turns)
            return recall(self.memory, query, scope.namespace, shown, options, tags=[self.name])

        text = fail_open("recall", search, None, strict=self.strict)
        if text is None:
            return ""
        with self._lock:
            self._recalled[scope] = _Recalled(query, n_questions, text)
            self._recalled.move_to_end(scope)
            if len(self._recalled) > _N_KEPT:
                self._recalled.popitem(last=False)
        return text

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Drop whole lines from the end, the least relevant ones; None when no memory would remain."""
        if not isinstance(content, str) or not content:
            return None
        lines = marked_text(content).split("\n")
        count = get_tokenizer()
        target = len(count(content)) - tokens_to_truncate
        while lines and len(count(mark("\n".join(lines)))) > target:
            lines.pop()
        return mark("\n".join(lines).rstrip()) if any(line.startswith(">") for line in lines) else None

    # writing

    async def _aput(self, messages: list[ChatMessage]) -> None:
        # The same message, put under two sessions, is re-labelled: the labels are read before anything is awaited.
        batches = [(self.scope(session_id), turns_of(some)) for session_id, some in _by_session(messages)]
        await asyncio.to_thread(self._flush, batches)

    def _flush(self, batches: Sequence[tuple[Scope, Sequence[Turn]]]) -> None:
        for scope, turns in batches:
            fail_open("saving", lambda one=scope, some=turns: self._ledger.flushed(one, some), 0, strict=self.strict)  # type: ignore[misc]

    async def asave(self, memory: Memory) -> int:
        """Remember what was said in a chat and is not stored yet; return how many turns were stored.

        Raises
        ------
        ModelError, StoreError
            Nothing is lost: the same call stores it later.
        """
        everything = turns_of(await memory.aget_all())
        active = turns_of(await memory.aget_all(status=MessageStatus.ACTIVE))
        scope = self.scope(memory.session_id)
        return await asyncio.to_thread(self._ledger.saved, scope, everything, active)

    async def asay(self, messages: Sequence[ChatMessage], *, session_id: str) -> int:
        """Remember what was just said; return how many turns were stored.

        For hosts that call it once a message. What failed before is stored first.
        """
        return await asyncio.to_thread(self._ledger.said, self.scope(session_id), turns_of(messages))

    async def aend(self, session_id: str) -> None:
        """End the sitting: what is said next in this chat begins a session of its own."""
        scope = self.scope(session_id)
        self._forget_recall(scope)
        await asyncio.to_thread(self._end, scope)

    def _end(self, scope: Scope) -> None:
        def close() -> None:
            for record in self.memory.list_sessions(namespace=scope.namespace, conversation_id=scope.conversation_id):
                if record.is_open:
                    self.memory.close_session(record.session_id, namespace=scope.namespace)

        fail_open("ending a session", close, None, strict=self.strict)

    async def aforget(self, session_id: str) -> None:
        """Delete what was remembered of one chat, and no other."""
        scope = self.scope(session_id)
        self._forget_recall(scope)
        self._ledger.forget(scope)
        await self.memory.adelete_conversation(scope.conversation_id or "", namespace=scope.namespace)

    def _forget_recall(self, scope: Scope) -> None:
        with self._lock:
            self._recalled.pop(scope, None)

    def scope(self, session_id: str | None) -> Scope:
        """Return whose memory a chat's is, and its conversation; a hand-made call without a chat has one of the block's own.

        Raises
        ------
        InvalidInputError
            The function for the namespace returned none, or needs a session id and there is none.
        """
        if callable(self.namespace):
            if session_id is None:
                raise InvalidInputError(
                    "whose memory is it? The namespace is a function of session_id: give session_id=..."
                )
            return Scope(check_name(self.namespace(session_id), "namespace"), session_id)
        return Scope(self.namespace, session_id or self._own_conversation)


def _n_questions(turns: Sequence[Turn]) -> int:
    """Count the user's turns; twice the same in a row counts once, since an agent's question comes twice at some steps."""
    asked = [turn.speaker != ASSISTANT for turn in turns]
    return sum(
        is_asked and not (at and asked[at - 1] and turns[at - 1].text == turns[at].text)
        for at, is_asked in enumerate(asked)
    )


def _by_session(messages: Sequence[ChatMessage]) -> list[tuple[str | None, list[ChatMessage]]]:
    """Return runs of messages that `Memory` labelled with the same session."""
    runs: list[tuple[str | None, list[ChatMessage]]] = []
    for message in messages:
        label = message.additional_kwargs.get("session_id")
        session_id = label if isinstance(label, str) else None
        if not runs or runs[-1][0] != session_id:
            runs.append((session_id, []))
        runs[-1][1].append(message)
    return runs
