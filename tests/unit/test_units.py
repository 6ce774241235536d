"""Session -> units: how exchanges are cut, that spans lead back to the turns, that windows lose nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memgas.models.calls import estimate_tokens
from memgas.types import Digest, Granularity, Turn
from memgas.units import (
    Exchange,
    digest_units,
    exchange_unit,
    session_text,
    split_exchanges,
    split_windows,
    text_hash,
    turns_of,
    unit_id,
)

TURNS = st.lists(
    st.builds(
        Turn, st.sampled_from(["Ines", "Radu", "user"]), st.sampled_from(["", "hi", "a: b", "one\ntwo", "x" * 60])
    )
)
BOUNDS = {"max_turns": 4, "max_chars": 100}


def _cut(speakers: str, *, max_turns: int = 100, max_chars: int = 10_000, text: str = "hello") -> list[str]:
    turns = [Turn(speaker, text) for speaker in speakers]
    exchanges = split_exchanges(turns, max_turns=max_turns, max_chars=max_chars)
    return ["".join(turn.speaker for turn in exchange.turns) for exchange in exchanges]


@pytest.mark.parametrize(
    ("speakers", "expected"),
    [
        ("", []),
        ("u", ["u"]),
        ("uaua", ["ua", "ua"]),
        ("uuaau", ["uuaa", "u"]),
        ("IRRII", ["IRR", "II"]),
        ("abc", ["ab", "c"]),
        ("aaaaa", ["aaaaa"]),
    ],
)
def test_an_exchange_is_an_utterance_and_the_reply(speakers: str, expected: list[str]) -> None:
    """An exchange is a run of one speaker's turns and the run of the next one's; nobody has to be called user."""
    assert _cut(speakers) == expected


def test_bounds() -> None:
    """A run longer than `max_turns` is cut, and no turn joins an exchange that holds `max_chars` already."""
    assert _cut("aaaaa", max_turns=2) == ["aa", "aa", "a"]
    assert _cut("uaua", max_chars=6, text="12345") == ["ua", "ua"]
    assert _cut("uaua", max_chars=5, text="12345") == ["u", "a", "u", "a"]


@given(TURNS)
def test_the_cut_depends_on_what_came_before_alone(turns: list[Turn]) -> None:
    """Cut turn by turn from the last exchange on, a session falls into the same exchanges as cut at once."""
    grown: list[Exchange] = []
    for turn in turns:
        last = grown.pop() if grown else Exchange(0, ())
        again = split_exchanges([*last.turns, turn], **BOUNDS)
        grown += [replace(exchange, first_turn=last.first_turn + exchange.first_turn) for exchange in again]
    assert grown == split_exchanges(turns, **BOUNDS)


@given(TURNS)
def test_no_turn_is_lost_or_doubled(turns: list[Turn]) -> None:
    """The exchanges hold every turn once, in order, none longer than allowed, and know where they begin."""
    exchanges = split_exchanges(turns, **BOUNDS)
    assert [turn for exchange in exchanges for turn in exchange.turns] == turns
    starts = [exchange.first_turn for exchange in exchanges]
    assert starts == [sum(len(other.turns) for other in exchanges[:i]) for i in range(len(exchanges))]
    assert all(1 <= len(exchange.turns) <= 4 for exchange in exchanges)
    assert all(len({turn.speaker for turn in exchange.turns}) <= 2 for exchange in exchanges)


@given(TURNS)
def test_spans_lead_back_to_the_turns(turns: list[Turn]) -> None:
    """`turns_of` gives back what `exchange_unit` rendered: speakers, texts, times, ids; tombstones too."""
    moment = datetime(2024, 3, 1, tzinfo=UTC)
    turns = [replace(turn, happened_at=moment, id=f"m{i}") for i, turn in enumerate(turns)]
    exchanges = split_exchanges(turns, **BOUNDS)
    units = [exchange_unit(exchange, "n", "s", 0, number) for number, exchange in enumerate(exchanges)]
    assert turns_of(units) == tuple(turns)


def test_a_tombstone_leaves_no_line() -> None:
    """A deleted turn keeps its span, empty, and neither its words nor its speaker's name are in the text."""
    turns = (Turn("Ines", "one"), Turn("Radu", ""), Turn("Ines", "two"))
    unit = exchange_unit(Exchange(4, turns), "n", "s", 0, 2)
    assert unit.text == "Ines: one\nInes: two"
    assert (unit.first_turn, len(unit.spans), unit.spans[1].start == unit.spans[1].end) == (4, 3, True)
    assert exchange_unit(Exchange(0, (Turn("Radu", ""),)), "n", "s", 0, 0).text == ""
    assert session_text(turns) == "Ines: one\nInes: two"


