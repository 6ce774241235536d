"""MemGAS: the public face. The steps of a write are in `remembering.py`, those of a retrieval in `recalling.py`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Literal, Self

import numpy as np

from memgas import opening, reembedding, transfer
from memgas.aio import twin
from memgas.checks import (
    check_count,
    check_granularities,
    check_kinds,
    check_name,
    check_places,
    check_query,
    check_session_ids,
    check_share,
    check_time,
    check_vector,
    clean_turns,
)
from memgas.config import MemGASConfig
from memgas.conversations import Conversations
from memgas.digests import Digests
from memgas.errors import ClosedError, InvalidInputError
from memgas.fingerprint import Fingerprint
from memgas.index import total
from memgas.logs import logged
from memgas.models import load_embedder
from memgas.models.calls import SafeEmbedder, SafeLLM
from memgas.protocols import LLM, Embedder, Store
from memgas.recalling import Recalling
from memgas.remembering import Remembering
from memgas.request import Request
from memgas.retrieval import Retrieval
from memgas.sessions import Sessions
from memgas.types import GRANULARITIES, JSON, Added, Granularity, Kind, NewSession, Session, SessionRecord, Stats, Turn
from memgas.where import Where, check_where, matches
from memgas.why_not import WhyNot, with_verdict
from memgas.workspace import Workspace, unshare

if TYPE_CHECKING:
    import networkx as nx
    from chromadb.api import ClientAPI
    from numpy.typing import NDArray


class MemGAS:
    """Long-term memory: keeps every word, finds the right one, shows why.

    Parameters
    ----------
    path
        A folder, made if it is missing: Chroma on disk. Opened twice in one process it is shared.
    client
        A Chroma client instead, such as `chromadb.HttpClient(...)`.
    store
        A store instead; closed with the memory.
    embedder
        Any object with the members of `Embedder`, or the name of one in `memgas.models`. None: the offline default.
    llm
        Any object with the members of `LLM`, for digests and the filter. None: digests by extraction, no filter.
    config
        Settings.
    collection_prefix
        Begins the names of the Chroma collections.
    clock
        Tells the time, with a zone.

    Raises
    ------
    MissingExtraError
        The embedder's package is not installed.
    InvalidInputError
        Not exactly one of `path`, `client`, `store` was given.
    StoreLockedError
        Another process has the folder open.
    StoreMismatchError
        The store was made with another embedder.

    Notes
    -----
    `namespace` is whose memory it is, and is always given. Every method has an async twin with an `a` in front. All may
    be called from any thread.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        client: ClientAPI | None = None,
        store: Store | None = None,
        embedder: Embedder | str | None = None,
        llm: LLM | None = None,
        config: MemGASConfig | None = None,
        collection_prefix: str = "memgas",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.config = config or MemGASConfig()
        chosen = load_embedder(embedder or "fast-use") if embedder is None or isinstance(embedder, str) else embedder
        self.embedder = SafeEmbedder(chosen, batch_size=32)
        self.llm = None if llm is None else SafeLLM(llm)
        self._clock: Callable[[], datetime] = lambda: check_time(clock(), "what clock returns")
        self._key, self._shared, self._known = opening.open_workspace(
            path, client, store, embedder=self.embedder, config=self.config, collection_prefix=collection_prefix
        )
        self._is_closed = False
        remembering = self._remembering = Remembering(lambda: self._workspace, self.embedder, self.config)
        self._digests = Digests(lambda: self._workspace, remembering, self.llm, self.config, self._clock)
        self._sessions = Sessions(
            lambda: self._workspace, remembering, self._digests, self.llm, self.config, self._clock
        )
        self._conversations = Conversations(
            lambda: self._workspace, remembering, self._digests, self.config, self._clock
        )
        self._recalling = Recalling(lambda: self._workspace, self.embedder, self.llm, self.config)

    @classmethod
    def in_memory(
        cls,
        *,
        embedder: Embedder | str | None = None,
        llm: LLM | None = None,
        config: MemGASConfig | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> Self:
        """Open a memory that lasts as long as the process."""
        from memgas.stores.in_memory import InMemoryStore

        return cls(store=InMemoryStore(), embedder=embedder, llm=llm, config=config, clock=clock)

    @classmethod
    def reembed(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        client: ClientAPI | None = None,
        embedder: Embedder | str,
        config: MemGASConfig | None = None,
        collection_prefix: str = "memgas",
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Move a store to another embedder; return how many sessions were embedded.

        Everything is embedded from the stored text, and associated anew; ids stay. A call that was cut short is gone on
        with by the next one; until it is finished the store cannot be opened. Called with the store's own embedder it
        gives the move up.

        Parameters
        ----------
        path, client, collection_prefix
            Of the store, which nothing else may have open.
        embedder
            The one to move to.
        progress
            Called with the number of a namespace's sessions done so far.

        Raises
        ------
        InvalidInputError
            Not exactly one of `path` and `client` was given.
        StoreLockedError
            The store is open.
        EmbedderError
            What was done is kept for the next call.
        """
        chosen = SafeEmbedder(load_embedder(embedder) if isinstance(embedder, str) else embedder, batch_size=32)
        with opening.opened_alone(path, client, collection_prefix=collection_prefix) as store:
            return reembedding.reembed(store, chosen, config or MemGASConfig(), progress)

    # writing

    @logged
    def add(
        self,
        turns: Sequence[Turn],
        *,
        namespace: str,
        session_id: str | None = None,
        happened_at: datetime | None = None,
        metadata: JSON = None,
        kind: Kind = "chat",
    ) -> Added:
        """Remember a whole session.

        The same turns again change nothing and call no model; stored turns as a prefix let the session grow by the
        rest.

        Parameters
        ----------
        turns
            In order. May be empty for an item.
        session_id
            None: a new random one.
        happened_at
            When it began, with a time zone. None: now.
        metadata
            One JSON value.
        kind
            An item is outside chat recall unless asked for.

        Raises
        ------
        InvalidInputError
            Blank or missing turns, a blank namespace, a naive time, metadata that is not JSON.
        SessionConflictError
            Other turns are stored under this id.
        EmbedderError
            Nothing was written. (A failing LLM leaves the session pending instead: see `Added.degraded`.)
        StoreError
            Nothing was written.
        """
        return self.add_many([NewSession(turns, session_id, happened_at, metadata, None, kind)], namespace=namespace)[0]

    @logged
    def add_many(
        self,
        sessions: Iterable[NewSession],
        *,
        namespace: str,
        progress: Callable[[int], None] | None = None,
    ) -> list[Added]:
        """Remember many sessions, in order; the result is that of adding them one by one.

        Parameters
        ----------
        sessions
            Written a few at a time: after an error the first ones may be stored, and the same call again is harmless.
        progress
            Called with the number of sessions written so far.
        """
        check_name(namespace, "namespace")
        self._fingerprint()
        return self._sessions.add(namespace, sessions, progress)

    @logged
    def append(
        self,
        turns: Turn | Sequence[Turn],
        *,
        namespace: str,
        conversation_id: str | None = None,
        session_id: str | None = None,
        at: int | None = None,
    ) -> Added:
        """Remember turns the moment they are said.

        Parameters
        ----------
        turns
            The next ones. A turn whose message id is known is skipped.
        conversation_id
            A thread: a series of sessions `thread`, `thread#2`, ...; the next one begins after idle time or when full.
        session_id
            One session instead, however long; a closed one is opened again.
        at
            Position of the first turn, for callers without message ids: what is stored there already is skipped.

        Raises
        ------
        InvalidInputError
            As for `add`; not exactly one of `conversation_id` and `session_id`; a negative `at`.
        SessionConflictError
            Another text is stored under the same message id, or at the same position.
        """
        check_name(namespace, "namespace")
        given = clean_turns([turns] if isinstance(turns, Turn) else turns)
        if (conversation_id is None) == (session_id is None):
            raise InvalidInputError("exactly one of conversation_id and session_id is needed")
        if at is not None and (isinstance(at, bool) or not isinstance(at, int) or at < 0):
            raise InvalidInputError(f"at must be a position from 0 on; got {at!r}")
        self._fingerprint()
        if conversation_id is not None:
            return self._conversations.converse(namespace, check_name(conversation_id, "conversation_id"), given, at)
        return self._conversations.append(namespace, check_name(session_id, "session_id"), given, at)

    @logged
    def close_session(self, session_id: str, *, namespace: str) -> None:
        """End a session; its digest follows in the background. A closed one stays closed.

        Raises
        ------
        NotFoundError
            There is no such session.
        """
        self._conversations.close_session(check_name(namespace, "namespace"), check_name(session_id, "session_id"))

    @logged
    def replace_session(
        self,
        turns: Sequence[Turn],
        *,
        namespace: str,
        session_id: str,
        happened_at: datetime | None = None,
        metadata: JSON = None,
        kind: Kind = "chat",
    ) -> Added:
        """Remember these turns in place of whatever the session held. `happened_at` None: as it was."""
        check_name(namespace, "namespace")
        check_name(session_id, "session_id")
        self._fingerprint()
        return self._sessions.replace(namespace, NewSession(turns, session_id, happened_at, metadata, None, kind))

    @logged
    def digest_pending(self, *, namespace: str | None = None) -> int:
        """Make the digests that are missing or stale, now; return how many were made. None: in every namespace."""
        self._fingerprint()
        names = self.namespaces() if namespace is None else [check_name(namespace, "namespace")]
        return sum(self._digests.make_pending(name) for name in names)

    # forgetting

    @logged
    def delete_turn(self, session_id: str, position: int, *, namespace: str) -> None:
        """Forget one turn. Its place and message id stay, so that nothing is renumbered and a retry does not revive it.

        Raises
        ------
        NotFoundError
            There is no such session, or no turn at that position.
        """
        check_name(namespace, "namespace")
        self._sessions.delete_turn(namespace, check_name(session_id, "session_id"), position)

    @logged
    def delete_session(self, session_id: str, *, namespace: str) -> None:
        """Forget a session; raise NotFoundError if there is none."""
        check_name(namespace, "namespace")
        self._sessions.delete_sessions(namespace, session_id=check_name(session_id, "session_id"))

    @logged
    def delete_conversation(self, conversation_id: str, *, namespace: str) -> None:
        """Forget all sessions of a conversation; one that never was is fine."""
        check_name(namespace, "namespace")
        self._sessions.delete_sessions(namespace, conversation_id=check_name(conversation_id, "conversation_id"))

    @logged
    def delete_namespace(self, namespace: str) -> None:
        """Forget everything of a namespace; one that never was is fine."""
        self._workspace.forget(check_name(namespace, "namespace"))

    @logged
    def erase(self, namespace: str | None = None) -> None:
        """Remove the bytes of what was deleted from the disk; what was not deleted stays. Takes seconds.

        Parameters
        ----------
        namespace
            Of what was deleted there. None: of everything. (The files are shared, so that all of them are written anew
            either way.)

        Raises
        ------
        StoreError
            The memory is on a Chroma server, whose files are not ours: the message says how to erase there.
        """
        if namespace is not None:
            check_name(namespace, "namespace")
        self._workspace.store.erase()

    # reading

    @logged
    def retrieve(  # noqa: PLR0913 (keyword-only options of the public face)
        self,
        query: str,
        *,
        namespace: str,
        top_k: int = 5,
        asked_at: datetime | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        min_score: float = 0.0,
        where: Where | None = None,
        exclude_sessions: Collection[str] = (),
        exclude_turns: Collection[tuple[str, int]] = (),
        granularities: Collection[Granularity | str] = GRANULARITIES,
        filter: Literal["llm"] | None = None,
        kind: Kind | None = "chat",
        query_vector: Sequence[float] | NDArray[np.float32] | None = None,
    ) -> Retrieval:
        """Find the sessions that matter for a query, best first.

        Parameters
        ----------
        query
            What is asked.
        top_k
            Most hits.
        asked_at
            When it is asked, with a time zone: "two weeks ago" in the query counts from here. None: now.
        since, until
            Bounds on when a session happened, both included.
        min_score
            Hits below this absolute score are left out; an irrelevant query scores low everywhere.
        where
            Session metadata: key to value, or to `$eq $ne $gt $gte $lt $lte`.
        exclude_sessions, exclude_turns
            Session ids, and (session id, position) pairs, that must not come back.
        granularities
            Which kinds of units may be found.
        filter
            "llm": let the LLM drop what does not help.
        kind
            None: chats and items.
        query_vector : (n_dims,)
            Spares embedding the query; its text still feeds BM25 and the filter.

        Raises
        ------
        InvalidInputError
            A blank query or namespace, `top_k` below 1, a naive time, an unknown operator or granularity, "llm" without
            an LLM.
        ShapeError
            `query_vector` has another width.
        EmbedderError
            The query could not be embedded.
        """
        request = self._request(
            query, namespace, top_k=top_k, asked_at=asked_at, since=since, until=until, min_score=min_score, where=where,
            exclude_sessions=exclude_sessions, exclude_turns=exclude_turns, granularities=granularities, kind=kind,
        )  # fmt: skip
        vector = self._checked(filter, query_vector)
        if not self._sessions.has_words(request.namespace):
            return self._recalling.nothing(request)
        found = self._recalling.retrieve(request, self._fingerprint_for(vector), vector)
        return self._recalling.filtered(found, request.asked_at) if filter == "llm" else found

    @logged
    def explain(  # noqa: PLR0913 (those of `retrieve`)
        self,
        query: str,
        *,
        namespace: str,
        session_id: str,
        top_k: int = 5,
        asked_at: datetime | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        min_score: float = 0.0,
        where: Where | None = None,
        exclude_sessions: Collection[str] = (),
        exclude_turns: Collection[tuple[str, int]] = (),
        granularities: Collection[Granularity | str] = GRANULARITIES,
        filter: Literal["llm"] | None = None,
        kind: Kind | None = "chat",
        query_vector: Sequence[float] | NDArray[np.float32] | None = None,
    ) -> WhyNot:
        """Tell why a session is not among the hits of a query: where it was lost, by how much, what would bring it in.

        Parameters
        ----------
        session_id
            The one that is missed. One of another namespace is not found.
        query, top_k, asked_at, since, until, min_score, where, exclude_sessions, exclude_turns, granularities, filter, \
        kind, query_vector
            As for `retrieve`.

        Notes
        -----
        Each setting alone is tried on the grid in `settings_grid.py`, the nearest value first; nothing is assumed to be
        monotone. With `filter="llm"` a session that comes in is asked about once, and one that does not is not.
        """
        request = self._request(
            query, namespace, top_k=top_k, asked_at=asked_at, since=since, until=until, min_score=min_score, where=where,
            exclude_sessions=exclude_sessions, exclude_turns=exclude_turns, granularities=granularities, kind=kind,
        )  # fmt: skip
        vector = self._checked(filter, query_vector)
        check_name(session_id, "session_id")
        told = self._recalling.why_not(request, session_id, self._fingerprint_for(vector), vector)
        if filter != "llm" or told.stage != "found":
            return told
        found = self._recalling.retrieve(request, self._fingerprint_for(vector), vector)
        return with_verdict(told, self._recalling.filtered(found, request.asked_at).trace.verdict)

    @logged
    def get(self, session_id: str, *, namespace: str) -> Session:
        """Return a session with all its turns; raise NotFoundError if there is none."""
        return self._sessions.get(check_name(namespace, "namespace"), check_name(session_id, "session_id"))

    @logged
    def list_sessions(
        self,
        *,
        namespace: str,
        conversation_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Where | None = None,
        kind: Kind | None = "chat",
    ) -> list[SessionRecord]:
        """List sessions without their words, in the order they were added."""
        low = None if since is None else check_time(since, "since")
        high = None if until is None else check_time(until, "until")
        condition, kinds = check_where(where), check_kinds(kind)
        with self._workspace.reading(check_name(namespace, "namespace")) as index:
            records = [state.record for state in index.visible_sessions()]
        return [
            record
            for record in records
            if (conversation_id is None or record.conversation_id == conversation_id)
            and (low is None or record.happened_at >= low)
            and (high is None or record.happened_at <= high)
            and record.kind in kinds
            and matches(record.metadata, condition)
        ]

    @logged
    def namespaces(self) -> list[str]:
        """List the namespaces that hold a session, sorted."""
        return self._workspace.store.namespaces()

    @logged
    def graph(self, namespace: str) -> nx.Graph[str]:
        """Return the association graph: unit ids with `session_id`, `granularity`, `position`; edges with `similarity`."""
        import networkx

        graph: nx.Graph[str] = networkx.Graph()
        with self._workspace.reading(check_name(namespace, "namespace")) as index:
            for state in index.visible_sessions():
                for granularity, by_position in state.nodes.items():
                    for position, node in by_position.items():
                        graph.add_node(
                            index.unit_id(node), session_id=state.record.session_id, granularity=granularity.value,
                            position=position,
                        )  # fmt: skip
            for edge in index.associations():
                if edge.source in graph and edge.target in graph:
                    graph.add_edge(edge.source, edge.target, similarity=edge.similarity)
        return graph

    @logged
    def stats(self, namespace: str | None = None) -> Stats:
        """Count what is held. None: all namespaces together."""
        names = self.namespaces() if namespace is None else [check_name(namespace, "namespace")]
        counted = []
        for name in names:
            with self._workspace.reading(name) as index:
                counted.append(index.stats())
        return total(counted)

    # moving

    @logged
    def export_jsonl(self, target: str | os.PathLike[str] | IO[str], *, namespace: str) -> int:
        """Write a namespace as JSONL, a session a line; return the number of sessions."""
        check_name(namespace, "namespace")
        fingerprint = Fingerprint.from_json(self._workspace.store.meta())
        lines = transfer.export_lines(self._workspace, namespace, fingerprint)
        if not isinstance(target, (str, os.PathLike)):
            return transfer.write_lines(target, lines)
        with Path(target).open("w", encoding="utf-8") as file:
            return transfer.write_lines(file, lines)

    @logged
    def import_jsonl(
        self,
        source: str | os.PathLike[str] | Iterable[str],
        *,
        namespace: str,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Read what `export_jsonl` wrote into a namespace; return the number of sessions that were new.

        Texts are embedded again. Associations are kept if the embedder is the one of the export, else computed anew. A
        session that is there already is skipped.

        Raises
        ------
        InvalidInputError
            A line cannot be used; the message names it. Lines before it may be stored, and importing again is harmless.
        SessionConflictError
            Other turns are stored under a session's id.
        """
        check_name(namespace, "namespace")
        fingerprint = self._fingerprint()
        if not isinstance(source, (str, os.PathLike)):
            return transfer.import_lines(self._sessions, namespace, source, fingerprint, progress)
        with Path(source).open(encoding="utf-8-sig") as file:
            return transfer.import_lines(self._sessions, namespace, file, fingerprint, progress)

    # care

    @logged
    def check(self) -> list[str]:
        """List what is wrong with the store, in words; nothing when all is well."""
        return self._workspace.store.check()

    @logged
    def repair(self) -> list[str]:
        """Mend what `check` finds as far as possible, and embed what has no vector; list what was done."""
        return reembedding.repair(self._workspace, self._remembering)

    def close(self) -> None:
        """Finish the digests that are due and let go of the store. Twice is fine."""
        if not self._is_closed:
            self._shared.drain()
            self._is_closed = True
            unshare(self._key, self._shared)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Do what `close` does, without blocking the event loop."""
        # Not on the memory's own threads: they end with it.
        import asyncio

        await asyncio.to_thread(self.close)

    @property
    def _pool(self) -> Executor:
        return self._workspace.pool

    @property
    def _workspace(self) -> Workspace:
        if self._is_closed:
            raise ClosedError("this memory is closed; open it again with MemGAS(...)")
        return self._shared

    def _request(
        self, query: str, namespace: str, *, top_k: int, asked_at: datetime | None, since: datetime | None,
        until: datetime | None, min_score: float, where: Where | None, exclude_sessions: Collection[str],
        exclude_turns: Collection[tuple[str, int]], granularities: Collection[Granularity | str], kind: Kind | None,
    ) -> Request:  # fmt: skip
        """Check the arguments of `retrieve`."""
        return Request(
            check_query(query),
            check_name(namespace, "namespace"),
            check_count(top_k, "top_k"),
            self._clock() if asked_at is None else check_time(asked_at, "asked_at"),
            None if since is None else check_time(since, "since"),
            None if until is None else check_time(until, "until"),
            check_share(min_score, "min_score"),
            check_where(where),
            check_session_ids(exclude_sessions),
            check_places(exclude_turns),
            check_granularities(granularities),
            check_kinds(kind),
        )

    def _checked(
        self, filter: Literal["llm"] | None, query_vector: Sequence[float] | NDArray[np.float32] | None
    ) -> NDArray[np.float32] | None:
        """Check the other arguments of `retrieve`; return the vector."""
        if filter not in (None, "llm") or (filter == "llm" and self.llm is None):
            raise InvalidInputError(f'filter must be None, or "llm" with MemGAS(llm=...); got {filter!r}')
        return None if query_vector is None else check_vector(query_vector, self.embedder.n_dims)

    def _fingerprint(self) -> Fingerprint:
        """Return the store's fingerprint, checked once against the embedder."""
        if self._known is None:
            self._known = opening.fingerprint_of(self._workspace, self.embedder, self.config)
        return self._known

    def _fingerprint_for(self, query_vector: NDArray[np.float32] | None) -> Fingerprint:
        """Return the store's fingerprint; a query that is embedded already needs no embedder to be there."""
        if self._known is None and query_vector is not None:
            stored = Fingerprint.from_json(self._workspace.store.meta())
            if stored is not None:
                return stored
        return self._fingerprint()

    aadd = twin(add)
    aadd_many = twin(add_many)
    aappend = twin(append)
    aclose_session = twin(close_session)
    areplace_session = twin(replace_session)
    adigest_pending = twin(digest_pending)
    adelete_turn = twin(delete_turn)
    adelete_session = twin(delete_session)
    adelete_conversation = twin(delete_conversation)
    adelete_namespace = twin(delete_namespace)
    aerase = twin(erase)
    aretrieve = twin(retrieve)
    aexplain = twin(explain)
    aget = twin(get)
    alist_sessions = twin(list_sessions)
    anamespaces = twin(namespaces)
    agraph = twin(graph)
    astats = twin(stats)
    aexport_jsonl = twin(export_jsonl)
    aimport_jsonl = twin(import_jsonl)
    acheck = twin(check)
    arepair = twin(repair)
