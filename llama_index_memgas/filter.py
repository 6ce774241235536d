"""`MemGASFilter`: one question to a language model, which of the nodes help."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from llama_index.core import llms
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import ConfigDict, Field, SerializeAsAny

from llama_index_memgas._models import acomplete, complete, model_name
from memgas import LLM, LLMError
from memgas.filtering import parse_verdict
from memgas.prompts import filter_prompt

_log = logging.getLogger("llama_index_memgas")
_dispatcher = get_dispatcher(__name__)
_MAX_CHARS = 2_000


class MemGASFilter(BaseNodePostprocessor):
    """Drop the nodes that do not help to answer the query: `node_postprocessors=[MemGASFilter(llm=...)]`.

    One call for all nodes. Their order and scores stay. When the model fails, or its answer cannot be read, all are kept
    and the log says so.

    Parameters
    ----------
    llm
        A LlamaIndex `LLM`, or any object with `complete(prompt)`.
    keep_at_least
        Nodes, from the first on, that stay even if the model finds that none helps. 0: it is believed, and a query
        engine then answers "Empty Response" without asking its own model.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    llm: SerializeAsAny[llms.LLM] | LLM = Field(exclude=True, repr=False)
    keep_at_least: int = Field(default=0, ge=0)

    @classmethod
    def class_name(cls) -> str:
        """Name in dumps and traces."""
        return "MemGASFilter"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | str | None = None
    ) -> list[NodeWithScore]:
        query = _query(query_bundle)
        if not nodes:
            return []
        _dispatcher.event(self._started(nodes, query))
        with self.callback_manager.event(CBEventType.RERANKING, payload=self._payload(nodes, query)) as event:
            try:
                kept = self._kept(nodes, complete(self.llm, _prompt(nodes, query)))
            except LLMError as error:
                kept = _all(nodes, type(error.__cause__ or error).__name__)
            event.on_end(payload={EventPayload.NODES: kept})
        _dispatcher.event(ReRankEndEvent(nodes=kept))
        return kept

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | str | None = None
    ) -> list[NodeWithScore]:
        if not isinstance(self.llm, llms.LLM):
            return await asyncio.to_thread(self._postprocess_nodes, nodes, query_bundle)
        query = _query(query_bundle)
        if not nodes:
            return []
        _dispatcher.event(self._started(nodes, query))
        with self.callback_manager.event(CBEventType.RERANKING, payload=self._payload(nodes, query)) as event:
            try:
                kept = self._kept(nodes, await acomplete(self.llm, _prompt(nodes, query)))
            except LLMError as error:
                kept = _all(nodes, type(error.__cause__ or error).__name__)
            event.on_end(payload={EventPayload.NODES: kept})
        _dispatcher.event(ReRankEndEvent(nodes=kept))
        return kept

    def _started(self, nodes: list[NodeWithScore], query: str) -> ReRankStartEvent:
        return ReRankStartEvent(query=query, nodes=nodes, top_n=len(nodes), model_name=model_name(self.llm))

    def _payload(self, nodes: list[NodeWithScore], query: str) -> dict[str, object]:
        return {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: model_name(self.llm),
            EventPayload.QUERY_STR: query,
            EventPayload.TOP_K: len(nodes),
        }

    def _kept(self, nodes: Sequence[NodeWithScore], reply: str) -> list[NodeWithScore]:
        verdict = parse_verdict(reply, n_items=len(nodes))
        if verdict.kept is None:
            return _all(nodes, "its answer could not be read")
        kept = set(verdict.kept)
        spare = [number for number in range(1, len(nodes) + 1) if number not in kept]
        kept |= set(spare[: max(self.keep_at_least - len(kept), 0)])
        return [node for number, node in enumerate(nodes, start=1) if number in kept]


def _query(query_bundle: QueryBundle | str | None) -> str:
    """Return the query; a query engine's `retrieve` hands on the text itself."""
    if query_bundle is None:
        raise ValueError("MemGASFilter needs a query: give query_bundle or query_str")
    return query_bundle if isinstance(query_bundle, str) else query_bundle.query_str


def _all(nodes: Sequence[NodeWithScore], why: str) -> list[NodeWithScore]:
    _log.warning("the filter kept everything: %s", why)
    return list(nodes)


def _prompt(nodes: Sequence[NodeWithScore], query: str) -> str:
    items = [(_day(node), node.get_content(MetadataMode.LLM)[:_MAX_CHARS]) for node in nodes]
    return filter_prompt(query, datetime.now(UTC), items)


def _day(node: NodeWithScore) -> datetime | None:
    """Return when a node happened, if it says so as ours do."""
    said = node.metadata.get("happened_at")
    try:
        return datetime.fromisoformat(said) if isinstance(said, str) else None
    except ValueError:
        return None
