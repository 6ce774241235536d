"""A session's summary and keywords without a language model: its own sentences, its own words."""

from __future__ import annotations

import logging
import re
import tempfile
import threading
import unicodedata
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from memgas.lexical import CJK, IDEOGRAPHS, tokenize, word_pattern

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memgas.types import Turn

Idf = Callable[[Sequence[str]], "NDArray[np.float64]"]
"""Terms to how rare they are, `(n_terms,)`."""

_FILLERS = frozenset(
    """absolutely actually ah amazing anyway awesome awww basically best bit bye check cool course day days definitely ever
    exactly excited fantastic feel feeling feels forward fun get gets getting glad go goes going gonna good goodbye got great
    guess guys haha hahaha happy hear heard hello help helps hey hi hmm hope hopefully i'd im ive interesting keep kind know
    later lately let like lol long look looking looks lot lots love loved lovely make makes making maybe mean means might
    must need new nice nope oh okay ok one ones please pretty probably quite really right said say says see seem seems share
    something sorry sound sounds stuff super sure take takes taking talk tell thank thanks thing things think thinking
    thought today tomorrow tonight totally true try trying two um use used user using wanna want wanted wants way week weekend
    well whoa wonder wonderful wow yay yeah year years yep yes yesterday yet
    even still much many always never last first next back since time times come coming came went give gave work working
    start started people someone everyone anything everything nothing assistant ai human bot""".split()  # noqa: SIM905
)
_FILLERS_CJK = frozenset(
    """今天 明天 昨天 现在 這個 这个 那个 那個 什么 什麼 怎么 怎麼 我们 我們 你们 你們 他们 他們 自己 一个 一個 一下 一点 没有 沒有 可以 觉得 覺得
    知道 因为 因為 所以 但是 就是 不是 还是 還是 如果 这样 這樣 那样 这里 那里 时候 時候 已经 已經 可能 应该 應該 真的 非常 特别 谢谢 謝謝 好的 哈哈 哈哈哈
    不错 一起 然后 或者 比较 有点 喜欢 感觉 需要 想要""".split()  # noqa: SIM905
)
_BOUNDARY = re.compile("[.!?]+[\"'”’)\\]]*(?=\\s|$)|[。！？；…]+[」』”’）]*|\\n+")
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|jr|sr|no|[A-Z])\.$", re.IGNORECASE)
_MAX_SENTENCE = 300
_MAX_SENTENCES = 2_000
_RELEVANCE = 0.7  # against novelty, in maximal marginal relevance
_NEAR_DUPLICATE = 0.95


def split_sentences(text: str) -> list[str]:
    """Split text after `. ! ?` and their Chinese and Japanese kin, and at line breaks."""
    sentences, start = [], 0
    for boundary in _BOUNDARY.finditer(text):
        if boundary.group() == "." and _ABBREVIATION.search(text[max(0, boundary.end() - 8) : boundary.end()]):
            continue
        sentences.append(text[start : boundary.end()].strip())
        start = boundary.end()
    return [sentence for sentence in (*sentences, text[start:].strip()) if sentence]


def extract_summary(turns: Sequence[Turn], idf: Idf, *, n_sentences: int) -> str:
    """Return the most central sentences of a session, in the order they were said.

    Central is the cosine of a sentence's tf-idf vector with the sum of all of them, times `n / (n + 2)` for its n terms, so
    that "Yes!" is not; each next one is chosen by maximal marginal relevance.

    Parameters
    ----------
    turns
        Deleted ones are passed over.
    idf
        How rare terms are.
    n_sentences
        Most sentences.

    Returns
    -------
    str
        Lines `speaker: sentence`, those of one turn on one line; a sentence over 300 characters is cut with "…". A session
        without words (emoji) is its own summary. Empty only without turns.

    References
    ----------
    .. [1] J. Carbonell, J. Goldstein, "The Use of MMR, Diversity-Based Reranking", SIGIR 1998.
    .. [2] D. Radev et al., "Centroid-Based Summarization of Multiple Documents", 2004.
    """
    said = [(n, sentence) for n, turn in enumerate(turns) for sentence in split_sentences(turn.text)][:_MAX_SENTENCES]
    ignored = _filler_terms() | {term for turn in turns for term in _names(turn.speaker)}
    terms = [Counter(term for term in tokenize(sentence) if term not in ignored) for _, sentence in said]
    chosen = sorted(_most_central(terms, idf, n_sentences)) or range(min(n_sentences, len(said)))
    lines: defaultdict[int, list[str]] = defaultdict(list)
    for row in chosen:
        lines[said[row][0]].append(_shortened(said[row][1]))
    return "\n".join(f"{turns[n].speaker}: {' '.join(sentences)}" for n, sentences in lines.items())


