"""What is new among the turns that came: retries skipped, conflicts refused, conversations cut into sessions."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b

from memgas.errors import SessionConflictError
from memgas.types import JSON, SessionRecord, Turn

TOMBSTONE = 0
NO_ID = 0


@dataclass(frozen=True, slots=True)
class TurnKey:
    """What is remembered of a stored turn to know it again: 64-bit hashes.

    Attributes
    ----------
    id
        Of the message id; `NO_ID` without one.
    text
        Of speaker and text; `TOMBSTONE` when the words were deleted, of which nothing is kept.
    """

    id: int
    text: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a conversation's newest session, as far as the decision to open another one needs it.

    Attributes
    ----------
    n_turns
        Of the session.
    last_at
        When its last turn was said.
    exchange
        Turns of its last exchange.
    """

    n_turns: int
    last_at: datetime
    exchange: tuple[Turn, ...]


def turn_key(turn: Turn) -> TurnKey:
    """Hash a turn."""
    id_hash = NO_ID if turn.id is None else _hash(turn.id)
    text_hash = TOMBSTONE if turn.is_tombstone else _hash(f"{len(turn.speaker)}:{turn.speaker}{turn.text}")
    return TurnKey(id_hash, text_hash)


def _hash(text: str) -> int:
    # 0 has a meaning of its own, so it is never a hash.
    return int.from_bytes(blake2b(text.encode("utf-8"), digest_size=8).digest(), "little") or 1


def is_same(stored: TurnKey, given: TurnKey) -> bool:
    """Tell whether a given turn is the stored one. A tombstone stands for whatever was said there."""
    if NO_ID not in (stored.id, given.id) and stored.id != given.id:
        return False
    return stored.text in (TOMBSTONE, given.text)


def new_turns_of_session(stored: Sequence[TurnKey], turns: Sequence[Turn], *, session_id: str) -> Sequence[Turn]:
    """Return the turns that a session given whole has beyond those stored.

    Raises
    ------
    SessionConflictError
        The stored turns are not a prefix of the given ones.
    """
    for position, (old, turn) in enumerate(zip(stored, turns, strict=False)):
        if not is_same(old, turn_key(turn)):
            raise SessionConflictError(
                f"session {session_id!r} holds another turn at position {position} than the one given; "
                "use replace_session to overwrite it, or another session_id"
            )
    if len(turns) < len(stored):
        raise SessionConflictError(
            f"session {session_id!r} holds {len(stored)} turns, of which only the first {len(turns)} were given; "
            "give all of them and the new ones, use append for the new ones alone, or replace_session to overwrite"
        )
    return turns[len(stored) :]


def tombstone(conversation_id: str, first_turn: int, keys: Sequence[TurnKey]) -> JSON:
    """Return what stays of a conversation's deleted session, so that a retry does not revive it: hashes, no words."""
    ids = array("Q", [key.id for key in keys])
    return {
        "conversation": f"{_hash(conversation_id):016x}",
        "first_turn": first_turn,
        "ids": base64.b64encode(ids.tobytes()).decode("ascii"),
    }


def buried(record: SessionRecord, conversation_id: str) -> tuple[int, list[TurnKey]] | None:
    """Return first position and keys of a conversation's deleted session; None of another's, or when nothing was kept."""
    match record.metadata:
        case {"conversation": str(of), "first_turn": int(first), "ids": str(ids)} if record.is_deleted:
            if of == f"{_hash(conversation_id):016x}":
                return first, [TurnKey(number, TOMBSTONE) for number in array("Q", base64.b64decode(ids))]
    return None


def positions(sittings: Sequence[tuple[int, Sequence[TurnKey]]]) -> tuple[dict[int, TurnKey], int]:
    """Return what stands where in a conversation, and the first position never used.

    Parameters
    ----------
    sittings
        First position and keys of each session, oldest first.

    Returns
    -------
    stored
        Position to key. A session that grew by its own id beyond where the next one begins has turns that are no
        positions of the conversation: they get negative ones, and are known by their message ids alone.
    end
        Where the newest session ends.
    """
    stored: dict[int, TurnKey] = {}
    limit: int | None = None
    end = 0
    for first, keys in reversed(sittings):
        end = end if limit is not None else first + len(keys)
        for position, key in enumerate(keys, first):
            stored[position if limit is None or position < limit else -1 - len(stored)] = key
        limit = first
    return stored, end


def new_turns_to_append(
    stored: Mapping[int, TurnKey], next_position: int, turns: Sequence[Turn], *, at: int | None, where: str
) -> list[Turn]:
    """Return the turns that are not stored yet, in order.

    A turn with a message id is known by it. Without one it is known by its position, if `at` gives it: the same text
    there is skipped; a position below `next_position` that holds nothing was deleted, and stays so.

    Parameters
    ----------
    stored
        Position to key, of the whole conversation or session.
    next_position
        The first position never used.
    turns
        The given turns.
    at
        Position of the first given turn.
    where
        Names the place in messages.

    Raises
    ------
    SessionConflictError
        Another text is stored under the same message id, or at the same position.
    """
    by_id = {key.id: key for key in stored.values() if key.id != NO_ID}
    fresh: list[Turn] = []
    for offset, turn in enumerate(turns):
        key = turn_key(turn)
        known = by_id.get(key.id) if key.id != NO_ID else None
        if known is None and at is not None and at + offset < next_position:
            known = stored.get(at + offset, TurnKey(NO_ID, TOMBSTONE))
        if known is None:
            fresh.append(turn)
            if key.id != NO_ID:
                by_id[key.id] = key
        elif not is_same(known, key):
            place = f"message id {turn.id!r}" if known.id == key.id != NO_ID else f"position {(at or 0) + offset}"
            raise SessionConflictError(f"{where} holds another text under {place} than the one given")
    return fresh


def begins_next_session(
    tail: Tail, turn: Turn, now: datetime, *, max_turns: int, max_idle_minutes: float, begins_exchange: bool
) -> bool:
    """Tell whether a turn opens the conversation's next session: after idle time, or at an exchange when it is full."""
    said_at = turn.happened_at or now
    if said_at - tail.last_at > timedelta(minutes=max_idle_minutes):
        return True
    return tail.n_turns >= max_turns and (begins_exchange or tail.n_turns >= 2 * max_turns)


def grown(tail: Tail | None, turn: Turn, now: datetime, *, begins_exchange: bool) -> Tail:
    """Return the tail after one more turn; of a new session if there is none yet."""
    if tail is None:
        return Tail(1, turn.happened_at or now, (turn,))
    exchange = (turn,) if begins_exchange else (*tail.exchange, turn)
    return replace(tail, n_turns=tail.n_turns + 1, last_at=turn.happened_at or now, exchange=exchange)


def next_session_id(conversation_id: str, n_sessions: int, taken: Mapping[str, object]) -> str:
    """Name a conversation's next session: `thread`, `thread#2`, `thread#3`, ..., the first from there that is free."""
    number = n_sessions + 1
    while (name := conversation_id if number == 1 else f"{conversation_id}#{number}") in taken:
        number += 1
    return name
