"""Embedders and chat models behind an OpenAI-compatible server: OpenAI itself, or vLLM, llama.cpp, Ollama and the like."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import numpy as np

from memgas.checks import clean_text
from memgas.errors import EmbedderError, LLMError, MemGASError
from memgas.extras import require_extra
from memgas.models.calls import estimate_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from openai import OpenAI

T = TypeVar("T")


class _Connection:
    """A client of the SDK, made at the first call. The key is kept out of reach of `repr` and `vars`.

    The SDK repeats calls that met a busy or broken server, as long as `Retry-After` says where it is sent.
    """

    def __init__(self, *, base_url: str | None, api_key: str | None, timeout: float, max_retries: int) -> None:
        require_extra("openai", extra="openai", purpose="An OpenAI-compatible model")
        self.host = urlsplit(base_url).hostname or "" if base_url else ""
        self._making = threading.Lock()
        self._client: OpenAI | None = None
        key = api_key or os.environ.get("OPENAI_API_KEY") or ("none" if base_url else None)
        self._redact: Callable[[str], str] = lambda text: text.replace(key, "***") if key and len(key) > 6 else text

        def make() -> OpenAI:
            from openai import OpenAI

            return OpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=max_retries)

        self._make = make

    def call(self, ask: Callable[[OpenAI], T], what: str, error_type: type[MemGASError]) -> T:
        """Ask the server; raise one of our errors, without the key, when that fails."""
        from openai import OpenAIError

        try:
            with self._making:
                if self._client is None:
                    self._client = self._make()
            return ask(self._client)
        except (
            OpenAIError,
            ValueError,
            TypeError,
            AttributeError,
        ) as error:  # the last three: it answered in another form
            message = self._redact(f"{what} failed: {type(error).__name__}: {error}")
        raise error_type(message)  # outside of the handler, so that no chained error shows the key

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        with self._making:
            client, self._client = self._client, None
        if client is not None:
            client.close()


class OpenAIEmbedder:
    """An embedding model behind an OpenAI-compatible server.

    Parameters
    ----------
    model
        Its name there.
    base_url
        Of the server, with `/v1`. None: the environment's `OPENAI_BASE_URL`, or OpenAI.
    api_key
        None: the environment's `OPENAI_API_KEY`. A server of your own may need none.
    n_dims
        Width of the vectors. None: learnt from a first call.
    dimensions
        Width to ask the server for; only some models can shorten their vectors.
    max_tokens
        What the model reads at once.
    batch_size
        Most texts in one request.
    timeout
        Seconds that one attempt may take.
    max_retries
        How often the SDK repeats a request that met a busy or broken server.

    Raises
    ------
    MissingExtraError
        The extra `openai` is not installed.
    """

    is_thread_safe = True

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        n_dims: int | None = None,
        dimensions: int | None = None,
        max_tokens: int | None = 8191,
        batch_size: int = 128,
        timeout: float = 60.0,
        max_retries: int = 2,
    ) -> None:
        self.name = model
        self.max_tokens = max_tokens
        self._n_dims = dimensions or n_dims
        self._dimensions = dimensions
        self._batch_size = batch_size
        self._connection = _Connection(base_url=base_url, api_key=api_key, timeout=timeout, max_retries=max_retries)

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self.name!r}, host={self._connection.host or 'default'!r})"

    @property
    def n_dims(self) -> int:
        """Width of the vectors; asks the server once if it was not given."""
        if self._n_dims is None:
            self._n_dims = self._request(["How wide are you?"]).shape[1]
        return self._n_dims

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: `(n_texts, n_dims)`.

        Raises
        ------
        EmbedderError
            The server cannot be reached, refuses, or answers with something else than one vector a text.
        """
        parts = [
            self._request([clean_text(text) for text in texts[start : start + self._batch_size]])
            for start in range(0, len(texts), self._batch_size)
        ]
        if len({part.shape[1] for part in parts}) > 1:
            raise EmbedderError(f"{self.name} returned vectors of different widths")
        return np.concatenate(parts) if parts else np.zeros((0, self.n_dims), dtype=np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a question: `(n_dims,)`, as a document of the same words."""
        vector: NDArray[np.float32] = self.embed_documents([text])[0]
        return vector

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens."""
        return estimate_tokens(text)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _request(self, texts: list[str]) -> NDArray[np.float32]:
        """Embed one batch: `(n_texts, width)`."""

        def ask(client: OpenAI) -> NDArray[np.float32]:
            if self._dimensions is None:
                answer = client.embeddings.create(model=self.name, input=texts, encoding_format="float")
            else:
                answer = client.embeddings.create(
                    model=self.name, input=texts, encoding_format="float", dimensions=self._dimensions
                )
            data = getattr(answer, "data", None)  # the SDK hands on whatever a server answers
            if not data or sorted(row.index for row in data) != list(range(len(texts))):
                raise EmbedderError(f"{self.name} did not return one vector for each of {len(texts)} texts")
            vectors = np.array([row.embedding for row in sorted(data, key=lambda row: row.index)], dtype=np.float32)
            if vectors.ndim != 2:
                raise EmbedderError(f"{self.name} returned something else than a list of numbers for each text")
            return vectors

        return self._connection.call(ask, f"embedding with {self.name}", EmbedderError)


class OpenAIChat:
    """A chat model behind an OpenAI-compatible server.

    Parameters
    ----------
    model
        Its name there.
    base_url
        Of the server, with `/v1`. None: the environment's `OPENAI_BASE_URL`, or OpenAI.
    api_key
        None: the environment's `OPENAI_API_KEY`. A server of your own may need none.
    temperature
        None: the server's default; some models take no other.
    max_output_tokens
        Most tokens of an answer. None: the server's default.
    timeout
        Seconds that one attempt may take.
    max_retries
        How often the SDK repeats a request that met a busy or broken server.

    Raises
    ------
    MissingExtraError
        The extra `openai` is not installed.
    """

    is_thread_safe = True

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        max_output_tokens: int | None = None,
        timeout: float = 60.0,
        max_retries: int = 2,
    ) -> None:
        self.name = model
        self._options: dict[str, float | int] = {}
        if temperature is not None:
            self._options["temperature"] = temperature
        if max_output_tokens is not None:
            self._options["max_tokens"] = max_output_tokens
        self._connection = _Connection(base_url=base_url, api_key=api_key, timeout=timeout, max_retries=max_retries)

    def __repr__(self) -> str:
        return f"OpenAIChat({self.name!r}, host={self._connection.host or 'default'!r})"

    def complete(self, prompt: str) -> str:
        """Answer one prompt.

        Raises
        ------
        LLMError
            The server cannot be reached, refuses, or answers with no text.
        """
        return self.complete_counted(prompt)[0]

    def complete_counted(self, prompt: str) -> tuple[str, int, int]:
        """Answer one prompt: the text, and the tokens of prompt and answer as the server counts them, or estimated.

        Raises
        ------
        LLMError
            As for `complete`.
        """

        def ask(client: OpenAI) -> tuple[str, int, int]:
            answer = client.chat.completions.create(
                model=self.name,
                messages=[{"role": "user", "content": clean_text(prompt)}],
                extra_body=self._options,
            )
            choices = getattr(answer, "choices", None)
            if not choices:
                raise LLMError(f"{self.name} answered without a choice")
            content: object = choices[0].message.content
            if not isinstance(content, str):
                raise LLMError(f"{self.name} answered without text; it stopped because of {choices[0].finish_reason!r}")
            used = getattr(answer, "usage", None)  # not every server says
            counts = (getattr(used, name, None) for name in ("prompt_tokens", "completion_tokens"))
            n_prompt, n_reply = (
                count if isinstance(count, int) else estimate_tokens(text)
                for count, text in zip(counts, (prompt, content), strict=True)
            )
            return content, n_prompt, n_reply

        return self._connection.call(ask, f"asking {self.name}", LLMError)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
