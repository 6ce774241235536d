"""BERTScore: how alike answer and expected answer are to a language model. Optional: it brings torch and a download."""

from __future__ import annotations

from collections.abc import Sequence

from memgas.extras import require_extra

_CHINESE_SHARE = 0.2


def bertscore(answers: Sequence[str], expected: Sequence[str]) -> list[float]:
    """Return BERTScore's F1 of each answer, with the package's own model for the language.

    Parameters
    ----------
    answers, expected
        Pairs, in the same order.

    Raises
    ------
    MissingExtraError
        The extra `bertscore` is not installed; the message holds the pip line.

    References
    ----------
    .. [1] T. Zhang et al., "BERTScore", ICLR 2020.
    """
    require_extra("bert_score", extra="bertscore", purpose="BERTScore")
    if not answers:
        return []
    from bert_score import score

    _, _, values = score(list(answers), list(expected), lang=_language(expected), verbose=False)
    return [float(value) for value in values.tolist()]


def _language(texts: Sequence[str]) -> str:
    """Return `zh` where a good part of the characters is Chinese, else `en`."""
    whole = "".join(texts)
    chinese = sum("\u4e00" <= char <= "\u9fff" for char in whole)
    return "zh" if chinese > _CHINESE_SHARE * len(whole) else "en"
