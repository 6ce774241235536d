"""LongMemEval: one question over a haystack of chats (Wu et al., ICLR 2025)."""

from __future__ import annotations

from pathlib import Path

from memgas.errors import InvalidInputError
from memgas.evaluation.dialogues import Dataset, Dialogue, DialogueSession, Question
from memgas.evaluation.fields import Place, iterate_array
from memgas.types import Turn

_ABSTENTION = "_abs"


def read_longmemeval(path: str | Path) -> Dataset:
    """Read LongMemEval's S, M or oracle file.

    Each question is a dialogue of its own. Sessions are sorted by date (some files are not) and known by their position
    only: gold ids begin with `answer_`, so no id is kept, and some ids repeat within a haystack. Gold are the sessions of
    `answer_session_ids`; where the haystack has none of them, those with a `has_answer` turn. Questions whose id says
    `_abs` ask about what never happened: no gold, no answer.

    Parameters
    ----------
    path
        A JSON array of questions, read one at a time.

    Raises
    ------
    InvalidInputError
        The file is not in this format; the message names the place.
    """
    pool: dict[tuple[Turn, ...], tuple[Turn, ...]] = {}  # haystacks share sessions: hold each once
    return Dataset("longmemeval", tuple(_dialogue(question, pool) for question in iterate_array(Path(path))))


def _dialogue(entry: Place, pool: dict[tuple[Turn, ...], tuple[Turn, ...]]) -> Dialogue:
    question_id = entry.get("question_id").scalar()
    place = Place(entry.value, f"{entry.where} ({question_id})")
    ids = [item.scalar() for item in place.get("haystack_session_ids").items()]
    dates = place.get("haystack_dates").items()
    chats = place.get("haystack_sessions").items()
    if not len(ids) == len(dates) == len(chats):
        raise InvalidInputError(
            f"{place.where}: expected as many haystack_session_ids as haystack_dates and haystack_sessions; "
            f"got {len(ids)}, {len(dates)} and {len(chats)}"
        )
    wanted = {item.scalar() for item in place.get("answer_session_ids").items()}
    found: list[tuple[DialogueSession, bool, bool]] = []
    for session_id, date, chat in zip(ids, dates, chats, strict=True):
        turns = tuple(filter(None, map(_turn, chat.items())))
        if turns:
            is_marked = any(turn.record().get("has_answer") is True for turn in chat.items())
            session = DialogueSession(pool.setdefault(turns, turns), date.time())
            found.append((session, session_id in wanted, is_marked))
    if not found:
        raise InvalidInputError(f"{place.where}: expected at least one session with turns; got none")
    found.sort(key=lambda entry: entry[0].happened_at)
    named = frozenset(i for i, (_, is_named, _) in enumerate(found) if is_named)
    marked = frozenset(i for i, (_, _, is_marked) in enumerate(found) if is_marked)
    question = _question(place, question_id, named or marked)
    return Dialogue(question_id, tuple(session for session, _, _ in found), (question,))


def _turn(place: Place) -> Turn | None:
    """Return the turn, or None where nothing was said."""
    text = place.get("content").said()
    return Turn(place.get("role").words(), text) if text else None


def _question(place: Place, question_id: str, gold: frozenset[int]) -> Question:
    is_abstention = _ABSTENTION in question_id
    date = place.find("question_date")
    return Question(
        id=question_id,
        text=place.get("question").words(),
        type=place.get("question_type").words(),
        asked_at=date.time() if date else None,
        gold=frozenset() if is_abstention else gold,
        answer=None if is_abstention else place.get("answer").scalar(),
    )
