"""Every page in a real browser: accessible, within a phone's width, and without a complaint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from axe_playwright_python.sync_playwright import Axe

from flowfabric.server.routes.values import path_id
from flowfabric.server.ui.views.execution import TABS
from tests.ui.browser.conftest import Site
from tests.ui.browser.watching import Tabs

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGES: Final = (
    *("", "/runs", "/flows", "/approvals", "/approvals?tab=all", "/failures", "/budgets", "/lanes"),
    *("/workers", "/schedules", "/audit", "/system", "/operations", "/login"),
    *("/budgets/gpt", "/schedules/reindex?namespace=default", "/runs?q=kind%3Anothing"),
)
_LEVELS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
_QUICK: Final = {"resultTypes": ["violations"], "preload": False, "iframes": False}
_ALL: Final[dict[str, Any]] = {"runOnly": {"type": "tag", "values": list(_LEVELS)}, **_QUICK}
_RUN: Final = "given => axe.run(...given).then((found) => found.violations)"
# In the dark only what colours decide can differ.
_COLOURS: Final[dict[str, Any]] = {
    "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]},
    **_QUICK,
}
# What is wider than the page, or lies over what is beside it, if anything does.
_TOO_WIDE: Final = """() => {
  const width = document.documentElement.clientWidth;
  const over = [...document.querySelectorAll(".cards td, .meter > *")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1 && each.clientWidth)
    .filter((each) => getComputedStyle(each).overflowX === "visible")
    .map((each) => `${each.textContent.trim()} lies over its neighbour`);
  if (document.documentElement.scrollWidth <= width) return over.slice(0, 3);
  return [...document.querySelectorAll("body *")]
    .filter((each) => each.getBoundingClientRect().right > width + 1)
    .map((each) => each.tagName + "." + each.getAttribute("class")).slice(0, 5)
    .concat(["the page"]);
}"""


def pages(site: Site) -> list[str]:
    run, flow = path_id(site.ids["run"]), site.ids["flow"]
    wait = path_id(site.ids["wait"])
    return [
        *(f"/ui{page}" for page in PAGES),
        *(f"/ui/runs/{run}?tab={tab}" for tab, _ in TABS),
        f"/ui/runs/{wait}",
        *(f"/ui/flows/{flow}?tab={tab}" for tab in ("graph", "list", "waterfall")),
        f"/ui/approvals/{wait}/publish?decision=approved",
    ]


def faults_of(page: Page, options: dict[str, Any], where: str) -> list[str]:
    """What breaks a rule as it is lit now, and where."""
    found = page.evaluate(_RUN, [where, options])
    return [f"{each['id']}: {each['nodes'][0]['target']} ({len(each['nodes'])})" for each in found]


def test_33_and_36_no_page_violates_a_rule_of_accessibility_in_either_theme(
    site: Site, tabs: Tabs
) -> None:
    page = tabs.open()
    faults = {}
    for path in pages(site):
        page.goto(site.at(path))
        page.evaluate(Axe().axe_script)
        page.emulate_media(color_scheme="light")
        # The frame is the same everywhere, and its colours are those of the page.
        where = "html" if path in ("/ui", "/ui/login") else "main"
        found = faults_of(page, _ALL, where)
        page.emulate_media(color_scheme="dark")
        if found := found + faults_of(page, _COLOURS, where):
            faults[path] = found
    assert not faults, faults


def test_34_and_35_every_page_fits_a_phone_and_400_percent_with_forced_colours(
    site: Site, tabs: Tabs
) -> None:
    """1280 px at 400 % are 320; nothing moves for those that want no motion."""
    page = tabs.open(has_touch=True, is_mobile=True, reduced_motion="reduce")
    faults = {}
    for path in pages(site):
        page.set_viewport_size({"width": 360, "height": 780})
        page.emulate_media(forced_colors="none")
        page.goto(site.at(path))
        found = page.evaluate(_TOO_WIDE)
        page.set_viewport_size({"width": 320, "height": 256})
        page.emulate_media(forced_colors="active")
        moving = page.evaluate("() => document.getAnimations().map((each) => each.id || 'moves')")
        if found := found + page.evaluate(_TOO_WIDE) + moving:
            faults[path] = found
    assert not faults, faults


def test_47_a_printed_run_has_its_facts_and_no_frame(site: Site, tabs: Tabs) -> None:
    page = tabs.open()
    page.goto(site.at(f"/ui/runs/{path_id(site.ids['run'])}"))
    page.emulate_media(media="print")
    for gone in (".top", ".side", ".foot"):
        assert not page.locator(gone).is_visible()
    for kept in ("h1", ".timeline", ".log"):
        assert page.locator(kept).first.is_visible()
    box = page.locator(".log")
    assert box.evaluate("box => getComputedStyle(box).maxHeight") == "none"  # it has no scroll bar
