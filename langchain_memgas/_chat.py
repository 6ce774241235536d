"""What all chat faces share: recent turns, recall around what the model sees anyway, saving, failing open."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from langchain_memgas._convert import ASSISTANT, mark
from langchain_memgas._scope import Scope
from memgas import ClosedError, Hit, InvalidInputError, MemGAS, SessionConflictError, SessionRecord, Turn
from memgas.checks import is_blank

T = TypeVar("T")
_log = logging.getLogger("langchain_memgas")

MIN_SCORE = 0.2
"""Default gate: what a greeting finds scores below it, what a question is about nearly always above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallOptions:
    """How much is recalled.

    Attributes
    ----------
    top_k
        Most sessions.
    max_tokens
        Budget of the text.
    min_score
        Hits below this absolute score are left out.
    filter
        "llm": let the memory's language model drop what does not help.
    """

    top_k: int = 5
    max_tokens: int = 1_000
    min_score: float = MIN_SCORE
    filter: Literal["llm"] | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model sees anyway, and must not be told again.

    Attributes
    ----------
    turns
        In order.
    places
        Their (session id, position).
    whole
        Sessions of which every turn is shown.
    """

    turns: tuple[Turn, ...] = ()
    places: frozenset[tuple[str, int]] = field(default=frozenset())
    whole: frozenset[str] = field(default=frozenset())


def recent(memory: MemGAS, scope: Scope, n_turns: int) -> Shown:
    """Return the last turns of a conversation, from the beginning of an exchange on."""
    if scope.conversation_id is None or n_turns < 1:
        return Shown()
    found: list[tuple[str, int, Turn]] = []
    for record in _newest_first(memory, scope):
        session = memory.get(record.session_id, namespace=scope.namespace)
        places = [(record.session_id, at, turn) for at, turn in enumerate(session.turns) if not turn.is_tombstone]
        found = [*places, *found]
        if len(found) >= n_turns:
            break
    start = max(len(found) - n_turns, 0)
    while start and not (found[start][2].speaker != ASSISTANT and found[start - 1][2].speaker == ASSISTANT):
        start -= 1  # a half exchange would be neither shown nor recalled
    return _shown(found[start:], _sizes(found))


def shown_among(memory: MemGAS, scope: Scope, turns: Sequence[Turn]) -> Shown:
    """Return where turns that a host shows are stored in its conversation, looking from its end.

    They are known by message id, or else by their text: as many copies, the newest, as the host shows.
    """
    if scope.conversation_id is None or not turns:
        return Shown()
    left: Counter[tuple[str, ...]] = Counter(
        (turn.speaker, turn.text) if turn.id is None else (turn.id,) for turn in turns
    )
    found: list[tuple[str, int, Turn]] = []
    sizes: dict[str, int] = {}
    for record in _newest_first(memory, scope):
        session = memory.get(record.session_id, namespace=scope.namespace)
        there = [(at, turn) for at, turn in enumerate(session.turns) if not turn.is_tombstone]
        places = [(record.session_id, at, turn) for at, turn in reversed(there) if _take(left, turn)]
        if not places:
            break
        found = [*reversed(places), *found]
        sizes[record.session_id] = len(there)
    return _shown(found, sizes)


def _take(left: Counter[tuple[str, ...]], turn: Turn) -> bool:
    """Take a turn out of those that are looked for; tell whether it was one of them."""
    for key in ((turn.id or "",), (turn.speaker, turn.text)):
        if left[key] > 0:
            left[key] -= 1
            return True
    return False


def _newest_first(memory: MemGAS, scope: Scope) -> list[SessionRecord]:
    records = memory.list_sessions(namespace=scope.namespace, conversation_id=scope.conversation_id)
    return records[::-1]


def _sizes(found: Sequence[tuple[str, int, Turn]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for session_id, _, _ in found:
        sizes[session_id] = sizes.get(session_id, 0) + 1
    return sizes


def _shown(found: Sequence[tuple[str, int, Turn]], sizes: dict[str, int]) -> Shown:
    whole = {session_id for session_id, n in _sizes(found).items() if n == sizes[session_id]}
    places = frozenset((session_id, at) for session_id, at, _ in found)
    return Shown(tuple(turn for _, _, turn in found), places, frozenset(whole))


def recall(memory: MemGAS, query: str, namespace: str, shown: Shown, options: RecallOptions) -> str:
    """Return marked text of what matters for a query and is not shown anyway; empty when nothing does."""
    if is_blank(query):
        return ""
    found = memory.retrieve(
        query, namespace=namespace, top_k=options.top_k, min_score=options.min_score, filter=options.filter,
        exclude_turns=shown.places, exclude_sessions=shown.whole,
    )  # fmt: skip
    partly = {session_id for session_id, _ in shown.places}
    hits = tuple(hit for hit in (_without_repetition(hit, partly) for hit in found.hits) if hit.evidence or hit.summary)
    return mark(replace(found, hits=hits).context(options.max_tokens)) if hits else ""


def _without_repetition(hit: Hit, partly_shown: Collection[str]) -> Hit:
    """Drop the summary of a session that is shown in part, and the lines of an extracted one that its evidence repeats."""
    if hit.session_id in partly_shown:
        return replace(hit, summary="")
    said = "\n".join(f"{piece.turn.speaker}: {piece.turn.text}" for piece in hit.evidence)
    return replace(hit, summary="\n".join(line for line in hit.summary.splitlines() if line not in said))


def save(memory: MemGAS, turns: Sequence[Turn], scope: Scope) -> None:
    """Append turns to a conversation; those whose message id is known are skipped.

    A message that was edited after it was stored stays as it was first said; that is told in the log.
    """
    if not turns or scope.conversation_id is None:
        return
    try:
        memory.append(turns, namespace=scope.namespace, conversation_id=scope.conversation_id)
    except SessionConflictError:
        for turn in turns:
            try:
                memory.append(turn, namespace=scope.namespace, conversation_id=scope.conversation_id)
            except SessionConflictError:
                _log.warning("a message was edited after it was remembered; the first wording is kept")


def without_retry(memory: MemGAS, turns: Sequence[Turn], scope: Scope) -> Sequence[Turn]:
    """Leave out the first turn when it stands last in the conversation, unanswered: the run before failed, this repeats it.

    For hosts that give a message a new id with every run, or none.
    """
    if not turns or turns[0].speaker == ASSISTANT:
        return turns
    for record in _newest_first(memory, scope)[:1]:
        stored = memory.get(record.session_id, namespace=scope.namespace).turns
        if stored and (stored[-1].speaker, stored[-1].text) == (turns[0].speaker, turns[0].text):
            return turns[1:]
    return turns


def fail_open(what: str, call: Callable[[], T], default: T, *, strict: bool) -> T:
    """Call inside somebody else's run: a model or store that fails is told in the log, and the run goes on without memory.

    What a programmer has to mend (a user without a name, a closed memory) is raised all the same.
    """
    try:
        return call()
    except (InvalidInputError, ClosedError):
        raise
    except Exception as error:
        if strict:
            raise
        _log.warning("%s failed, the run goes on without it: %s", what, type(error).__name__)
        return default
