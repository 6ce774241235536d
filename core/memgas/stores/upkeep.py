"""Look a Chroma store over, mend it, copy it. Everything here reads whole collections while nobody writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memgas.stores.batches import blank_unit, is_unit_id, visible_ids
from memgas.stores.journal import Journal
from memgas.stores.rows import (
    META_ID,
    head_from_row,
    head_id,
    record_from_row,
    record_id,
    unit_metadata,
    window_id,
)
from memgas.stores.tables import PAGE_ROWS, Found, Table, Tables, ones
from memgas.types import GRANULARITIES, Granularity, Head, MemoryUnit, SessionRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WINDOW_ID = re.compile(r"([0-9a-f]{32}):w([1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class _Findings:
    """What differs from what should be in one collection.

    Attributes
    ----------
    strays
        Ids of rows that no head and no record names.
    missing
        Ids of units that a record names and that are not there.
    unjournaled
        Ids of units whose vectors the journal lacks.
    windowless
        Ids of units that lack vectors of their windows.
    unreadable
        Ids of rows whose vectors Chroma cannot read.
    unembedded
        Ids of units whose texts have no vector yet.
    """

    table: Table
    strays: Sequence[str]
    missing: Mapping[str, MemoryUnit]
    unjournaled: Sequence[str]
    windowless: Sequence[str]
    unreadable: Sequence[str]
    unembedded: Sequence[str]

    def lines(self) -> list[str]:
        """Say what can be mended, in words."""
        of: dict[str, list[str]] = {}
        for unit in self.missing.values():
            of.setdefault(unit.namespace, []).append(unit.session_id)
        name = self.table.name
        return [
            *([f"{name}: {len(self.strays)} row(s) that no session names"] if self.strays else []),
            *(
                f"{name}: {len(sessions)} unit(s) missing in namespace {namespace!r:.80}, session {sessions[0]!r:.80}"
                + (" and others" if len(set(sessions)) > 1 else "")
                for namespace, sessions in of.items()
            ),
            *([f"{name}: {len(self.unjournaled)} vector(s) missing in the journal"] if self.unjournaled else []),
            *([f"{name}: {len(self.unreadable)} vector(s) that the index cannot read"] if self.unreadable else []),
        ]

    def more_lines(self) -> list[str]:
        """Say what only embedding again can mend."""
        n_units = len({*self.windowless, *self.unembedded})
        what = "unit(s) without a vector, or without those of their windows, have to be embedded again"
        return [f"{self.table.name}: {n_units} {what}"] if n_units else []


def check(tables: Tables, journal: Journal | None) -> list[str]:
    """List what is wrong, in words."""
    findings = list(_look(tables, journal))
    lines = [line for found in findings for line in (*found.lines(), *found.more_lines())]
    n_orphans = len(_orphans(tables, journal))
    return [*lines, *([f"journal: {n_orphans} vector(s) of no unit"] if n_orphans else [])]


def repair(tables: Tables, journal: Journal | None) -> list[str]:
    """Mend what is wrong, and list what was done."""
    findings = list(_look(tables, journal))
    width = width_of(tables, journal)
    for found in findings:
        found.table.delete(found.strays)
        lost: set[str] = set()
        if found.unjournaled and journal is not None:
            lost |= set(_fill_journal(found.table, found.unjournaled, journal, width))
        if found.unreadable:
            lost |= set(rebuild_index(found.table, journal, width, None if journal else found.unreadable))
        lost |= set(_windowless(found.table, journal) & set(found.windowless))
        mark_unembedded(found.table, sorted(lost), journal, width)
        _write_blanks(found.table, list(found.missing.values()), journal, width)
    orphans = _orphans(tables, journal)
    if journal is not None:
        journal.delete(orphans)
    done = [f"mended: {line}" for found in findings for line in found.lines()]
    if orphans:
        done.append(f"mended: journal: {len(orphans)} vector(s) of no unit")
    n_owed = sum(len(table.ids({"n_windows": 0})) for table in tables.units.values())
    return [*done, f"{n_owed} unit(s) have to be embedded again"] if n_owed else done


def drop_strays(tables: Tables, journal: Journal | None) -> None:
    """Delete rows that no head and no record names, and vectors of no row."""
    expected = _Expected.read(tables.meta)
    for table in tables:
        windows = _windows_by_unit(table)
        table.delete(_strays(table.ids(), expected.ids(table, tables), windows))
    if journal is not None:
        journal.delete(_orphans(tables, journal))


def width_of(tables: Tables, journal: Journal | None) -> int:
    """Return how wide the vectors are, read where one can be read; 1 when there are none."""
    if journal is not None and journal.n_dims:
        return journal.n_dims
    found = (vector for table in tables.units.values() for vector in table.vectors(table.ids()[-1:]).values())
    return next((len(vector) for vector in found), 1)


def rebuild_index(table: Table, journal: Journal | None, width: int, ids: Sequence[str] | None = None) -> list[str]:
    """Write the vectors of rows again, all of them by default; return the ids of those that are lost: zero now."""
    lost: list[str] = []
    for page in _pages(table.ids() if ids is None else ids):
        vectors, missing = _best_vectors(table, page, journal, width)
        table.upsert(page, vectors)
        lost += missing
    return lost


def mark_unembedded(table: Table, ids: Sequence[str], journal: Journal | None, width: int) -> None:
    """Write down that units lack vectors, or those of their windows: their texts are to be embedded again.

    Ids of windows stand for their units.
    """
    owners = sorted({_unit_of(row_id) for row_id in ids})
    windows = _windows_by_unit(table) if owners else {}
    for page in _pages(owners):
        vectors, _ = _best_vectors(table, page, journal, width)
        if journal is not None:
            journal.save(page, vectors, [vectors[:0]] * len(page))
        table.upsert(page, vectors, [{"n_windows": 0}] * len(page))  # Chroma merges: the other keys stay
    table.delete([name for uid in owners for name in windows.get(uid, ())])


def _unit_of(row_id: str) -> str:
    match = _WINDOW_ID.fullmatch(row_id)
    return match[1] if match else row_id


def copy_rows(source: Table, target: Table, journal: Journal | None, width: int) -> None:
    """Copy all rows into an empty collection: what was deleted, and the index's memory of it, stay behind."""
    for page in _pages(source.ids()):
        rows = source.get(page, "metadatas", "documents")
        vectors, _ = _best_vectors(source, page, journal, width)
        documents = None if source.is_plain else [rows[row_id].document or "" for row_id in page]
        target.upsert(page, vectors, [rows[row_id].metadata for row_id in page], documents)


