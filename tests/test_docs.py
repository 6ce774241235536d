"""What README, CONTRIBUTING and docs show is true: snippets run, commands exist."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a page in one language."""
    return [text for name, text in FENCE.findall(page.read_text("utf-8")) if name == language]


def commands() -> list[str]:
    """Return every command line shown after a prompt, and every `make` target named in running text."""
    shown = [
        line.removeprefix("$ ").replace("\\\n", " ")
        for page in PAGES
        for block in blocks(page, "console")
        for line in re.findall(r"^\$ (?:.*\\\n)*.*", block, re.MULTILINE)
    ]
    named = [name for page in PAGES for name in re.findall(r"`(make \w+)`", page.read_text("utf-8"))]
    return sorted({*shown, *named})


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_snippets_run(page: Path, tmp_path: Path) -> None:
    """The Python snippets of a page run from top to bottom, as a reader would type them, without a warning."""
    code = "\n".join(blocks(page, "python"))
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True, timeout=600)


@pytest.mark.parametrize("command", commands())
def test_commands_exist(command: str) -> None:
    """A command that is shown exists: its make target, its extra, its subcommand and options."""
    name, *arguments = shlex.split(command, comments=True)
    if name == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert {word for word in arguments if "=" not in word} <= set(targets)
    elif name == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
        wanted = re.findall(r"memgas\[([\w,-]+)\]", command)
        assert {extra for names in wanted for extra in names.split(",")} <= set(extras)
    else:
        assert name == "memgas"
        shown = subprocess.run(
            [sys.executable, "-m", "memgas.cli", *[word for word in arguments if word.isalpha()][:1], "--help"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert {word for word in arguments if word.startswith("--")} <= set(re.findall(r"--[\w-]+", shown))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """A link to a file of the repository leads to one."""
    broken = [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert [] == broken
