"""Whose memory: no call, tool, export, explanation, error or log shows one namespace to another, whatever it is called."""

from __future__ import annotations

import io
import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memgas import MemGAS, Turn
from memgas.errors import MemGASError
from memgas.testing import HashEmbedder, ScriptedLLM
from tests.robustness.conftest import Figure
from tests.robustness.hostile import NAMES
from tests.robustness.scale import scaled

pytestmark = pytest.mark.slow

N_PROBES = scaled(150, 2_000)


def secret(number: int) -> str:
    """Return the word that only one namespace knows."""
    return f"qx{number:03d}zw"


def fill(memory: MemGAS) -> None:
    """Tell each namespace its own secret, in turns, a speaker, metadata and a conversation, under equal ids."""
    for number, name in enumerate(NAMES):
        word = secret(number)
        said = [Turn(f"speaker {word}", f"my boat is called {word}", id="m1"), Turn("assistant", f"nice, {word}")]
        memory.add(said, namespace=name, session_id="s", metadata={"note": word})
        memory.append(Turn("user", f"the boat {word} again", id="m2"), namespace=name, conversation_id="thread")


def calls(memory: MemGAS, name: str, dice: random.Random) -> list[Callable[[], object]]:
    """Return every call that shows something."""
    query = f"boat {secret(dice.randrange(len(NAMES)))}"
    out = io.StringIO()
    other = dice.choice(NAMES)
    return [
        lambda: repr(memory.retrieve(query, namespace=name, top_k=99, kind=None)),
        lambda: memory.retrieve(query, namespace=name, top_k=99, filter="llm").context(max_tokens=9_999),
        lambda: str(memory.retrieve(query, namespace=name, where={"note": other}).explain().as_dict()),
        lambda: repr(memory.retrieve(query, namespace=name, where={"note": {"$ne": ""}}, exclude_sessions=[other])),
        lambda: repr(memory.explain(query, namespace=name, session_id="s")),
        lambda: repr(memory.explain(query, namespace=name, session_id=other)),
        lambda: repr(memory.get("s", namespace=name)),
        lambda: repr(memory.get(other, namespace=name)),
        lambda: repr(memory.list_sessions(namespace=name, kind=None)),
        lambda: repr(memory.list_sessions(namespace=name, conversation_id=other)),
        lambda: repr(list(memory.graph(name).nodes(data=True))),
        lambda: repr(memory.stats(name)),
        lambda: memory.export_jsonl(out, namespace=name) and out.getvalue(),
        lambda: memory.delete_session(other, namespace=name),
        lambda: memory.delete_turn("s", 77, namespace=name),
        lambda: memory.add([Turn("user", "no")], namespace=name, session_id="s"),
        lambda: memory.append(Turn("user", "other words", id="m2"), namespace=name, conversation_id="thread"),
    ]  # fmt: skip


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "disk"])
def test_nothing_of_another_is_shown(
    tmp_path: Path, is_on_disk: bool, caplog: pytest.LogCaptureFixture, figure: Figure
) -> None:
    """Of every call's result, error and log lines, none holds another namespace's secret, unless the call named it."""
    dice = random.Random(7)
    llm = ScriptedLLM(default="[1]")
    where: dict[str, Any] = {"path": tmp_path} if is_on_disk else {"store": _store()}
    with MemGAS(**where, embedder=HashEmbedder(), llm=None) as memory, caplog.at_level(logging.INFO):
        fill(memory)
    where = {"path": tmp_path} if is_on_disk else {"store": _store()}
    with MemGAS(**where, embedder=HashEmbedder(), llm=llm) as memory, caplog.at_level(logging.DEBUG, logger="memgas"):
        if not is_on_disk:
            fill(memory)
        assert memory.namespaces() == sorted(NAMES)
        n_probes = 0
        while n_probes < N_PROBES:
            number = dice.randrange(len(NAMES))
            for call in calls(memory, NAMES[number], dice):
                caplog.clear()
                llm.prompts.clear()
                try:
                    shown = str(call())
                except (MemGASError, LookupError) as error:
                    shown = repr(error)
                shown += caplog.text + repr(llm.prompts)
                asked = shown.count("boat qx")
                foreign = [n for n in range(len(NAMES)) if n != number and _told(shown, n)]
                assert not foreign, (NAMES[number][:40], [NAMES[n][:40] for n in foreign], asked)
                n_probes += 1
        _delete_all_but_one(memory)
    figure("calls that showed nothing of another namespace", n_probes)


def _store() -> object:
    from memgas.stores import InMemoryStore

    return InMemoryStore()


