"""Rows as metadata: what is written is read again, and is what Chroma takes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memgas.errors import InvalidInputError, StoreCorruptError
from memgas.stores.batches import pages_of
from memgas.stores.rows import (
    MAX_EDGES_A_KEY,
    dump_json,
    head_from_row,
    head_id,
    head_metadata,
    load_json,
    pack_edges,
    quantise,
    record_from_row,
    record_id,
    record_metadata,
    unit_from_row,
    unit_metadata,
    unpack_edges,
)
from memgas.types import Association, Granularity, Head, MemoryUnit, SessionRecord, Span
from memgas.units import hash_parts

DAY = datetime(2023, 5, 8, 13, 56, 7, 123_456, tzinfo=timezone(timedelta(hours=-9, minutes=-30)))
SOURCE = hash_parts("source")

moments = st.datetimes(timezones=st.sampled_from([UTC, DAY.tzinfo]))
spans = st.builds(
    Span, st.text(), st.integers(0, 9_999), st.integers(0, 9_999), st.none() | moments, st.none() | st.text()
)
edges = st.builds(
    Association,
    st.just(SOURCE),
    st.integers(0).map(lambda n: hash_parts(str(n))),
    st.floats(-1, 1).map(quantise),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=10,
)


@pytest.mark.parametrize("n_edges", [0, 1, MAX_EDGES_A_KEY - 1, MAX_EDGES_A_KEY, MAX_EDGES_A_KEY + 1, 1_000])
def test_edges_fit_the_keys_of_hosted_chroma(n_edges: int) -> None:
    """No value is longer than 4,000 characters, and a longer list of an earlier time is never read."""
    some = tuple(Association(SOURCE, hash_parts(str(n)), quantise(n / 1_000)) for n in range(n_edges))
    metadata = pack_edges(some)
    assert max(len(str(value)) for value in metadata.values()) <= 4_000
    stale = pack_edges([Association(SOURCE, SOURCE, 1.0)] * 2_000)
    assert unpack_edges(SOURCE, {**stale, **metadata}) == some


def test_an_edge_by_hand() -> None:
    """16 bytes of id, then a half in two: `ff...ff` at .5 is 21 times `/`, two bits of the rest, and `00 38`."""
    metadata = pack_edges([Association(SOURCE, "f" * 32, 0.5)])
    assert metadata == {"edges": "/" * 21 + "wA4"}


@given(st.lists(edges, max_size=5), st.integers(0, 99), st.lists(spans, max_size=3), st.text(), st.text())
def test_a_unit_comes_back(
    some: list[Association], first_turn: int, some_spans: list[Span], text: str, session_id: str
) -> None:
    """Every field, whatever the text; only plain values are written, and no None, which Chroma takes for a deletion."""
    unit = MemoryUnit(
        SOURCE, "user-1", session_id, 3, Granularity.TURN, 7, text, first_turn, tuple(some_spans), n_windows=2
    )
    metadata = unit_metadata(unit, some)
    assert {type(value) for value in metadata.values()} <= {str, int, float, bool}
    assert unit_from_row(SOURCE, Granularity.TURN, text, metadata) == unit
    assert unpack_edges(SOURCE, metadata) == tuple(some)


@given(json_values, moments, st.none() | st.text())
def test_a_record_comes_back(metadata: object, moment: datetime, conversation_id: str | None) -> None:
    """Every field; the time with its offset and its microseconds; None and the empty conversation apart."""
    record = SessionRecord(
        "user-1", "s", 4, 5, 6, moment, DAY, DAY, 8, (1, 2, 3, 4), conversation_id, digest_source="llm", is_open=True
    )
    record = replace(record, metadata=metadata)  # type: ignore[arg-type]
    row = record_metadata(record, "epoch")
    assert {type(value) for value in row.values()} <= {str, int, float, bool}
    assert row.keys() == record_metadata(SessionRecord("", "", 0, 0, 0, DAY, DAY, DAY), "").keys()
    got = record_from_row(row)
    assert got == record
    assert got.happened_at.utcoffset() == moment.utcoffset()


@given(st.text(), st.integers(0, 2**62))
def test_a_head_comes_back(namespace: str, number: int) -> None:
    """Every field."""
    head = Head(namespace, "epoch", number, number + 1)
    assert head_from_row(head_metadata(head)) == head


@given(st.text(), st.text(), st.integers(0, 99), st.integers(0, 99))
def test_row_ids_are_apart(one: str, other: str, n: int, m: int) -> None:
    """A record's id depends on namespace and sequence, and is never a head's."""
    assert (record_id(one, n) == record_id(other, m)) == ((one, n) == (other, m))
    assert record_id(one, n) != head_id(other)


@given(json_values)
def test_json_is_plain_ascii(value: object) -> None:
    """Whatever stands in it, lone surrogates too, it is written in characters that every database takes."""
    text = dump_json(value)
    assert text.isascii()
    assert load_json(text) == value


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), object(), {"a": b"x"}])
def test_what_is_no_json_is_refused(value: object) -> None:
    """The error says what metadata may be."""
    with pytest.raises(InvalidInputError, match="one JSON value"):
        dump_json(value)


@pytest.mark.parametrize(
    "change", [{"sequence": "x"}, {"happened_at": "monday"}, {"metadata": "{"}, {"session_id": None}]
)
def test_a_damaged_row_is_told(change: dict[str, object]) -> None:
    """What cannot be read raises StoreCorruptError and shows the value, not a TypeError from somewhere."""
    row = record_metadata(SessionRecord("user-1", "s", 0, 0, 0, DAY, DAY, DAY), "epoch")
    with pytest.raises(StoreCorruptError, match="a row holds"):
        record_from_row({**row, **change})


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 40))
def test_pages_are_whole_sessions(sizes: list[int], page_units: int) -> None:
    """Pages keep the order, leave nothing out, and only the last session of a page takes it over its size."""
    records = [
        SessionRecord("user-1", f"s{n}", n, n, 0, DAY, DAY, DAY, n_units=(0, size, 0, 0))
        for n, size in enumerate(sizes)
    ]
    pages = list(pages_of(records, page_units))
    assert [record for page in pages for record in page] == records
    for page in pages:
        assert sum(record.n_units[1] + 1 for record in page[:-1]) < page_units
