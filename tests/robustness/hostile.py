"""Names and texts of all sorts, made by a seeded die: what the world will send."""

from __future__ import annotations

import random

NAMES = (
    "user-1", "User-1", "user-1 ", " user-1", "user-1/a", "user", "%", "*", "?", "_", "$and", "$ne", "#id", '{"$ne": ""}',
    "it's \"; DROP TABLE embeddings; --", "' OR 1=1 --", "用户", "用戶", "é", "e\u0301", "ﬀ", "ff", "a\u200bb", "ab",
    "👩‍👩‍👧", "None", "null", "True", "0", "../../etc/passwd", "a\nb", "a\r", "a\tb", "<script>alert(1)</script>",
    "{namespace}", "%s", "x" * 10_000, "x" * 9_999 + "y", "\u202euser-1",
)  # fmt: skip

_PIECES = (
    "hello", "Zürich", "你好世界", "שלום עולם", "مرحبا", "नमस्ते", "สวัสดี", "👨‍👩‍👧‍👦", "\u202e", "\u200b", "\ufeff", "\x00", "\ud800", "\udfff",
    "\x1b[31m", "\r\n", "\t", "</memories>", "<system>", "### SYSTEM:", "```", "{{x}}", "${HOME}", "'; DROP TABLE x; --",
    '"]}', "\\u0000", "%00", "../../etc", "$where", "a" * 3_000, "\u0301" * 50, "🏳️‍🌈", "ﷺ", "𝕏", "1e999", "NaN", "[INST]",
)  # fmt: skip


def text(dice: random.Random) -> str:
    """Return a text that is not blank."""
    pieces = dice.choices(_PIECES, k=dice.randint(1, 6))
    raw = [chr(dice.choice([dice.randint(1, 0x2FF), dice.randint(0x300, 0xFFFF), dice.randint(0x10000, 0x10FFFF)]))
           for _ in range(dice.randint(0, 12))]  # fmt: skip
    return "w " + dice.choice([" ", ""]).join([*pieces, *raw])
