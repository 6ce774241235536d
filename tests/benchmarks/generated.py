"""Generated memories: dialogue with topics, vectors that cluster by them, associations to older units, mostly of the same.

Nothing is read from a file, and equal arguments give equal memories.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np
from numpy.typing import NDArray

from memgas import Association, Digest, Granularity, MemoryUnit, NewSession, SessionRecord, Turn
from memgas.types import Batch, Head
from memgas.units import Exchange, digest_units, exchange_unit

N_DIMS = 384
N_EXCHANGES = 10
UNITS_A_SESSION = N_EXCHANGES + 3
ROWS_A_SESSION = UNITS_A_SESSION + 2
"""The session's own text is longer than a window: two rows more."""

_N_TOPICS = 200
_N_WORDS = 20_000
_N_OWN_WORDS = 60
_TURN_WORDS = 24
_EDGES_A_UNIT = 8
_EPOCH = datetime(2023, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Said:
    """One session's words."""

    topic: int
    turns: tuple[Turn, ...]
    digest: Digest


@dataclass(frozen=True, slots=True)
class _World:
    """The centre of each topic, and the ids of the units told of it so far."""

    centres: NDArray[np.float32]
    older: list[list[str]]
    rng: np.random.Generator


def dialogue(n_sessions: int, *, seed: int = 0, n_turns: int = 2 * N_EXCHANGES) -> Iterator[Said]:
    """Yield sessions of 24-word turns by two speakers: words by Zipf's law, every third one of the session's topic."""
    common, own, rng = _words_said(seed)
    for _ in range(n_sessions):
        topic = int(rng.integers(_N_TOPICS))
        text = common[rng.integers(0, len(common), (n_turns, _TURN_WORDS))]
        text[:, ::3] = own[topic, rng.integers(0, _N_OWN_WORDS, text[:, ::3].shape)]
        turns = tuple(Turn("bo" if i % 2 else "ann", " ".join(row)) for i, row in enumerate(text))
        yield Said(topic, turns, Digest(turns[0].text, tuple(sorted(set(text[:, 0]))[:6])))


def _words_said(seed: int) -> tuple[NDArray[np.str_], NDArray[np.str_], np.random.Generator]:
    """Return words as often as they are said, those of each topic, and what goes on choosing."""
    common, own, state = _chosen_words(seed)
    rng = np.random.default_rng()
    rng.bit_generator.state = state
    return common, own, rng


@cache
def _chosen_words(seed: int) -> tuple[NDArray[np.str_], NDArray[np.str_], Mapping[str, object]]:
    rng = np.random.default_rng(seed)
    words = np.array([_word(number) for number in range(_N_WORDS)])
    chance = 1 / np.arange(1, _N_WORDS + 1)
    common = rng.choice(words, size=(200_000,), p=chance / chance.sum())
    own = rng.choice(words[500:], size=(_N_TOPICS, _N_OWN_WORDS))
    return common, own, rng.bit_generator.state


def sessions(n_sessions: int, *, seed: int = 0) -> Iterator[NewSession]:
    """Yield sessions as a caller gives them."""
    for number, said in enumerate(dialogue(n_sessions, seed=seed)):
        yield NewSession(said.turns, str(number), _day(number), digest=said.digest)


def batches(
    namespace: str, n_sessions: int, *, page: int = 20, seed: int = 0, n_turns: int = 2 * N_EXCHANGES
) -> Iterator[Batch]:
    """Yield a namespace as writes of `page` sessions each, made without an embedder: `UNITS_A_SESSION` units a session."""
    rng = np.random.default_rng(seed + 1)
    world = _World(_normalised(rng.normal(size=(_N_TOPICS, N_DIMS))), [[] for _ in range(_N_TOPICS)], rng)
    head = Head(namespace, "epoch", 0, 0)
    records: list[SessionRecord] = []
    units: list[MemoryUnit] = []
    topics: list[int] = []
    for number, said in enumerate(dialogue(n_sessions, seed=seed, n_turns=n_turns)):
        record, own = _written(namespace, number, said)
        records.append(record)
        units += own
        topics += [said.topic] * len(own)
        if len(records) == page or number == n_sessions - 1:
            head = Head(namespace, "epoch", head.revision + 1, number + 1)
            yield _batch(head, records, units, topics, world)
            records, units, topics = [], [], []


def queries(n: int, *, seed: int = 7) -> list[tuple[str, NDArray[np.float32]]]:
    """Return questions of six words, three of them of a topic, with vectors near it."""
    rng = np.random.default_rng(1)
    centres = _normalised(rng.normal(size=(_N_TOPICS, N_DIMS)))
    asked = []
    for number, said in enumerate(dialogue(n, seed=seed)):
        noise = np.random.default_rng(seed + number).normal(size=N_DIMS)
        vector = _normalised((centres[said.topic] + 0.04 * noise)[np.newaxis])[0]
        asked.append((" ".join(said.turns[0].text.split()[:6]), vector))
    return asked


def _written(namespace: str, number: int, said: Said) -> tuple[SessionRecord, list[MemoryUnit]]:
    place = (namespace, str(number), number)
    exchanges = [Exchange(at, said.turns[at : at + 2]) for at in range(0, len(said.turns), 2)]
    units = [exchange_unit(exchange, *place, position) for position, exchange in enumerate(exchanges)]
    units += digest_units(said.digest, said.turns, *place)
    counts = (1, len(exchanges), 1, 1)
    day = _day(number)
    return SessionRecord(namespace, str(number), number, number, 1, day, day, day, len(said.turns), counts), units


def _batch(
    head: Head, records: list[SessionRecord], units: list[MemoryUnit], topics: list[int], world: _World
) -> Batch:
    centres, older, rng = world.centres, world.older, world.rng
    vectors = _normalised(centres[topics] + 0.05 * rng.normal(size=(len(units), N_DIMS)))
    owners = np.repeat([row for row, unit in enumerate(units) if unit.granularity is Granularity.SESSION], 2)
    windows = _normalised(vectors[owners] + 0.02 * rng.normal(size=(len(owners), N_DIMS)))
    edges = {unit.id: _edges(unit.id, topic, older, rng) for unit, topic in zip(units, topics, strict=True)}
    for unit, topic in zip(units, topics, strict=True):
        older[topic].append(unit.id)
    marked = [
        MemoryUnit(u.id, u.namespace, u.session_id, u.generation, u.granularity, u.position, u.text, n_windows=2)
        if u.granularity is Granularity.SESSION else u
        for u in units
    ]  # fmt: skip
    return Batch(head, records, marked, vectors, owners.astype(np.intp), windows, {k: e for k, e in edges.items() if e})


def _edges(source: str, topic: int, older: list[list[str]], rng: np.random.Generator) -> list[Association]:
    """Return associations of a unit: with older ones, 85 of 100 of the same topic."""
    found = {}
    for is_same, place, weight in zip(
        rng.random(_EDGES_A_UNIT) < 0.85, rng.random((_EDGES_A_UNIT, 2)), rng.uniform(0.3, 0.9, _EDGES_A_UNIT),
        strict=True,
    ):  # fmt: skip
        ids = older[topic if is_same else int(place[0] * _N_TOPICS)]
        if ids:
            found[ids[int(place[1] * len(ids))]] = float(weight)
    return [Association(source, target, weight) for target, weight in found.items()]


def _normalised(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    normalised: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return normalised


def _word(number: int) -> str:
    """Return a pronounceable word; two numbers never share one."""
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    word = ""
    while True:
        number, rest = divmod(number, len(syllables))
        word += syllables[rest]
        if not number:
            return word + "n"


def _day(number: int) -> datetime:
    return _EPOCH + timedelta(hours=6 * number)
