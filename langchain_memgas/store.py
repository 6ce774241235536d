"""`MemGASStore`: LangGraph's long-term store, with semantic search through MemGAS."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, cast

from langchain_memgas._models import AnyEmbedder, open_memory
from memgas import InvalidInputError, MemGAS, NotFoundError, SessionRecord, Turn
from memgas.checks import check_name, is_blank
from memgas.extras import require_extra
from memgas.types import JSON

require_extra("langgraph.store.base", extra="langchain", purpose="MemGASStore")

from langgraph.store.base import (  # noqa: E402
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)
from langgraph.store.base.embed import get_text_at_path  # noqa: E402

Path = tuple[str, ...]
Metadata = Mapping[str, JSON]


class MemGASStore(BaseStore):
    """Keep LangGraph's items in a memory: one namespace of it is the tenant, and nothing leads out of it.

    An item is found by what its indexed fields say, and stays out of the recall of chats. With a query, `search` returns
    the best first, with an absolute score in [0, 1]; items that are not indexed follow, without a score.

    Parameters
    ----------
    memory
        An open memory.
    namespace
        Of the memory: whose store this is. LangGraph's namespace paths and keys live inside it.
    fields
        What is indexed of an item unless `put` says so: paths such as "text" or "messages[*].content". "$" is all of it.

    Notes
    -----
    Values are JSON. There is no time to live. Unlike `InMemoryStore`, an update keeps `created_at`, a namespace whose
    items are all deleted is no longer listed, and a filter operator that is not known raises.
    """

    def __init__(self, memory: MemGAS, *, namespace: str, fields: Sequence[str] = ("$",)) -> None:
        if isinstance(fields, str):
            raise InvalidInputError(f'fields is a list of paths, such as ["{fields}"]; got {fields!r}')
        self.memory = memory
        self._tenant = check_name(namespace, "namespace")
        self._fields = tuple(fields)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        namespace: str,
        embeddings: AnyEmbedder | None = None,
        fields: Sequence[str] = ("$",),
    ) -> AsyncIterator[MemGASStore]:
        """Open a store in a folder, and close it at the end: what a deployed graph names as its store."""
        memory = await asyncio.to_thread(open_memory, path, embeddings=embeddings)
        async with memory:
            yield cls(memory, namespace=namespace, fields=fields)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations; their results are in the same order.

        Reads see what was there before the batch. Of several puts of one key the last one counts.

        Raises
        ------
        InvalidNamespaceError
            A label is empty, not text, or has a "." in it. Nothing was done.
        InvalidInputError
            A value is not JSON, or a filter has an unknown operator.
        NotImplementedError
            A time to live was asked for.
        """
        given = list(ops)
        for op in given:
            _check(op)
        reads = [self._read(op) for op in given]
        puts = {(op.namespace, str(op.key)): op for op in given if isinstance(op, PutOp)}
        for op in puts.values():
            self._put(op)
        return reads

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do what `batch` does, without blocking the event loop."""
        return await asyncio.to_thread(self.batch, list(ops))

    # reading

    def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                return self._get(op)
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                return self._list_namespaces(op)
        return None

    def _get(self, op: GetOp) -> Item | None:
        try:
            session = self.memory.get(_session_id(op.namespace, str(op.key)), namespace=self._tenant)
        except NotFoundError:
            return None
        held = cast("Metadata", session.metadata)
        return Item(**_fields_of(held), created_at=session.added_at, updated_at=_updated(held))

    def _search(self, op: SearchOp) -> list[SearchItem]:
        if op.limit < 1:
            return []
        records = self.memory.list_sessions(namespace=self._tenant, kind="item")
        wanted = [record for record in records if _is_under(record, op.namespace_prefix) and _passes(record, op.filter)]
        if op.query is None or is_blank(op.query):
            return [_found(record, None) for record in wanted[op.offset : op.offset + op.limit]]
        return self._rank(op.query, records, wanted, op.offset, op.limit)

    def _rank(
        self, query: str, records: Sequence[SessionRecord], wanted: Sequence[SessionRecord], offset: int, limit: int
    ) -> list[SearchItem]:
        """Return the wanted items by what they say; those that say nothing follow."""
        by_id = {record.session_id: record for record in wanted}
        if not by_id:
            return []
        others = {record.session_id for record in records} - set(by_id)
        found = self.memory.retrieve(
            query, namespace=self._tenant, top_k=offset + limit, kind="item", exclude_sessions=others
        )
        scores = {hit.session_id: hit.score for hit in found.hits if hit.session_id in by_id}
        ranked: list[SearchItem] = [_found(by_id[session_id], score) for session_id, score in scores.items()]
        ranked += [_found(record, None) for record in wanted if not record.n_turns]
        return ranked[offset : offset + limit]

    def _list_namespaces(self, op: ListNamespacesOp) -> list[Path]:
        paths = {_path(record) for record in self.memory.list_sessions(namespace=self._tenant, kind="item")}
        for condition in op.match_conditions or ():
            paths = {path for path in paths if _matches(path, condition)}
        if op.max_depth is not None:
            paths = {path[: op.max_depth] for path in paths}
        return sorted(paths)[op.offset : op.offset + op.limit]

    # writing

    def _put(self, op: PutOp) -> None:
        key = str(op.key)
        session_id = _session_id(op.namespace, key)
        if op.value is None:
            try:
                self.memory.delete_session(session_id, namespace=self._tenant)
            except NotFoundError:
                return  # as every store has it
            return
        value = dict(op.value)
        metadata: JSON = {
            "namespace": list(op.namespace), "key": key, "value": value, "updated_at": datetime.now(UTC).isoformat(),
        }  # fmt: skip
        self.memory.replace_session(
            self._turns(value, op.index), namespace=self._tenant, session_id=session_id, metadata=metadata, kind="item"
        )

    def _turns(self, value: Mapping[str, Any], index: bool | list[str] | None) -> list[Turn]:
        """Return what an item is found by."""
        if index is False:
            return []
        fields = self._fields if index is None or index is True else index
        texts = [
            (field, text)
            for field in fields
            for text in ([_whole(value)] if field == "$" else get_text_at_path(value, field))
        ]
        return [Turn("item" if field == "$" else field, text) for field, text in texts if not is_blank(text)]


def _check(op: object) -> None:
    """Raise unless an operation can be carried out."""
    if not isinstance(op, (GetOp, PutOp, SearchOp, ListNamespacesOp)):
        raise InvalidInputError(f"operations are GetOp, PutOp, SearchOp and ListNamespacesOp; got {type(op).__name__}")
    validate_op_namespace(op)
    if isinstance(op, PutOp) and op.ttl is not None:
        raise NotImplementedError("MemGASStore has no time to live; delete what is no longer wanted")
    if isinstance(op, SearchOp):
        _check_filter(op.filter)


def _session_id(path: Path, key: str) -> str:
    """Name the session of an item: fixed width, and never a chat's."""
    return f"item-{blake2b(json.dumps([*path, key]).encode(), digest_size=16).hexdigest()}"


