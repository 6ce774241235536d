"""MemGAS beside what the frameworks offer over Chroma: the same dialogue, the same embedder, no language model.

Needs langchain-chroma and llama-index-vector-stores-chroma, which nothing else here does; skipped where they are missing.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import pytest

from memgas import MemGAS
from memgas.testing import HashEmbedder
from tests.benchmarks.generated import N_DIMS, UNITS_A_SESSION, Said, dialogue, queries
from tests.benchmarks.timing import Table, ms, side_by_side

pytestmark = pytest.mark.benchmark

N_UNITS = int(os.environ.get("MEMGAS_BENCH_RIVAL_UNITS", "10000"))
Ask = Callable[[str], object]


def resident() -> float:
    """Return this process's resident memory in MB."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def memgas(told: Sequence[Said]) -> Iterator[tuple[Ask, int]]:
    """Add sessions, one at a time, as a chat does."""
    with TemporaryDirectory() as folder, MemGAS(folder, embedder=HashEmbedder(N_DIMS)) as memory:
        for said in told:
            memory.add(said.turns, namespace="u")
        yield lambda text: memory.retrieve(text, namespace="u"), sum(memory.stats("u").n_units.values())


@contextmanager
def langchain(told: Sequence[Said]) -> Iterator[tuple[Ask, int]]:
    """Add exchanges to LangChain's Chroma, a session a call."""
    chroma = pytest.importorskip("langchain_chroma")
    from langchain_core.embeddings import Embeddings

    class Hashed(Embeddings):
        _embedder = HashEmbedder(N_DIMS)

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return self._embedder.embed_documents(texts).tolist()  # type: ignore[no-any-return]

        def embed_query(self, text: str) -> list[float]:
            return self._embedder.embed_query(text).tolist()  # type: ignore[no-any-return]

    with TemporaryDirectory() as folder:
        store = chroma.Chroma("chat", Hashed(), persist_directory=folder)
        for said in told:
            store.add_texts(exchanges(said))
        retriever = store.as_retriever(search_kwargs={"k": 5})
        yield retriever.invoke, len(told) * UNITS_A_SESSION
        store._client.close()


@contextmanager
def llama_index(told: Sequence[Said]) -> Iterator[tuple[Ask, int]]:
    """Add exchanges to LlamaIndex's vector memory block over Chroma, a session a call."""
    stores = pytest.importorskip("llama_index.vector_stores.chroma")
    import asyncio

    import chromadb
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.memory import VectorMemoryBlock

    embedder = HashEmbedder(N_DIMS)

    class Hashed(BaseEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            return embedder.embed_query(query).tolist()  # type: ignore[no-any-return]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)

        def _get_text_embedding(self, text: str) -> list[float]:
            return embedder.embed_documents([text])[0].tolist()  # type: ignore[no-any-return]

    with TemporaryDirectory() as folder:
        client = chromadb.PersistentClient(folder)
        collection = client.create_collection("chat", embedding_function=None)
        block = VectorMemoryBlock(
            vector_store=stores.ChromaVectorStore(chroma_collection=collection),
            embed_model=Hashed(),
            similarity_top_k=5,
        )
        loop = asyncio.new_event_loop()
        for said in told:
            messages = [ChatMessage(role="user", content=text) for text in exchanges(said)]
            for message in messages:
                loop.run_until_complete(block.aput([message]))
        yield (
            lambda text: loop.run_until_complete(block.aget([ChatMessage(role="user", content=text)])),
            len(told) * UNITS_A_SESSION,
        )
        loop.close()
        client.close()  # type: ignore[attr-defined]  # a persistent one has it


def exchanges(said: Said) -> list[str]:
    """Return a session's texts as the others keep them: thirteen, so that all have as many rows to search."""
    pairs = [f"{a.text}\n{b.text}" for a, b in zip(said.turns[::2], said.turns[1::2], strict=True)]
    return [*pairs, "\n".join(pairs), said.digest.summary + " ", "; ".join(said.digest.keywords)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "other"), [("LangChain's Chroma", langchain), ("VectorMemoryBlock", llama_index)])
def test_beside(name: str, other: Callable[..., object], table: Table) -> None:
    """A retrieval, with its embedding, costs at most 1.3 of theirs at 10,000 units; adding and memory are shown."""
    told = list(dialogue(N_UNITS // UNITS_A_SESSION))
    asked = cycle(text for text, _ in queries(20))
    spent: list[tuple[float, float]] = []
    with filled(other, told, spent) as theirs, filled(memgas, told, spent) as ours:
        times = side_by_side(lambda: ours(next(asked)), lambda: theirs(next(asked)), repeats=40, of_process=True)
    (their_add, their_memory), (our_add, our_memory) = spent
    table.add(f"retrieve, beside {name}", f"{N_UNITS:,} units, wall", times.wall[0] / times.wall[1], 1.3,
              f"{ms(times.wall[0])}, theirs {ms(times.wall[1])}")  # fmt: skip
    table.add(f"add, beside {name}", f"a session of {UNITS_A_SESSION} units, processor (shown)", our_add / their_add,
              None, f"{ms(our_add / len(told))}, theirs {ms(their_add / len(told))}; "
              f"grew {our_memory:.0f} MB, theirs {their_memory:.0f} MB")  # fmt: skip


@contextmanager
def filled(made: Callable[..., object], told: Sequence[Said], spent: list[tuple[float, float]]) -> Iterator[Ask]:
    """Fill a memory, note processor time and memory, and yield how to ask it."""
    gc.collect()
    before, began = resident(), process_time()
    with made(told) as (ask, _):  # type: ignore[attr-defined]
        ask("warm")
        spent.append((process_time() - began, resident() - before))
        yield ask