def _shortened(sentence: str) -> str:
    if len(sentence) <= _MAX_SENTENCE:
        return sentence
    head = sentence[: _MAX_SENTENCE - 1]
    return (head.rsplit(" ", 1)[0] if " " in head[_MAX_SENTENCE // 2 :] else head) + "…"


def _most_central(counts: Sequence[Counter[str]], idf: Idf, n_sentences: int) -> list[int]:
    """Choose rows by centroid and marginal relevance; none without any term."""
    columns = {term: column for column, term in enumerate(dict.fromkeys(term for count in counts for term in count))}
    if not columns:
        return []
    rows = np.repeat(np.arange(len(counts)), [len(count) for count in counts])
    cols = np.array([columns[term] for count in counts for term in count])
    tf = np.array([n for count in counts for n in count.values()], dtype=np.float64)
    values = np.sqrt(tf) * idf(list(columns))[cols]
    norms = np.sqrt(_sums(rows, values**2, len(counts)))
    values /= np.where(norms > 0, norms, 1.0)[rows]
    n_terms = np.array([count.total() for count in counts])

    def cosines(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        return _sums(rows, values * vector[cols], len(counts))

    centroid = _sums(cols, values, len(columns))
    relevance = cosines(centroid / np.linalg.norm(centroid)) * n_terms / (n_terms + 2)
    redundancy = np.zeros(len(counts))
    open_rows = n_terms > 0
    chosen: list[int] = []
    while len(chosen) < n_sentences and open_rows.any():
        gain = np.round(_RELEVANCE * relevance - (1 - _RELEVANCE) * redundancy, 9)
        best = int(np.argmax(np.where(open_rows, gain, -np.inf)))
        chosen.append(best)
        mine = rows == best
        redundancy = np.maximum(redundancy, cosines(_sums(cols[mine], values[mine], len(columns))))
        open_rows[best] = False
        open_rows &= redundancy < _NEAR_DUPLICATE  # the same thing said twice
    return chosen


def _sums(slots: NDArray[np.intp], values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Add up the values that belong to each of n slots: `(n,)`."""
    sums = np.zeros(n)
    np.add.at(sums, slots, values)
    return sums


@dataclass(slots=True)
class _Candidate:
    """A word or phrase: its terms in the index, and the ways it was written."""

    terms: tuple[str, ...]
    surfaces: Counter[str] = field(default_factory=Counter)


def keyword_candidates(turns: Sequence[Turn], idf: Idf, *, n: int) -> list[str]:
    """Return the words and two-word phrases that stand out in a session, best first, as they were written.

    `(1 + log tf) · mean idf` of its terms, a tenth more for a phrase. Speakers' names, function words, fillers and numbers
    are left out. Chinese is cut into words by jieba where it is installed (the extra `zh`), else by repeated strings of two to
    four characters; of Japanese, runs of ideographs and of katakana count as words, of Korean what stands between spaces.

    Parameters
    ----------
    turns
        Deleted ones are passed over.
    idf
        How rare terms are.
    n
        Most candidates.
    """
    names = {name for turn in turns for name in _names(turn.speaker)}
    found: dict[str, _Candidate] = {}
    spoken = [turn.text for turn in turns]
    for surface, key in (*(pair for text in spoken for pair in _words(text)), *_cjk_words(spoken, names)):
        if not (set(key.split()) | {key}) & names:
            found.setdefault(key, _Candidate(tuple(tokenize(surface)))).surfaces[surface] += 1
    candidates = [(key, candidate) for key, candidate in found.items() if candidate.terms]
    terms = list(dict.fromkeys(term for _, candidate in candidates for term in candidate.terms))
    rarity = dict(zip(terms, idf(terms).tolist(), strict=True)) if terms else {}
    scores = {
        key: (1 + np.log(candidate.surfaces.total())) * (1.1 if " " in key else 1.0)
        * sum(rarity[term] for term in candidate.terms) / len(candidate.terms)
        for key, candidate in candidates
    }  # fmt: skip
    best = sorted(scores, key=lambda key: -round(scores[key], 9))[:n]
    return [found[key].surfaces.most_common(1)[0][0] for key in best]


@cache
def _filler_terms() -> frozenset[str]:
    return frozenset(term for filler in _FILLERS for term in tokenize(filler))


def _names(speaker: str) -> set[str]:
    """Return a speaker's name, its words, and their terms."""
    folded = unicodedata.normalize("NFKC", speaker).casefold()
    return {folded, *folded.split(), *tokenize(speaker)}


def _words(text: str) -> Iterator[tuple[str, str]]:
    """Yield words and phrases of scripts with spaces: as written, and the key that folds their forms."""
    before: tuple[str, str, int] | None = None
    text = unicodedata.normalize("NFKC", text).replace("’", "'")
    for match in word_pattern().finditer(re.sub(f"[{CJK}]", "\n", text)):
        surface = match.group().removesuffix("'s")
        terms = tokenize(surface)
        is_word = terms and 2 <= len(surface) <= 40 and any(map(str.isalpha, surface))
        if not is_word or terms[0] in _filler_terms():
            before = None
            continue
        yield surface, terms[0]
        if before and text[before[2] : match.start()] == " ":
            yield f"{before[0]} {surface}", f"{before[1]} {terms[0]}"
        before = surface, terms[0], match.end()


def _cjk_words(texts: Sequence[str], names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield words of Chinese, Japanese and Korean, each also as its own key; none with a speaker's name in it."""
    text = unicodedata.normalize("NFKC", "\n".join(texts))
    is_japanese = re.search("[\u3041-\u30fa]", text) is not None
    is_han = f"[{IDEOGRAPHS}]+"
    words: list[str] = re.findall("[\uac00-\ud7af]{2,}", text)
    if is_japanese:
        words += re.findall(f"{is_han}|[\u30a1-\u30fa\u30fc]+", text)
    else:
        words += _cut_chinese(re.findall(is_han, text))
    for word in words:
        if len(word) > 1 and word not in _FILLERS_CJK and not any(name in word for name in names if len(name) > 1):
            yield word, word


def _cut_chinese(runs: Sequence[str]) -> list[str]:
    """Cut a session's runs of Chinese into words; without jieba, into what is repeated, or else into pairs."""
    if runs and find_spec("jieba") is not None:
        return [word for run in runs for word in _cutter()(run)]
    grams = [run[i : i + size] for run in runs for size in (2, 3, 4) for i in range(len(run) - size + 1)]
    counts = Counter(gram for gram in grams if len(tokenize(gram)) == 2 * len(gram) - 1)  # no function characters in it
    repeated = {gram for gram, n in counts.items() if n > 1}
    return [gram for gram in grams if gram in (repeated or counts) and (repeated or len(gram) == 2)]


_loading = threading.Lock()


def _cutter() -> Callable[[str], list[str]]:
    with _loading:
        return _loaded_cutter()


@cache
def _loaded_cutter() -> Callable[[str], list[str]]:
    """Load jieba quietly, with a tokenizer of our own: the shared one belongs to the host."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its source has invalid escapes, and asks for pkg_resources
        import jieba
    jieba.setLogLevel(logging.WARNING)
    tokenizer = jieba.Tokenizer()
    with tempfile.TemporaryDirectory() as private:
        tokenizer.tmp_dir = private  # else it unmarshals a file from the temporary folder that everybody can write to
        tokenizer.initialize()
    cut: Callable[[str], list[str]] = tokenizer.lcut
    return cut


def rank_keywords(
    candidates: Sequence[str],
    vectors: NDArray[np.float32],
    session_vector: NDArray[np.float32],
    background_mean: NDArray[np.float32] | None,
    *,
    n_keywords: int,
) -> tuple[str, ...]:
    """Choose keywords by what an embedder and tf-idf together find closest to the session.

    Half the cosine with the session, scaled to [0, 1] over the candidates, half the place in the tf-idf order. A candidate
    whose words another one has, or whose vector another one's nearly equals, is left out.

    Parameters
    ----------
    candidates
        Best first.
    vectors : (n_candidates, n_dims)
        Of the candidates.
    session_vector : (n_dims,)
        Of the session's text.
    background_mean : (n_dims,), optional
        Of unrelated text: taken off before cosines are computed, since compressed embedders put everything into one corner.
    n_keywords
        Most that are kept.
    """
    if not candidates:
        return ()
    mean = np.zeros_like(session_vector) if background_mean is None else background_mean
    centred = _unit(np.asarray(vectors, dtype=np.float64) - mean)
    cosines = centred @ _unit(np.asarray(session_vector, dtype=np.float64) - mean)
    spread = float(np.ptp(cosines))
    closeness = (cosines - cosines.min()) / spread if spread > 0 else np.zeros(len(candidates))
    scores = closeness / 2 + (1 - np.arange(len(candidates)) / len(candidates)) / 2
    terms = [set(tokenize(candidate)) or {candidate} for candidate in candidates]
    chosen: list[int] = []
    for row in np.argsort(-np.round(scores, 6), kind="stable").tolist():
        if len(chosen) == n_keywords:
            break
        alike = any(
            terms[row] <= terms[other] or terms[other] <= terms[row] or centred[row] @ centred[other] > _NEAR_DUPLICATE
            for other in chosen
        )
        if not alike:
            chosen.append(row)
    return tuple(candidates[row] for row in chosen)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    units: NDArray[np.float64] = vectors / np.where(norms > 1e-12, norms, 1.0)
    return units
