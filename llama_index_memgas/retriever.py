"""`MemGASRetriever`: memories as nodes."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from typing import Literal

import numpy as np
from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from numpy.typing import NDArray

from llama_index_memgas._convert import node_of
from llama_index_memgas._models import AnyEmbedder, Model, given_memory
from memgas import MemGAS
from memgas.checks import check_count, check_name, check_share, check_time, is_blank


class MemGASRetriever(BaseRetriever):
    """Find the sessions that matter for a query, a node each, best first.

    Parameters
    ----------
    memory
        An open memory. Or what builds one:
    path, embed_model, llm
        A folder, a `BaseEmbedding` (None: the offline default), an `LLM` for digests and the filter.
    namespace
        Whose memory it is.
    similarity_top_k
        Most nodes.
    since, until
        Bounds on when a session happened, both included.
    min_score
        Nodes below this absolute score are left out.
    filter
        "llm": let the memory's language model drop what does not help.
    callback_manager, verbose
        As of every retriever.

    Raises
    ------
    InvalidInputError
        A blank namespace, a bound without a time zone, a number out of its range, no memory.

    Notes
    -----
    A node's text is the day and what was said, `speaker: text` lines. Its score is in [0, 1], higher is better. Its
    metadata is flat and in no prompt: `memory_id` and `session_id`, `conversation_id`, `happened_at`, `granularity` (of
    what found it), `positions` of its turns, `summary`, `keywords`, and the session's own `metadata` as JSON.

    A `QueryBundle`'s `embedding`, or the mean of its `custom_embedding_strs`, is what vectors are compared with;
    keywords, dates and the filter go by its `query_str`. A blank query finds nothing.
    """

    def __init__(
        self,
        memory: MemGAS | None = None,
        *,
        namespace: str,
        path: str | os.PathLike[str] | None = None,
        embed_model: AnyEmbedder | None = None,
        llm: Model | None = None,
        similarity_top_k: int = 5,
        since: datetime | None = None,
        until: datetime | None = None,
        min_score: float = 0.0,
        filter: Literal["llm"] | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(callback_manager=callback_manager, verbose=verbose)
        self.namespace = check_name(namespace, "namespace")
        self.similarity_top_k = check_count(similarity_top_k, "similarity_top_k")
        self.since = None if since is None else check_time(since, "since")
        self.until = None if until is None else check_time(until, "until")
        self.min_score = check_share(min_score, "min_score")
        self.filter = filter
        self.memory = given_memory(memory, path, embed_model, llm)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = _query(query_bundle)
        if not query:
            return []
        found = self.memory.retrieve(
            query, namespace=self.namespace, top_k=self.similarity_top_k, since=self.since, until=self.until,
            min_score=self.min_score, filter=self.filter, query_vector=self._vector(query_bundle),
        )  # fmt: skip
        return [node_of(hit, self.namespace) for hit in found.hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _vector(self, query_bundle: QueryBundle) -> NDArray[np.float32] | None:
        """Return the vector that the host made, or the mean of what it wants embedded; `(n_dims,)`."""
        if query_bundle.embedding is not None:
            return np.asarray(query_bundle.embedding, np.float32)
        texts = [text for text in query_bundle.custom_embedding_strs or () if not is_blank(text)]
        if not texts:
            return None
        vectors = np.array([self.memory.embedder.embed_query(text) for text in texts])
        mean: NDArray[np.float32] = vectors.mean(axis=0)
        return mean


def _query(query_bundle: QueryBundle) -> str:
    """Return the query, or where it is blank the first text to embed; empty when there is neither."""
    texts = (query_bundle.query_str, *(query_bundle.custom_embedding_strs or ()))
    return next((text.strip() for text in texts if not is_blank(text)), "")
