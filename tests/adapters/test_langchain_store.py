"""`MemGASStore`, by the cases of LangGraph's own store tests, and inside real graphs."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from langchain_memgas import MemGASStore
from memgas import InvalidInputError, MemGAS, Turn
from memgas.testing import HashEmbedder


@pytest.fixture
def core() -> Iterator[MemGAS]:
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        yield memory


@pytest.fixture
def store(core: MemGAS) -> MemGASStore:
    return MemGASStore(core, namespace="tenant")


def keys(items: Any) -> list[str]:  # noqa: ANN401
    return [item.key for item in items]


# operations


def test_batch_order(store: MemGASStore) -> None:
    """Results come in the order of the operations; a put yields None; reads see what was there before the batch."""
    store.put(("test", "foo"), "key1", {"data": "value1"})
    store.put(("test", "bar"), "key2", {"data": "value2"})
    results = store.batch([
        GetOp(("test", "foo"), "key1"),
        PutOp(("test", "bar"), "key2", {"data": "changed"}),
        SearchOp(("test",), filter={"data": "value1"}),
        ListNamespacesOp(limit=10),
        GetOp(("test", "bar"), "key2"),
        GetOp(("test",), "key3"),
        PutOp(("test", "foo"), "key1", None),
    ])  # fmt: skip
    assert isinstance(results[0], Item)
    assert results[0].value == {"data": "value1"}
    assert results[1] is results[5] is results[6] is None
    assert keys(results[2]) == ["key1"]
    assert results[3] == [("test", "bar"), ("test", "foo")]
    assert isinstance(results[4], Item)
    assert results[4].value == {"data": "value2"}
    assert store.get(("test", "foo"), "key1") is None


async def test_async_batch_order(store: MemGASStore) -> None:
    """`abatch` does what `batch` does, and every call has its async twin."""
    await store.aput(("a",), "k", {"x": 1})
    results = await store.abatch([PutOp(("a",), "k", {"x": 2}), GetOp(("a",), "k"), SearchOp(("a",))])
    assert isinstance(results[1], Item)
    assert results[1].value == {"x": 1}
    item = await store.aget(("a",), "k")
    assert item is not None
    assert item.value == {"x": 2}
    assert keys(await store.asearch(("a",))) == ["k"]
    assert await store.alist_namespaces() == [("a",)]
    await store.adelete(("a",), "k")
    assert await store.aget(("a",), "k") is None


def test_last_put_wins(store: MemGASStore) -> None:
    """Of several puts of one key in a batch the last one counts, a deletion as well."""
    store.batch([PutOp(("a",), "k", {"x": 1}), PutOp(("a",), "k", {"x": 2})])
    assert store.search(("a",))[0].value == {"x": 2}
    store.batch([PutOp(("a",), "k", {"x": 3}), PutOp(("a",), "k", None)])
    assert store.search(("a",)) == []


def test_same_text_in_one_batch(store: MemGASStore) -> None:
    """Two puts of the same text in one batch are two items (`InMemoryStore` raises)."""
    store.batch([PutOp(("a",), "k1", {"text": "same"}), PutOp(("a",), "k2", {"text": "same"})])
    assert sorted(keys(store.search(("a",), query="same"))) == ["k1", "k2"]


def test_basic_store_ops(store: MemGASStore) -> None:
    """Put, get, update, delete; keys and values of all kinds; what is not there is None; deleting it is fine."""
    value = {"text": "naïve {braces} 茶 🍵", "n": 1.5, "none": None, "list": [1, {"a": [True]}], "": ""}
    for key in ("k", "", "key with spaces / and #2", "🍵"):
        store.put(("docs",), key, value)
        item = store.get(("docs",), key)
        assert item is not None
        assert (item.namespace, item.key, item.value) == (("docs",), key, value)
    store.put(("docs",), 7, {"x": 1})  # type: ignore[arg-type]
    assert store.get(("docs",), "7") is not None
    store.delete(("docs",), "k")
    store.delete(("docs",), "k")
    assert store.get(("docs",), "k") is None


def test_timestamps(store: MemGASStore) -> None:
    """`created_at` stays when an item is updated, `updated_at` moves; both have a time zone, on get and on search."""
    before = datetime.now(UTC)
    store.put(("a",), "k", {"x": 1})
    first = store.get(("a",), "k")
    store.put(("a",), "k", {"x": 2})
    second = store.search(("a",))[0]
    assert first is not None
    assert before <= first.created_at <= first.updated_at + timedelta(seconds=1)
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at


def test_values_are_copies(store: MemGASStore) -> None:
    """What a caller does to a value, before or after, does not change what is stored."""
    value = {"tags": ["a"]}
    store.put(("a",), "k", value)
    value["tags"].append("b")
    item = store.get(("a",), "k")
    assert item is not None
    item.value["tags"].append("c")
    store.search(("a",))[0].value["tags"].append("d")
    assert store.search(("a",))[0].value == {"tags": ["a"]}


def test_value_that_is_no_json_is_refused(store: MemGASStore) -> None:
    """A value that is not JSON raises, and nothing is stored in its place."""
    with pytest.raises(InvalidInputError, match="JSON"):
        store.put(("a",), "k", {"when": datetime.now(UTC)})
    assert store.search(()) == []


@pytest.mark.parametrize("path", [(), ("a", ""), ("a.b",), ("a", 1), ("langgraph", "x"), ("nul\x00",)])
def test_invalid_namespaces(store: MemGASStore, path: Any) -> None:  # noqa: ANN401
    """Labels that are empty, no text, or hold "." or NUL, and the reserved root, raise on put; nothing else of it is done."""
    with pytest.raises(InvalidNamespaceError):
        store.put(path, "k", {"x": 1})
    if path and path[0] != "langgraph":
        with pytest.raises(InvalidNamespaceError):
            store.batch([PutOp(("fine",), "k", {"x": 1}), PutOp(path, "k", {"x": 1})])
    assert store.search(()) == []


def test_no_time_to_live(store: MemGASStore) -> None:
    """A time to live raises NotImplementedError, by `put` and by `batch`."""
    with pytest.raises(NotImplementedError):
        store.put(("a",), "k", {"x": 1}, ttl=5)
    with pytest.raises(NotImplementedError):
        store.batch([PutOp(("a",), "k", {"x": 1}, ttl=5)])
    with pytest.raises(InvalidInputError, match="operations"):
        store.batch(["get"])  # type: ignore[list-item]


# namespaces


def test_list_namespaces(store: MemGASStore) -> None:
    """By prefix, suffix, wildcard, depth, limit and offset, in order; a namespace without items is not listed."""
    paths = [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "b", "f"), ("a", "c", "f"), ("b", "a", "f"),
             ("users", "123"), ("users", "456", "settings"), ("admin", "users", "789")]  # fmt: skip
    for path in paths:
        store.put(path, "id", {"data": "value"})
    assert store.list_namespaces(prefix=("a", "b")) == sorted(path for path in paths if path[:2] == ("a", "b"))
    assert store.list_namespaces(suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f"), ("b", "a", "f")]
    assert store.list_namespaces(prefix=("a",), suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f")]
    assert store.list_namespaces(prefix=("a", "*", "f")) == [("a", "b", "f"), ("a", "c", "f")]
    assert store.list_namespaces(suffix=("*", "f")) == [("a", "b", "f"), ("a", "c", "f"), ("b", "a", "f")]
    assert store.list_namespaces(prefix=("a",), max_depth=2) == [("a", "b"), ("a", "c")]
    assert store.list_namespaces(limit=2, offset=1) == sorted(paths)[1:3]
    assert store.list_namespaces(prefix=("nowhere",)) == []
    store.delete(("users", "123"), "id")
    assert ("users", "123") not in store.list_namespaces()


def test_same_as_langgraphs_own(store: MemGASStore) -> None:
    """On the same items, searches without a query, filters and listings return what `InMemoryStore` returns."""
    theirs = InMemoryStore()
    for n in range(12):
        path = ("users", str(n % 3), *(("sub",) if n % 4 == 0 else ()))
        value = {"n": n, "even": n % 2 == 0, "tag": "ab"[n % 2], "deep": {"x": n % 3, "l": [n % 2, 1]}}
        for one in (store, theirs):
            one.put(path, f"k{n}", value)
    filters: list[dict[str, Any] | None] = [
        None, {}, {"n": 3}, {"even": True}, {"n": {"$gt": 3, "$lte": 9}}, {"n": {"$ne": 0}}, {"tag": {"$eq": "a"}},
        {"deep": {"x": 1}}, {"deep": {"x": {"$gte": 1}}}, {"missing": None}, {"deep": {"l": [1, 1]}}, {"even": True, "tag": "a"},
    ]  # fmt: skip
    for prefix in ((), ("users",), ("users", "1"), ("users", "0", "sub"), ("nobody",), ("user",)):
        for condition in filters:
            ours, reference = (one.search(prefix, filter=condition, limit=100) for one in (store, theirs))
            assert sorted(keys(ours)) == sorted(keys(reference)), (prefix, condition)
    matches = [(MatchCondition("prefix", ("users", "*")),), (MatchCondition("suffix", ("sub",)),), None]
    for match in matches:
        for depth in (None, 1, 2):
            op = ListNamespacesOp(match, depth)
            assert store.batch([op]) == theirs.batch([op])


@pytest.mark.parametrize(
    "condition", [{"$and": [{"n": 1}]}, {"$or": []}, {"n": {"$in": [1]}}, {"deep": {"x": {"$regex": "a"}}}]
)
def test_unknown_operators_raise(store: MemGASStore, condition: dict[str, Any]) -> None:
    """An operator that is not known raises instead of silently finding nothing, even in an empty store."""
    with pytest.raises(ValueError, match=r"\$"):
        store.search((), filter=condition)


# search


def fill(store: BaseStore) -> None:
    for key, text in (
        ("bees", "Lena keeps bees on the roof"), ("dog", "Juno the greyhound sleeps all day"),
        ("bread", "Sourdough bread needs a day"), ("trip", "The train to Bern leaves at noon"),
    ):  # fmt: skip
        store.put(("u", "1"), key, {"text": text, "kind": "even" if len(key) % 2 == 0 else "odd"})


def test_semantic_search(store: MemGASStore) -> None:
    """With a query the best comes first, scores in [0, 1] fall; an update is found by its new words alone."""
    fill(store)
    found = store.search(("u",), query="Who keeps bees on the roof?")
    assert found[0].key == "bees"
    scores = [item.score for item in found]
    assert scores == sorted(scores, key=lambda score: -(score or 0))
    assert all(score is not None and 0 <= score <= 1 for score in scores)
    store.put(("u", "1"), "bees", {"text": "Lena restores pianos"})
    assert store.search(("u",), query="restores pianos")[0].key == "bees"
    before = found[0].score
    after = next(item.score for item in store.search(("u",), query="Who keeps bees on the roof?") if item.key == "bees")
    assert before is not None
    assert after is not None
    assert after < before


def test_search_with_filters_and_pages(store: MemGASStore) -> None:
    """Filter, prefix, limit and offset hold together with a query: pages are slices of one ranking."""
    fill(store)
    ranking = keys(store.search(("u",), query="a day of bread", limit=10))
    assert sorted(ranking) == ["bees", "bread", "dog", "trip"]
    pages = [keys(store.search(("u",), query="a day of bread", limit=1, offset=n)) for n in range(5)]
    assert [key for page in pages for key in page] == ranking
    assert store.search(("u",), query="a day of bread", limit=0) == []
    odd = store.search(("u",), query="a day of bread", filter={"kind": "odd"})
    assert keys(odd) == [key for key in ranking if key in ("bread", "dog")]
    assert store.search(("other",), query="a day of bread") == []


@pytest.mark.parametrize("query", ["", None, "  ", "?!.,", "'; DROP TABLE store; --", "bees " * 2000, "茶"])
def test_query_edge_cases(store: MemGASStore, query: str | None) -> None:
    """Blank, very long, and odd queries are answered; without anything to search for, all items come, without a score."""
    fill(store)
    found = store.search(("u",), query=query)
    assert len(found) == 4
    if not (query or "").strip():
        assert [item.score for item in found] == [None] * 4


def test_prefix_ends_at_a_label(store: MemGASStore) -> None:
    """A prefix is whole labels, case-sensitive, without wildcards, and includes what lies below; `()` is everything."""
    for path in (("u", "1"), ("u", "10"), ("u", "1", "x"), ("U", "1"), ("u%", "1"), ("u_",), ("u\n",)):
        store.put(path, "/".join(path), {"text": "same words"})
    for query in (None, "same words"):
        found = {item.namespace for item in store.search(("u", "1"), query=query)}
        assert found == {("u", "1"), ("u", "1", "x")}
        assert {item.namespace for item in store.search(("u%",), query=query)} == {("u%", "1")}
        assert len(store.search((), query=query)) == 7


def test_index_false(store: MemGASStore) -> None:
    """An item put with `index=False` is not found by its words; it fills up the tail of a search, without a score."""
    fill(store)
    store.put(("u", "1"), "hidden", {"text": "Lena keeps bees on the roof"}, index=False)
    found = store.search(("u",), query="Lena keeps bees on the roof")
    assert keys(found)[-1] == "hidden"
    assert found[-1].score is None
    assert found[0].key == "bees"
    store.put(("u", "1"), "bees", {"text": "Lena keeps bees on the roof"}, index=False)
    assert sorted(keys(store.search(("u",), query="bees on the roof"))[-2:]) == ["bees", "hidden"]


def test_indexed_fields(core: MemGAS) -> None:
    """Paths say what is indexed, by constructor and per put: nested, of lists, of several fields; the rest is not searched."""
    store = MemGASStore(core, namespace="tenant", fields=["text", "notes[*].body"])
    store.put(("a",), "k1", {"text": "walnut", "secret": "heron", "notes": [{"body": "pond"}, {"body": "reed"}]})
    store.put(("a",), "k2", {"text": "harbour", "secret": "walnut"})
    store.put(("a",), "k3", {"text": "nothing", "meta": {"deep": "heron"}}, index=["meta.deep"])

    def best(query: str) -> str:
        return store.search(("a",), query=query)[0].key

    assert (best("walnut"), best("pond"), best("reed"), best("heron")) == ("k1", "k1", "k1", "k3")
    with pytest.raises(InvalidInputError, match="list of paths"):
        MemGASStore(core, namespace="tenant", fields="text")


# tenants, chats


def test_tenants_are_apart(core: MemGAS) -> None:
    """Two stores on one memory, each with its namespace: no prefix, query, filter or listing leads into the other."""
    one, two = MemGASStore(core, namespace="t1"), MemGASStore(core, namespace="t2")
    one.put(("a",), "k", {"text": "walnut"})
    two.put(("a",), "k", {"text": "heron"})
    assert [item.value["text"] for item in one.search(())] == ["walnut"]
    assert [item.value["text"] for item in one.search((), query="heron")] == ["walnut"]
    one.delete(("a",), "k")
    assert one.list_namespaces() == []
    assert two.get(("a",), "k") is not None
    for blank in ("", " "):
        with pytest.raises(InvalidInputError, match="namespace"):
            MemGASStore(core, namespace=blank)


def test_items_stay_out_of_chats(core: MemGAS, store: MemGASStore) -> None:
    """In one namespace, a chat recall finds no item, and a search of items finds no chat."""
    core.add([Turn("user", "I adopted a greyhound, Juno.")], namespace="tenant", session_id="chat")
    fill(store)
    assert [hit.session_id for hit in core.retrieve("greyhound", namespace="tenant").hits] == ["chat"]
    assert [record.session_id for record in core.list_sessions(namespace="tenant")] == ["chat"]
    assert sorted(keys(store.search((), query="I adopted a greyhound, Juno."))) == ["bees", "bread", "dog", "trip"]
    assert len(core.retrieve("greyhound", namespace="tenant", kind=None).hits) == 5


def test_no_model_is_asked(core: MemGAS) -> None:
    """Items have no digest: only their words are stored, and nothing is pending."""
    store = MemGASStore(core, namespace="tenant")
    fill(store)
    stats = core.stats("tenant")
    assert (stats.n_sessions, stats.n_pending, stats.n_units["summary"], stats.n_units["turn"]) == (4, 0, 0, 4)


# hosts


def test_in_a_graph(core: MemGAS, store: MemGASStore) -> None:
    """A compiled graph hands the store to its nodes, sync and async, and it is the same one."""

    @dataclass
    class Context:
        user_id: str

    def node(state: MessagesState, runtime: Runtime[Context]) -> dict[str, Any]:
        assert runtime.store is store
        path = ("memories", runtime.context.user_id)
        found = runtime.store.search(path, query=str(state["messages"][-1].content))
        runtime.store.put(path, str(len(found)), {"text": state["messages"][-1].text})
        return {"messages": [AIMessage(f"{len(found)} found")]}

    builder = StateGraph(MessagesState, context_schema=Context)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    graph: Any = builder.compile(store=store)
    assert graph.invoke({"messages": ["bees"]}, context=Context("ana"))["messages"][-1].text == "0 found"
    result = asyncio.run(graph.ainvoke({"messages": ["bees"]}, context=Context("ana")))
    assert result["messages"][-1].text == "1 found"
    assert graph.invoke({"messages": ["bees"]}, context=Context("ben"))["messages"][-1].text == "0 found"


class Model(GenericFakeChatModel):
    """LangChain's own fake model, that takes tools."""

    def bind_tools(self, tools: Any, **kwargs: object) -> "Model":  # noqa: ANN401
        """Take the tools and say nothing."""
        return self


