"""What a terminal shows, and what a machine reads: results as text and as JSON, progress on stderr."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TypeVar

import click

from memgas.errors import InvalidInputError
from memgas.types import JSON, Evidence, Hit, Route

Item = TypeVar("Item")


def plain(value: object) -> JSON:
    """Return a result as one JSON value: dataclasses as objects, times in ISO 8601.

    Raises
    ------
    InvalidInputError
        It holds something that has no JSON form.
    """
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    raise InvalidInputError(f"a {type(value).__name__} has no JSON form")


def hit_lines(rank: int, hit: Hit, *, width: int, neighbours: bool) -> Iterator[str]:
    """Yield the lines that show one hit: score, day, session, then its evidence.

    Parameters
    ----------
    rank
        From 1.
    hit
        What was found.
    width
        Columns of the terminal; longer lines are cut.
    neighbours
        Whether the turns around the matching ones are shown too.
    """
    day = hit.happened_at.strftime("%Y-%m-%d")
    yield f"  {rank}. {click.style(f'{hit.score:.2f}', bold=True)} {_meter(hit.score)}  {day}  {hit.session_id}"
    for evidence in hit.evidence:
        if evidence.similarity is not None or neighbours:
            yield _evidence_line(evidence, width)


def router_line(routes: Sequence[Route]) -> str:
    """Return one line with the weight that each granularity got."""
    return "  ".join(f"{route.granularity.value} {route.weight:.0%}" for route in routes)


def mapping_lines(data: JSON, *, indent: int = 0) -> Iterator[str]:
    """Yield `name  value` lines of a JSON object, nested ones indented."""
    if not isinstance(data, Mapping):
        yield f"{'  ' * indent}{data}"
        return
    longest = max((columns(name) for name in data), default=0)
    for name, value in data.items():
        label = f"{'  ' * indent}{name.replace('_', ' ')}"
        if isinstance(value, Mapping) and value:
            yield label
            yield from mapping_lines(value, indent=indent + 1)
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            yield f"{label}{' ' * (longest - columns(name))}  {'-' if shown in (None, '') else shown}"


def columns(text: str) -> int:
    """Return how many terminal columns a text takes: Chinese characters take two."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def clip(text: str, width: int) -> str:
    """Return a text on one line, cut to `width` columns with an ellipsis."""
    line = " ".join(text.split())
    if columns(line) <= width:
        return line
    kept, used = [], 1
    for char in line:
        used += columns(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def terminal_width() -> int:
    """Return the columns to write on: the terminal's, within reason."""
    return min(max(shutil.get_terminal_size().columns, 60), 110)


def progress(items: Sequence[Item], label: str) -> AbstractContextManager[Iterable[Item]]:
    """Return a progress bar on stderr around items that take long."""
    return click.progressbar(items, label=label, file=sys.stderr)


@contextmanager
def steps(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """Yield what is told `(what, done, total)` and shows it as a progress bar on stderr."""
    with click.progressbar(length=1, label=label, file=sys.stderr, item_show_func=lambda what: what) as bar:

        def told(what: str, done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos, what)

        yield told


def _evidence_line(evidence: Evidence, width: int) -> str:
    line = clip(f"{evidence.turn.speaker}: {evidence.turn.text}", width - 7)
    return "       " + (line if evidence.similarity is not None else click.style(line, dim=True))


def _meter(score: float) -> str:
    """Return a bar of five cells."""
    filled = round(5 * score)
    return "▮" * filled + "▯" * (5 - filled)
