"""What a user does with a memory, step by step, the same each time: told to a process that is killed and to a model of it."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from memgas import MemGAS, MemGASConfig, NewSession, Turn
from memgas.testing import HashEmbedder
from memgas.types import SessionRecord

NAMES = ("ana", 'b"; DROP')
START = datetime(2024, 1, 1, tzinfo=UTC)
WORDS = [
    "garden",
    "boat",
    "violin",
    "snow",
    "bridge",
    "lamp",
    "river",
    "school",
    "engine",
    "market",
    "winter",
    "dance",
    "paper",
    "stone",
    "music",
    "apple",
]

State = dict[str, list[object]]


class Clock:
    """Tells the time of a step: a minute a step."""

    step = 0

    def __call__(self) -> datetime:
        """Return it."""
        return START + timedelta(minutes=self.step)


class Story:
    """Takes steps on a memory. What a step does follows from its number and from what is there.

    Parameters
    ----------
    memory
        What to write to.
    clock
        The one that it was opened with.
    """

    def __init__(self, memory: MemGAS, clock: Clock) -> None:
        self.memory = memory
        self._clock = clock

    def take(self, step: int) -> None:
        """Take a step."""
        self._clock.step = step
        dice = random.Random(step)
        namespace = dice.choice(NAMES)
        sessions = self.memory.list_sessions(namespace=namespace, kind=None)
        makes: list[Callable[[random.Random, str, int], None]] = [self._add, self._add_many, self._append, self._append]
        alters: list[Callable[[random.Random, str, SessionRecord], None]] = [
            self._close, self._grow, self._replace, self._delete_turn, self._delete_turn, self._delete,
        ]  # fmt: skip
        if not sessions or dice.random() < 0.55:
            dice.choice(makes)(dice, namespace, step)
        elif dice.random() < 0.9 and len(sessions) < 60:
            dice.choice(alters)(dice, namespace, dice.choice(sessions))
        else:
            dice.choice([self._delete_much, self._delete_much, self._delete_much, self._import])(dice, namespace, step)

    def _add(self, dice: random.Random, namespace: str, step: int) -> None:
        n_turns = dice.choice([1, 2, 5, 8, 200])
        self.memory.add(turns(dice, step, n_turns), namespace=namespace, session_id=f"s{step}", metadata={"step": step})

    def _add_many(self, dice: random.Random, namespace: str, step: int) -> None:
        news = [NewSession(turns(dice, step, 4), f"s{step}.{n}", START) for n in range(dice.randint(2, 8))]
        self.memory.add_many(news, namespace=namespace)

    def _append(self, dice: random.Random, namespace: str, step: int) -> None:
        (turn,) = turns(dice, step, 1)
        self.memory.append(turn, namespace=namespace, conversation_id=f"c{dice.randint(0, 2)}")

    def _close(self, dice: random.Random, namespace: str, record: SessionRecord) -> None:
        self.memory.close_session(record.session_id, namespace=namespace)

    def _grow(self, dice: random.Random, namespace: str, record: SessionRecord) -> None:
        self.memory.append(turns(dice, self._clock.step, 2), namespace=namespace, session_id=record.session_id)

    def _replace(self, dice: random.Random, namespace: str, record: SessionRecord) -> None:
        new = turns(dice, self._clock.step, 3)
        self.memory.replace_session(new, namespace=namespace, session_id=record.session_id)

    def _delete_turn(self, dice: random.Random, namespace: str, record: SessionRecord) -> None:
        n_turns = len(self.memory.get(record.session_id, namespace=namespace).turns)
        self.memory.delete_turn(record.session_id, dice.randrange(n_turns), namespace=namespace)

    def _delete(self, dice: random.Random, namespace: str, record: SessionRecord) -> None:
        self.memory.delete_session(record.session_id, namespace=namespace)

    def _delete_much(self, dice: random.Random, namespace: str, step: int) -> None:
        if dice.random() < 0.7:
            self.memory.delete_conversation(f"c{dice.randint(0, 2)}", namespace=namespace)
        else:
            self.memory.delete_namespace(namespace)

    def _import(self, dice: random.Random, namespace: str, step: int) -> None:
        lines = io.StringIO()
        with MemGAS.in_memory(embedder=HashEmbedder(), clock=self._clock) as other:
            news = [NewSession(turns(dice, step, 4), f"i{step}.{n}", START) for n in range(6)]
            other.add_many(news, namespace="x")
            other.export_jsonl(lines, namespace="x")
        self.memory.import_jsonl(lines.getvalue().splitlines(), namespace=namespace)


def turns(dice: random.Random, step: int, n_turns: int) -> list[Turn]:
    """Return turns that say who said them when."""
    return [
        Turn(("user", "assistant")[n % 2], f"{' '.join(dice.choices(WORDS, k=6))} {step} {n}", id=f"m{step}.{n}")
        for n in range(n_turns)
    ]


def state_of(memory: MemGAS) -> State:
    """Return all that was said, by namespace, in order.

    Not the numbers of sessions: a digest takes one too, and when it is made is up to the background.
    """
    found: State = {}
    for namespace in memory.namespaces():
        records = memory.list_sessions(namespace=namespace, kind=None)
        found[namespace] = [
            (s.session_id, s.turns, s.conversation_id, s.metadata, s.happened_at)
            for s in (memory.get(record.session_id, namespace=namespace) for record in records)
        ]
    return found


def opened(path: str | None, clock: Clock) -> MemGAS:
    """Open a memory for a story."""
    config = MemGASConfig(max_session_turns=6)
    if path is None:
        return MemGAS.in_memory(embedder=HashEmbedder(), config=config, clock=clock)
    return MemGAS(path, embedder=HashEmbedder(), config=config, clock=clock)


def tell(path: str, step: int) -> Iterator[int]:
    """Go on with a story; yield each step that was acknowledged."""
    clock = Clock()
    story = Story(opened(path, clock), clock)
    while True:
        story.take(step)
        yield step
        step += 1


if __name__ == "__main__":
    for acknowledged in tell(sys.argv[1], int(sys.argv[2])):
        sys.stdout.write(f"{acknowledged}\n")
        sys.stdout.flush()
