"""From a path, a client or a store to a workspace that everything in this process shares."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING

from memgas.config import MemGASConfig
from memgas.errors import EmbedderError, InvalidConfigError, InvalidInputError, StoreMismatchError
from memgas.fingerprint import PROBE, Fingerprint, check_probe, check_width, take_fingerprint
from memgas.protocols import Embedder, Store
from memgas.types import JSON
from memgas.workspace import Workspace, share, unshare

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

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
    embedder: Embedder,
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
    key: Hashable = ("store", id(store))
    if path is not None:
        key = ("path", os.path.realpath(path), collection_prefix)
    elif client is not None:
        key = ("client", id(client), collection_prefix)
    make = partial(_make, path, client, store, embedder=embedder, config=config, collection_prefix=collection_prefix)
    workspace = share(key, make)
    is_usable = False
    try:
        fingerprint = _check(workspace, embedder, config)
        is_usable = True
    finally:
        if not is_usable:
            unshare(key, workspace)
    return key, workspace, fingerprint


def _make(
    path: str | os.PathLike[str] | None, client: ClientAPI | None, store: Store | None, *, embedder: Embedder,
    config: MemGASConfig, collection_prefix: str,
) -> Workspace:  # fmt: skip
    if store is None:
        from memgas.stores.chroma import ChromaStore

        if client is not None:
            store = ChromaStore.connect(client, collection_prefix=collection_prefix)
        else:
            store = ChromaStore.open(path or "", collection_prefix=collection_prefix)
    return Workspace(
        store, embedder.n_dims, k1=config.bm25_k1, b=config.bm25_b, n_cached=config.n_cached_namespaces,
        n_threads=config.n_threads,
    )  # fmt: skip


def _check(workspace: Workspace, embedder: Embedder, config: MemGASConfig) -> Fingerprint | None:
    """Refuse another embedder at once where that can be told; warn of other settings."""
    meta = workspace.store.meta()
    stored = Fingerprint.from_json(meta)
    if stored is None:
        if embedder.n_dims != workspace.n_dims:
            raise StoreMismatchError(
                f"this store is open in this process with an embedder of {workspace.n_dims} dimensions, and "
                f"{embedder.name!r} has {embedder.n_dims}; give both the same"
            )
        return None
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


def fingerprint_of(workspace: Workspace, embedder: Embedder, config: MemGASConfig) -> Fingerprint:
    """Return the store's fingerprint, checked; of a new store it is taken and written first."""
    with _lock:
        meta = workspace.store.meta()
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
