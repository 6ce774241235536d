"""The commands that measure: `memgas evaluate | sweep | answer`. Only they know the evaluation; `cli.py` adds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import click

from memgas import rendering

if TYPE_CHECKING:
    from memgas.evaluation import CachedEmbedder, Dataset, Report

Command = TypeVar("Command", bound=Callable[..., object])
Summaries = Literal["extractive", "from-file"]


def data_options(command: Command) -> Command:
    """Add what every command that reads a data set has in common."""
    options = [
        click.argument("dataset"),
        click.argument("files", nargs=-1, required=True, metavar="FILE..."),
        click.option("--embedder", default="fast-use", show_default=True, metavar="NAME", help="Embedder to use."),
        click.option(
            "--summaries", type=click.Choice(["extractive", "from-file"]), default="extractive", show_default=True,
            help="What MemGAS makes without a language model, or the data set's own.",
        ),
        click.option("--sample", type=int, metavar="N", help="Ask only N questions, each type in proportion."),
        click.option("--seed", default=0, show_default=True, help="Of the sample."),
        click.option(
            "--cache", type=click.Path(file_okay=False, path_type=Path),
            help="Folder to keep vectors in, for the next run.",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def report_options(command: Command) -> Command:
    """Add where the numbers go."""
    out = click.option(
        "--out", multiple=True, metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
        help="Write the report to FILE.md, FILE.json or FILE.html (with plots); several times if wanted.",
    )  # fmt: skip
    as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
    return out(as_json(command))


@click.command()
@data_options
@click.option(
    "--methods", default="default", show_default=True, metavar="A,B",
    help="Methods to compare, or groups of them: default, ablation, all.",
)  # fmt: skip
@report_options
def evaluate(
    *, dataset: str, files: tuple[str, ...], embedder: str, summaries: Summaries, sample: int | None, seed: int,
    cache: Path | None, methods: str, out: tuple[Path, ...], as_json: bool,
) -> None:  # fmt: skip
    """Measure how well sessions come back, on FILE in the format of DATASET.

    DATASET is locomo, longmemeval, madial, long-mt-bench, own (FILE of sessions, FILE of questions), or pooled for
    several at once: `pooled locomo=FILE longmemeval=FILE`.
    """
    from memgas import evaluation
    from memgas.evaluation.pages import check_ending

    for path in out:
        check_ending(path)
    entries = evaluation.methods_named([name.strip() for name in methods.split(",")])
    asked = _read(dataset, files, sample, seed)
    with closing(_embedder(embedder, cache)) as cached:
        click.echo(evaluation.estimate(asked, cached).text(cached.name), err=True)
        with rendering.steps("evaluating") as told:
            report = evaluation.evaluate_several(asked, entries, embedder=cached, summaries=summaries, progress=told)
    _show(report, out, as_json=as_json)


@click.command()
@data_options
@click.option(
    "--set", "given", multiple=True, metavar="SETTING=A,B",
    help="Values to try of any setting of MemGASConfig; several settings make a grid.",
)  # fmt: skip
@click.option(
    "--preset", "presets", multiple=True, metavar="NAME", help="A grid of the paper: paper-lambda, paper-alpha."
)
@click.option(
    "--base", type=click.Choice(["default", "paper"]), default="default", show_default=True,
    help="What the other settings are.",
)  # fmt: skip
@report_options
def sweep(
    *, dataset: str, files: tuple[str, ...], embedder: str, summaries: Summaries, sample: int | None, seed: int,
    cache: Path | None, given: tuple[str, ...], presets: tuple[str, ...], base: str, out: tuple[Path, ...],
    as_json: bool,
) -> None:  # fmt: skip
    """Measure MemGAS under every combination of some settings, on FILE as of `evaluate`."""
    from memgas import evaluation
    from memgas.config import MemGASConfig
    from memgas.evaluation.pages import check_ending

    for path in out:
        check_ending(path)
    grid = evaluation.parse_grid(given, presets)
    asked = _read(dataset, files, sample, seed)
    config = MemGASConfig.paper() if base == "paper" else MemGASConfig()
    with closing(_embedder(embedder, cache)) as cached:
        click.echo(evaluation.estimate(asked, cached).text(cached.name), err=True)
        with rendering.steps("sweeping") as told:
            report = evaluation.sweep(
                asked, grid, base=config, embedder=cached, summaries=summaries, progress=told
            )  # fmt: skip
    _show(report, out, as_json=as_json, curve=next(iter(grid)) if len(grid) == 1 else "")


def _read(dataset: str, files: tuple[str, ...], sample: int | None, seed: int) -> list[Dataset]:
    """Read the files; a sample is drawn from each data set."""
    from memgas.evaluation import read_files, sample_questions

    found = read_files(dataset, files)
    return found if sample is None else [sample_questions(one, sample, seed=seed) for one in found]


def _embedder(name: str, cache: Path | None) -> CachedEmbedder:
    from memgas.evaluation import CachedEmbedder
    from memgas.models import load_embedder

    return CachedEmbedder(load_embedder(name), folder=cache)


def _show(report: Report, out: tuple[Path, ...], *, as_json: bool, curve: str = "") -> None:
    """Print a report and write it to files."""
    from memgas.evaluation import write_report

    for path in out:
        write_report(report, path, curve=curve)
        click.echo(f"written to {path}", err=True)
    click.echo(json.dumps(report.as_dict(), ensure_ascii=False, indent=2) if as_json else report.text())
