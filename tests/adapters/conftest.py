"""LlamaIndex leaves event loops and database connections unclosed and calls old names of pydantic's; only its tests may."""

import gc
import warnings
from collections.abc import Iterator

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests of the LlamaIndex adapter run on although something of LlamaIndex's is collected meanwhile."""
    for item in items:
        if item.path.name.startswith("test_llama_index"):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"))


@pytest.fixture(autouse=True, scope="module")
def _collect(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect the rest before other tests are blamed for it."""
    yield
    if request.path.name.startswith("test_llama_index"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
