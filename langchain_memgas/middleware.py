"""`MemGASMiddleware`: memory for `create_agent`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, NotRequired

from langchain_core.messages import AnyMessage, BaseMessage, SystemMessage

from langchain_memgas._chat import MIN_SCORE, RecallOptions, fail_open, recall, save, shown_among, without_retry
from langchain_memgas._convert import current_exchange, last_words, turns_of
from langchain_memgas._scope import THREAD_KEY, USER_KEY, Scope, ScopeRule, sources_of
from memgas import MemGAS
from memgas.extras import require_extra

require_extra("langchain.agents", extra="langchain", purpose="MemGASMiddleware")

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse  # noqa: E402
from langchain.agents.middleware.types import PrivateStateAttr  # noqa: E402
from langgraph.channels.untracked_value import UntrackedValue  # noqa: E402
from langgraph.config import get_config  # noqa: E402
from langgraph.runtime import Runtime  # noqa: E402


class MemGASState(AgentState[Any]):
    """What the middleware keeps beside the messages, by its name.

    Attributes
    ----------
    memgas_context
        What was recalled in this run; never in a checkpoint.
    memgas_saved_ids
        Messages that are stored, or are not to be; in the checkpoint.
    """

    memgas_context: NotRequired[Annotated[dict[str, str], UntrackedValue, PrivateStateAttr]]
    memgas_saved_ids: NotRequired[Annotated[dict[str, list[str]], PrivateStateAttr]]


class MemGASMiddleware(AgentMiddleware[MemGASState, Any, Any]):
    """Remember what is said to an agent and by it, and tell it what matters of earlier conversations.

    Before the agent: the user's words are stored, then memories recalled. At each model call they are added to the
    system message, never to the messages. After the agent: its answer is stored. A message is stored once, by its id.

    Parameters
    ----------
    memory
        An open memory.
    namespace, namespace_key
        Whose memory it is; or the key that says so, in the runtime context or in `config["configurable"]`.
    conversation_id, conversation_key
        Which conversation; or the key that says so. A run without one is a conversation of its own.
    top_k, max_tokens, min_score, filter
        How much is recalled: sessions, tokens, the lowest score, and "llm" to let the memory's language model choose.
    name
        Tells two memories of one agent apart.
    strict
        Raise when a model or the store fails, instead of going on without memory.
    """

    state_schema = MemGASState

    def __init__(
        self,
        memory: MemGAS,
        *,
        namespace: str | None = None,
        namespace_key: str = USER_KEY,
        conversation_id: str | None = None,
        conversation_key: str = THREAD_KEY,
        top_k: int = 5,
        max_tokens: int = 1_000,
        min_score: float = MIN_SCORE,
        filter: Literal["llm"] | None = None,
        name: str = "MemGASMiddleware",
        strict: bool = False,
    ) -> None:
        super().__init__()
        self.memory = memory
        self.tools = []
        self._rule = ScopeRule(
            namespace=namespace, conversation_id=conversation_id, namespace_key=namespace_key,
            conversation_key=conversation_key,
        )  # fmt: skip
        self._options = RecallOptions(top_k=top_k, max_tokens=max_tokens, min_score=min_score, filter=filter)
        self._name = name
        self._strict = strict

    @property
    def name(self) -> str:
        """Name among an agent's middleware."""
        return self._name

    def before_agent(self, state: MemGASState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Store the user's words, then recall."""
        scope = self._scope(state, runtime)
        saved = self._save(state, scope)
        context = self._recall(state["messages"], scope)
        return {
            "memgas_context": {**state.get("memgas_context", {}), self._name: context},
            "memgas_saved_ids": {**state.get("memgas_saved_ids", {}), self._name: saved},
        }

    async def abefore_agent(self, state: MemGASState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Store the user's words, then recall, without blocking the event loop."""
        return await asyncio.to_thread(self.before_agent, state, runtime)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Add what was recalled to the system message."""
        return handler(_informed(request, self._context(request)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Add what was recalled to the system message."""
        context = await asyncio.to_thread(self._context, request)
        return await handler(_informed(request, context))

    def after_agent(self, state: MemGASState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Store the answer."""
        saved = self._save(state, self._scope(state, runtime))
        return {"memgas_saved_ids": {**state.get("memgas_saved_ids", {}), self._name: saved}}

    async def aafter_agent(self, state: MemGASState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Store the answer, without blocking the event loop."""
        return await asyncio.to_thread(self.after_agent, state, runtime)

    def _scope(self, state: AgentState[Any], runtime: Runtime[Any]) -> Scope:
        scope = self._rule.scope(runtime.context, *sources_of(get_config()))
        if scope.conversation_id is not None:
            return scope
        asked = current_exchange(state["messages"]) or state["messages"]
        return Scope(scope.namespace, f"run-{asked[0].id}" if asked else "run", is_thread=False)

    def _save(self, state: MemGASState, scope: Scope) -> list[str]:
        """Store what is not stored yet; return the ids of the messages that are done with."""
        messages = state["messages"]
        done = state.get("memgas_saved_ids", {}).get(self._name)
        if done is None:
            fresh = fail_open("saving", lambda: self._first_seen(messages, scope), None, strict=self._strict)
        else:
            known = set(done)
            fresh = [message for message in messages if message.id not in known]
        if fresh is None or not self._store(fresh, scope, is_first=done is None):
            open_ids = {message.id for message in messages if fresh is None or message in fresh}
            return [message.id for message in messages if message.id and message.id not in open_ids]
        return [message.id for message in messages if message.id]

    def _first_seen(self, messages: Sequence[AnyMessage], scope: Scope) -> list[BaseMessage]:
        """Return what to store where nothing is known of the thread.

        All of it, if the conversation is new. Otherwise the host keeps no state: it hands in the history with every run,
        under new ids, and only the last words are new.
        """
        is_new = not self.memory.list_sessions(namespace=scope.namespace, conversation_id=scope.conversation_id)
        return list(messages) if is_new and scope.is_thread else current_exchange(messages)

    def _store(self, messages: Sequence[BaseMessage], scope: Scope, *, is_first: bool) -> bool:
        turns = turns_of(messages)

        def store() -> bool:
            save(self.memory, without_retry(self.memory, turns, scope) if is_first else turns, scope)
            return True

        return fail_open("saving", store, False, strict=self._strict)

    def _recall(self, messages: Sequence[AnyMessage], scope: Scope) -> str:
        def search() -> str:
            shown = shown_among(self.memory, scope, turns_of(messages))
            return recall(self.memory, last_words(messages), scope.namespace, shown, self._options)

        return fail_open("recall", search, "", strict=self._strict)

    def _context(self, request: ModelRequest[Any]) -> str:
        """Return what was recalled for this run; recalled again when the run was resumed from a checkpoint."""
        held: dict[str, str] = request.state.get("memgas_context", {})  # type: ignore[assignment]  # AgentState, whatever the schema
        if self._name in held:
            return held[self._name]
        return self._recall(request.messages, self._scope(request.state, request.runtime))


def _informed(request: ModelRequest[Any], context: str) -> ModelRequest[Any]:
    if not context:
        return request
    old = request.system_message
    if old is None:
        return request.override(system_message=SystemMessage(context))
    content: list[Any] = [*old.content_blocks, {"type": "text", "text": f"\n\n{context}"}]
    return request.override(system_message=old.model_copy(update={"content": content}))