def _whole(value: Mapping[str, Any]) -> str:
    """Return what a value says, `key: text` lines; better food for an embedder than JSON."""
    return "\n".join(_lines("", value))


def _lines(name: str, value: object) -> Iterable[str]:
    match value:
        case Mapping():
            for key, inner in value.items():
                yield from _lines(f"{name}.{key}" if name else str(key), inner)
        case list() | tuple():
            for inner in value:
                yield from _lines(name, inner)
        case None:
            return
        case _:
            yield f"{name}: {value}"


# an item, as its session holds it


def _held(record: SessionRecord) -> Metadata:
    return cast("Metadata", record.metadata)


def _path(record: SessionRecord) -> Path:
    return tuple(cast("Sequence[str]", _held(record)["namespace"]))


def _is_under(record: SessionRecord, prefix: Path) -> bool:
    return _path(record)[: len(prefix)] == tuple(prefix)


def _updated(held: Metadata) -> datetime:
    return datetime.fromisoformat(cast("str", held["updated_at"]))


def _fields_of(held: Metadata) -> dict[str, Any]:
    value = cast("Mapping[str, Any]", held["value"])
    return {"namespace": tuple(cast("Sequence[str]", held["namespace"])), "key": held["key"], "value": _copy(value)}


def _found(record: SessionRecord, score: float | None) -> SearchItem:
    held = _held(record)
    return SearchItem(**_fields_of(held), created_at=record.added_at, updated_at=_updated(held), score=score)


def _copy(value: Any) -> Any:  # noqa: ANN401 (JSON that a caller may change, while ours must not)
    match value:
        case Mapping():
            return {key: _copy(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_copy(inner) for inner in value]
    return value


def _matches(path: Path, condition: MatchCondition) -> bool:
    """Tell whether a namespace begins or ends with a path, in which "*" is any label."""
    wanted = condition.path
    if len(path) < len(wanted):
        return False
    if condition.match_type == "prefix":
        part = path[: len(wanted)]
    elif condition.match_type == "suffix":
        part = path[len(path) - len(wanted) :]
    else:
        raise InvalidInputError(f"namespaces are matched by prefix or suffix; got {condition.match_type!r}")
    return all(pattern in (label, "*") for label, pattern in zip(part, wanted, strict=True))


# filters, as LangGraph's own stores read them

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, operand: bool(value == operand),
    "$ne": lambda value, operand: bool(value != operand),
    "$gt": lambda value, operand: float(value) > float(operand),
    "$gte": lambda value, operand: float(value) >= float(operand),
    "$lt": lambda value, operand: float(value) < float(operand),
    "$lte": lambda value, operand: float(value) <= float(operand),
}


def _check_filter(condition: object) -> None:
    """Raise at an operator that is not known: it would silently find nothing."""
    if isinstance(condition, Mapping):
        for name, inner in condition.items():
            if isinstance(name, str) and name.startswith("$") and name not in _OPERATORS:
                raise InvalidInputError(f"the filter operator {name!r} is not known; known are {' '.join(_OPERATORS)}")
            _check_filter(inner)


def _passes(record: SessionRecord, condition: Mapping[str, Any] | None) -> bool:
    value = cast("Mapping[str, Any]", _held(record)["value"])
    return all(_fits(value.get(key), wanted) for key, wanted in (condition or {}).items())


def _fits(value: object, wanted: object) -> bool:
    match wanted:
        case Mapping() if any(str(name).startswith("$") for name in wanted):
            return all(_OPERATORS[name](value, operand) for name, operand in wanted.items())
        case Mapping():
            return isinstance(value, Mapping) and all(_fits(value.get(key), inner) for key, inner in wanted.items())
        case list() | tuple():
            return (
                isinstance(value, (list, tuple))
                and len(value) == len(wanted)
                and all(_fits(one, other) for one, other in zip(value, wanted, strict=True))
            )
    return value == wanted
