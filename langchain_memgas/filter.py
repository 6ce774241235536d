"""`MemGASFilter`: one question to a language model, which of the documents help."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables.config import run_in_executor
from pydantic import ConfigDict, Field, SkipValidation, field_validator

from langchain_memgas._models import Model, acomplete, complete
from memgas import LLM, InvalidInputError, LLMError
from memgas.filtering import parse_verdict
from memgas.prompts import filter_prompt

_log = logging.getLogger("langchain_memgas")
_MAX_CHARS = 2_000


class MemGASFilter(BaseDocumentCompressor):
    """Drop the documents that do not help to answer the query; for `ContextualCompressionRetriever`.

    One call for all documents. Their order, ids and metadata stay. When the model fails, or its answer cannot be read,
    all are kept and the log says so.

    Parameters
    ----------
    llm
        A LangChain model, or any object with `complete(prompt)`.
    keep_at_least
        Documents, from the first on, that stay even if the model finds that none helps. 0: it is believed.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    llm: SkipValidation[Model] = Field(exclude=True, repr=False)
    keep_at_least: int = Field(default=0, ge=0)

    @field_validator("llm", mode="after")
    @classmethod
    def _is_model(cls, llm: Model) -> Model:
        # Pydantic would ask for an instance of `BaseLanguageModel[Any]`, which no model is.
        if not isinstance(llm, (BaseLanguageModel, LLM)):
            raise InvalidInputError(
                f"llm must be a LangChain model, or have complete(prompt); got {type(llm).__name__}"
            )
        return llm

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Return the documents that help."""
        if not documents:
            return documents
        try:
            reply = complete(self.llm, _prompt(documents, query), callbacks)
        except LLMError as error:
            return _all(documents, type(error.__cause__ or error).__name__)
        return self._kept(documents, reply)

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Return the documents that help, without blocking the event loop."""
        if not isinstance(self.llm, BaseLanguageModel):
            return await run_in_executor(None, self.compress_documents, documents, query, callbacks)
        if not documents:
            return documents
        try:
            reply = await acomplete(self.llm, _prompt(documents, query), callbacks)
        except LLMError as error:
            return _all(documents, type(error.__cause__ or error).__name__)
        return self._kept(documents, reply)

    def _kept(self, documents: Sequence[Document], reply: str) -> Sequence[Document]:
        verdict = parse_verdict(reply, n_items=len(documents))
        if verdict.kept is None:
            return _all(documents, "its answer could not be read")
        kept = set(verdict.kept)
        spare = [number for number in range(1, len(documents) + 1) if number not in kept]
        kept |= set(spare[: max(self.keep_at_least - len(kept), 0)])
        return [document for number, document in enumerate(documents, start=1) if number in kept]


def _all(documents: Sequence[Document], why: str) -> Sequence[Document]:
    _log.warning("the filter kept everything: %s", why)
    return documents


def _prompt(documents: Sequence[Document], query: str) -> str:
    return filter_prompt(query, datetime.now(UTC), [(_day(one), one.page_content[:_MAX_CHARS]) for one in documents])


def _day(document: Document) -> datetime | None:
    """Return when a document happened, if it says so as ours do."""
    said = document.metadata.get("happened_at")
    try:
        return datetime.fromisoformat(said) if isinstance(said, str) else None
    except ValueError:
        return None
