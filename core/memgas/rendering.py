"""What a terminal shows, and what a machine reads: results as text and as JSON, progress on stderr."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import click

from memgas.types import JSON, Evidence, Hit, Route

Item = TypeVar("Item")

MAX_LINES = 3
"""Most lines that one turn takes on a terminal."""


def hit_lines(rank: int, hit: Hit, shown: Iterable[Evidence], *, width: int) -> Iterator[str]:
    """Yield the lines that show one hit: score, day, session, then turns of its evidence.

    Parameters
    ----------
    rank
        From 1.
    hit
        What was found.
    shown
        The turns to show; those that only give context are dimmed.
    width
        Columns of the terminal.
    """
    day = hit.happened_at.strftime("%Y-%m-%d")
    score = click.style(f"{hit.score:.2f}", bold=True)
    yield f"  {rank}. {score} {_meter(hit.score)}  {day}  {hit.session_id}"
    for evidence in shown:
        lines = wrap(f"{evidence.turn.speaker}: {evidence.turn.text}", width - 7, MAX_LINES)
        yield from ("       " + click.style(line, dim=evidence.similarity is None) for line in lines)


def router_line(routes: Sequence[Route]) -> str:
    """Return one line with the weight and the entropy of each granularity, as far as it has one."""
    return "  ".join(
        f"{route.granularity.value} {route.weight:.0%}" + ("" if route.entropy is None else f" H {route.entropy:.1f}")
        for route in routes
    )


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


def wrap(text: str, width: int, max_lines: int) -> list[str]:
    """Break a text into lines of `width` columns, between words where there are some; the rest becomes an ellipsis."""
    lines: list[str] = []
    rest = " ".join(text.split())
    while rest and len(lines) < max_lines:
        cut = _fitting(rest, width)
        lines.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    if rest:
        lines[-1] = lines[-1][: _fitting(lines[-1], width - 1)] + "…"
    return lines


def _fitting(text: str, width: int) -> int:
    """Return how many characters fit into `width` columns, whole words if there is a space in the last third."""
    used = 0
    for position, char in enumerate(text):
        used += columns(char)
        if used > width:
            space = text.rfind(" ", position * 2 // 3, position + 1)
            return space if space > 0 else max(1, position)
    return len(text)


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


def _meter(score: float) -> str:
    """Return a bar of five cells."""
    filled = round(5 * score)
    return "▮" * filled + "▯" * (5 - filled)
