"""The commands that measure: `memgas evaluate | sweep | answer`. Only they know the evaluation; `cli.py` adds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import click

from memgas import rendering

if TYPE_CHECKING:
    from memgas.evaluation import CachedEmbedder, Dataset, Report
    from memgas.evaluation.answer_report import AnswerReport

Command = TypeVar("Command", bound=Callable[..., object])
Summaries = Literal["extractive", "from-file"]

_AT_LEAST_1 = click.IntRange(min=1)
_NOT_NEGATIVE = click.FloatRange(min=0)


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
    _show(report, partial(evaluation.write_report, report), out, as_json=as_json)


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
    curve = next(iter(grid)) if len(grid) == 1 else ""
    _show(report, partial(evaluation.write_report, report, curve=curve), out, as_json=as_json)


@click.command()
@data_options
@click.option("--methods", default="memgas", show_default=True, metavar="A,B", help="Whose context is answered from.")
@click.option("--llm-model", required=True, metavar="NAME", help="Of the answering model, as its server calls it.")
@click.option(
    "--llm-base-url", metavar="URL", help="Of an OpenAI-compatible server, with /v1; the key: OPENAI_API_KEY."
)
@click.option("--judge-model", metavar="NAME", help="Judges; the answering model, when left out.")
@click.option("--judge-base-url", metavar="URL", help="Of the judge's server; the answering model's, when left out.")
@click.option("--no-judge", is_flag=True, help="Measure by overlap alone.")
@click.option("--bertscore", "with_bertscore", is_flag=True, help="Measure by BERTScore too (extra bertscore).")
@click.option("-k", "--top-k", default=5, type=_AT_LEAST_1, show_default=True, help="Most sessions in a context.")
@click.option("--context-tokens", default=2_000, type=_AT_LEAST_1, show_default=True, help="Budget of a context.")
@click.option(
    "--history-tokens", type=_AT_LEAST_1, help="Budget of the full history, the newest first; all, when left out."
)
@click.option("--llm-digests", is_flag=True, help="Let the model write summaries and keywords.")
@click.option("--filter", "is_filtered", is_flag=True, help="Let the model drop hits that do not help.")
@click.option("--concurrency", default=4, type=_AT_LEAST_1, show_default=True, help="Calls at once.")
@click.option(
    "--log", type=click.Path(dir_okay=False, path_type=Path),
    help="Where every call is written: a run that was killed goes on from here and pays no call twice.",
)  # fmt: skip
@click.option("--max-calls", type=_AT_LEAST_1, metavar="N", help="Most calls in the log, earlier runs' included.")
@click.option("--max-cost", type=_NOT_NEGATIVE, metavar="X", help="Most they may cost, in the currency of the prices.")
@click.option(
    "--price-in",
    default=0.0,
    type=_NOT_NEGATIVE,
    metavar="X",
    help="Of a million prompt tokens of the answering model.",
)
@click.option("--price-out", default=0.0, type=_NOT_NEGATIVE, metavar="X", help="Of a million reply tokens of it.")
@click.option(
    "--judge-price-in",
    default=0.0,
    type=_NOT_NEGATIVE,
    metavar="X",
    help="The same of the judge, if it is another model.",
)
@click.option(
    "--judge-price-out",
    default=0.0,
    type=_NOT_NEGATIVE,
    metavar="X",
    help="The same of the judge, if it is another model.",
)
@click.option("--temperature", type=float, help="The server's default, when left out.")
@click.option("--max-reply-tokens", default=256, type=_AT_LEAST_1, show_default=True, help="Longest reply.")
@report_options
def answer(  # noqa: PLR0913 (options of a command)
    *, dataset: str, files: tuple[str, ...], embedder: str, summaries: Summaries, sample: int | None, seed: int,
    cache: Path | None, methods: str, llm_model: str, llm_base_url: str | None, judge_model: str | None,
    judge_base_url: str | None, no_judge: bool, with_bertscore: bool, top_k: int, context_tokens: int,
    history_tokens: int | None, llm_digests: bool, is_filtered: bool, concurrency: int, log: Path | None,
    max_calls: int | None, max_cost: float | None, price_in: float, price_out: float, judge_price_in: float,
    judge_price_out: float, temperature: float | None, max_reply_tokens: int, out: tuple[Path, ...], as_json: bool,
) -> None:  # fmt: skip
    """Answer the questions of FILE with a language model, from what each method recalls, and measure the answers."""
    from memgas.evaluation import answer_pages, answering, call_log, contexts
    from memgas.evaluation.pages import check_ending
    from memgas.models.openai import OpenAIChat

    for path in out:
        check_ending(path)
    judged_by = judge_model or llm_model
    is_free = not (price_in or price_out) or (judged_by != llm_model and not (judge_price_in or judge_price_out))
    if max_cost is not None and is_free:
        raise click.UsageError("--max-cost needs the prices of every model: without them nothing costs anything")
    chosen = contexts.methods_to_answer([name.strip() for name in methods.split(",")])
    asked = _read_to_answer(dataset, files, sample, seed)
    prices = {judged_by: call_log.Price(judge_price_in, judge_price_out)} | {
        llm_model: call_log.Price(price_in, price_out)
    }
    cap = call_log.Cap(max_calls, max_cost, max_reply_tokens)
    reading = contexts.Reading(
        top_k=top_k, max_tokens=context_tokens, max_history_tokens=history_tokens,
        digests="llm" if llm_digests else summaries, is_filtered=is_filtered,
    )  # fmt: skip

    def model(name: str, base_url: str | None) -> OpenAIChat:
        return OpenAIChat(name, base_url=base_url, temperature=temperature, max_output_tokens=max_reply_tokens)

    with (
        closing(call_log.CallLog(log, prices=prices, cap=cap)) as calls,
        closing(_embedder(embedder, cache)) as cached,
        closing(model(llm_model, llm_base_url)) as llm,
        closing(model(judged_by, judge_base_url or llm_base_url)) as judge,
        rendering.steps("answering") as told,
    ):
        how = answering.Answering(
            llm=call_log.LoggedLLM(llm, llm_model, calls, kind="answer"),
            judge=None if no_judge else call_log.LoggedLLM(judge, judged_by, calls, kind="judge"),
            log=calls, reading=reading, n_threads=concurrency, with_bertscore=with_bertscore,
        )  # fmt: skip
        report = answering.answer_questions(asked, chosen, how, embedder=cached, progress=told)
    _show(report, partial(answer_pages.write_answers, report), out, as_json=as_json)


def _read_to_answer(dataset: str, files: tuple[str, ...], sample: int | None, seed: int) -> Dataset:
    """Read one data set; a sample is drawn from all its questions, also those without evidence."""
    from memgas.evaluation import read_files, sample_questions
    from memgas.evaluation.dialogues import every_question

    found = read_files(dataset, files)
    if len(found) > 1:
        raise click.UsageError("questions of one data set are answered at a time")
    return found[0] if sample is None else sample_questions(found[0], sample, seed=seed, of=every_question)


def _read(dataset: str, files: tuple[str, ...], sample: int | None, seed: int) -> list[Dataset]:
    """Read the files; a sample is drawn from each data set."""
    from memgas.evaluation import read_files, sample_questions

    found = read_files(dataset, files)
    return found if sample is None else [sample_questions(one, sample, seed=seed) for one in found]


def _embedder(name: str, cache: Path | None) -> CachedEmbedder:
    from memgas.evaluation import CachedEmbedder
    from memgas.models import load_embedder

    return CachedEmbedder(load_embedder(name), folder=cache)


def _show(
    report: Report | AnswerReport, write: Callable[[Path], None], out: tuple[Path, ...], *, as_json: bool
) -> None:
    """Print a report and write it to files."""
    for path in out:
        write(path)
        click.echo(f"written to {path}", err=True)
    click.echo(json.dumps(report.as_dict(), ensure_ascii=False, indent=2) if as_json else report.text())
