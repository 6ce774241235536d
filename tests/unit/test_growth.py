"""What is new among turns that came: by message id, by position, or nothing known of either."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memgas.errors import SessionConflictError
from memgas.growth import (
    NO_ID,
    TOMBSTONE,
    Tail,
    TurnKey,
    begins_next_session,
    grown,
    is_same,
    new_turns_of_session,
    new_turns_to_append,
    next_session_id,
    positions,
    turn_key,
)
from memgas.types import Turn

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
A, B, C = Turn("u", "one"), Turn("a", "two"), Turn("u", "three")


def _append(stored: list[Turn], turns: list[Turn], at: int | None = None) -> list[Turn]:
    keys = dict(enumerate(map(turn_key, stored)))
    return new_turns_to_append(keys, len(stored), turns, at=at, where="session 's'")


def test_keys() -> None:
    """A key tells speakers and texts apart wherever they meet; a tombstone keeps nothing of its text; 0 is no hash."""
    assert turn_key(Turn("ab", "c")) != turn_key(Turn("a", "bc"))
    assert turn_key(Turn("a", "")).text == TOMBSTONE
    assert turn_key(A).id == NO_ID
    assert turn_key(Turn("u", "one", NOON)) == turn_key(A)


@pytest.mark.parametrize(
    ("stored", "given_", "same"),
    [
        (A, A, True),
        (A, B, False),
        (A, Turn("u", "one", id="m"), True),
        (Turn("u", "one", id="m"), A, True),
        (Turn("u", "one", id="m"), Turn("u", "one", id="n"), False),
        (Turn("u", "one", id="m"), Turn("u", "other", id="m"), False),
        (Turn("u", ""), B, True),
        (Turn("u", "", id="m"), Turn("u", "x", id="m"), True),
        (Turn("u", "", id="m"), Turn("u", "x", id="n"), False),
        (A, Turn("u", ""), False),
    ],
)
def test_is_same(stored: Turn, given_: Turn, same: bool) -> None:
    """Ids decide where both have one, then the words; a tombstone stands for whatever was said there."""
    assert is_same(turn_key(stored), turn_key(given_)) is same


def test_a_session_given_whole() -> None:
    """The turns beyond the stored ones are new; other or fewer ones are a conflict that says what to do."""
    keys = [turn_key(A), turn_key(B)]
    assert new_turns_of_session([], [A], session_id="s") == [A]
    assert new_turns_of_session(keys, [A, B], session_id="s") == []
    assert new_turns_of_session(keys, [A, B, C], session_id="s") == [C]
    with pytest.raises(SessionConflictError, match=r"position 1.*replace_session"):
        new_turns_of_session(keys, [A, C], session_id="s")
    with pytest.raises(SessionConflictError, match=r"only the first 1.*append"):
        new_turns_of_session(keys, [A], session_id="s")


def test_without_id_and_position() -> None:
    """With neither, every turn is new: who says the same twice said it twice."""
    assert _append([A], [A, A]) == [A, A]


def test_by_position() -> None:
    """From a position on, what is stored there is skipped, other words are a conflict, and what is beyond is new."""
    assert _append([A, B], [A, B, C], at=0) == [C]
    assert _append([A, B], [B], at=1) == []
    assert _append([A, B], [C], at=2) == [C]
    assert _append([A, B], [C], at=9) == [C]
    with pytest.raises(SessionConflictError, match="position 1"):
        _append([A, B], [C], at=1)
    with pytest.raises(SessionConflictError, match="position 1"):
        _append([A, B], [A, C], at=0)


def test_by_id() -> None:
    """A known message id is skipped wherever it comes, twice in one call too; other words under it are a conflict."""
    stored = [Turn("u", "one", id="m1"), Turn("a", "", id="m2")]
    new = Turn("u", "three", id="m3")
    assert _append(stored, [new, stored[0], new]) == [new]
    assert _append(stored, [Turn("a", "deleted words", id="m2")]) == []
    with pytest.raises(SessionConflictError, match="'m1'"):
        _append(stored, [Turn("u", "other", id="m1")])
    with pytest.raises(SessionConflictError, match="'m3'"):
        _append(stored, [new, Turn("u", "other", id="m3")])
    with pytest.raises(SessionConflictError, match="position 0"):
        _append(stored, [Turn("u", "one", id="m9")], at=0)


def test_where_nothing_is_stored_any_more() -> None:
    """A position below the end that holds nothing was deleted: a retry does not revive it."""
    assert new_turns_to_append({2: turn_key(C)}, 3, [A, B, C], at=0, where="x") == []


@given(st.lists(st.sampled_from([A, B, C]), max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_any_overlap_gives_the_rest(turns: list[Turn], n_stored: int, start: int) -> None:
    """Whatever part of a history is stored, and from wherever it is given again, just the rest is new."""
    n_stored = min(n_stored, len(turns))
    start = min(start, n_stored)
    assert _append(turns[:n_stored], turns[start:], at=start) == turns[n_stored:]


def test_positions_of_a_conversation() -> None:
    """Sessions stand one after the other; what one has beyond the beginning of the next is known by its id alone."""
    a, b, c = map(turn_key, (A, B, C))
    assert positions([]) == ({}, 0)
    assert positions([(0, [a, b]), (2, [c])]) == ({0: a, 1: b, 2: c}, 3)
    assert positions([(0, [a]), (5, [b])]) == ({0: a, 5: b}, 6)
    stored, end = positions([(0, [a, b, c]), (1, [b])])
    assert (stored[0], stored[1], end) == (a, b, 2)
    assert {key for position, key in stored.items() if position < 0} == {b, c}


@pytest.mark.parametrize(
    ("n_turns", "minutes", "begins", "expected"),
    [
        (1, 60, True, False),
        (1, 60.1, False, True),
        (4, 0, False, False),
        (4, 0, True, True),
        (3, 0, True, False),
        (8, 0, False, True),
        (1, -500, True, False),
    ],
)
def test_when_another_session_begins(n_turns: int, minutes: float, begins: bool, expected: bool) -> None:
    """After more than the idle time; at an exchange once it is full; anywhere at twice its size; never for older turns."""
    tail = Tail(n_turns, NOON, (A,))
    turn = Turn("u", "next", NOON + timedelta(minutes=minutes))
    got = begins_next_session(tail, turn, NOON, max_turns=4, max_idle_minutes=60, begins_exchange=begins)
    assert got is expected


def test_a_tail_grows() -> None:
    """The tail counts turns, keeps the last exchange, and knows when the last turn was said."""
    tail = grown(None, A, NOON, begins_exchange=False)
    tail = grown(tail, Turn("a", "two", NOON + timedelta(minutes=5)), NOON, begins_exchange=False)
    assert (tail.n_turns, tail.last_at, len(tail.exchange)) == (2, NOON + timedelta(minutes=5), 2)
    tail = grown(tail, C, NOON + timedelta(minutes=9), begins_exchange=True)
    assert tail == Tail(3, NOON + timedelta(minutes=9), (C,))


def test_names_of_sessions() -> None:
    """A conversation's sessions are `thread`, `thread#2`, ..., stepping over names that are taken."""
    assert next_session_id("thread", 0, {}) == "thread"
    assert next_session_id("thread", 1, {"thread": 0}) == "thread#2"
    assert next_session_id("thread", 0, {"thread": 0, "thread#2": 0}) == "thread#3"
    assert TurnKey(1, 2) == TurnKey(1, 2)
