"""Why a session did not come back: stages, margins, and the smallest change that helps, checked by retrieving again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import pytest

from memgas import InvalidInputError, MemGAS, MemGASConfig, NewSession, Turn
from memgas.settings_grid import GRID, Value, nearest_first
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder, ScriptedLLM
from memgas.why_not import WhyNot

START = datetime(2023, 3, 1, tzinfo=UTC)
N_SESSIONS = 40
WORDS = [f"w{number}" for number in range(60)]


def conversations() -> list[NewSession]:
    """Forty sessions about words of a Zipf's law, ten days apart, so that near misses abound."""
    rng = np.random.default_rng(3)
    chance = 1 / np.arange(1, len(WORDS) + 1)
    chance /= chance.sum()
    made = []
    for number in range(N_SESSIONS):
        said = [" ".join(rng.choice(WORDS, 8, p=chance)) for _ in range(4)]
        turns = [Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(said)]
        made.append(NewSession(turns, str(number), START + timedelta(days=10 * number), {"even": number % 2 == 0}))
    return made


STORE = InMemoryStore()
MEMORY = MemGAS(store=STORE, embedder=HashEmbedder(n_dims=48))
MEMORY.add_many(conversations(), namespace="u")


@cache
def with_setting(name: str, value: Value) -> MemGAS:
    """A memory of the same sessions with another setting; BM25's are read when a store is opened, so it has its own."""
    config = replace(MEMORY.config, **{name: value})  # type: ignore[arg-type]
    if not name.startswith("bm25"):
        return MemGAS(store=STORE, embedder=MEMORY.embedder, config=config)
    memory = MemGAS.in_memory(embedder=MEMORY.embedder, config=config)
    memory.add_many(conversations(), namespace="u")
    return memory


def place_with(name: str, value: Value, query: str, session_id: str) -> int | None:
    """The session's place when it is retrieved anew by a memory with another setting; None beyond the fifth."""
    other = with_setting(name, value)
    ids = [hit.session_id for hit in other.retrieve(query, namespace="u").hits]
    return ids.index(session_id) + 1 if session_id in ids else None


def misses(n: int) -> list[tuple[str, str]]:
    """Queries, and a session just below the cut of each."""
    rng = np.random.default_rng(5)
    found = []
    for number in range(n):
        query = " ".join(rng.choice(WORDS, 3)) + (" in May 2023" if number % 3 == 0 else "")
        hits = MEMORY.retrieve(query, namespace="u", top_k=12).hits
        found.append((query, hits[5 + number % 7].session_id))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("query", "session_id"), misses(12))
def test_a_change_brings_it_in_and_no_smaller_one_does(query: str, session_id: str) -> None:
    """A change helps, a smaller one does not, and where none is named none does.

    Retrieving with the changed setting finds the session at the place named; with each value nearer, it does not; and
    where a setting is called unhelpful, with no value of its grid.
    """
    told = MEMORY.explain(query, namespace="u", session_id=session_id)
    helps = {change.setting: change for change in told.changes}

    assert told.stage == "rank"
    assert {*helps, *told.unhelpful} == {"top_k", *GRID}
    for name in GRID:
        change = helps.get(name)
        for value in nearest_first(name, MEMORY.config):
            place = place_with(name, value, query, session_id)
            if change is not None and value == change.needed:
                assert place == change.place
                break
            assert place is None, (name, value)


def test_the_grid_holds_every_setting_of_ranking() -> None:
    """Each setting that orders sessions when they are retrieved is tried, within its range."""
    shown_only = {"n_evidence", "n_neighbours"}
    read = {spec.name for spec in fields(MemGASConfig) if spec.metadata["when"] == "retrieve"}

    assert read - shown_only == set(GRID)
    for name, values in GRID.items():
        for value in values:
            replace(MemGASConfig(), **{name: value})  # type: ignore[arg-type]