def test_ids_name_places() -> None:
    """A unit's id differs by namespace, session, generation, granularity and position, however the names are cut."""
    places = [
        ("a", "bc", 0, Granularity.TURN, 1),
        ("ab", "c", 0, Granularity.TURN, 1),
        ("a", "bc", 1, Granularity.TURN, 1),
        ("a", "bc", 0, Granularity.SESSION, 1),
        ("a", "bc", 0, Granularity.TURN, 11),
        ("a", "bc0", 0, Granularity.TURN, 1),
    ]
    assert len({unit_id(*place) for place in places}) == len(places)
    assert unit_id(*places[0]) == unit_id(*places[0])
    assert text_hash("a") != text_hash("b")


def test_digest_units_leave_out_what_is_empty() -> None:
    """A session without digest has its own text alone; an empty summary or no keywords make no unit."""
    turns = [Turn("user", "hello")]
    assert [u.granularity for u in digest_units(None, turns, "n", "s", 0)] == [Granularity.SESSION]
    assert [u.granularity for u in digest_units(Digest("", ("a", "b")), turns, "n", "s", 0)] == [
        Granularity.SESSION,
        Granularity.KEYWORD,
    ]
    assert digest_units(Digest("x", ("a", "b")), turns, "n", "s", 0)[2].text == "a; b"
    assert digest_units(None, [Turn("user", "")], "n", "s", 0) == []


def _check_windows(text: str, max_tokens: int) -> list[str]:
    windows = split_windows(text, max_tokens=max_tokens, count_tokens=estimate_tokens)
    assert all(estimate_tokens(window) <= max_tokens for window in windows)
    covered = 0
    for window in windows:
        start = text.rfind(window, 0, covered + len(window))
        assert start >= 0
        covered = max(covered, start + len(window))
    assert covered == len(text)
    return windows


@given(st.text(st.sampled_from("ab é茶園👍\n "), min_size=1, max_size=600), st.integers(16, 40))
def test_windows_cover_the_text_and_fit(text: str, max_tokens: int) -> None:
    """Every character is in a window, in order, and every window is short enough."""
    _check_windows(text, max_tokens)


@pytest.mark.parametrize("text", [" ".join(map(str, range(11_000))), "x" * 60_000, "茶" * 60_000, "line\n" * 12_000])
def test_sixty_thousand_characters(text: str) -> None:
    """A very long text, with or without white space, is cut into windows that overlap; its end is in the last one."""
    windows = _check_windows(text, 480)
    assert len(windows) > 10
    assert text.endswith(windows[-1])
    assert sum(map(len, windows)) >= 1.05 * len(text)


def test_long_words_overlap_too() -> None:
    """Windows overlap also where words are longer than the overlap."""
    text = " ".join(str(i) * 9 for i in range(1_000, 1_400))
    windows = _check_windows(text, 20)
    for left, right in pairwise(windows):
        assert any(left.endswith(right[:n]) for n in range(1, len(right)))


def test_short_text_is_left_alone() -> None:
    """Text that fits, and any text for an embedder without limit, is one window."""
    assert split_windows("hello", max_tokens=16, count_tokens=estimate_tokens) == ["hello"]
    assert split_windows("x" * 9_999, max_tokens=None, count_tokens=estimate_tokens) == ["x" * 9_999]
