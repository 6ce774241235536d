"""Calls of a language model, each written down the moment it is answered, so that none is paid twice.

A JSON line a call. What was asked is known by its hash: a run that was killed asks again, finds the reply here, and goes on.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Literal, Protocol, runtime_checkable

from memgas.errors import InvalidInputError, MemGASError
from memgas.models.calls import SafeLLM, estimate_tokens
from memgas.protocols import LLM
from memgas.units import hash_parts

_BEGINNING = b'{"key": "'

Kind = Literal["digest", "filter", "answer", "judge"]


class CapReachedError(MemGASError):
    """The next call could exceed the cap; nothing was asked. No LLMError, which a memory would live with."""


@runtime_checkable
class CountingLLM(Protocol):
    """A language model that says what a call took, as servers do."""

    def complete_counted(self, prompt: str) -> tuple[str, int, int]:
        """Answer one prompt: the text, tokens of the prompt, tokens of the answer."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One call that was answered.

    Attributes
    ----------
    key
        Hash of model and prompt.
    is_estimated
        The model did not say how many tokens it took.
    """

    key: str
    kind: Kind
    model: str
    reply: str
    n_prompt_tokens: int
    n_reply_tokens: int
    is_estimated: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in any currency, a million tokens."""

    prompt: float = 0.0
    reply: float = 0.0

    def of(self, n_prompt_tokens: int, n_reply_tokens: int) -> float:
        """Return what so many tokens cost."""
        return (n_prompt_tokens * self.prompt + n_reply_tokens * self.reply) / 1e6


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that a log may come to, calls of earlier runs included; None: no limit.

    Attributes
    ----------
    max_reply_tokens
        Assumed of a call before it is made; give the model the same limit, or a long reply goes beyond `max_cost`.
    """

    max_calls: int | None = None
    max_cost: float | None = None
    max_reply_tokens: int = 512


class CallLog:
    """The calls of a run and of those before it, and what they came to.

    Parameters
    ----------
    path
        JSON Lines, made if missing. None: kept in memory only.
    prices
        By model; one that is not named costs nothing.
    cap
        Checked before a call is made, with what is under way.

    Attributes
    ----------
    n_made, n_reused
        Calls that this run made, and replies that it found written down.

    Raises
    ------
    InvalidInputError
        The file is something else, or cannot be written. A last line that was cut by a kill is dropped.
    """

    def __init__(self, path: str | Path | None, *, prices: Mapping[str, Price], cap: Cap) -> None:
        self.n_made = 0
        self.n_reused = 0
        self._prices = prices
        self._cap = cap
        self._calls: dict[str, Call] = {}
        self._spent = 0.0
        self._reserved_calls = 0
        self._reserved_cost = 0.0
        self._lock = threading.Lock()
        self._asking: dict[str, threading.Lock] = {}
        self._file: IO[bytes] | None = None
        if path is not None:
            self._file = self._opened(Path(path))

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every call, earlier runs' included, in order."""
        with self._lock:
            return tuple(self._calls.values())

    @property
    def cost(self) -> float:
        """What all calls cost, earlier runs' included."""
        with self._lock:
            return self._spent

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def ask(self, llm: LLM, *, model: str, kind: Kind, prompt: str) -> str:
        """Return the reply to a prompt: the one that is written down, or else the model's, written down first.

        Raises
        ------
        CapReachedError
            The call could exceed the cap.
        LLMError
            The model failed; nothing is written, the next run tries again.
        """
        key = hash_parts(model, prompt)
        with self._lock:
            turn = self._asking.setdefault(key, threading.Lock())
        with turn:  # two that ask the same share one call
            with self._lock:
                if key in self._calls:
                    self.n_reused += 1
                    return self._calls[key].reply
            reserved = self._reserve(model, prompt)
            call: Call | None = None
            try:
                call = _make(llm, model, kind, prompt, key)
            finally:
                self._settle(reserved, call)
            return call.reply

    def _reserve(self, model: str, prompt: str) -> float:
        """Set aside what a call may come to while it is under way, or raise; return its cost."""
        expected = self._price(model).of(estimate_tokens(prompt), self._cap.max_reply_tokens)
        with self._lock:
            n_calls = len(self._calls) + self._reserved_calls + 1
            if self._cap.max_calls is not None and n_calls > self._cap.max_calls:
                raise CapReachedError(f"the cap of {self._cap.max_calls:,} calls is reached; a higher one continues")
            cost = self._spent + self._reserved_cost + expected
            if self._cap.max_cost is not None and cost > self._cap.max_cost:
                raise CapReachedError(
                    f"the next call could exceed the cap on cost, {self._cap.max_cost:g}; a higher one continues"
                )
            self._reserved_calls += 1
            self._reserved_cost += expected
        return expected

    def _settle(self, reserved: float, call: Call | None) -> None:
        """Give back what was set aside; a call that was answered is written to the disk before anybody sees its reply."""
        with self._lock:
            self._reserved_calls -= 1
            self._reserved_cost -= reserved
            if call is None:
                return
            self._count(call)
            self.n_made += 1
            if self._file is not None:
                self._file.write(json.dumps(asdict(call), ensure_ascii=False).encode() + b"\n")
                self._file.flush()
                os.fsync(self._file.fileno())

    def _price(self, model: str) -> Price:
        return self._prices.get(model, Price())

    def _count(self, call: Call) -> None:
        self._calls[call.key] = call
        self._spent += self._price(call.model).of(call.n_prompt_tokens, call.n_reply_tokens)

    def _opened(self, path: Path) -> IO[bytes]:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a+b")
        except OSError as error:
            raise InvalidInputError(f"{path}: expected a log that can be written; {error.strerror}") from None
        is_read = False
        try:
            file.seek(0)
            end = 0
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n") and (line.startswith(_BEGINNING) or _BEGINNING.startswith(line)):
                    break  # a kill cut it: that call is made again
                self._count(_read(line, f"{path.name}, line {number}"))
                end += len(line)
            file.truncate(end)
            is_read = True
        finally:
            if not is_read:
                file.close()
        return file