def test_in_an_agent(store: MemGASStore) -> None:
    """`create_agent(store=...)`: the documented idiom, tools that read `runtime.store`."""

    @tool
    def look_up(topic: str, runtime: ToolRuntime) -> str:
        """Look something up."""
        assert runtime.store is not None
        return str(runtime.store.search(("u",), query=topic, limit=1)[0].value["text"])

    fill(store)
    call = AIMessage("", tool_calls=[{"name": "look_up", "args": {"topic": "bees on the roof"}, "id": "1"}])
    agent = create_agent(Model(messages=iter([call, AIMessage("done")])), [look_up], store=store)
    result = agent.invoke({"messages": [{"role": "user", "content": "bees?"}]})
    assert result["messages"][2].text == "Lena keeps bees on the roof"


async def test_concurrent_users(store: MemGASStore) -> None:
    """20 users put and search at once: nothing crosses, nothing is lost."""

    async def use(n: int) -> None:
        for i in range(3):
            await store.aput(("users", str(n)), f"k{i}", {"text": f"word {n} {i}"})
        found = await store.asearch(("users", str(n)), query="word", limit=10)
        assert {item.value["text"] for item in found} == {f"word {n} {i}" for i in range(3)}

    await asyncio.gather(*[use(n) for n in range(20)])
    assert len(store.search((), limit=100)) == 60


async def test_on_disk(tmp_path: Path) -> None:
    """`MemGASStore.open` is what a deployed graph names: it opens a folder, closes it, and everything is there again."""
    embeddings = DeterministicFakeEmbedding(size=16)
    async with MemGASStore.open(tmp_path / "memory", namespace="tenant", embeddings=embeddings) as store:
        await store.aput(("a",), "k", {"text": "walnut", "none": None, "l": []})
        await store.aput(("a",), "hidden", {"x": 1}, index=False)
        await store.aput(("a",), "k", {"text": "heron", "none": None, "l": []})
        first = await store.aget(("a",), "k")
    async with MemGASStore.open(tmp_path / "memory", namespace="tenant", embeddings=embeddings) as store:
        assert await store.aget(("a",), "k") == first
        assert sorted(keys(await store.asearch((), query="heron"))) == ["hidden", "k"]
        await store.adelete(("a",), "k")
        assert await store.alist_namespaces() == [("a",)]
        assert keys(await store.asearch(())) == ["hidden"]
