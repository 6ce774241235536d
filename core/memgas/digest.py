"""A session's summary and keywords: read from a language model's answer."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from memgas.errors import LLMError
from memgas.extractive import extract_summary, keyword_candidates, rank_keywords
from memgas.lexical import CJK
from memgas.replies import json_values, strip_thinking
from memgas.types import Digest

if TYPE_CHECKING:
    from memgas.types import JSON

__all__ = ["extract_summary", "keyword_candidates", "parse_digest", "parse_keywords", "rank_keywords"]

_MAX_REPLY = 200_000
_MAX_SUMMARY = 6_000
_MAX_KEYWORD = 80
_PLACEHOLDERS = frozenset(
    ["null", "none", "n/a", "na", "nan", "undefined", "string", "summary", "keyword", "unknown", "tbd"]
)
_SUMMARY_KEYS = ("summary", "摘要", "总结", "總結", "要約", "요약")
_KEYWORD_KEYS = ("keywords", "keyword", "key_words", "keyphrases", "tags", "关键词", "關鍵詞", "キーワード", "키워드")
_LABEL = re.compile(rf"^\W*(?:{'|'.join(_KEYWORD_KEYS)}|key words)\W*[:：]\s*", re.IGNORECASE)
_LINE_LABEL = re.compile(
    rf"^[ \t*_#>-]{{0,12}}(?P<name>{'|'.join((*_SUMMARY_KEYS, *_KEYWORD_KEYS))})[ *_]{{0,4}}[:：][*_]{{0,3}}(?P<rest>.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_SEPARATOR = re.compile(r"[;、，；\n\r\t|]|(?<!\d),|,(?!\d)|(?:^|(?<=\s))\(?\d{1,3}[.)]\s+")
_NUMBERING = re.compile(r"^(?:[-*•·‣]+\s*|\(?\d{1,3}[.)、:：]\s*|#+\s*)+")
_EDGES = " \t\r\n\"'`“”‘’「」『』《》<>[](){}*_.,;:：。，；、!！?？…\u200b\ufeff"


def parse_digest(reply: str, *, n_keywords: int) -> Digest:
    """Read a digest from a language model's answer, however it is wrapped.

    Parameters
    ----------
    reply
        JSON with a summary and keywords, in fences, after thinking or amid prose; or lines labelled `Summary:` and
        `Keywords:`.
    n_keywords
        Most keywords kept.

    Raises
    ------
    LLMError
        The reply is empty, a refusal, cut off, a runaway, or has neither; nothing is made up.
    """
    if len(reply) > _MAX_REPLY:
        raise LLMError(f"the reply has {len(reply)} characters; a digest has a few hundred")
    said = strip_thinking(reply)
    found = next(_digests(said), None) or _labelled(said)
    if found is None:
        raise LLMError(f'expected {{"summary": ..., "keywords": [...]}}; got {_excerpt(reply)}')
    summary = _clean_summary(found[0])
    keywords = parse_keywords(found[1], n_keywords=n_keywords)
    if not summary and not keywords:
        raise LLMError(f"the reply has neither a summary nor keywords: {_excerpt(reply)}")
    return Digest(summary, keywords, "llm")


def parse_keywords(value: JSON, *, n_keywords: int) -> tuple[str, ...]:
    """Read keywords from whatever stands in their place.

    Parameters
    ----------
    value
        A list, or text separated by commas, semicolons, line breaks or numbers, labelled or not.
    n_keywords
        Most that are kept.

    Returns
    -------
    tuple of str
        As written, each once whatever its case. Null, numbers, single letters, numbering, labels and whole paragraphs never
        become keywords.
    """
    kept: dict[str, str] = {}
    for piece in _pieces(value):
        keyword = _clean_keyword(piece)
        if keyword:
            kept.setdefault(unicodedata.normalize("NFKC", keyword).casefold(), keyword)
    return tuple(kept.values())[:n_keywords]


def _digests(said: str) -> Iterator[tuple[JSON, JSON]]:
    """Yield summary and keywords of each JSON object that has either, also one level down."""
    for value in json_values(said, "{"):
        if not isinstance(value, Mapping):
            continue
        for candidate in (value, *value.values()):
            if isinstance(candidate, Mapping):
                summary, keywords = _get(candidate, _SUMMARY_KEYS), _get(candidate, _KEYWORD_KEYS)
                if summary or keywords:
                    yield summary, keywords


def _get(mapping: Mapping[str, JSON], names: Sequence[str]) -> JSON:
    """Return the value of the first name that is there, whatever its case."""
    folded = {key.strip().casefold(): value for key, value in mapping.items()}
    return next((folded[name] for name in names if folded.get(name)), None)


def _labelled(said: str) -> tuple[JSON, JSON] | None:
    """Read `Summary: ...` and `Keywords: ...` lines; None without the first, or where JSON was begun and cut off."""
    if re.search(r'[{\[]\s*"', said):
        return None
    found: dict[bool, str] = {}
    labels = list(_LINE_LABEL.finditer(said))
    ends = [*(label.start() for label in labels[1:]), len(said)]
    for label, end in zip(labels, ends, strict=False):
        is_summary = label["name"].casefold() in _SUMMARY_KEYS
        found.setdefault(is_summary, said[label.start("rest") : end].strip())
    return (found[True], found.get(False)) if found.get(True) else None


def _clean_summary(value: JSON) -> str:
    """Return the summary as one text; empty for a placeholder.

    Raises
    ------
    LLMError
        It is one word over and over.
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = " ".join(item.strip() for item in value if isinstance(item, str))
    if not isinstance(value, str):
        return ""
    summary = re.sub(r"[ \t]+", " ", value).strip()
    if _is_placeholder(summary):
        return ""
    if _is_loop(summary):
        raise LLMError(f"the summary repeats itself: {_excerpt(summary)}")
    if len(summary) > _MAX_SUMMARY:
        summary = summary[:_MAX_SUMMARY].rsplit(" ", 1)[0] + "…"
    return summary


