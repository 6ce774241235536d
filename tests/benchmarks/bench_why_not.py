"""Whether why-not is true and minimal over real misses: gold sessions of LoCoMo that a retrieval leaves out.

Needs the data set: MEMGAS_LOCOMO names its file. MEMGAS_MISSES: how many are sampled, 200 when not set.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from memgas import Digest, MemGAS, MemGASConfig
from memgas.evaluation import read_locomo
from memgas.evaluation.cached_embedder import CachedEmbedder
from memgas.evaluation.dialogues import Dialogue, Question
from memgas.evaluation.memories import Told, asking_time, recalled, tell
from memgas.models import load_embedder
from memgas.settings_grid import GRID, Value, nearest_first

pytestmark = pytest.mark.benchmark

N_MISSES = int(os.environ.get("MEMGAS_MISSES", "200"))
KS = (5, 3, 10, 1)
"""Misses of the first are all taken, then those of the next, until there are enough."""


@dataclass(frozen=True)
class Miss:
    """A gold session that is not among the first k."""

    dialogue: Dialogue
    question: Question
    session_id: str
    top_k: int


class Memories:
    """Every dialogue, told once; and once more for each of BM25's settings, which are read when a store is opened."""

    def __init__(self) -> None:
        self._embedder = CachedEmbedder(load_embedder("fast-use"))
        self._told: dict[tuple[str, object], Told] = {}

    def under(self, dialogue: Dialogue, **changed: Value) -> MemGAS:
        """Return the memory of a dialogue under changed settings; close it afterwards."""
        config = replace(MemGASConfig(), **changed)  # type: ignore[arg-type]
        key = dialogue.id, (config.bm25_k1, config.bm25_b)
        if key not in self._told:
            digests = [Digest(s.given_summary, ()) if s.given_summary else None for s in dialogue.sessions]
            self._told[key] = tell(dialogue, digests, embedder=self._embedder, config=config)
        return self._told[key].under(config)


def misses(memories: Memories, dialogues: tuple[Dialogue, ...]) -> Iterator[Miss]:
    """Yield the misses of each k, shuffled, the session once a question and k."""
    for top_k in KS:
        found = []
        for dialogue in dialogues:
            with memories.under(dialogue) as memory:
                for question in dialogue.judged:
                    hits = {hit.session_id for hit in recalled(memory, dialogue, question, top_k=top_k).hits}
                    found += [
                        Miss(dialogue, question, str(n), top_k) for n in sorted(question.gold) if str(n) not in hits
                    ]
        yield from random.Random(top_k).sample(found, len(found))


def place(memory: MemGAS, miss: Miss) -> int | None:
    """Return the session's place when it is retrieved anew."""
    ids = [hit.session_id for hit in recalled(memory, miss.dialogue, miss.question, top_k=miss.top_k).hits]
    return ids.index(miss.session_id) + 1 if miss.session_id in ids else None


def wrongs_of(memories: Memories, miss: Miss) -> tuple[list[str], list[str]]:
    """Return what why-not says wrongly of a miss, and the settings that it says help."""
    with memories.under(miss.dialogue) as memory:
        told = memory.explain(
            miss.question.text, namespace="evaluation", session_id=miss.session_id, top_k=miss.top_k,
            asked_at=asking_time(miss.dialogue, miss.question),
        )  # fmt: skip
    helps = {change.setting: change for change in told.changes}
    wrong = [f"stage {told.stage}"] if told.stage != "rank" else []
    wrong += [f"{name} is not told of" for name in {"top_k", *GRID} - {*helps, *told.unhelpful}]
    for name in GRID:
        change = helps.get(name)
        for value in nearest_first(name, MemGASConfig()):
            with memories.under(miss.dialogue, **{name: value}) as memory:
                found = place(memory, miss)
            if change is not None and value == change.needed:
                wrong += [] if found == change.place else [f"{name}={value}: place {found}, told {change.place}"]
                break
            wrong += [] if found is None else [f"{name}={value} helps already, at place {found}"]
    return wrong, sorted(helps)


def test_why_not_over_misses_of_locomo() -> None:
    """For each miss and setting the change named brings the session in, and no nearer value of the grid does."""
    path = os.environ.get("MEMGAS_LOCOMO")
    if path is None:
        pytest.skip("MEMGAS_LOCOMO names no file")
    memories = Memories()
    dialogues = read_locomo(path).dialogues
    by_k, helping, wrong = Counter[int](), Counter[str](), []
    for n_done, miss in enumerate(misses(memories, dialogues)):
        if n_done == N_MISSES:
            break
        said, helps = wrongs_of(memories, miss)
        by_k[miss.top_k] += 1
        helping.update(helps)
        wrong += [(miss.question.id, miss.session_id, miss.top_k, line) for line in said]
    print(f"\n{sum(by_k.values())} misses, by k: {dict(by_k)}; wrong: {len(wrong)}")  # noqa: T201
    print(", ".join(f"{name} helps {n}" for name, n in helping.most_common()))  # noqa: T201
    assert sum(by_k.values()) == N_MISSES
    assert wrong == []
