"""After a crash: what was begun is finished by the next opening.

An index that was torn is moved aside before Chroma sees it, and rebuilt from the journal. A collection that was being
replaced by its copy is one or the other. What is to be done is written down before anything is moved, and crossed out after
it was done: a kill in between means that the next opening does it again.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from memgas.stores import segments
from memgas.stores.journal import Journal
from memgas.stores.tables import Client, Tables, chroma_errors
from memgas.stores.upkeep import mark_unembedded, rebuild_index, width_of

logger = logging.getLogger(__name__)

_MARKER = ".memgas.rebuild"
_COPYING = ".memgas.copying"
_COPY = ".copy"


def set_aside(root: Path, owned: re.Pattern[str]) -> None:
    """Move torn indexes of some collections aside, and write down that they are to be rebuilt. No client may be open.

    Those of other collections are left alone, with a warning: whatever they hold, there is no journal of it.
    """
    broken = {segment: reason for segment in segments.segments_of(root) if (reason := segments.torn(segment))}
    if not broken:
        return
    owners = segments.collection_names(root)
    ours = {segment: owners[segment.name] for segment in broken if owned.fullmatch(owners.get(segment.name, ""))}
    for segment, reason in broken.items():
        logger.warning(
            "%s: the index of %r is torn (%s); %s", segment, owners.get(segment.name), reason,
            "rebuilding it" if segment in ours else "leaving it as it is, for it is not ours",
        )  # fmt: skip
    _mark(root, sorted({*marked(root), *ours.values()}))
    for segment in ours:
        segments.move_aside(root, segment)


def set_aside_named(root: Path, names: Sequence[str]) -> None:
    """Move the indexes of some collections aside, and write down that they are to be rebuilt. No client may be open."""
    owners = segments.collection_names(root)
    _mark(root, sorted({*marked(root), *names}))
    for segment in list(segments.segments_of(root)):
        if owners.get(segment.name) in names:
            logger.warning("%s: the index of %r cannot be used; rebuilding it", segment, owners[segment.name])
            segments.move_aside(root, segment)


def rebuild_marked(root: Path, tables: Tables, journal: Journal | None) -> None:
    """Rebuild what is written down as torn, and cross it out."""
    todo = marked(root)
    if not todo:
        return
    done = [table.name for table in tables if table.name in todo]
    width = width_of(tables, journal)
    n_lost = 0
    for table in tables:
        lost = rebuild_index(table, journal, width) if table.name in todo else []
        mark_unembedded(table, lost, journal, width)
        n_lost += len(lost)
    if n_lost:
        logger.warning("%s: %d vector(s) are lost: `repair()` embeds those texts again", root, n_lost)
    else:
        segments.drop_aside(root)
    _mark(root, [name for name in todo if name not in done])


def copy_name(name: str) -> str:
    """Return what the copy of a collection is called."""
    return name + _COPY


def begin_copies(root: Path) -> None:
    """Write down that collections are being replaced by copies."""
    _write(root / _COPYING, [])


def replace_by_copy(client: Client, name: str) -> None:
    """Put a complete copy in the place of a collection."""
    with chroma_errors(f"replacing {name}"):
        client.delete_collection(name)
        client.get_collection(copy_name(name), embedding_function=None).modify(name=name)


def finish_copies(root: Path, client: Client, owned: re.Pattern[str]) -> None:
    """End a replacement that was cut short: a copy whose original is gone was complete, any other is dropped."""
    if not (root / _COPYING).exists():
        return
    with chroma_errors(f"opening {root}"):
        there = {collection.name for collection in client.list_collections()}
        for name in filter(owned.fullmatch, {name.removesuffix(_COPY) for name in there}):
            copy = copy_name(name)
            if copy in there and name in there:
                client.delete_collection(copy)
            elif copy in there:
                client.get_collection(copy, embedding_function=None).modify(name=name)
    (root / _COPYING).unlink()


def marked(root: Path) -> list[str]:
    """Read the names of the collections that are to be rebuilt."""
    try:
        names: list[str] = json.loads((root / _MARKER).read_text())
    except FileNotFoundError:
        return []
    return names


def unmark(root: Path, names: Sequence[str]) -> None:
    """Cross collections out that are no more."""
    todo = marked(root)
    if set(todo).intersection(names):
        _mark(root, [name for name in todo if name not in names])


def _mark(root: Path, names: Sequence[str]) -> None:
    """Write down what is to be rebuilt, so that it is on disk before anything else is done."""
    marker = root / _MARKER
    if not names:
        marker.unlink(missing_ok=True)
        return
    _write(marker, names)


def _write(marker: Path, names: Sequence[str]) -> None:
    """Write a file whole, and on to the disk."""
    draft = marker.with_name(marker.name + ".draft")
    with draft.open("w") as file:
        json.dump(list(names), file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(marker)
    folder = os.open(marker.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
