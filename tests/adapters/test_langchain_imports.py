"""What `langchain_memgas` needs to import, and what it says when that is missing."""

import json
import subprocess
import sys

import pytest

import langchain_memgas

IMPORT = """
import json, sys
for name in {absent!r}:
    sys.modules[name] = None   # as good as not installed
import langchain_memgas
results = {{}}
for name in {names!r} or langchain_memgas.__all__:
    try:
        getattr(langchain_memgas, name)
        results[name] = ""
    except ImportError as error:
        results[name] = str(error)
print(json.dumps(results))
"""
CORE_ONLY = {
    "LangChainEmbedder", "LangChainLLM", "MemGASFilter", "MemGASRetriever", "MemGASSave", "as_embedder", "as_llm",
    "create_memgas_tools", "create_recall_node", "create_recall_runnable", "create_save_node", "open_memory",
}  # fmt: skip


def missing(*names: str, absent: tuple[str, ...]) -> dict[str, str]:
    code = IMPORT.format(absent=absent, names=names)
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(run.stdout)
    return {name: message for name, message in found.items() if message}


def test_with_langchain_core_alone() -> None:
    """With only langchain-core, everything imports but what needs a host that is not there; that says what to install."""
    gone = missing(absent=("langchain", "langchain_classic", "langgraph", "langchain_core.memory"))
    assert set(gone) == set(langchain_memgas.__all__) - CORE_ONLY == {"MemGASMemory", "MemGASMiddleware", "MemGASStore"}
    for message in gone.values():
        assert 'pip install "memgas[langchain]"' in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("MemGASMemory", ("langchain", "langgraph")),
        ("MemGASStore", ("langchain", "langchain_classic")),
        ("MemGASMiddleware", ("langchain_classic",)),
    ],
)
def test_each_class_needs_only_its_own(name: str, absent: tuple[str, ...]) -> None:
    """Chain memory imports with langchain-classic alone, the store with LangGraph's, the middleware with langchain."""
    assert missing(name, absent=absent) == {}


def test_public_names() -> None:
    """`__all__` is sorted, complete and importable; another name is an AttributeError."""
    assert sorted(langchain_memgas.__all__) == langchain_memgas.__all__ == dir(langchain_memgas)
    assert set(langchain_memgas.__all__) == set(vars(langchain_memgas)["_MODULES"])
    with pytest.raises(AttributeError, match="MemGASVectorStore"):
        langchain_memgas.MemGASVectorStore  # noqa: B018
