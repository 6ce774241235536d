"""MemGAS beside what the frameworks offer over Chroma: the same dialogue, the same embedder, no language model.

Needs langchain-chroma and llama-index-vector-stores-chroma, which nothing else here does; skipped where they are missing.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

import pytest

from memgas import MemGAS, NewSession
from memgas.testing import HashEmbedder
from tests.benchmarks.generated import N_DIMS, UNITS_A_SESSION, Said, dialogue, queries
from tests.benchmarks.timing import Table, ms, side_by_side

pytestmark = pytest.mark.benchmark

N_UNITS = int(os.environ.get("MEMGAS_BENCH_RIVAL_UNITS", "10000"))
_N_TIMED = 25  # sessions whose adding is timed

Ask = Callable[[str], object]
Add = Callable[[Said], object]
Fill = Callable[[Sequence[Said]], AbstractContextManager[tuple[Ask, Add]]]


def resident() -> float:
    """Return this process's resident memory in MB."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def memgas(told: Sequence[Said]) -> Iterator[tuple[Ask, Add]]:
    """Add most sessions at once; the others one at a time, as a chat does."""
    with TemporaryDirectory() as folder, MemGAS(folder, embedder=HashEmbedder(N_DIMS)) as memory:
        memory.add_many([NewSession(said.turns) for said in told], namespace="u")

        def add(said: Said) -> None:
            memory.add(said.turns, namespace="u")

        yield lambda text: memory.retrieve(text, namespace="u"), add


@contextmanager
def langchain(told: Sequence[Said]) -> Iterator[tuple[Ask, Add]]:
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
        for start in range(0, len(told), 100):
            store.add_texts([text for said in told[start : start + 100] for text in exchanges(said)])
        retriever = store.as_retriever(search_kwargs={"k": 5})
        yield retriever.invoke, lambda said: store.add_texts(exchanges(said))
        store._client.close()


@contextmanager
def llama_index(told: Sequence[Said]) -> Iterator[tuple[Ask, Add]]:
    """Add exchanges to LlamaIndex's vector memory block over Chroma: most of them past the block, which takes one a call."""
    stores = pytest.importorskip("llama_index.vector_stores.chroma")
    import asyncio

    import chromadb
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.memory import VectorMemoryBlock
    from llama_index.core.schema import TextNode

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
        store = stores.ChromaVectorStore(chroma_collection=collection)
        block = VectorMemoryBlock(vector_store=store, embed_model=Hashed(), similarity_top_k=5)
        for start in range(0, len(told), 100):
            texts = [text for said in told[start : start + 100] for text in exchanges(said)]
            vectors = embedder.embed_documents(texts).tolist()
            store.add([TextNode(text=t, embedding=v) for t, v in zip(texts, vectors, strict=True)])
        loop = asyncio.new_event_loop()

        def add(said: Said) -> None:
            for text in exchanges(said):
                loop.run_until_complete(block.aput([ChatMessage(role="user", content=text)]))

        yield lambda text: loop.run_until_complete(block.aget([ChatMessage(role="user", content=text)])), add
        loop.close()
        client.close()  # type: ignore[attr-defined]  # a persistent one has it


def exchanges(said: Said) -> list[str]:
    """Return a session's texts as the others keep them: thirteen, so that all have as many rows to search."""
    pairs = [f"{a.text}\n{b.text}" for a, b in zip(said.turns[::2], said.turns[1::2], strict=True)]
    return [*pairs, "\n".join(pairs), said.digest.summary + " ", "; ".join(said.digest.keywords)]


@dataclass(frozen=True, slots=True)
class Filled:
    """A memory that was filled.

    Attributes
    ----------
    seconds
        Processor time of adding one session to it, the median of some.
    megabytes
        By how much the process grew.
    """

    ask: Ask
    seconds: float
    megabytes: float


@pytest.fixture(scope="module")
def ours() -> Iterator[Filled]:
    """Fill MemGAS once, for both comparisons."""
    with filled(memgas) as made:
        yield made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "other"), [("LangChain's Chroma", langchain), ("VectorMemoryBlock", llama_index)])
def test_beside(name: str, other: Fill, ours: Filled, table: Table) -> None:
    """A retrieval, with its embedding, costs at most 1.3 of theirs at 10,000 units; adding and memory are shown."""
    asked = cycle(text for text, _ in queries(200))
    with filled(other) as theirs:
        times = side_by_side(
            lambda: ours.ask(next(asked)), lambda: theirs.ask(next(asked)), repeats=60, of_process=True
        )
    for clock, (own, their) in (("wall", times.wall), ("processor", times.cpu)):
        table.add(f"retrieve, beside {name}", f"{N_UNITS:,} units, {clock}", own / their, 1.3,
                  f"{ms(own)}, theirs {ms(their)}")  # fmt: skip
    table.add(f"add, beside {name}", f"a session of {UNITS_A_SESSION} units, processor (shown)",
              ours.seconds / theirs.seconds, None, f"{ms(ours.seconds)}, theirs {ms(theirs.seconds)}; "
              f"grew {ours.megabytes:.0f} MB, theirs {theirs.megabytes:.0f} MB")  # fmt: skip


@contextmanager
def filled(fill: Fill) -> Iterator[Filled]:
    """Fill a memory, and note what that took."""
    told = list(dialogue(N_UNITS // UNITS_A_SESSION))
    gc.collect()
    before = resident()
    with fill(told[:-_N_TIMED]) as (ask, add):
        ask("warm")
        spent = []
        for said in told[-_N_TIMED:]:
            began = process_time()
            add(said)
            spent.append(process_time() - began)
        yield Filled(ask, median(spent), resident() - before)
