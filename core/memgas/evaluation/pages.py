"""A report as Markdown, as JSON, and as one HTML page with plots."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memgas.errors import InvalidInputError
from memgas.evaluation.metrics import measure_names
from memgas.evaluation.plots import COLOURS, bar_plot, difference_plot, line_plot
from memgas.evaluation.report import PROPOSED, MethodResult, Report
from memgas.types import JSON

_MOST_BARS = 5
_FIRST = ("memgas", "zsum", "bm25", "rrf", "dense", "paper", "oracle-granularity", "hybrid")
_ABLATED = "no-"

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 780px; margin: 2.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; } p { margin: .3rem 0; }
table { border-collapse: collapse; font-size: 13px; margin: .6rem 0; } th, td { padding: .2rem .55rem; text-align: right; }
th:first-child, td:first-child { text-align: left; } tr:nth-child(even) { background: #f5f6f8; } svg { max-width: 100%; height: auto; }
figure { margin: .8rem 0; overflow-x: auto; }
"""


def write_report(report: Report, path: str | Path, *, curve: str = "") -> None:
    """Write a report to a file whose ending says how: `.md`, `.json` or `.html`.

    Parameters
    ----------
    report
        What was found.
    path
        Where to; overwritten.
    curve
        Name of a setting: the rows `curve=value` are drawn as a line over its values.

    Raises
    ------
    InvalidInputError
        The ending is another one, or the file cannot be written.
    """
    write_page(
        path, report.as_dict(), as_markdown=lambda: markdown(report), as_html=lambda: html(report, curve=curve)
    )  # fmt: skip


def write_page(
    path: str | Path, report: dict[str, JSON], *, as_markdown: Callable[[], str], as_html: Callable[[], str]
) -> None:
    """Write a report to a file in the form that its ending names; raises as `write_report`."""
    target = Path(path)
    check_ending(target)
    if target.suffix == ".json":
        text = json.dumps(report, ensure_ascii=False, indent=2) + "\n"
    else:
        text = as_markdown() if target.suffix == ".md" else as_html()
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{target}: expected a place that can be written to; {error.strerror}") from None


def check_ending(path: Path) -> None:
    """Raise unless a report can be written to a file of this name."""
    if path.suffix not in (".md", ".json", ".html"):
        raise InvalidInputError(f"a report is written to a file that ends in .md, .json or .html; got {path.name!r}")


def markdown(report: Report) -> str:
    """Return tables in percent."""
    lines = [f"# {report.dataset}", "", *(f"- {fact}" for fact in _facts(report))]
    for title, mask in _titled_slices(report):
        lines += ["", f"## {title}", "", *markdown_table(list(_table(report, mask)))]
    for title, mask in _compared_slices(report):
        lines += ["", f"## {PROPOSED} above the others, in points: {title}", ""]
        lines += markdown_table(list(_differences(report, mask)))
    return "\n".join(lines) + "\n"


def html(report: Report, *, curve: str = "") -> str:
    """Return a page that needs nothing else: tables and plots. `curve` as in `write_report`."""
    parts = [f"<h1>{escape(report.dataset)}</h1>", *(f"<p>{escape(fact)}</p>" for fact in _facts(report))]
    for title, figure in _figures(report, curve):
        parts += [f"<h2>{escape(title)}</h2>", f"<figure>{figure}</figure>"]
    for title, mask in _titled_slices(report):
        parts += [f"<h2>{escape(title)}</h2>", html_table(list(_table(report, mask)))]
    for title, mask in _compared_slices(report):
        parts += [f"<h2>{PROPOSED} above the others, in points: {escape(title)}</h2>"]
        parts.append(html_table(list(_differences(report, mask))))
    return html_page(report.dataset, parts)


