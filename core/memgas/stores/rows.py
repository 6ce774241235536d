"""Dataclasses -> Chroma metadata, and back. Pure.

Every key of a kind of row is written every time: Chroma merges metadata on upsert, so a key left out would keep its old
value. Values are scalars. Numbers of edges apart (`edges`, `edges_1`, ...), the set of keys is fixed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count, islice
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from memgas.errors import InvalidInputError, StoreCorruptError
from memgas.types import (
    GRANULARITIES,
    JSON,
    Association,
    Associations,
    Granularity,
    Head,
    MemoryUnit,
    SessionRecord,
    Span,
)
from memgas.units import hash_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

Scalar = str | int | float | bool
Metadata = Mapping[str, object]

EDGE = np.dtype([("target", "V16"), ("similarity", "<f2")])
"""18 bytes an edge: the target's id, its cosine."""

MAX_EDGES_A_KEY = 166
"""In base64 just under 4,000 characters, the most that hosted Chroma takes in one value."""


META_ID = hash_parts("store", "meta")
"""Row id of what is set about the store as a whole."""


def record_id(namespace: str, sequence: int) -> str:
    """Return the row id of a session's record."""
    return hash_parts(namespace, "record", str(sequence))


def head_id(namespace: str) -> str:
    """Return the row id of a namespace's head."""
    return hash_parts(namespace, "head")


def window_id(unit_id: str, window: int) -> str:
    """Return the row id of a window's vector, `window` counted from 1."""
    return f"{unit_id}:w{window}"


def dump_json(value: object) -> str:
    """Write one JSON value as ASCII, so that no text in it can be one that the database refuses.

    Raises
    ------
    InvalidInputError
        It is not a JSON value.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"metadata must be one JSON value (None, bool, number, str, list, dict): {error}"
        ) from error


def load_json(text: object) -> JSON:
    """Read what `dump_json` wrote."""
    try:
        return cast("JSON", json.loads(_text(text)))
    except json.JSONDecodeError as error:
        raise StoreCorruptError(f"a row holds {text!r:.60} where JSON was expected") from error


def quantise(similarity: float) -> float:
    """Round a cosine to float16: as precise as any store keeps it."""
    return float(np.float16(similarity))


def pack_edges(associations: Sequence[Association]) -> dict[str, Scalar]:
    """Write a unit's associations as compact strings under `edges`, `edges_1`, ...

    A string that is full is followed by another, if only by an empty one: what an earlier, longer list left behind it
    is thus never read.
    """
    edges: NDArray[np.void] = np.empty(len(associations), EDGE)
    edges["target"] = np.frombuffer(b"".join(bytes.fromhex(association.target) for association in associations), "V16")
    edges["similarity"] = [association.similarity for association in associations]
    n_keys = len(edges) // MAX_EDGES_A_KEY + 1
    return {
        key: base64.b64encode(edges[n * MAX_EDGES_A_KEY : (n + 1) * MAX_EDGES_A_KEY].tobytes()).decode("ascii")
        for n, key in enumerate(islice(_edge_keys(), n_keys))
    }


def unpack_edges(source: str, metadata: Metadata) -> Associations:
    """Read what `pack_edges` wrote."""
    targets: list[str] = []
    similarities: list[float] = []
    for key in _edge_keys():
        edges = np.frombuffer(base64.b64decode(_text(metadata.get(key))), EDGE)
        names = edges["target"].tobytes().hex()
        targets += [names[at : at + 32] for at in range(0, len(names), 32)]
        similarities += edges["similarity"].tolist()
        if len(edges) < MAX_EDGES_A_KEY:
            break
    return Associations(source, targets, similarities)


def unit_metadata(unit: MemoryUnit, associations: Sequence[Association]) -> dict[str, Scalar]:
    """Write a unit, its text apart, which is the row's document. Few keys: each costs a load 5 µs a row."""
    spans = [[span.speaker, span.start, span.end, _iso(span.happened_at), span.id] for span in unit.spans]
    return {
        "namespace": unit.namespace,
        "session_id": unit.session_id,
        "generation": unit.generation,
        "position": unit.position,
        "turns": dump_json([unit.first_turn, spans]) if spans or unit.first_turn else "",
        "n_windows": unit.n_windows,
        **pack_edges(associations),
    }


def unit_from_row(row_id: str, granularity: Granularity, text: str | None, metadata: Metadata) -> MemoryUnit:
    """Read a unit."""
    first_turn, spans = _turns(_text(metadata.get("turns")))
    return MemoryUnit(
        id=row_id,
        namespace=_text(metadata.get("namespace")),
        session_id=_text(metadata.get("session_id")),
        generation=_int(metadata.get("generation")),
        granularity=granularity,
        position=_int(metadata.get("position")),
        text=text or "",
        first_turn=first_turn,
        spans=spans,
        n_windows=_int(metadata.get("n_windows")),
    )


