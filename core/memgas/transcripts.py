"""Text -> turns: what `memgas add` reads, as JSON lines or as `speaker: text` lines."""

from __future__ import annotations

import json
import re
from datetime import datetime

from memgas.errors import InvalidInputError
from memgas.types import Turn

FORMS = 'a line is {"speaker": ..., "text": ..., "happened_at": ..., "id": ...} (the last two may be left out), or speaker: text'

_SPOKEN = re.compile(r"(?P<speaker>[^\s:：][^:：]{0,59}?)\s*[:：]\s*(?P<text>\S.*)")
_FIELDS = frozenset({"speaker", "text", "happened_at", "id"})


def parse_turns(text: str) -> list[Turn]:
    r"""Read turns from text, JSON lines if its first character is a brace, else `speaker: text` lines.

    Parameters
    ----------
    text
        Blank lines are skipped. An indented line goes on with the turn above it, in `speaker: text` lines.

    Raises
    ------
    InvalidInputError
        A line is neither, or a field is missing, unknown or of another type; the message names the line.

    Examples
    --------
    >>> parse_turns("Ana: I adopted a greyhound.\n  She is called Juno.")[0].text
    'I adopted a greyhound.\nShe is called Juno.'
    """
    lines = [(number, line.rstrip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise InvalidInputError(f"there is nothing to add, the input is empty: {FORMS}")
    if lines[0][1].lstrip().startswith("{"):
        return [_from_json(number, line) for number, line in lines]
    return _from_lines(lines)


def parse_time(text: str, *, where: str) -> datetime:
    """Read a date or a time in ISO 8601; a zone has to be named, `Z` will do, but a date alone is that day in UTC.

    Raises
    ------
    InvalidInputError
        It is another form, or has no zone; the message begins with `where`.
    """
    try:
        when = datetime.fromisoformat(f"{text}T00:00:00+00:00" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else text)
    except ValueError:
        raise InvalidInputError(f"{where} must be a date or time like 2024-05-08T18:30:00Z; got {text!r}") from None
    if when.tzinfo is None:
        raise InvalidInputError(f"{where} needs a time zone, like {text}Z or {text}+02:00; got {text!r}")
    return when


def _from_json(number: int, line: str) -> Turn:
    """Read one JSON line."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"line {number} is no JSON ({error.msg}): {FORMS}") from None
    if not isinstance(row, dict):
        raise InvalidInputError(f"line {number} is no JSON object: {FORMS}")
    if unknown := set(row) - _FIELDS:
        raise InvalidInputError(f"line {number} has the unknown field {min(unknown)!r}: {FORMS}")
    for name in ("speaker", "text"):
        if not isinstance(row.get(name), str):
            raise InvalidInputError(f"line {number}: {name} must be text; got {row.get(name)!r}")
    for name in ("happened_at", "id"):
        if not isinstance(row.get(name), str | None):
            raise InvalidInputError(f"line {number}: {name} must be text or left out; got {row[name]!r}")
    at = row.get("happened_at")
    when = None if at is None else parse_time(at, where=f"line {number}: happened_at")
    return Turn(row["speaker"], row["text"], when, row.get("id"))


def _from_lines(lines: list[tuple[int, str]]) -> list[Turn]:
    """Read `speaker: text` lines with their indented continuations."""
    spoken: list[tuple[str, list[str]]] = []
    for number, line in lines:
        if line[0].isspace() and spoken:
            spoken[-1][1].append(line.strip())
        elif match := _SPOKEN.fullmatch(line.strip()):
            spoken.append((match["speaker"], [match["text"]]))
        else:
            raise InvalidInputError(f"line {number} does not say who speaks: {FORMS}; got {line[:60]!r}")
    return [Turn(speaker, "\n".join(text)) for speaker, text in spoken]
