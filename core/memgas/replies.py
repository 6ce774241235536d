"""What language models wrap around the answer: thinking, fences, prose."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memgas.types import JSON

_CLOSING = re.compile(r"</(?:think|thinking|reasoning|thought)>", re.IGNORECASE)
_OPENING = re.compile(r"<(?:think|thinking|reasoning|thought)>", re.IGNORECASE)
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
_DECODER = json.JSONDecoder(strict=False)  # line breaks inside of strings are forgiven
_MOST_ATTEMPTS = 200


def strip_thinking(reply: str) -> str:
    """Return what was said after thinking; nothing if it never stopped thinking."""
    ends = [match.end() for match in _CLOSING.finditer(reply)]
    if ends:  # some templates put the opening tag into the prompt, so the closing one stands alone
        reply = reply[ends[-1] :]
    start = _OPENING.search(reply)
    return reply[: start.start()] if start else reply


def json_values(reply: str, opening: str) -> Iterator[JSON]:
    """Yield the JSON values that begin with a bracket, outermost only, in order; prose between them is skipped.

    Parameters
    ----------
    reply
        Without thinking.
    opening
        `{` or `[`.
    """
    at = reply.find(opening)
    for _ in range(_MOST_ATTEMPTS):
        if at < 0:
            return
        found = _decode(reply, at)
        if found is None:
            end = at + 1
        else:
            value, end = found
            yield value
        at = reply.find(opening, end)


def _decode(reply: str, at: int) -> tuple[JSON, int] | None:
    """Decode one value, and where it ends; once more without trailing commas when that fails."""
    try:
        value, end = _DECODER.raw_decode(reply, at)
    except (ValueError, RecursionError):
        mended = _TRAILING_COMMA.sub(r"\1", reply[at:])
        if len(mended) == len(reply) - at:
            return None
        try:
            value, end = _DECODER.raw_decode(mended)
        except (ValueError, RecursionError):
            return None
        return value, at + end
    return value, end
