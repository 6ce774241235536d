"""From a path, a client or a store to a workspace that everything in this process shares."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from memgas.config import MemGASConfig
from memgas.errors import EmbedderError, InvalidConfigError, InvalidInputError, StoreLockedError, StoreMismatchError
from memgas.fingerprint import PROBE, Fingerprint, check_probe, check_settled, check_width, take_fingerprint
from memgas.models.calls import SafeEmbedder
from memgas.protocols import Store
from memgas.types import JSON
from memgas.workspace import Workspace, is_open, share, unshare

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

    from memgas.stores.chroma import ChromaStore

_BAKED = (
    "n_candidates", "n_components", "accept", "max_associations", "warmup_sessions", "max_window_tokens",
    "max_exchange_turns", "max_exchange_chars",
)  # fmt: skip
_lock = threading.RLock()


def open_workspace(
    path: str | os.PathLike[str] | None,
    client: ClientAPI | None,
    store: Store | None,
    *,
    embedder: SafeEmbedder,
    config: MemGASConfig,
    collection_prefix: str,
) -> tuple[Hashable, Workspace, Fingerprint | None]:
    """Open one of a path, a Chroma client and a store, or share what is open already.

    Returns
    -------
    key, workspace, fingerprint
        Give the first two to `unshare`. The third is the store's, checked against the embedder; None for a new store,
        and while the embedder is out of reach.

    Raises
    ------
    InvalidInputError
        Not exactly one of the three was given.
    InvalidConfigError
        The published code's units are asked for on disk.
    StoreLockedError, StoreMismatchError, StoreCorruptError, StoreError
        From the store; and the store was made with another embedder.
    """
    given = [name for name, value in (("path", path), ("client", client), ("store", store)) if value is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"exactly one of path, client and store is needed; got {', '.join(given) or 'none'}. "
            'MemGAS("./memory") keeps memories on disk, MemGAS.in_memory() until the process ends'
        )
    if store is None and (config.turn_units != "exchanges" or config.long_text != "windows"):
        raise InvalidConfigError("MemGASConfig.paper() is for evaluation: use it with MemGAS.in_memory()")
    key = _key(path, client, collection_prefix) if store is None else ("store", id(store))
    make = partial(_make, path, client, store, embedder=embedder, config=config, collection_prefix=collection_prefix)
    workspace = share(key, make, is_private=store is not None)
    is_usable = False
    try:
        fingerprint = _check(workspace, embedder, config)
        embedder.expect_width(workspace.n_dims)
        is_usable = True
    finally:
        if not is_usable:
            unshare(key, workspace)
    return key, workspace, fingerprint


def _make(
    path: str | os.PathLike[str] | None, client: ClientAPI | None, store: Store | None, *, embedder: SafeEmbedder,
    config: MemGASConfig, collection_prefix: str,
) -> Workspace:  # fmt: skip
    opened = store or open_store(path, client, collection_prefix=collection_prefix)
    is_usable = False
    try:
        stored = Fingerprint.from_json(opened.meta())
        if stored is not None:
            embedder.expect_width(stored.n_dims)
        workspace = Workspace(
            opened, embedder.n_dims, k1=config.bm25_k1, b=config.bm25_b, n_cached=config.n_cached_namespaces,
            n_threads=config.n_threads,
        )  # fmt: skip
        is_usable = True
        return workspace
    finally:
        if not is_usable and store is None:
            opened.close()


def open_store(path: str | os.PathLike[str] | None, client: ClientAPI | None, *, collection_prefix: str) -> ChromaStore:
    """Open a folder, or use a Chroma client."""
    from memgas.stores.chroma import ChromaStore

    if client is not None:
        return ChromaStore.connect(client, collection_prefix=collection_prefix)
    return ChromaStore.open(path or "", collection_prefix=collection_prefix)


@contextmanager
def opened_alone(
    path: str | os.PathLike[str] | None, client: ClientAPI | None, *, collection_prefix: str
) -> Iterator[ChromaStore]:
    """Open a store that nothing else in this process has open, and close it.

    Raises
    ------
    InvalidInputError
        Not exactly one of `path` and `client` was given.
    StoreLockedError
        It is open.
    """
    if (path is None) == (client is None):
        raise InvalidInputError("exactly one of path and client is needed")
    if is_open(_key(path, client, collection_prefix)):
        raise StoreLockedError("the store is open in this process: close it first")
    store = open_store(path, client, collection_prefix=collection_prefix)
    try:
        yield store
    finally:
        store.close()


def _key(path: str | os.PathLike[str] | None, client: ClientAPI | None, collection_prefix: str) -> Hashable:
    if path is not None:
        return ("path", os.path.realpath(path), collection_prefix)
    return ("client", id(client), collection_prefix)


def _check(workspace: Workspace, embedder: SafeEmbedder, config: MemGASConfig) -> Fingerprint | None:
    """Refuse another embedder at once where that can be told; warn of other settings."""
    meta = workspace.store.meta()
    check_settled(meta)
    stored = Fingerprint.from_json(meta)
    if stored is None:
        if embedder.n_dims != workspace.n_dims:
            raise StoreMismatchError(
                f"this store is open in this process with an embedder of {workspace.n_dims} dimensions, and "
                f"{embedder.name!r} has {embedder.n_dims}; give both the same"
            )
        return None
    embedder.expect_width(stored.n_dims)
    check_width(stored, embedder)
    settings = _settings(config)
    was = meta.get("settings")
    if isinstance(was, dict) and was != settings:
        changed = [f"{name} {was.get(name)} -> {value}" for name, value in settings.items() if was.get(name) != value]
        warnings.warn(
            f"this store was made with other settings ({', '.join(changed)}); what is stored keeps the old ones",
            stacklevel=4,
        )
    try:
        check_probe(stored, embedder.embed_documents([PROBE])[0], embedder.name)
    except EmbedderError:
        return None  # what needs no embedder works without one, and what does will say so
    return stored


def fingerprint_of(workspace: Workspace, embedder: SafeEmbedder, config: MemGASConfig) -> Fingerprint:
    """Return the store's fingerprint, checked; of a new store it is taken and written first."""
    with _lock:
        meta = workspace.store.meta()
        check_settled(meta)
        stored = Fingerprint.from_json(meta)
        if stored is not None:
            check_width(stored, embedder)
            check_probe(stored, embedder.embed_documents([PROBE])[0], embedder.name)
            return stored
        stored = take_fingerprint(embedder)
        settings: dict[str, JSON] = {"settings": _settings(config)}
        workspace.store.set_meta({**meta, **stored.to_json(), **settings})
        return stored


def _settings(config: MemGASConfig) -> dict[str, JSON]:
    """Return the settings that are baked into what is stored."""
    return {name: getattr(config, name) for name in _BAKED}
