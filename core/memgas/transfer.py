"""A namespace as JSONL, a session a line: its words, digest, times, metadata and associations; no vectors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import IO

from memgas.checks import check_digest, check_json, check_name, check_time, clean_text, is_blank
from memgas.errors import InvalidInputError
from memgas.fingerprint import Fingerprint
from memgas.index import NamespaceIndex, SessionState
from memgas.remembering import Draft, GivenEdge
from memgas.sessions import Sessions
from memgas.stored import fetch_session
from memgas.types import JSON, Digest, Granularity, Session, Turn
from memgas.workspace import Workspace

VERSION = 1
_PROBE_DIMS = 8


def export_lines(workspace: Workspace, namespace: str, fingerprint: Fingerprint | None) -> Iterator[str]:
    """Yield a line per session, in the order of adding; edges stand with the younger of their two sessions."""
    with workspace.reading(namespace) as index:
        ids = [state.record.session_id for state in index.visible_sessions()]
        edges = _edges_by_session(index)
    for session_id in ids:
        with workspace.reading(namespace) as index:
            state = index.visible(session_id)
            session = fetch_session(workspace.store, index, state) if state is not None else None
        if session is not None:
            yield json.dumps(_line(session, state, edges.get(session_id, []), fingerprint), ensure_ascii=False)


def _edges_by_session(index: NamespaceIndex) -> dict[str, list[JSON]]:
    places = {
        index.unit_id(node): (state, granularity.value, position)
        for state in index.visible_sessions()
        for granularity, by_position in state.nodes.items()
        for position, node in by_position.items()
    }
    found: dict[str, list[JSON]] = {}
    for edge in index.associations():
        if edge.source not in places or edge.target not in places:
            continue
        old, young = sorted((places[edge.source], places[edge.target]), key=lambda place: place[0].record.sequence)
        found.setdefault(young[0].record.session_id, []).append(
            [young[1], young[2], old[0].record.session_id, old[1], old[2], edge.similarity]
        )
    return found


def _line(session: Session, state: SessionState | None, edges: list[JSON], made: Fingerprint | None) -> dict[str, JSON]:
    digest = session.digest
    return {
        "version": VERSION,
        "session_id": session.session_id,
        "sequence": session.sequence,
        "kind": session.kind,
        "conversation_id": session.conversation_id,
        "first_turn": state.record.first_turn if state else 0,
        "happened_at": session.happened_at.isoformat(),
        "added_at": session.added_at.isoformat(),
        "metadata": session.metadata,
        "turns": [_turn(turn) for turn in session.turns],
        "exchanges": sorted(state.exchange_starts.values()) if state else [],
        "digest": None
        if digest is None
        else {"summary": digest.summary, "keywords": list(digest.keywords), "source": digest.source},
        "embedder": None if made is None else {"name": made.embedder, "probe": list(made.probe[:_PROBE_DIMS])},
        "associations": edges,
    }


def _turn(turn: Turn) -> dict[str, JSON]:
    """Return a turn without what it lacks; a tombstone has an empty text."""
    data: dict[str, JSON] = {"speaker": turn.speaker, "text": turn.text}
    if turn.happened_at is not None:
        data["happened_at"] = turn.happened_at.isoformat()
    if turn.id is not None:
        data["id"] = turn.id
    return data


def write_lines(file: IO[str], lines: Iterable[str]) -> int:
    """Write lines; return how many."""
    n_lines = 0
    for line in lines:
        file.write(line + "\n")
        n_lines += 1
    return n_lines


def import_lines(
    sessions: Sessions,
    namespace: str,
    lines: Iterable[str],
    fingerprint: Fingerprint,
    progress: Callable[[int], None] | None,
) -> int:
    """Add the sessions of lines; return how many were new."""
    reader = _Reader(fingerprint, sessions.exchange_starts)
    drafts = (reader.draft(line, number) for number, line in _numbered(lines))
    return sum(added.n_new_turns > 0 for added in sessions.add_drafts(namespace, drafts, progress))


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers."""
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            if not isinstance(line, str):
                raise InvalidInputError(f"line {number} must be text; got {type(line).__name__}")
            if line.strip():
                yield number, line
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"after line {number} comes what is not UTF-8: {error}") from error


