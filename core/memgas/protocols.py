"""The three seams to the world: a model that embeds, a model that writes, a store that keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from memgas.types import JSON, Batch, Granularity, Head, MemoryUnit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@runtime_checkable
class Embedder(Protocol):
    """Turns text into vectors.

    Attributes
    ----------
    name
        For messages only: one model has several names through the frameworks.
    n_dims
        Width of its vectors.
    max_tokens
        How much it reads at once; None when there is no limit.
    is_thread_safe
        Whether two threads may call it at once. False unless it says so.
    """

    @property
    def name(self) -> str:
        """Name for messages."""
        ...

    @property
    def n_dims(self) -> int:
        """Width of the vectors."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """Tokens read at once, or None."""
        ...

    @property
    def is_thread_safe(self) -> bool:
        """Whether two threads may call at once."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts to keep: `(n_texts, n_dims)`, not necessarily normalised."""
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a question: `(n_dims,)`, not necessarily normalised."""
        ...

    def count_tokens(self, text: str) -> int:
        """Estimate how many of `max_tokens` the text takes."""
        ...


@runtime_checkable
class LLM(Protocol):
    """Answers a prompt.

    Attributes
    ----------
    is_thread_safe
        Whether two threads may call it at once. False unless it says so.
    """

    @property
    def is_thread_safe(self) -> bool:
        """Whether two threads may call at once."""
        ...

    def complete(self, prompt: str) -> str:
        """Answer one prompt."""
        ...


@runtime_checkable
class Store(Protocol):
    """Keeps rows. One writer a namespace at a time; readers of other namespaces are not disturbed.

    The rules that every store keeps are the tests of `memgas.testing.StoreContract`.

    Attributes
    ----------
    is_exclusive
        Nobody else can write to it while it is open here, so that what was read stays true. Else readers look at
        `head` first.
    """

    @property
    def is_exclusive(self) -> bool:
        """Whether nobody else can write."""
        ...

    def put(self, batch: Batch) -> None:
        """Write a batch, all or nothing to any reader.

        Units go first (turn, summary, keyword, session), then the records with the head, in one atomic call, which
        makes the new rows visible and the `obsolete` ones invisible; those are deleted last. Writing the same batch
        again changes nothing. A batch without units or without records is fine.
        """
        ...

    def head(self, namespace: str) -> Head | None:
        """Return the namespace's head; None when it was never written, or was deleted. The cheap look for a change."""
        ...

    def load(self, namespace: str, since: int | None = None) -> Iterator[Batch]:
        """Read what the records name, a page at a time, sessions in the order of their sequence.

        Parameters
        ----------
        namespace
            Whose rows.
        since
            A revision: only sessions whose record changed after it, deleted ones (`is_deleted`) among them. None:
            every session that is not deleted, and tombstones whose metadata keeps something.

        Yields
        ------
        Batch
            Whole sessions: all visible units of each record in it, ordered by sequence, granularity, position.
            Units the records do not name are never seen; `obsolete` is empty. Nothing at all for an unknown namespace.
        """
        ...

    def fetch(self, namespace: str, ids: Sequence[str]) -> list[MemoryUnit]:
        """Read units with their texts, in the order of `ids`; unknown ids and other namespaces' are left out."""
        ...

    def delete(self, namespace: str) -> None:
        """Delete the namespace whole: head, records, units, vectors. Unknown: nothing happens."""
        ...

    def namespaces(self) -> list[str]:
        """List the namespaces that have a head, sorted; without those whose sessions were all deleted."""
        ...

    def meta(self) -> dict[str, JSON]:
        """Read what was set about the store as a whole."""
        ...

    def set_meta(self, meta: dict[str, JSON]) -> None:
        """Replace what is set about the store as a whole."""
        ...

    def erase(self) -> None:
        """Remove the bytes of everything deleted so far from wherever this store keeps bytes. Takes seconds."""
        ...

    def check(self) -> list[str]:
        """List what is wrong, in words: rows no record names, records whose rows are missing, vectors lost."""
        ...

    def repair(self) -> list[str]:
        """Mend what `check` finds as far as the store can; list what was done. Acknowledged rows are never dropped."""
        ...

    def close(self) -> None:
        """Release files and locks. Twice is fine; any other call afterwards raises `ClosedError`."""
        ...


@runtime_checkable
class FetchesNamed(Protocol):
    """What a store may offer beside `Store`: it need not look everywhere for a unit whose granularity is known."""

    def fetch_named(self, namespace: str, named: Mapping[Granularity, Sequence[str]]) -> list[MemoryUnit]:
        """Read units as `fetch` does, those of each granularity by id, in any order."""
        ...
