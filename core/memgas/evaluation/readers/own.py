"""Your own chats: JSON Lines of sessions, and JSON Lines of questions."""

from __future__ import annotations

from pathlib import Path

from memgas.errors import InvalidInputError
from memgas.evaluation.dialogues import Dataset, Dialogue, DialogueSession, Question
from memgas.evaluation.fields import Place, iterate_lines
from memgas.types import Turn

_ONLY = "default"


def read_own(sessions: str | Path, questions: str | Path) -> Dataset:
    """Read your own sessions and questions.

    Parameters
    ----------
    sessions
        A session a line: `{"session_id": …, "happened_at": …, "turns": [{"speaker": …, "text": …}, …]}`, and if wanted
        `namespace` and `summary` (or `digest: {"summary": …}`): what `memgas export` writes is understood.
    questions
        A question a line: `{"question": …, "expected": session id or list of them}`, or `"phrase"` in place of
        `expected`: words that must come back (every session that has them is gold). If wanted: `namespace`, `id`, `type`,
        `asked_at`, `answer`.

    Raises
    ------
    InvalidInputError
        A line is not in this format, expects a session that is not there, or a phrase nobody said; the message names the
        file and the line.
    """
    entries: dict[str, list[tuple[str, DialogueSession]]] = {}
    seen: dict[tuple[str, str], str] = {}
    for line in iterate_lines(Path(sessions)):
        key = (_namespace(line), line.get("session_id").scalar())
        if key in seen:
            raise line.get("session_id").fail(f"each session once (this one stands in {seen[key]})")
        seen[key] = line.where
        entries.setdefault(key[0], []).append((key[1], _session(line)))
    for found in entries.values():
        found.sort(key=lambda entry: entry[1].happened_at)
    asked: dict[str, list[Question]] = {}
    for line in iterate_lines(Path(questions)):
        namespace = _namespace(line)
        if namespace not in entries:
            raise InvalidInputError(f"{line.where}: expected a namespace that has sessions; got {namespace!r}")
        asked.setdefault(namespace, []).append(_question(line, entries[namespace]))
    return Dataset("own", tuple(
        Dialogue(namespace, tuple(session for _, session in found), tuple(asked.get(namespace, ())))
        for namespace, found in entries.items()
    ))  # fmt: skip


def _namespace(line: Place) -> str:
    place = line.find("namespace")
    return place.words() if place else _ONLY


def _session(line: Place) -> DialogueSession:
    turns = tuple(
        Turn(place.get("speaker").words(), place.get("text").text())
        for place in line.get("turns").items()
        if place.get("text").said()
    )
    if not turns:
        raise line.get("turns").fail("at least one turn with text")
    digest = line.find("digest")
    summary = line.find("summary") or (digest.find("summary") if digest else None)
    return DialogueSession(turns, line.get("happened_at").time(), summary.said() or None if summary else None)


def _question(line: Place, sessions: list[tuple[str, DialogueSession]]) -> Question:
    expected, phrase = line.find("expected"), line.find("phrase")
    if (expected is None) == (phrase is None):
        raise InvalidInputError(
            f"{line.where}: expected either 'expected' or 'phrase'; got {'both' if phrase else 'none'}"
        )
    gold = _expected(expected, sessions) if expected else _phrase(phrase, sessions) if phrase else frozenset[int]()
    kind, asked_at, answer, name = (line.find(key) for key in ("type", "asked_at", "answer", "id"))
    return Question(
        id=name.scalar() if name else line.where,
        text=line.get("question").words(),
        type=kind.scalar() if kind else "question",
        asked_at=asked_at.time() if asked_at else None,
        gold=gold,
        answer=answer.scalar() if answer else None,
    )


def _expected(place: Place, sessions: list[tuple[str, DialogueSession]]) -> frozenset[int]:
    index = {session_id: i for i, (session_id, _) in enumerate(sessions)}
    wanted = place.items() if isinstance(place.value, list) else [place]
    for item in wanted:
        if item.scalar() not in index:
            raise item.fail("the id of a session in the sessions file")
    return frozenset(index[item.scalar()] for item in wanted)


def _phrase(place: Place, sessions: list[tuple[str, DialogueSession]]) -> frozenset[int]:
    words = place.words().strip().casefold()
    gold = frozenset(
        i for i, (_, session) in enumerate(sessions) if any(words in turn.text.casefold() for turn in session.turns)
    )
    if not gold:
        raise place.fail("words that stand in one of the sessions")
    return gold
