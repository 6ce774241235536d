"""The mirror of a namespace: whatever was done to it in place, it is the one that is loaded from the store."""

# ruff: noqa: D102 (a rule's name says what it does)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from memgas import MemGAS, MemGASConfig, NewSession, Turn
from memgas.embedding import VectorTable
from memgas.errors import SessionConflictError
from memgas.index import NamespaceIndex, load
from memgas.models.calls import SafeEmbedder
from memgas.stores.in_memory import InMemoryStore
from memgas.testing import HashEmbedder
from memgas.types import Association, Batch, Granularity, Head, Hit, MemoryUnit, SessionRecord
from memgas.units import Exchange, exchange_unit
from memgas.workspace import Workspace

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
QUERIES = ("the greyhound Juno", "tea in Kyoto", "piano lessons for Lena", "what about the boat?")
SUBJECTS = ("greyhound Juno", "tea in Kyoto", "piano lessons", "Lena's bees", "the old boat", "rye bread")
TEXTS = st.builds(
    "{} {} {}".format,
    st.sampled_from(["I like", "we sold", "tell me about", "remember"]),
    st.sampled_from(SUBJECTS),
    st.sampled_from(["today", "in spring", "again", "with Radu"]),
)
LONG = st.builds(lambda text, n: f"{text} " * n, TEXTS, st.sampled_from([1, 1, 1, 8]))
TURNS = st.lists(st.builds(Turn, st.sampled_from(["user", "assistant"]), LONG), min_size=1, max_size=5)
SESSIONS = st.sampled_from(["a", "b", "c", "d"])


def load_again(workspace: Workspace, namespace: str) -> NamespaceIndex:
    """Load a fresh mirror from what a workspace's store holds."""
    return load(namespace, workspace.n_dims, workspace.store.load(namespace), k1=workspace._k1, b=workspace._b)


def describe(index: NamespaceIndex) -> dict[str, object]:
    """Return what a mirror says, whatever the numbers of its nodes."""
    units = {index.unit_id(node): node for state in index.visible_sessions() for node in state.all_nodes()}
    alive = {uid: bool(index.alive[node]) for uid, node in units.items()}
    probe = np.linspace(-1, 1, index.n_dims).astype(np.float32)
    cosines = index.cosines(probe)
    scores = index.lexical.scores(["tea", "juno", "boat", "piano"])
    return {
        "head": index.head,
        "records": [state.record for state in index.visible_sessions()],
        "alive": alive,
        "keys": {state.record.session_id: state.keys for state in index.visible_sessions()},
        "starts": {state.record.session_id: state.exchange_starts for state in index.visible_sessions()},
        "last": {state.record.session_id: state.last_exchange for state in index.visible_sessions()},
        "positions": {uid: (index.position(node), int(index.granularity[node])) for uid, node in units.items()},
        "edges": {(*sorted((edge.source, edge.target)), round(edge.similarity, 6)) for edge in index.associations()},
        "cosines": {uid: round(float(cosines[node]), 5) for uid, node in units.items() if alive[uid]},
        "bm25": {
            uid: round(float(scores[node]) if node < len(scores) else 0.0, 4)
            for uid, node in units.items()
            if alive[uid]
        },
        "windows": {uid: len(index.windows_of(node)) for uid, node in units.items() if alive[uid]},
        "stats": index.stats(),
        "order": sorted(alive, key=lambda uid: int(index.age[units[uid]])),
    }


def _shown(hit: Hit) -> tuple[str, object]:
    """Return what is seen of a hit, without what the order of summation may change."""
    evidence = [(item.position, item.turn) for item in hit.evidence]
    return hit.session_id, (evidence, hit.summary, hit.keywords, hit.metadata, hit.happened_at)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


