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

from memgas.rendering import columns, hit_lines, router_line
from memgas.transcripts import parse_turns
from memgas.types import Hit, Turn

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
    """What is asked, of whom, and what to look at in the answer.

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

QUESTIONS = (
    DemoQuestion("maya", "Who looked after Juno while we were away?", "a fact, said once", 1),
    DemoQuestion("maya", "Which foods must I keep off the table when my family visits?", "an answer in two sessions, months apart", 2),
    DemoQuestion("maya", "What has been wrong with Juno's paw, and what did we do about it?", "a story over several sessions", 3),
    DemoQuestion("maya", "Where do I work?", "a fact that changed: both are found, with their dates", 2),
    DemoQuestion("maya", "Did I renew my passport?", "never said: every score is low", 1),
    DemoQuestion("林晓", "给妈妈准备点心要注意什么？", "Chinese, an answer in two sessions", 2),
    DemoQuestion("林晓", "我的二胡课现在是什么时候上？", "Chinese, a fact that changed", 2),
    DemoQuestion("林晓", "Who looked after Juno while we were away?", "another person's memory: nobody else's is seen", 1),
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
            yield from _ask(memory, question, width)
    yield ""
    yield 'Yours: memgas add chat.txt -n you --session monday   memgas search "..." -n you   memgas --help'


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


def _ask(memory: MemGAS, question: DemoQuestion, width: int) -> Iterator[str]:
    """Ask one question; yield its lines."""
    found = memory.retrieve(question.text, namespace=question.namespace, top_k=3)
    yield ""
    who = click.style(f"[{question.namespace}]", dim=True)
    yield f"{who} {click.style(question.text, bold=True, fg='cyan')}  {click.style(question.look_at, dim=True)}"
    for rank, hit in enumerate(found.hits[: question.n_shown], 1):
        yield from hit_lines(rank, hit, width=width, neighbours=False)
    yield click.style(f"     router: {router_line(found.trace.routes)}", dim=True)
    yield from _path_lines(found, found.hits[: question.n_shown])


def _path_lines(found: Retrieval, shown: tuple[Hit, ...]) -> Iterator[str]:
    """Yield how a shown hit was reached through an association, where it was."""
    visible = {hit.session_id for hit in shown}
    for path in found.trace.paths:
        if path.session_id in visible and len(path.steps) > 1:
            names = " -> ".join(f"{step.session_id} ({step.granularity.value})" for step in path.steps)
            yield click.style(f"     linked: {names}", dim=True)
