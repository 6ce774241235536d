"""MemGAS for LlamaIndex."""

from memgas.extras import require_extra

require_extra("llama_index.core", extra="llama-index", purpose="llama_index_memgas")

from llama_index_memgas._models import LlamaIndexEmbedder, LlamaIndexLLM, as_embedder, as_llm, open_memory
from llama_index_memgas.block import MemGASMemoryBlock
from llama_index_memgas.filter import MemGASFilter
from llama_index_memgas.memory import MemGASMemory
from llama_index_memgas.retriever import MemGASRetriever
from llama_index_memgas.tools import create_memgas_tools

__all__ = [
    "LlamaIndexEmbedder",
    "LlamaIndexLLM",
    "MemGASFilter",
    "MemGASMemory",
    "MemGASMemoryBlock",
    "MemGASRetriever",
    "as_embedder",
    "as_llm",
    "create_memgas_tools",
    "open_memory",
]