class Machine(RuleBasedStateMachine):
    """Do anything that changes a namespace, in any order; keep what should be there in plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        config = MemGASConfig(max_exchange_turns=3, max_session_turns=4, max_window_tokens=32)
        self.memory = MemGAS.in_memory(embedder=HashEmbedder(), clock=self.clock, config=config)
        self.model: dict[str, list[Turn]] = {}
        self.is_open: dict[str, bool] = {}
        self.thread: list[str] = []

    def teardown(self) -> None:
        self.memory.close()

    def _set(self, session_id: str, turns: Sequence[Turn], *, is_open: bool = False) -> None:
        self.model[session_id] = list(turns)
        self.is_open[session_id] = is_open

    @rule(session_id=SESSIONS, turns=TURNS)
    def add(self, session_id: str, turns: list[Turn]) -> None:
        held = self.model.get(session_id, [])
        fits = len(turns) >= len(held) and all(not h.text or h == t for h, t in zip(held, turns, strict=False))
        fits = fits and all(h.text or h.speaker for h in held)
        if not fits:
            with pytest.raises(SessionConflictError):
                self.memory.add(turns, namespace="n", session_id=session_id)
            return
        added = self.memory.add(turns, namespace="n", session_id=session_id, metadata={"n": 1})
        assert added.n_new_turns == len(turns) - len(held)
        self._set(session_id, [*held, *turns[len(held) :]], is_open=self.is_open.get(session_id, False))

    @rule(session_id=SESSIONS, turns=TURNS)
    def add_more(self, session_id: str, turns: list[Turn]) -> None:
        self.add(session_id, [*(t if t.text else Turn("x", "gone") for t in self.model.get(session_id, [])), *turns])

    @rule(turns=st.lists(TURNS, min_size=1, max_size=4))
    def add_many(self, turns: list[list[Turn]]) -> None:
        given = [NewSession(one, f"many-{len(self.model)}-{i}") for i, one in enumerate(turns)]
        self.memory.add_many(given, namespace="n")
        for one in given:
            self._set(one.session_id or "", one.turns)

    @rule(session_id=SESSIONS, turns=TURNS)
    def append(self, session_id: str, turns: list[Turn]) -> None:
        self.memory.append(turns, namespace="n", session_id=session_id)
        self._set(session_id, [*self.model.get(session_id, []), *turns], is_open=True)

    @rule(turns=TURNS)
    def converse(self, turns: list[Turn]) -> None:
        before = {s.session_id: s for s in self.memory.list_sessions(namespace="n", conversation_id="thread")}
        self.memory.append(turns, namespace="n", conversation_id="thread")
        states = self.memory.list_sessions(namespace="n", conversation_id="thread")
        said = [t for s in states for t in self.memory.get(s.session_id, namespace="n").turns]
        told = [t for session_id in before for t in self.model[session_id]]
        assert said == [*told, *turns]
        for state in states:
            self._set(state.session_id, self.memory.get(state.session_id, namespace="n").turns, is_open=state.is_open)

    @rule(minutes=st.sampled_from([1, 10, 200]))
    def wait(self, minutes: int) -> None:
        self.clock.now += timedelta(minutes=minutes)

    def _pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.model)))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def close_session(self, data: st.DataObject) -> None:
        session_id = self._pick(data)
        self.memory.close_session(session_id, namespace="n")
        self.is_open[session_id] = False

    @rule()
    def digest(self) -> None:
        self.memory.digest_pending(namespace="n")

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_turn(self, data: st.DataObject) -> None:
        session_id = self._pick(data)
        turns = self.model[session_id]
        position = data.draw(st.integers(0, len(turns) - 1))
        self.memory.delete_turn(session_id, position, namespace="n")
        turns[position] = replace(turns[position], text="")

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_session(self, data: st.DataObject) -> None:
        session_id = self._pick(data)
        self.memory.delete_session(session_id, namespace="n")
        del self.model[session_id]

    @rule()
    def delete_conversation(self) -> None:
        held = self.memory.list_sessions(namespace="n", conversation_id="thread")
        self.memory.delete_conversation("thread", namespace="n")
        for state in held:
            del self.model[state.session_id]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), turns=TURNS)
    def replace_session(self, data: st.DataObject, turns: list[Turn]) -> None:
        session_id = self._pick(data)
        self.memory.replace_session(turns, namespace="n", session_id=session_id)
        self._set(session_id, turns)

    @rule()
    def delete_namespace(self) -> None:
        if len(self.model) > 6:
            self.memory.delete_namespace("n")
            self.model.clear()

    @invariant()
    def holds_what_was_said(self) -> None:
        self.memory._workspace.drain()
        held = {s.session_id: s for s in self.memory.list_sessions(namespace="n")}
        assert held.keys() == self.model.keys()
        for session_id, turns in self.model.items():
            session = self.memory.get(session_id, namespace="n")
            assert list(session.turns) == turns
            assert held[session_id].n_turns == len(turns)

    @invariant()
    def mirror_is_the_store(self) -> None:
        workspace = self.memory._workspace
        workspace.drain()
        fresh = load_again(workspace, "n")
        with workspace.reading("n") as live:
            assert describe(live) == describe(fresh)
        assert workspace.store.check() == []

    @invariant()
    def finds_the_same(self) -> None:
        workspace = self.memory._workspace
        workspace.drain()
        for query in QUERIES[:2]:
            found = self.memory.retrieve(query, namespace="n", top_k=99)
            with workspace.reading("n"):
                entry = workspace._entries["n"]
                live, entry.index = entry.index, load_again(workspace, "n")
                again = self.memory.retrieve(query, namespace="n", top_k=99)
                entry.index = live
            # By session: PageRank stops at a tolerance, and what it leaves depends on the numbers of the nodes.
            assert dict(map(_shown, found.hits)) == dict(map(_shown, again.hits))


Machine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=10, deadline=None, derandomize=True, phases=[Phase.generate]
)
TestAnySequence = pytest.mark.slow(Machine.TestCase)


# by hand

TEXT = {"a": "tea in Kyoto", "b": "the old boat", "c": "piano lessons", "d": "rye bread"}


def _record(number: int, n_turn_units: int = 1, **changes: object) -> SessionRecord:
    record = SessionRecord("n", "abcd"[number], number, number, 1, NOON, NOON, NOON, n_units=(0, n_turn_units, 0, 0))
    return replace(record, **changes)  # type: ignore[arg-type]


def _unit(session_id: str, generation: int, position: int = 0, text: str | None = None) -> MemoryUnit:
    said = TEXT[session_id] if text is None else text
    return exchange_unit(Exchange(2 * position, (Turn("u", said),)), "n", session_id, generation, position)


def _batch(
    records: Sequence[SessionRecord],
    units: Sequence[MemoryUnit],
    edges: Sequence[Association] = (),
    revision: int = 1,
) -> Batch:
    table = VectorTable(SafeEmbedder(HashEmbedder(8), batch_size=32), max_window_tokens=480)
    table.embed(unit.text for unit in units)
    vectors = np.array([table[unit.text].vector for unit in units], np.float32).reshape(-1, 8)
    by_source: dict[str, list[Association]] = {}
    for edge in edges:
        by_source.setdefault(edge.source, []).append(edge)
    none = np.zeros((0, 8), np.float32)
    return Batch(Head("n", "e", revision, 9), records, units, vectors, np.zeros(0, np.intp), none, by_source)


def _index() -> NamespaceIndex:
    return NamespaceIndex("n", 8, k1=1.2, b=0.75)


def test_applying_twice_changes_nothing() -> None:
    """A batch that is applied again, as after a delta that overlaps, leaves the same mirror."""
    index = _index()
    a, b = _unit("a", 0), _unit("b", 1)
    batch = _batch([_record(0), _record(1)], [a, b], [Association(b.id, a.id, 0.5)])
    index.apply(batch)
    once = describe(index)
    index.apply(batch)
    assert describe(index) == once
    assert index.stats().n_associations == 1


def test_an_edge_waits_for_its_target() -> None:
    """An edge whose target comes with a later page is there once that has come, and not before."""
    index = _index()
    a, b = _unit("a", 0), _unit("b", 1)
    index.apply(_batch([_record(0)], [a], [Association(a.id, b.id, 0.5)]))
    assert list(index.associations()) == []
    index.apply(_batch([_record(1)], [b]))
    assert [{e.source, e.target} for e in index.associations()] == [{a.id, b.id}]


def test_an_edge_to_what_is_gone_is_ignored() -> None:
    """Deleting a session takes its edges along; that they stay in the other's row does not matter."""
    index = _index()
    a, b = _unit("a", 0), _unit("b", 1)
    index.apply(_batch([_record(0), _record(1)], [a, b], [Association(b.id, a.id, 0.5)]))
    index.apply(_batch([_record(0, session_id="", is_deleted=True, revision=2)], [], revision=2))
    assert list(index.associations()) == []
    assert [state.record.session_id for state in index.visible_sessions()] == ["b"]
    assert index.lexical.scores(["kyoto"]).max(initial=0) == 0


