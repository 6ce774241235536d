"""Questions to past conversations: a query engine on `MemGASRetriever`, with `MemGASFilter` behind it.

Runs offline: LlamaIndex's mock model answers with what it was asked. With a real one, of an OpenAI-compatible server:
pip install llama-index-llms-openai-like, then MEMGAS_EXAMPLE_MODEL=gpt-4o-mini python llama_index_query_engine.py
"""

import os
import tempfile
from datetime import UTC, datetime
from typing import Any

from llama_index.core.llms import LLM, CompletionResponse, CustomLLM, LLMMetadata, MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

from llama_index_memgas import MemGASFilter, MemGASRetriever
from memgas import MemGAS, Turn


class SaysYes(CustomLLM):
    """Judges as it was told to: the first passage helps."""

    @property
    def metadata(self) -> LLMMetadata:
        """What it is."""
        return LLMMetadata(model_name="says-yes")

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:  # noqa: ARG002, ANN401
        """Name the first passage."""
        return CompletionResponse(text="[1]")

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:  # noqa: ANN401
        """Name it in one piece."""
        yield self.complete(prompt, formatted, **kwargs)


def models() -> tuple[LLM, LLM]:
    """Return one model that answers and one that judges: the one the environment names, or mocks."""
    name = os.environ.get("MEMGAS_EXAMPLE_MODEL")
    if not name:
        return MockLLM(), SaysYes()
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(model=name, api_base=os.environ.get("OPENAI_BASE_URL"), is_chat_model=True)
    return model, model


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, MemGAS(folder) as memory:
        talks = {
            "2023-05-08": [Turn("user", "I adopted a greyhound, Juno."), Turn("assistant", "Congratulations!")],
            "2023-06-12": [Turn("user", "My sister Lena keeps bees."), Turn("assistant", "How sweet.")],
            "2023-07-20": [Turn("user", "Juno had her shots at the vet."), Turn("assistant", "Brave dog!")],
        }
        for day, turns in talks.items():
            when = datetime.fromisoformat(day).replace(tzinfo=UTC)
            memory.add(turns, namespace="ana", session_id=day, happened_at=when)

        retriever = MemGASRetriever(memory, namespace="ana", similarity_top_k=2)
        for node in retriever.retrieve("What is my greyhound called?"):
            print(f"{node.score:.2f}  {node.metadata['session_id']}  {node.text.splitlines()[1]}")

        answering, judging = models()
        engine = RetrieverQueryEngine.from_args(
            retriever, llm=answering, node_postprocessors=[MemGASFilter(llm=judging, keep_at_least=1)]
        )
        print(engine.query("What is my greyhound called?"))


if __name__ == "__main__":
    main()
