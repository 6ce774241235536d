"""Digests from a language model's reply, and without one."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memgas import extractive
from memgas.digest import extract_summary, keyword_candidates, parse_digest, parse_keywords, rank_keywords
from memgas.errors import LLMError
from memgas.extractive import split_sentences
from memgas.lexical import LexicalIndex, tokenize
from memgas.testing.hash_embedder import HashEmbedder
from memgas.types import JSON, Digest, Turn

GOOD = Digest("She adopted Juno.", ("greyhound", "Juno"), "llm")
BODY = '{"summary": "She adopted Juno.", "keywords": ["greyhound", "Juno"]}'


@pytest.mark.parametrize(
    "reply",
    [
        BODY,
        f"```json\n{BODY}\n```",
        f"Here {{as asked}} it is: {BODY} Hope {{that}} helps!",
        f'<think>{{"summary": "no", "keywords": ["no"]}}</think>{BODY}',
        f'so {{"summary": "no"}} maybe</think>\n{BODY}',
        f"<THINKING>hm</THINKING>{BODY}",
        f'{{"result": {BODY}}}',
        f"[{BODY}]",
        BODY.replace("]}", "],}").replace('"Juno"]', '"Juno",]'),
        BODY.replace("summary", "Summary").replace("keywords", " KEYWORDS "),
        BODY.replace('["greyhound", "Juno"]', '"greyhound; Juno"'),
        BODY.replace('"Juno"]', '"Juno", null, 3, ["x"], {"a": "b"}]'),
        BODY.replace('"She adopted Juno."', '["She adopted", "Juno."]'),
        "**Summary:** She adopted Juno.\n**Keywords:** greyhound, Juno",
        "Summary: She adopted Juno.\nKeywords:\n1. greyhound\n2. Juno",
    ],
)
def test_digests(reply: str) -> None:
    """However it is wrapped, it is the same digest."""
    assert parse_digest(reply, n_keywords=8) == GOOD


def test_half_a_digest_is_better_than_none() -> None:
    """A missing summary or missing keywords are left empty, not made up."""
    assert parse_digest('{"summary": "x y"}', n_keywords=8) == Digest("x y", (), "llm")
    assert parse_digest('{"keywords": ["tea"], "summary": null}', n_keywords=8) == Digest("", ("tea",), "llm")


@pytest.mark.parametrize(
    "reply",
    [
        "", "   ", "I'm sorry, but I can't help with that.", "{}", "[]", "null", '{"summary": null, "keywords": []}',
        '{"summary": "...", "keywords": ["..."]}', '{"summary": "N/A", "keywords": "none"}', '{"summary": 3, "keywords": 7}',
        BODY[:-1], BODY[:30], '{"summary": "whole.", "keywords": ["a', f"<think>{BODY}", "tea, Kyoto",
        'Summary: see below\n{"summary": "cut', "word " * 200_000, '{"summary": "' + "word " * 5_000 + '"}',
        '{"summary": "' + "哈" * 5_000 + '"}', "[" * 100_000, '{"a":' * 30_000,
    ],
)  # fmt: skip
def test_nothing_is_made_up(reply: str) -> None:
    """Empty, refused, cut, placeholder, runaway: an LLMError that quotes the reply, briefly."""
    with pytest.raises(LLMError) as caught:
        parse_digest(reply, n_keywords=8)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("piece", ["\n", "{", '{"', "{ ", ", ", "[{", "<think>", "summary:", "```", '{"a":1,', "#\n"])
def test_hostile_replies_do_not_stall(piece: str) -> None:
    """As much of anything as is read at all takes a moment of processor time."""
    started = time.process_time()
    with pytest.raises(LLMError):
        parse_digest(piece * (199_000 // len(piece)), n_keywords=8)
    assert time.process_time() - started < 5


def test_a_long_summary_is_cut_where_it_shows() -> None:
    """Over 6,000 characters it ends with "…" after a whole word."""
    summary = parse_digest(json.dumps({"summary": " ".join(f"word{n}" for n in range(2_000))}), n_keywords=8).summary
    assert len(summary) <= 6_001
    assert summary.endswith("…")
    assert summary[:-1].split()[-1] in {f"word{n}" for n in range(2_000)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("tea, Kyoto", ("tea", "Kyoto")),
        ("茶；京都；红叶", ("茶", "京都", "红叶")),
        ("茶、京都，红叶", ("茶", "京都", "红叶")),
        ("1. tea\n2. Kyoto", ("tea", "Kyoto")),
        ("1) tea 2) Kyoto", ("tea", "Kyoto")),
        ("Keywords: tea; Kyoto", ("tea", "Kyoto")),
        ("关键词：茶、京都", ("茶", "京都")),
        (["tea", None, 3], ("tea",)),
        ('["tea", null, 3]', ("tea",)),
        ("tea;tea; ;TEA", ("tea",)),
        (["- tea", "* **Kyoto**", '"matcha"', "`x`", "null", "2024", "…"], ("tea", "Kyoto", "matcha")),
        (["1,000 islands", "tea, green"], ("1,000 islands", "tea, green")),
        (["a" * 81], ()),
        ({"tea": 1}, ()),
        (None, ()),
        (5, ()),
        (["b", "ß", "茶"], ("茶",)),
    ],
)
def test_keywords(value: JSON, expected: tuple[str, ...]) -> None:
    """Clean keywords from untidy ones; never null, numbers, single letters, blanks, numbering or the label."""
    assert parse_keywords(value, n_keywords=8) == expected


@settings(deadline=None)
@given(st.text() | st.lists(st.text() | st.none() | st.integers() | st.lists(st.text())), st.integers(1, 5))
def test_keywords_are_always_clean(value: JSON, n: int) -> None:
    """From anything: at most n, distinct but for case, each with a letter and without white space around it."""
    keywords = parse_keywords(value, n_keywords=n)
    assert len({keyword.casefold() for keyword in keywords}) == len(keywords) <= n
    assert all(any(map(str.isalpha, keyword)) and keyword == keyword.strip() for keyword in keywords)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_reply_gives_a_digest_or_an_llm_error(reply: str) -> None:
    """Nothing else is ever raised."""
    try:
        digest = parse_digest(reply, n_keywords=8)
    except LLMError:
        return
    assert digest.summary or digest.keywords


def idf_of(texts: Sequence[str]) -> extractive.Idf:
    """Return the idf of a namespace with these texts."""
    index = LexicalIndex(n_groups=1, k1=1.2, b=0.75)
    for doc, text in enumerate(texts):
        index.add(doc, 0, tokenize(text))
    return lambda terms: index.idf(0, terms)


ENGLISH = [
    Turn("Ines", "Hey Radu! Good to see you!"),
    Turn("Radu", "Hi Ines, nice. How are you?"),
    Turn("Ines", "I adopted a greyhound from the Halden shelter. The greyhound is called Juno. Anyway!"),
    Turn("Radu", "A greyhound from the shelter, wonderful. I bought a telescope."),
]
CHINESE = [Turn("小明", "我下周二要带外婆去看牙医。她牙疼了三天了！"), Turn("助手", "好的，记得带上外婆的医保卡。")]
IDF = idf_of([turn.text for turn in (*ENGLISH, *CHINESE)])


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Smith e.g. left at 3.15. Bye", ["Dr. Smith e.g. left at 3.15.", "Bye"]),
        ('He said "go." Then left', ['He said "go."', "Then left"]),
        ("我去了。“好！”她说；真的吗？", ["我去了。", "“好！”", "她说；", "真的吗？"]),
        ("a\n\nb", ["a", "b"]),
        ("...", ["..."]),
        (" ", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    """English and Chinese text falls apart into these sentences."""
    assert split_sentences(text) == sentences


@settings(deadline=None)
@given(st.text(max_size=80))
def test_sentences_lose_nothing(text: str) -> None:
    """All that is not white space is in some sentence, in order."""
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_the_central_sentences_are_chosen() -> None:
    """Greetings are not; what several sentences speak of is; in the order said, with the speaker."""
    assert extract_summary(ENGLISH, IDF, n_sentences=1).startswith(
        "Ines: I adopted a greyhound from the Halden shelter."
    )
    two = extract_summary(ENGLISH, IDF, n_sentences=3)
    assert "Good to see you" not in two
    assert "Hi Ines" not in two
    assert [line.split(":")[0] for line in two.splitlines()] == sorted(
        {"Ines", "Radu"} & set(two.replace(":", " ").split())
    )


def test_what_was_said_twice_is_told_once() -> None:
    """A repeated sentence does not fill the summary."""
    turns = [
        Turn("a", "The greyhound sleeps on the sofa."),
        Turn("b", "The greyhound sleeps on the sofa."),
        Turn("a", "Rain fell."),
    ]
    assert extract_summary(turns, IDF, n_sentences=2) == "a: The greyhound sleeps on the sofa.\na: Rain fell."


def test_a_chinese_summary_is_chinese() -> None:
    """Sentences come out as they were said."""
    assert extract_summary(CHINESE, IDF, n_sentences=1) in (
        "小明: 我下周二要带外婆去看牙医。",
        "助手: 好的，记得带上外婆的医保卡。",
    )


@pytest.mark.parametrize(
    ("turns", "summary"),
    [
        ([Turn("u", "Juno")], "u: Juno"),
        ([Turn("u", "🎉🎉")], "u: 🎉🎉"),
        ([Turn("u", "the and of")], "u: the and of"),
        ([Turn("u", "")], ""),
        ([], ""),
        ([Turn("u", "x" * 5_000)], "u: " + "x" * 299 + "…"),
    ],
)
def test_small_and_odd_sessions(turns: list[Turn], summary: str) -> None:
    """One word, emoji, only function words: the text itself; nothing from nothing; a huge word is cut where it shows."""
    assert extract_summary(turns, IDF, n_sentences=3) == summary
    assert keyword_candidates(turns, IDF, n=5) == (["Juno"] if summary == "u: Juno" else [])


@settings(deadline=None)
@given(st.lists(st.builds(Turn, st.sampled_from(["a", "b"]), st.text(max_size=60)), max_size=6), st.integers(1, 4))
def test_any_session_has_a_summary(turns: list[Turn], n: int) -> None:
    """At most n sentences, each of them said; keywords are words that were said."""
    assert bool(extract_summary(turns, IDF, n_sentences=n)) == any(turn.text.strip() for turn in turns)
    assert len(keyword_candidates(turns, IDF, n=n)) <= n


def test_keyword_candidates() -> None:
    """Words and phrases of the matter, as they were written; neither names of speakers nor fillers, nor numbers."""
    candidates = keyword_candidates([*ENGLISH, Turn("Radu", "Thanks Ines, 2024 was great")], IDF, n=40)
    assert {"greyhound", "Halden shelter", "telescope", "Juno"} <= set(candidates)
    folded = {word.casefold() for candidate in candidates for word in candidate.split()}
    assert not folded & {"ines", "radu", "hey", "hi", "nice", "thanks", "great", "2024", "the", "from"}


def test_keyword_candidates_in_chinese_with_and_without_jieba(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are found by jieba, and as repeated strings without it; names and fillers are left out."""
    turns = [*CHINESE, Turn("小明", "小明说外婆谢谢你。")]
    with_jieba = keyword_candidates(turns, IDF, n=30)
    assert {"外婆", "牙医", "医保卡"} <= set(with_jieba)
    monkeypatch.setattr(extractive, "find_spec", lambda name: None)
    without = keyword_candidates(turns, IDF, n=30)
    assert without[0] == "外婆"
    assert not {"小明", "谢谢"} & {*with_jieba, *without}