@dataclass(frozen=True, slots=True)
class _Expected:
    """What heads and records say there should be: ids of rows, by kind."""

    meta: frozenset[str]
    units: Mapping[Granularity, Mapping[str, tuple[SessionRecord, int]]]

    @classmethod
    def read(cls, meta: Table) -> _Expected:
        """Read heads and records. A record of another epoch than its head's counts for nothing."""
        rows = dict(meta.where(None, "metadatas"))
        heads = {
            head.namespace: head
            for row in rows.values()
            if row.metadata.get("row") == "head"
            for head in [head_from_row(row.metadata)]
        }
        records = {
            row_id: record
            for row_id, row in rows.items()
            if row.metadata.get("row") == "record"
            for record in [record_from_row(row.metadata)]
            if _is_valid(row_id, record, row, heads.get(record.namespace))
        }
        return cls(
            frozenset({META_ID, *map(head_id, heads), *records}),
            {
                granularity: {
                    uid: (record, position)
                    for record in records.values()
                    for position, uid in enumerate(visible_ids(record, granularity))
                }
                for granularity in GRANULARITIES
            },
        )

    def ids(self, table: Table, tables: Tables) -> AbstractSet[str]:
        """Return the ids of the rows that a collection should have, windows apart."""
        granularity = tables.granularity_of(table)
        return self.meta if granularity is None else self.units[granularity].keys()


def _is_valid(row_id: str, record: SessionRecord, row: Found, head: Head | None) -> bool:
    """Tell whether a head vouches for a record."""
    return (
        head is not None
        and row.metadata.get("epoch") == head.epoch
        and record.sequence < head.next_number
        and row_id == record_id(record.namespace, record.sequence)
    )


def _look(tables: Tables, journal: Journal | None) -> Iterator[_Findings]:
    """Compare each collection with what it should be."""
    expected = _Expected.read(tables.meta)
    for table in tables:
        granularity = tables.granularity_of(table)
        ids = table.ids()
        wanted = expected.ids(table, tables)
        windows = _windows_by_unit(table)
        there = set(ids)
        missing: dict[str, MemoryUnit] = {}
        if granularity is not None:
            gone = {uid: at for uid, at in expected.units[granularity].items() if uid not in there}
            missing = {uid: blank_unit(record, granularity, position) for uid, (record, position) in gone.items()}
        kept = [row_id for row_id in ids if row_id in wanted]
        journaled = _n_windows_journaled(journal, [] if granularity is None else kept)
        yield _Findings(
            table=table,
            strays=_strays(ids, wanted, windows),
            missing=missing,
            unjournaled=[uid for uid in kept if uid not in journaled] if journal and granularity is not None else [],
            windowless=sorted(_windowless(table, journal) & wanted),
            unreadable=_unreadable(table, [*kept, *(n for uid in kept for n in windows.get(uid, ()) if n in there)]),
            unembedded=[] if table.is_plain else [uid for uid in table.ids({"n_windows": 0}) if uid in wanted],
        )


