"""Sessions as they are stored: found in the mirror, their words fetched from the store."""

from __future__ import annotations

from collections.abc import Mapping

from memgas.errors import NotFoundError
from memgas.index import NamespaceIndex, SessionState
from memgas.protocols import FetchesNamed, Store
from memgas.types import Digest, Granularity, MemoryUnit, Session, Turn
from memgas.units import turns_of

_LOST = Turn("unknown", "")  # stands for a turn whose row a repair could not bring back


def find(index: NamespaceIndex, session_id: str) -> SessionState:
    """Return a session that is visible; raise NotFoundError if there is none."""
    state = index.visible(session_id)
    if state is None:
        raise NotFoundError(f"there is no session {session_id!r} in this namespace")
    return state


def fetch_named(store: Store, namespace: str, granularities: Mapping[str, Granularity]) -> list[MemoryUnit]:
    """Fetch units whose granularities are known, in any order."""
    if not isinstance(store, FetchesNamed):
        return store.fetch(namespace, list(granularities))
    named: dict[Granularity, list[str]] = {}
    for uid, granularity in granularities.items():
        named.setdefault(granularity, []).append(uid)
    return store.fetch_named(namespace, named)


def fetch_turns(store: Store, index: NamespaceIndex, state: SessionState) -> tuple[Turn, ...]:
    """Return all turns of a session, tombstones included."""
    nodes = state.nodes[Granularity.TURN]
    ids = [index.unit_id(nodes[position]) for position in sorted(nodes)]
    turns: list[Turn] = []
    for unit in store.fetch(index.namespace, ids) if ids else ():
        turns += [_LOST] * (unit.first_turn - len(turns))
        turns += turns_of([unit])
    return tuple(turns)


def fetch_digest(store: Store, index: NamespaceIndex, state: SessionState) -> Digest | None:
    """Return a session's digest, stale or not."""
    source = state.record.digest_source
    if not source:
        return None
    ids = [
        index.unit_id(node)
        for granularity in (Granularity.SUMMARY, Granularity.KEYWORD)
        for node in state.nodes[granularity].values()
    ]
    texts = {unit.granularity: unit.text for unit in store.fetch(index.namespace, ids)} if ids else {}
    keywords = tuple(word for word in texts.get(Granularity.KEYWORD, "").split("; ") if word)
    return Digest(texts.get(Granularity.SUMMARY, ""), keywords, source)


def fetch_session(store: Store, index: NamespaceIndex, state: SessionState) -> Session:
    """Return a session with its words; under the namespace's guard."""
    record = state.record
    return Session(
        record.namespace, record.session_id, fetch_turns(store, index, state), record.happened_at, record.added_at,
        record.metadata, record.conversation_id, fetch_digest(store, index, state), record.is_open, record.is_pending,
        record.kind, record.sequence,
    )  # fmt: skip