def test_nearest_first_by_hand() -> None:
    """From 0.15 the grid goes to .1 and .2, then .05 and .3; a value off the grid has the same neighbours."""
    order = nearest_first("association_weight", MemGASConfig())
    between = nearest_first("association_weight", MemGASConfig(association_weight=0.12))

    assert order[:5] == [0.1, 0.2, 0.05, 0.3, 0.0]
    assert between[:3] == [0.1, 0.15, 0.05]
    assert nearest_first("router", MemGASConfig(router="entropy")) == ["normalised_entropy", "uniform"]


def test_top_k_is_the_place() -> None:
    """Asked for as many as its place, the session comes in last; with one less it does not."""
    query, session_id = misses(1)[0]
    told = MEMORY.explain(query, namespace="u", session_id=session_id)
    (change,) = [change for change in told.changes if change.setting == "top_k"]
    assert isinstance(change.needed, int)

    enough = MEMORY.retrieve(query, namespace="u", top_k=change.needed).hits
    short = MEMORY.retrieve(query, namespace="u", top_k=change.needed - 1).hits

    assert session_id == enough[-1].session_id
    assert session_id not in [hit.session_id for hit in short]


@pytest.mark.parametrize(("query", "session_id"), misses(8))
def test_margin_and_rivals_are_those_of_the_hits(query: str, session_id: str) -> None:
    """The margin is the last hit's rank score less its own; the rivals are the hits; its figures are those of a longer list."""
    told = MEMORY.explain(query, namespace="u", session_id=session_id)
    hits = MEMORY.retrieve(query, namespace="u", top_k=N_SESSIONS).hits
    (own,) = [hit for hit in hits if hit.session_id == session_id]

    assert told.place == hits.index(own) + 1
    assert told.n_candidates == N_SESSIONS
    assert told.rank_score == pytest.approx(own.rank_score)
    assert told.margin == pytest.approx(hits[4].rank_score - own.rank_score)
    assert [rival.session_id for rival in told.outranked_by] == [hit.session_id for hit in hits[:5]]
    assert told.reason is not None
    parts = sum(share.dense + share.lexical + share.association for share in told.reason.shares) + told.reason.date
    assert parts == pytest.approx(own.rank_score, abs=1e-6)
    assert told.causes[-1].name == "outranked"
    assert ("not_a_seed" in [cause.name for cause in told.causes]) == (
        session_id not in {seed.session_id for seed in MEMORY.retrieve(query, namespace="u").trace.seeds}
    )


def lost(memory: MemGAS, session_id: str, **call: object) -> WhyNot:
    return memory.explain("w1 w2", namespace="u", session_id=session_id, top_k=N_SESSIONS, **call)  # type: ignore[arg-type]


AFTER, BEFORE = START + timedelta(days=75), START + timedelta(days=65)


@pytest.mark.parametrize(
    ("call", "stage", "margin", "setting"),
    [
        ({"since": AFTER}, "time", 5 * 86400, "since"),
        ({"until": BEFORE}, "time", 5 * 86400, "until"),
        ({"where": {"even": True}}, "metadata", None, "where"),
        ({"exclude_sessions": ["7", "8"]}, "excluded", None, "exclude_sessions"),
        ({"exclude_turns": [("7", i) for i in range(4)], "granularities": ["turn"]}, "words", None, "exclude_turns"),
        ({"kind": "item"}, "kind", None, "kind"),
    ],
)
def test_each_stage_names_the_argument_that_keeps_it_out(
    call: dict[str, object], stage: str, margin: float | None, setting: str
) -> None:
    """A session lost to an argument of the call: the stage, the margin, and a change with which it is retrieved."""
    told = lost(MEMORY, "7", **call)
    changes = {change.setting: change.needed for change in told.changes}

    assert (told.stage, told.margin) == (stage, margin)
    assert setting in changes
    needed: object = changes[setting]
    if setting in ("since", "until"):
        needed = datetime.fromisoformat(str(needed))
    if setting == "exclude_turns":
        needed = ()
    changed: dict[str, object] = {**call, setting: needed}
    again = MEMORY.retrieve("w1 w2", namespace="u", top_k=N_SESSIONS, **changed)  # type: ignore[arg-type]
    assert "7" in [hit.session_id for hit in again.hits]


