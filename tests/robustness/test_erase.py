"""After `erase` the bytes of what was deleted are in no file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memgas.stores import ChromaStore
from memgas.testing.store_batches import assert_same, load_all, make_batch, make_record, make_session, make_units
from memgas.types import Batch, Granularity, Span

pytestmark = pytest.mark.slow

SECRETS = ("Zwiebelfisch", "Quarzuhr", "Xylophon")
"""In a text, in a session's metadata, in a speaker's name."""


def secret_session(namespace: str, sequence: int, n_turn_units: int = 2) -> Batch:
    """Return a session in which secrets are told."""
    text, note, speaker = SECRETS
    record = make_record(
        namespace, f"s{sequence}", sequence, n_units=(1, n_turn_units, 1, 1), metadata={"note": f"{note} {sequence}"}
    )
    units = [
        replace(unit, text=f"{unit.text} {text} {sequence}", spans=(Span(f"{speaker} {sequence}", 0, 4),))
        for unit in make_units(record)
    ]
    return make_batch([record], units, seed=sequence)


def files_with(folder: Path, data: bytes) -> list[str]:
    """Return the names of the files that hold some bytes."""
    return [file.name for file in folder.rglob("*") if file.is_file() and data in file.read_bytes()]


def test_deleted_bytes_are_gone(tmp_path: Path) -> None:
    """Texts, names, metadata and vectors of deleted and of replaced sessions leave the folder; the rest stays."""
    store = ChromaStore.open(tmp_path)
    keeper = make_session("keeper", n_turn_units=600)
    store.put(keeper)
    gone = secret_session("gone", 1, n_turn_units=600)
    store.put(gone)
    replaced = secret_session("keeper", 2)
    store.put(replaced)
    turns = [n for n, unit in enumerate(gone.units) if unit.granularity is Granularity.TURN]
    mark = gone.vectors[turns[5]].tobytes()
    assert files_with(tmp_path, SECRETS[0].encode())
    assert len(files_with(tmp_path, mark[4:12])) > 1

    store.delete("gone")
    record = replace(replaced.records[0], generation=3, revision=3, n_units=(0, 0, 0, 0), metadata=None)
    store.put(make_batch([record], obsolete=[unit.id for unit in replaced.units]))
    before = load_all(store, "keeper")
    store.erase()
    for secret in SECRETS:
        assert files_with(tmp_path, secret.encode()) == []
    for vector in (*gone.vectors[turns[::50]], *replaced.vectors):
        assert files_with(tmp_path, vector.astype(np.float32).tobytes()[4:16]) == []
    assert_same(load_all(store, "keeper"), before)
    assert store.check() == []
    store.put(make_session("keeper", "later", 3))
    store.close()
    for secret in SECRETS:
        assert files_with(tmp_path, secret.encode()) == []
    store = ChromaStore.open(tmp_path)
    assert len(load_all(store, "keeper").records) == 3
    store.close()


def test_an_index_grows_on_after_erasing(tmp_path: Path) -> None:
    """What is wiped of an open index is not in use: it takes thousands of rows more, and finds them all."""
    store = ChromaStore.open(tmp_path)
    for sequence, n_turn_units in enumerate((1_100, 1_000)):
        store.put(make_session("keeper", f"s{sequence}", sequence, n_turn_units=n_turn_units))
        before = load_all(store, "keeper")
        store.erase()
        assert_same(load_all(store, "keeper"), before)
        assert store.check() == []
    store.close()
    store = ChromaStore.open(tmp_path)
    assert_same(load_all(store, "keeper"), before)
    assert store.check() == []
    store.close()
