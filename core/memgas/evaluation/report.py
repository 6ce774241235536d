"""What an evaluation found: numbers for machines, tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from memgas.errors import InvalidInputError
from memgas.evaluation.metrics import FloatArray, Interval, bootstrap_means, measure_names
from memgas.types import JSON

N_RESAMPLES = 1_000
CONFIDENCE = 0.95
SEED = 0

_SHOWN = ("recall_all", "recall_any", "ndcg")
_SHOWN_OF_MEANS = ("recall_all", "recall", "ndcg")
_REPORTED_BY_MEAN = ("madial",)  # whose own measure is the share of gold memories, not all of them
PROPOSED = "memgas"


@dataclass(frozen=True, slots=True)
class Judged:
    """One question that was asked of every method."""

    dialogue_id: str
    question_id: str
    type: str
    n_gold: int


@dataclass(frozen=True, slots=True, eq=False)
class MethodResult:
    """What one method reached.

    Attributes
    ----------
    ranks
        For each question the ranks of its gold sessions, as of `metrics.gold_ranks`.
    measures : (n_questions, n_measures)
        In the order of `metrics.measure_names`.
    chosen
        Which form of the method this is, where several were tried.
    add_seconds, query_seconds
        Over all dialogues and all questions, without what the embedder took.
    context_tokens : (n_questions, n_ks)
        Estimated tokens of the first k sessions, whole.
    """

    name: str
    ranks: Sequence[FloatArray]
    measures: FloatArray
    add_seconds: float
    query_seconds: float
    context_tokens: FloatArray
    chosen: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """An evaluation, whole: every question's result is kept.

    Attributes
    ----------
    ks
        Cut-offs.
    questions
        In the order of the rows of every `MethodResult`.
    n_left_out
        Questions without evidence.
    history_tokens
        What the full history takes, in estimated tokens; a mean over the questions.
    embedding
        `n_embedded`, `n_reused` (texts) and `seconds` of the embedder.
    """

    dataset: str
    embedder: str
    summaries: str
    ks: tuple[int, ...]
    questions: tuple[Judged, ...]
    methods: tuple[MethodResult, ...]
    n_dialogues: int
    n_sessions: int
    n_left_out: int
    history_tokens: float
    embedding: Mapping[str, float] = field(default_factory=dict)

    def method(self, name: str) -> MethodResult:
        """Return the result of a method.

        Raises
        ------
        InvalidInputError
            It was not run.
        """
        for result in self.methods:
            if result.name == name:
                return result
        raise InvalidInputError(
            f"a method of this report is one of {', '.join(m.name for m in self.methods)}; got {name!r}"
        )

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of the measures that tables show."""
        return _SHOWN_OF_MEANS if self.dataset in _REPORTED_BY_MEAN else _SHOWN

    @property
    def is_compared(self) -> bool:
        """Whether there is MemGAS, and something to compare it with."""
        return len(self.methods) > 1 and any(result.name == PROPOSED for result in self.methods)

    def slices(self) -> dict[tuple[str, str], NDArray[np.bool_]]:
        """Return masks over the questions, `(n_questions,)`: overall, by type, by number of gold sessions."""
        types = np.array([question.type for question in self.questions])
        several = np.array([question.n_gold > 1 for question in self.questions])
        masks = {("overall", ""): np.ones(len(self.questions), dtype=np.bool_)}
        masks |= {("by_type", str(name)): types == name for name in sorted(set(types.tolist()))}
        masks |= {("by_n_gold", name): mask for name, mask in (("1", ~several), ("2+", several)) if mask.any()}
        return masks

    def differences(
        self, method: str, measures: Sequence[str], mask: NDArray[np.bool_] | None = None
    ) -> dict[str, dict[str, Interval]]:
        """Return how far one method is above each other one on the same questions, with 95 % bootstrap intervals.

        Parameters
        ----------
        method
            Name of a method that was run.
        measures
            Such as `recall_all@3`.
        mask : (n_questions,)
            Which questions; None: all.

        Returns
        -------
        dict
            The other method's name to the measure to the paired difference.
        """
        names = measure_names(self.ks)
        for name in measures:
            if name not in names:
                raise InvalidInputError(f"a measure of this report is one of {', '.join(names)}; got {name!r}")
        columns = [names.index(name) for name in measures]
        rows = np.ones(len(self.questions), dtype=np.bool_) if mask is None else mask
        own = self.method(method).measures[rows][:, columns]
        others = [result for result in self.methods if result.name != method]
        gaps = [own - other.measures[rows][:, columns] for other in others]
        found = iter(intervals(np.hstack(gaps)) if gaps else ())
        return {other.name: {name: next(found) for name in measures} for other in others}

    def as_dict(self) -> dict[str, JSON]:
        """Return everything as JSON: fractions, not percent; `n` and the 95 % `intervals` beside them."""
        names = measure_names(self.ks)
        found: dict[str, dict[str, JSON]] = {
            result.name: {"overall": {}, "by_type": {}, "by_n_gold": {}} for result in self.methods
        }
        for (group, name), mask in self.slices().items():
            table = intervals(np.hstack([result.measures[mask] for result in self.methods]))
            for i, result in enumerate(self.methods):
                values = _slice_dict(dict(zip(names, table[i * len(names) :], strict=False)), int(mask.sum()))
                where = found[result.name]
                where[group] = {**cast("dict[str, JSON]", where[group]), name: values} if name else values
        for result in self.methods:
            seconds_a_query = round(result.query_seconds / len(self.questions), 6)
            found[result.name]["seconds"] = {"add": round(result.add_seconds, 4), "query": seconds_a_query}
            tokens = result.context_tokens.mean(axis=0).round(1).tolist()
            found[result.name]["context_tokens"] = dict(zip(map(str, self.ks), tokens, strict=True))
            if result.chosen:
                found[result.name]["chosen"] = result.chosen
        return {
            "dataset": self.dataset,
            "n_questions": len(self.questions),
            "n_left_out": self.n_left_out,
            "n_dialogues": self.n_dialogues,
            "n_sessions": self.n_sessions,
            "embedder": self.embedder,
            "summaries": self.summaries,
            "ks": list(self.ks),
            "history_tokens": round(self.history_tokens, 1),
            "embedding": dict(self.embedding),
            "methods": found,
            "differences": self._differences_dict(),
        }

    def _differences_dict(self) -> dict[str, JSON]:
        """Return MemGAS against every other method, if it was run: slice to method to measure to mean, low and high."""
        if not self.is_compared:
            return {}
        measures = [f"{name}@{k}" for name in ("recall_all", "recall", "ndcg") for k in self.ks]
        return {
            " ".join(filter(None, key)): {
                other: {name: [round(v, 6) for v in (gap.mean, gap.low, gap.high)] for name, gap in gaps.items()}
                for other, gaps in self.differences(PROPOSED, measures, mask).items()
            }
            for key, mask in self.slices().items()
        }

    def text(self) -> str:
        """Return tables in percent, for a terminal of 100 columns."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"{self.dataset}: {len(self.questions):,} questions with evidence ({self.n_left_out:,} without left out), "
            f"{self.n_dialogues:,} dialogues, {self.n_sessions:,} sessions"
        )
        yield f"embedder {self.embedder}, summaries {self.summaries}; no language model is asked"
        titles = {"overall": "overall", "by_type": "type {}", "by_n_gold": "gold sessions: {}"}
        for (group, name), mask in self.slices().items():
            yield ""
            yield from self._table(f"{titles[group].format(name)}, n = {int(mask.sum()):,}", mask)
        yield from self._difference_lines()
        yield from self._time_lines()
        for result in self.methods:
            if result.chosen:
                yield f"{result.name} is its strongest form by recall_all: {result.chosen}"

    @property
    def _indent(self) -> int:
        """Columns of the names."""
        return max(22, *(len(result.name) + 3 for result in self.methods))

    def _table(self, title: str, mask: NDArray[np.bool_]) -> Iterator[str]:
        names = measure_names(self.ks)
        columns = [names.index(f"{kind}@{k}") for kind in self.shown for k in self.ks] + [names.index("mrr")]
        yield title
        indent = self._indent
        width = 7 * len(self.ks)
        yield f"{'':<{indent}}" + "".join(f"{kind:^{width}}" for kind in self.shown).rstrip()
        yield f"{'':<{indent}}" + "".join(f"{f'@{k}':>7}" for _ in self.shown for k in self.ks) + f"{'MRR':>7}"
        for result in self.methods:
            means = 100.0 * result.measures[mask][:, columns].mean(axis=0)
            yield f"  {result.name:<{indent - 2}}" + "".join(f"{value:7.1f}" for value in means)

    def _difference_lines(self) -> Iterator[str]:
        if not self.is_compared:
            return
        indent = self._indent
        measures = [f"recall_all@{k}" for k in self.ks]
        masks = {"all questions": None, "2+ gold sessions": self.slices().get(("by_n_gold", "2+"))}
        yield ""
        yield f"recall_all of {PROPOSED} above the others, in points [95 % interval, paired]"
        for title, mask in masks.items():
            if mask is None and title != "all questions":
                continue
            yield f"{title:<{indent}}" + "".join(f"{f'@{k}':>22}" for k in self.ks)
            for other, gaps in self.differences(PROPOSED, measures, mask).items():
                yield f"  {other:<{indent - 2}}" + "".join(f"{_points(gap):>22}" for gap in gaps.values())

    def _time_lines(self) -> Iterator[str]:
        yield ""
        indent = self._indent
        yield f"{'cost':<{indent}}{'ms a session added':>22}{'ms a query':>14}{f'context tokens @{self.ks[0]}':>22}"
        for result in self.methods:
            add = f"{1e3 * result.add_seconds / self.n_sessions:.2f}" if result.add_seconds else "-"
            query = 1e3 * result.query_seconds / len(self.questions)
            tokens = result.context_tokens[:, 0].mean()
            yield f"  {result.name:<{indent - 2}}{add:>22}{query:>14.2f}{tokens:>22,.0f}"
        yield f"full history: {self.history_tokens:,.0f} tokens a question (estimated)"
        done = self.embedding
        if done:
            yield (
                f"without embedding: {done['n_embedded']:,.0f} texts in {done['seconds']:.1f} s, "
                f"{done['n_reused']:,.0f} reused"
            )


def intervals(values: FloatArray) -> list[Interval]:
    """Return mean and 95 % bootstrap interval of each column of `values`, `(n_questions, n_columns)`."""
    low, high = bootstrap_means(values, n_resamples=N_RESAMPLES, confidence=CONFIDENCE, seed=SEED)
    return [Interval(float(m), float(a), float(b)) for m, a, b in zip(values.mean(axis=0), low, high, strict=True)]


def _slice_dict(found: Mapping[str, Interval], n: int) -> dict[str, JSON]:
    values: dict[str, JSON] = {"n": n}
    values |= {name: round(interval.mean, 6) for name, interval in found.items()}
    values["intervals"] = {name: [round(i.low, 6), round(i.high, 6)] for name, i in found.items()}
    return values


def _points(interval: Interval) -> str:
    return f"{100 * interval.mean:+.1f} [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"
