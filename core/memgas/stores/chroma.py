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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from memgas.errors import ClosedError, InvalidInputError, StoreCorruptError, StoreError
from memgas.stores import recovery, segments, upkeep
from memgas.stores.batches import assemble, check_batch, pages_of, visible_ids
from memgas.stores.journal import Journal
from memgas.stores.locking import FolderLock, Gate
from memgas.stores.rows import (
    META_ID,
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
from memgas.types import GRANULARITIES, JSON, Batch, Head, MemoryUnit, SessionRecord

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
        self._journal = None if root is None else Journal(root / "vectors.sqlite", f"{prefix}_vectors")
        self._open_tables()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, collection_prefix: str = "memgas") -> ChromaStore:
        """Open a folder, an empty one or one that holds a Chroma database, for this process alone.

        An index that a killed process left torn is rebuilt first; a warning is logged.

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
            raise StoreError(f"{root} cannot be opened as a folder: {error}") from error
        try:
            return cls._open_locked(root, prefix, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _open_locked(cls, root: Path, prefix: str, lock: FolderLock) -> ChromaStore:
        """Open a folder that is ours; leave no client behind if that fails."""
        recovery.set_aside(root, _names(prefix))
        client = _embedded_client(root)
        try:
            recovery.finish_copies(root, client, _names(prefix))
            store = cls(client, prefix, root, lock)
            recovery.rebuild_marked(root, store._tables, store._journal)
        except BaseException:
            client.close()
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
            Chroma failed; the batch is invisible, and putting it again is safe.
        """
        check_batch(batch)
        head = batch.head
        ids = [*(record_id(head.namespace, record.sequence) for record in batch.records), head_id(head.namespace)]
        metadatas = [*(record_metadata(record, head.epoch) for record in batch.records), head_metadata(head)]
        with self._inside():
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
                records = [record for record in self._records(head, range(head.next_number)) if not record.is_deleted]
            else:
                records = self._changed(head, since)
        return self._pages(head, records)

    def fetch(self, namespace: str, ids: Sequence[str]) -> list[MemoryUnit]:
        """Read units in the order of `ids`; unknown ids and other namespaces' are left out."""
        with self._inside():
            units = self._units.fetch(ids)
        return [units[uid] for uid in ids if uid in units and units[uid].namespace == namespace]

    def delete(self, namespace: str) -> None:
        """Delete the namespace whole, at once for every reader. Unknown: nothing happens."""
        with self._inside():
            self._tables.meta.delete(list(self._tables.meta.get([head_id(namespace)])))
            self._tables.meta.delete(self._tables.meta.ids({"namespace": namespace}))
            self._units.delete_namespace(namespace)

    def namespaces(self) -> list[str]:
        """List the namespaces that have a head, sorted."""
        with self._inside():
            heads = self._tables.meta.where({"row": "head"}, "metadatas")
            return sorted(head_from_row(row.metadata).namespace for _, row in heads)

    def meta(self) -> dict[str, JSON]:
        """Read what was set about the store as a whole."""
        with self._inside():
            row = self._tables.meta.get([META_ID], "metadatas").get(META_ID)
        return cast("dict[str, JSON]", load_json(row.metadata.get("json"))) if row else {}

    def set_meta(self, meta: dict[str, JSON]) -> None:
        """Replace what is set about the store as a whole."""
        metadata = {"row": "store", "json": dump_json(meta)}
        with self._inside():
            self._tables.meta.upsert([META_ID], ones(1), [metadata])

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
                self._client.close()
                try:
                    segments.vacuum(self._root)
                finally:
                    self._client = _embedded_client(self._root)
                    recovery.finish_copies(self._root, self._client, _names(self._prefix))
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
        or the journal's; where both are gone, by zeros, and the text has to be embedded again.
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
                    self._client.close()
                if self._has_erased:
                    segments.wipe_slack(self._root)
            if self._lock is not None:
                self._lock.release()

    def _head(self, namespace: str) -> Head | None:
        """Read a head."""
        row = self._tables.meta.get([head_id(namespace)], "metadatas").get(head_id(namespace))
        return head_from_row(row.metadata) if row else None

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
        *units, meta = (_collection(self._client, name) for name in _names(self._prefix))
        self._tables = Tables(
            {g: self._table(collection, is_plain=False) for g, collection in zip(GRANULARITIES, units, strict=True)},
            self._table(meta, is_plain=True),
        )
        self._units = UnitRows(self._tables.units, self._journal)

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


def _names(prefix: str) -> list[str]:
    """Return the names of the collections, that of records and heads last."""
    return [*(f"{prefix}_{granularity.value}" for granularity in GRANULARITIES), f"{prefix}_meta"]


def _checked_prefix(prefix: str) -> str:
    """Raise unless names of collections can begin so."""
    if not _PREFIX.fullmatch(prefix):
        raise InvalidInputError(
            "collection_prefix must be 2 to 201 of the characters a-z A-Z 0-9 . _ -, beginning with a letter or digit, "
            f"without '..'; got {prefix!r:.80}"
        )
    return prefix


def _embedded_client(root: Path) -> Client:
    """Open Chroma on a folder. What a `.env` of the working directory says is not for us."""
    import chromadb
    from chromadb.config import Settings

    with chroma_errors(f"opening {root}"):
        settings = Settings(_env_file=None, anonymized_telemetry=False)  # type: ignore[call-arg]  # pydantic's own
        return cast("Client", chromadb.PersistentClient(str(root), settings=settings))


def _collection(client: Client, name: str) -> Collection:
    """Get a collection, or make it: cosine, and without an embedder of its own."""
    with chroma_errors(f"opening {name}"):
        return client.get_or_create_collection(name, embedding_function=None, configuration=_HNSW)