class _Reader:
    """Reads the lines of one export.

    Parameters
    ----------
    fingerprint
        Of the embedder here.
    exchange_starts
        Cuts turns into exchanges as they are cut here.
    """

    def __init__(self, fingerprint: Fingerprint, exchange_starts: Callable[[Sequence[Turn]], list[int]]) -> None:
        self._fingerprint = fingerprint
        self._exchange_starts = exchange_starts
        self._is_cut_alike: dict[str, bool] = {}

    def draft(self, line: str, number: int) -> Draft:
        """Read one line."""
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"line {number} is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise InvalidInputError(f"line {number} must be a JSON object; got {type(data).__name__}")
        try:
            return self._believed(_draft_of(data, self._fingerprint), data.get("exchanges"))
        except (InvalidInputError, KeyError, TypeError, ValueError, OverflowError) as error:
            reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise InvalidInputError(f"line {number} is no session of an export: {reason}") from error

    def _believed(self, draft: Draft, exchanges: object) -> Draft:
        """Return a draft without associations where they name exchanges that are cut otherwise here: made anew."""
        self._is_cut_alike[draft.session_id] = exchanges == self._exchange_starts(draft.turns)
        named = {draft.session_id, *(edge.target_session for edge in draft.associations or ())}
        if all(self._is_cut_alike.get(name, True) for name in named):
            return draft
        return replace(draft, associations=None)


def _draft_of(data: Mapping[str, object], fingerprint: Fingerprint) -> Draft:
    version = data.get("version")
    if version != VERSION:
        raise InvalidInputError(f"its version must be {VERSION}; got {version!r}")
    kind = data.get("kind", "chat")
    if kind not in ("chat", "item"):
        raise InvalidInputError(f"kind must be 'chat' or 'item'; got {kind!r}")
    conversation_id = data.get("conversation_id")
    first_turn = data.get("first_turn", 0)
    if not isinstance(first_turn, int) or first_turn < 0:
        raise InvalidInputError(f"first_turn must be a position; got {first_turn!r}")
    turns = tuple(_read_turn(turn) for turn in _list(data["turns"]))
    if kind == "chat" and not turns:
        raise InvalidInputError("a chat has at least one turn")
    return Draft(
        check_name(data["session_id"], "session_id"),
        turns,
        _time(data["happened_at"], "happened_at"),
        _time(data["added_at"], "added_at"),
        check_json(data.get("metadata"), "metadata"),
        None if conversation_id is None else check_name(conversation_id, "conversation_id"),
        first_turn,
        "item" if kind == "item" else "chat",
        _read_digest(data.get("digest")),
        associations=_read_edges(data, fingerprint),
    )


def _read_turn(data: object) -> Turn:
    if not isinstance(data, dict) or not isinstance(data["speaker"], str) or not isinstance(data["text"], str):
        raise InvalidInputError("a turn must have a speaker and a text")
    if data["text"] and is_blank(data["text"]):
        raise InvalidInputError("the text of a turn is blank; that of a deleted turn is empty")
    moment, turn_id = data.get("happened_at"), data.get("id")
    return Turn(
        " ".join(clean_text(data["speaker"]).split()) or "unknown",
        clean_text(data["text"]),
        None if moment is None else _time(moment, "happened_at of a turn"),
        None if turn_id is None else check_name(turn_id, "the id of a turn"),
    )


def _read_digest(data: object) -> Digest | None:
    if data is None:
        return None
    if not isinstance(data, dict) or not isinstance(data["summary"], str):
        raise InvalidInputError("a digest must have a summary and keywords")
    keywords = tuple(word for word in _list(data["keywords"]) if isinstance(word, str))
    return check_digest(Digest(data["summary"], keywords, str(data.get("source", "given"))))


def _read_edges(data: Mapping[str, object], fingerprint: Fingerprint) -> list[GivenEdge] | None:
    """Return the associations of a line; None, to be computed anew, when another embedder made them."""
    made = data.get("embedder")
    probe = made.get("probe") if isinstance(made, dict) else None
    if not isinstance(probe, list) or len(probe) != len(fingerprint.probe[:_PROBE_DIMS]):
        return None
    if not all(abs(float(a) - b) <= 1e-3 for a, b in zip(probe, fingerprint.probe, strict=False)):
        return None
    return [_read_edge(_list(edge)) for edge in _list(data.get("associations", []))]


def _read_edge(edge: list[JSON]) -> GivenEdge:
    match edge:
        case [str(source), int(at), str(session_id), str(target), int(target_at), float() | int() as similarity]:
            if not (math.isfinite(similarity) and -1 <= similarity <= 1):
                raise InvalidInputError(f"the similarity of an association is a cosine; got {similarity!r}")
            return GivenEdge(Granularity(source), at, session_id, Granularity(target), target_at, float(similarity))
    raise InvalidInputError(f"an association has six parts; got {edge!r}")


def _list(value: object) -> list[JSON]:
    if not isinstance(value, list):
        raise InvalidInputError(f"a list was expected; got {type(value).__name__}")
    return value


def _time(value: object, what: str) -> datetime:
    if not isinstance(value, str):
        raise InvalidInputError(f"{what} must be an ISO time; got {type(value).__name__}")
    return check_time(datetime.fromisoformat(value), what)
