"""The one boundary where whatever a model raises becomes EmbedderError or LLMError, and what it returns is checked."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from memgas.checks import clean_text, is_blank
from memgas.errors import EmbedderError, LLMError, MemGASError
from memgas.lexical import CJK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memgas.protocols import LLM, Embedder

T = TypeVar("T")

_WIDE = re.compile(f"[{CJK}]")
_LATIN = re.compile("[\u0000-\u024f\u2010-\u2027]")
_LONGEST = 2_000
"""Characters kept of a stranger's error: some hold the whole request."""
_SECRETS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]{6,}"), r"\1 ***"),
    (re.compile(r"\b(?:sk|pk|rk|gsk|hf|xai|ghp|AKIA|AIza)[-_]?[-_A-Za-z0-9]{12,}"), "***"),
    (re.compile(r"(?i)(\b[-\w]{0,30}(?:key|token|secret|password|authorization)[\"']*\s*[:=]\s*[\"']*)(?!bearer|basic)[^\s\"',;}&]{6,}"), r"\1***"),
    (re.compile(r"(://[^/\s:@]*):[^/\s@]+@"), r"\1:***@"),
)  # fmt: skip


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text; never more when it is shortened.

    A token is three Latin characters, two of other alphabets, or one Chinese, Japanese or Korean character.
    """
    if text.isascii():
        return math.ceil(len(text) / 3)
    n_latin, n_wide = len(_LATIN.findall(text)), len(_WIDE.findall(text))
    return math.ceil(n_latin / 3 + n_wide + (len(text) - n_latin - n_wide) / 2)


def without_secrets(text: str) -> str:
    """Return a stranger's message without what looks like a key, a token or a password: it may be shown and logged."""
    for pattern, masked in _SECRETS:
        text = pattern.sub(masked, text)
    return text