def html_page(title: str, parts: Sequence[str]) -> str:
    """Return a whole page of these parts, which are HTML already."""
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table; the first row is its head."""
    head, *body = rows
    return [_row(head), "|---|" + "---:|" * (len(head) - 1), *map(_row, body)]


def _facts(report: Report) -> Iterator[str]:
    yield (
        f"{len(report.questions):,} questions with evidence ({report.n_left_out:,} without left out), "
        f"{report.n_dialogues:,} dialogues, {report.n_sessions:,} sessions"
    )
    yield f"embedder {report.embedder}, summaries {report.summaries}; no language model is asked"
    yield f"full history: {report.history_tokens:,.0f} tokens a question (estimated)"
    yield from (f"{row.name} is its strongest form by recall_all: {row.chosen}" for row in report.methods if row.chosen)


def _titled_slices(report: Report) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    titles = {"overall": "Overall", "by_type": "Type {}", "by_n_gold": "Gold sessions: {}"}
    for (group, name), mask in report.slices().items():
        yield f"{titles[group].format(name)}, n = {int(mask.sum()):,}", mask


def _compared_slices(report: Report) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    if report.is_compared:
        yield from _titled_slices(report)


def _table(report: Report, mask: NDArray[np.bool_]) -> Iterator[list[str]]:
    names = measure_names(report.ks)
    shown = [f"{kind}@{k}" for kind in report.shown for k in report.ks] + ["mrr"]
    columns = [names.index(name) for name in shown]
    yield ["", *shown, f"tokens@{report.ks[0]}"]
    for row in report.methods:
        means = 100.0 * row.measures[mask][:, columns].mean(axis=0)
        yield [row.name, *(f"{value:.1f}" for value in means), f"{row.context_tokens[mask][:, 0].mean():,.0f}"]


def _differences(report: Report, mask: NDArray[np.bool_]) -> Iterator[list[str]]:
    measures = [f"recall_all@{k}" for k in report.ks]
    yield ["", *measures]
    for other, gaps in report.differences(PROPOSED, measures, mask).items():
        cells = [f"{100 * g.mean:+.1f} [{100 * g.low:+.1f}, {100 * g.high:+.1f}]" for g in gaps.values()]
        yield [other, *cells]


def _figures(report: Report, curve: str) -> Iterator[tuple[str, str]]:
    names = measure_names(report.ks)
    recalls = [names.index(f"recall_all@{k}") for k in report.ks]
    points = [row for row in report.methods if curve and row.name.startswith(f"{curve}=")]
    if points:
        values = [100.0 * row.measures[:, recalls].mean(axis=0) for row in points]
        lines = {f"recall_all@{k}": [float(value[i]) for value in values] for i, k in enumerate(report.ks)}
        yield f"recall_all by {curve}", line_plot(lines, [row.name.partition("=")[2] for row in points], unit=curve)
        return
    drawn = _drawn(report.methods)
    by_k = {row.name: [float(v) for v in 100.0 * row.measures[:, recalls].mean(axis=0)] for row in drawn}
    yield "recall_all by k", line_plot(by_k, [str(k) for k in report.ks], unit="k")
    by_type = {
        (f"type {name}" if name else group): {
            row.name: float(100.0 * row.measures[mask, recalls[0]].mean()) for row in drawn[:_MOST_BARS]
        }
        for (group, name), mask in report.slices().items()
        if group in ("overall", "by_type")
    }
    yield f"recall_all@{report.ks[0]} by type", bar_plot(by_type)
    if report.is_compared:
        measure = f"recall_all@{report.ks[0]}"
        for title, mask in _titled_slices(report):
            if title.startswith(("Overall", "Gold sessions: 2")):
                found = report.differences(PROPOSED, [measure], mask)
                gaps = {other: gap[measure] for other, gap in found.items()}
                yield f"{PROPOSED} above the others, {measure}, points. {title}", difference_plot(gaps)


def _drawn(methods: Sequence[MethodResult]) -> list[MethodResult]:
    """Return the rows to draw: those that readers look for first, no more than there are colours."""
    whole = [row for row in methods if not row.name.startswith(_ABLATED)] or list(methods)
    known = [row for name in _FIRST for row in whole if row.name == name]
    return (known + [row for row in whole if row.name not in _FIRST])[: len(COLOURS)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain texts; the first row is its head."""
    head, *body = rows
    lines = ["<table><tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body]
    return "\n".join([*lines, "</table>"])
