"""Dates in queries."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memgas.dates import find_spans, nearness

FIRST = date(2022, 11, 3).toordinal()
LAST = date(2023, 9, 20).toordinal()
ASKED_ON = date(2023, 10, 4).toordinal()  # a Wednesday


def spans(query: str) -> list[tuple[str, str]]:
    found = find_spans(query, first=FIRST, last=LAST, asked_on=ASKED_ON)
    return [(str(date.fromordinal(start)), str(date.fromordinal(end))) for start, end in found]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What did we eat on 8 May 2023?", [("2023-05-08", "2023-05-08")]),
        ("on the 8th of May, 2023", [("2023-05-08", "2023-05-08")]),
        ("on May 8th", [("2022-05-08", "2022-05-08"), ("2023-05-08", "2023-05-08")]),
        ("on 2023-05-08", [("2023-05-08", "2023-05-08")]),
        ("in February 2023", [("2023-02-01", "2023-02-28")]),
        ("in December 2022", [("2022-12-01", "2022-12-31")]),
        ("during the summer of 2022", [("2022-01-01", "2022-12-31")]),
        ("我们2023年5月8日吃了什么", [("2023-05-08", "2023-05-08")]),
        ("2023年5月去了哪里", [("2023-05-01", "2023-05-31")]),
        ("2022年发生了什么", [("2022-01-01", "2022-12-31")]),
    ],
)
def test_a_named_date_is_a_span(query: str, expected: list[tuple[str, str]]) -> None:
    """A day, a month or a year is found, in English and Chinese; without a year it is taken in each year of the talks."""
    assert expected == spans(query)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What did I cook yesterday?", [("2023-10-03", "2023-10-03")]),
        ("Whom did I meet three weeks ago?", [("2023-09-12", "2023-09-14")]),
        ("Whom did I meet 2 days ago?", [("2023-10-02", "2023-10-02")]),
        ("What did I buy last Friday?", [("2023-09-29", "2023-09-29")]),
        ("last Wednesday", [("2023-09-27", "2023-09-27")]),
        ("last weekend", [("2023-09-30", "2023-10-01")]),
        ("上周末", [("2023-09-30", "2023-10-01")]),
        ("昨天吃了什么", [("2023-10-03", "2023-10-03")]),
        ("三周前见了谁", [("2023-09-12", "2023-09-14")]),
        ("前天", [("2023-10-02", "2023-10-02")]),
    ],
)
def test_a_relative_date_counts_from_the_day_of_asking(query: str, expected: list[tuple[str, str]]) -> None:
    """What people say of days gone by is resolved against the day of asking, not against today."""
    assert expected == spans(query)


@pytest.mark.parametrize(
    "query",
    [
        "May I ask you something?",
        "They march on",
        "How many weeks ago did I move?",
        "on 31 June",
        "in month 13月",
        "",
        "2023",
    ],
)
def test_other_words_are_no_dates(query: str) -> None:
    """A verb, an impossible day, a question for a number of weeks, and a bare number name no day."""
    assert [] == spans(query)


def test_a_stretch_of_text_is_read_once() -> None:
    """A full date is not found again as a month and as a year."""
    assert [("2023-05-08", "2023-05-08")] == spans("in 8 May 2023")


def test_nearness_fades_outside_the_span() -> None:
    """Inside a span 1; a week outside, at a decay of a week, 1/e; without a span 0."""
    days = np.array([100, 105, 110, 117])

    near = nearness(days, [(105, 110)], decay_days=7)

    assert [np.exp(-5 / 7), 1, 1, np.exp(-1)] == pytest.approx(near.tolist())
    assert [0, 0, 0, 0] == nearness(days, [], decay_days=7).tolist()


def test_a_date_far_from_every_session_lifts_none() -> None:
    """Beyond four decays nearness is nothing, not a little: it would be blown up when it is standardised."""
    assert [0, 0] == nearness(np.array([100, 110]), [(500, 510)], decay_days=7).tolist()


@given(st.text(max_size=60), st.integers(1, 3_000_000), st.integers(0, 4_000), st.integers(1, 3_000_000))
def test_any_text_and_any_day_are_taken(query: str, first: int, length: int, asked_on: int) -> None:
    """No query and no time between the years 1 and 8000 makes it fail, and spans are never turned around."""
    found = find_spans(query, first=first, last=min(first + length, 3_000_000), asked_on=asked_on)

    assert all(start <= end for start, end in found)


@given(st.sampled_from(["last Sunday", "9999 years ago", "in March", "5月", "31 December 9999", "上周末"]))
def test_the_ends_of_the_calendar_are_no_trap(query: str) -> None:
    """Times in the years 1 and 9999 are dates like others."""
    first, last = date.min.toordinal(), date.max.toordinal()

    for asked_on in (first, last):
        assert all(start <= end for start, end in find_spans(query, first=first, last=first, asked_on=asked_on))
        assert all(start <= end for start, end in find_spans(query, first=last, last=last, asked_on=asked_on))