class SafeEmbedder:
    """Any embedder, made safe: thread-safe, checked, in batches, never called with blank text, normalised.

    Whatever it raises becomes an EmbedderError, but for MemGAS's own errors, cancellation and KeyboardInterrupt, which pass.

    Parameters
    ----------
    embedder
        What does the work. Without `count_tokens`, tokens are estimated; without `name`, its class is its name.
    batch_size
        Most texts of one call.

    Attributes
    ----------
    n_calls
        Calls of the embedder so far.
    n_texts
        Texts it was given so far.
    """

    def __init__(self, embedder: Embedder, *, batch_size: int) -> None:
        self.embedder = embedder
        self.n_calls = 0
        self.n_texts = 0
        self._batch_size = batch_size
        self._expected: int | None = None
        self._is_silent = False
        self._counting = threading.Lock()
        self._turn = _turn(embedder)

    def __repr__(self) -> str:
        return f"SafeEmbedder({self.name})"

    def expect_width(self, n_dims: int) -> None:
        """Take what a store says for the width when the embedder cannot be asked: some learn theirs from a first call."""
        self._expected = n_dims

    @property
    def name(self) -> str:
        """Name for messages."""
        return str(getattr(self.embedder, "name", type(self.embedder).__name__))

    @property
    def n_dims(self) -> int:
        """Width of the vectors."""
        if self._is_silent and self._expected is not None:
            return self._expected
        try:
            return _guarded(lambda: int(self.embedder.n_dims), self.name, EmbedderError)
        except EmbedderError:
            if self._expected is None:
                raise
            self._is_silent = True  # asked once: each time could mean waiting for a server that is down
            return self._expected

    @property
    def max_tokens(self) -> int | None:
        """Tokens read at once, or None."""
        return getattr(self.embedder, "max_tokens", None)

    @property
    def is_thread_safe(self) -> bool:
        """True: calls are serialised where the embedder does not take two at once."""
        return True

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts to keep.

        Returns
        -------
        (n_texts, n_dims) float32
            Rows of length 1. Zero for blank text, and where the embedder returned zeros: such a row has cosine 0 with
            everything, so the unit is found by its words alone.

        Raises
        ------
        EmbedderError
            The embedder raised, or returned another shape or values that are not finite.
        """
        vectors = np.zeros((len(texts), self.n_dims), dtype=np.float32)
        rows = [row for row, text in enumerate(texts) if not is_blank(text)]
        for start in range(0, len(rows), self._batch_size):
            batch = rows[start : start + self._batch_size]
            chosen = [clean_text(texts[row]) for row in batch]
            raw = self._call(lambda chosen=chosen: self.embedder.embed_documents(chosen), len(chosen))  # type: ignore[misc]
            vectors[batch] = self._checked(raw, (len(chosen), self.n_dims))
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a question: `(n_dims,)` float32, of length 1 or zero, under the rules of `embed_documents`."""
        if is_blank(text):
            return np.zeros(self.n_dims, dtype=np.float32)
        raw = self._call(lambda: self.embedder.embed_query(clean_text(text)), 1)
        return self._checked(raw, (self.n_dims,))

    def count_tokens(self, text: str) -> int:
        """Return how many of `max_tokens` the text takes, estimated where the embedder cannot say."""
        count = getattr(self.embedder, "count_tokens", None)
        if count is None:
            return estimate_tokens(text)
        with self._turn:
            return _guarded(lambda: int(count(clean_text(text))), self.name, EmbedderError)

    def _call(self, embed: Callable[[], object], n_texts: int) -> object:
        with self._counting:
            self.n_calls += 1
            self.n_texts += n_texts
        with self._turn:
            return _guarded(embed, self.name, EmbedderError)

    def _checked(self, raw: object, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return what came as normalised float32, or raise EmbedderError."""
        try:
            vectors = np.asarray(raw, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise EmbedderError(f"{self.name} returned no array of shape {shape}: {error}") from error
        if vectors.shape != shape:
            raise EmbedderError(f"{self.name} returned shape {vectors.shape}; expected {shape}, as its n_dims promises")
        if not np.isfinite(vectors).all():
            raise EmbedderError(f"{self.name} returned values that are not finite; nothing was stored")
        largest = np.abs(vectors).max(axis=-1, keepdims=True)
        scaled = vectors / np.where(largest > 0, largest, 1.0)  # squares of very large or small numbers would not fit
        norms = np.linalg.norm(scaled, axis=-1, keepdims=True)
        return (scaled / np.where(norms > 0, norms, 1.0)).astype(np.float32)


class SafeLLM:
    """Any language model, made safe: thread-safe, its answer checked to be text.

    Whatever it raises becomes an LLMError, but for MemGAS's own errors, cancellation and KeyboardInterrupt, which pass.

    Attributes
    ----------
    n_calls
        Calls so far.
    """

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.n_calls = 0
        self._counting = threading.Lock()
        self._turn = _turn(llm)

    def __repr__(self) -> str:
        return f"SafeLLM({self.name})"

    @property
    def name(self) -> str:
        """Name for messages."""
        return str(getattr(self.llm, "name", type(self.llm).__name__))

    @property
    def is_thread_safe(self) -> bool:
        """True: calls are serialised where the model does not take two at once."""
        return True

    def complete(self, prompt: str) -> str:
        """Answer one prompt; an empty answer is an answer.

        Raises
        ------
        LLMError
            The model raised, or answered with something that is not text.
        """
        with self._counting:
            self.n_calls += 1
        with self._turn:
            reply: object = _guarded(lambda: self.llm.complete(prompt), self.name, LLMError)
        if not isinstance(reply, str):
            raise LLMError(f"{self.name} answered with {type(reply).__name__}; expected str")
        return clean_text(reply)


def _turn(model: object) -> AbstractContextManager[object]:
    """Return what to hold while the model works: a lock, or nothing for a model that says it is thread-safe."""
    return nullcontext() if getattr(model, "is_thread_safe", False) is True else threading.Lock()


def _guarded(call: Callable[[], T], name: str, error_type: type[MemGASError]) -> T:
    """Call; turn what is raised into one of our errors."""
    try:
        return call()
    except MemGASError:
        raise
    except Exception as error:  # nobody can list what a stranger's model raises
        said = str(error)[:_LONGEST]
        told = without_secrets(said)
        message = f"{name} failed: {type(error).__name__}: {told}"
        if told != said:
            raise error_type(message) from None  # a traceback would show the rest
        raise error_type(message) from error