def test_jieba_is_quiet_and_private(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """Loading it prints nothing, and neither reads nor leaves a cache in the shared temporary folder."""
    import tempfile

    extractive._loaded_cutter.cache_clear()
    with caplog.at_level(logging.INFO):
        assert "外婆" in extractive._cutter()("带外婆去看牙医")
    assert capfd.readouterr() == ("", "")
    assert not (Path(tempfile.gettempdir()) / "jieba.cache").exists()


def test_japanese_and_korean_candidates() -> None:
    """Runs of ideographs and katakana; what stands between spaces."""
    japanese = keyword_candidates([Turn("u", "東京タワーへ行きました。ラーメンを食べた。")], IDF, n=9)
    assert {"東京", "タワー", "ラーメン"} == set(japanese)
    assert keyword_candidates([Turn("u", "외할머니 치과에 갔어요")], IDF, n=9) == ["외할머니", "치과에", "갔어요"]


def test_ranking_by_hand() -> None:
    """Half the place in the list, half the cosine with the session once the background is taken off."""
    background = np.array([10.0, 0.0, 0.0], dtype=np.float32)
    session = background + np.array([0.0, 1.0, 0.0], dtype=np.float32)
    vectors = background + np.array([[0, -1, 0.1], [0, 0, 1], [0, 1, 0.1]], dtype=np.float32)
    # places 1, 2/3, 1/3; cosines -.995, 0, .995 scaled to 0, .5, 1: sums 1, 1.17, 1.33
    assert rank_keywords(["bees", "pianos", "dog"], vectors, session, background, n_keywords=3) == (
        "dog",
        "pianos",
        "bees",
    )
    # without the background all cosines are about 1, and still tell these three apart
    assert rank_keywords(["bees", "pianos", "dog"], vectors, session, None, n_keywords=1) == ("dog",)


def test_near_duplicates_are_folded() -> None:
    """Of words within one another, and of vectors nearly equal, the better one stays."""
    embedder = HashEmbedder(256)
    candidates = ["support group", "support", "groups", "lake"]
    vectors = embedder.embed_documents(candidates)
    assert rank_keywords(candidates, vectors, vectors[0], None, n_keywords=4) == ("support group", "lake")
    twins = np.array([[1, 0], [1, 0.01]], dtype=np.float32)
    assert rank_keywords(["car", "automobile"], twins, twins[0], None, n_keywords=2) == ("car",)


def test_nothing_to_rank() -> None:
    """No candidates, no keywords; one candidate, and zero vectors, are fine."""
    assert rank_keywords([], np.zeros((0, 4), np.float32), np.zeros(4, np.float32), None, n_keywords=3) == ()
    assert rank_keywords(["tea"], np.zeros((1, 4), np.float32), np.zeros(4, np.float32), None, n_keywords=3) == ("tea",)
