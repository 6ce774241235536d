"""Messages and values to turns: what was said, by whom, and nothing that a recall put in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage
from langchain_core.prompt_values import PromptValue
from pydantic import BaseModel

from memgas import Turn
from memgas.checks import is_blank

USER, ASSISTANT = "user", "assistant"

_OPEN, _CLOSE = "<recalled-memories>", "</recalled-memories>"
# A line of memory begins with ">" or "[", so none can pass for the closing mark.
_MARKED = re.compile(rf"^{_OPEN}\n.*?^{_CLOSE}[ \t]*\n*", re.MULTILINE | re.DOTALL)
_ROLES = {"human": USER, "user": USER, "ai": ASSISTANT, "assistant": ASSISTANT}
_MEDIA = re.compile(r"image|audio|video|file|document|media")


def mark(recalled: str) -> str:
    """Mark recalled text, so that it is known again and never stored."""
    return f"{_OPEN}\n{recalled}\n{_CLOSE}" if recalled else ""


def unmarked(text: str) -> str:
    """Return text without what a recall put in."""
    return _MARKED.sub("", text) if _OPEN in text else text


def turns_of(messages: Sequence[BaseMessage]) -> list[Turn]:
    """Return what user and assistant said, in order; system and tool messages, and those without words, are left out."""
    turns = []
    for message in messages:
        speaker = _speaker(message)
        text = unmarked(content_text(message.content)) if speaker else ""
        if speaker and not is_blank(text):
            turns.append(Turn(speaker, text, id=message.id or None))
    return turns


def _speaker(message: BaseMessage) -> str | None:
    """Return who speaks; None for what is not part of the conversation, such as another middleware's summary."""
    if "lc_source" in message.additional_kwargs:
        return None
    if isinstance(message, HumanMessage):  # isinstance, since the type of a chunk is called otherwise
        return message.name or USER
    if isinstance(message, AIMessage):
        return ASSISTANT
    if isinstance(message, ChatMessage):
        return _ROLES.get(message.role.lower())
    return None


def current_exchange(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the user's last words, and whatever followed them."""
    start = len(messages)
    for at in range(len(messages) - 1, -1, -1):
        if _speaker(messages[at]) in (None, ASSISTANT):
            if start < len(messages):
                break
        else:
            start = at
    return list(messages[start:])


def last_words(messages: Sequence[BaseMessage]) -> str:
    """Return the user's last words, what a recall searches for; empty when there are none."""
    said = [turn.text for turn in turns_of(messages) if turn.speaker != ASSISTANT]
    return said[-1] if said else ""


def content_text(content: str | Sequence[object]) -> str:
    """Return the text of a message's content, with a placeholder for each picture, sound or file."""
    if isinstance(content, str):
        return content
    return "\n".join(part for part in map(_block_text, content) if part)


def _block_text(block: object) -> str:
    if isinstance(block, str):
        return block
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(block, Mapping) or not isinstance(kind, str):
        return ""
    if kind == "text":
        return str(block.get("text", ""))
    found = _MEDIA.search(kind)
    return f"[{found.group()}]" if found else ""


def text_of(value: object, *, speaker: str = ASSISTANT) -> str:
    """Return the text of whatever a chain takes in or puts out.

    Text is itself; of a message its text; of several messages the last one's of the speaker; anything else is JSON. None
    is empty.
    """
    if isinstance(value, PromptValue):
        value = value.to_messages()
    match value:
        case None:
            return ""
        case str():
            return value
        case BaseMessage():
            return content_text(value.content)
        case list() | tuple() if value and all(isinstance(item, BaseMessage) for item in value):
            said = [turn.text for turn in turns_of(value) if (turn.speaker == ASSISTANT) == (speaker == ASSISTANT)]
            return said[-1] if said else ""
        case list() if value and all(isinstance(item, Mapping) and "type" in item for item in value):
            return content_text(value)
    return _json(value)


def _json(value: object) -> str:
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, BaseMessage):
        return content_text(value.content)
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
