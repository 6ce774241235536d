"""A real browser, and memories to look at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memgas import Digest, MemGAS, NewSession, Turn
from memgas.testing import HashEmbedder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Show = Callable[..., AbstractContextManager["Page"]]

HOSTILE = '<img src=x onerror="window.pwned=1"></script><script>window.pwned=1</script>'
WORDS = "lena bees hive barn honey market halden bank slug bean tomato garden roof swarm trap queen smoke".split()  # noqa: SIM905
BEGIN, APART = datetime(2026, 1, 5, 9, tzinfo=UTC), timedelta(hours=9)
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium, headless; skip where there is none, unless MEMGAS_REQUIRE_BROWSER=1.

    Not for the session: while it is open Playwright keeps an event loop running, and other tests start their own.
    """
    path = os.environ.get("MEMGAS_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    required = os.environ.get("MEMGAS_REQUIRE_BROWSER") == "1"
    if path is None:
        message = "no Chromium found: apt-get install chromium, or set MEMGAS_CHROMIUM"
        pytest.fail(message) if required else pytest.skip(message)
    if not required:
        pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def show(browser: Browser) -> Show:
    """Show a memory in a page of its own; afterwards nothing may have gone wrong in it, or gone out of this machine."""
    from memgas.explore.serving import open_page

    @contextmanager
    def shown(
        memory: MemGAS, *, allow_forget: bool = False, width: int = 1280, height: int = 800, scheme: str = "light"
    ) -> Iterator[Page]:
        wrong: list[str] = []
        with open_page(memory, allow_forget=allow_forget).in_background() as url:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
            )
            page = context.new_page()
            page.on("console", lambda line: wrong.append(line.text) if line.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("request", lambda request: None if request.url.startswith(url) else wrong.append(request.url))
            page.goto(url)
            page.wait_for_function("() => document.getElementById('mode').textContent !== ''")
            try:
                yield page
                assert [] == wrong
            finally:
                context.close()

    return shown


def talks(n: int, *, n_turns: int = 4, is_digested: bool = True) -> list[NewSession]:
    """Sessions of random words, one every nine hours, with a digest each, or an empty one."""
    rng = np.random.default_rng(2)
    made = []
    for number in range(n):
        said = [" ".join(rng.choice(WORDS, 6)) for _ in range(n_turns)]
        turns = [Turn("assistant" if i % 2 else "user", text) for i, text in enumerate(said)]
        made.append(
            NewSession(
                turns,
                f"talk {number}",
                happened_at=BEGIN + number * APART,
                digest=Digest(said[0], tuple(said[0].split()[:3])) if is_digested else Digest("", ()),
            )
        )
    return made


@pytest.fixture
def memory() -> MemGAS:
    """Forty sessions, one of them hostile, and a namespace in Chinese."""
    memory = MemGAS.in_memory(embedder=HashEmbedder(n_dims=48))
    memory.add_many(talks(39), namespace="u")
    memory.add([Turn(HOSTILE, f"zeppelin {HOSTILE}")], namespace="u", session_id=HOSTILE)
    memory.add(
        [Turn("林晓", "我今天开始学二胡了！老师姓周。"), Turn("assistant", "恭喜！")],
        namespace="林晓",
        session_id="二胡",
    )
    return memory
