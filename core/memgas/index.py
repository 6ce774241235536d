"""One namespace in memory: vectors, BM25, graph and session records; loaded from the store, grown in place.

Text is not held, but for that of the hits shown last: it is fetched from the store when it is to be shown. Not locked: the
caller is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memgas.graph import AssociationGraph
from memgas.growth import NO_ID, TOMBSTONE, TurnKey, turn_key
from memgas.lexical import LexicalIndex, tokenize_all
from memgas.postings import grown
from memgas.ranking import cells_of, units_by_granularity
from memgas.slots import SessionTable
from memgas.types import (
    GRANULARITIES,
    Association,
    Associations,
    Batch,
    Granularity,
    Head,
    MemoryUnit,
    SessionRecord,
    Stats,
)
from memgas.units import turns_of
from memgas.words import RecentWords

_MAX_CHARS_SHOWN = 200_000  # of the hits of some twenty questions


@dataclass(slots=True)
class SessionState:
    """What the mirror holds of one session.

    Attributes
    ----------
    slot
        Its number in the mirror: the order of loading, not of time.
    nodes
        Granularity to position to node.
    keys
        One per turn, in order.
    exchange_starts
        Position of an exchange to that of its first turn.
    last_exchange
        The turn unit that the next turn may join.
    """

    record: SessionRecord
    slot: int
    nodes: dict[Granularity, dict[int, int]] = field(default_factory=lambda: {g: {} for g in GRANULARITIES})
    keys: list[TurnKey] = field(default_factory=list)
    exchange_starts: dict[int, int] = field(default_factory=dict)
    last_exchange: MemoryUnit | None = None

    @property
    def n_turns(self) -> int:
        """Turns, tombstones included."""
        return len(self.keys)

    def all_nodes(self) -> list[int]:
        """Return its nodes at every granularity."""
        return [node for by_position in self.nodes.values() for node in by_position.values()]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How the nodes of a mirror lie.

    Attributes
    ----------
    units : n_granularities arrays (n_units_g,)
        The nodes that are alive.
    cells : (n_nodes,) intp
        Where each node's score is gathered: by session slot and granularity.
    """

    units: tuple[NDArray[np.intp], ...]
    cells: NDArray[np.intp]


