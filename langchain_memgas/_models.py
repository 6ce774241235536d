"""LangChain's embeddings and chat models as MemGAS's `Embedder` and `LLM`; what builds a memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from langchain_core.callbacks import Callbacks
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import RunnableConfig
from numpy.typing import NDArray

from langchain_memgas._convert import text_of
from memgas import LLM, Embedder, InvalidInputError, LLMError, MemGAS, MemGASConfig
from memgas.models.calls import estimate_tokens

Model = LLM | BaseLanguageModel[Any]
AnyEmbedder = Embedder | Embeddings | str


class LangChainEmbedder:
    """LangChain's `Embeddings` as an `Embedder`.

    Parameters
    ----------
    embeddings
        What does the work.
    max_tokens
        How much it reads at once; None when there is no limit.
    is_thread_safe
        Whether two threads may call it at once. Clients of a server usually are, models in this process often not.
    """

    def __init__(self, embeddings: Embeddings, *, max_tokens: int | None = None, is_thread_safe: bool = False) -> None:
        self.embeddings = embeddings
        self.max_tokens = max_tokens
        self.is_thread_safe = is_thread_safe
        self._n_dims: int | None = None

    @property
    def name(self) -> str:
        """Class, and model where it says which."""
        model = getattr(self.embeddings, "model", None) or getattr(self.embeddings, "model_name", None)
        kind = type(self.embeddings).__name__
        return f"{kind}({model})" if isinstance(model, str) else kind

    @property
    def n_dims(self) -> int:
        """Width of the vectors, found by embedding one word."""
        if self._n_dims is None:
            self._n_dims = len(self.embeddings.embed_query("width"))
        return self._n_dims

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts to keep: `(n_texts, n_dims)`."""
        return np.asarray(self.embeddings.embed_documents(list(texts)), np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed a question: `(n_dims,)`."""
        return np.asarray(self.embeddings.embed_query(text), np.float32)

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens."""
        return estimate_tokens(text)


class LangChainLLM:
    """LangChain's chat model (or LLM) as an `LLM`.

    Its calls are not streamed into the host's output: a digest or a verdict is nobody's answer.
    """

    # LangChain itself calls one model from several threads: `Runnable.batch`.
    is_thread_safe = True

    def __init__(self, model: BaseLanguageModel[Any]) -> None:
        self.model = model

    @property
    def name(self) -> str:
        """Class of the model."""
        return type(self.model).__name__

    def complete(self, prompt: str) -> str:
        """Answer one prompt."""
        return text_of(self.model.invoke(prompt, _config([])))


def as_embedder(embedder: AnyEmbedder | None) -> Embedder | str | None:
    """Return an embedder for `MemGAS`: LangChain's is wrapped, anything else is left as it is."""
    return LangChainEmbedder(embedder) if isinstance(embedder, Embeddings) else embedder


def as_llm(llm: Model | None) -> LLM | None:
    """Return a language model for `MemGAS`: LangChain's is wrapped, anything else is left as it is."""
    return LangChainLLM(llm) if isinstance(llm, BaseLanguageModel) else llm


def open_memory(
    path: str | os.PathLike[str] | None = None,
    *,
    embeddings: AnyEmbedder | None = None,
    llm: Model | None = None,
    config: MemGASConfig | None = None,
) -> MemGAS:
    """Open a memory with LangChain's own models; without a path it lasts as long as the process.

    Parameters
    ----------
    path
        A folder, made if it is missing.
    embeddings
        LangChain's `Embeddings`, an `Embedder`, or the name of one. None: the offline default.
    llm
        A LangChain model or an `LLM`, for digests and the filter.
    config
        Settings.
    """
    embedder, writer = as_embedder(embeddings), as_llm(llm)
    if path is None:
        return MemGAS.in_memory(embedder=embedder, llm=writer, config=config)
    return MemGAS(path, embedder=embedder, llm=writer, config=config)


def with_memory(values: object) -> object:
    """Put an opened memory in the place of what builds one, among the arguments of a pydantic class.

    Raises
    ------
    InvalidInputError
        Not exactly one of `memory` and `path` is there.
    """
    if not isinstance(values, dict):
        return values
    rest = {name: value for name, value in values.items() if name not in ("path", "embeddings", "llm")}
    builders = {name: value for name, value in values.items() if name not in rest and value is not None}
    if rest.get("memory") is None:
        if "path" not in builders:
            raise InvalidInputError("give memory=MemGAS(...), or path=... with embeddings= and llm= if wanted")
        return {**rest, "memory": open_memory(**builders)}
    if builders:
        raise InvalidInputError(f"give either memory or {', '.join(builders)}: an open memory has its models already")
    return rest


def complete(llm: Model, prompt: str, callbacks: Callbacks) -> str:
    """Ask a model inside somebody's run, traced there; whatever it raises becomes an LLMError."""
    try:
        if isinstance(llm, BaseLanguageModel):
            return text_of(llm.invoke(prompt, _config(callbacks)))
        return llm.complete(prompt)
    except Exception as error:  # nobody can list what a stranger's model raises
        raise LLMError(f"{type(llm).__name__} failed: {type(error).__name__}: {error}") from error


async def acomplete(llm: BaseLanguageModel[Any], prompt: str, callbacks: Callbacks) -> str:
    """Do what `complete` does, without blocking the event loop."""
    try:
        return text_of(await llm.ainvoke(prompt, _config(callbacks)))
    except Exception as error:  # nobody can list what a stranger's model raises
        raise LLMError(f"{type(llm).__name__} failed: {type(error).__name__}: {error}") from error


def _config(callbacks: Callbacks) -> RunnableConfig:
    """Return how a model is called. Without this, a call inside a graph inherits its callbacks, and is streamed."""
    return {"callbacks": callbacks, "tags": ["nostream"]}
