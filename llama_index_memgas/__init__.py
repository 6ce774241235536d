"""MemGAS for LlamaIndex."""

from memgas.extras import require_extra

require_extra("llama_index.core", extra="llama-index", purpose="llama_index_memgas")
