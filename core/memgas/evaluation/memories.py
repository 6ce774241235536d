"""The one place where the evaluation speaks to a memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.evaluation.cached_embedder import CachedEmbedder, Clock
from memgas.evaluation.dialogues import Dialogue, Question
from memgas.lexical import tokenize
from memgas.protocols import LLM
from memgas.request import Request
from memgas.scoring import Readings, read_nodes, score_nodes
from memgas.types import Digest, NewSession

if TYPE_CHECKING:
    from memgas.memory import MemGAS
    from memgas.retrieval import Retrieval
    from memgas.stores.in_memory import InMemoryStore

_NAMESPACE = "evaluation"
_NO_ASSOCIATIONS = 1_000_000_000
_IN_THE_MIRROR = ("bm25_k1", "bm25_b")


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """A memory, in memory, that was told a dialogue. Any settings of retrieval can be tried on it without adding again.

    Attributes
    ----------
    memory
        Keeps the store open; under the settings it was told with.
    add_seconds
        To take in the sessions, without what the embedder took.
    readings
        By question: how it compares with every unit, whatever the settings.
    """

    store: InMemoryStore
    memory: MemGAS
    add_seconds: float
    readings: dict[str, Readings] = field(default_factory=dict)

    def under(self, config: MemGASConfig, llm: LLM | None = None) -> MemGAS:
        """Open the same memory under other settings of retrieval, with a model for the filter; close it afterwards."""
        from memgas.memory import MemGAS

        return MemGAS(store=self.store, embedder=self.memory.embedder.embedder, config=config, llm=llm)


def added_alike(config: MemGASConfig) -> tuple[object, ...]:
    """Return what two configurations must have in common to be tried on one memory that was told once."""
    return tuple(
        getattr(config, spec.name)
        for spec in fields(config)
        if spec.metadata["when"] == "add" or spec.name in _IN_THE_MIRROR
    )


def tell(
    dialogue: Dialogue,
    digests: Sequence[Digest | None],
    *,
    embedder: CachedEmbedder,
    config: MemGASConfig,
    llm: LLM | None = None,
) -> Told:
    """Tell a dialogue to an empty memory.

    Sessions are known by their position, so that no id can give a gold one away.

    Parameters
    ----------
    dialogue
        What was said.
    digests
        One a session; None where the memory is to make its own.
    embedder, config, llm
        Of the memory. The model writes digests where none is given.
    """
    from memgas.memory import MemGAS
    from memgas.stores.in_memory import InMemoryStore

    clock = Clock(embedder)
    store = InMemoryStore()
    memory = MemGAS(store=store, embedder=embedder, config=config, llm=llm)
    memory.add_many(
        [
            NewSession(session.turns, str(position), session.happened_at, digest=digest)
            for position, (session, digest) in enumerate(zip(dialogue.sessions, digests, strict=True))
        ],
        namespace=_NAMESPACE,
    )
    return Told(store, memory, clock.read())


def asking_time(dialogue: Dialogue, question: Question) -> datetime:
    """Return when a question is asked: its own date, or that of the last session; never the day of the evaluation."""
    return question.asked_at or dialogue.sessions[-1].happened_at


def recalled(
    memory: MemGAS, dialogue: Dialogue, question: Question, *, top_k: int, filter: Literal["llm"] | None = None
) -> Retrieval:
    """Return what a memory finds for a question."""
    return memory.retrieve(
        question.text, namespace=_NAMESPACE, top_k=top_k, asked_at=asking_time(dialogue, question), filter=filter
    )  # fmt: skip


def ranked_by(told: Told, config: MemGASConfig, dialogue: Dialogue, question: Question) -> NDArray[np.intp]:
    """Return all sessions in the order in which `retrieve` gives them under some settings: `(n_found,)`.

    By its numeric steps alone: to make a hit of every session, with evidence and reasons, takes ten times as long. That the
    order is that of `retrieve` is tested. What does not depend on settings is kept for the next ones.
    """
    with told.memory._workspace.reading(_NAMESPACE) as index:
        if question.id not in told.readings:
            request = Request(question.text, _NAMESPACE, len(dialogue.sessions), asking_time(dialogue, question))
            vector, terms = told.memory.embedder.embed_query(question.text), tokenize(question.text)
            told.readings[question.id] = read_nodes(index, vector, terms, request)
        readings = told.readings[question.id]
        allowed = np.array(index.alive)
        order = score_nodes(readings, allowed, config, top_k=len(dialogue.sessions)).order
        found = [state.record.session_id for slot in order if (state := index.state(int(slot))) is not None]
    return np.array([int(session_id) for session_id in found], dtype=np.intp)


def extracted_digests(dialogue: Dialogue, *, embedder: CachedEmbedder) -> tuple[Digest, ...]:
    """Return the digests that a memory without a language model makes of a dialogue, one a session."""
    config = MemGASConfig(warmup_sessions=_NO_ASSOCIATIONS)  # associations do not change a digest
    told = tell(dialogue, [None] * len(dialogue.sessions), embedder=embedder, config=config)
    with told.memory as memory:
        stored = [memory.get(str(i), namespace=_NAMESPACE).digest for i in range(len(dialogue.sessions))]
    return tuple(digest or Digest("", (), "extractive") for digest in stored)
