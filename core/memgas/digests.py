"""Digests that follow a write: asked of the language model or extracted, in the background or when forced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from memgas.config import MemGASConfig
from memgas.digest import parse_digest
from memgas.errors import LLMError, MemGASError
from memgas.prompts import digest_prompt
from memgas.protocols import LLM
from memgas.remembering import Remembering
from memgas.stored import fetch_turns, find
from memgas.types import Digest, SessionRecord, Turn
from memgas.units import session_text
from memgas.workspace import Workspace

_log = logging.getLogger("memgas")


class Digests:
    """Makes the digests of sessions that are closed and pending.

    Parameters
    ----------
    workspace
        Returns where sessions are kept; raises ClosedError when the memory is closed.
    remembering
        Writes them.
    llm
        None: digests are extracted.
    config
        Settings read when a memory is added.
    clock
        Tells the time, with a zone.
    """

    def __init__(
        self,
        workspace: Callable[[], Workspace],
        remembering: Remembering,
        llm: LLM | None,
        config: MemGASConfig,
        clock: Callable[[], datetime],
    ) -> None:
        self._open = workspace
        self._remembering = remembering
        self._llm = llm
        self._config = config
        self._clock = clock

    def later(self, namespace: str, records: Sequence[SessionRecord]) -> None:
        """Make the digests of sessions in the background."""
        for record in records:
            self._open().later(partial(self._make_quietly, namespace, record.session_id))

    def make_pending(self, namespace: str) -> int:
        """Make the digests that are due; return how many were made."""
        with self._open().reading(namespace) as index:
            due = [
                s.record.session_id for s in index.visible_sessions() if s.record.is_pending and not s.record.is_open
            ]
        return sum(self._make_quietly(namespace, session_id) for session_id in due)

    def ask(self, turns: Sequence[Turn], happened_at: datetime) -> Digest:
        """Ask the language model for a digest; raise LLMError when there is none, or its answer cannot be used."""
        if self._llm is None:
            raise LLMError("no language model was given")
        n_keywords = self._config.n_keywords
        prompt = digest_prompt(session_text(turns), happened_at=happened_at, n_keywords=n_keywords)
        return parse_digest(self._llm.complete(prompt), n_keywords=n_keywords)

    def _make_quietly(self, namespace: str, session_id: str) -> bool:
        """Make a pending digest; what fails stays pending, and is told in the log."""
        try:
            return self._make(namespace, session_id)
        except MemGASError as error:
            _log.warning("the digest of a session stays pending: %s", type(error).__name__)
            return False

    def _make(self, namespace: str, session_id: str) -> bool:
        with self._open().reading(namespace) as index:
            record = find(index, session_id).record
            turns = fetch_turns(self._open().store, index, find(index, session_id))
        if not record.is_pending or record.is_open:
            return False
        digest = (
            self.ask(turns, record.happened_at) if self._llm is not None and any(turn.text for turn in turns) else None
        )
        with self._open().writing(namespace) as index:
            state = find(index, session_id)
            if state.record != record:
                return False  # written to meanwhile: whoever did that left it pending again, or finished it
            self._remembering.finish(index, state, turns, digest, self._clock())
        return True
