"""The language model's verdict on the hits, and what remains of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memgas.replies import json_values, strip_thinking

if TYPE_CHECKING:
    from memgas.types import JSON, Hit

_FENCED = re.compile(r"```[a-zA-Z]*\s*(\[[^`]*\])\s*```")
_ALONE = re.compile(r"^[ \t]*(\[[^\[\]]*\])[ \t]*$", re.MULTILINE)
_MAX_REPLY = 200_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the model decided.

    Attributes
    ----------
    kept
        Numbers to keep, from 1, ascending; empty is "none of them". None: there is no verdict, everything stays.
    note
        What was wrong with the reply, in words; empty when nothing was.
    """

    kept: tuple[int, ...] | None
    note: str = ""


def parse_verdict(reply: str, *, n_items: int) -> Verdict:
    """Read a verdict from a language model's answer, however it is wrapped.

    A list in a fence or on a line of its own counts before lists in prose; of several in prose, every number is kept.

    Parameters
    ----------
    reply
        A JSON list of numbers somewhere. `[]` is believed.
    n_items
        Items are numbered from 1 to this; other numbers are ignored.

    Returns
    -------
    Verdict
        Without a verdict when the reply is empty, has no list, or only unknown numbers.
    """
    said = strip_thinking(reply[:_MAX_REPLY])
    if not said.strip():
        return Verdict(None, "the filter's reply was empty; everything was kept")
    lists = _lists(said)
    if not lists:
        return Verdict(None, f"the filter's reply had no list of numbers; everything was kept: {said.strip()[:80]!r}")
    items = [item for found in lists for item in found]
    numbers = {number for item in items for number in _numbers(item)}
    known = tuple(sorted(number for number in numbers if 1 <= number <= n_items))
    if items and not known:
        return Verdict(
            None, f"the filter named no item from 1 to {n_items}; everything was kept: {said.strip()[:80]!r}"
        )
    unknown = sorted(numbers - set(known))
    return Verdict(known, f"the filter named unknown items: {', '.join(map(str, unknown[:5]))}" if unknown else "")


def apply_verdict(hits: Sequence[Hit], verdict: Verdict) -> tuple[Hit, ...]:
    """Return the hits that stay, the items being the hits in order; order and scores never change."""
    if verdict.kept is None:
        return tuple(hits)
    kept = set(verdict.kept)
    return tuple(hit for number, hit in enumerate(hits, start=1) if number in kept)


def _lists(said: str) -> list[Sequence[JSON]]:
    """Return the lists that count."""
    for pattern in (_FENCED, _ALONE):
        for text in reversed(pattern.findall(said)):
            whole = _parsed(text)
            if whole:
                return whole
    return _parsed(said)


def _parsed(text: str) -> list[Sequence[JSON]]:
    values = json_values(text, "[")
    return [value for value in values if isinstance(value, Sequence) and not isinstance(value, str)]


def _numbers(item: JSON) -> Iterator[int]:
    """Yield the item numbers that one element of the list stands for."""
    match item:
        case bool():
            return
        case int():
            yield item
        case float() if item.is_integer():
            yield int(item)
        case str() if re.fullmatch(r"\s*#?\d{1,6}\s*", item):
            yield int(item.strip().lstrip("#"))
        case Mapping():
            yield from (n for key in ("number", "n", "id") for n in _numbers(item.get(key)))
        case list():
            yield from (n for inner in item for n in _numbers(inner))
