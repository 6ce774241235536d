"""What the baselines look at: the texts of a dialogue at every granularity, their terms and their vectors.

Cut and rendered as the memory does it, so that a text both look at is embedded once. Computed when first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memgas.config import MemGASConfig
from memgas.errors import InvalidInputError
from memgas.evaluation.bm25 import terms_of
from memgas.evaluation.cached_embedder import CachedEmbedder
from memgas.evaluation.dialogues import Dataset, Dialogue, DialogueSession
from memgas.evaluation.memories import Told, added_alike, extracted_digests, tell
from memgas.models.calls import estimate_tokens
from memgas.types import Digest
from memgas.units import exchange_unit, session_text, split_exchanges, split_windows

FloatArray = NDArray[np.float64]
Summaries = Literal["extractive", "from-file"]

MAX_EXCHANGE_TURNS = 8
MAX_EXCHANGE_CHARS = 4_000
MAX_WINDOW_TOKENS = 480


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts at one granularity.

    Attributes
    ----------
    texts
        In the order of the sessions.
    owners : (n_texts,)
        The session of each, ascending.
    """

    texts: tuple[str, ...]
    owners: NDArray[np.intp]


class Views:
    """Views of one dialogue.

    Parameters
    ----------
    dialogue
        What was said.
    embedder
        Shared by all methods.
    summaries
        `from-file`: the data set's own; `extractive`: those a memory without a language model makes.
    """

    def __init__(self, dialogue: Dialogue, embedder: CachedEmbedder, *, summaries: Summaries) -> None:
        self.dialogue = dialogue
        self.embedder = embedder
        self.summaries = summaries
        self.n_sessions = len(dialogue.sessions)
        self._terms: dict[str, list[list[str]]] = {}
        self._vectors: dict[str, tuple[FloatArray, NDArray[np.intp]]] = {}
        self._told: dict[tuple[object, ...], Told] = {}

    def close(self) -> None:
        """Let go of the memories that were told the dialogue."""
        for told in self._told.values():
            told.memory.close()
        self._told.clear()

    def told(self, config: MemGASConfig) -> Told:
        """Return a memory that was told the dialogue under the settings of adding; told once for all that share them."""
        key = added_alike(config)
        if key not in self._told:
            self._told[key] = tell(self.dialogue, self.digests, embedder=self.embedder, config=config)
        return self._told[key]

    @cached_property
    def extracted(self) -> tuple[Digest, ...]:
        """The digest of each session that a memory without a language model makes."""
        return extracted_digests(self.dialogue, embedder=self.embedder)

    @cached_property
    def digests(self) -> tuple[Digest, ...]:
        """The digest of each session that all methods share. Keywords are always extracted: no data set gives any."""
        if self.summaries == "extractive":
            return self.extracted
        pairs = zip(self.summary.texts, self.extracted, strict=True)
        return tuple(Digest(summary, digest.keywords, "given") for summary, digest in pairs)

    @cached_property
    def turn(self) -> Texts:
        """One text an exchange: an utterance and the reply to it."""
        texts: list[str] = []
        owners: list[int] = []
        for number, session in enumerate(self.dialogue.sessions):
            cut = split_exchanges(session.turns, max_turns=MAX_EXCHANGE_TURNS, max_chars=MAX_EXCHANGE_CHARS)
            texts.extend(exchange_unit(exchange, "", "", 0, position).text for position, exchange in enumerate(cut))
            owners.extend([number] * len(cut))
        return Texts(tuple(texts), np.array(owners, dtype=np.intp))

    @cached_property
    def session(self) -> Texts:
        """The whole text of each session."""
        return self._one_each([session_text(session.turns) for session in self.dialogue.sessions])

    @cached_property
    def summary(self) -> Texts:
        """The summary of each session."""
        if self.summaries == "extractive":
            return self._one_each([digest.summary for digest in self.extracted])
        return self._one_each([
            given_summary(session, f"{self.dialogue.id}, session {i}")
            for i, session in enumerate(self.dialogue.sessions, start=1)
        ])  # fmt: skip

    @cached_property
    def keyword(self) -> Texts:
        """The keywords of each session."""
        return self._one_each(["; ".join(digest.keywords) for digest in self.extracted])

    @cached_property
    def session_tokens(self) -> FloatArray:
        """Estimated tokens of each session's text: `(n_sessions,)`."""
        return np.array([estimate_tokens(text) for text in self.session.texts], dtype=np.float64)

    @cached_property
    def hybrid(self) -> Texts:
        """Summary, keywords and text of each session, one after the other."""
        parts = zip(self.summary.texts, self.keyword.texts, self.session.texts, strict=True)
        return self._one_each(["\n".join(filter(None, part)) for part in parts])

    def texts(self, granularity: str) -> Texts:
        """Return the view of that name."""
        return {
            "turn": lambda: self.turn, "session": lambda: self.session, "summary": lambda: self.summary,
            "keyword": lambda: self.keyword, "hybrid": lambda: self.hybrid,
        }[granularity]()  # fmt: skip

    def terms(self, granularity: str) -> list[list[str]]:
        """Return the terms of each text."""
        if granularity not in self._terms:
            self._terms[granularity] = [terms_of(text) for text in self.texts(granularity).texts]
        return self._terms[granularity]

    @cached_property
    def query_terms(self) -> list[list[str]]:
        """The terms of each question that is judged."""
        return [terms_of(question.text) for question in self.dialogue.judged]

    def vectors(self, granularity: str) -> tuple[FloatArray, NDArray[np.intp]]:
        """Return unit vectors and their sessions: `(n_windows, n_dims)`, `(n_windows,)`.

        Nothing is cut: what is longer than the embedder reads stands in several windows. A blank text is a zero vector.
        """
        if granularity not in self._vectors:
            view = self.texts(granularity)
            windows, owners = self._windows(view)
            raw = np.zeros((len(windows), self.embedder.n_dims), dtype=np.float32)
            said = [i for i, window in enumerate(windows) if window.strip()]
            raw[said] = self.embedder.embed_documents([windows[i] for i in said])
            self._vectors[granularity] = normalised(raw), owners
        return self._vectors[granularity]

    @cached_property
    def query_vectors(self) -> FloatArray:
        """A unit vector for each question that is judged: `(n_questions, n_dims)`."""
        return normalised(self.embedder.embed_queries([question.text for question in self.dialogue.judged]))

    def _one_each(self, texts: Sequence[str]) -> Texts:
        return Texts(tuple(texts), np.arange(self.n_sessions, dtype=np.intp))

    def _windows(self, view: Texts) -> tuple[list[str], NDArray[np.intp]]:
        limit = self.embedder.max_tokens
        max_tokens = MAX_WINDOW_TOKENS if limit is None else min(limit, MAX_WINDOW_TOKENS)
        windows: list[str] = []
        owners: list[int] = []
        for text, owner in zip(view.texts, view.owners, strict=True):
            cut = split_windows(text, max_tokens=max_tokens, count_tokens=self.embedder.count_tokens)
            windows.extend(cut)
            owners.extend([int(owner)] * len(cut))
        return windows, np.array(owners, dtype=np.intp)


def given_summary(session: DialogueSession, where: str) -> str:
    """Return the data set's summary of a session.

    Raises
    ------
    InvalidInputError
        It has none.
    """
    if session.given_summary is None:
        raise InvalidInputError(
            f"{where}: expected a summary in the data set; it has none: evaluate with summaries='extractive'"
        )
    return session.given_summary


def available_summaries(dataset: Dataset, wanted: Summaries) -> Summaries:
    """Return `from-file` if it is wanted and every session that is asked about has a summary there; else `extractive`."""
    sessions = (session for dialogue in dataset.dialogues if dialogue.judged for session in dialogue.sessions)
    return wanted if all(session.given_summary for session in sessions) else "extractive"


def normalised(vectors: NDArray[np.float32]) -> FloatArray:
    """Return rows of length 1, zero rows as they are: `(n, n_dims)` in float64."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return exact / np.where(lengths == 0.0, 1.0, lengths)
