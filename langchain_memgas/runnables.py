"""Recall and save for LCEL chains."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from typing import Any, Literal

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import ensure_config, run_in_executor

from langchain_memgas._chat import MIN_SCORE, RecallOptions, fail_open, recall, save, shown_among, without_retry
from langchain_memgas._convert import ASSISTANT, USER, current_exchange, last_words, text_of, turns_of, unmarked
from langchain_memgas._scope import THREAD_KEY, USER_KEY, Scope, ScopeRule, sources_of
from memgas import InvalidInputError, MemGAS, Turn
from memgas.checks import is_blank


def create_recall_runnable(
    memory: MemGAS,
    *,
    namespace: str | None = None,
    namespace_key: str = USER_KEY,
    conversation_id: str | None = None,
    conversation_key: str = THREAD_KEY,
    input_key: str = "input",
    top_k: int = 5,
    max_tokens: int = 1_000,
    min_score: float = MIN_SCORE,
    filter: Literal["llm"] | None = None,
    strict: bool = False,
) -> Runnable[Any, str]:
    """Make a runnable that takes what a chain takes, and returns the text of what is remembered about it.

    `RunnablePassthrough.assign(memories=create_recall_runnable(memory)) | prompt | model`

    Parameters
    ----------
    memory
        An open memory.
    namespace, namespace_key
        Whose memory it is; or the key of `config["configurable"]` that says so.
    conversation_id, conversation_key
        Which conversation this is, likewise; messages of it among the inputs are not recalled again.
    input_key
        The user's words among the inputs. An input that is text, or a list of messages, is taken as it is.
    top_k, max_tokens, min_score, filter
        How much is recalled: sessions, tokens, the lowest score, and "llm" to let the memory's language model choose.
    strict
        Raise when a model or the store fails, instead of returning nothing.
    """
    rule = ScopeRule(
        namespace=namespace, conversation_id=conversation_id, namespace_key=namespace_key,
        conversation_key=conversation_key,
    )  # fmt: skip
    options = RecallOptions(top_k=top_k, max_tokens=max_tokens, min_score=min_score, filter=filter)

    def search(given: Any, config: RunnableConfig) -> str:  # noqa: ANN401 (a chain's input may be anything)
        scope = rule.scope(*sources_of(config))

        def run() -> str:
            shown = shown_among(memory, scope, turns_of(_messages_in(given)))
            return recall(memory, _said(given, input_key), scope.namespace, shown, options)

        return fail_open("recall", run, "", strict=strict)

    async def asearch(given: Any, config: RunnableConfig) -> str:  # noqa: ANN401
        return await run_in_executor(None, search, given, config)

    return RunnableLambda(search, asearch, name="memgas_recall")


class MemGASSave(Runnable[Any, Any]):
    """Store an exchange as it passes; what comes in goes out unchanged, a stream piece by piece.

    `RunnablePassthrough.assign(output=chain) | MemGASSave(memory) | itemgetter("output")`

    The user's words are stored when the first piece of the answer passes, the answer when the stream has ended: of a
    stream that nobody reads to its end, the user's words are kept.

    Parameters
    ----------
    memory
        An open memory.
    namespace, namespace_key, conversation_id, conversation_key
        Whose memory and which conversation; or the keys of `config["configurable"]` that say so.
    input_key, output_key
        What was said and answered, in a mapping. A list of messages is taken as it is: its last exchange is stored.
    strict
        Raise when a model or the store fails, instead of passing on what came.
    """

    def __init__(
        self,
        memory: MemGAS,
        *,
        namespace: str | None = None,
        namespace_key: str = USER_KEY,
        conversation_id: str | None = None,
        conversation_key: str = THREAD_KEY,
        input_key: str = "input",
        output_key: str = "output",
        strict: bool = False,
    ) -> None:
        self.name = "memgas_save"
        self._memory = memory
        self._rule = ScopeRule(
            namespace=namespace, conversation_id=conversation_id, namespace_key=namespace_key,
            conversation_key=conversation_key,
        )  # fmt: skip
        self._keys = (input_key, output_key)
        self._strict = strict

    def invoke(self, input: object, config: RunnableConfig | None = None, **kwargs: object) -> object:  # noqa: ARG002
        """Store an exchange and return what came."""
        return self._call_with_config(partial(self._pass, scope=self._scope(ensure_config(config))), input, config)

    async def ainvoke(self, input: object, config: RunnableConfig | None = None, **kwargs: object) -> object:  # noqa: ARG002
        """Store an exchange and return what came, without blocking the event loop."""
        return await self._acall_with_config(
            partial(self._apass, scope=self._scope(ensure_config(config))), input, config
        )

    def transform(
        self,
        input: Iterator[object],
        config: RunnableConfig | None = None,
        **kwargs: object,  # noqa: ARG002
    ) -> Iterator[object]:
        """Pass a stream on, and store the exchange."""
        scope = self._scope(ensure_config(config))
        total, n_saved = None, 0
        for piece in input:
            total = _grown(total, piece)
            if not n_saved and self._has_answer(total):
                n_saved = self._save(total, scope, 0, is_whole=False)
            yield piece
        self._save(total, scope, n_saved, is_whole=True)

    async def atransform(
        self,
        input: AsyncIterator[object],
        config: RunnableConfig | None = None,
        **kwargs: object,  # noqa: ARG002
    ) -> AsyncIterator[object]:
        """Pass a stream on, and store the exchange, without blocking the event loop."""
        scope = self._scope(ensure_config(config))
        total, n_saved = None, 0
        async for piece in input:
            total = _grown(total, piece)
            if not n_saved and self._has_answer(total):
                n_saved = await run_in_executor(None, self._save, total, scope, 0, is_whole=False)
            yield piece
        await run_in_executor(None, self._save, total, scope, n_saved, is_whole=True)

    def _pass(self, given: object, scope: Scope) -> object:
        self._save(given, scope, 0, is_whole=True)
        return given

    async def _apass(self, given: object, scope: Scope) -> object:
        return await run_in_executor(None, self._pass, given, scope)

    def _scope(self, config: RunnableConfig) -> Scope:
        scope = self._rule.scope(*sources_of(config))
        if scope.conversation_id is None:
            raise InvalidInputError(
                "which conversation is it? Give conversation_id=..., or "
                f'config={{"configurable": {{{self._rule.conversation_key!r}: ...}}}}'
            )
        return scope

    def _has_answer(self, total: object) -> bool:
        return isinstance(total, Mapping) and all(key in total for key in self._keys)

    def _save(self, given: object, scope: Scope, n_saved: int, *, is_whole: bool) -> int:
        """Store the turns from `n_saved` on, without the answer while it is not whole; return how many are stored."""
        turns = self._turns(given)
        if not is_whole:
            turns = [turn for turn in turns if turn.speaker != ASSISTANT]

        def store() -> int:
            fresh = turns[n_saved:]
            save(self._memory, fresh if n_saved else without_retry(self._memory, fresh, scope), scope)
            return len(turns)

        return fail_open("saving", store, n_saved, strict=self._strict)

    def _turns(self, given: object) -> list[Turn]:
        if given is None:
            return []
        if isinstance(given, list):
            return turns_of(current_exchange([message for message in given if isinstance(message, BaseMessage)]))
        if not isinstance(given, Mapping):
            raise InvalidInputError(f"MemGASSave takes a dict or a list of messages; got {type(given).__name__}")
        missing = [key for key in self._keys if key not in given]
        if missing:
            raise InvalidInputError(f"there is no {missing[0]!r}; there are {', '.join(map(str, given)) or 'none'}")
        pairs = zip((USER, ASSISTANT), (given[key] for key in self._keys), strict=True)
        turns = [Turn(speaker, unmarked(text_of(value, speaker=speaker)), id=_id(value)) for speaker, value in pairs]
        return [turn for turn in turns if not is_blank(turn.text)]


def _said(given: object, input_key: str) -> str:
    """Return the user's words."""
    if isinstance(given, Mapping):
        if input_key not in given:
            raise InvalidInputError(
                f"there is no input {input_key!r}; there are {', '.join(map(str, given)) or 'none'}"
            )
        given = given[input_key]
    if isinstance(given, list) and all(isinstance(message, BaseMessage) for message in given):
        return last_words(given)
    return unmarked(text_of(given, speaker=USER))


def _messages_in(given: object) -> list[BaseMessage]:
    """Return the messages that a chain is handed, wherever they stand among its inputs."""
    values = list(given.values()) if isinstance(given, Mapping) else [given]
    lists = [value for value in values if isinstance(value, list)]
    return [message for value in lists for message in value if isinstance(message, BaseMessage)]


def _id(value: object) -> str | None:
    return (value.id or None) if isinstance(value, BaseMessage) else None


def _grown(total: Any, piece: Any) -> Any:  # noqa: ANN401 (pieces of a stream may be anything that can be added)
    return piece if total is None else total + piece
