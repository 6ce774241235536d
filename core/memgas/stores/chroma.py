"""The store on disk, or behind a server: Chroma. The only file that imports chromadb, and only inside functions.

Units live in four collections, one a granularity; records and heads in a fifth. A record names the visible units by
generation and number, so that their ids are computed and read by id, never searched for. The last call of a write puts
records and head at once: before it nothing of the write is visible, after it everything.

Embedded, vectors are kept twice (`journal.py`), and the folder belongs to one process. Against a server Chroma alone keeps
them, and the windows of long texts are rows of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from memgas.errors import ClosedError, InvalidInputError, StoreCorruptError, StoreError
from memgas.fingerprint import REEMBEDDING
from memgas.stores import generations, locking, recovery, segments, upkeep
from memgas.stores.batches import assemble, check_batch, pages_of, says_something, visible_ids
from memgas.stores.generations import NextUnits
from memgas.stores.journal import Journal
from memgas.stores.locking import FolderLock, Gate
from memgas.stores.rows import (
    META_ID,
    Metadata,
    dump_json,
    head_from_row,
    head_id,
    head_metadata,
    load_json,
    record_from_row,
    record_id,
    record_metadata,
)
from memgas.stores.tables import Client, Collection, Found, Table, Tables, chroma_errors, ones
from memgas.stores.unit_rows import UnitRows
from memgas.types import GRANULARITIES, JSON, Batch, Granularity, Head, MemoryUnit, SessionRecord

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

PAGE_UNITS = 2_000
"""About how many units a page of `load` has."""

_HNSW = {"hnsw": {"space": "cosine", "max_neighbors": 8, "ef_construction": 20}}
_PREFIX = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9_-]|\.(?!\.)){1,200}")
_MOST_TRIES = 100


class ChromaStore:
    """Keeps rows in Chroma. Made by `open` or `connect`. Any number of threads may call it at once.

    Two threads may write two namespaces; one namespace has one writer at a time, which is for the caller to see to. The
    rules are those of `memgas.protocols.Store`.
    """

    def __init__(self, client: Client, prefix: str, root: Path | None, lock: FolderLock | None) -> None:
        self._client = client
        self._prefix = prefix
        self._root = root
        self._lock = lock
        self._pid = os.getpid()
        self._gate = Gate()
        self._is_closed = False
        self._has_erased = False
        self._meta_table = self._open_table(generations.meta_name(prefix), is_plain=True)
        self._generation = generations.generation_of(self._store_row())
        self._journal = self._open_journal(self._generation)
        self._open_tables()
        self._drop_leftovers()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, collection_prefix: str = "memgas") -> ChromaStore:
        """Open a folder, an empty one or one that holds a Chroma database, for this process alone.

        What a killed process left is put in order first: a torn index is rebuilt, with a warning in the log, and rows of a
        write that never ended are removed.

        Parameters
        ----------
        path
            Made when it is not there.
        collection_prefix
            Begins the names of the collections: several stores may share a database, one after the other.

        Raises
        ------
        InvalidInputError
            The prefix cannot begin a collection's name.
        StoreLockedError
            The folder is open already, here or in another process.
        StoreCorruptError
            The database cannot be read.
        StoreError
            The folder cannot be made or opened.
        """
        prefix = _checked_prefix(collection_prefix)
        root = Path(os.path.realpath(path))
        try:
            root.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(root)
        except OSError as error:
            raise StoreError(
                f"{root} cannot be opened as a folder to read and write: {error}. A memory on a read-only disk is opened "
                "after it was copied to one that can be written to"
            ) from error
        try:
            return cls._open_locked(root, prefix, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _open_locked(cls, root: Path, prefix: str, lock: FolderLock) -> ChromaStore:
        """Open a folder that is ours; leave no client behind if that fails."""
        owned = generations.owned_names(prefix)
        recovery.set_aside(root, owned)
        segments.prepare(root)
        client = _embedded_client(root)
        try:
            recovery.finish_copies(root, client, owned)
            if lock.was_abandoned and (broken := _unreadable(client, owned)):
                _close(client, root)
                recovery.set_aside_named(root, broken)
                client = _embedded_client(root)
            store = cls(client, prefix, root, lock)
            recovery.rebuild_marked(root, store._tables, store._journal)
            if lock.was_abandoned:
                upkeep.drop_strays(store._tables, store._journal)
        except BaseException:
            _close(client, root)
            raise
        return store

    @classmethod
    def connect(cls, client: ClientAPI, *, collection_prefix: str = "memgas") -> ChromaStore:
        """Use a Chroma client that the caller made and closes: `chromadb.HttpClient(...)`, most often.

        Raises
        ------
        InvalidInputError
            The prefix cannot begin a collection's name.
        StoreError
            The server cannot be reached, or refuses.
        """
        return cls(cast("Client", client), _checked_prefix(collection_prefix), None, None)

    @property
    def is_exclusive(self) -> bool:
        """Whether nobody else can write: true of a folder, false of a server."""
        return self._root is not None

    def put(self, batch: Batch) -> None:
        """Write a batch, all or nothing to any reader.

        A batch of more records than one call of Chroma takes (5,460) is all or nothing for new sessions only.

        Raises
        ------
        ShapeError
            Arrays do not fit the units, or the vectors that are kept already. Nothing was written.
        InvalidInputError
            A row cannot be kept. Nothing was written.
        StoreError
            The disk is nearly full, and nothing was written; or Chroma failed, the batch is invisible, and putting it
            again is safe.
        """
        check_batch(batch)
        head = batch.head
        ids = [*(record_id(head.namespace, record.sequence) for record in batch.records), head_id(head.namespace)]
        metadatas = [*(record_metadata(record, head.epoch) for record in batch.records), head_metadata(head)]
        n_bytes = batch.vectors.nbytes + batch.windows.nbytes + sum(len(unit.text) for unit in batch.units)
        with self._writing():
            self._check_room(n_bytes, spare=locking.SPARE_BYTES if batch.units else locking.DELETING_BYTES)
            self._units.put(batch)
            self._tables.meta.upsert(ids, ones(len(ids)), metadatas)
            self._units.delete(batch.obsolete)

    def head(self, namespace: str) -> Head | None:
        """Return the namespace's head; None when there is none."""
        with self._inside():
            return self._head(namespace)

    def load(self, namespace: str, since: int | None = None) -> Iterator[Batch]:
        """Read what the records name, a page at a time, sessions in the order of their sequence.

        A namespace that has a head yields one batch at least, if only to show its head. Where somebody writes at the
        same time, a page may be newer than its head: the next `load(since=head.revision)` brings the same again.

        Raises
        ------
        StoreCorruptError
            A record names a row or a vector that is not there: see `repair`.
        """
        with self._inside():
            head = self._head(namespace)
            if head is None:
                return iter(())
            if since is None:
                records = [record for record in self._records(head, range(head.next_number)) if says_something(record)]
            else:
                records = self._changed(head, since)
        return self._pages(head, records)

    def fetch(self, namespace: str, ids: Sequence[str]) -> list[MemoryUnit]:
        """Read units in the order of `ids`; unknown ids and other namespaces' are left out."""
        with self._inside():
            units = self._units.fetch(ids)
        return [units[uid] for uid in ids if uid in units and units[uid].namespace == namespace]

    def fetch_named(self, namespace: str, named: Mapping[Granularity, Sequence[str]]) -> list[MemoryUnit]:
        """Read units as `fetch` does, those of each granularity by id, in any order."""
        with self._inside():
            return [unit for unit in self._units.fetch_named(named) if unit.namespace == namespace]

    def delete(self, namespace: str) -> None:
        """Delete the namespace whole, at once for every reader. Unknown: nothing happens."""
        with self._writing():
            self._tables.meta.delete(list(self._tables.meta.get([head_id(namespace)])))
            self._tables.meta.delete(self._tables.meta.ids({"namespace": namespace}))
            self._units.delete_namespace(namespace)

    def namespaces(self) -> list[str]:
        """List the namespaces that have a head, sorted; without those whose sessions were all deleted.

        A head came with a session. Where sessions were deleted since, one that is left is looked for: they are few, and
        all records of a large store are many.
        """
        meta = self._tables.meta
        with self._inside():
            heads = [head_from_row(row.metadata) for _, row in meta.where({"row": "head"}, "metadatas")]
            thinned = {row.metadata.get("namespace") for _, row in meta.where({"is_deleted": True}, "metadatas")}
            return sorted(h.namespace for h in heads if h.namespace not in thinned or self._has_session(h))

    def meta(self) -> dict[str, JSON]:
        """Read what was set about the store as a whole."""
        with self._inside():
            row = self._store_row()
        return cast("dict[str, JSON]", load_json(row.get("json"))) if row else {}

    def set_meta(self, meta: dict[str, JSON]) -> None:
        """Replace what is set about the store as a whole."""
        with self._writing():
            self._check_room(0, spare=locking.SPARE_BYTES)
            self._write_store_row(meta, self._generation)

    def next_units(self) -> NextUnits:
        """Open the collections that another embedder's vectors are put into, made when they are not there.

        Set `reembedding` in `meta` before: without it, the next opening drops them.
        """
        with self._inside():
            generation = self._generation + 1
            tables = self._tables_of(generation)
            return NextUnits(self._root, tables, self._open_journal(generation))

    def adopt_next(self, meta: dict[str, JSON]) -> None:
        """Let the units that were put into `next_units` be the store's, and set `meta`, in one call; drop the old ones."""
        with self._alone():
            self._write_store_row(meta, self._generation + 1)
            self._generation += 1
            if self._journal is not None:
                self._journal.close()
            self._journal = self._open_journal(self._generation)
            self._open_tables()
            self._drop_leftovers()

    def drop_next(self, meta: dict[str, JSON]) -> None:
        """Stay with the units that there are: set `meta`, and drop what was put into `next_units`."""
        with self._alone():
            self._write_store_row(meta, self._generation)
            self._drop_leftovers()

    def erase(self) -> None:
        """Remove the bytes of everything deleted so far from every file of the folder.

        Each collection is copied to a new one, the old one deleted, the database vacuumed; other calls wait. A process
        killed in the middle leaves every row in place: erase again. Chroma writes unused memory into its index files,
        which may hold texts that this process has seen: `close` wipes that once more, so close after erasing.

        Raises
        ------
        StoreError
            The store is on a server, whose files are not ours: rows are deleted, the message says how to erase them.
        """
        with self._alone():
            upkeep.drop_strays(self._tables, self._journal)
            if self._root is None or self._journal is None:
                raise StoreError(
                    "deleted rows are gone for every reader, but a Chroma server has no call that erases their bytes: "
                    "stop it, open its folder with ChromaStore.open(path), call repair() and erase(), and start it again"
                )
            self._journal.vacuum()
            recovery.begin_copies(self._root)
            try:
                self._copy_collections(self._journal)
            finally:
                _close(self._client, self._root)
                try:
                    segments.vacuum(self._root)
                finally:
                    self._client = _embedded_client(self._root)
                    recovery.finish_copies(self._root, self._client, generations.owned_names(self._prefix))
                    self._open_tables()
            for table in self._tables:
                table.n_dims()  # opens the index, which writes its files
            segments.wipe_slack(self._root)
            self._has_erased = True

    def check(self) -> list[str]:
        """List what is wrong, in words. Reads everything: seconds per 10,000 units. Nobody may write meanwhile."""
        with self._alone():
            return upkeep.check(self._tables, self._journal)

    def repair(self) -> list[str]:
        """Mend what `check` finds; list what was done. Nobody may write meanwhile, through a server neither.

        Rows that no record names are removed. A missing row is replaced by an empty one, a lost vector by Chroma's copy
        or the journal's; where both are gone, by zeros, and the unit is marked to be embedded again (`n_windows` 0).
        """
        with self._alone():
            return upkeep.repair(self._tables, self._journal)

    def close(self) -> None:
        """Release files and locks, once the calls under way are out. Twice is fine."""
        if os.getpid() != self._pid:
            return  # a forked child: files and locks are its parent's
        with self._gate.alone():
            if self._is_closed:
                return
            self._is_closed = True
            if self._journal is not None:
                self._journal.close()
            if self._root is not None:
                with chroma_errors("closing"):
                    _close(self._client, self._root)
                if self._has_erased:
                    segments.wipe_slack(self._root)
            if self._lock is not None:
                self._lock.release()

    def _head(self, namespace: str) -> Head | None:
        """Read a head."""
        row = self._tables.meta.get([head_id(namespace)], "metadatas").get(head_id(namespace))
        return head_from_row(row.metadata) if row else None

    def _has_session(self, head: Head) -> bool:
        """Tell whether a session of a namespace is left."""
        where = {
            "$and": [{"row": "record"}, {"namespace": head.namespace}, {"epoch": head.epoch}, {"is_deleted": False}]
        }
        return self._tables.meta.has(where)

    def _records(self, head: Head, sequences: Sequence[int]) -> list[SessionRecord]:
        """Read records by sequence."""
        found = self._tables.meta.get([record_id(head.namespace, sequence) for sequence in sequences], "metadatas")
        return _records_of(head, found.values())

    def _changed(self, head: Head, since: int) -> list[SessionRecord]:
        """Read the records that changed after a revision: few of many, so that searching is ten times as fast."""
        where = {"$and": [{"row": "record"}, {"namespace": head.namespace}, {"revision": {"$gt": since}}]}
        return _records_of(head, (row for _, row in self._tables.meta.where(where, "metadatas")))

    def _pages(self, head: Head, records: Sequence[SessionRecord]) -> Iterator[Batch]:
        """Yield pages."""
        for page in list(pages_of(records, PAGE_UNITS)) or [[]]:
            with self._inside():
                batch = self._page(head, page)
            yield batch

    def _page(self, head: Head, records: list[SessionRecord]) -> Batch:
        """Read a page. What is missing may be so because a writer was here meanwhile: then the records say otherwise."""
        for _ in range(_MOST_TRIES):
            try:
                return self._page_once(head, records)
            except StoreCorruptError:
                present = self._present(head, records)
                if present == records:
                    raise
                records = present
        raise StoreError(f"namespace {head.namespace!r:.80} is written faster than it can be read: try again")

    def _page_once(self, head: Head, records: list[SessionRecord]) -> Batch:
        """Read the rows that records name."""
        named = {g: [uid for record in records for uid in visible_ids(record, g)] for g in GRANULARITIES}
        rows = self._units.read(named)
        missing = [uid for ids in named.values() for uid in ids if uid not in rows]
        if missing:
            raise StoreCorruptError(
                f"namespace {head.namespace!r:.80}: {len(missing)} unit(s) that a session names, {missing[0]} among them, "
                "or their vectors, are missing; `check()` says more, `repair()` mends what can be mended"
            )
        in_turn = {g: iter(ids) for g, ids in named.items()}
        places = ((g, record.n_units[g.axis]) for record in records for g in GRANULARITIES)
        return assemble(head, records, [rows[uid] for g, n_units in places for uid in islice(in_turn[g], n_units)])

    def _present(self, head: Head, records: Sequence[SessionRecord]) -> list[SessionRecord]:
        """Read records again. One that was deleted since is left out: the next `load(since=...)` tells of it."""
        now = self._head(head.namespace)
        if now is None or now.epoch != head.epoch:
            return []
        present = self._records(head, [record.sequence for record in records])
        return [record for record in present if not record.is_deleted or record in records]

    def _copy_collections(self, journal: Journal) -> None:
        """Put a copy without memories in the place of each collection."""
        width = upkeep.width_of(self._tables, journal)
        for table in self._tables:
            name = recovery.copy_name(table.name)
            collection = _collection(self._client, name)
            upkeep.copy_rows(table, self._table(collection, is_plain=table.is_plain), journal, width)
            recovery.replace_by_copy(self._client, table.name)

    def _open_tables(self) -> None:
        """Get the collections, or make them."""
        self._meta_table = self._open_table(generations.meta_name(self._prefix), is_plain=True)
        self._tables = self._tables_of(self._generation)
        self._units = UnitRows(self._tables.units, self._journal)

    def _tables_of(self, generation: int) -> Tables:
        """Get the collections of a generation, or make them."""
        names = generations.unit_names(self._prefix, generation)
        units = [self._open_table(name, is_plain=False) for name in names]
        return Tables(dict(zip(GRANULARITIES, units, strict=True)), self._meta_table)

    def _open_table(self, name: str, *, is_plain: bool) -> Table:
        """Get a collection, or make it."""
        return self._table(_collection(self._client, name), is_plain=is_plain)

    def _open_journal(self, generation: int) -> Journal | None:
        """Open the journal of a generation."""
        name = generations.journal_name(self._prefix, generation)
        return None if self._root is None else Journal(self._root / "vectors.sqlite", name)

    def _store_row(self) -> Metadata:
        """Read the row of the store; empty when there is none."""
        row = self._meta_table.get([META_ID], "metadatas").get(META_ID)
        return row.metadata if row else {}

    def _write_store_row(self, meta: dict[str, JSON], generation: int) -> None:
        """Write the row of the store."""
        metadata = {"row": "store", "json": dump_json(meta), "generation": generation}
        self._meta_table.upsert([META_ID], ones(1), [metadata])

    def _drop_leftovers(self) -> None:
        """Drop units of another generation: of the one before, and of one that nobody is filling any more."""
        meta = load_json(self._store_row().get("json", "{}"))
        is_filling = isinstance(meta, dict) and REEMBEDDING in meta
        stale = [self._generation - 1] if self._generation > 1 else []
        for generation in stale if is_filling else [*stale, self._generation + 1]:
            names = generations.unit_names(self._prefix, generation)
            with chroma_errors("dropping old collections"):
                there = {collection.name for collection in self._client.list_collections()}
                for name in there.intersection(names):
                    self._client.delete_collection(name)
            if self._journal is not None:
                self._journal.drop(generations.journal_name(self._prefix, generation))
            if self._root is not None:
                recovery.unmark(self._root, names)

    def _table(self, collection: Collection, *, is_plain: bool) -> Table:
        """Return a collection as a table."""
        with chroma_errors("asking for the largest batch"):
            max_batch = self._client.get_max_batch_size()
        return Table(collection, max_batch, is_plain=is_plain)

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Call the store together with others."""
        self._check_process()
        with self._gate.shared():
            self._check_open()
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Call the store to write. After a failure Chroma is opened anew.

        A write that failed in the middle (a full disk) can leave Chroma holding a lock that its own next call waits for.
        """
        is_broken = False
        try:
            with self._inside():
                try:
                    yield
                    if self._root is not None:
                        segments.sync_log(self._root)
                except StoreError:
                    is_broken = self._root is not None
                    raise
        finally:
            if is_broken and self._root is not None:
                with self._gate.alone():
                    _close(self._client, self._root)
                    self._client = _embedded_client(self._root)
                    self._open_tables()

    def _check_room(self, n_bytes: int, *, spare: int) -> None:
        """Raise unless the folder has room for about so many bytes; a server's disk is its own affair."""
        if self._root is not None:
            locking.check_room(self._root, n_bytes, spare=spare)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Call the store while nobody else does."""
        self._check_process()
        with self._gate.alone():
            self._check_open()
            yield

    def _check_process(self) -> None:
        """Raise in a forked child, where every call of Chroma hangs."""
        if os.getpid() != self._pid:
            raise StoreError(
                f"the store was opened in process {self._pid}, and this is its fork {os.getpid()}: open it after the fork"
            )

    def _check_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self._is_closed:
            raise ClosedError("the store is closed: open it again")


def _records_of(head: Head, rows: Iterable[Found]) -> list[SessionRecord]:
    """Return records by sequence. Those of another epoch than the head's were deleted with their head."""
    records = [record_from_row(row.metadata) for row in rows if row.metadata.get("epoch") == head.epoch]
    return sorted(records, key=attrgetter("sequence"))


