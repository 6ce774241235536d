"""Which collections hold a store's units: their vectors can be changed for another embedder's only all at once.

Units of generation 1 are in `memgas_turn` and its like, those of a later one in `memgas_g2_turn`; records and heads are in
`memgas_meta` throughout. Which generation counts is written in the row of the store, beside what is set about the store, so
that one call changes both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from memgas.stores import recovery
from memgas.stores.batches import Row
from memgas.stores.journal import Journal
from memgas.stores.rows import Metadata
from memgas.stores.tables import Tables
from memgas.stores.unit_rows import UnitRows
from memgas.types import GRANULARITIES, Batch, Granularity

LIKE_A_GENERATION = re.compile(r".*_g[0-9]+")
"""What a prefix must not be: its collections could be taken for another store's."""


def unit_names(prefix: str, generation: int) -> list[str]:
    """Return the names of the collections of units."""
    return [f"{_begin(prefix, generation)}_{granularity.value}" for granularity in GRANULARITIES]


def meta_name(prefix: str) -> str:
    """Return the name of the collection of records and heads."""
    return f"{prefix}_meta"


def journal_name(prefix: str, generation: int) -> str:
    """Return the name of the journal's table."""
    return f"{_begin(prefix, generation)}_vectors"


def owned_names(prefix: str) -> re.Pattern[str]:
    """Return what the names of a store's collections match, of whichever generation."""
    units = "|".join(granularity.value for granularity in GRANULARITIES)
    return re.compile(f"{re.escape(prefix)}_(?:meta|(?:g[0-9]+_)?(?:{units}))")


def generation_of(row: Metadata) -> int:
    """Read which generation counts from the row of the store."""
    generation = row.get("generation")
    return generation if isinstance(generation, int) else 1


def _begin(prefix: str, generation: int) -> str:
    return prefix if generation == 1 else f"{prefix}_g{generation}"


class NextUnits:
    """The units of the generation to come: invisible until the store adopts them. Made by `ChromaStore.next_units`.

    Parameters
    ----------
    root
        The folder; None against a server.
    tables
        A collection a granularity, and that of records and heads.
    journal
        Of the folder.
    """

    def __init__(self, root: Path | None, tables: Tables, journal: Journal | None) -> None:
        self._journal = journal
        self._rows = UnitRows(tables.units, journal)
        if root is not None:
            recovery.rebuild_marked(root, tables, journal)

    def read(self, named: Mapping[Granularity, Sequence[str]]) -> dict[str, Row]:
        """Read what was put before; what is missing is left out."""
        return self._rows.read(named)

    def put(self, batch: Batch) -> None:
        """Write the units of a batch; its records are those that are there."""
        self._rows.put(batch)

    def close(self) -> None:
        """Release the journal."""
        if self._journal is not None:
            self._journal.close()
