"""Plots as SVG, by hand: a page that holds them needs no script, no font and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from memgas.evaluation.metrics import Interval

COLOURS = ("#1f5fa8", "#d1662b", "#3a8f5c", "#8a5aa8", "#b23a48", "#5b6770", "#c79a1d", "#2aa0a4", "#9a6b4b", "#7a8f2e")

_WIDTH = 720
_LEFT = 150
_ROW = 24
_TEXT = 'font-family="system-ui, sans-serif" font-size="12"'
_GRID = 'stroke="#e2e5e9"'


def line_plot(lines: Mapping[str, Sequence[float]], ticks: Sequence[str], *, unit: str) -> str:
    """Draw one line a name over equally spaced ticks.

    Parameters
    ----------
    lines
        Name to its values, one a tick, in percent. The first one is drawn thick.
    ticks
        Labels of the horizontal axis.
    unit
        What the horizontal axis shows.
    """
    height, left, right, top, bottom = 340, 48, 190, 16, 42
    low, high = _range([value for values in lines.values() for value in values])
    across = (_WIDTH - left - right) / max(1, len(ticks) - 1)

    def at(i: int, value: float) -> tuple[float, float]:
        return left + i * across, top + (high - value) / (high - low) * (height - top - bottom)

    parts = [
        f'<line x1="{left}" x2="{_WIDTH - right}" y1="{at(0, mark)[1]:.1f}" y2="{at(0, mark)[1]:.1f}" {_GRID}/>'
        + _text(left - 8, at(0, mark)[1] + 4, f"{mark:g}", "end")
        for mark in _marks(low, high)
    ]
    parts += [_text(at(i, low)[0], height - bottom + 18, tick, "middle") for i, tick in enumerate(ticks)]
    parts.append(_text((left + _WIDTH - right) / 2, height - 6, unit, "middle"))
    labels = _apart([(at(len(ticks) - 1, values[-1])[1], name) for name, values in lines.items()])
    for number, (name, values) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(i, value) for i, value in enumerate(values)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{1.6 if number else 3}"/>'
        )
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        label = f"{name} {values[-1]:.1f}"
        parts.append(_text(_WIDTH - right + 10, labels[name] + 4, label, "start", colour))
    return _svg(height, parts)


def bar_plot(groups: Mapping[str, Mapping[str, float]]) -> str:
    """Draw one group of horizontal bars a label, a bar a name, in percent; the same name has the same colour."""
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    thick = 11
    parts: list[str] = []
    y = 34.0
    for number, name in enumerate(names):
        x = _LEFT + number * 105
        parts.append(f'<rect x="{x}" y="6" width="11" height="11" fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(_text(x + 16, 16, name, "start"))
    across = (_WIDTH - _LEFT - 60) / 100
    for label, bars in groups.items():
        parts.append(_text(_LEFT - 10, y + thick * len(bars) / 2 + 4, label, "end"))
        for name, value in bars.items():
            colour = COLOURS[names.index(name) % len(COLOURS)]
            parts.append(
                f'<rect x="{_LEFT}" y="{y:.1f}" width="{value * across:.1f}" height="{thick - 2}" fill="{colour}"/>'
            )
            parts.append(_text(_LEFT + value * across + 5, y + thick - 2, f"{value:.1f}", "start", size=10))
            y += thick
        y += 12
    return _svg(int(y), parts)


def difference_plot(gaps: Mapping[str, Interval]) -> str:
    """Draw a mean and its interval a name, in points, about a line at 0; green above it, red below, grey if it holds 0."""
    bounds = [100 * value for gap in gaps.values() for value in (gap.low, gap.high)]
    low, high = _range([0.0, *bounds])
    across = (_WIDTH - _LEFT - 80) / (high - low)

    def at(value: float) -> float:
        return _LEFT + (value - low) * across

    bottom = 12 + _ROW * len(gaps)
    parts = [
        f'<line x1="{at(mark):.1f}" x2="{at(mark):.1f}" y1="8" y2="{bottom}" {_GRID}/>'
        + _text(at(mark), bottom + 16, f"{mark:+g}" if mark else "0", "middle")
        for mark in _marks(low, high)
    ]
    parts.append(f'<line x1="{at(0):.1f}" x2="{at(0):.1f}" y1="8" y2="{bottom}" stroke="#444"/>')
    for number, (name, gap) in enumerate(gaps.items()):
        y = 24 + _ROW * number
        colour = "#3a8f5c" if gap.low > 0 else "#b23a48" if gap.high < 0 else "#7b8087"
        mean, least, most = (at(100 * value) for value in (gap.mean, gap.low, gap.high))
        parts.append(_text(_LEFT - 10, y + 4, name, "end"))
        parts.append(f'<line x1="{least:.1f}" x2="{most:.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<circle cx="{mean:.1f}" cy="{y}" r="4.5" fill="{colour}"/>')
        parts.append(_text(_WIDTH - 8, y + 4, f"{100 * gap.mean:+.1f}", "end"))
    return _svg(bottom + 24, parts)


def _svg(height: int, parts: Sequence[str]) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img">\n{inside}\n</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333", *, size: int = 12) -> str:
    style = _TEXT.replace('"12"', f'"{size}"')
    return f'<text x="{x:.1f}" y="{y:.1f}" {style} text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return bounds with some room, never of no width."""
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def _marks(low: float, high: float) -> list[float]:
    """Return round numbers between two bounds, about five."""
    wanted = (high - low) / 5
    size = 10.0 ** len(str(int(wanted))) / 10 if wanted >= 1 else 0.1
    step = next((size * n for n in (1, 2, 5, 10) if size * n >= wanted), size * 10)
    first = -int(-low // step)
    return [round(i * step, 6) for i in range(first, int(high // step) + 1)]


def _apart(labels: Sequence[tuple[float, str]]) -> dict[str, float]:
    """Move labels down until none covers another."""
    placed: dict[str, float] = {}
    last = float("-inf")
    for y, name in sorted(labels):
        last = max(y, last + 15)
        placed[name] = last
    overflow = max(0.0, last - 320)
    return {name: y - overflow for name, y in placed.items()}
