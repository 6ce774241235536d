"""A process that writes batch after batch and says which the store acknowledged, until it is killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from memgas.protocols import Store
from memgas.stores import ChromaStore, InMemoryStore
from memgas.testing.store_batches import make_batch, make_record, make_units
from memgas.types import Association, Batch, Head, SessionRecord

NAMESPACE = "user-1"


def batch_of(number: int, n_turn_units: int) -> Batch:
    """Return the batch of a number: a new session, or each third time, the session before it written anew."""
    record = _record(number, n_turn_units)
    obsolete: Sequence[str] = ()
    if number % 3 == 2:
        obsolete = [unit.id for unit in make_units(_record(number - 1, n_turn_units))]
        record = replace(record, session_id=f"s{number - 1}", sequence=number - 1)
    units = [
        replace(unit, n_windows=1 + (unit.position + number) % 3) for unit in make_units(record, f"batch {number}")
    ]
    edges = {units[0].id: [Association(units[0].id, unit.id, 0.5) for unit in units[1:4]]}
    head = Head(NAMESPACE, "epoch", number, number + 1)
    return make_batch([record], units, head=head, associations=edges, obsolete=obsolete, seed=number)


def replay(n_batches: int, n_turn_units: int) -> Store:
    """Return what a store is that took so many batches."""
    store = InMemoryStore()
    for number in range(n_batches):
        store.put(batch_of(number, n_turn_units))
    return store


def _record(number: int, n_turn_units: int) -> SessionRecord:
    """Return the record of a new session."""
    return make_record(
        NAMESPACE, f"s{number}", number, generation=number, revision=number, n_units=(1, n_turn_units, 1, 1)
    )


def _write(path: str, n_turn_units: int) -> Iterator[int]:
    """Write on from where the last one was killed; yield what was acknowledged."""
    store = ChromaStore.open(path)
    head = store.head(NAMESPACE)
    for number in count(head.next_number if head else 0):
        store.put(batch_of(number, n_turn_units))
        yield number


if __name__ == "__main__":
    for acknowledged in _write(sys.argv[1], int(sys.argv[2])):
        sys.stdout.write(f"{acknowledged}\n")
        sys.stdout.flush()