def _told(shown: str, number: int) -> bool:
    """Tell whether a secret is shown as something that was said: the query itself may hold another's."""
    word = secret(number)
    return any(said in shown for said in (f"speaker {word}", f"called {word}", f"nice, {word}", f"{word} again", f"note': '{word}",
                                          f'note": "{word}'))  # fmt: skip


def _delete_all_but_one(memory: MemGAS) -> None:
    """Delete namespaces one by one: the others stay whole, to the last."""
    left = list(NAMES)
    while len(left) > 1:
        memory.delete_namespace(left.pop(0))
        assert memory.namespaces() == sorted(left)
        last = left[-1]
        assert secret(NAMES.index(last)) in memory.get("s", namespace=last).turns[0].text
    assert memory.check() == []


def test_tools_show_their_user_only(figure: Figure) -> None:
    """LangChain's tools and retriever, configured with any user, show what that user said, whatever the model asks for."""
    pytest.importorskip("langchain_core")
    from langchain_memgas import create_memgas_tools

    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        fill(memory)
        search, manage = create_memgas_tools(memory)
        for number, name in enumerate(NAMES):
            config: Any = {"configurable": {"user_id": name}}
            for other in (number + 1, number + 7):
                asked = f"boat {secret(other % len(NAMES))} namespace {NAMES[other % len(NAMES)]}"[:200]
                shown = str(search.invoke({"query": asked, "limit": 20}, config))
                shown += str(manage.invoke({"action": "forget", "memory_id": f"{NAMES[other % len(NAMES)]}"}, config))
                assert not [n for n in range(len(NAMES)) if n != number and _told(shown, n)]
        assert memory.namespaces() == sorted(NAMES)
        for number, name in enumerate(NAMES):
            assert secret(number) in memory.get("s", namespace=name).turns[0].text
    figure("calls that showed nothing of another namespace", 4 * len(NAMES))


def shown_to(memory: MemGAS, name: str, query: str) -> Iterator[str]:
    """Yield what every other face of a memory shows a user: retrievers, chains, stores, blocks, tools, the page."""
    import langchain_memgas as chain
    import llama_index_memgas as index
    from memgas.explore import answers

    config: Any = {"configurable": {"user_id": name}}
    yield repr(chain.MemGASRetriever(memory=memory, k=50).invoke(query, config))
    yield repr(chain.create_recall_runnable(memory, namespace=name, min_score=0.0).invoke(query))
    remembered = chain.MemGASMemory(memory=memory, namespace=name, min_score=0.0, top_k=50)
    yield repr(remembered.load_memory_variables({"input": query}))
    store = chain.MemGASStore(memory, namespace=name)
    yield repr(store.search((), query=query, limit=50))
    yield repr(store.list_namespaces())
    yield repr(index.MemGASRetriever(memory, namespace=name, similarity_top_k=50).retrieve(query))
    search, _ = index.create_memgas_tools(memory, namespace=name)
    yield repr(search.call(query))
    for answer in (answers.search(memory, name, query, 50), answers.overview(memory, name)):
        yield json.dumps(answer, ensure_ascii=False)
    yield json.dumps([answers.session(memory, name, "s"), answers.sessions(memory, name)], ensure_ascii=False)


def test_every_face_shows_its_user_only(figure: Figure) -> None:
    """Retrievers, chains, stores and tools of both frameworks, and the page, show what their user said, and only that."""
    for package in ("langchain_core", "langchain_classic", "langgraph", "llama_index.core"):
        pytest.importorskip(package)
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        fill(memory)
        n_shown = n_own = 0
        for number, name in enumerate(NAMES[:: scaled(3, 1)]):
            own = NAMES.index(name)
            for other in (own, number + 1):
                query = f"boat {secret(other % len(NAMES))}"
                for shown in shown_to(memory, name, query):
                    assert not [n for n in range(len(NAMES)) if n != own and _told(shown, n)]
                    n_shown += 1
                    n_own += _told(shown, own)
    assert n_own > n_shown // 3  # they do show something
    figure("calls that showed nothing of another namespace", n_shown)


def test_an_export_holds_one(figure: Figure) -> None:
    """Each namespace's export has its own secret, no other's, and no namespace's name: it is imported under any."""
    with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
        fill(memory)
        for number, name in enumerate(NAMES):
            out = io.StringIO()
            memory.export_jsonl(out, namespace=name)
            lines = out.getvalue().splitlines()
            assert {n for n in range(len(NAMES)) if secret(n) in out.getvalue()} == {number}
            assert all(name not in json.loads(line).values() for line in lines)
    figure("calls that showed nothing of another namespace", len(NAMES))
