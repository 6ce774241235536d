"""Units in their four collections and, embedded, their vectors in the journal: written, read, deleted together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from memgas.stores.batches import Row, check_width, is_unit_id, split_windows_of
from memgas.stores.journal import Journal
from memgas.stores.rows import unit_from_row, unit_metadata, unpack_edges, window_id, window_metadata
from memgas.stores.tables import Found, Table
from memgas.types import Batch, Granularity, MemoryUnit

if TYPE_CHECKING:
    from numpy.typing import NDArray

WRITE_ORDER = (Granularity.TURN, Granularity.SUMMARY, Granularity.KEYWORD, Granularity.SESSION)


class UnitRows:
    """The rows of units.

    Parameters
    ----------
    tables
        A collection a granularity.
    journal
        Where vectors are read from; None against a server: there they are Chroma's, and a window is a row of its own.
    """

    def __init__(self, tables: Mapping[Granularity, Table], journal: Journal | None) -> None:
        self._tables = tables
        self._journal = journal
        self._n_dims = 0

    def put(self, batch: Batch) -> None:
        """Write a batch's units: vectors to the journal first, then rows, those of the session last.

        Raises
        ------
        ShapeError
            Vectors are not as wide as those that are kept. Nothing was written.
        """
        if not batch.units:
            return
        check_width(self._width(), batch.vectors.shape[1])
        vectors = np.ascontiguousarray(batch.vectors, np.float32)
        windows = split_windows_of(batch)
        if self._journal is not None:
            self._journal.save([unit.id for unit in batch.units], vectors, windows)
        for granularity in WRITE_ORDER:
            at = [n for n, unit in enumerate(batch.units) if unit.granularity is granularity]
            if at:
                self._upsert(granularity, batch, at, vectors, windows)
        self._n_dims = batch.vectors.shape[1]

    def _upsert(
        self,
        granularity: Granularity,
        batch: Batch,
        at: Sequence[int],
        vectors: NDArray[np.float32],
        windows: Sequence[NDArray[np.float32]],
    ) -> None:
        """Write those units of a batch that are `at` some places, in one call; without a journal, windows too.

        A unit written anew in fewer windows than before leaves rows behind, which go last.
        """
        table = self._tables[granularity]
        units = [batch.units[n] for n in at]
        ids = [unit.id for unit in units]
        metadatas = [unit_metadata(unit, batch.associations.get(unit.id, ())) for unit in units]
        documents = [unit.text for unit in units]
        rows = [vectors[at]]
        before: set[str] = set()
        if self._journal is None:
            before = {name for uid, row in table.get(ids, "metadatas").items() for name in _windows_of(uid, row)}
            for unit, matrix in zip(units, (windows[n] for n in at), strict=True):
                numbers = range(1, len(matrix) + 1)
                ids += [window_id(unit.id, number) for number in numbers]
                metadatas += [window_metadata(unit, number) for number in numbers]
                documents += [""] * len(matrix)
                rows.append(matrix)
        table.upsert(ids, np.concatenate(rows), metadatas, documents)
        table.delete(sorted(before - set(ids)))

    def read(self, named: Mapping[Granularity, Sequence[str]]) -> dict[str, Row]:
        """Read rows with their vectors, by granularity. Rows and vectors that are missing are left out."""
        rows: dict[str, Row] = {}
        for granularity, ids in named.items():
            rows.update(self._read(granularity, ids) if ids else {})
        return rows

    def _read(self, granularity: Granularity, ids: Sequence[str]) -> dict[str, Row]:
        """Read rows of one collection."""
        columns = ["metadatas", "documents"] if self._journal else ["metadatas", "documents", "embeddings"]
        found = self._tables[granularity].get(ids, *columns)
        units = {uid: unit_from_row(uid, granularity, row.document, row.metadata) for uid, row in found.items()}
        vectors = self._journal.load(list(found)) if self._journal else self._with_windows(granularity, units, found)
        return {
            uid: Row(unit, vectors[uid][0], vectors[uid][1:], unpack_edges(uid, found[uid].metadata))
            for uid, unit in units.items()
            if uid in vectors
        }

    def _with_windows(
        self, granularity: Granularity, units: Mapping[str, MemoryUnit], found: Mapping[str, Found]
    ) -> dict[str, NDArray[np.float32]]:
        """Return each unit's vector and those of its windows, `(1 + n_windows, n_dims)`, from a server."""
        names = {
            uid: [window_id(uid, n) for n in range(1, unit.n_windows + 1)]
            for uid, unit in units.items()
            if unit.n_windows > 1
        }
        rows = self._tables[granularity].get([name for some in names.values() for name in some], "embeddings")
        vectors: dict[str, NDArray[np.float32]] = {}
        for uid, row in found.items():
            of_windows = (rows[name].vector for name in names.get(uid, ()) if name in rows)
            matrix = [vector for vector in (row.vector, *of_windows) if vector is not None]
            if row.vector is not None:
                vectors[uid] = np.stack(matrix)
        return vectors

    def fetch(self, ids: Sequence[str]) -> dict[str, MemoryUnit]:
        """Read units by id, of whichever namespace; what is no unit's id, or unknown, is left out."""
        units: dict[str, MemoryUnit] = {}
        rest = [uid for uid in ids if is_unit_id(uid)]
        for granularity in WRITE_ORDER:
            for uid, row in self._tables[granularity].get(rest, "metadatas", "documents").items():
                units[uid] = unit_from_row(uid, granularity, row.document, row.metadata)
            rest = [uid for uid in rest if uid not in units]
        return units

    def fetch_named(self, named: Mapping[Granularity, Sequence[str]]) -> list[MemoryUnit]:
        """Read units by granularity and id, of whichever namespace: only those collections are asked."""
        return [
            unit_from_row(uid, granularity, row.document, row.metadata)
            for granularity, ids in named.items()
            if (asked := [uid for uid in ids if is_unit_id(uid)])
            for uid, row in self._tables[granularity].get(asked, "metadatas", "documents").items()
        ]

    def delete(self, ids: Sequence[str]) -> None:
        """Delete units, wherever they are, with their windows. Looking is cheap, deleting in vain is not."""
        rest = list(ids)
        for granularity in WRITE_ORDER:
            table = self._tables[granularity]
            found = table.get(rest, *([] if self._journal else ["metadatas"]))
            windows = [] if self._journal else [name for uid, row in found.items() for name in _windows_of(uid, row)]
            table.delete([*found, *windows])
            rest = [uid for uid in rest if uid not in found]
        if self._journal is not None:
            self._journal.delete(ids)

    def delete_namespace(self, namespace: str) -> None:
        """Delete all rows of a namespace, those that no record names among them."""
        for table in self._tables.values():
            ids = table.ids({"namespace": namespace})
            table.delete(ids)
            if self._journal is not None:
                self._journal.delete([uid for uid in ids if is_unit_id(uid)])

    def _width(self) -> int:
        """Return how wide the vectors are that are kept; 0 when there are none."""
        if not self._n_dims:
            widths = (table.n_dims() for table in self._tables.values())
            self._n_dims = self._journal.n_dims if self._journal else next(filter(None, widths), 0)
        return self._n_dims


def _windows_of(unit_id: str, row: Found) -> list[str]:
    """Return the ids of a unit's window rows: none when its text was read whole."""
    n_windows = row.metadata.get("n_windows")
    return (
        [window_id(unit_id, n) for n in range(1, n_windows + 1)] if isinstance(n_windows, int) and n_windows > 1 else []
    )
