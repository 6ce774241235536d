"""What may come in: text, times, names and metadata are checked and cleaned at the door."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import numpy as np
from numpy.typing import NDArray

from memgas.errors import InvalidInputError, ShapeError
from memgas.types import JSON, Turn


def clean_text(text: str) -> str:
    """Replace what no database and no tokenizer takes: lone surrogates by `?`, NUL by a space."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", " ")


def is_blank(text: str) -> bool:
    """Tell whether a text has nothing to read: white space, zero-width and control characters only."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def clean_turns(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Return turns with clean text.

    Raises
    ------
    InvalidInputError
        There is none, one is not a `Turn`, its text or speaker is not text or is blank, its time has no time zone.
        The message names its position; nothing is written.
    """
    if isinstance(turns, (str, bytes, Turn)) or not isinstance(turns, Iterable):
        raise InvalidInputError(f"turns must be a list of Turn; got {type(turns).__name__}")
    cleaned = tuple(_clean_turn(turn, position) for position, turn in enumerate(turns))
    if not cleaned:
        raise InvalidInputError("at least one turn is needed; got none")
    return cleaned


def _clean_turn(turn: object, position: int) -> Turn:
    if not isinstance(turn, Turn):
        raise InvalidInputError(f"turn {position} must be a Turn(speaker, text); got {type(turn).__name__}")
    for name, value in (("speaker", turn.speaker), ("text", turn.text)):
        if not isinstance(value, str):
            raise InvalidInputError(f"the {name} of turn {position} must be text; got {type(value).__name__}")
    if is_blank(turn.text):
        raise InvalidInputError(f"the text of turn {position} is blank; leave the turn out")
    # A speaker's name may be unknown, but it must not break the `speaker: text` lines.
    speaker = " ".join(clean_text(turn.speaker).split()) or "unknown"
    moment = None if turn.happened_at is None else check_time(turn.happened_at, f"happened_at of turn {position}")
    turn_id = None if turn.id is None else check_name(turn.id, f"the id of turn {position}")
    return Turn(speaker, clean_text(turn.text), moment, turn_id)


def check_name(value: object, what: str) -> str:
    """Return a namespace or an id as it is; raise InvalidInputError unless it is text that can be kept and is not blank.

    Nothing is cleaned here: two names must never become one.
    """
    if not isinstance(value, str) or is_blank(value) or clean_text(value) != value:
        raise InvalidInputError(f"{what} must be text, not blank, without NUL or lone surrogates; got {value!r}")
    return value


def check_query(query: object) -> str:
    """Return a query, cleaned; raise InvalidInputError unless it is text that is not blank."""
    if not isinstance(query, str) or is_blank(query):
        raise InvalidInputError(f"the query must be text that is not blank; got {query!r}")
    return clean_text(query)


def check_count(value: object, what: str) -> int:
    """Return a number of things; raise InvalidInputError unless it is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInputError(f"{what} must be an integer of at least 1; got {value!r}")
    return value


def check_vector(vector: Sequence[float] | NDArray[np.float32], n_dims: int) -> NDArray[np.float32]:
    """Return a vector `(n_dims,)` of length 1, or zero; raise ShapeError or InvalidInputError unless it can be one."""
    array = np.asarray(vector, np.float32)
    if array.shape != (n_dims,):
        raise ShapeError(f"query_vector must have the shape ({n_dims},); got {array.shape}")
    norm = float(np.linalg.norm(array))
    if not math.isfinite(norm):
        raise InvalidInputError("query_vector must be finite; it holds NaN or infinity")
    return array / norm if norm else array


def check_time(moment: object, what: str) -> datetime:
    """Return a time in UTC; raise InvalidInputError unless it is a datetime with a time zone."""
    if not isinstance(moment, datetime):
        raise InvalidInputError(f"{what} must be a datetime; got {type(moment).__name__}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidInputError(f"{what} must have a time zone, such as datetime(2023, 5, 8, tzinfo=UTC); got {moment}")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return moment.replace(tzinfo=UTC)  # within hours of year 1 or 9999, where UTC has no name for it


def check_json(value: object, what: str) -> JSON:
    """Return a JSON value, cleaned and made of plain dicts and lists; raise InvalidInputError for anything else."""
    match value:
        case None | bool() | int():
            return value
        case float():
            if not math.isfinite(value):
                raise InvalidInputError(f"{what} must be JSON, which has no {value}")
            return value
        case str():
            return clean_text(value)
        case Mapping():
            return {
                _key(key, what): check_json(item, what) for key, item in cast("Mapping[object, object]", value).items()
            }
        case list() | tuple():
            return [check_json(item, what) for item in cast("Sequence[object]", value)]
    raise InvalidInputError(
        f"{what} must be JSON (dict, list, text, number, bool or None); it holds {type(value).__name__}"
    )


def _key(key: object, what: str) -> str:
    if not isinstance(key, str):
        raise InvalidInputError(f"the keys of {what} must be text; got {key!r}")
    return clean_text(key)
