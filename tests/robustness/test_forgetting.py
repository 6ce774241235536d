"""Forgetting: the words are gone at once from everything that is shown, and after `erase` from every byte of the folder."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memgas import MemGAS, NewSession, Turn
from memgas.testing import HashEmbedder, ScriptedLLM
from tests.robustness.conftest import Figure
from tests.robustness.scale import scaled

pytestmark = pytest.mark.slow

NOON = datetime(2024, 5, 1, tzinfo=UTC)
SECRETS = ("Zwiebelfisch", "Quarzuhrwerk", "Xylophonist", "Vexierbild", "孔雀石项链", "Мышьяковый")
N_OTHERS = scaled(20, 120)


def leak(prompt: str) -> str:
    """Answer as a model that repeats whatever secret it reads."""
    told = [secret for secret in SECRETS if secret in prompt]
    return f'{{"summary": "They spoke of {" ".join(told) or "nothing"}.", "keywords": {str(told).replace(chr(39), chr(34))}}}'


def everything(memory: MemGAS) -> str:
    """Return all that a memory shows of all its namespaces."""
    memory._workspace.drain()
    parts: list[object] = []
    for namespace in memory.namespaces():
        out = io.StringIO()
        memory.export_jsonl(out, namespace=namespace)
        parts.append(out.getvalue())
        parts += [memory.retrieve(s, namespace=namespace, top_k=50, kind=None).hits for s in SECRETS]
        parts += [memory.retrieve("my new one", namespace=namespace, top_k=50, kind=None).explain().as_json()]
        listed = memory.list_sessions(namespace=namespace, kind=None)
        parts += [memory.get(record.session_id, namespace=namespace) for record in listed]
        parts += [listed, list(memory.graph(namespace).nodes(data=True)), memory.stats(namespace)]
        with memory._workspace.reading(namespace) as index:
            parts += [index.lexical.terms, list(index.words._units.values())]
    return repr(parts)


def holding(folder: Path, word: str) -> tuple[list[str], int]:
    """Return the names of the files that hold a word, in any form, and how many bytes were read."""
    forms = [word.encode(), word.lower().encode(), word.encode("unicode_escape"), word.encode("utf-16-le")]
    found, n_bytes = [], 0
    for file in folder.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            n_bytes += len(data)
            if any(form in data for form in forms):
                found.append(file.name)
    return found, n_bytes


@pytest.mark.parametrize("with_llm", [False, True], ids=["extractive", "llm"])
def test_the_words_are_gone(tmp_path: Path, with_llm: bool, figure: Figure) -> None:
    """A turn, a session, a conversation and a namespace are forgotten: shown nowhere, then in no byte; the rest stays."""
    llm = ScriptedLLM(default=leak) if with_llm else None
    said = [Turn("user", f"My {secret} is new.") for secret in SECRETS]
    with MemGAS(tmp_path, embedder=HashEmbedder(), llm=llm, clock=lambda: NOON) as memory:
        others = [
            NewSession([Turn("user", f"other {n} {i} of the boat") for i in range(10)], f"o{n}")
            for n in range(N_OTHERS)
        ]
        memory.add_many(others, namespace="n")
        kept = [memory.get(f"o{n}", namespace="n").turns for n in range(N_OTHERS)]
        memory.add(
            [Turn("user", "Hello."), said[0], Turn("assistant", "Hm."), said[4]], namespace="n", session_id="turn"
        )
        memory.add([Turn("user", "Hello."), said[1]], namespace="n", session_id="session", metadata={"of": SECRETS[1]})
        memory.append([said[2], Turn("assistant", "Hm.")], namespace="n", conversation_id="thread")
        memory.add([said[3], said[5]], namespace="whole", session_id="s")
        memory.digest_pending()
        shown = everything(memory)
        assert all(secret in shown for secret in SECRETS)
        memory.delete_turn("turn", 1, namespace="n")
        memory.delete_turn("turn", 3, namespace="n")
        memory.delete_session("session", namespace="n")
        memory.delete_conversation("thread", namespace="n")
        memory.delete_namespace("whole")
        shown = everything(memory).casefold()
        assert not [secret for secret in SECRETS if secret.casefold() in shown]
        assert memory.get("turn", namespace="n").turns[0].text == "Hello."
        memory.erase()
        assert memory.check() == []
        assert [memory.get(f"o{n}", namespace="n").turns for n in range(N_OTHERS)] == kept
    n_bytes = 0
    for secret in SECRETS:
        found, n_read = holding(tmp_path, secret)
        assert found == []
        n_bytes += n_read
    with MemGAS(tmp_path, embedder=HashEmbedder(), llm=llm, clock=lambda: NOON) as memory:
        assert [memory.get(f"o{n}", namespace="n").turns for n in range(N_OTHERS)] == kept
        assert memory.check() == []
    figure("bytes searched for forgotten words, 0 found", n_bytes)
