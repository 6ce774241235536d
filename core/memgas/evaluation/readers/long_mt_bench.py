"""Long-MT-Bench+: long chats with an assistant (Pan et al., ICLR 2025). It names no evidence: question answering only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from memgas.errors import InvalidInputError
from memgas.evaluation.dialogues import Dataset, Dialogue, DialogueSession, Question
from memgas.evaluation.fields import Place, iterate_array
from memgas.types import Turn

_FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)


def read_long_mt_bench(path: str | Path) -> Dataset:
    """Read a JSON array of `{conversation_id, sessions: [[text, …], …], questions, answers}`.

    The texts of a session are user and assistant in turn. The data set has no dates: sessions are set a day apart.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    InvalidInputError
        The file is not in this format; the message names the place.
    """
    return Dataset("long-mt-bench", tuple(_dialogue(entry) for entry in iterate_array(Path(path))))


def _dialogue(entry: Place) -> Dialogue:
    name = entry.get("conversation_id").scalar()
    sessions: list[DialogueSession] = []
    for day, chat in enumerate(entry.get("sessions").items()):
        texts = [place.said() for place in chat.items()]
        turns = tuple(Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(texts) if text)
        if turns:
            sessions.append(DialogueSession(turns, _FIRST_DAY + timedelta(days=day)))
    asked = [place.words() for place in entry.get("questions").items()]
    answers = [place.scalar() for place in entry.get("answers").items()]
    if len(asked) != len(answers):
        raise InvalidInputError(
            f"{entry.where}: expected an answer for each question; got {len(answers)} and {len(asked)}"
        )
    questions = tuple(
        Question(f"{name}/{i}", text, "answering", None, frozenset(), answer)
        for i, (text, answer) in enumerate(zip(asked, answers, strict=True), start=1)
    )
    return Dialogue(name, tuple(sessions), questions)
