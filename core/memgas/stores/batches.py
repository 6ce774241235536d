"""What every store does with batches alike: check, name what is visible, cut into pages, put together. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from memgas.errors import InvalidInputError, ShapeError
from memgas.types import GRANULARITIES, Association, Batch, Granularity, Head, MemoryUnit, SessionRecord
from memgas.units import unit_id

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UNIT_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One unit as a store holds it.

    Attributes
    ----------
    vector : (n_dims,) float32
    windows : (n_windows, n_dims) float32
        No rows when the text was read whole.
    """

    unit: MemoryUnit
    vector: NDArray[np.float32]
    windows: NDArray[np.float32]
    associations: Sequence[Association]


def is_unit_id(text: str) -> bool:
    """Tell whether a text has the form of a unit's id: 32 lower-case hexadecimal digits."""
    return _UNIT_ID.fullmatch(text) is not None


def check_batch(batch: Batch) -> None:
    """Refuse a batch that cannot be kept as it is.

    Raises
    ------
    ShapeError
        Vectors, windows and units do not fit each other.
    InvalidInputError
        A row is of another namespace, an id is not one of `unit_id`, a vector is not finite, an association has no row.
    """
    _check_shapes(batch)
    namespace = batch.head.namespace
    foreign = ({unit.namespace for unit in batch.units} | {record.namespace for record in batch.records}) - {namespace}
    if foreign:
        raise InvalidInputError(f"a batch is of one namespace: {namespace!r:.80} and {foreign.pop()!r:.80} came")
    ids = {unit.id for unit in batch.units}
    if len(ids) != len(batch.units):
        raise InvalidInputError("a unit came twice in one batch")
    targets = (edge.target for edges in batch.associations.values() for edge in edges)
    if bad := next((text for text in (*ids, *batch.obsolete, *targets) if not is_unit_id(text)), None):
        raise InvalidInputError(f"a unit's id is what `memgas.units.unit_id` returns; got {bad!r:.80}")
    if strays := batch.associations.keys() - ids:
        raise InvalidInputError(f"associations came without the row of their source: {sorted(strays)[0]}")
    if both := ids & set(batch.obsolete):
        raise InvalidInputError(f"a unit is both written and obsolete: {sorted(both)[0]}")
    if not (np.isfinite(batch.vectors).all() and np.isfinite(batch.windows).all()):
        raise InvalidInputError("a vector holds NaN or infinity; nothing was written")


def _check_shapes(batch: Batch) -> None:
    """Raise ShapeError unless arrays and units fit."""
    n_units = len(batch.units)
    if batch.vectors.ndim != 2 or len(batch.vectors) != n_units or (n_units and not batch.vectors.shape[1]):
        raise ShapeError(f"vectors must be (n_units, n_dims) with {n_units} units; got {batch.vectors.shape}")
    n_windows = len(batch.window_owners)
    if batch.windows.ndim != 2 or len(batch.windows) != n_windows:
        raise ShapeError(f"windows must be (n_windows, n_dims) with {n_windows} owners; got {batch.windows.shape}")
    if n_windows and batch.windows.shape[1] != batch.vectors.shape[1]:
        raise ShapeError(f"windows have {batch.windows.shape[1]} dimensions, vectors {batch.vectors.shape[1]}")
    wanted = np.repeat(np.arange(n_units), [unit.n_windows if unit.n_windows > 1 else 0 for unit in batch.units])
    if not np.array_equal(batch.window_owners, wanted):
        raise ShapeError("window_owners must name, ascending, each unit of n_windows > 1 once a window")


def check_width(wanted: int, got: int) -> None:
    """Raise ShapeError unless vectors are as wide as those already kept; 0 is nothing kept yet, or none came."""
    if wanted and got and wanted != got:
        raise ShapeError(f"this store holds vectors of {wanted} dimensions; got {got}. Nothing was written")


def split_windows_of(batch: Batch) -> list[NDArray[np.float32]]:
    """Return the windows of each unit: `(n_windows, n_dims)`, no rows for a text read whole."""
    starts = np.searchsorted(batch.window_owners, np.arange(len(batch.units) + 1))
    return [batch.windows[start:end] for start, end in pairwise(starts)]


def says_something(record: SessionRecord) -> bool:
    """Tell whether a reader who knows nothing yet needs a record: all but empty tombstones."""
    return not record.is_deleted or record.metadata is not None


def visible_ids(record: SessionRecord, granularity: Granularity) -> list[str]:
    """Return the ids of the units that a record names at one granularity, in order of position."""
    return [
        unit_id(record.namespace, record.session_id, record.generation, granularity, position)
        for position in range(record.n_units[granularity.axis])
    ]


def all_visible_ids(record: SessionRecord) -> list[str]:
    """Return the ids of all units that a record names, by granularity and position."""
    return [uid for granularity in GRANULARITIES for uid in visible_ids(record, granularity)]


def pages_of(records: Sequence[SessionRecord], page_units: int) -> Iterator[list[SessionRecord]]:
    """Cut records into pages of about `page_units` units: whole sessions, however large one is."""
    page: list[SessionRecord] = []
    n_units = 0
    for record in records:
        page.append(record)
        n_units += sum(record.n_units) + 1
        if n_units >= page_units:
            yield page
            page, n_units = [], 0
    if page:
        yield page


def assemble(head: Head, records: Sequence[SessionRecord], rows: Sequence[Row]) -> Batch:
    """Put a page together: the rows that the records name, by sequence, granularity, position.

    A page without rows has vectors of shape `(0, 0)`.
    """
    width = len(rows[0].vector) if rows else 0
    n_windows = [len(row.windows) for row in rows]
    none = np.zeros((0, width), np.float32)
    return Batch(
        head=head,
        records=tuple(records),
        units=tuple(row.unit for row in rows),
        vectors=np.stack([row.vector for row in rows]) if rows else none,
        window_owners=np.repeat(np.arange(len(rows), dtype=np.intp), n_windows),
        windows=np.concatenate([row.windows for row in rows]) if sum(n_windows) else none,
        associations={row.unit.id: row.associations for row in rows if row.associations},
    )


def blank_unit(record: SessionRecord, granularity: Granularity, position: int) -> MemoryUnit:
    """Return a unit without words, to stand where a row was lost."""
    uid = unit_id(record.namespace, record.session_id, record.generation, granularity, position)
    return MemoryUnit(uid, record.namespace, record.session_id, record.generation, granularity, position, "")
