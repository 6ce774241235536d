"""What is found: the right session, its evidence, a score that means something, and nothing that was excluded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from memgas import MemGAS, Turn
from memgas.errors import InvalidInputError, ShapeError
from memgas.retrieval import Retrieval
from memgas.testing import HashEmbedder, ScriptedLLM
from memgas.types import Granularity

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
DIALOGUE = {
    "dog": ["I adopted a greyhound, Juno.", "Congratulations!", "She sleeps on the sofa."],
    "tea": ["The tea house in Kyoto was lovely.", "Did you try matcha?", "Twice!"],
    "piano": ["Lena restores old pianos.", "What a craft.", "She learned it in Vienna."],
    "bread": ["My rye bread failed again.", "Use less water.", "I will."],
    "boat": ["We sold the old boat.", "Will you miss it?", "Not the winters."],
    "dog2": ["Juno, the greyhound, needs a coat.", "A warm one?", "She shivers in winter."],
}


@pytest.fixture
def memory() -> Iterator[MemGAS]:
    """Give six sessions, a day apart."""
    with MemGAS.in_memory(embedder=HashEmbedder(), clock=lambda: NOON + timedelta(days=30)) as memory:
        for number, (name, texts) in enumerate(DIALOGUE.items()):
            turns = [Turn(("user", "assistant")[i % 2], text) for i, text in enumerate(texts)]
            memory.add(
                turns, namespace="n", session_id=name, happened_at=NOON + timedelta(days=number),
                metadata={"number": number, "topic": name},
            )  # fmt: skip
        yield memory


def _ids(found: Retrieval) -> list[str]:
    return [hit.session_id for hit in found.hits]


def _check(found: Retrieval, top_k: int) -> None:
    """Check what is promised of any result."""
    scores = [hit.score for hit in found.hits]
    assert len(scores) <= top_k
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    ranks = [hit.rank_score for hit in found.hits]
    assert all(np.isfinite(rank) for rank in ranks)
    for hit in found.hits:
        assert sum(hit.parts.values()) == pytest.approx(hit.rank_score, abs=1e-9)
        assert [e.position for e in hit.evidence] == sorted(e.position for e in hit.evidence)
        assert all(e.turn.text for e in hit.evidence)
    assert len(set(_ids(found))) == len(scores)
    assert {path.session_id for path in found.trace.paths} >= set(_ids(found))


@pytest.mark.parametrize(
    "query", ["What did Lena learn in Vienna?", "matcha", "zzz qqq", "the", "👍", "a" * 5_000, "\ud800x"]
)
@pytest.mark.parametrize("top_k", [1, 3, 50])
def test_any_query(memory: MemGAS, query: str, top_k: int) -> None:
    """Whatever is asked, hits are few enough, scores in [0, 1] never rise, and the parts of a rank score sum to it."""
    found = memory.retrieve(query, namespace="n", top_k=top_k)
    _check(found, top_k)
    assert len(found.hits) == min(top_k, 6)
    assert found.explain()
    assert found.context(max_tokens=200)


@pytest.mark.parametrize("name", list(DIALOGUE))
@pytest.mark.parametrize("position", range(3))
def test_an_exact_copy_comes_first(memory: MemGAS, name: str, position: int) -> None:
    """A query that is the copy of a turn finds its session first, with that turn among the evidence."""
    text = DIALOGUE[name][position]
    hit = memory.retrieve(text, namespace="n").hits[0]
    assert (hit.session_id, text in [e.turn.text for e in hit.evidence]) == (name, True)


def test_what_a_hit_says(memory: MemGAS) -> None:
    """A hit has its dated session, metadata, summary and keywords; evidence has neighbours, without a similarity."""
    hit = memory.retrieve("greyhound Juno adopted", namespace="n").hits[0]
    assert (hit.session_id, hit.happened_at, hit.metadata) == ("dog", NOON, {"number": 0, "topic": "dog"})
    assert hit.summary
    assert hit.keywords
    assert [e.position for e in hit.evidence] == [0, 1, 2]
    assert hit.evidence[0].similarity is not None


def test_an_irrelevant_query_scores_low(memory: MemGAS) -> None:
    """`min_score` empties the result of a query about nothing that is here, and keeps that of a real one."""
    real = memory.retrieve("greyhound Juno", namespace="n")
    idle = memory.retrieve("What is my blood type?", namespace="n")
    assert real.hits[0].score > idle.hits[0].score
    limit = (real.hits[0].score + idle.hits[0].score) / 2
    assert memory.retrieve("What is my blood type?", namespace="n", min_score=limit).hits == ()
    kept = memory.retrieve("greyhound Juno", namespace="n", min_score=limit).hits
    assert kept
    assert all(hit.score >= limit for hit in kept)


def test_filters(memory: MemGAS) -> None:
    """Time bounds include their ends; metadata, exclusions and granularities keep out what they say, before counting."""

    def ids(**filters: object) -> set[str]:
        found = memory.retrieve("greyhound Juno winter", namespace="n", top_k=10, **filters)  # type: ignore[arg-type]
        _check(found, 10)
        return set(_ids(found))

    day = timedelta(days=1)
    assert ids(since=NOON + 5 * day) == {"dog2"}
    assert ids(until=NOON) == {"dog"}
    assert ids(since=NOON + day, until=NOON + 2 * day) == {"tea", "piano"}
    assert ids(since=NOON + 9 * day) == set()
    assert ids(where={"topic": "boat"}) == {"boat"}
    assert ids(where={"number": {"$gte": 4}}) == {"boat", "dog2"}
    assert ids(where={"topic": "nothing"}) == set()
    assert ids(exclude_sessions=["dog", "dog2", "unknown"]) == set(DIALOGUE) - {"dog", "dog2"}
    assert ids(kind="item") == set()
    assert ids(granularities=["summary"]) == set(DIALOGUE)
    top = memory.retrieve("greyhound Juno", namespace="n", top_k=1, exclude_sessions=["dog", "dog2"])
    assert len(top.hits) == 1


def test_excluded_turns(memory: MemGAS) -> None:
    """An excluded turn is in no evidence, not as a neighbour either; the others of its session still are."""
    out = {("dog", 0), ("dog", 9), ("unknown", 0)}
    found = memory.retrieve("I adopted a greyhound, Juno.", namespace="n", top_k=10, exclude_turns=out)
    _check(found, 10)
    places = {(e.session_id, e.position) for hit in found.hits for e in hit.evidence}
    assert ("dog", 0) not in places
    assert ("dog2", 0) in places
    everything = {(name, p) for name in DIALOGUE for p in range(3)}
    found = memory.retrieve("Juno", namespace="n", granularities=["turn"], exclude_turns=everything)
    assert found.hits == ()


def test_a_given_vector(memory: MemGAS) -> None:
    """A query's own vector gives the same result without the embedder, of any length; another width is refused."""
    query = "greyhound Juno"
    vector = HashEmbedder().embed_query(query)
    wanted = memory.retrieve(query, namespace="n")
    n_texts = memory.embedder.n_texts
    for given in (vector, list(map(float, vector * 7))):
        found = memory.retrieve(query, namespace="n", query_vector=given)
        assert _ids(found) == _ids(wanted)
        assert [h.score for h in found.hits] == pytest.approx([h.score for h in wanted.hits], abs=1e-5)
    assert memory.embedder.n_texts == n_texts
    with pytest.raises(ShapeError, match="64"):
        memory.retrieve(query, namespace="n", query_vector=vector[:5])


