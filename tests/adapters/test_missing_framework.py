"""What an adapter says when its framework is not installed."""

import subprocess
import sys
from pathlib import Path

import pytest

IMPORT = """
import sys
sys.modules[{absent!r}] = None   # as good as not installed
from memgas.errors import MissingExtraError
try:
    import {adapter}
except MissingExtraError as error:
    print(isinstance(error, ImportError), error.name, error, sep="|")
"""

ADAPTERS = [
    pytest.param("langchain_memgas", "langchain_core", "langchain", id="langchain"),
    pytest.param("llama_index_memgas", "llama_index", "llama-index", id="llama-index"),
    pytest.param("llama_index_memgas", "llama_index.core", "llama-index", id="llama-index-without-core"),
]


@pytest.mark.parametrize(("adapter", "absent", "extra"), ADAPTERS)
def test_missing_framework_is_said_with_the_pip_line(adapter: str, absent: str, extra: str) -> None:
    """Without the framework, importing its adapter raises an ImportError that says what to install."""
    code = IMPORT.format(adapter=adapter, absent=absent)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    is_import_error, name, message = run.stdout.strip().split("|")
    assert is_import_error == "True"
    assert name.startswith(absent)
    assert f'pip install "memgas[{extra}]"' in message


@pytest.mark.parametrize("adapter", ["langchain_memgas", "llama_index_memgas"])
def test_adapter_imports_with_its_framework(adapter: str, tmp_path: Path) -> None:
    """With the framework installed, an adapter imports, and does not pull in the other one."""
    code = f"import sys, {adapter}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    other = {"langchain_memgas": "llama_index", "llama_index_memgas": "langchain_core"}[adapter]
    assert adapter in run.stdout.split()
    assert other not in run.stdout.split()
