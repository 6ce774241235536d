"""Run with `pip install memgas` and nothing else, outside the checkout: `plain.py CHECKOUT`."""

import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.metadata import requires, version
from pathlib import Path

import memgas
from memgas.errors import MissingExtraError

ADAPTERS = {"langchain_memgas": "langchain", "llama_index_memgas": "llama-index"}


def check_files(checkout: Path) -> None:
    """The package comes from the wheel, typed, with everything that the checkout's package has."""
    installed = Path(memgas.__file__).parent
    assert not installed.is_relative_to(checkout), installed
    for name, folder in {"memgas": "core", **dict.fromkeys(ADAPTERS, ".")}.items():
        source = checkout / folder / name
        wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
        missing = {str(path) for path in wanted if not (installed.parent / name / path).is_file()}
        assert not missing, missing
        assert (installed.parent / name / "py.typed").is_file(), name


def check_extras() -> None:
    """Without an extra, what needs it says the pip line."""
    for adapter, extra in ADAPTERS.items():
        try:
            import_module(adapter)
        except MissingExtraError as error:
            assert f'pip install "memgas[{extra}]"' in str(error), error
        else:
            raise AssertionError(f"{adapter} was imported without its framework")
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, "-c", f"import memgas; memgas.MemGAS({folder!r})"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert 'pip install "memgas[local]"' in run.stderr, run.stderr


def check_command() -> None:
    """The command is there, and its help needs nothing."""
    command = Path(sys.executable).parent / "memgas"
    shown = subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "demo" in shown, shown


if __name__ == "__main__":
    assert requires("memgas")
    check_files(Path(sys.argv[1]))
    check_extras()
    check_command()
    print(f"memgas {version('memgas')} as installed: files, extras, command")