def _strays(ids: Sequence[str], wanted: AbstractSet[str], windows: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the ids of rows that are neither wanted nor a window of one that is."""
    of_windows = {name for uid, names in windows.items() if uid in wanted for name in names}
    return [row_id for row_id in ids if row_id not in wanted and row_id not in of_windows]


def _windows_by_unit(table: Table) -> dict[str, list[str]]:
    """Return, for each unit in several windows, the ids that rows of its windows have."""
    if table.is_plain:
        return {}
    windows: dict[str, list[str]] = {}
    for uid, row in table.where({"n_windows": {"$gt": 1}}, "metadatas"):
        n_windows = row.metadata.get("n_windows")
        windows[uid] = [window_id(uid, n) for n in range(1, n_windows + 1)] if isinstance(n_windows, int) else []
    return windows


def _windowless(table: Table, journal: Journal | None) -> AbstractSet[str]:
    """Return the ids of units in several windows whose vectors are not all there."""
    windows = _windows_by_unit(table)
    there = set() if journal or not windows else set(table.ids())
    journaled = _n_windows_journaled(journal, list(windows))
    return {
        uid
        for uid, names in windows.items()
        if (journaled.get(uid) != len(names) if journal else not there.issuperset(names))
    }


def _n_windows_journaled(journal: Journal | None, ids: Sequence[str]) -> dict[str, int]:
    """Return, for each unit that the journal has, the number of its windows there."""
    if journal is None:
        return {}
    return {uid: len(vectors) - 1 for page in _pages(ids) for uid, vectors in journal.load(page).items()}


def _unreadable(table: Table, ids: Sequence[str]) -> list[str]:
    """Return the ids of rows whose vectors Chroma cannot read."""
    return [row_id for page in _pages(ids) for row_id in set(page) - table.vectors(page).keys()]


def _orphans(tables: Tables, journal: Journal | None) -> list[str]:
    """Return the ids of units in the journal that are in no collection."""
    if journal is None:
        return []
    there = {row_id for table in tables.units.values() for row_id in table.ids()}
    return sorted(journal.ids() - there)


def _write_blanks(table: Table, units: Sequence[MemoryUnit], journal: Journal | None, width: int) -> None:
    """Write units without words, with zero vectors, where rows were lost."""
    if units:
        ids = [unit.id for unit in units]
        zeros = np.zeros((len(units), width), np.float32)
        if journal is not None:
            journal.save(ids, zeros, [zeros[:0]] * len(units))
        table.upsert(ids, zeros, [unit_metadata(unit, ()) for unit in units], [""] * len(units))


def _fill_journal(table: Table, ids: Sequence[str], journal: Journal, width: int) -> list[str]:
    """Copy vectors from Chroma into the journal, those of windows that are rows too; return whose are lost."""
    windows = {uid: names for uid, names in _windows_by_unit(table).items() if uid in set(ids)}
    lost: list[str] = []
    for page in _pages(ids):
        names = [name for uid in page for name in windows.get(uid, ())]
        found = {**table.vectors(page), **table.vectors(names)}
        zero = np.zeros(width, np.float32)
        none = np.zeros((0, width), np.float32)
        journal.save(page, np.stack([found.get(uid, zero) for uid in page]), [
            np.stack([found[name] for name in names if name in found]) if names and names[0] in found else none
            for names in (windows.get(uid, []) for uid in page)
        ])  # fmt: skip
        lost += [uid for uid in page if uid not in found]
    return lost


def _best_vectors(
    table: Table, ids: Sequence[str], journal: Journal | None, width: int
) -> tuple[NDArray[np.float32], list[str]]:
    """Return vectors for rows, `(n_rows, n_dims)`: the journal's, else Chroma's, else zeros, and the ids of those."""
    if table.is_plain:
        return ones(len(ids)), []
    found = {} if journal is None else _journaled(journal, ids)
    found |= table.vectors([row_id for row_id in ids if row_id not in found])
    zero = np.zeros(width, np.float32)
    return np.stack([found.get(row_id, zero) for row_id in ids]), [row_id for row_id in ids if row_id not in found]


def _journaled(journal: Journal, ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    """Return what the journal has of rows of units and of windows."""
    places = {row_id: (match[1], int(match[2])) for row_id in ids if (match := _WINDOW_ID.fullmatch(row_id))}
    places |= {row_id: (row_id, 0) for row_id in ids if is_unit_id(row_id)}
    vectors = journal.load(sorted({uid for uid, _ in places.values()}))
    return {row_id: vectors[uid][n] for row_id, (uid, n) in places.items() if uid in vectors and n < len(vectors[uid])}


def _pages(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut ids into pages."""
    return (ids[start : start + PAGE_ROWS] for start in range(0, len(ids), PAGE_ROWS))
