"""MemGAS for LangChain and LangGraph. Each class is imported when it is asked for, and needs only its own package."""

from importlib import import_module
from typing import TYPE_CHECKING

from memgas.extras import require_extra

require_extra("langchain_core", extra="langchain", purpose="langchain_memgas")

if TYPE_CHECKING:
    from langchain_memgas._models import LangChainEmbedder, LangChainLLM, as_embedder, as_llm, open_memory
    from langchain_memgas.filter import MemGASFilter
    from langchain_memgas.memory import MemGASMemory
    from langchain_memgas.middleware import MemGASMiddleware
    from langchain_memgas.nodes import create_recall_node, create_save_node
    from langchain_memgas.retriever import MemGASRetriever
    from langchain_memgas.runnables import MemGASSave, create_recall_runnable
    from langchain_memgas.store import MemGASStore
    from langchain_memgas.tools import create_memgas_tools

__all__ = [
    "LangChainEmbedder",
    "LangChainLLM",
    "MemGASFilter",
    "MemGASMemory",
    "MemGASMiddleware",
    "MemGASRetriever",
    "MemGASSave",
    "MemGASStore",
    "as_embedder",
    "as_llm",
    "create_memgas_tools",
    "create_recall_node",
    "create_recall_runnable",
    "create_save_node",
    "open_memory",
]

_MODULES = {
    "LangChainEmbedder": "_models",
    "LangChainLLM": "_models",
    "MemGASFilter": "filter",
    "MemGASMemory": "memory",
    "MemGASMiddleware": "middleware",
    "MemGASRetriever": "retriever",
    "MemGASSave": "runnables",
    "MemGASStore": "store",
    "as_embedder": "_models",
    "as_llm": "_models",
    "create_memgas_tools": "tools",
    "create_recall_node": "nodes",
    "create_recall_runnable": "runnables",
    "create_save_node": "nodes",
    "open_memory": "_models",
}


def __getattr__(name: str) -> object:
    """Import a public name; a missing package is said with the pip line."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
