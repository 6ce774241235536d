"""The demo: its dialogue, and that its answers are the right ones."""

import re
from pathlib import Path

import click
import pytest

from memgas.demo import PEOPLE, QUESTIONS, read_dialogue, run_demo

WANTED = {
    "Who looked after Juno while we were away?": {"pembrokeshire"},
    "Which foods must I keep off the table when my family visits?": {"pembrokeshire", "birthday"},
    "What has been wrong with Juno's paw, and what did we do about it?": {"limping", "pembrokeshire", "ground-floor"},
    "Where do I work?": {"first-week", "towpath"},
    "给妈妈准备点心要注意什么？": {"体检", "中秋"},
    "我的二胡课现在是什么时候上？": {"二胡", "年底演出"},
}


@pytest.mark.parametrize(("namespace", "name"), PEOPLE.items())
def test_dialogue_spans_most_of_a_year(namespace: str, name: str) -> None:
    """Each person's sessions have ids of their own, are in order of time, and lie months apart in all."""
    sessions = read_dialogue(name)

    times = [session.happened_at for session in sessions]
    assert len(sessions) == len({session.session_id for session in sessions}) >= 5
    assert times == sorted(times)
    assert (times[-1] - times[0]).days > 250
    assert all(session.turns[0].speaker == namespace for session in sessions)


@pytest.mark.slow
def test_demo_finds_what_it_promises() -> None:
    """The sessions that answer a question are the ones shown beneath it; what README quotes is what is printed."""
    text = click.unstyle("\n".join(run_demo(width=100)))

    answers = {question.text: text.split(question.text)[1].split("router:")[0] for question in QUESTIONS}
    for question, sessions in WANTED.items():
        assert not [session for session in sessions if f"  {session}\n" not in answers[question]], answers[question]
    assert [] == [line for line in quoted_lines() if line not in text]


def quoted_lines() -> list[str]:
    """Return the lines of README's demo that do not depend on the machine: all but times and router weights."""
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    shown = readme.split("```text\n", 1)[1].split("```", 1)[0]
    return [line for line in shown.splitlines() if not re.search(r" s$|router:|^  \d\. ", line)]
