"""Messages to turns, hits to nodes: what was said, by whom, and nothing that a recall put in."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import blake2b

from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from memgas import Evidence, Hit, Turn
from memgas.checks import is_blank

USER, ASSISTANT = "user", "assistant"

_OPEN, _CLOSE = "<recalled-memories>", "</recalled-memories>"
# A line of memory begins with ">" or "[", so none can pass for the closing mark.
_MARKED = re.compile(rf"^{_OPEN}\n.*?^{_CLOSE}[ \t]*\n*", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"\s*<memory>\s*(?:<([^<>\n]+)>\s*</\1>\s*)+</memory>\s*")
_ROLES = {
    MessageRole.USER: USER,
    MessageRole.ASSISTANT: ASSISTANT,
    MessageRole.CHATBOT: ASSISTANT,
    MessageRole.MODEL: ASSISTANT,
}
_MEDIA = ("image", "audio", "video", "document")


def mark(recalled: str) -> str:
    """Mark recalled text, so that it is known again and never stored."""
    return f"{_OPEN}\n{recalled}\n{_CLOSE}" if recalled else ""


def marked_text(text: str) -> str:
    """Return recalled text without its mark."""
    return text.removeprefix(f"{_OPEN}\n").removesuffix(f"\n{_CLOSE}")


def unmarked(text: str) -> str:
    """Return text without what a recall put in, and without the empty `<memory>` that remains of it."""
    return _SHELL.sub("", _MARKED.sub("", text)) if _OPEN in text else text


def harmless(text: str, names: Sequence[str]) -> str:
    """Return text in which nothing looks like the tags it will stand between."""
    tags = "|".join(map(re.escape, ("memory", "recalled-memories", *names)))
    return re.sub(rf"<(\s*/?\s*(?:{tags})\s*/?\s*)>", r"‹\1›", text, flags=re.IGNORECASE)


def turns_of(messages: Sequence[ChatMessage]) -> list[Turn]:
    """Return what user and assistant said, in order; system and tool messages, and those without words, are left out."""
    turns = []
    for message in messages:
        role = _ROLES.get(message.role)
        text = unmarked(content_text(message)) if role else ""
        if role and not is_blank(text):
            name = _kept(message, "name") if role == USER else None
            turns.append(Turn(name or role, text, id=_kept(message, "message_id") or _kept(message, "id")))
    return turns


def _kept(message: ChatMessage, key: str) -> str | None:
    value = message.additional_kwargs.get(key)
    return value if isinstance(value, str) and not is_blank(value) else None


def content_text(message: ChatMessage) -> str:
    """Return the text of a message, with a placeholder for each picture, sound or file."""
    parts = (_block_text(block) for block in message.blocks)
    return "\n".join(part for part in parts if part)


def _block_text(block: object) -> str:
    kind = getattr(block, "block_type", None)
    if kind == "text":
        return str(getattr(block, "text", ""))
    return f"[{kind}]" if kind in _MEDIA else ""


def last_words(messages: Sequence[ChatMessage]) -> str:
    """Return the user's last words, what a recall searches for; empty when there are none."""
    said = [turn.text for turn in turns_of(messages) if turn.speaker != ASSISTANT]
    return said[-1] if said else ""


def node_of(hit: Hit, namespace: str) -> NodeWithScore:
    """Return a hit as a new node. Its text begins with the day; its metadata is flat, and hidden from every prompt."""
    lines = [f"{hit.happened_at:%Y-%m-%d}", *(f"{piece.turn.speaker}: {piece.turn.text}" for piece in hit.evidence)]
    if not hit.evidence:
        lines.append(hit.summary)
    metadata = {
        "memory_id": hit.session_id,
        "session_id": hit.session_id,
        "conversation_id": hit.conversation_id,
        "happened_at": hit.happened_at.isoformat(),
        "granularity": max(hit.parts, key=lambda name: hit.parts[name]) if hit.parts else None,
        "positions": _positions(hit.evidence),
        "summary": hit.summary,
        "keywords": "; ".join(hit.keywords),
        "metadata": json.dumps(hit.metadata, ensure_ascii=False),
    }
    # Two users may have a session of the same name, and one fusion retriever ask for both.
    name = f"{len(namespace)}:{namespace}{hit.session_id}".encode("utf-8", "replace")
    node = TextNode(
        id_=blake2b(name, digest_size=16).hexdigest(), text="\n".join(lines), metadata=metadata,
        excluded_embed_metadata_keys=list(metadata), excluded_llm_metadata_keys=list(metadata),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=hit.session_id)},
    )  # fmt: skip
    return NodeWithScore(node=node, score=float(hit.score))


def _positions(evidence: Sequence[Evidence]) -> str:
    return ", ".join(str(piece.position) for piece in evidence)
