"""What the architecture promises about imports."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAVY = {"chromadb", "click", "jieba", "networkx", "openai", "scipy", "sklearn"}
FRAMEWORKS = {"langchain", "langchain_classic", "langchain_core", "langgraph", "llama_index"}

REPORT = """
import json, sys
touched = []
sys.addaudithook(lambda event, arguments: touched.append(event) if event.startswith("socket.") else None)
import memgas
print(json.dumps({"modules": sorted({name.partition(".")[0] for name in sys.modules}), "sockets": touched}))
"""


def test_imports_point_one_way() -> None:
    """The contracts in pyproject.toml hold: layers, no framework in the core, one file for chromadb, adapters apart."""
    # Not in this process: it would switch off the loggers of the tests that come after.
    command = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    run = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout


def test_importing_memgas_is_light() -> None:
    """`import memgas` pulls in no framework, no database, no scientific stack but numpy, and touches no socket."""
    run = subprocess.run([sys.executable, "-c", REPORT], capture_output=True, text=True, check=True)
    seen = json.loads(run.stdout)

    assert set() == (HEAVY | FRAMEWORKS) & set(seen["modules"])
    assert [] == seen["sockets"]
