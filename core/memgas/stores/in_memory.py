"""The reference store: dictionaries behind one lock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import RLock

import numpy as np

from memgas.errors import ClosedError, StoreCorruptError
from memgas.stores.batches import (
    Row,
    all_visible_ids,
    assemble,
    blank_unit,
    check_batch,
    check_width,
    pages_of,
    says_something,
    split_windows_of,
    visible_ids,
)
from memgas.stores.rows import dump_json, load_json, quantise
from memgas.types import GRANULARITIES, JSON, Association, Batch, Head, MemoryUnit, SessionRecord

PAGE_UNITS = 2_000
"""About how many units a page of `load` has."""


@dataclass(slots=True)
class _Space:
    """One namespace."""

    head: Head
    records: dict[int, SessionRecord] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)


class InMemoryStore:
    """Keeps rows in this process and nowhere else. Any number of threads may call it at once.

    The rules are those of `memgas.protocols.Store`. Numbers are as precise as in a store on disk: similarities are
    float16, metadata is what JSON makes of it.
    """

    def __init__(self) -> None:
        self._spaces: dict[str, _Space] = {}
        self._meta = "{}"
        self._n_dims = 0
        self._lock = RLock()
        self._is_closed = False

    @property
    def is_exclusive(self) -> bool:
        """Whether nobody else can write to it: yes."""
        return True

    def put(self, batch: Batch) -> None:
        """Write a batch, all or nothing to any reader.

        Raises
        ------
        ShapeError
            Arrays do not fit the units, or the vectors that are kept already. Nothing was written.
        InvalidInputError
            A row cannot be kept. Nothing was written.
        """
        check_batch(batch)
        rows = _rows_of(batch)
        records = [replace(record, metadata=load_json(dump_json(record.metadata))) for record in batch.records]
        with self._lock:
            self._check_open()
            check_width(self._n_dims, batch.vectors.shape[1])
            self._n_dims = self._n_dims or batch.vectors.shape[1]
            space = self._spaces.setdefault(batch.head.namespace, _Space(batch.head))
            if space.head.epoch != batch.head.epoch:
                space.records.clear()
            space.head = batch.head
            space.rows.update(rows)
            space.records.update({record.sequence: record for record in records})
            for uid in batch.obsolete:
                space.rows.pop(uid, None)

    def head(self, namespace: str) -> Head | None:
        """Return the namespace's head; None when there is none."""
        with self._lock:
            self._check_open()
            space = self._spaces.get(namespace)
            return space.head if space else None

    def load(self, namespace: str, since: int | None = None) -> Iterator[Batch]:
        """Read what the records name, a page at a time, as it was when `load` was called.

        A namespace that has a head yields one batch at least, if only to show its head.

        Raises
        ------
        StoreCorruptError
            A record names a row that is not there: see `repair`.
        """
        with self._lock:
            self._check_open()
            space = self._spaces.get(namespace)
            if space is None:
                return iter(())
            records = [
                record
                for _, record in sorted(space.records.items())
                if (says_something(record) if since is None else record.revision > since)
            ]
            rows = dict(space.rows)
            head = space.head
        return self._pages(head, records, rows)

    def _pages(self, head: Head, records: list[SessionRecord], rows: dict[str, Row]) -> Iterator[Batch]:
        """Yield pages of a snapshot."""
        for page in list(pages_of(records, PAGE_UNITS)) or [[]]:
            self._check_open()
            try:
                yield assemble(head, page, [rows[uid] for record in page for uid in all_visible_ids(record)])
            except KeyError as error:
                raise StoreCorruptError(f"namespace {head.namespace!r:.80}: a record names a missing unit {error}; "
                                        "`repair()` puts an empty one in its place") from error  # fmt: skip

    def fetch(self, namespace: str, ids: Sequence[str]) -> list[MemoryUnit]:
        """Read units in the order of `ids`; unknown ids and other namespaces' are left out."""
        with self._lock:
            self._check_open()
            space = self._spaces.get(namespace)
            rows = space.rows if space else {}
            return [rows[uid].unit for uid in ids if uid in rows]

    def delete(self, namespace: str) -> None:
        """Delete the namespace whole. Unknown: nothing happens."""
        with self._lock:
            self._check_open()
            self._spaces.pop(namespace, None)

    def namespaces(self) -> list[str]:
        """List the namespaces that have a head, sorted; without those whose sessions were all deleted."""
        with self._lock:
            self._check_open()
            return sorted(
                name
                for name, space in self._spaces.items()
                if not space.records or not all(record.is_deleted for record in space.records.values())
            )

    def meta(self) -> dict[str, JSON]:
        """Read what was set about the store as a whole."""
        with self._lock:
            self._check_open()
            meta: dict[str, JSON] = json.loads(self._meta)
            return meta

    def set_meta(self, meta: dict[str, JSON]) -> None:
        """Replace what is set about the store as a whole."""
        text = dump_json(meta)
        with self._lock:
            self._check_open()
            self._meta = text

    def erase(self) -> None:
        """Do nothing: what was deleted is in no file."""
        with self._lock:
            self._check_open()

    def check(self) -> list[str]:
        """List rows that no record names, and records whose rows are missing."""
        with self._lock:
            self._check_open()
            found: list[str] = []
            for namespace, space in sorted(self._spaces.items()):
                named = {uid for record in space.records.values() for uid in all_visible_ids(record)}
                if n_strays := len(space.rows.keys() - named):
                    found.append(f"namespace {namespace!r:.80}: {n_strays} unit(s) that no session names")
                if n_missing := len(named - space.rows.keys()):
                    found.append(f"namespace {namespace!r:.80}: {n_missing} unit(s) missing that a session names")
                n_owed = sum(row.unit.n_windows == 0 for uid, row in space.rows.items() if uid in named)
                if n_owed:
                    found.append(f"namespace {namespace!r:.80}: {n_owed} unit(s) have to be embedded again")
            return found

    def repair(self) -> list[str]:
        """Remove rows that no record names; put an empty unit where one is missing."""
        with self._lock:
            done = self.check()
            for space in self._spaces.values():
                named = {uid for record in space.records.values() for uid in all_visible_ids(record)}
                for uid in space.rows.keys() - named:
                    del space.rows[uid]
                for record in space.records.values():
                    self._fill(space, record)
            return [f"mended: {line}" for line in done if "embedded" not in line]

    def _fill(self, space: _Space, record: SessionRecord) -> None:
        """Put empty units where a record's rows are missing."""
        zero = np.zeros(self._n_dims or 1, np.float32)
        for granularity in GRANULARITIES:
            for position, uid in enumerate(visible_ids(record, granularity)):
                blank = Row(blank_unit(record, granularity, position), zero, zero[:0].reshape(0, len(zero)), ())
                space.rows.setdefault(uid, blank)

    def close(self) -> None:
        """Refuse every call from now on; the rows are let go. Twice is fine."""
        with self._lock:
            self._is_closed = True
            self._spaces = {}

    def _check_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self._is_closed:
            raise ClosedError("the store is closed: make another one")


def _rows_of(batch: Batch) -> dict[str, Row]:
    """Return a batch's rows, copied: what the caller does to its arrays later does not matter."""
    vectors = batch.vectors.astype(np.float32, copy=True)
    return {
        unit.id: Row(
            unit, vector, windows.astype(np.float32, copy=True), _quantised(batch.associations.get(unit.id, ()))
        )
        for unit, vector, windows in zip(batch.units, vectors, split_windows_of(batch), strict=True)
    }


def _quantised(associations: Sequence[Association]) -> tuple[Association, ...]:
    """Return associations as precise as any store keeps them."""
    return tuple(replace(edge, similarity=quantise(edge.similarity)) for edge in associations)