def test_min_score_is_lowered_by_no_more_than_a_step() -> None:
    """Below `min_score`: the value named lets it in, a hundredth more does not."""
    told = lost(MEMORY, "7", min_score=0.99)
    (change,) = told.changes
    assert isinstance(change.needed, float)

    def ids(min_score: float) -> list[str]:
        found = MEMORY.retrieve("w1 w2", namespace="u", top_k=N_SESSIONS, min_score=min_score)
        return [hit.session_id for hit in found.hits]

    assert told.stage == "score"
    assert told.margin == pytest.approx(0.99 - (told.score or 0))
    assert "7" in ids(change.needed)
    assert "7" not in ids(change.needed + 0.01)


def test_two_things_keep_it_out() -> None:
    """Where no single change helps, that is said."""
    told = MEMORY.explain("w1", namespace="u", session_id="7", since=AFTER, where={"even": True})

    assert told.changes == ()
    assert "more than one" in told.note


def test_another_namespace_is_not_found() -> None:
    """A session of somebody else, and one that never was, are both not found, and nothing else is told."""
    MEMORY.add([Turn("user", "w1 w2")], namespace="other", session_id="theirs")
    for session_id in ("theirs", "nobody"):
        told = MEMORY.explain("w1 w2", namespace="u", session_id=session_id)
        assert replace(told, stage="found") == WhyNot("w1 w2", "u", session_id, "found", 5)
        assert told.stage == "not_found"
    assert "not_found" == MEMORY.explain("w1", namespace="nowhere", session_id="7").stage


def test_a_hit_is_found_and_a_pending_one_says_so() -> None:
    """A hit's explanation names its place; a session without a digest is told to be compared by its turns."""
    llm = ScriptedLLM(default=RuntimeError("down"))
    memory = MemGAS.in_memory(embedder=HashEmbedder(), llm=llm)
    memory.add([Turn("user", "Lena keeps bees.")], namespace="u", session_id="0")
    told = memory.explain("bees", namespace="u", session_id="0")

    assert (told.stage, told.place, told.is_pending) == ("found", 1, True)
    assert "pending" in str(told)


async def test_the_filters_verdict_is_a_stage() -> None:
    """A session that the language model dropped: without the filter it comes in. The async twin says the same."""
    digest = "SUMMARY: Bees.\nKEYWORDS: bees"
    memory = MemGAS.in_memory(embedder=HashEmbedder(), llm=ScriptedLLM([digest], default="[]"))
    memory.add([Turn("user", "Lena keeps bees.")], namespace="u", session_id="0")

    told = memory.explain("bees", namespace="u", session_id="0", filter="llm")
    again = await memory.aexplain("bees", namespace="u", session_id="0", filter="llm")

    assert (told.stage, [(change.setting, change.needed) for change in told.changes]) == ("filter", [("filter", None)])
    assert again == told


@pytest.mark.parametrize(
    "call",
    [lambda m: m.explain("", namespace="u", session_id="0"), lambda m: m.explain("w1", namespace="u", session_id=" ")],
)
def test_bad_input_is_refused(call: Callable[[MemGAS], object]) -> None:
    """A blank query or id is refused as by every call."""
    with pytest.raises(InvalidInputError):
        call(MEMORY)


def test_text_and_dict_say_where_it_was_lost() -> None:
    """The text has the sentence, the place and a line a change; the dict holds the same."""
    query, session_id = misses(1)[0]
    told = MEMORY.explain(query, namespace="u", session_id=session_id)

    assert told.sentence() in str(told)
    assert f"place {told.place} of {N_SESSIONS}" in str(told)
    assert str(told).count("would come in") == len(told.changes)
    data: Any = told.as_dict()
    assert (data["stage"], data["sentence"], data["place"]) == ("rank", told.sentence(), told.place)
    assert told.path is not None
    assert [step["unit_id"] for step in data["path"]["steps"]] == [step.unit_id for step in told.path.steps]
    assert json.loads(json.dumps(data)) == data
