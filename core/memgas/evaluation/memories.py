"""The one place where the evaluation speaks to a memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.evaluation.dialogues import Dialogue, Question
from memgas.protocols import Embedder
from memgas.types import Digest, NewSession

if TYPE_CHECKING:
    from memgas.memory import MemGAS

_NAMESPACE = "evaluation"
_NO_ASSOCIATIONS = 1_000_000_000


def memory_of(
    dialogue: Dialogue, digests: Sequence[Digest | None], *, embedder: Embedder, config: MemGASConfig
) -> MemGAS:
    """Return a memory, in memory, that was told a dialogue.

    Sessions are known by their position, so that no id can give a gold one away.

    Parameters
    ----------
    dialogue
        What was said.
    digests
        One a session; None where the memory is to make its own.
    embedder, config
        Of the memory.
    """
    from memgas.memory import MemGAS

    memory = MemGAS.in_memory(embedder=embedder, config=config)
    memory.add_many(
        [
            NewSession(session.turns, str(position), session.happened_at, digest=digest)
            for position, (session, digest) in enumerate(zip(dialogue.sessions, digests, strict=True))
        ],
        namespace=_NAMESPACE,
    )
    return memory


def asking_time(dialogue: Dialogue, question: Question) -> datetime:
    """Return when a question is asked: its own date, or that of the last session; never the day of the evaluation."""
    return question.asked_at or dialogue.sessions[-1].happened_at


def ranked_by(memory: MemGAS, dialogue: Dialogue, question: Question) -> NDArray[np.intp]:
    """Return the sessions that a memory finds, best first: `(n_found,)`."""
    found = memory.retrieve(
        question.text, namespace=_NAMESPACE, top_k=len(dialogue.sessions), asked_at=asking_time(dialogue, question)
    )
    return np.array([int(hit.session_id) for hit in found.hits], dtype=np.intp)


def extracted_digests(dialogue: Dialogue, *, embedder: Embedder) -> tuple[Digest, ...]:
    """Return the digests that a memory without a language model makes of a dialogue, one a session."""
    config = MemGASConfig(warmup_sessions=_NO_ASSOCIATIONS)  # associations do not change a digest
    with memory_of(dialogue, [None] * len(dialogue.sessions), embedder=embedder, config=config) as memory:
        stored = [memory.get(str(i), namespace=_NAMESPACE).digest for i in range(len(dialogue.sessions))]
    return tuple(digest or Digest("", (), "extractive") for digest in stored)