def _checked_prefix(prefix: str) -> str:
    """Raise unless names of collections can begin so."""
    if not _PREFIX.fullmatch(prefix) or generations.LIKE_A_GENERATION.fullmatch(prefix):
        raise InvalidInputError(
            "collection_prefix must be 2 to 201 of the characters a-z A-Z 0-9 . _ -, beginning with a letter or digit, "
            f"without '..', and not ending like '_g2'; got {prefix!r:.80}"
        )
    return prefix


def _embedded_client(root: Path) -> Client:
    """Open Chroma on a folder. What a `.env` of the working directory says is not for us."""
    import chromadb
    from chromadb.config import Settings

    with chroma_errors(f"opening {root}"):
        settings = Settings(_env_file=None, anonymized_telemetry=False)  # type: ignore[call-arg]  # pydantic's own
        return cast("Client", chromadb.PersistentClient(str(root), settings=settings))


def _close(client: Client, root: Path) -> None:
    """Close Chroma on a folder, and wait until its database is closed, which Chroma leaves to other threads."""
    client.close()
    segments.wait_until_closed(root)


def _unreadable(client: Client, owned: re.Pattern[str]) -> list[str]:
    """Return the names of the collections whose index Chroma itself finds torn, where its files looked sound."""
    broken = []
    for name in sorted(collection.name for collection in client.list_collections()):
        if owned.fullmatch(name):
            table = Table(client.get_collection(name, embedding_function=None), 1, is_plain=False)
            try:
                table.touch()
            except StoreCorruptError:
                broken.append(name)
    return broken


def _collection(client: Client, name: str) -> Collection:
    """Get a collection, or make it: cosine, and without an embedder of its own."""
    with chroma_errors(f"opening {name}"):
        return client.get_or_create_collection(name, embedding_function=None, configuration=_HNSW)
