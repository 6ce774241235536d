"""Where rows are kept: in memory, or in Chroma, on disk or behind a server."""

from typing import TYPE_CHECKING

from memgas.stores.in_memory import InMemoryStore

if TYPE_CHECKING:
    from memgas.stores.chroma import ChromaStore

__all__ = ["ChromaStore", "InMemoryStore"]


def __getattr__(name: str) -> object:
    """Import the store on disk when it is asked for: `import memgas` needs neither it nor SQLite."""
    if name == "ChromaStore":
        from memgas.stores.chroma import ChromaStore

        return ChromaStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
