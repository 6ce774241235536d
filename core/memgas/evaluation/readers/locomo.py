"""LoCoMo: long conversations of two people (Maharana et al., ACL 2024)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from memgas.errors import InvalidInputError
from memgas.evaluation.dialogues import Dataset, Dialogue, DialogueSession, Question
from memgas.evaluation.fields import Place, iterate_array
from memgas.types import Turn

Captions = Literal["append", "drop"]

_SESSION = re.compile(r"session_(\d+)")
_EVIDENCE = re.compile(r"D(\d+):(\d+)")
_TIME = re.compile(r"(\d{1,2}):(\d{2}) ?([ap])m on (\d{1,2}) ([a-z]+),? (\d{4})", re.IGNORECASE)
_MONTHS = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
]  # fmt: skip
_ADVERSARIAL = "5"


def read_locomo(path: str | Path, *, captions: Captions = "append") -> Dataset:
    """Read LoCoMo's `locomo10.json`.

    A question counts when one of its evidence ids (`D3:12`, several may stand in one string) names a session that
    exists; its gold sessions are those. The answer to a question of category 5, about what never happened, is None: that
    nothing was said.

    Parameters
    ----------
    path
        A JSON array of conversations.
    captions
        An image stands in the text as the caption that the data set gives it (as in LoCoMo's own code and the published
        MemGAS), or not at all.

    Raises
    ------
    InvalidInputError
        The file is not in this format; the message names the place.
    """
    path = Path(path)
    return Dataset("locomo", tuple(_dialogue(sample, captions) for sample in iterate_array(path)))


def _dialogue(sample: Place, captions: Captions) -> Dialogue:
    name = sample.get("sample_id").scalar()
    place = Place(sample.value, f"{sample.where} ({name})")
    conversation = place.get("conversation")
    numbers = sorted(int(match[1]) for key in conversation.record() if (match := _SESSION.fullmatch(key)))
    sessions: list[DialogueSession] = []
    index: dict[int, int] = {}
    for number in numbers:
        said = conversation.get(f"session_{number}").items()
        turns = tuple(turn for place in said if (turn := _turn(place, captions)))
        if turns:
            index[number] = len(sessions)
            moment = _moment(conversation.get(f"session_{number}_date_time"))
            sessions.append(DialogueSession(turns, moment, _summary(place, number)))
    if not sessions:
        raise InvalidInputError(f"{conversation.where}: expected at least one session_N with turns; got none")
    questions = tuple(
        _question(question, f"{name}/{i}", index) for i, question in enumerate(place.get("qa").items(), start=1)
    )
    return Dialogue(name, tuple(sessions), questions)


def _turn(place: Place, captions: Captions) -> Turn | None:
    """Return the turn, or None where nothing was said or shown."""
    text = place.get("text").said()
    caption = place.find("blip_caption") if captions == "append" else None
    if caption is not None and caption.said():
        text = f"{text} [shares an image: {caption.said()}]".strip()
    return Turn(place.get("speaker").words(), text) if text else None


def _summary(sample: Place, number: int) -> str | None:
    summaries = sample.find("session_summary")
    summary = summaries.find(f"session_{number}_summary") if summaries else None
    return summary.said() or None if summary else None


def _moment(place: Place) -> datetime:
    """Read `1:56 pm on 8 May, 2023`. Not by strptime, which reads month names in the user's language."""
    match = _TIME.fullmatch(place.text().strip())
    if match is None or match[5].lower() not in _MONTHS:
        raise place.fail("a time such as '1:56 pm on 8 May, 2023'")
    hour = int(match[1]) % 12 + (12 if match[3].lower() == "p" else 0)
    month = _MONTHS.index(match[5].lower()) + 1
    try:
        return datetime(int(match[6]), month, int(match[4]), hour, int(match[2]), tzinfo=UTC)
    except ValueError as error:
        raise place.fail(f"a time that exists ({error})") from None


def _question(place: Place, question_id: str, index: dict[int, int]) -> Question:
    evidence = " ".join(item.text() for item in place.get("evidence").items())
    named = {int(number) for number, _ in _EVIDENCE.findall(evidence)}
    kind = place.get("category").scalar()
    answer = place.find("answer") if kind != _ADVERSARIAL else None
    return Question(
        id=question_id,
        text=place.get("question").words(),
        type=kind,
        asked_at=None,
        gold=frozenset(index[number] for number in named if number in index),
        answer=answer.scalar() if answer else None,
    )
