"""BM25 over units, grown in place: text -> terms, and an inverted index that adds and removes without a rebuild."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from memgas.errors import InvalidInputError
from memgas.postings import MAX_FREQUENCY, Forward, Postings, grown

if TYPE_CHECKING:
    from numpy.typing import NDArray

STOP_WORDS = frozenset(
    """a about after all also am an and any are as at be because been before being but by can could did do does doing
    down during each few for from further had has have having he her here hers him his how i if in into is it its itself
    just me more most my no nor not of off on once only or other our ours out over own same she should so some such than
    that the their theirs them then there these they this those through to too under until up very was we were what when
    where which while who whom why will with would you your yours
    aren't can't couldn't didn't doesn't don't hadn't hasn't haven't he'd he'll i'd i'll i'm i've isn't it'd it'll let's
    shan't she'd she'll shouldn't they'd they'll they're they've wasn't we'd we'll we're we've weren't won't wouldn't
    you'd you'll you're you've cannot""".split()  # noqa: SIM905 (a list of 150 strings reads worse)
)
"""English function words, and nothing that could be a topic."""

_CJK_STOP = frozenset(
    "的了是我你您他她它们們在吗嗎呢吧啊呀和与與也都就不有很这這那哪什么麼个個着著过過把被のはがをにへともでやかたてだすまし"
)

IDEOGRAPHS = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
"""Character ranges of Chinese characters, for use inside a regular expression's brackets."""

CJK = (
    IDEOGRAPHS
    + "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff\u1100-\u11ff\uac00-\ud7af"
)
"""... and of kana, bopomofo and hangul."""