class LoggedLLM:
    """A language model whose calls go through a log; is one itself.

    Parameters
    ----------
    llm
        Does the work.
    name
        Of the model: two models of one name share their replies.
    log
        Where its calls are written.
    kind
        What it is asked for.
    """

    is_thread_safe = True

    def __init__(self, llm: LLM, name: str, log: CallLog, *, kind: Kind) -> None:
        self.name = name
        self._llm = llm if isinstance(llm, CountingLLM) else SafeLLM(llm)
        self._log = log
        self._kind = kind

    def asked_for(self, kind: Kind) -> LoggedLLM:
        """Return the same model, asked for something else."""
        return LoggedLLM(self._llm, self.name, self._log, kind=kind)

    def complete(self, prompt: str) -> str:
        """Answer one prompt, from the log where it is there."""
        return self._log.ask(self._llm, model=self.name, kind=self._kind, prompt=prompt)


def _make(llm: LLM, model: str, kind: Kind, prompt: str, key: str) -> Call:
    started = time.perf_counter()
    if isinstance(llm, CountingLLM):
        reply, n_prompt, n_reply = llm.complete_counted(prompt)
        is_estimated = False
    else:
        reply = llm.complete(prompt)
        n_prompt, n_reply, is_estimated = estimate_tokens(prompt), estimate_tokens(reply), True
    seconds = round(time.perf_counter() - started, 3)
    return Call(key, kind, model, reply, n_prompt, n_reply, is_estimated, seconds)


def _read(line: bytes, where: str) -> Call:
    try:
        return Call(**json.loads(line))
    except (ValueError, TypeError):  # no JSON, or other keys
        raise InvalidInputError(f"{where}: expected a call as `memgas answer` writes it; give another log") from None
