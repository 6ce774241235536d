"""The rules that every store keeps, as tests: subclass `StoreContract`, and give it a fixture `open_store`.

>>> class TestMyStore(StoreContract):
...     @pytest.fixture
...     def open_store(self, tmp_path):
...         return lambda: MyStore(tmp_path)

The first call of `open_store` gives an empty store. A store that outlives its process takes `PersistentStoreContract`:
there, a call after `close` gives the same rows again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

from memgas.errors import ClosedError, InvalidInputError, ShapeError, StoreCorruptError
from memgas.protocols import FetchesNamed, Store
from memgas.stores.in_memory import InMemoryStore
from memgas.types import (
    GRANULARITIES,
    Association,
    Granularity,
    Head,
    Span,
)
from memgas.units import unit_id

if TYPE_CHECKING:
    pass
from memgas.testing.store_batches import (
    N_DIMS,
    assert_same,
    load_all,
    make_batch,
    make_exchange,
    make_record,
    make_session,
    make_units,
    random_walk,
    rich_batch,
    unit_vectors,
)

OpenStore = Callable[[], Store]

HOSTILE = (
    "user-1", "User-1", "user-1 ", "$and", "#id", "it's \"; DROP TABLE embeddings", "用户/一", "👩‍👩‍👧‍👦",
    "a" * 10_000, "a" * 9_999 + "b", "None", "%", "{}", "line\nfeed",
)  # fmt: skip


class StoreContract:
    """What every store promises. Subclass it with a fixture `open_store`."""

    store_of: ClassVar[str] = "user-1"

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """Return a function that opens a store, an empty one at first. For the subclass to give."""
        raise NotImplementedError("give StoreContract a fixture `open_store`")

    @pytest.fixture
    def store(self, open_store: OpenStore) -> Iterator[Store]:
        """Return an empty store, closed after the test."""
        store = open_store()
        yield store
        store.close()

    def test_is_a_store(self, store: Store) -> None:
        """It has every method of the protocol."""
        assert isinstance(store, Store)

    def test_empty(self, store: Store) -> None:
        """An empty store knows nothing, and says so without raising."""
        assert store.head("nobody") is None
        assert list(store.load("nobody")) == list(store.load("nobody", since=0)) == []
        assert store.fetch("nobody", [unit_id("nobody", "s", 0, Granularity.TURN, 0)]) == []
        assert store.namespaces() == store.check() == store.repair() == []
        assert store.meta() == {}
        store.delete("nobody")

    def test_round_trip_of_every_field(self, store: Store) -> None:
        """What is put comes back: None, Unicode, empty texts, windows, associations as precise as float16."""
        batch = rich_batch(self.store_of)
        plain = make_record("", "", 0)
        said = [getattr(batch.records[0], field.name) for field in fields(plain) if field.name != "is_deleted"]
        assert None not in said
        assert False not in said[8:]
        store.put(batch)
        got = load_all(store, self.store_of)
        assert got.heads == (batch.head,)
        assert store.head(self.store_of) == batch.head
        assert got.records == tuple(batch.records)
        assert got.units == tuple(batch.units)
        np.testing.assert_allclose(got.vectors, batch.vectors, rtol=0, atol=1e-6)
        assert list(got.windows) == [batch.units[0].id, batch.units[3].id]
        np.testing.assert_allclose(np.concatenate(list(got.windows.values())), batch.windows, rtol=0, atol=1e-6)
        assert got.associations.keys() == batch.associations.keys()
        for uid, edges in batch.associations.items():
            assert [(edge.source, edge.target) for edge in got.associations[uid]] == [(uid, e.target) for e in edges]
            assert [edge.similarity for edge in got.associations[uid]] == [
                float(np.float16(edge.similarity)) for edge in edges
            ]
        assert got.records[0].happened_at.utcoffset() == timedelta(hours=5, minutes=30)

    def test_nones_replace_what_was_there(self, store: Store) -> None:
        """A record and a unit written again with less keep nothing of the time before."""
        full = rich_batch(self.store_of)
        store.put(full)
        old = full.records[0]
        bare = make_record(self.store_of, old.session_id, 0, generation=2, revision=8, n_units=(1, 0, 0, 0))
        units = make_units(bare)
        store.put(make_batch([bare], units, obsolete=[unit.id for unit in full.units[1:]]))
        got = load_all(store, self.store_of)
        assert got.records == (bare,)
        assert got.units == tuple(units)
        assert not got.associations
        assert not got.windows

    def test_a_session_without_units(self, store: Store) -> None:
        """An item of nothing but metadata is kept; a batch may have no records at all."""
        item = make_record(self.store_of, "item", 0, kind="item", metadata=[1, "two"])
        store.put(make_batch([item]))
        got = load_all(store, self.store_of)
        assert got.records == (item,)
        assert got.units == ()
        store.put(make_batch([], head=Head(self.store_of, "epoch", 2, 5)))
        assert store.head(self.store_of) == Head(self.store_of, "epoch", 2, 5)
        assert load_all(store, self.store_of).records == (item,)

    def test_a_head_alone_is_loaded(self, store: Store) -> None:
        """A known namespace yields a batch even when nothing is to be read: its head tells the revision."""
        store.put(make_batch([], head=Head(self.store_of, "epoch", 2, 0)))
        (batch,) = store.load(self.store_of)
        assert batch.head.revision == 2
        assert not batch.units
        assert not batch.records
        assert len(list(store.load(self.store_of, since=2))) == 1

    def test_order(self, store: Store) -> None:
        """Units come by sequence, granularity, position, whatever the order in which they were written."""
        first = make_record(self.store_of, "z", 0, n_units=(1, 12, 1, 1))
        second = make_record(self.store_of, "a", 1, n_units=(1, 11, 1, 0))
        units = [*make_units(first), *make_units(second)]
        shuffled = random.Random(1).sample(units, len(units))
        store.put(make_batch([second, first], shuffled))
        got = load_all(store, self.store_of)
        assert got.records == (first, second)
        assert got.units == tuple(units)
        of = {unit.id: vector for unit, vector in zip(shuffled, unit_vectors(len(units), 0), strict=True)}
        np.testing.assert_allclose(got.vectors, [of[unit.id] for unit in units], rtol=0, atol=1e-6)

    def test_since(self, store: Store) -> None:
        """`since` reads sessions changed after a revision, whole, tombstones among them."""
        for sequence in range(4):
            record = make_record(self.store_of, f"s{sequence}", sequence, revision=sequence + 1, n_units=(1, 2, 0, 0))
            store.put(make_batch([record], make_units(record), seed=sequence))
        gone = make_record(self.store_of, "", 1, revision=5, is_deleted=True)
        named = make_units(make_record(self.store_of, "s1", 1, n_units=(1, 2, 0, 0)))
        head = Head(self.store_of, "epoch", 5, 4)
        store.put(make_batch([gone], head=head, obsolete=[unit.id for unit in named]))
        assert [record.sequence for record in load_all(store, self.store_of).records] == [0, 2, 3]
        delta = load_all(store, self.store_of, since=3)
        assert [record.sequence for record in delta.records] == [1, 3]
        assert delta.records[0] == gone
        assert [unit.session_id for unit in delta.units] == ["s3"] * 3
        assert delta.heads == (head,)
        assert load_all(store, self.store_of, since=5).records == ()
        assert store.fetch(self.store_of, [unit.id for unit in named]) == []

    def test_units_no_record_names_are_never_seen(self, store: Store) -> None:
        """Rows written ahead of their record stay invisible, and a record that names them shows them."""
        record = make_record(self.store_of, "s", 0, n_units=(1, 2, 0, 0))
        more = replace(record, revision=2, n_units=(1, 3, 0, 0))
        units = make_units(more)
        store.put(make_batch([record], units))
        assert len(load_all(store, self.store_of).units) == 3
        assert any("no session names" in line for line in store.check())
        store.put(make_batch([more]))
        assert load_all(store, self.store_of).units == tuple(units)
        assert store.check() == []

    def test_growth_in_place(self, store: Store) -> None:
        """The open exchange is written again under its id; text, spans, vector and edges are the new ones."""
        record = make_record(self.store_of, "s", 0, n_units=(0, 1, 0, 0), n_turns=1, is_open=True)
        (unit,) = make_units(record)
        target = unit_id(self.store_of, "t", 1, Granularity.TURN, 0)
        unit = replace(unit, text="user: hi", spans=(Span("user", 6, 8),))
        many = [Association(unit.id, target, 0.25)] * 400
        store.put(make_batch([record], [unit], associations={unit.id: many}))
        grown = replace(unit, text="user: hi\nbot: ho", spans=(Span("user", 6, 8), Span("bot", 14, 16)), n_windows=2)
        few = [Association(unit.id, target, 0.5)]
        store.put(make_batch([replace(record, n_turns=2)], [grown], associations={unit.id: few}, seed=9))
        got = load_all(store, self.store_of)
        assert got.units == (grown,)
        assert got.associations == {unit.id: tuple(few)}
        np.testing.assert_allclose(got.vectors, unit_vectors(1, 9), rtol=0, atol=1e-6)
        np.testing.assert_allclose(got.windows[unit.id], unit_vectors(2, 10), rtol=0, atol=1e-6)

    def test_same_batch_twice(self, store: Store) -> None:
        """A retry changes nothing."""
        batch = rich_batch(self.store_of)
        store.put(batch)
        once = load_all(store, self.store_of)
        store.put(batch)
        assert_same(load_all(store, self.store_of), once)
        assert store.check() == []

    def test_obsolete_rows_are_gone(self, store: Store) -> None:
        """A next generation replaces the last one; what it was made of can no longer be fetched."""
        old = rich_batch(self.store_of)
        store.put(old)
        record = replace(old.records[0], generation=3, revision=8, n_units=(1, 1, 0, 0))
        units = make_units(record, "new")
        store.put(make_batch([record], units, obsolete=[unit.id for unit in old.units]))
        assert load_all(store, self.store_of).units == tuple(units)
        assert store.fetch(self.store_of, [unit.id for unit in old.units]) == []
        assert store.check() == []

    def test_fetch(self, store: Store) -> None:
        """Units come in the order asked for, repeated if asked twice; unknown and foreign ids are left out."""
        batch = rich_batch(self.store_of)
        store.put(batch)
        foreign = make_session("somebody else")
        store.put(foreign)
        asked = random.Random(2).sample(list(batch.units), len(batch.units))
        asked.append(asked[0])
        unknown = [unit_id("x", "y", 0, Granularity.TURN, 0), "", "not an id", "\x00", f"{batch.units[0].id}:w1"]
        ids = [*unknown, *(unit.id for unit in asked), foreign.units[0].id, *unknown]
        assert store.fetch(self.store_of, ids) == asked
        assert store.fetch(self.store_of, []) == []

    def test_fetch_named(self, store: Store) -> None:
        """Where a store offers it: what `fetch` returns, of the granularities asked for; one asked for wrongly is left out."""
        if not isinstance(store, FetchesNamed):
            return
        batch = rich_batch(self.store_of)
        store.put(batch)
        foreign = make_session("somebody else")
        store.put(foreign)
        named = {g: [u.id for u in (*batch.units, *foreign.units) if u.granularity is g] for g in GRANULARITIES}
        named[Granularity.TURN] += ["", "not an id", *named[Granularity.SESSION]]
        found = store.fetch_named(self.store_of, named)
        assert sorted(found, key=lambda unit: unit.id) == sorted(batch.units, key=lambda unit: unit.id)
        assert store.fetch_named(self.store_of, {}) == []

    def test_namespaces_are_apart(self, store: Store) -> None:
        """Whatever namespaces are called, each reads, fetches and deletes its own rows only."""
        batches = {name: make_exchange(name) for name in HOSTILE}
        for batch in batches.values():
            store.put(batch)
        assert store.namespaces() == sorted(HOSTILE)
        for name, batch in batches.items():
            got = load_all(store, name)
            assert got.units == tuple(batch.units)
            assert {record.namespace for record in got.records} == {name}
            assert store.head(name) == batch.head
            ids = [unit.id for other in batches.values() for unit in other.units]
            assert store.fetch(name, ids) == list(batch.units)
        for name in HOSTILE[::2]:
            store.delete(name)
        assert store.namespaces() == sorted(HOSTILE[1::2])
        for name in HOSTILE[1::2]:
            assert load_all(store, name).units == tuple(batches[name].units)
        assert store.check() == []

    def test_delete(self, store: Store) -> None:
        """A deleted namespace has no head and no rows; begun anew, nothing of the old one is in it."""
        batch = rich_batch(self.store_of)
        store.put(batch)
        store.put(make_session(self.store_of, "second", 5))
        store.delete(self.store_of)
        assert store.head(self.store_of) is None
        assert list(store.load(self.store_of)) == []
        assert list(store.load(self.store_of, since=0)) == []
        assert store.fetch(self.store_of, [unit.id for unit in batch.units]) == []
        assert store.namespaces() == store.check() == []
        store.delete(self.store_of)
        anew = make_record(self.store_of, "anew", 6, n_units=(1, 0, 0, 0))
        store.put(make_batch([anew], make_units(anew), head=Head(self.store_of, "another", 1, 7)))
        assert load_all(store, self.store_of).records == (anew,)

    def test_another_epoch_begins_anew(self, store: Store) -> None:
        """A head of another epoch vouches for no record of the one before, should a deletion have left some behind."""
        store.put(make_session(self.store_of, "old", 0))
        store.put(make_session(self.store_of, "older", 3))
        record = make_record(self.store_of, "new", 1, n_units=(1, 0, 0, 0))
        store.put(make_batch([record], make_units(record), head=Head(self.store_of, "another", 1, 9)))
        assert load_all(store, self.store_of).records == (record,)
        assert load_all(store, self.store_of, since=0).records == (record,)
        assert store.repair()
        assert store.check() == []
        assert load_all(store, self.store_of).records == (record,)

    def test_more_than_a_page(self, store: Store) -> None:
        """6,000 units come back whole, in order, in several pages of whole sessions; one session may be the largest."""
        sizes = [2_500, *[35] * 100]
        records = [
            make_record(self.store_of, f"s{n}", n, n_units=(0, n_units, 0, 0)) for n, n_units in enumerate(sizes)
        ]
        batch = make_batch(records, [unit for record in records for unit in make_units(record)])
        store.put(batch)
        got = load_all(store, self.store_of)
        assert got.n_pages > 1
        assert got.records == tuple(records)
        assert got.units == tuple(batch.units)
        np.testing.assert_allclose(got.vectors, batch.vectors, rtol=0, atol=1e-6)
        for page in store.load(self.store_of):
            assert {unit.session_id for unit in page.units} == {record.session_id for record in page.records}
        assert len(store.fetch(self.store_of, [unit.id for unit in got.units])) == 6_000
        store.delete(self.store_of)
        assert store.check() == []

    def test_meta(self, store: Store) -> None:
        """Meta is replaced whole, and is no namespace."""
        store.set_meta({"embedder": "x", "probe": [0.5, 1.0], "nested": {"a": None}})
        store.set_meta({"embedder": "ü", "n": 3})
        assert store.meta() == {"embedder": "ü", "n": 3}
        assert store.namespaces() == store.check() == []

    def test_what_is_returned_is_not_shared(self, store: Store) -> None:
        """A caller that changes its own arrays and lists afterwards changes nothing in the store."""
        metadata = {"list": [1]}
        record = make_record(self.store_of, "s", 0, n_units=(1, 0, 0, 0), metadata=metadata)
        batch = make_batch([record], make_units(record))
        store.put(batch)
        metadata["list"].append(2)
        batch.vectors[:] = 0
        got = load_all(store, self.store_of)
        assert got.records[0].metadata == {"list": [1]}
        np.testing.assert_allclose(got.vectors, unit_vectors(1, 0), rtol=0, atol=1e-6)

    def test_bad_batches_are_refused_whole(self, store: Store) -> None:
        """What cannot be kept raises before anything is written."""
        good = make_session(self.store_of)
        store.put(good)
        kept = load_all(store, self.store_of)
        record = make_record(self.store_of, "bad", 1, revision=2, n_units=(1, 1, 0, 0))
        batch = make_batch([record], make_units(record))
        wide = np.ones((2, N_DIMS + 1), np.float32)
        nan = np.full((2, N_DIMS), np.nan, np.float32)
        stray = Association("0" * 32, batch.units[0].id, 0.5)
        for error, bad in (
            (ShapeError, replace(batch, vectors=wide, windows=wide[:0])),
            (ShapeError, replace(batch, vectors=batch.vectors[:1])),
            (ShapeError, replace(batch, window_owners=np.array([0], np.intp), windows=unit_vectors(1, 0))),
            (ShapeError, replace(batch, units=[replace(batch.units[0], n_windows=2), batch.units[1]])),
            (InvalidInputError, replace(batch, vectors=nan)),
            (InvalidInputError, replace(batch, head=replace(batch.head, namespace="another"))),
            (InvalidInputError, replace(batch, units=[batch.units[0], batch.units[0]])),
            (InvalidInputError, replace(batch, units=[batch.units[0], replace(batch.units[1], id="no hash")])),
            (InvalidInputError, replace(batch, associations={stray.source: [stray]})),
            (InvalidInputError, replace(batch, obsolete=[batch.units[0].id])),
            (InvalidInputError, replace(batch, records=[replace(record, metadata={"x": float("nan")})])),
        ):
            with pytest.raises(error):
                store.put(bad)
        assert store.head(self.store_of) == good.head
        assert_same(load_all(store, self.store_of), kept)
        assert store.check() == []

    def test_a_missing_row_is_told_and_mended(self, store: Store) -> None:
        """A record that names a row that is not there is never loaded silently; `repair` puts an empty one there."""
        record = make_record(self.store_of, "s", 0, n_units=(1, 3, 0, 0))
        units = make_units(record)
        store.put(make_batch([record], [units[0], units[1], units[3]]))
        with pytest.raises(StoreCorruptError, match="repair"):
            list(store.load(self.store_of))
        assert any("missing" in line for line in store.check())
        assert store.repair()
        got = load_all(store, self.store_of)
        assert [unit.text for unit in got.units] == [units[0].text, units[1].text, "", units[3].text]
        assert not got.vectors[2].any()
        assert store.check() == store.repair() == []

    def test_repair_keeps_what_is_named(self, store: Store) -> None:
        """`repair` removes rows that no record names, and nothing else."""
        batch = rich_batch(self.store_of)
        store.put(batch)
        before = load_all(store, self.store_of)
        stray = make_record(self.store_of, "stray", 2, n_units=(1, 1, 0, 0))
        store.put(make_batch([], make_units(stray), head=batch.head))
        assert store.check()
        assert store.repair()
        assert store.check() == []
        assert store.fetch(self.store_of, [unit.id for unit in make_units(stray)]) == []
        assert_same(load_all(store, self.store_of), before)

    def test_closed(self, open_store: OpenStore) -> None:
        """After `close`, which may be called twice, every call raises ClosedError, a load under way too."""
        store = open_store()
        batch = make_session(self.store_of)
        store.put(batch)
        under_way = store.load(self.store_of)
        store.close()
        store.close()
        calls: list[Callable[[], object]] = [
            lambda: store.put(batch),
            lambda: store.head(self.store_of),
            lambda: store.load(self.store_of),
            lambda: store.fetch(self.store_of, [batch.units[0].id]),
            lambda: store.delete(self.store_of),
            store.namespaces,
            store.meta,
            lambda: store.set_meta({}),
            store.erase,
            store.check,
            store.repair,
            lambda: next(under_way),
        ]
        for call in calls:
            with pytest.raises(ClosedError):
                call()

    def test_a_reader_sees_one_generation_whole(self, store: Store) -> None:
        """While a session is replaced again and again, a reader finds all of one generation, never half of two."""
        seen: set[int] = set()
        reader_is_out = threading.Event()

        def write() -> None:
            old: Sequence[str] = ()
            for generation in count(1):
                record = make_record(
                    self.store_of,
                    "s",
                    0,
                    generation=generation,
                    revision=generation,
                    n_units=(1, 1 + generation % 5, 1, 1),
                )
                units = make_units(record, str(generation))
                store.put(make_batch([record], units, obsolete=old, seed=generation))
                old = [unit.id for unit in units]
                if generation >= 12 and (seen or reader_is_out.is_set()):
                    return

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                while not writing.done():
                    seen.update(self._check_one_generation(store))
            finally:
                reader_is_out.set()
            writing.result()
        assert seen
        assert self._check_one_generation(store)
        assert store.check() == []

    def _check_one_generation(self, store: Store) -> list[int]:
        """Check that all that is there is of one generation, and return which."""
        seen = []
        for batch in store.load(self.store_of):
            (record,) = batch.records
            assert list(batch.units) == make_units(record, str(record.generation))
            vectors = unit_vectors(len(batch.units), record.generation)
            np.testing.assert_allclose(batch.vectors, vectors, rtol=0, atol=1e-6)
            seen.append(record.generation)
        return seen

    def test_many_threads(self, store: Store) -> None:
        """Eight threads write, read and delete eight namespaces at once, and none disturbs another."""

        def live(n: int) -> None:
            name = f"user-{n}"
            for sequence in range(2):
                store.put(make_session(name, f"s{sequence}", sequence, n_turn_units=1 + n % 3))
                got = load_all(store, name)
                assert [record.sequence for record in got.records] == list(range(sequence + 1))
                assert {unit.namespace for unit in got.units} == {name}
                assert store.fetch(name, [got.units[-1].id]) == [got.units[-1]]
            if n % 2:
                store.delete(name)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(live, range(8)))
        assert store.namespaces() == [f"user-{n}" for n in range(0, 8, 2)]
        assert store.check() == []

    def test_a_random_walk_ends_where_the_reference_does(self, store: Store) -> None:
        """Adding, growing, replacing and deleting at random leaves what `InMemoryStore` has."""
        reference = InMemoryStore()
        for n, act in enumerate(random_walk(seed=5, n_steps=24)):
            for each in (store, reference):
                act(each)
            if n % 8 == 0:
                for name in ("ann", "bob"):
                    assert store.head(name) == reference.head(name)
                    for since in (None, n // 2):
                        assert_same(load_all(store, name, since), load_all(reference, name, since))
        assert store.namespaces() == reference.namespaces()
        assert store.check() == reference.check() == []


class PersistentStoreContract(StoreContract):
    """What a store promises that outlives its process: `open_store` after `close` gives the same rows."""

    def test_reopened(self, open_store: OpenStore) -> None:
        """Everything that was acknowledged is there when the store is opened again."""
        store = open_store()
        store.put(rich_batch(self.store_of))
        store.put(make_session("second"))
        store.set_meta({"embedder": "x"})
        before = [load_all(store, name) for name in (self.store_of, "second")]
        store.close()
        store = open_store()
        assert store.meta() == {"embedder": "x"}
        assert store.namespaces() == sorted([self.store_of, "second"])
        for name, was in zip((self.store_of, "second"), before, strict=True):
            assert_same(load_all(store, name), was)
        assert store.check() == []
        store.put(make_session("second", "more", 1))
        store.close()
