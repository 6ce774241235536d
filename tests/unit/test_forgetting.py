"""Looking for what should be gone."""

import json
from pathlib import Path

import pytest

from memgas.forgetting import files_with, telling_pieces
from memgas.types import Turn

SECRET = "the safe behind the painting opens with 4711"


def test_pieces_are_what_nothing_else_says() -> None:
    """A piece that a kept text has too is not looked for; a turn too short for a piece has none."""
    pieces = telling_pieces([Turn("a", "the safe is behind the painting"), Turn("a", "yes")], kept=["Mind the safe!"])

    assert [[" is behi", "nd the p", "painting"], []] == pieces


@pytest.mark.parametrize("text", [SECRET, "保险箱的密码写在画的后面，请不要告诉任何人。"], ids=["en", "zh"])
def test_bytes_are_found_wherever_they_lie(text: str, tmp_path: Path) -> None:
    """A file is named when it holds some of the text, plain, escaped, or only a part of it; others are not."""
    pieces = telling_pieces([Turn("a", text)], kept=[])[0]
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "plain.bin").write_bytes(b"\x00\xff" + text.encode() + b"\x00")
    (tmp_path / "escaped.json").write_text(json.dumps({"text": text}), "ascii")
    (tmp_path / "part.bin").write_bytes(text[: len(text) * 2 // 3].encode())
    (tmp_path / "other.bin").write_bytes(b"nothing of that kind")

    assert ["deep/plain.bin", "escaped.json", "part.bin"] == files_with(tmp_path, pieces)
