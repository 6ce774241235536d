"""Question answering: recall -> context -> answer -> measures and a judge. It goes on where it was killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock

from memgas.errors import InvalidInputError, LLMError
from memgas.evaluation.answer_prompts import answer_prompt, judge_prompt, parse_judgement
from memgas.evaluation.answer_report import Answered, AnswerReport, Use
from memgas.evaluation.bertscore import bertscore
from memgas.evaluation.cached_embedder import CachedEmbedder, Progress
from memgas.evaluation.call_log import CallLog, CapReachedError, LoggedLLM
from memgas.evaluation.contexts import Context, Reading, contexts_of
from memgas.evaluation.dialogues import Dataset, Dialogue, Question
from memgas.evaluation.memories import asking_time
from memgas.evaluation.methods import Method
from memgas.evaluation.overlap import bleu4, f1, rouge_l
from memgas.models.calls import estimate_tokens
from memgas.replies import strip_thinking

_MOST_FAILURES_RUNNING = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """How questions are answered.

    Attributes
    ----------
    llm
        Answers; also writes digests and filters, if `reading` says so.
    judge
        None: nobody judges.
    log
        Where the calls of both are.
    n_threads
        Calls at once.
    with_bertscore
        Whether to measure by BERTScore as well.
    """

    llm: LoggedLLM
    judge: LoggedLLM | None
    log: CallLog
    reading: Reading
    n_threads: int
    with_bertscore: bool = False


def answer_questions(
    dataset: Dataset,
    methods: Sequence[Method],
    how: Answering,
    *,
    embedder: CachedEmbedder,
    progress: Progress | None = None,
) -> AnswerReport:
    """Answer every question after every method's context.

    Every reply is in the log before it is used, so that a run that was killed goes on, and pays no call twice. A question
    whose call failed is left out and told; when several fail running, or the cap is reached, the rest is not asked.

    Parameters
    ----------
    dataset
        Questions without an expected answer are those whose answer is that nothing was said.
    methods
        From `contexts.methods_to_answer`.
    how
        Models, log, budgets.
    embedder
        Shared by all.
    progress
        Told `(what, done, total)`.

    Raises
    ------
    InvalidInputError
        No question of the data set has an answer.
    LLMError
        Several calls failed running, and none succeeded.
    MissingExtraError
        BERTScore is wanted and not installed.
    """
    if not any(question.answer for dialogue in dataset.dialogues for question in dialogue.questions):
        raise InvalidInputError(f"{dataset.name}: expected at least one question with an answer; got none")
    if how.with_bertscore:
        bertscore([], [])  # a missing package is told before a call is paid
    run = _Run(how, methods, embedder, progress, total=len(methods) * sum(len(d.questions) for d in dataset.dialogues))
    run.through(dataset.dialogues)
    if not run.answers and run.failures:
        raise LLMError(f"no question could be answered: {run.failures[0]}")
    answers = _with_bertscore(run.answers) if how.with_bertscore else run.answers
    return AnswerReport(
        dataset=dataset.name,
        llm=how.llm.name,
        judge=how.judge.name if how.judge else "",
        embedder=embedder.name,
        answers=tuple(answers),
        use=_uses(how.log),
        n_made=how.log.n_made,
        n_reused=how.log.n_reused,
        cost=how.log.cost,
        failures=tuple(run.failures),
        stopped=run.stopped,
    )


class _Run:
    """One run: jobs of a few dialogues at a time, results in the order of the questions."""

    def __init__(
        self,
        how: Answering,
        methods: Sequence[Method],
        embedder: CachedEmbedder,
        progress: Progress | None,
        *,
        total: int,
    ) -> None:
        self._how, self._methods, self._embedder = how, methods, embedder
        self._progress, self._total = progress, total
        self._n_done = 0
        self._given_up = _GivenUp()
        self.answers: list[Answered] = []
        self.failures: list[str] = []
        self.stopped = ""

    def through(self, dialogues: Sequence[Dialogue]) -> None:
        """Answer all; one dialogue is taken in while the questions of the one before are answered."""
        with ThreadPoolExecutor(self._how.n_threads, "memgas-answer") as pool:
            waiting: tuple[ExitStack, list[Future[Answered]]] | None = None
            try:
                for dialogue in dialogues:
                    opened = self._begin(dialogue, pool)
                    if waiting is not None:
                        self._finish(*waiting)
                    waiting = opened
                    if waiting is None or self.stopped:
                        break
            finally:
                if waiting is not None:
                    self._finish(*waiting)

    def _begin(self, dialogue: Dialogue, pool: ThreadPoolExecutor) -> tuple[ExitStack, list[Future[Answered]]] | None:
        """Take in a dialogue and hand out its questions; None when the cap does not allow it."""
        how, stack = self._how, ExitStack()
        llm = how.llm.asked_for("digest")
        opened = contexts_of(
            dialogue, self._methods, embedder=self._embedder, reading=how.reading, digest_llm=llm,
            filter_llm=how.llm.asked_for("filter"),
        )  # fmt: skip
        try:
            contexts = stack.enter_context(opened)
        except CapReachedError as error:
            self.stopped = str(error)
            return None
        jobs = [
            pool.submit(self._given_up.watch, partial(_answered, how, dialogue, question, name, context))
            for name, context in contexts.items()
            for question in dialogue.questions
        ]
        return stack, jobs

    def _finish(self, stack: ExitStack, jobs: list[Future[Answered]]) -> None:
        """Gather what was answered; after a stop, what has not begun is not begun."""
        with stack:
            for job in jobs:
                if self.stopped and job.cancel():
                    continue
                self._take(job)

    def _take(self, job: Future[Answered]) -> None:
        try:
            self.answers.append(job.result())
        except (CapReachedError, _NotAskedError) as error:
            self.stopped = self.stopped or str(error)
        except LLMError as error:
            self.failures.append(str(error))
            self.stopped = self.stopped or self._given_up.why
        self._n_done += 1
        if self._progress:
            self._progress("answered", self._n_done, self._total)


class _NotAskedError(Exception):
    """The run was given up before this question was asked."""


class _GivenUp:
    """Gives up when calls fail one after the other, in the order in which they end. Used by all threads of a run.

    Attributes
    ----------
    why
        Empty: not given up.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._n_failed_running = 0
        self.why = ""

    def watch(self, ask: Callable[[], Answered]) -> Answered:
        """Ask, unless it was given up, and count a failure."""
        if self.why:
            raise _NotAskedError(self.why)
        try:
            found = ask()
        except LLMError:
            self._count(is_failure=True)
            raise
        self._count(is_failure=False)
        return found

    def _count(self, *, is_failure: bool) -> None:
        with self._lock:
            self._n_failed_running = self._n_failed_running + 1 if is_failure else 0
            if self._n_failed_running >= _MOST_FAILURES_RUNNING:
                self.why = self.why or f"{self._n_failed_running} calls failed running"


