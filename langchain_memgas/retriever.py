"""`MemGASRetriever`: memories as documents."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, run_in_executor
from pydantic import ConfigDict, Field, model_validator

from langchain_memgas._models import AnyEmbedder, Model, with_memory
from langchain_memgas._scope import USER_KEY, ScopeRule, sources_of
from memgas import Hit, MemGAS


class MemGASRetriever(BaseRetriever):
    """Find the sessions that matter for a query, a document each, best first.

    Parameters
    ----------
    memory
        An open memory. Or what builds one:
    path, embeddings, llm
        A folder, LangChain's `Embeddings` (None: the offline default), a chat model for digests and the filter.
    namespace, namespace_key
        Whose memory it is. None: `namespace=` of the call, or that key of `config["configurable"]`.
    k
        Most documents.
    since, until
        Bounds on when a session happened, both included.
    min_score
        Documents below this absolute score, in [0, 1], are left out.
    filter
        "llm": let the memory's language model drop what does not help.

    Notes
    -----
    `Document.page_content` is what was said, `speaker: text` lines; `id` is the session's. The metadata is JSON:
    `memory_id` and `session_id`, `conversation_id`, `happened_at`, `score` in [0, 1], `granularity` (of what found it),
    `summary`, `keywords`, and the session's own `metadata`.

    `invoke(query, k=, namespace=, since=, until=)` and its twins take these for one call.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: MemGAS = Field(default=..., exclude=True, repr=False)
    path: str | os.PathLike[str] | None = Field(default=None, exclude=True, repr=False)
    embeddings: AnyEmbedder | None = Field(default=None, exclude=True, repr=False)
    llm: Model | None = Field(default=None, exclude=True, repr=False)
    namespace: str | None = None
    namespace_key: str = USER_KEY
    k: int = Field(default=4, ge=1)
    since: datetime | None = None
    until: datetime | None = None
    min_score: float = Field(default=0.0, ge=0, le=1)
    filter: Literal["llm"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _open(cls, values: object) -> object:
        """Open a memory if a path was given."""
        return with_memory(values)

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: object) -> list[Document]:
        """Retrieve; whose memory it is may come with the configuration."""
        return super().invoke(input, config, **self._named(config, kwargs))

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: object) -> list[Document]:
        """Retrieve without blocking the event loop."""
        return await super().ainvoke(input, config, **self._named(config, kwargs))

    def _named(self, config: RunnableConfig | None, kwargs: dict[str, object]) -> dict[str, Any]:
        # The run manager does not carry `configurable`, so that it is read here.
        rule = ScopeRule(namespace=self.namespace, namespace_key=self.namespace_key)
        sources = ({self.namespace_key: kwargs.get("namespace")}, *sources_of(ensure_config(config)))
        if kwargs.get("namespace") is not None:
            rule = ScopeRule(namespace_key=self.namespace_key)
        return {**kwargs, "namespace": rule.namespace_in(*sources)}

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun | None,  # noqa: ARG002 (the base class has it)
        k: int | None = None,
        namespace: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Document]:
        found = self.memory.retrieve(
            query, namespace=ScopeRule(namespace=namespace or self.namespace).namespace_in(),
            top_k=self.k if k is None else k, since=since or self.since, until=until or self.until,
            min_score=self.min_score, filter=self.filter,
        )  # fmt: skip
        return [document_of(hit) for hit in found.hits]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002
        k: int | None = None,
        namespace: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Document]:
        return await run_in_executor(
            None, self._get_relevant_documents, query, run_manager=None, k=k, namespace=namespace, since=since,
            until=until,
        )  # fmt: skip

    def _get_ls_params(self, **kwargs: object) -> LangSmithRetrieverParams:
        params = super()._get_ls_params(**kwargs)
        params["ls_retriever_name"] = "memgas"
        params["ls_embedding_model"] = self.memory.embedder.name
        return params


def document_of(hit: Hit) -> Document:
    """Return a hit as a document; its metadata is JSON."""
    said = "\n".join(f"{piece.turn.speaker}: {piece.turn.text}" for piece in hit.evidence)
    metadata = {
        "memory_id": hit.session_id,
        "session_id": hit.session_id,
        "conversation_id": hit.conversation_id,
        "happened_at": hit.happened_at.isoformat(),
        "score": hit.score,
        "granularity": max(hit.parts, key=lambda name: hit.parts[name]) if hit.parts else None,
        "summary": hit.summary,
        "keywords": list(hit.keywords),
        "metadata": hit.metadata,
    }
    return Document(said or hit.summary, id=hit.session_id, metadata=metadata)
