"""Answers as Markdown, as JSON, and as one HTML page with a plot and every answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from memgas.evaluation.answer_report import MEASURES, Answered, AnswerReport
from memgas.evaluation.pages import html_page, html_table, markdown_table, write_page
from memgas.evaluation.plots import bar_plot
from memgas.types import JSON

_NAMES = {"judge": "judge", "f1": "F1", "bleu4": "BLEU-4", "rouge_l": "ROUGE-L", "bertscore": "BERTScore"}


def write_answers(report: AnswerReport, path: str | Path) -> None:
    """Write what came out of answering to a file whose ending says how: `.md`, `.json` or `.html`.

    Raises
    ------
    InvalidInputError
        The ending is another one, or the file cannot be written.
    """
    write_page(
        path, report.as_dict(), as_markdown=lambda: answers_markdown(report), as_html=lambda: answers_html(report)
    )  # fmt: skip


def answers_markdown(report: AnswerReport) -> str:
    """Return the tables, in percent with 95 % intervals."""
    lines = [f"# {report.dataset}", "", *(f"- {fact}" for fact in report.facts())]
    for title, rows in _tables(report):
        lines += ["", f"## {title}", "", *markdown_table(rows)]
    return "\n".join(lines) + "\n"


def answers_html(report: AnswerReport) -> str:
    """Return a page that needs nothing else: facts, a plot, the tables, and every question with its answers."""
    parts = [f"<h1>{escape(report.dataset)}</h1>", *(f"<p>{escape(fact)}</p>" for fact in report.facts())]
    overall = {method: slices["overall"] for method, slices in report.means().items()}
    drawn = {
        _NAMES[measure]: {name: 100 * mean for name, means in overall.items() if (mean := _mean(means, measure)) is not None}
        for measure in MEASURES
    }  # fmt: skip
    if drawn := {measure: bars for measure, bars in drawn.items() if bars}:
        parts += ["<h2>Overall, in percent</h2>", f"<figure>{bar_plot(drawn)}</figure>"]
    for title, rows in _tables(report):
        parts += [f"<h2>{escape(title)}</h2>", html_table(rows)]
    parts += ["<h2>Every answer</h2>", html_table(list(_answers(report.answers)))]
    return html_page(report.dataset, parts)


def _tables(report: AnswerReport) -> Iterator[tuple[str, list[list[str]]]]:
    means = report.means()
    shown = [name for name in MEASURES if any(name in found for slices in means.values() for found in slices.values())]
    for title in dict.fromkeys(name for slices in means.values() for name in slices):
        rows = [["", *(_NAMES[name] for name in shown), "context tokens", "n"]]
        for method, slices in means.items():
            if (found := slices.get(title)) is not None:
                cells = [_cell(found, name) for name in shown]
                rows.append([method, *cells, f"{found['context_tokens']:,.0f}", f"{found['n']:,}"])
        yield title, rows


def _cell(found: dict[str, JSON], measure: str) -> str:
    entry = found.get(measure)
    if not isinstance(entry, dict):
        return "-"
    low, high = entry["interval"]
    return f"{100 * entry['mean']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _mean(found: dict[str, JSON], measure: str) -> float | None:
    entry = found.get(measure)
    return float(entry["mean"]) if isinstance(entry, dict) else None


def _answers(answers: Sequence[Answered]) -> Iterator[list[str]]:
    yield ["question", "type", "expected", "method", "answer", "judge", "F1"]
    for one in sorted(answers, key=lambda answer: (answer.dialogue_id, answer.question_id, answer.method)):
        verdict = "-" if one.judge is None else ("right" if one.judge else "wrong")
        f1 = "-" if one.f1 is None else f"{100 * one.f1:.0f}"
        yield [one.question, one.type, one.expected or "(nothing was said)", one.method, one.answer, verdict, f1]
