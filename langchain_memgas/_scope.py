"""Whose memory, and which conversation: from one place, for reading and for writing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from langchain_core.runnables import RunnableConfig

from memgas import InvalidInputError
from memgas.checks import check_name

USER_KEY, THREAD_KEY = "user_id", "thread_id"


@dataclass(frozen=True, slots=True)
class Scope:
    """A user, and the conversation if there is one.

    Attributes
    ----------
    is_thread
        The conversation was named, and may go on; else it is this run's alone.
    """

    namespace: str
    conversation_id: str | None = None
    is_thread: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeRule:
    """How a run's scope is found: fixed, or under a key of the run's context, configuration or inputs.

    Attributes
    ----------
    namespace, conversation_id
        Fixed ones win.
    namespace_key, conversation_key
        Where to look otherwise.
    """

    namespace: str | None = None
    conversation_id: str | None = None
    namespace_key: str | None = USER_KEY
    conversation_key: str | None = THREAD_KEY

    def scope(self, *sources: object) -> Scope:
        """Return the scope of a run; the first source that has a key decides.

        Raises
        ------
        InvalidInputError
            There is no namespace, or one of the names is blank: a user must never fall into somebody else's memory.
        """
        return Scope(self.namespace_in(*sources), self.conversation_in(*sources))

    def namespace_in(self, *sources: object) -> str:
        """Return the namespace of a run."""
        found = self.namespace if self.namespace is not None else _lookup(self.namespace_key, sources)
        if found is None:
            raise InvalidInputError(
                f"whose memory is it? Give namespace=..., or {self.namespace_key!r} with the run: in the context, or "
                f'as config={{"configurable": {{{self.namespace_key!r}: ...}}}}'
            )
        return _name(found, "namespace")

    def conversation_in(self, *sources: object) -> str | None:
        """Return the conversation of a run; None when it has none."""
        found = self.conversation_id if self.conversation_id is not None else _lookup(self.conversation_key, sources)
        return None if found is None else _name(found, "conversation_id")


def sources_of(config: RunnableConfig | None) -> tuple[object, ...]:
    """Return where a run's names may stand: the runtime context of a graph, then the configuration."""
    configurable = (config or {}).get("configurable", {})
    # LangGraph hands its runtime to whatever it runs in here; `get_runtime()` would raise outside of a graph.
    return getattr(configurable.get("__pregel_runtime"), "context", None), configurable


def _lookup(key: str | None, sources: tuple[object, ...]) -> object:
    """Return the first value under a key, of mappings and of objects with attributes."""
    if key is None:
        return None
    for source in sources:
        found: object = source.get(key) if isinstance(source, Mapping) else getattr(source, key, None)
        if found is not None:
            return found
    return None


def _name(value: object, what: str) -> str:
    if isinstance(value, (int, UUID)) and not isinstance(value, bool):
        value = str(value)
    return check_name(value, what)
