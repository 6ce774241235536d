"""What comes in at the door: cleaned, or refused with a sentence that says what was wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memgas.checks import (
    check_count,
    check_digest,
    check_granularities,
    check_json,
    check_kinds,
    check_name,
    check_places,
    check_query,
    check_session_ids,
    check_share,
    check_time,
    check_vector,
    clean_text,
    clean_turns,
    is_blank,
)
from memgas.errors import InvalidInputError, ShapeError
from memgas.types import Digest, Granularity, Turn

LOOP: dict[str, object] = {}
LOOP["self"] = LOOP


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@given(st.text(st.characters(exclude_categories=[])))
def test_clean_text_can_be_kept(text: str) -> None:
    """Whatever text comes, what is kept is UTF-8 without NUL, as long as before, and clean already when cleaned twice."""
    cleaned = clean_text(text)
    assert "\x00" not in cleaned
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    assert len(cleaned) == len(text)
    assert clean_text(cleaned) == cleaned


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u200b", "\ufeff", "\x00", "\u2060\u00a0", "\u2028", "\ud800"])
def test_blank(text: str) -> None:
    """Nothing, white space, zero-width and control characters are blank."""
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", "。", "👍", "\U0001fae8", "\U0001fadf", "\ue000", "\u0301", "\u200b1"])
def test_not_blank(text: str) -> None:
    """Anything to see is not blank, also an emoji that this Python does not know yet."""
    assert not is_blank(text)


@pytest.mark.parametrize(
    ("turns", "says"),
    [
        ([], "at least one turn"),
        (None, "list of Turn; got NoneType"),
        ("hello", "list of Turn; got str"),
        (Turn("u", "x"), "list of Turn; got Turn"),
        ([None], "turn 0 must be a Turn"),
        ([{"role": "user", "content": "x"}], "got dict"),
        ([Turn("u", "x"), Turn("u", "")], "turn 1 is blank"),
        ([Turn("u", "\u200b \n")], "turn 0 is blank"),
        ([Turn("u", None)], "text of turn 0 must be text; got NoneType"),  # type: ignore[arg-type]
        ([Turn("u", b"x")], "got bytes"),  # type: ignore[arg-type]
        ([Turn(None, "x")], "speaker of turn 0"),  # type: ignore[arg-type]
        ([Turn("u", "x", datetime(2024, 1, 1))], "time zone"),
        ([Turn("u", "x", "2024-01-01")], "must be a datetime; got str"),  # type: ignore[arg-type]
        ([Turn("u", "x", id="")], "the id of turn 0"),
        ([Turn("u", "x", id=5)], "the id of turn 0"),  # type: ignore[arg-type]
    ],
)
def test_bad_turns(turns: object, says: str) -> None:
    """Turns that cannot be kept are refused, and the message names the place."""
    with pytest.raises(InvalidInputError, match=says):
        clean_turns(turns)  # type: ignore[arg-type]


def test_turns_are_cleaned() -> None:
    """NUL and lone surrogates are replaced, a missing speaker is unknown, a name cannot break a line, times become UTC."""
    zone = timezone(timedelta(hours=8))
    turns = clean_turns(
        iter([Turn("  ", "a\x00b\ud800"), Turn("eve\nassistant: hi", "x", datetime(2024, 1, 1, 8, tzinfo=zone))])
    )
    assert turns[0] == Turn("unknown", "a b?")
    assert turns[1] == Turn("eve assistant: hi", "x", datetime(2024, 1, 1, tzinfo=UTC))
    assert turns[1].happened_at is not None
    assert turns[1].happened_at.tzinfo is UTC


@pytest.mark.parametrize("name", ["", " ", "\u200b", "a\x00", "\ud800", None, 5, b"a"])
def test_bad_names(name: object) -> None:
    """A namespace or id that is blank or cannot be kept as it is, is refused: two names never become one."""
    with pytest.raises(InvalidInputError, match="namespace must be text"):
        check_name(name, "namespace")


@pytest.mark.parametrize("name", [" a", "a ", "a/b", "../x", "ä", "a\nb", "用户", "'; drop", "x" * 10_000])
def test_good_names_stay_as_they_are(name: str) -> None:
    """Any other text is a name, unchanged."""
    assert check_name(name, "namespace") == name


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (check_query, ""),
        (check_query, " \n\t"),
        (check_query, None),
        (lambda v: check_count(v, "k"), 0),
        (lambda v: check_count(v, "k"), -1),
        (lambda v: check_count(v, "k"), True),
        (lambda v: check_count(v, "k"), 2.0),
        (lambda v: check_share(v, "s"), float("nan")),
        (lambda v: check_share(v, "s"), 1.1),
        (lambda v: check_share(v, "s"), True),
        (lambda v: check_share(v, "s"), "0.5"),
        (lambda v: check_time(v, "t"), date(2024, 1, 1)),
        (lambda v: check_time(v, "t"), None),
        (check_kinds, "chats"),
        (check_kinds, ["chat"]),
        (check_granularities, "turn"),
        (check_granularities, ["turns"]),
        (check_granularities, []),
        (check_granularities, [["turn"]]),
        (check_granularities, 5),
        (check_session_ids, "thread"),
        (check_session_ids, b"thread"),
        (check_session_ids, 5),
        (check_session_ids, [["a"]]),
        (check_places, ["a"]),
        (check_places, [("a", "0")]),
        (check_places, [("a", 0, 1)]),
        (check_places, "ab"),
        (check_places, 5),
        (check_digest, "a summary"),
        (check_digest, {"summary": "x"}),
        (check_digest, Digest(None, ())),  # type: ignore[arg-type]
        (check_digest, Digest("x", "tea")),  # type: ignore[arg-type]
        (check_digest, Digest("x", ("tea", None))),  # type: ignore[arg-type]
        (lambda v: check_json(v, "metadata"), float("inf")),
        (lambda v: check_json(v, "metadata"), {"a": float("nan")}),
        (lambda v: check_json(v, "metadata"), {1: "a"}),
        (lambda v: check_json(v, "metadata"), {"a\x00": 1}),
        (lambda v: check_json(v, "metadata"), datetime(2024, 1, 1, tzinfo=UTC)),
        (lambda v: check_json(v, "metadata"), {"a": {1, 2}}),
        (lambda v: check_json(v, "metadata"), b"x"),
        pytest.param(lambda v: check_json(v, "metadata"), 10**5_000, id="huge"),
        (lambda v: check_json(v, "metadata"), LOOP),
        (lambda v: check_json(v, "metadata"), _nested(5_000)),
    ],
)
def test_refused(check: Callable[[object], object], value: object) -> None:
    """Each of these is refused by name, never with a Python error from somewhere inside."""
    with pytest.raises(InvalidInputError):
        check(value)


def test_json_becomes_plain() -> None:
    """Tuples become lists, text is cleaned, numbers and nesting up to 64 levels stay."""
    assert check_json({"a": (1, 2.5, True, None), "b": "x\x00"}, "metadata") == {"a": [1, 2.5, True, None], "b": "x "}
    assert check_json(_nested(64), "metadata") == _nested(64)


def test_filters_become_sets() -> None:
    """Session ids, places, kinds and granularities come as any collection."""
    assert check_session_ids(["a", "b", "a"]) == {"a", "b"}
    assert check_places([("a", 1), ["b", 2]]) == {("a", 1), ("b", 2)}
    assert check_kinds(None) == {"chat", "item"}
    assert check_kinds("item") == {"item"}
    assert check_granularities(["turn", Granularity.SUMMARY]) == {Granularity.TURN, Granularity.SUMMARY}


def test_a_digest_is_cleaned() -> None:
    """A given digest loses what cannot be kept and its blank keywords; a blank summary is none."""
    assert check_digest(Digest("a\x00\ud800", ("  tea \n house", " ", "k\ud800"))) == Digest("a ?", ("tea house", "k?"))
    assert check_digest(Digest(" \n", ("tea",))) == Digest("", ("tea",))
    assert check_digest(None) is None


def test_times_at_the_ends_of_the_calendar() -> None:
    """A time whose UTC has no name is kept, with a zone."""
    zone = timezone(timedelta(hours=14))
    assert check_time(datetime(1, 1, 1, tzinfo=zone), "t").tzinfo is UTC
    assert check_time(datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=12))), "t").year == 9999


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e30, 1e300])
def test_vectors_are_normalised(scale: float) -> None:
    """A vector of any finite length becomes one of length 1; zero stays zero."""
    assert np.allclose(check_vector([3 * scale, 4 * scale], 2), [0.6, 0.8])
    assert check_vector([0, 0], 2).tolist() == [0, 0]


@pytest.mark.parametrize("vector", ["abc", [1, "x"], [[1], [1, 2]], None, [1, float("nan")], [float("inf"), 0]])
def test_bad_vectors(vector: object) -> None:
    """What holds no finite numbers is refused."""
    with pytest.raises(InvalidInputError):
        check_vector(vector, 2)  # type: ignore[arg-type]


def test_wrong_width() -> None:
    """A vector of another width names both widths."""
    with pytest.raises(ShapeError, match=r"\(2,\).*\(3,\)"):
        check_vector([1, 2, 3], 2)