def test_a_new_generation_hides_the_old_one() -> None:
    """A record with another generation makes the old units invisible, whether they are named as obsolete or not."""
    index = _index()
    index.apply(_batch([_record(0, 2)], [_unit("a", 0), _unit("a", 0, 1, "with milk")]))
    index.apply(_batch([_record(0, generation=5, revision=2)], [_unit("a", 5, 0, "coffee")], revision=2))
    state = index.sessions["a"]
    assert (len(state.all_nodes()), state.n_turns, state.exchange_starts) == (1, 1, {0: 0})
    assert index.lexical.scores(["kyoto", "milk"]).max() == 0
    assert index.n_dead == 2


def test_a_session_added_again_after_its_deletion() -> None:
    """A delta that brings both a deletion and the same session's new life ends with the new one."""
    index = _index()
    index.apply(_batch([_record(0)], [_unit("a", 0)]))
    gone = _record(0, session_id="", is_deleted=True, revision=2)
    back = _record(0, sequence=3, generation=3, revision=3)
    index.apply(_batch([gone, back], [_unit("a", 3, 0, "coffee")], revision=3))
    assert [state.record.sequence for state in index.visible_sessions()] == [3]
    index = _index()
    index.apply(_batch([_record(0)], [_unit("a", 0)]))
    index.apply(_batch([back], [_unit("a", 3, 0, "coffee")], revision=3))
    assert index.lexical.scores(["kyoto"]).max() == 0
    assert len(index.visible_sessions()) == 1