def _answered(how: Answering, dialogue: Dialogue, question: Question, method: str, context_of: Context) -> Answered:
    """Answer one question and judge the answer."""
    context = context_of(question)
    reply = how.llm.complete(answer_prompt(question.text, context, asking_time(dialogue, question)))
    answer = strip_thinking(reply).strip()
    found = Answered(
        method,
        dialogue.id,
        question.id,
        question.type,
        question.text,
        question.answer,
        answer,
        estimate_tokens(context),
    )
    if how.judge is not None:
        verdict = parse_judgement(how.judge.complete(judge_prompt(question.text, question.answer, answer)))
        found = replace(found, judge=None if verdict is None else float(verdict))
    if question.answer is None:
        return found
    wanted = question.answer
    return replace(found, f1=f1(answer, wanted), bleu4=bleu4(answer, wanted), rouge_l=rouge_l(answer, wanted))


def _with_bertscore(answers: Sequence[Answered]) -> Iterator[Answered]:
    pairs = [(answer.answer, answer.expected) for answer in answers if answer.expected is not None]
    scores = iter(bertscore([given for given, _ in pairs], [wanted for _, wanted in pairs]))
    for answer in answers:
        yield answer if answer.expected is None else replace(answer, bertscore=next(scores))


def _uses(log: CallLog) -> dict[str, Use]:
    """Add up the calls of a log by kind."""
    uses: dict[str, Use] = {}
    for call in log.calls:
        before = uses.get(call.kind, Use())
        uses[call.kind] = Use(
            before.n_calls + 1,
            before.n_prompt_tokens + call.n_prompt_tokens,
            before.n_reply_tokens + call.n_reply_tokens,
            before.n_estimated + int(call.is_estimated),
        )
    return uses
