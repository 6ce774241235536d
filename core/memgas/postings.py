"""The two sides of an inverted index, packed and growing: documents by key, and the terms of each document.

Neither is locked: the owner is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

IndexArray = NDArray[np.intp]
_T = TypeVar("_T", bound=np.generic)

MAX_FREQUENCY = (1 << 16) - 1
_MIN_TAIL = 32_768
_TAIL_SHARE = 0.02


class Postings:
    """Documents, with a frequency each, by key.

    Most of them stand in two long arrays, sorted by key and document, as in a CSR matrix (6 bytes a posting, where an array
    a key takes 135 before it holds anything). Documents added one by one wait in dictionaries, those added a page at a
    time in arrays, until it pays to sort them in, or they are asked for.
    """

    def __init__(self) -> None:
        self._start: NDArray[np.int64] = np.zeros(1, np.int64)
        self._docs: NDArray[np.int32] = np.zeros(0, np.int32)
        self._frequency: NDArray[np.uint16] = np.zeros(0, np.uint16)
        self._is_sorted_in: NDArray[np.bool_] = np.zeros(
            0, np.bool_
        )  # of each document: what the arrays say of it holds
        self._has_stale = False
        self._tail: dict[int, dict[int, int]] = {}
        self._n_tail = 0
        self._pages: list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint16]]] = []

    def add(self, doc: int, keys: Iterable[int], frequencies: Iterable[int]) -> None:
        """Add a document that is not there."""
        for key, frequency in zip(keys, frequencies, strict=True):
            self._tail.setdefault(key, {})[doc] = frequency
            self._n_tail += 1
        if self._n_tail > max(_MIN_TAIL, _TAIL_SHARE * len(self._docs)):
            self._sort_in_tail()

    def add_page(self, keys: NDArray[np.int32], docs: NDArray[np.int32], frequencies: NDArray[np.uint16]) -> None:
        """Add many documents that are not there: `(n_postings,)` each."""
        self._pages.append((keys, docs, frequencies))

    def drop(self, doc: int, keys: Iterable[int]) -> None:
        """Take out a document that is there, under all its keys."""
        self.settle()
        if doc < len(self._is_sorted_in) and self._is_sorted_in[doc]:
            self._is_sorted_in[doc] = False
            self._has_stale = True
            return
        for key in keys:
            docs = self._tail[key]
            del docs[doc]
            self._n_tail -= 1
            if not docs:
                del self._tail[key]

    def of(self, key: int) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
        """Return the documents of a key, in no order, and its frequency in each, `(n,)` both. Read only."""
        self.settle()
        docs, frequency = self._docs[:0], self._frequency[:0]
        if key < len(self._start) - 1:
            run = slice(self._start[key], self._start[key + 1])
            docs, frequency = self._docs[run], self._frequency[run]
            if self._has_stale:
                holds = self._is_sorted_in[docs]
                docs, frequency = docs[holds], frequency[holds]
        if (waiting := self._tail.get(key)) is not None:
            docs = np.concatenate([docs, np.fromiter(waiting, np.int32, len(waiting))])
            frequency = np.concatenate([frequency, np.fromiter(waiting.values(), np.uint16, len(waiting))])
        return docs, frequency

    def settle(self) -> None:
        """Sort in the pages."""
        if self._pages:
            pages, self._pages = self._pages, []
            keys, docs, frequency = zip(*pages, strict=True)
            self._sort_in(np.concatenate(keys).astype(np.int64), np.concatenate(docs), np.concatenate(frequency))

    def _sort_in_tail(self) -> None:
        tail, self._tail, n, self._n_tail = self._tail, {}, self._n_tail, 0
        keys = np.repeat(np.fromiter(tail, np.int64, len(tail)), [len(docs) for docs in tail.values()])
        docs = np.fromiter((doc for docs in tail.values() for doc in docs), np.int32, n)
        frequency = np.fromiter((value for docs in tail.values() for value in docs.values()), np.uint16, n)
        self.settle()
        self._sort_in(keys, docs, frequency)

    def _sort_in(self, keys: NDArray[np.int64], docs: NDArray[np.int32], frequency: NDArray[np.uint16]) -> None:
        """Merge postings into the sorted ones, and leave out those that do not hold any more."""
        old_keys = np.repeat(np.arange(len(self._start) - 1), np.diff(self._start))
        old_docs, old_frequency = self._docs, self._frequency
        if self._has_stale:
            holds = self._is_sorted_in[old_docs]
            old_keys, old_docs, old_frequency = old_keys[holds], old_docs[holds], old_frequency[holds]
            self._has_stale = False
        place = keys << 32 | docs
        order = np.argsort(place)
        # Two sorted runs, which a stable sort merges.
        whole = np.argsort(np.concatenate([old_keys << 32 | old_docs, place[order]]), kind="stable")
        counts = np.bincount(old_keys, minlength=int(keys.max(initial=-1)) + 1)
        counts += np.bincount(keys, minlength=len(counts))
        self._start = np.concatenate([[0], np.cumsum(counts)])
        self._docs = np.concatenate([old_docs, docs[order]])[whole]
        self._frequency = np.concatenate([old_frequency, frequency[order]])[whole]
        self._is_sorted_in = grown(self._is_sorted_in, int(docs.max(initial=-1)) + 1)
        self._is_sorted_in[docs] = True


class Forward:
    """The distinct terms of each document, as numbers, so that it can be removed and looked into."""

    def __init__(self) -> None:
        self._terms: NDArray[np.int32] = np.zeros(0, np.int32)
        self._n_terms = 0
        self._n_held = 0
        self._start: NDArray[np.int64] = np.zeros(0, np.int64)
        self._count: NDArray[np.int32] = np.zeros(0, np.int32)

    def put(self, docs: IndexArray, counts: NDArray[np.integer], terms: NDArray[np.int32]) -> None:
        """Add documents that are not there: how many terms each has, and the terms of all, one document after another."""
        n_docs, end = int(docs.max(initial=-1)) + 1, self._n_terms + len(terms)
        self._start, self._count = grown(self._start, n_docs), grown(self._count, n_docs)
        self._terms = grown(self._terms, end)
        self._terms[self._n_terms : end] = terms
        self._start[docs] = self._n_terms + np.cumsum(counts) - counts
        self._count[docs] = counts
        self._n_terms = end
        self._n_held += len(terms)

    def of(self, docs: IndexArray) -> tuple[IndexArray, NDArray[np.int32]]:
        """Return the terms of some documents, and the entry of `docs` that each belongs to; an unknown one has none."""
        known = np.flatnonzero((docs >= 0) & (docs < len(self._count)))
        counts = self._count[docs[known]]
        at = np.repeat(self._start[docs[known]] - np.cumsum(counts) + counts, counts)
        at += np.arange(len(at))
        return np.repeat(known, counts), self._terms[at]

    def drop(self, doc: int) -> NDArray[np.int32]:
        """Forget a document; return what its terms were."""
        terms = self._terms[self._start[doc] : self._start[doc] + self._count[doc]].copy()
        self._count[doc] = 0
        self._n_held -= len(terms)
        if self._n_terms > 2 * max(self._n_held, _MIN_TAIL):
            docs = np.flatnonzero(self._count)
            counts, (_, held) = self._count[docs], self.of(docs)
            self._n_terms = self._n_held = 0
            self._terms = self._terms[:0]
            self.put(docs, counts, held)
        return terms


def grown(array: NDArray[_T], n: int) -> NDArray[_T]:
    """Return an array with room for `n` rows: itself, or a copy at least an eighth longer, its new end 0."""
    if n <= len(array):
        return array
    longer = np.zeros((max(n, 16, len(array) * 9 // 8), *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
