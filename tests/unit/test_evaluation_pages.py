"""Reports as pages, and several data sets as one."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memgas.errors import InvalidInputError
from memgas.evaluation import (
    CachedEmbedder,
    Report,
    evaluate,
    evaluate_several,
    html,
    markdown,
    pool,
    read_locomo,
    read_longmemeval,
    write_report,
)
from memgas.evaluation.estimating import estimate
from memgas.evaluation.metrics import Interval
from memgas.evaluation.plots import bar_plot, difference_plot, line_plot
from memgas.testing.hash_embedder import HashEmbedder

FIXTURES = Path(__file__).parent.parent / "fixtures"
LOCOMO = read_locomo(FIXTURES / "locomo_tiny.json")
LONGMEMEVAL = read_longmemeval(FIXTURES / "longmemeval_tiny.json")
METHODS = ("bm25", "zsum", "memgas", "no-lexical")


@pytest.fixture(scope="module")
def report() -> Report:
    """Evaluate a few methods on LoCoMo's format."""
    return evaluate(LOCOMO, METHODS, embedder=HashEmbedder(), summaries="from-file")


@pytest.fixture(scope="module")
def pooled() -> Report:
    """Evaluate them on two data sets at once."""
    embedder = CachedEmbedder(HashEmbedder())
    return evaluate_several([LOCOMO, LONGMEMEVAL], METHODS, embedder=embedder, summaries="from-file")


class _Tags(HTMLParser):
    """Checks that what is opened is closed, and gathers what would be fetched."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        """Match it."""
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Nothing stays open."""


def test_the_page_needs_nothing_else(report: Report) -> None:
    """One well-formed page with plots and every table, which fetches nothing and has no script."""
    page = html(report)
    tags = _Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.fetched == []
    assert "<script" not in page
    plots = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(plots) == 4  # by k, by type, differences on all questions and on those with several gold sessions
    for plot in plots:
        ET.fromstring(plot)
    for name in METHODS:
        assert f"<td>{name}</td>" in page


def test_markdown_has_the_numbers_of_the_report(report: Report) -> None:
    """Its cells are the means in percent; every row has as many cells as its head."""
    lines = markdown(report).splitlines()
    head = next(line for line in lines if line.startswith("|  |"))
    row = next(line for line in lines if line.startswith("| memgas |"))
    cells = dict(zip(head.split("|")[2:-1], row.split("|")[2:-1], strict=True))
    found = {name.strip(): value.strip() for name, value in cells.items()}
    whole: Any = report.as_dict()
    assert float(found["recall_all@3"]) == pytest.approx(
        100 * whole["methods"]["memgas"]["overall"]["recall_all@3"], abs=0.05
    )
    assert {line.count("|") for line in lines[lines.index(head) : lines.index(head) + 6]} == {head.count("|")}


@pytest.mark.parametrize("ending", [".md", ".json", ".html"])
def test_the_ending_says_how(report: Report, ending: str, tmp_path: Path) -> None:
    """A report is written as its file's name says."""
    path = tmp_path / f"report{ending}"
    write_report(report, path)
    text = path.read_text("utf-8")
    assert "memgas" in text
    if ending == ".json":
        assert json.loads(text) == report.as_dict()


def test_another_ending_or_place_is_refused(report: Report, tmp_path: Path) -> None:
    """What cannot be written is told, with what would do."""
    with pytest.raises(InvalidInputError, match=r"\.md, \.json or \.html; got 'report\.pdf'"):
        write_report(report, tmp_path / "report.pdf")
    with pytest.raises(InvalidInputError, match="place that can be written"):
        write_report(report, tmp_path / "nowhere" / "report.md")


# pooling


