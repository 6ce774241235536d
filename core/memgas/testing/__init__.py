"""What users test their own code with: an embedder and a language model without a model, and the contract of stores."""

from memgas.testing.hash_embedder import HashEmbedder
from memgas.testing.scripted_llm import ScriptedLLM

__all__ = ["HashEmbedder", "ScriptedLLM", "StoreContract"]


def __getattr__(name: str) -> object:
    """Import the contract only when it is asked for: it needs pytest."""
    if name == "StoreContract":
        from memgas.testing.store_contract import StoreContract

        return StoreContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
