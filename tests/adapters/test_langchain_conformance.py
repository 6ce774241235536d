"""LangChain's own conformance suites, with nothing overridden."""

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import RetrieversIntegrationTests, ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from langchain_memgas import MemGASRetriever, create_memgas_tools
from memgas import MemGAS, Turn
from memgas.testing import HashEmbedder


class TestRetriever(RetrieversIntegrationTests):
    """LangChain's suite for retrievers, with nothing overridden."""

    @pytest.fixture(autouse=True)
    def _memory(self) -> Iterator[None]:
        with MemGAS.in_memory(embedder=HashEmbedder()) as memory:
            for text in ("I adopted a greyhound, Juno.", "My sister Lena keeps bees.", "I bake bread."):
                memory.add([Turn("user", text)], namespace="ana")
            self.memory = memory
            yield

    @property
    def retriever_constructor(self) -> type[MemGASRetriever]:
        """The class under test."""
        return MemGASRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        """How it is made."""
        return {"memory": self.memory, "namespace": "ana"}

    @property
    def retriever_query_example(self) -> str:
        """What is asked."""
        return "What does my sister do?"


class _Suite:
    """What both suites test: the tools of one user."""

    index: int
    example: dict[str, Any]

    @property
    def tool_constructor(self) -> BaseTool:
        """The tool under test."""
        return create_memgas_tools(MemGAS.in_memory(embedder=HashEmbedder()), namespace="ana")[self.index]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        """What it is called with."""
        return self.example


class _Search(_Suite):
    index, example = 0, {"query": "What does Lena do?"}


class _Manage(_Suite):
    index, example = 1, {"action": "remember", "content": "Lena keeps bees."}


class TestSearchUnit(_Search, ToolsUnitTests):
    """LangChain's unit suite, with nothing overridden."""


class TestSearchIntegration(_Search, ToolsIntegrationTests):
    """LangChain's integration suite, with nothing overridden."""


class TestManageUnit(_Manage, ToolsUnitTests):
    """LangChain's unit suite, with nothing overridden."""


class TestManageIntegration(_Manage, ToolsIntegrationTests):
    """LangChain's integration suite, with nothing overridden."""
