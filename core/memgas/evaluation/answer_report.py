"""What came out of answering questions: scores by type, and what it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from memgas.evaluation.metrics import Interval
from memgas.evaluation.report import intervals
from memgas.types import JSON

MEASURES = ("judge", "f1", "bleu4", "rouge_l", "bertscore")


@dataclass(frozen=True, slots=True)
class Answered:
    """One question, answered after one method's context.

    Attributes
    ----------
    expected
        None: the right answer is that nothing of the kind was said, and overlap is not measured.
    judge
        1 or 0; None where nobody judged, or the verdict could not be read.
    f1, bleu4, rouge_l, bertscore
        None where there is nothing to compare with, or it was not asked for.
    n_context_tokens
        Estimated.
    """

    method: str
    dialogue_id: str
    question_id: str
    type: str
    question: str
    expected: str | None
    answer: str
    n_context_tokens: int
    judge: float | None = None
    f1: float | None = None
    bleu4: float | None = None
    rouge_l: float | None = None
    bertscore: float | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """What calls of one kind took, over all runs of a log.

    Attributes
    ----------
    n_estimated
        Calls whose tokens the model did not tell: they are estimated.
    """

    n_calls: int = 0
    n_prompt_tokens: int = 0
    n_reply_tokens: int = 0
    n_estimated: int = 0


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """All answers, and what they cost.

    Attributes
    ----------
    use
        By kind of call: digest, filter, answer, judge.
    n_made, n_reused
        Calls that this run made, and replies found in the log.
    cost
        Of all calls in the log, in the currency of the prices.
    failures
        What went wrong, in words; such questions are not in the means.
    stopped
        Why the run ended before its end; empty if it did not.
    """

    dataset: str
    llm: str
    judge: str
    embedder: str
    answers: tuple[Answered, ...]
    use: dict[str, Use]
    n_made: int
    n_reused: int
    cost: float
    failures: tuple[str, ...] = ()
    stopped: str = ""

    def means(self) -> dict[str, dict[str, dict[str, JSON]]]:
        """Return method to slice (`overall`, `type …`) to measure to mean, 95 % interval and n."""
        found: dict[str, dict[str, dict[str, JSON]]] = {}
        for method in dict.fromkeys(answer.method for answer in self.answers):
            own = [answer for answer in self.answers if answer.method == method]
            kinds = sorted({answer.type for answer in own})
            found[method] = {"overall": _means(own)}
            found[method] |= {f"type {kind}": _means([a for a in own if a.type == kind]) for kind in kinds}
        return found

    def as_dict(self) -> dict[str, JSON]:
        """Return everything as JSON: fractions, not percent."""
        return {
            "dataset": self.dataset, "llm": self.llm, "judge": self.judge, "embedder": self.embedder,
            "methods": {name: dict(slices) for name, slices in self.means().items()},
            "use": {kind: asdict(use) for kind, use in self.use.items()},
            "n_calls_made": self.n_made, "n_calls_reused": self.n_reused, "cost": round(self.cost, 6),
            "failures": list(self.failures), "stopped": self.stopped,
            "answers": [asdict(answer) for answer in self.answers],
        }  # fmt: skip

    def text(self) -> str:
        """Return tables in percent, for a terminal of 100 columns."""
        return "\n".join(self._lines())

    def facts(self) -> list[str]:
        """Return who answered what, and what it took, a line each."""
        n = len({(answer.dialogue_id, answer.question_id) for answer in self.answers})
        return [
            f"{self.dataset}: {n:,} questions, answered by {self.llm}, judged by {self.judge or 'nobody'}",
            f"embedder {self.embedder}",
            *self._costs(),
        ]

    def _lines(self) -> Iterator[str]:
        who, embedder, *costs = self.facts()
        yield who
        yield embedder
        means = self.means()
        for title in dict.fromkeys(name for slices in means.values() for name in slices):
            yield ""
            yield f"{title:<22}" + "".join(f"{name:>{_width(name)}}" for name in MEASURES) + f"{'tokens':>9}"
            for method, slices in means.items():
                if title in slices:
                    yield _line(method, slices[title])
        yield ""
        yield from costs

    def _costs(self) -> Iterator[str]:
        for kind, use in self.use.items():
            told = f" ({use.n_estimated:,} calls estimated)" if use.n_estimated else ""
            yield (
                f"{kind}: {use.n_calls:,} calls, {use.n_prompt_tokens:,} prompt and {use.n_reply_tokens:,} reply "
                f"tokens{told}"
            )
        yield f"this run: {self.n_made:,} calls made, {self.n_reused:,} replies from the log; cost in all {self.cost:.4f}"
        n_unread = sum(answer.judge is None for answer in self.answers) if self.judge else 0
        if n_unread:
            yield f"{n_unread:,} verdicts of the judge could not be read, and are left out of its mean"
        if self.failures:
            counted = Counter(self.failures)
            yield f"{len(self.failures):,} failed, the next run tries them again: {counted.most_common(1)[0][0][:200]}"
        if self.stopped:
            yield f"stopped early: {self.stopped}"


def _means(answers: Sequence[Answered]) -> dict[str, JSON]:
    found: dict[str, JSON] = {"n": len(answers)}
    for measure in MEASURES:
        values = [value for answer in answers if (value := getattr(answer, measure)) is not None]
        if values:
            gap: Interval = intervals(np.array(values, dtype=np.float64)[:, None])[0]
            found[measure] = {
                "mean": round(gap.mean, 6), "interval": [round(gap.low, 6), round(gap.high, 6)], "n": len(values),
            }  # fmt: skip
    found["context_tokens"] = round(sum(answer.n_context_tokens for answer in answers) / max(1, len(answers)), 1)
    return found


def _line(method: str, means: dict[str, JSON]) -> str:
    cells = []
    for measure in MEASURES:
        found, width = means.get(measure), _width(measure)
        if not isinstance(found, dict):
            cells.append(f"{'-':>{width}}")
            continue
        shown = f"{100 * found['mean']:.1f}"
        if measure == "judge":
            low, high = found["interval"]
            shown += f" [{100 * low:.1f}, {100 * high:.1f}]"
        cells.append(f"{shown:>{width}}")
    return f"  {method:<20}" + "".join(cells) + f"{means['context_tokens']:>9,.0f}"


def _width(measure: str) -> int:
    """Return the columns of a measure: the judge's has its interval."""
    return 22 if measure == "judge" else 10
