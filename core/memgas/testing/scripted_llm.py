"""A language model for tests: it says what it was told to say."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

Reply = str | BaseException | Callable[[str], str]
"""Text to answer, an exception to raise, or a function of the prompt."""


class ScriptedLLM:
    """Answer each prompt with the next reply.

    Parameters
    ----------
    replies
        In order. More may be put into the attribute of the same name at any time.
    default
        The reply when none is left. Without it, running out raises an AssertionError.
    is_thread_safe
        What it claims.

    Attributes
    ----------
    prompts
        Every prompt so far, in order.
    """

    name = "scripted"

    def __init__(
        self, replies: Iterable[Reply] = (), *, default: Reply | None = None, is_thread_safe: bool = True
    ) -> None:
        self.replies: deque[Reply] = deque(replies)
        self.prompts: list[str] = []
        self.is_thread_safe = is_thread_safe
        self._default = default
        self._taking = threading.Lock()

    def __repr__(self) -> str:
        return f"ScriptedLLM({len(self.replies)} replies left)"

    def complete(self, prompt: str) -> str:
        """Answer one prompt.

        Raises
        ------
        AssertionError
            No reply is left.
        """
        with self._taking:
            self.prompts.append(prompt)
            reply = self.replies.popleft() if self.replies else self._default
        if reply is None:
            raise AssertionError(f"no reply is left for prompt {len(self.prompts)}: {prompt[:80]!r}")
        if isinstance(reply, BaseException):
            raise reply
        return reply if isinstance(reply, str) else reply(prompt)
