"""MADial-Bench: which dated memories of a user a dialogue ought to call to mind (He et al., NAACL 2025)."""

from __future__ import annotations

import re
from pathlib import Path

from memgas.errors import InvalidInputError
from memgas.evaluation.dialogues import Dataset, Dialogue, DialogueSession, Question
from memgas.evaluation.fields import Place, read_json
from memgas.types import Turn

_LINE = re.compile(r"<([^<>]+)>\s*[:：]\s*(.*)", re.DOTALL)
_MARKS = ("<BOD>", "<EOD>")
_ASSISTANT = "assistant"


def read_madial(path: str | Path) -> Dataset:
    """Read MADial-Bench's memories and queries, as one JSON object `{"memories": {id: …}, "queries": […]}`.

    Every user is a dialogue of their own, as in the published evaluation. A memory is a session of one turn: the event
    with its scene and emotion. A memory belongs to the user its `user-id` names; where there is none (the English file),
    to the users whose name stands in it, or else to all. The query is the dialogue so far.

    Parameters
    ----------
    path
        The Chinese or the English file.

    Raises
    ------
    InvalidInputError
        The file is not in this format; the message names the place.
    """
    file = read_json(Path(path))
    memories = {
        key: Place(value, f"{file.where}, memory {key}") for key, value in file.get("memories").record().items()
    }
    by_user: dict[str, list[Place]] = {}
    for query in file.get("queries").items():
        by_user.setdefault(query.get("user_id").scalar(), []).append(query)
    names = {user: _user_name(queries) for user, queries in by_user.items()}
    return Dataset("madial", tuple(_dialogue(user, names, queries, memories) for user, queries in by_user.items()))


def _dialogue(user: str, names: dict[str, str], queries: list[Place], memories: dict[str, Place]) -> Dialogue:
    own = sorted(
        ((key, _session(place, names[user])) for key, place in memories.items() if _belongs(place, user, names)),
        key=lambda item: item[1].happened_at,
    )
    index = {key: position for position, (key, _) in enumerate(own)}
    questions = tuple(_question(query, f"{user}/{i}", index) for i, query in enumerate(queries, start=1))
    return Dialogue(user, tuple(session for _, session in own), questions)


def _belongs(memory: Place, user: str, names: dict[str, str]) -> bool:
    owner = memory.find("user-id")
    if owner is not None:
        return owner.scalar() == user
    event = memory.get("event").text()
    named = {other for other, name in names.items() if name in event}
    return user in named or not named


def _session(memory: Place, name: str) -> DialogueSession:
    aspects = [place.text() for key in ("scene", "emotion") if (place := memory.find(key))]
    event = memory.get("event").words()
    text = f"{event} ({', '.join(aspects)})" if aspects else event
    return DialogueSession((Turn(name, text),), memory.get("time").time())


def _lines(query: Place) -> list[tuple[str, str]]:
    """Return speaker and words of each line so far; a line in another form has no speaker."""
    lines: list[tuple[str, str]] = []
    for place in query.get("context").items():
        text = place.text().strip()
        if text and text not in _MARKS:
            match = _LINE.fullmatch(text)
            speaker, words = (match[1], match[2]) if match else ("", text.strip("<>"))
            lines.append((speaker.strip(), words.strip().strip('"“”')))
    return lines


def _user_name(queries: list[Place]) -> str:
    """Return who speaks to the assistant."""
    for query in queries:
        for speaker, _ in _lines(query):
            if speaker and speaker.lower() != _ASSISTANT:
                return speaker
    raise InvalidInputError(f"{queries[0].where}: expected a line such as '<Bart>: \"…\"' by the user; got none")


def _question(query: Place, question_id: str, index: dict[str, int]) -> Question:
    text = "\n".join(f"{speaker}: {words}" if speaker else words for speaker, words in _lines(query))
    if not text:
        raise query.get("context").fail("at least one line of dialogue")
    wanted = [item.scalar() for item in query.get("relevant_ids").items()]
    gold = frozenset(index[key] for key in wanted if key in index)
    qid = query.find("qid")
    return Question(qid.scalar() if qid else question_id, text, "recall", None, gold)