_UNSPACED = "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer: words without spaces between them
_GRAM_RUN = re.compile(f"[{CJK}]+|[{_UNSPACED}]+")
_DROPPED = re.compile(
    "[\u00ad\u0640\u064b-\u0652\u200c-\u200f\u2060\ufeff]"
)  # soft hyphen, joiners, Arabic vowel signs
_LATIN_MARKS = re.compile("(?<=[a-z\u00e0-\u03ff])[\u0300-\u036f]+")
_FOREIGN_DIGIT = re.compile("(?![0-9])\\d")
_APOSTROPHE = re.compile("[\u2018\u2019\u02bc\uff07`\u00b4]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_OUTER = re.compile(r"[/\\@?=&#%;,|~$!*()\[\]{}<>\"]+")
_INNER = re.compile(r"[-.:+_]+")
_MAX_TERM = 200
_MAX_CACHED = 40


def tokenize(text: str) -> list[str]:
    """Split text into the terms that BM25 counts.

    NFKC, case-folded, Latin and Greek without accents. English stop words and possessives go, words are stemmed (Snowball
    English); other scripts stay as they are written. What is written without spaces becomes characters and pairs of
    neighbours (Chinese, Japanese, Korean) or pairs alone (Thai, Lao, Burmese, Khmer). Identifiers, addresses, times and
    versions come whole and in parts: `KX-7714B` gives `kx-7714b`, `kx`, `7714b`.

    Returns
    -------
    list of str
        Terms, repeated as often as they occur; the order says nothing. A term longer than 200 characters is cut.
    """
    terms: list[str] = []
    if text.isascii():
        text, pattern = text.lower(), _ASCII_WORD
    else:
        text, pattern = _fold(text), word_pattern()
        text = _GRAM_RUN.sub(lambda run: _grams(run.group(), terms), text)
    if "," in text:
        text = _THOUSANDS.sub("", text)
    words = pattern.findall(text)
    expand = _expand if max(map(len, words), default=0) <= _MAX_CACHED else _expand_any
    terms.extend(chain.from_iterable(map(expand, words)))
    return terms


def tokenize_all(texts: Iterable[str]) -> list[list[str]]:
    """Split each text as `tokenize` does; a line that comes again, as turns do in their session's text, is split once."""
    known: dict[str, list[str]] = {}
    found = []
    for text in texts:
        terms: list[str] = []
        for line in text.split("\n"):  # no term spans two lines
            if (of_line := known.get(line)) is None:
                of_line = known[line] = tokenize(line)
            terms += of_line
        found.append(terms)
    return found


def _fold(text: str) -> str:
    """Bring what readers take for the same letters to the same code points."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = _APOSTROPHE.sub("'", _DROPPED.sub("", text))
    text = _LATIN_MARKS.sub("", unicodedata.normalize("NFKD", text))
    text = _FOREIGN_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit.group())), text)
    return unicodedata.normalize("NFKC", text)


def _grams(run: str, terms: list[str]) -> str:
    """Add a run's characters and pairs to the terms; return what stands in its place."""
    pairs = [run[i : i + 2] for i in range(len(run) - 1)]
    if re.match(f"[{_UNSPACED}]", run):
        terms.extend(pairs or [run])
        return " "
    terms.extend(char for char in run if char not in _CJK_STOP)
    terms.extend(pair for pair in pairs if not (pair[0] in _CJK_STOP and pair[1] in _CJK_STOP))
    return " "


@cache
def word_pattern() -> re.Pattern[str]:
    r"""Return the pattern of a word or identifier; Python's `\w` lacks the vowel signs of Indic and other scripts."""
    spans = ((0x300, 0x1E00), (0x20D0, 0x2100), (0xA600, 0xAC00), (0x11000, 0x12000))
    marks = (chr(c) for span in spans for c in range(*span) if unicodedata.category(chr(c)).startswith("M"))
    return re.compile(_word(f"[\\w{''.join(marks)}]"))


def _word(letter: str) -> str:
    url = r"(?:https?://|www\.)[^\s<>\"'`|^{}]+"
    return f"{url}|{letter}+(?:[-.@:/\\\\+'&]{letter}+)*(?:\\+\\+|#)?"


_ASCII_WORD = re.compile(_word("[a-z0-9_]"))  # finds in ASCII what `word_pattern` does, in half the time


def _expand_any(word: str) -> tuple[str, ...]:
    return _expand(word) if len(word) <= _MAX_CACHED else _expand.__wrapped__(word)


@lru_cache(maxsize=65_536)
def _expand(word: str) -> tuple[str, ...]:
    """Return the terms of one match of `_words`: the whole and its parts, or the stem of a plain word."""
    word = (
        re.sub(r"^(?:https?://)?(?:www\.)?", "", word).rstrip(".,;:!?)]}/&=") if "/" in word or "www." in word else word
    )
    outer = [part for part in _OUTER.split(word) if part.strip("-.:+_'")]
    if len(outer) > 1 or (outer and outer[0] != word):
        return (word[:_MAX_TERM], *(term for part in outer for term in _compound(part)))
    return _compound(word)


def _compound(word: str) -> tuple[str, ...]:
    """Return an identifier whole and in parts; a plain word's stem."""
    parts = [part for part in _INNER.split(word) if part]
    if len(parts) < 2 and (not parts or parts[0] == word):
        return tuple(_plain(word))
    return (word[:_MAX_TERM], *(term for part in parts for term in _plain(part)))


def _plain(word: str) -> list[str]:
    """Return a word's stem, none for a stop word; `o'brien` gives `obrien` and `brien`."""
    if word.endswith("'s"):
        word = word[:-2]
    if not word.strip("_") or word in STOP_WORDS:
        return []
    if "'" not in word:
        return [_stem(word)[:_MAX_TERM]]
    parts = [part for part in word.split("'") if len(part) > 1]
    return [term[:_MAX_TERM] for term in (word.replace("'", ""), *map(_stem, parts)) if term not in STOP_WORDS]


_stemming = threading.Lock()  # a stemmer keeps the word it is at work on


def _stem(word: str) -> str:
    if not word.isascii() or not word.isalpha() or len(word) > 40:
        return word
    with _stemming:
        return str(_stemmer().stemWord(word))


@cache
def _stemmer():  # type: ignore[no-untyped-def]  # noqa: ANN202 (the package is untyped)
    import snowballstemmer

    return snowballstemmer.stemmer("english")


_PRIOR_DOCS = 10
_MIN_PAGE = 4_096  # terms: below that, adding one by one is as fast


class _Vocabulary(dict[str, int]):
    """A number for each term; a new term gets the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self.words)
        self.words.append(term)
        return number

    def forget(self, number: int) -> None:
        """Forget a term; its number is not used again."""
        del self[self.words[number]]
        self.words[number] = ""


class LexicalIndex:
    """BM25 in one index with several groups; adds, replaces and removes documents in place.

    A document is scored with the statistics of its own group. Not thread-safe: its owner locks.

    Parameters
    ----------
    n_groups
        Groups are `0 .. n_groups - 1`; here, the granularities.
    k1
        How soon repeated terms saturate.
    b
        How much long documents are held against themselves, in [0, 1].

    References
    ----------
    .. [1] S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009; in Lucene's variant:
       `idf · tf / (tf + k1 (1 - b + b · length / average))`, `idf = log(1 + (n - df + .5) / (df + .5))`.
    """

    def __init__(self, *, n_groups: int, k1: float, b: float) -> None:
        self._k1, self._b = k1, b
        self._n_groups = n_groups
        self.n_docs = 0
        self._vocabulary = _Vocabulary()
        self._postings = Postings()  # by  term * n_groups + group
        self._forward = Forward()
        self._df = np.zeros(0, dtype=np.int32)  # of each key of the postings
        self._n_members = np.zeros(n_groups, dtype=np.int64)
        self._n_terms = np.zeros(n_groups, dtype=np.int64)
        self._group = np.zeros(0, dtype=np.int8)  # of each document, counted from 1; 0: not there
        self._lengths = np.zeros(0, dtype=np.int32)

    @property
    def terms(self) -> list[str]:
        """All terms that a document holds."""
        return list(self._vocabulary)

    def add(self, doc: int, group: int, terms: Sequence[str]) -> None:
        """Add a document; one that is there already is replaced.

        Parameters
        ----------
        doc
            Its number, from 0 and dense: memory grows with the highest.
        group
            Whose statistics it counts in.
        terms
            From `tokenize`; none is fine.

        Raises
        ------
        InvalidInputError
            The document is negative, or there is no such group.
        """
        self._check(doc, group)
        counts = Counter(terms)
        numbers = [
            self._vocabulary[term] for term in counts
        ]  # before the removal, so that a term that stays is not lost
        self._reserve(doc + 1)
        keys = [number * self._n_groups + group for number in numbers]
        self._df[keys] += 1
        self.remove(doc)
        self._forward.put(np.array([doc]), np.array([len(numbers)]), np.array(numbers, np.int32))
        self._postings.add(doc, keys, (min(tf, MAX_FREQUENCY) for tf in counts.values()))
        self._count_in(np.array([doc]), np.array([group]), np.array([len(terms)]))

    def add_many(self, docs: Sequence[int], groups: Sequence[int], terms: Sequence[Sequence[str]]) -> None:
        """Add distinct documents: what `add` does with each, and faster when they are many."""
        lengths = np.array([len(of_doc) for of_doc in terms], np.intp)
        if lengths.sum() < _MIN_PAGE:
            for doc, group, of_doc in zip(docs, groups, terms, strict=True):
                self.add(doc, group, of_doc)
            return
        for doc, group in zip(docs, groups, strict=True):
            self._check(doc, group)
            self.remove(doc)
        numbers = np.fromiter(map(self._vocabulary.__getitem__, chain.from_iterable(terms)), np.int64, lengths.sum())
        places, frequency = np.unique(np.repeat(np.arange(len(docs)), lengths) << 32 | numbers, return_counts=True)
        owner, number = places >> 32, places & 0xFFFF_FFFF
        of_docs, of_groups = np.array(docs, np.intp), np.array(groups, np.intp)
        self._reserve(int(of_docs.max()) + 1)
        keys = number * self._n_groups + of_groups[owner]
        self._df[: int(keys.max()) + 1] += np.bincount(keys).astype(np.int32)
        self._forward.put(of_docs, np.bincount(owner, minlength=len(docs)), number.astype(np.int32))
        self._postings.add_page(
            keys.astype(np.int32),
            of_docs[owner].astype(np.int32),
            np.minimum(frequency, MAX_FREQUENCY).astype(np.uint16),
        )
        self._count_in(of_docs, of_groups, lengths)

    def settle(self) -> None:
        """Sort in what was added: the next scores would wait for it."""
        self._postings.settle()

    def remove(self, doc: int) -> None:
        """Remove a document; an unknown one is ignored."""
        if not 0 <= doc < self.n_docs or not self._group[doc]:
            return
        group = int(self._group[doc]) - 1
        numbers = self._forward.drop(doc)
        keys = numbers.astype(np.int64) * self._n_groups + group
        self._df[keys] -= 1
        self._postings.drop(doc, keys.tolist())
        for number in numbers[~self._by_term()[numbers].any(axis=1)].tolist():
            self._vocabulary.forget(number)
        self._group[doc] = 0
        self._n_members[group] -= 1
        self._n_terms[group] -= int(self._lengths[doc])
        self._lengths[doc] = 0

    def idf(self, group: int, terms: Sequence[str]) -> NDArray[np.float64]:
        """Return how rare each term is in a group: `(n_terms,)`, above 0, `log 2` for all in an empty group."""
        n = int(self._n_members[group])
        numbers = (self._vocabulary.get(term) for term in terms)
        df = np.array(
            [0 if number is None else self._df[number * self._n_groups + group] for number in numbers], np.float64
        )
        return np.log1p((n - df + 0.5) / (df + 0.5))

    def scores(self, terms: Sequence[str], *, k1: float | None = None, b: float | None = None) -> NDArray[np.float32]:
        """Score every document.

        Parameters
        ----------
        terms
            Of the query, from `tokenize`; a repeated term counts as often.
        k1, b
            In place of the index's own, this once.

        Returns
        -------
        (n_docs,) float32
            At least 0; exactly 0 for documents without any of the terms, unknown or removed ones.
        """
        k1, b = self._k1 if k1 is None else k1, self._b if b is None else b
        scores = np.zeros(self.n_docs, dtype=np.float32)
        counts = Counter(terms)
        known = {term: number for term in counts if (number := self._vocabulary.get(term)) is not None}
        for group in range(self._n_groups):
            keys = {term: key for term, number in known.items() if self._df[key := number * self._n_groups + group]}
            if not keys:
                continue
            average = self._n_terms[group] / self._n_members[group]
            per_term = np.float32(k1 * b / average)
            floor = np.float32(k1 * (1 - b))
            for (term, key), idf in zip(keys.items(), self.idf(group, list(keys)), strict=True):
                docs, frequency = self._postings.of(key)
                tf = frequency.astype(np.float32)
                scores[docs] += np.float32(idf * counts[term]) * tf / (tf + (floor + per_term * self._lengths[docs]))
        return scores

    def coverage(self, terms: Sequence[str], docs: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return which share of the query's terms each document holds: an absolute number, also in a small store.

        `Σ_(t in query and document) w_t / Σ_(t in query) w_t` over the distinct terms, with
        `w_t = log(1 + (n + 10) / (df + 1))`, n and df counted over all groups. The ten imagined documents keep weights nearly
        equal while the store is too small to tell common words from rare ones (one document: a term in it weighs
        1.9, one in none 2.5), and fade as it grows (100,000 documents: 11.5 for an unknown word, 1.1 for one in every
        second). A term nobody ever said counts in full against every document: the query asks for what is not there.

        Parameters
        ----------
        terms
            Of the query.
        docs : (n_asked,)
            Documents.

        Returns
        -------
        (n_asked,) float32
            In [0, 1]; 0 for unknown or removed documents and for a query without terms.
        """
        docs = np.asarray(docs, dtype=np.intp)
        n = int(self._n_members.sum())
        owner, numbers = self._forward.of(docs)
        held = np.zeros(len(docs), dtype=np.float64)
        total = 0.0
        for term in dict.fromkeys(terms):
            number = self._vocabulary.get(term)
            df = 0 if number is None else int(self._by_term()[number].sum())
            weight = np.log1p((n + _PRIOR_DOCS) / (df + 1))
            total += weight
            if number is not None:
                held[owner[numbers == number]] += weight
        shares: NDArray[np.float32] = np.minimum(held / (total or 1.0), 1.0).astype(np.float32)
        return shares

    def _by_term(self) -> NDArray[np.int32]:
        """Return in how many documents of each group each term is, `(n_terms, n_groups)`."""
        return self._df.reshape(-1, self._n_groups)

    def _check(self, doc: int, group: int) -> None:
        if doc < 0 or not 0 <= group < self._n_groups:
            raise InvalidInputError(
                f"expected a document from 0 and a group in 0..{self._n_groups - 1}; got {doc} and {group}"
            )

    def _count_in(self, docs: NDArray[np.intp], groups: NDArray[np.intp], lengths: NDArray[np.intp]) -> None:
        """Note whose statistics documents count in, and how long they are."""
        self._group[docs] = groups + 1
        self._lengths[docs] = lengths
        self._n_members += np.bincount(groups, minlength=self._n_groups)
        self._n_terms += np.bincount(groups, lengths, self._n_groups).astype(np.int64)

    def _reserve(self, n_docs: int) -> None:
        """Make room for documents below `n_docs`, and for the terms there are."""
        self.n_docs = max(self.n_docs, n_docs)
        self._group, self._lengths = grown(self._group, n_docs), grown(self._lengths, n_docs)
        n_keys = len(self._vocabulary.words) * self._n_groups
        if n_keys > len(self._df):
            more = n_keys - len(self._df) + n_keys // 8 // self._n_groups * self._n_groups
            self._df = np.concatenate([self._df, np.zeros(more, np.int32)])
