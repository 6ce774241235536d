"""LlamaIndex's embedding models and LLMs as MemGAS's `Embedder` and `LLM`; what builds a memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self

import numpy as np
from llama_index.core import llms
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.prompts import PromptTemplate
from numpy.typing import NDArray

from memgas import LLM, Embedder, InvalidInputError, LLMError, MemGAS, MemGASConfig
from memgas.models.calls import estimate_tokens

Model = LLM | llms.LLM
AnyEmbedder = Embedder | BaseEmbedding | str

# As a variable, a prompt may hold any braces.
_VERBATIM = PromptTemplate("{text}")


class LlamaIndexEmbedder:
    """LlamaIndex's `BaseEmbedding` as an `Embedder`.

    Parameters
    ----------
    embed_model
        What does the work.
    max_tokens
        How much it reads at once; None when there is no limit.
    is_thread_safe
        Whether two threads may call it at once. Clients of a server usually are, models in this process often not.
    """

    def __init__(
        self, embed_model: BaseEmbedding, *, max_tokens: int | None = None, is_thread_safe: bool = False
    ) -> None:
        self.embed_model = embed_model
        self.max_tokens = max_tokens
        self.is_thread_safe = is_thread_safe
        self._n_dims: int | None = None

    @classmethod
    def from_settings(cls) -> Self:
        """Take `Settings.embed_model`. Nothing else here ever reads `Settings`."""
        from llama_index.core import Settings

        return cls(Settings.embed_model)

    @property
    def name(self) -> str:
        """Class, and model where it says which."""
        kind, model = type(self.embed_model).__name__, self.embed_model.model_name
        return kind if model in ("", "unknown") else f"{kind}({model})"

    @property
    def n_dims(self) -> int:
        """Width of the vectors, found by embedding one word."""
        if self._n_dims is None:
            self._n_dims = len(self.embed_model.get_query_embedding("width"))
        return self._n_dims

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts to keep: `(n_texts, n_dims)`."""
        return np.asarray(self.embed_model.get_text_embedding_batch(list(texts)), np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a question: `(n_dims,)`."""
        return np.asarray(self.embed_model.get_query_embedding(text), np.float32)

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens."""
        return estimate_tokens(text)


class LlamaIndexLLM:
    """LlamaIndex's `LLM` as an `LLM`, with its own system prompt; a chat model is asked as one."""

    # LlamaIndex itself calls one model from several threads and tasks.
    is_thread_safe = True

    def __init__(self, llm: llms.LLM) -> None:
        self.llm = llm

    @classmethod
    def from_settings(cls) -> Self:
        """Take `Settings.llm`. Nothing else here ever reads `Settings`."""
        from llama_index.core import Settings

        return cls(Settings.llm)

    @property
    def name(self) -> str:
        """Name of the model, or its class."""
        return model_name(self.llm)

    def complete(self, prompt: str) -> str:
        """Answer one prompt."""
        return self.llm.predict(_VERBATIM, text=prompt)


def as_embedder(embedder: AnyEmbedder | None) -> Embedder | str | None:
    """Return an embedder for `MemGAS`: LlamaIndex's is wrapped, anything else is left as it is."""
    return LlamaIndexEmbedder(embedder) if isinstance(embedder, BaseEmbedding) else embedder


def as_llm(llm: Model | None) -> LLM | None:
    """Return a language model for `MemGAS`: LlamaIndex's is wrapped, anything else is left as it is."""
    return LlamaIndexLLM(llm) if isinstance(llm, llms.LLM) else llm


def open_memory(
    path: str | os.PathLike[str] | None = None,
    *,
    embed_model: AnyEmbedder | None = None,
    llm: Model | None = None,
    config: MemGASConfig | None = None,
) -> MemGAS:
    """Open a memory with LlamaIndex's own models; without a path it lasts as long as the process.

    Parameters
    ----------
    path
        A folder, made if it is missing.
    embed_model
        A `BaseEmbedding`, an `Embedder`, or the name of one. None: the offline default, never `Settings.embed_model`.
    llm
        A LlamaIndex `LLM` or MemGAS's, for digests and the filter. None: digests by extraction.
    config
        Settings.
    """
    embedder, writer = as_embedder(embed_model), as_llm(llm)
    if path is None:
        return MemGAS.in_memory(embedder=embedder, llm=writer, config=config)
    return MemGAS(path, embedder=embedder, llm=writer, config=config)


def given_memory(
    memory: MemGAS | None,
    path: str | os.PathLike[str] | None,
    embed_model: AnyEmbedder | None,
    llm: Model | None,
) -> MemGAS:
    """Return the open memory, or open what was given to build one.

    Raises
    ------
    InvalidInputError
        Not exactly one of `memory` and `path` is there, or models for a memory that has its own.
    """
    builders = {"path": path, "embed_model": embed_model, "llm": llm}
    given = [name for name, value in builders.items() if value is not None]
    if memory is None:
        if path is None:
            raise InvalidInputError("give memory=MemGAS(...), or path=... with embed_model= and llm= if wanted")
        return open_memory(path, embed_model=embed_model, llm=llm)
    if not isinstance(memory, MemGAS):
        raise InvalidInputError(f"memory must be a MemGAS; got {type(memory).__name__}")
    if given:
        raise InvalidInputError(f"give either memory or {', '.join(given)}: an open memory has its models already")
    return memory


def model_name(llm: Model) -> str:
    """Return what to call a model in messages and events."""
    if isinstance(llm, llms.LLM):
        return str(llm.metadata.model_name) or type(llm).__name__
    return str(getattr(llm, "name", type(llm).__name__))


def complete(llm: Model, prompt: str) -> str:
    """Ask a model inside somebody's query; whatever it raises becomes an LLMError."""
    try:
        return llm.predict(_VERBATIM, text=prompt) if isinstance(llm, llms.LLM) else llm.complete(prompt)
    except Exception as error:  # nobody can list what a stranger's model raises
        raise LLMError(f"{model_name(llm)} failed: {type(error).__name__}: {error}") from error


async def acomplete(llm: llms.LLM, prompt: str) -> str:
    """Do what `complete` does, without blocking the event loop."""
    try:
        return await llm.apredict(_VERBATIM, text=prompt)
    except Exception as error:  # nobody can list what a stranger's model raises
        raise LLMError(f"{model_name(llm)} failed: {type(error).__name__}: {error}") from error
