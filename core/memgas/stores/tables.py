"""One Chroma collection as a table: pages, order, one kind of error. The traps of Chroma's calls stop here."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from memgas.errors import MemGASError, StoreCorruptError, StoreError, StoreMismatchError
from memgas.stores.rows import Metadata
from memgas.types import GRANULARITIES, Granularity

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAGE_ROWS = 2_000
"""Rows a read: SQLite takes 32,766 variables, and a metadata value is one."""

_MODULES = {"chromadb", "httpcore", "httpx", "pyo3_runtime"}
_PLAIN = (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError)
_CORRUPT = ("hnsw", "finding id", "getting embedding", "deserializing", "malformed", "not a database", "disk image")


class Collection(Protocol):
    """What a table needs of a Chroma collection."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    def upsert(
        self,
        *,
        ids: list[str],
        embeddings: NDArray[np.float32],
        metadatas: Sequence[Metadata] | None,
        documents: list[str] | None,
    ) -> None:
        """Write rows."""
        ...

    def get(
        self,
        *,
        ids: list[str] | None = None,
        where: Mapping[str, object] | None = None,
        limit: int | None = None,
        offset: int | None = None,
        include: list[str],
    ) -> Mapping[str, object]:
        """Read rows."""
        ...

    def delete(self, *, ids: list[str]) -> object:
        """Delete rows."""
        ...

    def modify(self, *, name: str) -> None:
        """Rename it."""
        ...


class Client(Protocol):
    """What a store needs of a Chroma client."""

    def get_or_create_collection(
        self, name: str, *, embedding_function: None, configuration: Mapping[str, object]
    ) -> Collection:
        """Get a collection, or make it."""
        ...

    def get_collection(self, name: str, *, embedding_function: None) -> Collection:
        """Get a collection."""
        ...

    def list_collections(self) -> Sequence[Collection]:
        """List the collections; for their names only, for these have an embedder."""
        ...

    def delete_collection(self, name: str) -> None:
        """Delete a collection."""
        ...

    def get_max_batch_size(self) -> int:
        """Return the most rows of one write."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """One row read: what was asked for, None the rest."""

    metadata: Metadata
    document: str | None
    vector: NDArray[np.float32] | None


@contextmanager
def chroma_errors(doing: str) -> Iterator[None]:
    """Translate whatever Chroma raises, a Rust panic (no `Exception`) among it. Only Chroma's calls stand inside."""
    try:
        yield
    except MemGASError:
        raise
    except BaseException as error:
        if not isinstance(error, _PLAIN) and type(error).__module__.partition(".")[0] not in _MODULES:
            raise
        text = f"{type(error).__name__}: {error}"
        if any(sign in text.lower() for sign in _CORRUPT):
            raise StoreCorruptError(f"{doing}: {text:.500}. `repair()` rebuilds what it can") from error
        raise StoreError(f"{doing}: {text:.500}") from error


def _refuse_embedder(collection: Collection) -> None:
    """Refuse a collection whose configuration names an embedder.

    Chroma, up to 1.5.9 at least, builds it at the first write, and one may say `trust_remote_code`: whoever configures a
    collection runs code in whoever writes to it (CVE-2026-45829, CVE-2026-45833). Ours are made without one.
    """
    model: object = getattr(collection, "_model", None)
    for place in ("configuration_json", "serialized_schema"):
        if (name := _embedder_in(getattr(model, place, None))) is not None:
            raise StoreMismatchError(
                f"the collection {collection.name} names an embedder of its own ({name!r:.80}), which Chroma would build and run "
                "in this process. MemGAS makes its collections without: somebody else configured this one. Let them take it "
                "back, or use another collection_prefix"
            )


def _embedder_in(value: object) -> str | None:
    """Return the name of an embedder that some part of a configuration would have built."""
    if isinstance(value, Mapping):
        own = value.get("embedding_function")
        if isinstance(own, Mapping) and own.get("type") not in ("legacy", "unknown"):
            return str(own.get("name"))
        return next(filter(None, map(_embedder_in, value.values())), None)
    if isinstance(value, list):
        return next(filter(None, map(_embedder_in, value)), None)
    return None


