"""Batches to test a store with, and what comes of loading them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import numpy as np

from memgas.protocols import Store
from memgas.types import (
    GRANULARITIES,
    Association,
    Batch,
    Granularity,
    Head,
    MemoryUnit,
    SessionRecord,
    Span,
)
from memgas.units import unit_id

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_DIMS = 8
MAY = datetime(2023, 5, 8, 13, 56, 7, 123_456, tzinfo=timezone(timedelta(hours=5, minutes=30)))


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """All pages of one load, put together."""

    heads: tuple[Head, ...] = ()
    records: tuple[SessionRecord, ...] = ()
    units: tuple[MemoryUnit, ...] = ()
    vectors: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, N_DIMS), np.float32))
    windows: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    associations: Mapping[str, Sequence[Association]] = field(default_factory=dict)
    n_pages: int = 0


def load_all(store: Store, namespace: str, since: int | None = None) -> Loaded:
    """Load a namespace and put its pages together."""
    pages = list(store.load(namespace, since))
    vectors = [page.vectors for page in pages if page.units]
    return Loaded(
        heads=tuple(page.head for page in pages),
        records=tuple(record for page in pages for record in page.records),
        units=tuple(unit for page in pages for unit in page.units),
        vectors=np.concatenate(vectors) if vectors else np.zeros((0, N_DIMS), np.float32),
        windows={
            page.units[owner].id: page.windows[page.window_owners == owner]
            for page in pages
            for owner in np.unique(page.window_owners)
        },
        associations={uid: tuple(edges) for page in pages for uid, edges in page.associations.items()},
        n_pages=len(pages),
    )


def assert_same(got: Loaded, wanted: Loaded) -> None:
    """Compare two loads: everything exactly, vectors to 1e-6."""
    assert got.records == wanted.records
    assert got.units == wanted.units
    assert got.vectors.dtype == np.float32
    np.testing.assert_allclose(got.vectors, wanted.vectors, rtol=0, atol=1e-6)
    assert got.windows.keys() == wanted.windows.keys()
    for uid, windows in wanted.windows.items():
        np.testing.assert_allclose(got.windows[uid], windows, rtol=0, atol=1e-6)
    assert got.associations == wanted.associations


def unit_vectors(n: int, seed: int) -> NDArray[np.float32]:
    """Return normalised vectors, `(n, N_DIMS)`."""
    vectors = np.random.default_rng(seed).normal(size=(n, N_DIMS)).astype(np.float32)
    normalised: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return normalised


def make_record(namespace: str, session_id: str, sequence: int, **changes: object) -> SessionRecord:
    """Return a record of a session without units."""
    record = SessionRecord(namespace, session_id, sequence, sequence, 1, MAY, MAY, MAY)
    return replace(record, **changes)  # type: ignore[arg-type]


def make_units(record: SessionRecord, says: str = "word") -> list[MemoryUnit]:
    """Return the units that a record names."""
    return [
        MemoryUnit(
            unit_id(record.namespace, record.session_id, record.generation, granularity, position),
            record.namespace, record.session_id, record.generation, granularity, position,
            f"{says} {granularity} {position}",
        )
        for granularity in GRANULARITIES
        for position in range(record.n_units[granularity.axis])
    ]  # fmt: skip


def make_batch(
    records: Sequence[SessionRecord],
    units: Sequence[MemoryUnit] = (),
    *,
    head: Head | None = None,
    associations: Mapping[str, Sequence[Association]] | None = None,
    obsolete: Sequence[str] = (),
    seed: int = 0,
) -> Batch:
    """Return a batch with vectors and windows for its units."""
    if head is None:
        numbers = [max(record.sequence, record.generation) for record in records]
        head = Head(records[0].namespace, "epoch", records[0].revision, max(numbers) + 1)
    n_windows = [unit.n_windows if unit.n_windows > 1 else 0 for unit in units]
    return Batch(
        head, records, units, unit_vectors(len(units), seed), np.repeat(np.arange(len(units), dtype=np.intp), n_windows),
        unit_vectors(sum(n_windows), seed + 1), associations or {}, obsolete,
    )  # fmt: skip


def make_session(namespace: str, session_id: str = "s", sequence: int = 0, n_turn_units: int = 3) -> Batch:
    """Return a batch with one whole session, its units joined to one that does not exist."""
    record = make_record(namespace, session_id, sequence, n_turns=2 * n_turn_units, n_units=(1, n_turn_units, 1, 1))
    units = make_units(record)
    target = unit_id(namespace, "elsewhere", 0, Granularity.SUMMARY, 0)
    edges = {unit.id: [Association(unit.id, target, 0.5)] for unit in units}
    return make_batch([record], units, associations=edges, seed=sequence)


def make_exchange(namespace: str) -> Batch:
    """Return a batch of one exchange."""
    record = make_record(namespace, "s", 0, n_turns=2, n_units=(0, 1, 0, 0))
    return make_batch([record], make_units(record))


def rich_batch(namespace: str) -> Batch:
    """Return a batch in which every field says something, and something difficult."""
    spans = (
        Span("user", 6, 20, MAY, "message-1"),
        Span("助手", 25, 25, None, None),
        Span("👩‍🚀 'x' \"y\"", 30, 34, MAY.astimezone(UTC) + timedelta(microseconds=1), ""),
    )
    record = make_record(
        namespace, "2023-05-08 #1 \u2028", 0, revision=7, generation=2, n_turns=3, n_units=(1, 3, 1, 1),
        happened_at=MAY, added_at=MAY + timedelta(days=1), updated_at=MAY.astimezone(UTC),
        conversation_id="thread#1", kind="item", first_turn=64, digest_source="extractive", is_open=True, is_pending=True,
        metadata={"a": [1, 2.5, None, True, {"ü": "👍"}], "$and": "", "empty": {}, "nul": "\x00", "lone": "\ud800"},
    )  # fmt: skip
    texts = iter(["session\ttext\r\n", "user: I adopted 猫 👩‍👩‍👧‍👦\nx", "", "long " * 5_000, "summary", "a; b"])
    units = [replace(unit, text=next(texts)) for unit in make_units(record)]
    turns = [n for n, unit in enumerate(units) if unit.granularity is Granularity.TURN]
    units[turns[0]] = replace(units[turns[0]], spans=spans)
    units[turns[1]] = replace(units[turns[1]], first_turn=3, spans=(Span("user", 0, 0),))
    units[turns[2]] = replace(units[turns[2]], first_turn=4, n_windows=3)
    units[0] = replace(units[0], n_windows=2)
    others = [unit_id(namespace, "other", 0, Granularity.TURN, n) for n in range(500)]
    edges = {
        units[0].id: [Association(units[0].id, other, 0.1 + n / 1_000) for n, other in enumerate(others)],
        units[1].id: [Association(units[1].id, units[2].id, -1.0)],
        units[2].id: [Association(units[2].id, other, 1.0) for other in others[:166]],
    }
    batch = make_batch([record], units, head=Head(namespace, "epoch", 7, 3), associations=edges)
    batch.vectors[turns[1]] = 0.0
    return batch


def random_walk(*, seed: int, n_steps: int) -> Iterator[Callable[[Store], None]]:
    """Yield acts upon a store: each leaves whole sessions."""
    dice = random.Random(seed)
    living: dict[str, dict[int, SessionRecord]] = {}
    numbers: dict[str, int] = {}
    for revision in range(1, n_steps + 1):
        name = dice.choice(["ann", "bob"])
        sessions = living.setdefault(name, {})
        number = numbers.get(name, 0)
        kind = dice.choice(["add", "add", "grow", "replace", "forget", "delete"] if sessions else ["add"])
        if kind == "delete" and dice.random() < 0.6:
            kind = "add"
        if kind == "delete":
            living[name] = {}
            yield lambda store, name=name: store.delete(name)  # type: ignore[misc]
            continue
        sequence = number if kind == "add" else dice.choice(sorted(sessions))
        old = sessions.get(sequence)
        record, units, obsolete = _step(kind, name, sequence, number, revision, old=old, dice=dice)
        numbers[name] = number + (kind in ("add", "replace"))
        sessions.pop(sequence, None)
        if not record.is_deleted:
            sessions[sequence] = record
        edges = {unit.id: [Association(unit.id, units[0].id, dice.random())] for unit in units[1:]}
        batch = make_batch(
            [record], units, head=Head(name, "epoch", revision, numbers[name]), associations=edges, obsolete=obsolete,
            seed=revision,
        )  # fmt: skip
        yield lambda store, batch=batch: store.put(batch)  # type: ignore[misc]


def _step(
    kind: str, name: str, sequence: int, number: int, revision: int, *, old: SessionRecord | None, dice: random.Random
) -> tuple[SessionRecord, list[MemoryUnit], list[str]]:
    """Return the record, the units and the obsolete ids of one act."""
    was = [unit.id for unit in make_units(old)] if old else []
    if kind == "forget":
        return make_record(name, "", sequence, generation=sequence, revision=revision, is_deleted=True), [], was
    if kind == "grow" and old:
        n_session, n_turn, n_summary, n_keyword = old.n_units
        record = replace(old, revision=revision, n_units=(n_session, n_turn + 1, n_summary, n_keyword))
        turns = [unit for unit in make_units(record, f"r{revision}") if unit.granularity is Granularity.TURN]
        return record, turns[-2:], []
    record = make_record(
        name, f"s{sequence}", sequence, generation=number, revision=revision, n_units=(1, dice.randint(1, 4), 1, 1),
        metadata={"revision": revision},
    )  # fmt: skip
    units = [
        replace(unit, n_windows=dice.choice([1, 1, 1, 2, 3]), spans=(Span("user", 0, position, MAY),))
        for position, unit in enumerate(make_units(record, f"r{revision}"))
    ]
    return record, units, was
