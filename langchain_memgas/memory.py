"""`MemGASMemory`: for every chain that takes `memory=`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from pydantic import ConfigDict, Field, model_validator

from langchain_memgas._chat import MIN_SCORE, RecallOptions, Shown, fail_open, recall, recent, save
from langchain_memgas._convert import ASSISTANT, USER, text_of, unmarked
from langchain_memgas._models import AnyEmbedder, Model, with_memory
from langchain_memgas._scope import Scope, ScopeRule
from memgas import InvalidInputError, MemGAS, MissingExtraError, Turn
from memgas.checks import is_blank

if TYPE_CHECKING:
    from langchain_classic.base_memory import BaseMemory
else:
    try:
        from langchain_classic.base_memory import BaseMemory
    except ImportError:
        try:
            from langchain_core.memory import BaseMemory
        except ImportError:
            raise MissingExtraError(
                'MemGASMemory needs langchain-classic (or LangChain 0.3): pip install "memgas[langchain]"',
                name="langchain_classic",
            ) from None

_INPUTS = ("input", "question", "query", "human_input")
_OUTPUTS = ("output", "answer", "response", "result", "text")


class MemGASMemory(BaseMemory):
    """Long-term memory for a chain: the recent turns of this conversation, and what matters of all earlier ones.

    Parameters
    ----------
    memory
        An open memory. Or what builds one:
    path, embeddings, llm
        A folder, LangChain's `Embeddings` (None: the offline default), a chat model for digests and the filter.
    namespace, namespace_key
        Whose memory it is; or the key among the chain's inputs that says so.
    conversation_id, conversation_key
        Which conversation; or the key that says so. Neither: a new one for this object.
    memory_key
        The prompt's variable.
    input_key, output_key
        What the user said, what was answered. None: the only key there is, or the customary one of several.
    return_messages
        Messages instead of text.
    human_prefix, ai_prefix
        Begin the lines of the text.
    n_recent_turns
        Turns of this conversation that are always there.
    top_k, max_tokens, min_score, filter
        How much is recalled: sessions, tokens, the lowest score, and "llm" to let the memory's language model choose.
    read_only
        Store nothing.
    strict
        Raise when a model or the store fails, instead of going on without memory.

    Notes
    -----
    A chain calls its memory once it has answered: when the model fails, or nobody reads a stream to its end, nothing of
    that exchange is stored, the user's words included. `MemGASMiddleware` stores them first.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: MemGAS = Field(default=..., exclude=True, repr=False)
    path: str | os.PathLike[str] | None = Field(default=None, exclude=True, repr=False)
    embeddings: AnyEmbedder | None = Field(default=None, exclude=True, repr=False)
    llm: Model | None = Field(default=None, exclude=True, repr=False)
    namespace: str | None = None
    namespace_key: str | None = None
    conversation_id: str | None = None
    conversation_key: str | None = None
    memory_key: str = "history"
    input_key: str | None = None
    output_key: str | None = None
    return_messages: bool = False
    human_prefix: str = "Human"
    ai_prefix: str = "AI"
    n_recent_turns: int = Field(default=12, ge=0)
    top_k: int = Field(default=5, ge=1)
    max_tokens: int = Field(default=1_000, ge=1)
    min_score: float = Field(default=MIN_SCORE, ge=0, le=1)
    filter: Literal["llm"] | None = None
    read_only: bool = False
    strict: bool = False

    @model_validator(mode="before")
    @classmethod
    def _open(cls, values: object) -> object:
        """Open a memory, and begin a conversation if none was named."""
        values = with_memory(values)
        if not isinstance(values, dict):
            return values
        if (values.get("namespace") is None) == (values.get("namespace_key") is None):
            raise InvalidInputError("whose memory is it? Give namespace=..., or namespace_key=... among the inputs")
        given = [values.get(name) for name in ("conversation_id", "conversation_key")]
        if None not in given:
            raise InvalidInputError("give conversation_id or conversation_key, not both")
        if given == [None, None]:
            values = {**values, "conversation_id": uuid4().hex}
        return values

    @property
    def memory_variables(self) -> list[str]:
        """The prompt's variable."""
        return [self.memory_key]

    def load_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return recent turns and recalled memories. Without anything said, the recent turns alone.

        Raises
        ------
        InvalidInputError
            The namespace or conversation is missing or blank, or it cannot be told which input is the user's.
        """
        scope = self._scope(inputs)
        query = self._said(inputs) if self._candidates(inputs) else ""
        shown = fail_open(
            "loading recent turns", lambda: recent(self.memory, scope, self.n_recent_turns), Shown(), strict=self.strict
        )
        options = RecallOptions(
            top_k=self.top_k, max_tokens=self.max_tokens, min_score=self.min_score, filter=self.filter
        )
        recalled = fail_open(
            "recall", lambda: recall(self.memory, query, scope.namespace, shown, options), "", strict=self.strict
        )
        return {
            self.memory_key: self._messages(recalled, shown) if self.return_messages else self._text(recalled, shown)
        }

    def save_context(self, inputs: dict[str, Any], outputs: dict[str, str]) -> None:
        """Store the user's words and the answer.

        Raises
        ------
        InvalidInputError
            As for `load_memory_variables`, or it cannot be told which output is the answer.
        """
        if self.read_only:
            return
        scope = self._scope(inputs)
        said = self._candidate(inputs, self.input_key, _INPUTS, "input", self._candidates(inputs))
        answered = self._candidate(outputs, self.output_key, _OUTPUTS, "output", list(outputs))
        turns = [_turn(USER, said), _turn(ASSISTANT, answered)]
        kept = [turn for turn in turns if not is_blank(turn.text)]
        fail_open("saving", lambda: save(self.memory, kept, scope), None, strict=self.strict)

    def clear(self) -> None:
        """Forget this conversation, and no other.

        Raises
        ------
        InvalidInputError
            Namespace or conversation come with the inputs, so it cannot be told which one is meant.
        """
        if self.namespace is None or self.conversation_id is None:
            raise InvalidInputError(
                "clear() cannot tell which conversation is meant when keys are used; call "
                "memory.delete_conversation(conversation_id, namespace=...)"
            )
        self.memory.delete_conversation(self.conversation_id, namespace=self.namespace)

    def _scope(self, inputs: Mapping[str, Any]) -> Scope:
        rule = ScopeRule(
            namespace=self.namespace, conversation_id=self.conversation_id, namespace_key=self.namespace_key,
            conversation_key=self.conversation_key,
        )  # fmt: skip
        scope = rule.scope(inputs)
        if scope.conversation_id is None:
            raise InvalidInputError(f"which conversation is it? The inputs have no {self.conversation_key!r}")
        return scope

    def _candidates(self, inputs: Mapping[str, Any]) -> list[str]:
        """Return the inputs that may be the user's words."""
        ours = {self.memory_key, self.namespace_key, self.conversation_key, "stop"}
        return [key for key in inputs if key not in ours]

    def _said(self, inputs: Mapping[str, Any]) -> str:
        value = self._candidate(inputs, self.input_key, _INPUTS, "input", self._candidates(inputs))
        return unmarked(text_of(value, speaker=USER))

    @staticmethod
    def _candidate(
        values: Mapping[str, Any], chosen: str | None, customary: Collection[str], what: str, keys: list[str]
    ) -> object:
        """Return the one value that counts: of the chosen key, the only one, or the customary one."""
        if chosen is None:
            chosen = keys[0] if len(keys) == 1 else next((key for key in customary if key in keys), None)
            if chosen is None:
                raise InvalidInputError(f"which {what} counts? Give {what}_key=..., one of {', '.join(sorted(keys))}")
        if chosen not in values:
            raise InvalidInputError(f"there is no {what} {chosen!r}; there are {', '.join(sorted(values)) or 'none'}")
        return values[chosen]

    def _text(self, recalled: str, shown: Shown) -> str:
        names = {USER: self.human_prefix, ASSISTANT: self.ai_prefix}
        lines = "\n".join(f"{names.get(turn.speaker, turn.speaker)}: {turn.text}" for turn in shown.turns)
        return "\n\n".join(part for part in (recalled, lines) if part)

    @staticmethod
    def _messages(recalled: str, shown: Shown) -> list[BaseMessage]:
        messages: list[BaseMessage] = [SystemMessage(recalled)] if recalled else []
        for turn in shown.turns:
            if turn.speaker == ASSISTANT:
                messages.append(AIMessage(turn.text, id=turn.id))
            else:
                name = None if turn.speaker == USER else turn.speaker
                messages.append(HumanMessage(turn.text, id=turn.id, name=name))
        return messages


def _turn(speaker: str, value: object) -> Turn:
    said = value[-1] if isinstance(value, list) and value and isinstance(value[-1], BaseMessage) else value
    message_id = said.id if isinstance(said, BaseMessage) else None
    return Turn(speaker, unmarked(text_of(value, speaker=speaker)), id=message_id or None)
