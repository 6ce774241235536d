"""BM25 for the baselines, apart from the product's own: a baseline must not move when the product does.

The variant a careful user would take: English stems, stop words out, Lucene's formula, bm25s's defaults; character
bigrams where a script has no spaces.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

K1 = 1.5
B = 0.75

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]{{2,}}")
_UNSPACED_FIRST = re.compile(f"[{_UNSPACED}]")
_STOP_WORDS = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of", "on",
    "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
})  # fmt: skip
"""Lucene's English stop words."""


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 (snowballstemmer's name)


def terms_of(text: str) -> list[str]:
    """Cut text into terms: lower case, no stop words, English stems (Snowball); unspaced scripts into character bigrams."""
    terms: list[str] = []
    for token in _TOKEN.findall(text.lower()):
        if _UNSPACED_FIRST.match(token):
            terms.extend([token] if len(token) == 1 else [token[i : i + 2] for i in range(len(token) - 1)])
        elif token not in _STOP_WORDS:
            terms.append(_stem(token))
    return terms


@cache
def _stem(word: str) -> str:
    return _stemmer().stemWord(word)


@cache
def _stemmer() -> _Stemmer:
    import snowballstemmer

    stemmer: _Stemmer = snowballstemmer.stemmer("english")
    return stemmer


class BM25:
    """Scores of a fixed set of documents.

    Parameters
    ----------
    documents
        The terms of each.

    References
    ----------
    .. [1] Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009; Lucene's idf,
       ln(1 + (N - n + 1/2) / (n + 1/2)), and no factor k1 + 1.
    """

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        self.n_documents = len(documents)
        postings: dict[str, tuple[list[int], list[int]]] = {}
        for number, terms in enumerate(documents):
            for term, count in Counter(terms).items():
                where, counts = postings.setdefault(term, ([], []))
                where.append(number)
                counts.append(count)
        lengths = np.array([len(terms) for terms in documents], dtype=np.float64)
        norms = K1 * (1.0 - B + B * lengths / max(lengths.mean() if len(lengths) else 0.0, 1e-12))
        self._scores: dict[str, tuple[NDArray[np.intp], FloatArray]] = {}
        for term, (where, counts) in postings.items():
            at, tf = np.array(where, dtype=np.intp), np.array(counts, dtype=np.float64)
            idf = np.log1p((self.n_documents - len(at) + 0.5) / (len(at) + 0.5))
            self._scores[term] = at, idf * tf / (tf + norms[at])

    def scores(self, query: Sequence[str]) -> FloatArray:
        """Score every document: `(n_documents,)`. A term that the query has twice counts twice."""
        total = np.zeros(self.n_documents)
        for term in query:
            if term in self._scores:
                at, scores = self._scores[term]
                total[at] += scores
        return total
