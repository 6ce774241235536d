"""Runs methods over a data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np

from memgas.errors import InvalidInputError
from memgas.evaluation.cached_embedder import CachedEmbedder, Progress
from memgas.evaluation.choosing import best_of, oracle_of
from memgas.evaluation.dialogues import Dataset, Dialogue
from memgas.evaluation.methods import (
    DEFAULT_METHODS,
    BestOf,
    Entry,
    Memory,
    Method,
    OracleOf,
    Ranking,
    methods_named,
)
from memgas.evaluation.metrics import FloatArray, gold_ranks, measure
from memgas.evaluation.pooling import pool
from memgas.evaluation.report import Judged, MethodResult, Report
from memgas.evaluation.views import Summaries, Views, available_summaries
from memgas.models.calls import estimate_tokens
from memgas.protocols import Embedder
from memgas.units import session_text


def evaluate(
    dataset: Dataset,
    methods: Sequence[str | Entry] = DEFAULT_METHODS,
    *,
    embedder: Embedder,
    ks: Sequence[int] = (3, 5, 10),
    summaries: Summaries = "extractive",
    progress: Progress | None = None,
) -> Report:
    """Ask every method every question that has evidence.

    Parameters
    ----------
    dataset
        From one of the readers.
    methods
        Names out of `METHODS`, or methods of your own.
    embedder
        Shared by all methods. Each text is embedded once; hand in a `CachedEmbedder` to keep vectors between runs.
    ks
        Cut-offs of the measures.
    summaries
        `from-file` uses the data set's own summaries, `extractive` those that MemGAS makes without a language model.
    progress
        Told `(what, done, total)` before each step and after the last.

    Raises
    ------
    InvalidInputError
        No question has evidence, a method is unknown or named twice, a cut-off is not positive, or summaries are wanted
        from a file that has none.
    """
    chosen = _resolved(methods)
    if not ks or any(k < 1 for k in ks):
        raise InvalidInputError(f"expected cut-offs of at least 1; got {', '.join(map(str, ks)) or 'none'}")
    if not dataset.n_questions:
        raise InvalidInputError(f"{dataset.name}: expected at least one question with evidence; got none")
    cached = embedder if isinstance(embedder, CachedEmbedder) else CachedEmbedder(embedder)
    leaves = _leaves(chosen)
    runs = {leaf.name: _Run(leaf.name) for leaf in leaves}
    dialogues = [dialogue for dialogue in dataset.dialogues if dialogue.judged]
    total = len(dialogues) * len(leaves)
    for at, dialogue in enumerate(dialogues):
        with closing(Views(dialogue, cached, summaries=summaries)) as views:
            ranked: dict[object, Ranking] = {}
            for number, leaf in enumerate(leaves):
                if progress:
                    progress(leaf.name, at * len(leaves) + number, total)
                # Rows of one configuration are ranked once.
                what = leaf.config if isinstance(leaf, Memory) else leaf.name
                if what not in ranked:
                    ranked[what] = leaf.rank(views)
                runs[leaf.name].take(ranked[what], views, ks)
    if progress:
        progress("done", total, total)
    results = {name: run.result(ks) for name, run in runs.items()}
    return Report(
        dataset=dataset.name,
        embedder=cached.name,
        summaries=summaries,
        ks=tuple(ks),
        questions=tuple(_judged(dialogues)),
        methods=tuple(_row(method, results, tuple(ks)) for method in chosen),
        n_dialogues=len(dialogues),
        n_sessions=sum(len(dialogue.sessions) for dialogue in dialogues),
        n_left_out=dataset.n_left_out,
        history_tokens=_history_tokens(dialogues),
        embedding={"n_embedded": cached.n_embedded, "n_reused": cached.n_reused, "seconds": round(cached.seconds, 3)},
    )


def evaluate_several(
    datasets: Sequence[Dataset],
    methods: Sequence[str | Entry] = DEFAULT_METHODS,
    *,
    embedder: CachedEmbedder,
    ks: Sequence[int] = (3, 5, 10),
    summaries: Summaries = "extractive",
    progress: Progress | None = None,
) -> Report:
    """Ask every method every question of one data set, or of several, pooled.

    Of several, those without summaries of their own get extractive ones whatever is wanted. Parameters as of `evaluate`.
    """
    if len(datasets) == 1:
        return evaluate(datasets[0], methods, embedder=embedder, ks=ks, summaries=summaries, progress=progress)
    reports = [
        evaluate(
            dataset, methods, embedder=embedder, ks=ks, summaries=available_summaries(dataset, summaries),
            progress=progress,
        )
        for dataset in datasets
    ]  # fmt: skip
    return pool(reports)


def _judged(dialogues: Sequence[Dialogue]) -> Iterator[Judged]:
    for dialogue in dialogues:
        for question in dialogue.judged:
            yield Judged(dialogue.id, question.id, question.type, len(question.gold))


def _history_tokens(dialogues: Sequence[Dialogue]) -> float:
    """Return what the full history takes, in estimated tokens, as a mean over the questions."""
    counts = [
        (sum(estimate_tokens(session_text(s.turns)) for s in dialogue.sessions), len(dialogue.judged))
        for dialogue in dialogues
    ]
    return float(np.average([tokens for tokens, _ in counts], weights=[n for _, n in counts]))


class _Run:
    """What one method has done so far."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ranks: list[FloatArray] = []
        self._tokens: list[FloatArray] = []
        self._add_seconds = 0.0
        self._query_seconds = 0.0

    def take(self, ranking: Ranking, views: Views, ks: Sequence[int]) -> None:
        """Take in what the method made of one dialogue."""
        asked = views.dialogue.judged
        if len(ranking.orders) != len(asked):
            raise InvalidInputError(
                f"{self._name}: expected a ranking for each of {len(asked)} questions; got {len(ranking.orders)}"
            )
        self._ranks.extend(gold_ranks(order, q.gold) for order, q in zip(ranking.orders, asked, strict=True))
        self._tokens.extend(
            np.array([views.session_tokens[order[:k]].sum() for k in ks]) for order in ranking.orders
        )  # fmt: skip
        self._add_seconds += ranking.add_seconds
        self._query_seconds += ranking.query_seconds

    def result(self, ks: Sequence[int]) -> MethodResult:
        """Measure it all."""
        measures = np.array([measure(ranks, ks) for ranks in self._ranks])
        tokens = np.array(self._tokens)
        return MethodResult(
            self._name, tuple(self._ranks), measures, self._add_seconds, self._query_seconds, context_tokens=tokens
        )


def _resolved(methods: Sequence[str | Entry]) -> list[Entry]:
    """Look up the methods that are given by name."""
    found = [
        entry for method in methods for entry in (methods_named([method]) if isinstance(method, str) else [method])
    ]
    names = [method.name for method in found]
    if not names or len(set(names)) != len(names):
        raise InvalidInputError(f"expected one or more methods, each named once; got {', '.join(names) or 'none'}")
    return found


def _leaves(methods: Sequence[Entry]) -> list[Method]:
    """Return every method that has to run, each once."""
    leaves: dict[str, Method] = {}
    for method in methods:
        for leaf in (method,) if isinstance(method, Method) else method.candidates:
            leaves.setdefault(leaf.name, leaf)
    return list(leaves.values())


def _row(method: Entry, results: dict[str, MethodResult], ks: tuple[int, ...]) -> MethodResult:
    """Return a method's result, put together from those of its candidates where it has some."""
    if isinstance(method, BestOf):
        return best_of(method.name, [results[candidate.name] for candidate in method.candidates], ks)
    if isinstance(method, OracleOf):
        return oracle_of(method.name, [results[candidate.name] for candidate in method.candidates])
    return results[method.name]
