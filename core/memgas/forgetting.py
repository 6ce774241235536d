"""Delete, and look for what may be left of the words: in results, in the export, in the bytes on disk."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memgas.errors import InvalidInputError, NotFoundError
from memgas.types import Session, Turn

if TYPE_CHECKING:
    from memgas.memory import MemGAS

PIECE = 8
"""Characters of a piece looked for: a database page may cut a text anywhere, so it is not looked for whole."""


MAX_SEARCHES = 50
"""Removed turns that are searched for; every one is looked for in the export and the files."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be deleted: a namespace, or only a conversation, a session, or one turn of it.

    Raises
    ------
    InvalidInputError
        A turn without its session, or both a session and a conversation.
    """

    namespace: str
    conversation_id: str | None = None
    session_id: str | None = None
    position: int | None = None

    def __post_init__(self) -> None:
        if self.position is not None and self.session_id is None:
            raise InvalidInputError("a turn is named by its session and its position: give the session too")
        if self.conversation_id is not None and self.session_id is not None:
            raise InvalidInputError("give a session or a conversation, not both")

    def __str__(self) -> str:
        whose = f"of namespace {self.namespace!r}"
        if self.position is not None:
            return f"turn {self.position} of session {self.session_id!r} {whose}"
        if self.session_id is not None:
            return f"session {self.session_id!r} {whose}"
        if self.conversation_id is not None:
            return f"conversation {self.conversation_id!r} {whose}"
        return f"everything {whose}"


@dataclass(frozen=True, slots=True)
class Proof:
    """What was looked for after a deletion, and where some of it was found.

    Attributes
    ----------
    n_turns
        Turns that were removed.
    n_pieces
        Pieces of their text that nothing else in the memory says: those were looked for.
    n_unproven
        Removed turns without such a piece: too short, or said elsewhere too.
    in_results, in_export, in_files
        Where a piece was found: removed turns that a search still returns, namespaces, file names.
    """

    n_turns: int
    n_pieces: int
    n_unproven: int
    in_results: tuple[str, ...]
    in_export: tuple[str, ...]
    in_files: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found anywhere."""
        return not (self.in_results or self.in_export or self.in_files)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was deleted.

    Attributes
    ----------
    removed
        The turns, as `session position speaker: text`; only when a proof was wanted.
    """

    target: str
    n_sessions: int
    n_turns: int
    is_erased: bool
    removed: tuple[str, ...] = ()
    proof: Proof | None = None

    def lines(self) -> Iterator[str]:
        """Yield what to print."""
        yield f"deleted {self.target}: {self.n_turns} turns of {self.n_sessions} sessions"
        yield from (f"  {line}" for line in self.removed)
        if self.proof is None:
            return
        yield f"looked for {self.proof.n_pieces} pieces of text that nothing else in the memory says:"
        yield f"  in search results  {_verdict(self.proof.in_results)}"
        yield f"  in the export      {_verdict(self.proof.in_export)}"
        yield f"  in the files       {_verdict(self.proof.in_files)}"
        if self.proof.n_unproven:
            yield f"  {self.proof.n_unproven} turns could not be looked for: too short, or said elsewhere too"
        if self.proof.in_files and not self.is_erased:
            yield "the bytes go with --erase"


def forget(memory: MemGAS, target: Target, *, folder: Path, erase: bool, prove: bool) -> Forgotten:
    """Delete what a target names, and look for it afterwards if a proof is wanted.

    Parameters
    ----------
    memory
        Open, and written to by nobody else meanwhile.
    target
        What to delete.
    folder
        Where the memory keeps its files.
    erase
        Whether to remove the bytes too.
    prove
        Whether to look for the words afterwards.

    Raises
    ------
    NotFoundError
        There is no such namespace, conversation, session or turn.
    """
    doomed = _turns_of(memory, target)
    _delete(memory, target)
    if erase:
        memory.erase()
    sessions = {session_id for session_id, _, _ in doomed}
    removed = tuple(f"{session_id} {position} {turn.speaker}: {turn.text}" for session_id, position, turn in doomed)
    proof = _prove(memory, [turn for _, _, turn in doomed], target.namespace, folder) if prove else None
    return Forgotten(str(target), len(sessions), len(doomed), erase, removed if prove else (), proof)


def telling_pieces(removed: Sequence[Turn], kept: Iterable[str]) -> list[list[str]]:
    """Return, for each removed turn, the pieces of its text that no kept text has.

    Parameters
    ----------
    removed
        The turns that were deleted.
    kept
        Every text that is still in the memory.
    """
    haystack = "\n".join(kept)
    return [[piece for piece in _pieces(turn.text) if piece not in haystack] for turn in removed]


def files_with(folder: Path, pieces: Iterable[str]) -> list[str]:
    """Return the names of the files under a folder in whose bytes a piece is found, as UTF-8 or escaped as in JSON."""
    needles = {form for piece in pieces for form in (piece.encode("utf-8"), json.dumps(piece)[1:-1].encode("ascii"))}
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and _holds_any(path.read_bytes(), needles)
    ]


def _turns_of(memory: MemGAS, target: Target) -> list[tuple[str, int, Turn]]:
    """Return session, position and turn of everything that a target names."""
    sessions = [
        session
        for session in _sessions(memory, target.namespace)
        if target.session_id in (None, session.session_id) and target.conversation_id in (None, session.conversation_id)
    ]
    turns = [
        (session.session_id, position, turn)
        for session in sessions
        for position, turn in enumerate(session.turns)
        if target.position in (None, position) and not turn.is_tombstone
    ]
    if not sessions or (target.position is not None and not turns):
        raise NotFoundError(f"there is nothing to delete: {target} does not exist")
    return turns


def _sessions(memory: MemGAS, namespace: str) -> Iterator[Session]:
    """Yield a namespace's sessions with their turns."""
    if namespace not in memory.namespaces():
        return
    for listed in memory.list_sessions(namespace=namespace, kind=None):
        yield memory.get(listed.session_id, namespace=namespace)


