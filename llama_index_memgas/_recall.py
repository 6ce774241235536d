"""What block and memory share: recall around what the model sees anyway, failing open."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from llama_index.core.async_utils import asyncio_run

from llama_index_memgas._convert import harmless, mark
from memgas import ClosedError, Hit, InvalidInputError, MemGAS, MemGASError, Turn
from memgas.checks import is_blank

T = TypeVar("T")
_log = logging.getLogger("llama_index_memgas")

MIN_SCORE = 0.2
"""Default gate: what a greeting finds scores below it, what a question is about nearly always above."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A user, and the conversation if there is one."""

    namespace: str
    conversation_id: str | None = None


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

    top_k: int
    max_tokens: int
    min_score: float
    filter: Literal["llm"] | None


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model sees anyway, and must not be told again.

    Attributes
    ----------
    places
        (session id, position) of turns.
    whole
        Sessions of which every turn is shown.
    """

    places: frozenset[tuple[str, int]] = field(default=frozenset())
    whole: frozenset[str] = field(default=frozenset())


def shown_among(memory: MemGAS, scope: Scope, turns: Sequence[Turn]) -> Shown:
    """Return where turns that a host shows are stored in its conversation, looking from its end.

    They are known by message id, or else by their text: as many copies, the newest, as the host shows.
    """
    if scope.conversation_id is None or not turns:
        return Shown()
    left = Counter(map(_key, turns))
    places: set[tuple[str, int]] = set()
    whole: set[str] = set()
    records = memory.list_sessions(namespace=scope.namespace, conversation_id=scope.conversation_id)
    for record in reversed(records):
        session = memory.get(record.session_id, namespace=scope.namespace)
        there = [(at, turn) for at, turn in enumerate(session.turns) if not turn.is_tombstone]
        found = [at for at, turn in reversed(there) if _take(left, turn)]
        if not found:
            break  # what a host shows is the conversation's end
        places.update((record.session_id, at) for at in found)
        if len(found) == len(there):
            whole.add(record.session_id)
    return Shown(frozenset(places), frozenset(whole))


def _key(turn: Turn) -> tuple[str, ...]:
    return (turn.speaker, turn.text) if turn.id is None else (turn.id,)


def _take(left: Counter[tuple[str, ...]], turn: Turn) -> bool:
    """Take a turn out of those that are looked for; tell whether it was one of them."""
    for key in ((turn.id or "",), (turn.speaker, turn.text)):
        if left[key] > 0:
            left[key] -= 1
            return True
    return False


def recall(
    memory: MemGAS, query: str, namespace: str, shown: Shown, options: RecallOptions, *, tags: Sequence[str]
) -> str:
    """Return marked text of what matters for a query and is not shown anyway; empty when nothing does.

    Parameters
    ----------
    tags
        Names of the tags it will stand between; nothing in the text looks like one of them.
    """
    if is_blank(query):
        return ""
    found = memory.retrieve(
        query, namespace=namespace, top_k=options.top_k, min_score=options.min_score, filter=options.filter,
        exclude_turns=shown.places, exclude_sessions=shown.whole,
    )  # fmt: skip
    partly = {session_id for session_id, _ in shown.places}
    hits = tuple(hit for hit in (_without_repetition(hit, partly) for hit in found.hits) if hit.evidence or hit.summary)
    return mark(harmless(replace(found, hits=hits).context(options.max_tokens), tags)) if hits else ""


def _without_repetition(hit: Hit, partly_shown: Collection[str]) -> Hit:
    """Drop the summary of a session that is shown in part, and the lines of an extracted one that its evidence repeats."""
    if hit.session_id in partly_shown:
        return replace(hit, summary="")
    said = "\n".join(f"{piece.turn.speaker}: {piece.turn.text}" for piece in hit.evidence)
    return replace(hit, summary="\n".join(line for line in hit.summary.splitlines() if line not in said))


def fail_open(what: str, call: Callable[[], T], default: T, *, strict: bool) -> T:
    """Call inside somebody else's run: a model or store that fails is told in the log, and the run goes on without memory.

    What a programmer has to mend (a user without a name, a closed memory) is raised all the same.
    """
    try:
        return call()
    except (InvalidInputError, ClosedError):
        raise
    except MemGASError as error:
        if strict:
            raise
        _log.warning("%s failed, the run goes on without it: %s", what, type(error).__name__)
        return default


async def afail_open(what: str, call: Awaitable[T], default: T | None, *, strict: bool) -> T | None:
    """Do what `fail_open` does for something awaitable."""
    try:
        return await call
    except (InvalidInputError, ClosedError):
        raise
    except MemGASError as error:
        if strict:
            raise
        _log.warning("%s failed, the run goes on without it: %s", what, type(error).__name__)
        return default


def run(work: Coroutine[object, object, T]) -> T:
    """Wait for something to be done, inside a running event loop or not; what it raises is raised as it is."""
    done: list[T] = []
    failed: list[RuntimeError] = []

    async def guarded() -> None:
        try:
            done.append(await work)
        except RuntimeError as error:  # `asyncio_run` takes it for its own trouble, and runs the work again
            failed.append(error)

    asyncio_run(guarded())
    for error in failed:
        raise error
    return done[0]