@pytest.mark.parametrize(
    ("reply", "kept", "degrades"),
    [
        ("[]", 0, False),
        ("KEEP NOTHING", 3, True),
        ("", 3, True),
        ("[77, 99]", 3, True),
        (ConnectionError("down"), 3, True),
    ],
)
def test_the_filter(memory: MemGAS, reply: str | Exception, kept: int, degrades: bool) -> None:
    """`[]` is believed; a reply that cannot be used, unknown numbers or a failed call keep all, and the trace says so."""
    memory.llm = None
    with MemGAS(store=memory._workspace.store, embedder=HashEmbedder(), llm=ScriptedLLM([reply])) as asking:
        plain = memory.retrieve("greyhound", namespace="n", top_k=3)
        found = asking.retrieve("greyhound", namespace="n", top_k=3, filter="llm")
        assert len(found.hits) == kept
        assert _ids(found) == _ids(plain)[:kept]
        assert bool(found.trace.degraded) is degrades
        assert found.trace.verdict is not None
        assert len(found.trace.verdict.kept) == kept


def test_no_filter_without_a_model(memory: MemGAS) -> None:
    """The filter needs a language model; another name of one is refused too."""
    for bad in ("llm", "yes"):
        with pytest.raises(InvalidInputError, match="filter"):
            memory.retrieve("x", namespace="n", filter=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("sessions", [0, 1, 2])
@pytest.mark.parametrize("query", ["the greyhound Juno", "What is my blood type?", "the"])
def test_small_stores(sessions: int, query: str) -> None:
    """With none, one or two identical sessions, hits and scores are sensible, and nothing warns."""
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        for number in range(sessions):
            memory.add([Turn("user", "I adopted the greyhound Juno.")], namespace="n", session_id=f"s{number}")
        found = memory.retrieve(query, namespace="n")
        _check(found, 5)
        assert sorted(_ids(found)) == [f"s{number}" for number in range(sessions)]
        if sessions == 2:
            assert found.hits[0].score == pytest.approx(found.hits[1].score, abs=1e-6)
        if sessions and "Juno" in query:
            assert found.hits[0].score > 0.5
        elif sessions:
            assert found.hits[0].score < 0.5
        assert (found.context() == "") is (sessions == 0)
        assert found.explain()


@pytest.mark.parametrize(
    "text",
    [
        "👍",
        "\U0001fae8",
        "a\ud800b",
        "nul\x00nul",
        "!!!",
        "ą́́́",
        "मेरा कुत्ता",
        "我下周二要带外婆去看牙医。",
        "\u202eabc",
        "x" * 60_000,
    ],
)
def test_odd_text(memory: MemGAS, text: str) -> None:
    """Emoji, lone surrogates, NUL, marks, any script: stored, given back clean, and found by a copy of itself."""
    memory.add([Turn("user", text)], namespace="odd", session_id="odd")
    memory.add([Turn("user", "plain words about a boat")], namespace="odd", session_id="plain")
    stored = memory.get("odd", namespace="odd").turns[0].text
    assert len(stored) == len(text)
    assert stored.encode("utf-8")
    assert memory.retrieve(text, namespace="odd").hits[0].session_id == "odd"


def test_the_last_line_of_a_very_long_turn(memory: MemGAS) -> None:
    """The last words of a turn of 60,000 characters are found, and the turn is evidence."""
    body = " ".join(f"filler{i % 900}" for i in range(7_000))
    long = f"{body}\nThe safe's number is walnut-eleven."
    memory.add([Turn("user", long), Turn("assistant", "Noted.")], namespace="n", session_id="long")
    found = memory.retrieve("number of the safe walnut-eleven", namespace="n")
    _check(found, 5)
    assert found.hits[0].session_id == "long"
    assert found.hits[0].evidence[0].turn.text == long
    with memory._workspace.reading("n") as index:
        node = index.sessions["long"].nodes[Granularity.TURN][0]
        asked = HashEmbedder().embed_query("The safe's number is walnut-eleven.")
        assert len(index.windows_of(node)) > 40
        assert index.cosines(asked)[node] == pytest.approx(max(index.windows_of(node) @ asked), abs=1e-5)
        assert index.cosines(asked)[node] > index.vectors[node] @ asked


def _bare(texts: Sequence[str]) -> list[Turn]:
    return [Turn("user", text) for text in texts]


def test_unknown_namespace_asks_no_model() -> None:
    """Where nothing was ever said there are no hits, no namespace comes into being, and no model is called."""
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        found = memory.retrieve("x", namespace="never")
        assert (found.hits, found.trace.n_sessions, memory.embedder.n_texts) == ((), 0, 0)
        assert memory.namespaces() == []
        assert memory.stats().n_namespaces == 0


def test_rewritten_or_loaded_it_is_found_the_same(memory: MemGAS) -> None:
    """After rewritings and deletions the mirror finds what one that is loaded anew finds, in the same order."""
    memory.replace_session(_bare(["Juno met a whippet.", "They ran."]), namespace="n", session_id="tea")
    memory.append(Turn("user", "Juno likes bread."), namespace="n", session_id="bread")
    memory.delete_session("piano", namespace="n")
    queries = ["Juno", "greyhound winter", "old boat", "whippet"]
    before = [_ids(memory.retrieve(query, namespace="n")) for query in queries]
    memory._workspace._entries.clear()
    assert [_ids(memory.retrieve(query, namespace="n")) for query in queries] == before
