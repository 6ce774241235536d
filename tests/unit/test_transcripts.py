"""Reading turns from text."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memgas.errors import InvalidInputError
from memgas.transcripts import parse_time, parse_turns
from memgas.types import Turn

NAMES = st.from_regex(r"[^\W\d_]{1,12}( [^\W\d_]{1,12})?", fullmatch=True)
LINES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=40)
TIMES = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=8))]))


def test_lines_of_speakers() -> None:
    """Plain lines are turns in order: blank lines are skipped, indented ones go on, a full-width colon will do."""
    turns = parse_turns("Ana: I adopted a dog: Juno.\n\n  She is tall.\n小林：你好\nuser:fine\n")

    assert turns == [Turn("Ana", "I adopted a dog: Juno.\nShe is tall."), Turn("小林", "你好"), Turn("user", "fine")]


def test_json_lines() -> None:
    """JSON lines carry time and id too, and may leave them out."""
    turns = parse_turns(
        '{"speaker": "Ana", "text": "Hi", "happened_at": "2024-05-08T18:30:00Z", "id": "m1"}\n'
        '{"speaker": "Bo", "text": "Hello", "id": null}\n'
    )

    assert turns == [Turn("Ana", "Hi", datetime(2024, 5, 8, 18, 30, tzinfo=UTC), "m1"), Turn("Bo", "Hello")]


@given(st.lists(st.builds(Turn, NAMES, st.text(min_size=1), st.none() | TIMES, st.none() | st.text()), min_size=1))
def test_json_lines_round_trip(turns: list[Turn]) -> None:
    """Whatever a turn holds comes back from its JSON line unchanged."""
    lines = [
        json.dumps({
            "speaker": turn.speaker, "text": turn.text, "id": turn.id,
            "happened_at": turn.happened_at and turn.happened_at.isoformat(),
        })
        for turn in turns
    ]  # fmt: skip

    assert turns == parse_turns("\n".join(lines))


@given(st.lists(st.tuples(NAMES, LINES), min_size=1))
def test_plain_lines_round_trip(spoken: list[tuple[str, str]]) -> None:
    """One line a turn comes back as it was written."""
    text = "\n".join(f"{speaker}: {line}" for speaker, line in spoken)

    assert [Turn(speaker, line) for speaker, line in spoken] == parse_turns(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the input is empty"),
        ("\n \n", "the input is empty"),
        ("Ana: hi\nno speaker here", "line 2 does not say who speaks"),
        ("  indented first", "line 1 does not say who speaks"),
        ('{"speaker": "Ana"', "line 1 is no JSON"),
        ('{"speaker": "Ana", "text": "hi"}\n[1]', "line 2 is no JSON object"),
        ('{"speaker": "Ana"}', "line 1: text must be text; got None"),
        ('{"speaker": 7, "text": "hi"}', "line 1: speaker must be text; got 7"),
        ('{"speaker": "Ana", "text": "hi", "id": 7}', "line 1: id must be text or left out; got 7"),
        ('{"speaker": "Ana", "text": "hi", "when": "now"}', "unknown field 'when'"),
        ('{"speaker": "Ana", "text": "hi", "happened_at": "yesterday"}', "line 1: happened_at must be a date or time"),
        ('{"speaker": "Ana", "text": "hi", "happened_at": "2024-05-08T18:30"}', "needs a time zone"),
    ],
)
def test_bad_input_is_named_with_its_line(text: str, message: str) -> None:
    """A line that cannot be used is an InvalidInputError which says which line and what was expected."""
    with pytest.raises(InvalidInputError, match=message.replace("[", r"\[")):
        parse_turns(text)


def test_a_date_alone_is_that_day_in_utc() -> None:
    """A date without a time is the beginning of that day in UTC."""
    assert datetime(2024, 5, 8, tzinfo=UTC) == parse_time("2024-05-08", where="--since")