def test_pooled_counts_every_question_once(pooled: Report) -> None:
    """Questions of all data sets, a slice for each; the mean over all is that over the questions."""
    single = [
        evaluate(LOCOMO, METHODS, embedder=HashEmbedder(), summaries="from-file"),
        evaluate(LONGMEMEVAL, METHODS, embedder=HashEmbedder(), summaries="extractive"),
    ]
    assert len(pooled.questions) == sum(len(report.questions) for report in single)
    assert {key for key in pooled.slices() if key[0] == "by_type"} == {
        ("by_type", "locomo"),
        ("by_type", "longmemeval"),
    }
    for name in METHODS:
        together = np.vstack([report.method(name).measures for report in single])
        np.testing.assert_allclose(pooled.method(name).measures, together)
    assert pooled.dataset == "locomo + longmemeval"
    assert "summaries from-file, extractive" in pooled.text()
    assert len(pooled.method("memgas").ranks) == len(pooled.questions)
    assert max(map(len, pooled.text().splitlines())) <= 110


def test_the_ablation_of_the_pooled_has_intervals_by_slice(pooled: Report) -> None:
    """Each part's difference stands with its interval for all questions, each data set and several gold sessions."""
    found: Any = pooled.as_dict()["differences"]
    for where in ("overall", "by_type locomo", "by_type longmemeval", "by_n_gold 2+"):
        mean, low, high = found[where]["no-lexical"]["recall_all@3"]
        assert low <= mean <= high
    assert {"recall@5", "ndcg@3"} <= set(found["overall"]["zsum"])


def test_only_alike_reports_are_pooled(report: Report, pooled: Report) -> None:
    """Nothing, one data set twice, or other methods cannot be pooled."""
    other = evaluate(LONGMEMEVAL, ["bm25"], embedder=HashEmbedder())
    for reports in ([], [report, report], [report, other]):
        with pytest.raises(InvalidInputError, match=r"to pool|different data sets"):
            pool(reports)


# the estimate


def test_the_estimate_counts_what_no_cache_holds(tmp_path: Path) -> None:
    """Before a run there are all exchanges and sessions; afterwards, with the same folder, nothing is left."""
    embedder = CachedEmbedder(HashEmbedder(), folder=tmp_path)
    before = estimate([LOCOMO], embedder)
    assert before.n_texts > 12
    assert before.n_chars > 1_000
    assert before.seconds > 0
    assert "to embed with hash" in before.text("hash")
    evaluate(LOCOMO, ["session", "turn"], embedder=embedder)
    embedder.close()
    warm = CachedEmbedder(HashEmbedder(), folder=tmp_path)
    assert estimate([LOCOMO], warm).n_texts == 0
    assert "nothing to embed" in estimate([LOCOMO], warm).text("hash")
    warm.close()


# plots

PERCENT = st.floats(0, 100)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(NAMES, st.lists(PERCENT, min_size=3, max_size=3), min_size=1, max_size=12))
def test_plots_are_always_well_formed(lines: dict[str, list[float]]) -> None:
    """Whatever names and values: valid SVG, every name shown, every coordinate finite."""
    gaps = {name: Interval(v[0] / 100 - 0.5, min(v) / 100 - 0.5, max(v) / 100 - 0.5) for name, v in lines.items()}
    bars = {name: {"a": values[0], "b": values[1]} for name, values in lines.items()}
    for plot in (line_plot(lines, ["1", "2", "3"], unit="k"), bar_plot(bars), difference_plot(gaps)):
        root = ET.fromstring(plot)
        shown = "".join(root.itertext())
        assert all(name in shown for name in lines)
        drawn = " ".join(value for element in root.iter() for value in element.attrib.values())
        assert "nan" not in drawn
        assert "inf" not in drawn


def test_a_difference_is_coloured_by_its_interval() -> None:
    """Green above 0, red below, grey where the interval holds 0."""
    plot = difference_plot(
        {"up": Interval(0.1, 0.05, 0.2), "down": Interval(-0.1, -0.2, -0.05), "open": Interval(0.1, -0.1, 0.2)}
    )
    colours = re.findall(r'<circle[^>]*fill="(#\w+)"', plot)
    assert len(set(colours)) == 3
