"""How much an answer's words overlap with the expected ones: F1, BLEU-4, ROUGE-L, each in [0, 1].

They count words, not truth: "not in May" scores well against "in May". Own code because the measures are short and the
usual packages are not: rouge-score brings NLTK, sacrebleu lxml; both were the oracle when these were written.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

_TOKEN = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
)
_ARTICLES = frozenset({"a", "an", "the"})
_MAX_N = 4


def words_of(text: str) -> list[str]:
    """Cut text into lower-case words without punctuation; Chinese and Japanese into characters."""
    return _TOKEN.findall(text.lower())


def f1(answer: str, expected: str) -> float:
    """Return the harmonic mean of precision and recall of words, articles left out.

    References
    ----------
    .. [1] Rajpurkar et al., "SQuAD", EMNLP 2016.
    """
    given, wanted = (Counter(word for word in words_of(text) if word not in _ARTICLES) for text in (answer, expected))
    n_shared = (given & wanted).total()
    if not given or not wanted:
        return float(given == wanted)
    return 2 * n_shared / (given.total() + wanted.total())


def bleu4(answer: str, expected: str) -> float:
    """Return BLEU up to 4-grams of one sentence: smoothed by adding 1 to the counts of 2-, 3- and 4-grams.

    References
    ----------
    .. [1] Papineni et al., "BLEU", ACL 2002; the smoothing of Lin and Och, "ORANGE", COLING 2004.
    """
    given, wanted = words_of(answer), words_of(expected)
    if not given or not wanted:
        return float(given == wanted)
    logs = 0.0
    for n in range(1, _MAX_N + 1):
        ours, theirs = _grams(given, n), _grams(wanted, n)
        smoothing = 1 if n > 1 else 0
        n_matched = (ours & theirs).total() + smoothing
        if not n_matched:
            return 0.0
        logs += math.log(n_matched / (ours.total() + smoothing))
    brevity = min(0.0, 1 - len(wanted) / len(given))
    return math.exp(brevity + logs / _MAX_N)


def rouge_l(answer: str, expected: str) -> float:
    """Return the F-measure of the longest common subsequence of words, precision and recall weighing the same.

    References
    ----------
    .. [1] Lin, "ROUGE", 2004.
    """
    given, wanted = words_of(answer), words_of(expected)
    if not given or not wanted:
        return float(given == wanted)
    return 2 * _common(given, wanted) / (len(given) + len(wanted))


def _grams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for word in first:
        diagonal = 0
        for i, other in enumerate(second, start=1):
            diagonal, row[i] = row[i], diagonal + 1 if word == other else max(row[i], row[i - 1])
    return row[-1]
