"""Where rows are kept: in memory, or in Chroma, on disk or behind a server."""

from memgas.stores.chroma import ChromaStore
from memgas.stores.in_memory import InMemoryStore

__all__ = ["ChromaStore", "InMemoryStore"]