def window_metadata(unit: MemoryUnit, window: int) -> dict[str, Scalar]:
    """Write what a window's row says: enough to be told from a unit, and to be deleted with its namespace."""
    return {"namespace": unit.namespace, "session_id": unit.session_id, "window": window}


def record_metadata(record: SessionRecord, epoch: str) -> dict[str, Scalar]:
    """Write a record. With the epoch of its head, so that no record outlives a deletion that was cut short."""
    return {
        "row": "record",
        "namespace": record.namespace,
        "epoch": epoch,
        "session_id": record.session_id,
        "sequence": record.sequence,
        "generation": record.generation,
        "revision": record.revision,
        "happened_at": record.happened_at.isoformat(),
        "added_at": record.added_at.isoformat(),
        "updated_at": record.updated_at.isoformat(),
        "n_turns": record.n_turns,
        **{f"n_{g.value}_units": record.n_units[g.axis] for g in GRANULARITIES},
        "has_conversation": record.conversation_id is not None,
        "conversation_id": record.conversation_id or "",
        "first_turn": record.first_turn,
        "metadata": dump_json(record.metadata),
        "kind": record.kind,
        "digest_source": record.digest_source,
        "is_open": record.is_open,
        "is_pending": record.is_pending,
        "is_deleted": record.is_deleted,
    }


def record_from_row(metadata: Metadata) -> SessionRecord:
    """Read a record."""
    n_session, n_turn, n_summary, n_keyword = (_int(metadata.get(f"n_{g.value}_units")) for g in GRANULARITIES)
    return SessionRecord(
        namespace=_text(metadata.get("namespace")),
        session_id=_text(metadata.get("session_id")),
        sequence=_int(metadata.get("sequence")),
        generation=_int(metadata.get("generation")),
        revision=_int(metadata.get("revision")),
        happened_at=_datetime(metadata.get("happened_at")),
        added_at=_datetime(metadata.get("added_at")),
        updated_at=_datetime(metadata.get("updated_at")),
        n_turns=_int(metadata.get("n_turns")),
        n_units=(n_session, n_turn, n_summary, n_keyword),
        conversation_id=_text(metadata.get("conversation_id")) if metadata.get("has_conversation") else None,
        first_turn=_int(metadata.get("first_turn")),
        metadata=load_json(metadata.get("metadata")),
        kind=cast("Literal['chat', 'item']", _text(metadata.get("kind"))),
        digest_source=_text(metadata.get("digest_source")),
        is_open=bool(metadata.get("is_open")),
        is_pending=bool(metadata.get("is_pending")),
        is_deleted=bool(metadata.get("is_deleted")),
    )


def head_metadata(head: Head) -> dict[str, Scalar]:
    """Write a head."""
    return {
        "row": "head",
        "namespace": head.namespace,
        "epoch": head.epoch,
        "revision": head.revision,
        "next_number": head.next_number,
    }


def head_from_row(metadata: Metadata) -> Head:
    """Read a head."""
    return Head(
        namespace=_text(metadata.get("namespace")),
        epoch=_text(metadata.get("epoch")),
        revision=_int(metadata.get("revision")),
        next_number=_int(metadata.get("next_number")),
    )


def _edge_keys() -> Iterator[str]:
    """Yield `edges`, `edges_1`, `edges_2`, ..."""
    yield "edges"
    for n in count(1):
        yield f"edges_{n}"


def _turns(text: str) -> tuple[int, tuple[Span, ...]]:
    """Read the position of the first turn, and the spans of an exchange."""
    if not text:
        return 0, ()
    first_turn, spans = cast("tuple[int, list[tuple[str, int, int, str | None, str | None]]]", load_json(text))
    return first_turn, tuple(
        Span(speaker, start, end, None if happened_at is None else _datetime(happened_at), turn_id)
        for speaker, start, end, happened_at, turn_id in spans
    )


def _iso(moment: datetime | None) -> str | None:
    """Write a time with its microseconds and its offset."""
    return None if moment is None else moment.isoformat()


def _datetime(value: object) -> datetime:
    """Read a time."""
    try:
        return datetime.fromisoformat(_text(value))
    except ValueError as error:
        raise StoreCorruptError(f"a row holds {value!r:.60} where an ISO time was expected") from error


def _int(value: object) -> int:
    """Read a whole number."""
    if not isinstance(value, int):
        raise StoreCorruptError(f"a row holds {value!r:.60} where a whole number was expected")
    return value


def _text(value: object) -> str:
    """Read a text."""
    if not isinstance(value, str):
        raise StoreCorruptError(f"a row holds {value!r:.60} where a text was expected")
    return value
