"""What may come in: text, times, names and metadata are checked and cleaned at the door."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray

from memgas.errors import InvalidInputError, ShapeError
from memgas.types import GRANULARITIES, JSON, Digest, Granularity, Kind, Turn

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"})
MAX_DEPTH = 64
"""Most levels of lists and dicts in metadata."""
_MAX_INTEGER_BITS = 1_024


def clean_text(text: str) -> str:
    """Replace what no database and no tokenizer takes: lone surrogates by `?`, NUL by a space."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", " ")


def is_blank(text: str) -> bool:
    """Tell whether a text has nothing to read: white space, zero-width and control characters only."""
    # Not `isprintable`: to it, an emoji younger than this Python's Unicode tables is nothing.
    return all(unicodedata.category(character) in _INVISIBLE for character in text)


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


def check_digest(digest: object) -> Digest | None:
    """Return a digest with clean text and without blank keywords; raise InvalidInputError unless it is one, or None."""
    if digest is None:
        return None
    if not isinstance(digest, Digest) or not isinstance(digest.summary, str) or not isinstance(digest.source, str):
        raise InvalidInputError(f"a digest must be a Digest(summary, keywords) of text; got {digest!r}")
    keywords: object = digest.keywords
    if not isinstance(keywords, (tuple, list)) or not all(isinstance(word, str) for word in keywords):
        raise InvalidInputError(f"the keywords of a digest must be a tuple of text; got {keywords!r}")
    kept = tuple(" ".join(clean_text(word).split()) for word in keywords if not is_blank(word))
    summary = "" if is_blank(digest.summary) else clean_text(digest.summary)
    return Digest(summary, kept, digest.source or "given")


def check_kinds(kind: object) -> frozenset[Kind]:
    """Return the kinds that None or one kind stands for; raise InvalidInputError for anything else."""
    kinds = get_args(Kind)
    if kind is not None and kind not in kinds:
        raise InvalidInputError(f"kind must be 'chat', 'item', or None for both; got {kind!r}")
    return frozenset(kinds if kind is None else {kind})


def check_granularities(values: object) -> frozenset[Granularity]:
    """Return granularities; raise InvalidInputError unless some are given and all are known."""
    known = {g.value: g for g in GRANULARITIES}
    listed = list(values) if isinstance(values, Collection) and not isinstance(values, str) else []
    if not listed or any(not isinstance(value, str) or value not in known for value in listed):
        raise InvalidInputError(f"granularities must be some of {', '.join(known)}; got {values!r}")
    return frozenset(known[value] for value in listed)


def check_session_ids(values: object) -> frozenset[str]:
    """Return session ids; raise InvalidInputError unless they are a list or set of text, which one text is not."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidInputError(f"session ids must be a list or set of them; got {values!r}")
    listed = list(values)
    if not all(isinstance(value, str) for value in listed):
        raise InvalidInputError(f"session ids must be text; got {listed!r}")
    return frozenset(listed)


def check_places(values: object) -> frozenset[tuple[str, int]]:
    """Return places of turns; raise InvalidInputError unless they are (session id, position) pairs."""
    found: set[tuple[str, int]] = set()
    for value in values if isinstance(values, Iterable) else [values]:
        match value:
            case (str(session_id), int(position)):
                found.add((session_id, position))
            case _:
                raise InvalidInputError(f"turns are named by (session id, position) pairs; got {value!r}")
    return frozenset(found)


def check_share(value: object, what: str) -> float:
    """Return a number; raise InvalidInputError unless it is between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidInputError(f"{what} must be between 0 and 1; got {value!r}")
    return float(value)


def check_count(value: object, what: str) -> int:
    """Return a number of things; raise InvalidInputError unless it is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInputError(f"{what} must be an integer of at least 1; got {value!r}")
    return value


def check_vector(vector: Sequence[float] | NDArray[np.float32], n_dims: int) -> NDArray[np.float32]:
    """Return a vector `(n_dims,)` of length 1, or zero; raise ShapeError or InvalidInputError unless it can be one."""
    try:
        array = np.asarray(vector, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"query_vector must be {n_dims} numbers: {error}") from error
    if array.shape != (n_dims,):
        raise ShapeError(f"query_vector must have the shape ({n_dims},); got {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidInputError("query_vector must be finite; it holds NaN or infinity")
    scaled = array / (np.abs(array).max(initial=0.0) or 1.0)  # squares of very large or small numbers would not fit
    norm = float(np.linalg.norm(scaled))
    return (scaled / (norm or 1.0)).astype(np.float32)


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
    """Return a JSON value, cleaned and made of plain dicts and lists; raise InvalidInputError for anything else.

    Nor may it be nested more than 64 levels deep, or hold an integer of more than 1,024 bits.
    """
    return _json(value, what, MAX_DEPTH)


def _json(value: object, what: str, depth: int) -> JSON:
    if depth < 0:
        raise InvalidInputError(f"{what} is nested more than {MAX_DEPTH} levels deep, or holds itself")
    match value:
        case None | bool():
            return value
        case int() | float():
            return _number(value, what)
        case str():
            return clean_text(value)
        case Mapping():
            return _object(cast("Mapping[object, object]", value), what, depth)
        case list() | tuple():
            return [_json(item, what, depth - 1) for item in cast("Sequence[object]", value)]
    raise InvalidInputError(
        f"{what} must be JSON (dict, list, text, number, bool or None); it holds {type(value).__name__}"
    )


def _number(value: float, what: str) -> int | float:
    if isinstance(value, int):
        if value.bit_length() > _MAX_INTEGER_BITS:
            raise InvalidInputError(
                f"{what} holds an integer of {value.bit_length()} bits; {_MAX_INTEGER_BITS} are most"
            )
        return value
    if not math.isfinite(value):
        raise InvalidInputError(f"{what} must be JSON, which has no {value}")
    return value


def _object(value: Mapping[object, object], what: str, depth: int) -> JSON:
    found: dict[str, JSON] = {}
    for key, item in value.items():
        if not isinstance(key, str) or clean_text(key) != key:  # not cleaned: two keys must never become one
            raise InvalidInputError(f"the keys of {what} must be text without NUL or lone surrogates; got {key!r}")
        found[key] = _json(item, what, depth - 1)
    return found
