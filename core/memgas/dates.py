"""Dates that a query names, English and Chinese -> spans of days; how near each session is to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import MAXYEAR, MINYEAR, date, timedelta

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]
"""First and last day, as proleptic ordinals."""

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH_OF = {name[:n]: i for i, name in enumerate(_MONTHS, 1) for n in (3, len(name))} | {"sept": 9}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {
    word: n
    for n, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
} | {"a": 1, "an": 1}  # fmt: skip
_DAYS_OF = {"day": 1.0, "week": 7.0, "month": 30.44, "year": 365.25}
_SLACK_OF = {"day": 0, "week": 1, "month": 4, "year": 30}
_HAN_NUMBERS = {"一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10}
_HAN_UNITS = {"天": "day", "周": "week", "个星期": "week", "星期": "week", "个月": "month", "年": "year"}

_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTH_OF, key=len, reverse=True))})"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
# A lone "may", "march" or "mar" is a month only after a word that says so.
_CUE = r"\b(?:in|of|during|since|by|until|early|late|mid|last|this|next|before|after)[ -]$"

_NAMED = (
    re.compile(r"\b(?P<year>\d{4})[-/](?P<month_number>\d{1,2})[-/](?P<day>\d{1,2})\b"),
    re.compile(rf"\b{_DAY}(?: of)? {_MONTH}\b\.?(?:,? (?P<year>\d{{4}}))?"),
    re.compile(rf"\b{_MONTH}\.? {_DAY}\b(?:,? (?P<year>\d{{4}}))?"),
    re.compile(rf"\b{_MONTH}\b\.?(?:,? (?:of )?(?P<year>\d{{4}}))?"),
    re.compile(r"(?:(?P<year>\d{4})年)?(?P<month_number>\d{1,2})月(?:(?P<day>\d{1,2})[日号])?"),
    re.compile(
        r"\b(?:in|of|during|since|by|until|early|late|mid|year|summer|winter|spring|fall|autumn)[ -](?:of )?"
        r"(?P<year>(?:19|20)\d\d)\b"
    ),
    re.compile(r"(?P<year>(?:19|20)\d\d)年"),
)
_AGO = re.compile(rf"\b(?P<n>\d{{1,4}}|{'|'.join(_NUMBERS)}) (?P<unit>day|week|month|year)s? ago\b")
_HAN_AGO = re.compile(rf"(?P<n>\d{{1,4}}|[{''.join(_HAN_NUMBERS)}])(?P<unit>{'|'.join(_HAN_UNITS)})[之以]?前")
# "Last week", "last month" and "last year" are left out: people ask with them for sums over a time, not for one day in it,
# and nearness then misled more often than it helped.
_LAST = re.compile(rf"\b(?:last|past|previous) (?P<what>weekend|{'|'.join(_WEEKDAYS)})\b|(?P<han>昨天|前天|上个?周末)")
_YESTERDAY = re.compile(r"\byesterday\b")


def find_spans(query: str, *, first: int, last: int, asked_on: int) -> list[Span]:
    """Find the days that a query speaks of.

    Parameters
    ----------
    query
        English or Chinese. Other languages name dates in digits, if at all.
    first, last
        Days of the first and last session: a month without a year is taken in each of their years.
    asked_on
        The day of asking, to which "last week" and "three weeks ago" are relative.

    Returns
    -------
    list of (first day, last day)
        Empty when the query names no date.
    """
    text = query.casefold()
    years = range(date.fromordinal(first).year, date.fromordinal(last).year + 1)
    return [*_named(text, years), *_relative(text, asked_on)]


def nearness(days: NDArray[np.int64], spans: Sequence[Span], *, decay_days: float) -> NDArray[np.float64]:
    """Return how near each session is to the nearest span: `exp(-gap / decay)`, nothing beyond four decays.

    A date far from every session must not lift the one that happens to be least far.

    Parameters
    ----------
    days : (n_sessions,)
        When each happened, as an ordinal.
    spans
        From `find_spans`.
    decay_days
        After how many days outside a span nearness has fallen to 1/e.

    Returns
    -------
    (n_sessions,) float64
        1 inside a span; 0 for all when there is none.
    """
    near = np.zeros(len(days))
    for start, end in spans:
        gap = np.maximum(0, np.maximum(start - days, days - end))
        near = np.maximum(near, np.where(gap <= 4 * decay_days, np.exp(-gap / decay_days), 0.0))
    return near


def _named(text: str, years: range) -> Iterator[Span]:
    """Yield the dates that are named, each stretch of text read once."""
    taken: list[tuple[int, int]] = []
    for pattern in _NAMED:
        for match in pattern.finditer(text):
            if any(start < match.end() and match.start() < end for start, end in taken):
                continue
            parts = match.groupdict()
            if _is_other_word(parts, text[: match.start()]):
                continue
            taken.append(match.span())
            yield from _spans_of(parts, years)


def _is_other_word(parts: dict[str, str | None], before: str) -> bool:
    alone = not parts.get("day") and not parts.get("year")
    return alone and parts.get("month") in ("may", "mar", "march", "jan") and not re.search(_CUE, before)


def _spans_of(parts: dict[str, str | None], years: range) -> Iterator[Span]:
    """Yield the span of a day, a month or a year; in each of `years` if it names none."""
    name, number, day, year = (parts.get(key) for key in ("month", "month_number", "day", "year"))
    month = _MONTH_OF[name] if name else int(number or 0)
    for y in [int(year)] if year else years:
        if not MINYEAR <= y < MAXYEAR or month > 12:
            continue
        if not month:
            yield date(y, 1, 1).toordinal(), date(y, 12, 31).toordinal()
        elif not day:
            yield date(y, month, 1).toordinal(), date(y + month // 12, month % 12 + 1, 1).toordinal() - 1
        elif 1 <= int(day) <= (date(y + month // 12, month % 12 + 1, 1) - timedelta(1)).day:
            ordinal = date(y, month, int(day)).toordinal()
            yield ordinal, ordinal


def _relative(text: str, asked_on: int) -> Iterator[Span]:
    """Yield the dates that are told from the day of asking."""
    if _YESTERDAY.search(text):
        yield asked_on - 1, asked_on - 1
    for match in _AGO.finditer(text):
        if not text[: match.start()].endswith(("how many ", "how many")):
            yield _ago(int(match["n"]) if match["n"].isdigit() else _NUMBERS[match["n"]], match["unit"], asked_on)
    for match in _HAN_AGO.finditer(text):
        n = int(match["n"]) if match["n"].isdigit() else _HAN_NUMBERS[match["n"]]
        yield _ago(n, _HAN_UNITS[match["unit"]], asked_on)
    for match in _LAST.finditer(text):
        yield _last(match["what"] or match["han"], asked_on)


def _ago(n: int, unit: str, asked_on: int) -> Span:
    """Return the span `n` units before, somewhat wider for longer units, as people speak."""
    middle, slack = asked_on - round(n * _DAYS_OF[unit]), _SLACK_OF[unit]
    return middle - slack, middle + slack


def _last(what: str, asked_on: int) -> Span:
    """Return the span of the last weekday or weekend, yesterday, or the day before."""
    if what in ("昨天", "前天"):
        day = asked_on - (1 if what == "昨天" else 2)
        return day, day
    is_weekday = what in _WEEKDAYS
    first = _WEEKDAYS.index(what) if is_weekday else 5
    back = (date.fromordinal(asked_on).weekday() - first) % 7 or 7
    return asked_on - back, asked_on - back + (0 if is_weekday else 1)
