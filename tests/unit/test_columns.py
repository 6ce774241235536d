"""Sequences that keep their entries in columns read, compare and hash as the tuples that they stand for."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence

import pytest

from memgas import Association, Granularity, Trace
from memgas.types import Associations, UnitScore, UnitScores

EDGES = tuple(Association("s", target, similarity) for target, similarity in (("a", 0.5), ("b", -0.25), ("c", 1.0)))
UNITS = (
    UnitScore("u0", "x", Granularity.SESSION, 0, 0.5),
    UnitScore("u1", "y", Granularity.TURN, 7, -1.0),
    UnitScore("u2", "", Granularity.KEYWORD, 0, 0.0),
)
AXES = [unit.granularity.axis for unit in UNITS]
EDGE_COLUMNS = Associations("s", ["a", "b", "c"], [0.5, -0.25, 1.0])
UNIT_COLUMNS = UnitScores(
    ["-", "u0", "u1", "u2"], ["-", "x", "y", ""], [3, *AXES], [9, 0, 7, 0], [9.0, 0.5, -1.0, 0.0], range(1, 4)
)


@pytest.mark.parametrize(("plain", "columns"), [(EDGES, EDGE_COLUMNS), (UNITS, UNIT_COLUMNS)])
def test_they_are_the_sequences_they_stand_for(plain: tuple[object, ...], columns: Sequence[object]) -> None:
    """Length, entries from both ends, slices, order, membership, equality both ways; copied and pickled as well."""
    assert len(columns) == len(plain)
    assert tuple(columns) == plain
    assert columns == plain
    assert plain == columns
    assert columns != plain[:-1]
    assert columns != plain[::-1]
    assert columns != object()
    assert [columns[at] for at in (0, -1)] == [plain[0], plain[-1]]
    assert tuple(columns[1:]) == plain[1:]
    assert tuple(columns[::-1]) == plain[::-1]
    assert plain[1] in columns
    assert columns.index(plain[2]) == 2
    with pytest.raises(IndexError):
        columns[3]
    for twin in (copy.deepcopy(columns), pickle.loads(pickle.dumps(columns))):
        assert twin == columns


def test_a_trace_compares_and_shows_its_units() -> None:
    """A trace with units in columns equals one with a tuple of them, hashes alike, and shows them."""
    plain, columns = Trace("n", 1, 3, seeds=UNITS), Trace("n", 1, 3, seeds=UNIT_COLUMNS)
    assert plain == columns
    assert repr(plain) == repr(columns)
    assert hash(plain.seeds) == hash(columns.seeds)