class Table:
    """One collection.

    Parameters
    ----------
    collection
        Made with `embedding_function=None`.
    max_batch
        The most rows of one write.
    is_plain
        Its rows are metadata alone; their vectors say nothing.

    Raises
    ------
    StoreMismatchError
        Somebody gave the collection an embedder of its own.
    """

    def __init__(self, collection: Collection, max_batch: int, *, is_plain: bool) -> None:
        _refuse_embedder(collection)
        self._collection = collection
        self._max_batch = max_batch
        self.is_plain = is_plain

    @property
    def name(self) -> str:
        """Name of the collection."""
        return self._collection.name

    def upsert(
        self,
        ids: Sequence[str],
        vectors: NDArray[np.float32],
        metadatas: Sequence[Metadata] | None = None,
        documents: Sequence[str] | None = None,
    ) -> None:
        """Write rows: in one atomic call, or when there are too many, in several, the last rows last.

        Without metadata or documents, those of rows that are there stay.
        """
        first = len(ids) % self._max_batch or self._max_batch  # the short one first: the last call commits
        for start, end in _chunks(len(ids), first, self._max_batch):
            with chroma_errors(f"writing to {self.name}"):
                self._collection.upsert(
                    ids=list(ids[start:end]),
                    embeddings=vectors[start:end],
                    metadatas=None if metadatas is None else list(metadatas[start:end]),
                    documents=None if documents is None else list(documents[start:end]),
                )

    def get(self, ids: Sequence[str], *include: str) -> dict[str, Found]:
        """Read rows by id; unknown ids are left out."""
        found: dict[str, Found] = {}
        unique = list(dict.fromkeys(ids))
        for start in range(0, len(unique), PAGE_ROWS):
            found.update(self._read(ids=unique[start : start + PAGE_ROWS], include=list(include)))
        return found

    def where(self, where: Mapping[str, object] | None, *include: str) -> Iterator[tuple[str, Found]]:
        """Read rows by metadata, page by page; None: all. Nothing may be written meanwhile."""
        offset = 0
        while page := self._read(where=where, limit=PAGE_ROWS, offset=offset, include=list(include)):
            yield from page.items()
            offset += len(page)

    def has(self, where: Mapping[str, object]) -> bool:
        """Tell whether there is a row of such metadata."""
        return bool(self._read(where=where, limit=1, include=[]))

    def ids(self, where: Mapping[str, object] | None = None) -> list[str]:
        """Read the ids of rows by metadata; None: of all."""
        return [row_id for row_id, _ in self.where(where)]

    def touch(self) -> None:
        """Let Chroma open the index, and bring it up to date; raise StoreCorruptError if it cannot."""
        self._read(limit=1, include=["embeddings"])

    def n_dims(self) -> int:
        """Return the width of the vectors; 0 when there are none, or the first cannot be read just now."""
        try:
            vectors = [row.vector for row in self._read(limit=1, include=["embeddings"]).values()]
        except StoreCorruptError:
            return 0
        return 0 if not vectors or vectors[0] is None else len(vectors[0])

    def vectors(self, ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Read those vectors that can be read: where an index is damaged, one row at a time."""
        try:
            return {row_id: row.vector for row_id, row in self.get(ids, "embeddings").items() if row.vector is not None}
        except StoreError:
            if len(ids) <= 1:
                return {}
            half = len(ids) // 2
            return {**self.vectors(ids[:half]), **self.vectors(ids[half:])}

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows by id, twice as fast as by metadata; unknown ids are fine."""
        for start, end in _chunks(len(ids), PAGE_ROWS, PAGE_ROWS):
            with chroma_errors(f"deleting from {self.name}"):
                self._collection.delete(ids=list(ids[start:end]))

    def _read(
        self,
        *,
        ids: list[str] | None = None,
        where: Mapping[str, object] | None = None,
        limit: int | None = None,
        offset: int | None = None,
        include: list[str],
    ) -> dict[str, Found]:
        """Read at most a page. A read that meets the very first write, whose index is not there yet, is tried again."""
        for n_tries in count(1):
            try:
                with chroma_errors(f"reading from {self.name}"):
                    page = self._collection.get(ids=ids, where=where, limit=limit, offset=offset, include=include)
                return _rows(page)
            except StoreError as error:
                if n_tries == 20 or "nothing found on disk" not in str(error).lower():
                    raise
                time.sleep(0.01)
        raise AssertionError


@dataclass(frozen=True, slots=True)
class Tables:
    """The five collections of a store."""

    units: Mapping[Granularity, Table]
    meta: Table

    def granularity_of(self, table: Table) -> Granularity | None:
        """Return whose units a collection holds; None of records and heads."""
        return next((granularity for granularity, units in self.units.items() if units is table), None)

    def __iter__(self) -> Iterator[Table]:
        """Yield the collections of units, and that of records and heads last."""
        return iter((*(self.units[granularity] for granularity in GRANULARITIES), self.meta))


def ones(n_rows: int) -> NDArray[np.float32]:
    """Return vectors for rows that need none, `(n_rows, 1)`."""
    return np.ones((n_rows, 1), np.float32)


def _rows(page: Mapping[str, object]) -> dict[str, Found]:
    """Read a page by id: Chroma keeps no order."""
    ids = cast("list[str]", page["ids"])
    nones = [None] * len(ids)
    metadatas = cast("Sequence[Metadata | None]", page.get("metadatas") or nones)
    documents = cast("Sequence[str | None]", page.get("documents") or nones)
    embeddings = page.get("embeddings")
    vectors = nones if embeddings is None else np.asarray(embeddings, np.float32)
    return {
        row_id: Found(metadata or {}, document, vector)
        for row_id, metadata, document, vector in zip(ids, metadatas, documents, vectors, strict=True)
    }


def _chunks(n: int, first: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut `range(n)` into a first chunk and others."""
    start, end = 0, min(n, first)
    while start < n:
        yield start, end
        start, end = end, min(n, end + size)
