"""Recall and save as nodes of a hand-built graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.messages import BaseMessage
from langchain_core.messages.utils import convert_to_messages
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import run_in_executor

from langchain_memgas._chat import MIN_SCORE, RecallOptions, fail_open, recall, save, shown_among, without_retry
from langchain_memgas._convert import current_exchange, last_words, turns_of
from langchain_memgas._scope import THREAD_KEY, USER_KEY, ScopeRule, sources_of
from memgas import InvalidInputError, MemGAS


def create_recall_node(
    memory: MemGAS,
    *,
    namespace: str | None = None,
    namespace_key: str = USER_KEY,
    conversation_id: str | None = None,
    conversation_key: str = THREAD_KEY,
    messages_key: str = "messages",
    context_key: str = "memories",
    top_k: int = 5,
    max_tokens: int = 1_000,
    min_score: float = MIN_SCORE,
    filter: Literal["llm"] | None = None,
    strict: bool = False,
) -> Runnable[Any, dict[str, str]]:
    """Make a node that writes what is remembered about the user's last message into the state, as text.

    Parameters
    ----------
    memory
        An open memory.
    namespace, namespace_key, conversation_id, conversation_key
        Whose memory and which conversation; or the keys of the runtime context or `config["configurable"]` that say so.
    messages_key
        Where the messages are, in the state.
    context_key
        Where the text goes. Put it into the system message; it never belongs among the messages.
    top_k, max_tokens, min_score, filter
        How much is recalled: sessions, tokens, the lowest score, and "llm" to let the memory's language model choose.
    strict
        Raise when a model or the store fails, instead of writing an empty text.
    """
    rule = ScopeRule(
        namespace=namespace, conversation_id=conversation_id, namespace_key=namespace_key,
        conversation_key=conversation_key,
    )  # fmt: skip
    options = RecallOptions(top_k=top_k, max_tokens=max_tokens, min_score=min_score, filter=filter)

    def node(state: Any, config: RunnableConfig) -> dict[str, str]:  # noqa: ANN401 (any state schema)
        scope = rule.scope(*sources_of(config))
        messages = _messages(state, messages_key)

        def search() -> str:
            shown = shown_among(memory, scope, turns_of(messages))
            return recall(memory, last_words(messages), scope.namespace, shown, options)

        return {context_key: fail_open("recall", search, "", strict=strict)}

    async def anode(state: Any, config: RunnableConfig) -> dict[str, str]:  # noqa: ANN401
        return await run_in_executor(None, node, state, config)

    return RunnableLambda(node, anode, name="memgas_recall")


def create_save_node(
    memory: MemGAS,
    *,
    namespace: str | None = None,
    namespace_key: str = USER_KEY,
    conversation_id: str | None = None,
    conversation_key: str = THREAD_KEY,
    messages_key: str = "messages",
    strict: bool = False,
) -> Runnable[Any, dict[str, Any]]:
    """Make a node that stores the user's last words and whatever was answered; a message is stored once, by its id.

    The same node may stand first, so that the user's words are kept whatever happens, and last.

    Parameters
    ----------
    memory
        An open memory.
    namespace, namespace_key, conversation_id, conversation_key
        Whose memory and which conversation; or the keys of the runtime context or `config["configurable"]` that say so.
    messages_key
        Where the messages are, in the state.
    strict
        Raise when a model or the store fails, instead of going on.
    """
    rule = ScopeRule(
        namespace=namespace, conversation_id=conversation_id, namespace_key=namespace_key,
        conversation_key=conversation_key,
    )  # fmt: skip

    def node(state: Any, config: RunnableConfig) -> dict[str, Any]:  # noqa: ANN401 (any state schema)
        scope = rule.scope(*sources_of(config))
        if scope.conversation_id is None:
            raise InvalidInputError(
                f"which conversation is it? Give conversation_id=..., or {conversation_key!r} with the run"
            )
        turns = turns_of(current_exchange(_messages(state, messages_key)))

        def store() -> None:
            # Messages without an id cannot be told from a retry otherwise.
            fresh = turns if all(turn.id for turn in turns) else without_retry(memory, turns, scope)
            save(memory, fresh, scope)

        fail_open("saving", store, None, strict=strict)
        return {}

    async def anode(state: Any, config: RunnableConfig) -> dict[str, Any]:  # noqa: ANN401
        return await run_in_executor(None, node, state, config)

    return RunnableLambda(node, anode, name="memgas_save")


def _messages(state: object, key: str) -> list[BaseMessage]:
    held: Any = state.get(key) if isinstance(state, Mapping) else getattr(state, key, state)
    if held is None:
        raise InvalidInputError(f"the state has no {key!r}; give messages_key=...")
    return convert_to_messages(held)