class NamespaceIndex:
    """The mirror of one namespace.

    Parameters
    ----------
    namespace
        Whose.
    n_dims
        Width of the vectors.
    k1, b
        Of BM25.

    Attributes
    ----------
    head
        The store's head that this mirror shows; None before anything was written.
    sessions
        Session id to what is held of it, in no particular order.
    tombstones
        Sequence to the record of a deleted session of which something is kept.
    graph
        Over nodes; a node is a unit, alive or not.
    lexical
        BM25 over nodes, grouped by granularity.
    by_slot
        Columns over the sessions' slots.
    words
        Units that were shown last, as they are stored: what is rewritten or deleted is no longer among them.
    """

    def __init__(self, namespace: str, n_dims: int, *, k1: float, b: float) -> None:
        self.namespace = namespace
        self.n_dims = n_dims
        self.head: Head | None = None
        self.sessions: dict[str, SessionState] = {}
        self.tombstones: dict[int, SessionRecord] = {}
        self.graph = AssociationGraph()
        self.lexical = LexicalIndex(n_groups=len(GRANULARITIES), k1=k1, b=b)
        self.n_nodes = 0
        self._ids: list[str] = []
        self._node_of: dict[str, int] = {}
        self._slots: list[SessionState | None] = []
        self._vectors = np.zeros((0, n_dims), np.float32)
        self._granularity = np.zeros(0, np.int8)
        self._session = np.zeros(0, np.int32)
        self._age = np.zeros(0, np.int64)
        self._alive = np.zeros(0, bool)
        self._windows = np.zeros((0, n_dims), np.float32)
        self._window_node = np.zeros(0, np.int32)
        self.n_windows = 0
        self.by_slot = SessionTable()
        self.words = RecentWords(max_chars=_MAX_CHARS_SHOWN)
        self._waiting: dict[str, list[tuple[int, float]]] = {}
        self._conversations: dict[str, list[SessionState]] = {}
        self._layout: Layout | None = None

    # what is held

    @property
    def vectors(self) -> NDArray[np.float32]:
        """Association vectors, `(n_nodes, n_dims)`."""
        return self._vectors[: self.n_nodes]

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which nodes are visible units with text, `(n_nodes,)`."""
        return self._alive[: self.n_nodes]

    @property
    def granularity(self) -> NDArray[np.int8]:
        """Granularity axis of each node, `(n_nodes,)`."""
        return self._granularity[: self.n_nodes]

    @property
    def session(self) -> NDArray[np.int32]:
        """Slot of each node's session, `(n_nodes,)`."""
        return self._session[: self.n_nodes]

    @property
    def age(self) -> NDArray[np.int64]:
        """Key that orders nodes from the oldest on, `(n_nodes,)`: by sequence, granularity, position."""
        return self._age[: self.n_nodes]

    @property
    def n_slots(self) -> int:
        """Slots ever given to sessions: the length of an `n_sessions` axis."""
        return len(self._slots)

    @property
    def n_dead(self) -> int:
        """Nodes that are no longer visible."""
        return self.n_nodes - len(self._node_of)

    def unit_id(self, node: int) -> str:
        """Return the id of a node's unit."""
        return self._ids[node]

    def unit_ids(self, nodes: Iterable[int]) -> list[str]:
        """Return the ids of some nodes' units."""
        return list(map(self._ids.__getitem__, nodes))

    def position(self, node: int) -> int:
        """Return the position of a node's unit."""
        return int(self._age[node]) & _POSITION

    def positions(self, nodes: NDArray[np.intp]) -> list[int]:
        """Return the positions of some nodes' units."""
        of_nodes: list[int] = (self._age[nodes] & _POSITION).tolist()
        return of_nodes

    def exchange_node(self, state: SessionState, turn_position: int) -> int | None:
        """Return the node of the exchange that holds a turn of a session."""
        starts = state.exchange_starts
        for position in sorted(starts, reverse=True):
            if starts[position] <= turn_position:
                return state.nodes[Granularity.TURN].get(position) if turn_position < state.n_turns else None
        return None

    def state(self, slot: int) -> SessionState | None:
        """Return the session in a slot; None when it was deleted."""
        return self._slots[slot]

    def session_ids(self, slots: Iterable[int]) -> list[str]:
        """Return the ids of the sessions in some slots; "" where it was deleted."""
        held = self._slots
        return [state.record.session_id if (state := held[slot]) is not None else "" for slot in slots]

    def conversation(self, conversation_id: str) -> list[SessionState]:
        """Return the sessions of a conversation, oldest first."""
        return sorted(self._conversations.get(conversation_id, ()), key=lambda state: state.record.sequence)

    @property
    def is_staging(self) -> bool:
        """Whether it holds what is not stored yet."""
        return self.by_slot.is_staging

    def visible(self, session_id: str) -> SessionState | None:
        """Return a session that is stored; None when there is none."""
        state = self.sessions.get(session_id)
        return None if state is None or self.by_slot.is_staged[state.slot] else state

    def visible_sessions(self) -> list[SessionState]:
        """Return the sessions that are stored, oldest first."""
        states = (self._slots[slot] for slot in self.by_slot.in_order().tolist())
        return [state for state in states if state is not None]

    @property
    def has_words(self) -> bool:
        """Whether anything that is stored has text."""
        if not self.is_staging:
            return bool(self.alive.any())
        return bool((self.alive & ~self.by_slot.is_staged[self.session]).any())

    def n_older(self, sequence: int) -> int:
        """Count the sessions that are older than a sequence number."""
        return self.by_slot.n_older(sequence)

    def of_sequence(self, sequence: int) -> SessionState | None:
        """Return the session with a sequence number, stored or not."""
        slot = self.by_slot.slot_of(sequence)
        return None if slot is None else self._slots[slot]

    def older_nodes(self, sequence: int) -> NDArray[np.bool_]:
        """Return which nodes are of sessions older than a sequence number, `(n_nodes,)`."""
        older: NDArray[np.bool_] = (self.age >> _SEQUENCE_AT) < sequence
        return older

    def candidates_for(self, record: SessionRecord) -> NDArray[np.bool_]:
        """Return which nodes a session's units may be associated with, `(n_nodes,)`: others', younger staged ones not."""
        sequence = self.by_slot.sequence
        is_hidden = (sequence == record.sequence) | (self.by_slot.is_staged & (sequence > record.sequence))
        allowed: NDArray[np.bool_] = self.alive.copy()
        if is_hidden.any():
            allowed &= ~is_hidden[self.session]
        return allowed

    @property
    def layout(self) -> Layout:
        """How the nodes lie, until the mirror changes."""
        if self._layout is None:
            self._layout = Layout(
                units_by_granularity(self.granularity, self.alive), cells_of(self.session, self.granularity)
            )
        return self._layout

    def cosines(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the cosine of each node to a normalised query `(n_dims,)`: `(n_nodes,)`, the best of its windows."""
        cosines: NDArray[np.float32] = self.vectors @ query
        if self.n_windows:
            # The windows of a unit stand together.
            owners = self._window_node[: self.n_windows]
            starts = np.flatnonzero(np.diff(owners, prepend=-2))
            best = np.maximum.reduceat(self._windows[: self.n_windows] @ query, starts)
            current = owners[starts] >= 0
            cosines[owners[starts][current]] = best[current]
        return cosines

    def windows_of(self, node: int) -> NDArray[np.float32]:
        """Return the window vectors of a node, `(n_windows, n_dims)`; none when its text was read whole."""
        windows: NDArray[np.float32] = self._windows[: self.n_windows][self._window_node[: self.n_windows] == node]
        return windows

    def associations(self) -> Iterator[Association]:
        """Yield every association between visible units, once."""
        edges = (column.tolist() for column in self._visible_edges())
        for source, target, weight in zip(*edges, strict=True):
            yield Association(self._ids[source], self._ids[target], weight)

    def _visible_edges(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
        sources, targets, weights = self.graph.edges()
        is_shown = self.alive[sources] & self.alive[targets]
        return sources[is_shown], targets[is_shown], weights[is_shown]

    def stats(self) -> Stats:
        """Count what is visible."""
        states = self.visible_sessions()
        is_shown = self.alive & self.by_slot.is_visible[self.session]
        n_units = np.bincount(self.granularity[is_shown], minlength=len(GRANULARITIES)).tolist()
        return Stats(
            int(self.head is not None),
            len(states),
            sum(state.record.is_open for state in states),
            sum(state.record.is_pending for state in states),
            sum(state.n_turns for state in states),
            {g.value: n_units[g.axis] for g in GRANULARITIES},
            len(self._visible_edges()[0]),
            int((self._window_node[: self.n_windows] >= 0).sum()),
        )

    # growing

    def apply(self, batch: Batch) -> None:
        """Take over what a batch made visible; the same for a page that was loaded and a write that was stored."""
        self._take(batch)
        self.head = batch.head

    def expect(self, first: Batch) -> None:
        """Make room for as many units as the sessions of a namespace may have, by those of the first page."""
        n_sessions = min(first.head.next_number, _MOST_EXPECTED * len(first.records))
        self._reserve(n_sessions * len(first.units) // max(len(first.records), 1))
        self._windows = grown(self._windows, n_sessions * len(first.windows) // max(len(first.records), 1))

    def stage(self, batch: Batch) -> None:
        """Take over new sessions that are not stored yet: they count in the statistics, and are not to be returned."""
        self._take(batch)
        for record in batch.records:
            self.by_slot.stage(self.sessions[record.session_id].slot)

    def publish(self, head: Head) -> None:
        """Make visible what was staged: it is stored."""
        self.by_slot.publish()
        self.head = head

    def _take(self, batch: Batch) -> None:
        self._layout = None
        for record in batch.records:
            self._apply_record(record)
        self._reserve(self.n_nodes + len(batch.units))
        nodes = np.array([self._put_unit(unit) for unit in batch.units], np.intp)
        self.graph.add_nodes(self.n_nodes - self.graph.n_nodes)
        said = [(node, unit) for node, unit in zip(nodes.tolist(), batch.units, strict=True) if unit.text]
        self.lexical.add_many(
            [node for node, _ in said],
            [unit.granularity.axis for _, unit in said],
            tokenize_all(unit.text for _, unit in said),
        )
        if len(nodes):
            self._vectors[nodes] = batch.vectors
            self._put_windows(nodes, batch)
        self._put_associations(batch)
        self._drop_nodes([self._node_of[uid] for uid in batch.obsolete if uid in self._node_of])

    def _apply_record(self, record: SessionRecord) -> None:
        if record.is_deleted:
            if (gone := self.of_sequence(record.sequence)) is not None:
                self._drop_session(gone)
            self.tombstones.pop(record.sequence, None)
            if record.metadata is not None:
                self.tombstones[record.sequence] = record
            return
        state = self.sessions.get(record.session_id)
        if state is not None and state.record.sequence != record.sequence:
            self._drop_session(state)
            state = None
        if state is None:
            state = SessionState(record, len(self._slots))
            self._slots.append(state)
            self.sessions[record.session_id] = state
            if record.conversation_id is not None:
                self._conversations.setdefault(record.conversation_id, []).append(state)
        elif state.record.generation != record.generation:
            self._drop_nodes(state.all_nodes())
            state.nodes = {g: {} for g in GRANULARITIES}
            state.keys, state.exchange_starts, state.last_exchange = [], {}, None
        state.record = record
        self.by_slot.put(state.slot, record)

    def _drop_session(self, state: SessionState) -> None:
        self._drop_nodes(state.all_nodes())
        self._slots[state.slot] = None
        self.by_slot.drop(state.slot)
        del self.sessions[state.record.session_id]
        if state.record.conversation_id is not None:
            self._conversations[state.record.conversation_id].remove(state)

    def _put_unit(self, unit: MemoryUnit) -> int:
        """Make or renew a unit's node."""
        node = self._node_of.get(unit.id)
        state = self.sessions[unit.session_id]
        if node is None:
            node = self._new_node(unit, state)
        else:
            self.words.forget(unit.id)
            self._window_node[: self.n_windows][self._window_node[: self.n_windows] == node] = -1
            self.graph.clear_sources(np.array([node]))
        self._alive[node] = bool(unit.text)
        if not unit.text:
            self.lexical.remove(node)
        if unit.granularity is Granularity.TURN:
            self._put_turns(unit, state)
        return node

    def _new_node(self, unit: MemoryUnit, state: SessionState) -> int:
        node = self.n_nodes
        self._ids.append(unit.id)
        self._node_of[unit.id] = node
        self._granularity[node] = unit.granularity.axis
        self._session[node] = state.slot
        self._age[node] = (state.record.sequence << _SEQUENCE_AT) | (unit.granularity.axis << 32) | unit.position
        state.nodes[unit.granularity][unit.position] = node
        self.n_nodes += 1
        return node

    @staticmethod
    def _put_turns(unit: MemoryUnit, state: SessionState) -> None:
        if not unit.spans:
            return  # it stands where a row was lost; which turns those were is not known
        keys = [turn_key(turn) for turn in turns_of([unit])]
        lost = unit.first_turn - len(state.keys)
        state.keys += [TurnKey(NO_ID, TOMBSTONE)] * lost
        state.keys[unit.first_turn :] = keys
        state.exchange_starts[unit.position] = unit.first_turn
        state.last_exchange = unit

    def _put_windows(self, nodes: NDArray[np.intp], batch: Batch) -> None:
        n_new = len(batch.windows)
        if not n_new:
            return
        end = self.n_windows + n_new
        self._windows = grown(self._windows, end)
        self._window_node = grown(self._window_node, end)
        self._windows[self.n_windows : end] = batch.windows
        self._window_node[self.n_windows : end] = nodes[batch.window_owners]
        self.n_windows = end

    def _put_associations(self, batch: Batch) -> None:
        """Add edges to the graph; one whose target is not here yet waits for it."""
        node_of = self._node_of
        sources: list[int] = []
        names: list[str] = []
        weights: list[float] = []
        for source_id, associations in batch.associations.items():
            sources += [node_of[source_id]] * len(associations)
            if isinstance(associations, Associations):
                names += associations.targets
                weights += associations.similarities
            else:
                names += [association.target for association in associations]
                weights += [association.similarity for association in associations]
        targets = [node_of.get(name, -1) for name in names]
        for at in (place for place, target in enumerate(targets) if target < 0):
            self._waiting.setdefault(names[at], []).append((sources[at], weights[at]))
        if self._waiting:
            for unit in batch.units:
                for source, weight in self._waiting.pop(unit.id, ()):
                    sources.append(source)
                    targets.append(node_of[unit.id])
                    weights.append(weight)
        if sources:
            ends = np.array([sources, targets])
            is_shown = (ends[1] >= 0) & self._alive[ends].all(axis=0)
            starts, stops = ends[:, is_shown]
            self.graph.add_edges(starts, stops, np.array(weights, np.float32)[is_shown])

    def _drop_nodes(self, nodes: Sequence[int]) -> None:
        if not nodes:
            return
        gone = np.array(nodes, np.intp)
        self._alive[gone] = False
        self._vectors[gone] = 0
        self.graph.drop_nodes(gone)
        current = self._window_node[: self.n_windows]
        current[np.isin(current, gone)] = -1
        for node in nodes:
            self.lexical.remove(node)
            self.words.forget(self._ids[node])
            self._node_of.pop(self._ids[node], None)
            owner = self._slots[self._session[node]]
            if owner is not None:
                by_position = owner.nodes[GRANULARITIES[self._granularity[node]]]
                if by_position.get(self.position(node)) == node:
                    del by_position[self.position(node)]

    def _reserve(self, n_nodes: int) -> None:
        self._vectors = grown(self._vectors, n_nodes)
        self._granularity = grown(self._granularity, n_nodes)
        self._session = grown(self._session, n_nodes)
        self._age = grown(self._age, n_nodes)
        self._alive = grown(self._alive, n_nodes)


_POSITION = (1 << 32) - 1
_MOST_EXPECTED = 1_000  # pages: numbers of sessions that were deleted count, too
_SEQUENCE_AT = 34


def total(counted: Sequence[Stats]) -> Stats:
    """Add up the counts of several namespaces."""
    return Stats(
        sum(one.n_namespaces for one in counted),
        sum(one.n_sessions for one in counted),
        sum(one.n_open for one in counted),
        sum(one.n_pending for one in counted),
        sum(one.n_turns for one in counted),
        {g.value: sum(one.n_units[g.value] for one in counted) for g in GRANULARITIES},
        sum(one.n_associations for one in counted),
        sum(one.n_windows for one in counted),
    )


def load(namespace: str, n_dims: int, batches: Iterable[Batch], *, k1: float, b: float) -> NamespaceIndex:
    """Build the mirror of a namespace from what its store yields."""
    index = NamespaceIndex(namespace, n_dims, k1=k1, b=b)
    for batch in batches:
        if not index.n_nodes:
            index.expect(batch)
        index.apply(batch)
    index.graph.sort()
    index.lexical.settle()
    return index