def _delete(memory: MemGAS, target: Target) -> None:
    """Delete what a target names."""
    if target.session_id is not None and target.position is not None:
        memory.delete_turn(target.session_id, target.position, namespace=target.namespace)
    elif target.session_id is not None:
        memory.delete_session(target.session_id, namespace=target.namespace)
    elif target.conversation_id is not None:
        memory.delete_conversation(target.conversation_id, namespace=target.namespace)
    else:
        memory.delete_namespace(target.namespace)


def _prove(memory: MemGAS, removed: Sequence[Turn], namespace: str, folder: Path) -> Proof:
    """Look for removed turns in everything that the memory still says and keeps."""
    names = memory.namespaces()
    kept = [turn.text for name in names for session in _sessions(memory, name) for turn in session.turns]
    by_turn = telling_pieces(removed, kept)
    pieces = {piece for pieces in by_turn for piece in pieces}
    told = [turn for turn, its in zip(removed, by_turn, strict=True) if its]
    return Proof(
        len(removed), len(pieces), len(removed) - len(told),
        tuple(turn.text for turn in told[:MAX_SEARCHES] if _is_found(memory, turn, namespace, pieces)),
        tuple(name for name in names if _is_exported(memory, name, pieces)),
        tuple(files_with(folder, pieces)),
    )  # fmt: skip


def _is_found(memory: MemGAS, turn: Turn, namespace: str, pieces: set[str]) -> bool:
    """Search for a turn by its own words, and tell whether any of the pieces comes back."""
    found = memory.retrieve(turn.text, namespace=namespace, top_k=5)
    shown = [text for hit in found.hits for text in (hit.summary, *hit.keywords, *(e.turn.text for e in hit.evidence))]
    return any(piece in text for text in shown for piece in pieces)


def _is_exported(memory: MemGAS, namespace: str, pieces: set[str]) -> bool:
    """Tell whether a namespace's export holds one of the pieces."""
    out = io.StringIO()
    memory.export_jsonl(out, namespace=namespace)
    text = out.getvalue()
    return any(piece in text or json.dumps(piece)[1:-1] in text for piece in pieces)


def _verdict(places: Sequence[str]) -> str:
    return f"FOUND: {', '.join(places)}" if places else "nothing"


def _pieces(text: str) -> list[str]:
    """Cut a text into pieces of `PIECE` characters; the last one overlaps. None when the text is shorter."""
    starts = [*range(0, len(text) - PIECE, PIECE), len(text) - PIECE] if len(text) >= PIECE else []
    return [text[start : start + PIECE] for start in starts]


def _holds_any(data: bytes, needles: Iterable[bytes]) -> bool:
    return any(needle in data for needle in needles)