def test_staged_sessions_count_and_are_not_seen() -> None:
    """What is staged weighs in the statistics of words, and is no session, no result and no association until stored."""
    index = _index()
    index.apply(_batch([_record(0)], [_unit("a", 0)]))
    rare = index.lexical.idf(Granularity.TURN.axis, ["boat"])[0]
    index.stage(_batch([_record(1)], [_unit("b", 1)]))
    assert index.is_staging
    assert index.lexical.idf(Granularity.TURN.axis, ["boat"])[0] < rare
    assert index.visible("b") is None
    assert [state.record.session_id for state in index.visible_sessions()] == ["a"]
    assert index.stats().n_sessions == 1
    older, younger = index.candidates_for(_record(0)), index.candidates_for(_record(2))
    assert (older.tolist(), younger.tolist()) == ([False, False], [True, True])
    index.publish(Head("n", "e", 2, 9))
    assert index.visible("b") is not None
    assert not index.is_staging


def test_a_lone_staged_session_is_no_word() -> None:
    """A namespace whose first session is being written has no words yet."""
    index = _index()
    assert not index.has_words
    index.stage(_batch([_record(0)], [_unit("a", 0)]))
    assert not index.has_words
    index.publish(Head("n", "e", 1, 1))
    assert index.has_words


def test_a_lost_row_moves_nothing() -> None:
    """Where a repair has put an empty unit, the turns before and after it keep their positions."""
    index = _index()
    lost = replace(_unit("a", 0, 1), text="", spans=(), first_turn=0)
    after = exchange_unit(Exchange(4, (Turn("u", "late"), Turn("v", "yes"))), "n", "a", 0, 2)
    index.apply(_batch([_record(0, 3)], [_unit("a", 0), lost, after]))
    state = index.sessions["a"]
    assert state.n_turns == 6
    assert state.last_exchange == replace(after, n_windows=1)
    assert index.exchange_node(state, 4) == state.nodes[Granularity.TURN][2]


def test_where_a_turn_is() -> None:
    """A turn's exchange is found by its position; a position beyond the end is in none."""
    index = _index()
    first = exchange_unit(Exchange(0, (Turn("u", "a"), Turn("v", "b"))), "n", "a", 0, 0)
    second = exchange_unit(Exchange(2, (Turn("u", "c"),)), "n", "a", 0, 1)
    index.apply(_batch([_record(0, 2)], [first, second]))
    state = index.sessions["a"]
    nodes = [index.exchange_node(state, position) for position in range(4)]
    turn_nodes = state.nodes[Granularity.TURN]
    assert nodes == [turn_nodes[0], turn_nodes[0], turn_nodes[1], None]


def test_a_store_that_lost_a_row() -> None:
    """After a row was lost and mended, the session's other turns are read at their places, and it grows on."""
    store = InMemoryStore()
    memory = MemGAS(store=store, embedder=HashEmbedder())
    turns = [Turn("user" if i % 2 == 0 else "assistant", f"number {i}") for i in range(6)]
    memory.add(turns, namespace="n", session_id="s")
    with memory._workspace.reading("n") as index:
        state = index.sessions["s"]
        lost = index.unit_id(state.nodes[Granularity.TURN][1])
    del store._spaces["n"].rows[lost]
    assert memory.check() != []
    memory.repair()
    memory._workspace._entries.clear()
    got = memory.get("s", namespace="n").turns
    assert [turn.text for turn in got] == ["number 0", "number 1", "", "", "number 4", "number 5"]
    assert memory.add([*turns, Turn("user", "more")], namespace="n", session_id="s").n_new_turns == 1
    assert memory.get("s", namespace="n").turns[6].text == "more"
    memory.close()
