"""What `memgas demo` shows: a year of two people's talk is remembered, then asked about."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from time import perf_counter
from typing import TYPE_CHECKING

import click

from memgas.rendering import MAX_LINES, columns, hit_lines, router_line, wrap
from memgas.transcripts import parse_turns
from memgas.types import Turn

if TYPE_CHECKING:
    from memgas.memory import MemGAS
    from memgas.retrieval import Retrieval

_HEADER = re.compile(r"^== (?P<session_id>.+) (?P<happened_at>\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DemoSession:
    """One sitting of the demo."""

    session_id: str
    happened_at: datetime
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class DemoQuestion:
    """What is asked, of whose memory, and what to look at in the answer.

    Attributes
    ----------
    n_shown
        How many hits are worth showing.
    """

    namespace: str
    text: str
    look_at: str
    n_shown: int


PEOPLE = {"maya": "maya.txt", "林晓": "linxiao.txt"}

CHANGED = DemoQuestion("maya", "Where do I work?", "It changed in August: both are found, and dated.", 2)
QUESTIONS = (
    DemoQuestion("maya", "Who looked after Juno while we were away?", "Said once, in June.", 1),
    DemoQuestion("maya", "Which foods must I keep off the table when my family visits?", "The answer is in two sessions.", 2),
    DemoQuestion("maya", "What has been wrong with Juno's paw, and what did we do about it?", "A story of seven months.", 3),
    CHANGED,
    DemoQuestion("maya", "Did I renew my passport?", "Never said: the score tells.", 1),
    DemoQuestion("林晓", "给妈妈准备点心要注意什么？", "分散在两次谈话里。", 2),
    DemoQuestion("林晓", "我的二胡课现在是什么时候上？", "后来改了时间，新旧都找到，各有日期。", 2),
    DemoQuestion("林晓", "Who looked after Juno while we were away?", "Maya's life, not hers: nothing.", 1),
)  # fmt: skip


def read_dialogue(name: str) -> list[DemoSession]:
    """Read one person's sessions from the package."""
    text = (files("memgas") / "demo_dialogue" / name).read_text("utf-8")
    headers = list(_HEADER.finditer(text))
    ends = [header.start() for header in headers[1:]] + [len(text)]
    return [
        DemoSession(
            header["session_id"], datetime.fromisoformat(header["happened_at"]),
            tuple(parse_turns(text[header.end() : end])),
        )
        for header, end in zip(headers, ends, strict=True)
    ]  # fmt: skip


def run_demo(*, width: int) -> Iterator[str]:
    """Remember the dialogues in a temporary folder, ask the questions, and yield the lines to show.

    Parameters
    ----------
    width
        Columns of the terminal.

    Raises
    ------
    MissingExtraError
        The offline embedder is not installed.
    """
    from memgas.memory import MemGAS

    with tempfile.TemporaryDirectory(prefix="memgas-demo-") as folder, MemGAS(folder) as memory:
        yield click.style("MemGAS remembers a year of two people's talk.", bold=True)
        yield "Chroma in a temporary folder, an embedder that runs offline, no LLM, no network."
        yield ""
        for namespace, name in PEOPLE.items():
            yield _remember(memory, namespace, read_dialogue(name))
        for question in QUESTIONS:
            found = memory.retrieve(question.text, namespace=question.namespace, top_k=3)
            yield from _answer_lines(question, found, width)
        yield ""
        yield click.style(f'What a model is given to answer "{CHANGED.text}", in 400 tokens:', bold=True)
        found = memory.retrieve(CHANGED.text, namespace=CHANGED.namespace, top_k=2)
        for line in found.context(max_tokens=400).splitlines():
            yield from (f"  {part}" for part in wrap(line, width - 2, MAX_LINES) or [""])
    yield ""
    yield "Your own: memgas add chat.txt --namespace me    memgas search 'what did I ...' --namespace me"


def _remember(memory: MemGAS, namespace: str, sessions: list[DemoSession]) -> str:
    """Add a person's sessions; return the line that says so."""
    began = perf_counter()
    for session in sessions:
        memory.add(session.turns, namespace=namespace, session_id=session.session_id, happened_at=session.happened_at)
    graph = memory.graph(namespace)
    n_turns = sum(len(session.turns) for session in sessions)
    return (
        f"  {namespace}{' ' * (6 - columns(namespace))}{len(sessions)} sessions, {n_turns} turns -> "
        f"{graph.number_of_nodes()} units, {graph.number_of_edges()} associations, {perf_counter() - began:.1f} s"
    )


def _answer_lines(question: DemoQuestion, found: Retrieval, width: int) -> Iterator[str]:
    """Yield a question, its hits with the person's own words, and the router's weights."""
    yield ""
    yield f"{question.namespace}: {click.style(question.text, bold=True, fg='cyan')}  {question.look_at}"
    for rank, hit in enumerate(found.hits[: question.n_shown], 1):
        own = [
            evidence
            for evidence in hit.evidence
            if evidence.similarity is not None and evidence.turn.speaker == question.namespace
        ]
        yield from hit_lines(rank, hit, own, width=width)
    yield click.style(f"     router: {router_line(found.trace.routes)}", dim=True)
