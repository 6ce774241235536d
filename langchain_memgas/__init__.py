"""MemGAS for LangChain and LangGraph."""

from memgas.extras import require_extra

require_extra("langchain_core", extra="langchain", purpose="langchain_memgas")