def _is_loop(text: str) -> bool:
    """Whether a text of some length has hardly any different words (or characters, where there are no spaces)."""
    words = text.casefold().split()
    if len(words) * 20 < len(text):
        words = [text[i : i + 2] for i in range(len(text) - 1)]
    return len(words) >= 40 and len(set(words)) * 8 < min(len(words), 400)


def _pieces(value: JSON) -> Iterator[str]:
    """Yield texts that may be keywords."""
    if isinstance(value, str):
        text = value.strip()
        listed = next(json_values(text, "["), None) if text.startswith("[") else None
        if listed is not None:
            yield from _pieces(listed)
            return
        yield from _SEPARATOR.split(_LABEL.sub("", text))
    elif isinstance(value, Sequence):
        texts = [item for item in value if isinstance(item, str)]
        yield from _pieces(texts[0]) if len(texts) == 1 else texts


def _clean_keyword(piece: str) -> str:
    """Return a keyword without what surrounds it; empty when nothing of use is left."""
    keyword = " ".join(_NUMBERING.sub("", _LABEL.sub("", piece.strip())).split()).strip(_EDGES)
    letters = sum(map(str.isalpha, keyword))
    too_short = letters == 0 or (len(keyword) == 1 and not re.match(f"[{CJK}]", keyword))
    return "" if too_short or len(keyword) > _MAX_KEYWORD or _is_placeholder(keyword) else keyword


def _is_placeholder(text: str) -> bool:
    return text.strip(_EDGES).casefold() in _PLACEHOLDERS or not any(map(str.isalnum, text))


def _excerpt(text: str) -> str:
    return json.dumps(text[:120], ensure_ascii=False) + ("" if len(text) <= 120 else f" ... ({len(text)} characters)")
