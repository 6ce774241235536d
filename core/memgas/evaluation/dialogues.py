"""The nouns of an evaluation: dialogues of several sessions, and questions about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from memgas.errors import InvalidInputError
from memgas.types import Turn


@dataclass(frozen=True, slots=True)
class DialogueSession:
    """One sitting of a dialogue.

    Attributes
    ----------
    turns
        At least one, none of them blank.
    given_summary
        The data set's own summary, where it has one.
    """

    turns: tuple[Turn, ...]
    happened_at: datetime
    given_summary: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One question about a dialogue.

    Attributes
    ----------
    type
        The data set's own name of its kind.
    asked_at
        When, where the data set says so.
    gold
        Indices of the sessions that have to come back. Empty: there is no evidence, and retrieval is not judged by it.
    answer
        The expected answer; None where there is none, or where it is that nothing was said.
    """

    id: str
    text: str
    type: str
    asked_at: datetime | None
    gold: frozenset[int]
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Sessions in order, and what is asked about them: one namespace of a memory."""

    id: str
    sessions: tuple[DialogueSession, ...]
    questions: tuple[Question, ...]

    @property
    def judged(self) -> tuple[Question, ...]:
        """The questions that have evidence."""
        return tuple(question for question in self.questions if question.gold)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set, whole."""

    name: str
    dialogues: tuple[Dialogue, ...]

    @property
    def n_questions(self) -> int:
        """How many questions have evidence."""
        return sum(len(dialogue.judged) for dialogue in self.dialogues)

    @property
    def n_left_out(self) -> int:
        """How many questions have none."""
        return sum(len(dialogue.questions) for dialogue in self.dialogues) - self.n_questions


def with_evidence(dialogue: Dialogue) -> tuple[Question, ...]:
    """Return the questions by which retrieval is judged."""
    return dialogue.judged


def every_question(dialogue: Dialogue) -> tuple[Question, ...]:
    """Return the questions, also those without evidence."""
    return dialogue.questions


def sample_questions(
    dataset: Dataset,
    n_questions: int,
    *,
    seed: int,
    of: Callable[[Dialogue], tuple[Question, ...]] = with_evidence,
) -> Dataset:
    """Draw questions, each type in proportion; dialogues nobody asks about any more are dropped.

    Parameters
    ----------
    dataset
        Where to draw from.
    n_questions
        How many; all of them if there are not more.
    seed
        The same seed draws the same questions.
    of
        Which questions to draw from.

    Raises
    ------
    InvalidInputError
        `n_questions` is not positive.
    """
    if n_questions < 1:
        raise InvalidInputError(f"a sample needs at least 1 question; got {n_questions}")
    by_type: dict[str, list[tuple[int, int]]] = {}
    for at, dialogue in enumerate(dataset.dialogues):
        for number, question in enumerate(of(dialogue)):
            by_type.setdefault(question.type, []).append((at, number))
    shares = _shares([len(by_type[name]) for name in sorted(by_type)], n_questions)
    rng = np.random.default_rng(seed)
    drawn: set[tuple[int, int]] = set()
    for name, share in zip(sorted(by_type), shares, strict=True):
        drawn.update(by_type[name][i] for i in rng.permutation(len(by_type[name]))[:share])
    dialogues = []
    for at, dialogue in enumerate(dataset.dialogues):
        kept = tuple(question for number, question in enumerate(of(dialogue)) if (at, number) in drawn)
        if kept:
            dialogues.append(replace(dialogue, questions=kept))
    return replace(dataset, dialogues=tuple(dialogues))


def _shares(sizes: Sequence[int], total: int) -> list[int]:
    """Divide a total in proportion to sizes, by largest remainders; nobody gets more than its size."""
    everything = sum(sizes)
    total = min(total, everything)
    exact = [size * total / everything for size in sizes]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda i: shares[i] - exact[i])
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares
