"""Texts that are embedded again: those that have no vector, or all of them, for another embedder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from memgas.config import MemGASConfig
from memgas.errors import EmbedderError
from memgas.fingerprint import REEMBEDDING, Fingerprint, take_fingerprint
from memgas.index import NamespaceIndex
from memgas.models.calls import SafeEmbedder
from memgas.remembering import Remembering, merged, next_head
from memgas.stores.batches import Row, assemble, visible_ids
from memgas.types import GRANULARITIES, JSON, Batch, MemoryUnit, SessionRecord
from memgas.workspace import Workspace

if TYPE_CHECKING:
    from memgas.stores.chroma import ChromaStore
    from memgas.stores.generations import NextUnits

_CHUNK = 16

Owned = tuple[SessionRecord, Sequence[MemoryUnit]]


def repair(workspace: Workspace, remembering: Remembering) -> list[str]:
    """Mend what the store can mend, embed what has no vector, and read the mirrors again; list what was done."""
    done = [line for line in workspace.store.repair() if not line.endswith("embedded again")]
    try:
        for namespace in workspace.store.namespaces():
            if n_units := embed_lost(workspace, remembering, namespace):
                done.append(f"embedded again: {n_units} unit(s) of namespace {namespace!r:.80}")
    except EmbedderError as error:
        done.append(f"texts without a vector are left, for the embedder failed: {error}")
    finally:
        workspace.drop_mirrors()
    return done


def embed_lost(workspace: Workspace, remembering: Remembering, namespace: str) -> int:
    """Embed the units of a namespace that have no vector; return how many. Associations that they have stay.

    Raises
    ------
    EmbedderError
        What was done before is kept.
    """
    n_embedded = 0
    with workspace.writing(namespace) as index:

        def show(batch: Batch) -> None:
            for unit, vector in zip(batch.units, batch.vectors, strict=True):
                state = index.sessions[unit.session_id]
                index.vectors[state.nodes[unit.granularity][unit.position]] = vector

        for page in workspace.store.load(namespace):
            for record, units in _by_session(page):
                owed = [unit for unit in units if unit.text and not unit.n_windows]
                if not owed:
                    continue
                head = next_head(index)
                now = replace(record, revision=head.revision)
                (batch,) = remembering.renewed(index, head, [(now, owed)], page.associations, show)
                workspace.store.put(batch)
                index.head = head
                n_embedded += len(owed)
    return n_embedded


def reembed(
    store: ChromaStore, embedder: SafeEmbedder, config: MemGASConfig, progress: Callable[[int], None] | None
) -> int:
    """Move a store to another embedder; return how many sessions were embedded. Nobody else may have it open.

    The new vectors and associations go beside the old ones; the store changes over in one call at the end. Ids, texts and
    digests stay. What a killed call had done is not done again; the store's own embedder calls it off.

    Raises
    ------
    EmbedderError
        What was done is kept for the next call.
    """
    meta = store.meta()
    stored = Fingerprint.from_json(meta)
    if stored is None:
        return 0  # nothing was ever written
    wanted = take_fingerprint(embedder)
    begun = Fingerprint.from_json(_mapping(meta.get(REEMBEDDING)))
    settled = {key: value for key, value in meta.items() if key != REEMBEDDING}
    if begun is not None and not begun.is_like(wanted):
        store.drop_next(settled)
    if stored.is_like(wanted):
        return 0
    store.set_meta({**settled, REEMBEDDING: wanted.to_json()})
    target = store.next_units()
    try:
        remembering = Remembering(_no_workspace, embedder, config)
        n_sessions = sum(
            _reembed_namespace(store, target, remembering, NamespaceIndex(
                namespace, embedder.n_dims, k1=config.bm25_k1, b=config.bm25_b), progress)
            for namespace in store.namespaces()
        )  # fmt: skip
    finally:
        target.close()
    store.adopt_next({**settled, **wanted.to_json()})
    return n_sessions


def _reembed_namespace(
    store: ChromaStore, target: NextUnits, remembering: Remembering, index: NamespaceIndex,
    progress: Callable[[int], None] | None,
) -> int:  # fmt: skip
    """Embed a namespace; return how many of its sessions were not done before."""
    n_done = 0
    for page in store.load(index.namespace):
        index.head = page.head
        sessions = _by_session(page)
        while chunk := list(islice(sessions, _CHUNK)):
            before = _done(target, chunk)
            if before is not None:
                index.apply(assemble(page.head, [record for record, _ in chunk], before))
                continue
            target.put(merged(page.head, remembering.renewed(index, page.head, chunk, {}, index.apply)))
            n_done += len(chunk)
            if progress is not None:
                progress(n_done)
    return n_done


def _done(target: NextUnits, chunk: Sequence[Owned]) -> list[Row] | None:
    """Return the new rows of sessions, as they are ordered in a batch; None unless all are there with these texts."""
    named = {g: [uid for record, _ in chunk for uid in visible_ids(record, g)] for g in GRANULARITIES}
    rows = target.read(named)
    units = [unit for _, units in chunk for unit in units]
    if any(unit.id not in rows or rows[unit.id].unit.text != unit.text for unit in units):
        return None
    return [rows[unit.id] for unit in units]


def _by_session(page: Batch) -> Iterator[Owned]:
    """Yield the sessions of a page with their units."""
    units: dict[str, list[MemoryUnit]] = {record.session_id: [] for record in page.records}
    for unit in page.units:
        units[unit.session_id].append(unit)
    return ((record, units[record.session_id]) for record in page.records if not record.is_deleted)


def _mapping(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}


def _no_workspace() -> Workspace:
    raise AssertionError("vectors are made anew without a workspace")
