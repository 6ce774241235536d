"""The filter's verdict: read from any reply, never invented."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memgas.filtering import Verdict, apply_verdict, parse_verdict
from memgas.types import Hit


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        ("[1, 3]", (1, 3)),
        ("[3, 1, 1]", (1, 3)),
        ("[]", ()),
        ("None of them helps: []", ()),
        ("```json\n[2]\n```", (2,)),
        ("```\n[]\n```", ()),
        ("[\n  1,\n  2\n]", (1, 2)),
        ("<think>maybe [1]</think>\n[2]", (2,)),
        ("well, [1]?</think>[2]", (2,)),
        ("I looked at [1, 2, 3].\n[2]", (2,)),
        ("[1, 3]\n\nI dropped [2] because it is about bees.", (1, 3)),
        ("Keep [1] and drop [2].", (1, 2)),
        ('{"keep": ["1", "#2", 3.0]}', (1, 2, 3)),
        ('[{"number": 2, "why": "dog"}]', (2,)),
        ("[[1, 2]]", (1, 2)),
        ("[1, 2,]", (1, 2)),
    ],
)
def test_verdicts(reply: str, kept: tuple[int, ...]) -> None:
    """Numbers are found wherever the list stands; `[]` is believed; nothing is noted."""
    assert parse_verdict(reply, n_items=3) == Verdict(kept)


@pytest.mark.parametrize(
    "reply",
    ["", "  \n", "KEEP NOTHING", "none", "[9]", "[0]", "[-1]", "[true]", "[1.5]", '["the dog"]', "[1, ", "2, 3", "<think>[1]",
     "[" * 100_000],
)  # fmt: skip
def test_no_verdict_keeps_everything(reply: str) -> None:
    """Empty, unparseable, unknown numbers only: no verdict, and a note."""
    verdict = parse_verdict(reply, n_items=3)
    assert verdict.kept is None
    assert "everything was kept" in verdict.note


def test_unknown_numbers_among_known_ones_are_ignored() -> None:
    """They are left out and named."""
    assert parse_verdict("[1, 9, 12]", n_items=3) == Verdict((1,), "the filter named unknown items: 9, 12")


@settings(deadline=None)
@given(
    st.sets(st.integers(1, 20)),
    st.sampled_from(["{}", "Sure!\n{}\nDone.", "```json\n{}\n```", "<think>[1]</think> {}"]),
)
def test_any_choice_survives_any_wrapping(kept: set[int], frame: str) -> None:
    """What the model chose is what is read."""
    assert parse_verdict(frame.format(json.dumps(list(kept))), n_items=20).kept == tuple(sorted(kept))


@settings(deadline=None)
@given(st.text(alphabet='[]{}`1,2 \n"<>think/', max_size=80))
def test_any_reply_gives_a_verdict(reply: str) -> None:
    """Never an error; only known numbers, ascending."""
    kept = parse_verdict(reply, n_items=2).kept
    assert kept is None or (set(kept) <= {1, 2} and list(kept) == sorted(set(kept)))


@pytest.mark.parametrize("piece", ["```[1] ", "\n", "[1,", "{", "<think>", "[[", '["', "[1]"])
def test_hostile_replies_do_not_stall(piece: str) -> None:
    """A megabyte of anything is read in a moment of processor time."""
    started = time.process_time()
    parse_verdict(piece * (1_000_000 // len(piece)), n_items=3)
    assert time.process_time() - started < 5


def make_hit(session_id: str, score: float) -> Hit:
    return Hit(session_id, score, score, {}, datetime(2024, 1, 1, tzinfo=UTC))


def test_applying_never_reorders_or_rescores() -> None:
    """What stays is the very same hits in the same order; without a verdict, all."""
    hits = [make_hit("a", 0.9), make_hit("b", 0.5), make_hit("c", 0.1)]
    assert apply_verdict(hits, Verdict((1, 3))) == (hits[0], hits[2])
    assert apply_verdict(hits, Verdict(())) == ()
    assert apply_verdict(hits, Verdict(None, "empty")) == tuple(hits)
