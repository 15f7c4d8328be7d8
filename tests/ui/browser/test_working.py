"""People at work: what a page does while things happen, and with which keys and clicks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from flowfabric.model.results import Created
from flowfabric.server.routes.values import path_id
from tests.support.server_thread import ServerThread
from tests.ui.browser.conftest import Site
from tests.ui.browser.watching import Tabs, changed, live, sequence

DAY_MS: Final = 86_400_000
_LANE: Final = "kept"  # of tests: no worker asks for it


def submitted(server: ServerThread, kind: str, **fields: Any) -> str:
    made = server.run(server.engine.create_execution(execution_kind=kind, lane_id=_LANE, **fields))
    assert isinstance(made, Created)
    return made.execution_id


def cancelled(server: ServerThread, execution_id: str) -> None:
    server.run(
        server.engine.cancel_execution(
            execution_id=execution_id, reason="not needed", source="operator_override"
        )
    )


def state_of(server: ServerThread, execution_id: str) -> str:
    found = server.run(server.engine.describe_execution(execution_id=execution_id))
    assert found is not None
    return found.public_state.value


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[ServerThread]:
    """A server on a new store."""
    server = ServerThread(f"sqlite:///{tmp_path / 'new.db'}", rate_address=100_000)
    yield server
    server.close()


def test_03_without_scripts_a_page_reads_and_acts(site: Site, tabs: Tabs) -> None:
    key = submitted(site.server, "plain")
    page = tabs.open(java_script_enabled=False)
    page.goto(site.at("/ui/runs?q=kind%3Aplain"))
    page.get_by_role("link", name="plain").click()
    page.get_by_role("button", name="Cancel…").click()
    page.locator(".dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator("#flash.done")).to_be_visible()
    assert state_of(site.server, key) == "cancelled"


def test_04_the_first_page_changes_by_itself_with_the_first_submit(
    empty: ServerThread, tabs: Tabs
) -> None:
    page = tabs.open()
    page.goto(f"{empty.address}/ui")
    live(page)
    for command in ("ff worker app:ff", "ff submit KIND topic=solar", "ff ps"):
        expect(page.get_by_text(command, exact=True)).to_be_visible()
    submitted(empty, "brief")
    expect(page.locator(".tiles")).to_be_visible()


def test_05_an_approval_is_decided_in_three_clicks_from_the_overview(
    site: Site, tabs: Tabs
) -> None:
    page = tabs.open()
    page.goto(site.at("/ui"))
    page.get_by_role("link", name=re.compile("approvals? waits? for people")).click()
    row = page.locator(".asked > li", has_text="solar")
    row.get_by_role("link", name="Approve").click()
    page.get_by_label("title").fill("Solar in 2026")
    page.get_by_label("web").check()
    page.get_by_label("Your name").fill("bob")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("#flash.done")).to_be_visible()
    assert state_of(site.server, site.ids["wait"]) != "suspended"


def test_14_a_selection_never_acts_on_rows_that_came_later(site: Site, tabs: Tabs) -> None:
    chosen = submitted(site.server, "picked")
    page = tabs.open()
    page.goto(site.at("/ui/runs?q=kind%3Apicked"))
    live(page)
    page.locator("tbody input[type=checkbox]").check()
    seen = sequence(page)
    later = submitted(site.server, "picked")
    changed(page, seen)
    expect(page.locator("#bulk-count")).to_have_text("1 selected")
    page.locator("#bulk").get_by_role("button", name="Cancel").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("main form[method=post] button.primary").click()
    page.wait_for_url(re.compile("/ui/(runs|operations)"))
    expect(page.locator("#flash.done")).to_be_visible()
    assert state_of(site.server, chosen) == "cancelled"
    assert state_of(site.server, later) == "waiting"


def test_17_new_rows_wait_above_the_list(site: Site, tabs: Tabs) -> None:
    submitted(site.server, "rows")
    page = tabs.open()
    page.goto(site.at("/ui/runs?q=kind%3Arows"))
    live(page)
    submitted(site.server, "rows")
    expect(page.get_by_text("1 new")).to_be_visible()
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    page.get_by_role("link", name="1 new").click()
    expect(page.locator("#runs tbody tr")).to_have_count(2)


def test_18_a_half_filled_form_survives_a_change_of_what_is_around_it(
    site: Site, tabs: Tabs
) -> None:
    key = submitted(site.server, "form")
    page = tabs.open()
    page.goto(site.at(f"/ui/runs/{path_id(key)}"))
    live(page)
    page.get_by_role("button", name="Cancel…").click()
    reason = page.locator(".dialog:popover-open").get_by_label("Reason")
    reason.fill("half of a rea")
    cancelled(site.server, key)
    expect(page.get_by_text("This has changed since you opened it")).to_be_visible()
    expect(reason).to_have_value("half of a rea")
    expect(reason).to_be_focused()


def test_19_a_page_comes_back_after_a_restart_and_has_missed_nothing(
    tmp_path: Path, tabs: Tabs
) -> None:
    url = f"sqlite:///{tmp_path / 'again.db'}"
    server = ServerThread(url, rate_address=100_000)
    try:
        key = submitted(server, "brief")
        address = server.address
        page = tabs.open()
        page.goto(f"{address}/ui/runs")
        live(page)
    finally:
        server.close()
    expect(page.locator("body")).to_have_attribute(
        "data-live-state", re.compile("reconnecting|offline")
    )
    again = ServerThread(url, rate_address=100_000, bind=address.removeprefix("http://"))
    try:
        cancelled(again, key)
        expect(page.locator("body")).to_have_attribute("data-live-state", "live")
        expect(page.locator("#runs tbody")).to_contain_text("cancelled")
    finally:
        again.close()
    tabs.complaints[:] = [each for each in tabs.complaints if "ERR_" not in each]


def test_20_paused_stays_paused_and_counts_what_is_held_back(site: Site, tabs: Tabs) -> None:
    key = submitted(site.server, "paused")
    page = tabs.open()
    page.goto(site.at("/ui/runs?q=kind%3Apaused"))
    live(page)
    page.keyboard.press("p")
    cancelled(site.server, key)
    expect(page.locator("#live-text")).to_have_text(re.compile(r"paused \([1-9]"))
    expect(page.locator("#runs tbody")).to_contain_text("waiting")
    page.keyboard.press("p")
    expect(page.locator("#runs tbody")).to_contain_text("cancelled")
    expect(page.locator("#live-text")).to_have_text("live")


_HIDDEN: Final = """is => {
  Object.defineProperty(document, "hidden", {get: () => is, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_21_a_hidden_tab_lets_go_of_its_stream_and_is_right_when_it_is_shown(
    site: Site, tabs: Tabs
) -> None:
    """As the browser tells the page that it is hidden; a tab without a window cannot be hidden."""
    key = submitted(site.server, "hidden")
    page = tabs.open()
    streams: list[str] = []
    page.on("request", lambda asked: streams.append(asked.url) if "/ui/live" in asked.url else None)
    page.clock.install()
    page.goto(site.at("/ui/runs?q=kind%3Ahidden"))
    live(page)
    page.evaluate(_HIDDEN, True)
    page.clock.fast_forward(31_000)
    cancelled(site.server, key)
    assert len(streams) == 1
    page.evaluate(_HIDDEN, False)
    expect(page.locator("#runs tbody")).to_contain_text("cancelled")
    assert len(streams) == 2  # the first was let go


def test_22_the_fifth_tab_says_that_it_asks_and_none_hangs(site: Site, tabs: Tabs) -> None:
    pages = [tabs.open()]
    pages += [tabs.beside(pages[0].context) for _ in range(5)]
    for page in pages:
        page.goto(site.at("/ui/runs"))
        expect(page.locator("#live-text")).to_have_text(re.compile("^(live|every 5 s)$"))
    words = [page.locator("#live-text").inner_text() for page in pages]
    assert words == ["live"] * 4 + ["every 5 s"] * 2


def tab_to(page: Page, text: str) -> None:
    """Reach something by the tab key alone."""
    for _ in range(80):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "() => { const at = document.activeElement;"
            " return [at.textContent.trim() || at.labels?.[0]?.textContent.trim() || '',"
            " at.matches(':focus-visible') && getComputedStyle(at).outlineStyle] }"
        )
        if text in found[0]:
            assert found[1] != "none", f"the focus on {text} is not seen"
            return
    raise AssertionError(f"{text} cannot be reached")


def test_32_an_approval_is_rejected_with_keys_only(site: Site, tabs: Tabs) -> None:
    page = tabs.open()
    page.goto(site.at("/ui"))
    live(page)
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/ui/approvals*")
    live(page)
    tab_to(page, "Reject")
    page.keyboard.press("Enter")
    page.wait_for_url("**decision=rejected*")
    for field, typed in (("Title", "no"), ("web", " "), ("Your name", "eve")):
        tab_to(page, field)
        page.keyboard.type(typed)
    tab_to(page, "Reject")
    page.keyboard.press("Enter")
    expect(page.locator("#flash.done")).to_be_visible()


def test_32_the_focus_is_not_lost_when_a_part_is_replaced(site: Site, tabs: Tabs) -> None:
    key = submitted(site.server, "focus")
    page = tabs.open()
    page.goto(site.at("/ui/runs?q=kind%3Afocus"))
    live(page)
    page.keyboard.press("j")
    focused = page.evaluate("() => document.activeElement.getAttribute('href')")
    assert path_id(key) in focused
    seen = sequence(page)
    cancelled(site.server, key)
    changed(page, seen)
    expect(page.locator("#runs tbody")).to_contain_text("cancelled")
    assert page.evaluate("() => document.activeElement.getAttribute('href')") == focused


def test_37_a_dark_page_is_dark_from_its_first_paint(site: Site, tabs: Tabs) -> None:
    page = tabs.open()
    page.goto(site.at("/ui/runs"))
    page.locator("#theme").click()
    theme = page.locator("html").get_attribute("data-theme")
    assert theme in ("light", "dark")
    if theme == "light":
        page.locator("#theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.route("**/*.js", lambda route: route.abort())  # nothing but markup and style decides
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    colour = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", colour)[:3])) < 40
    tabs.complaints[:] = [each for each in tabs.complaints if "ERR_FAILED" not in each]


def test_38_back_and_reload_show_the_same_filter_and_tab(site: Site, tabs: Tabs) -> None:
    page = tabs.open()
    page.goto(site.at("/ui/runs"))
    page.locator("#q").fill("state:completed kind:research")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=state*")
    filtered = page.locator("#runs tbody").inner_text()
    page.locator("#runs tbody a").first.click()
    page.get_by_role("link", name="Attempts").click()
    page.wait_for_url("**tab=attempts*")
    shown = page.url
    page.reload()
    assert page.url == shown
    expect(page.locator("nav [aria-current]", has_text="Attempts")).to_be_visible()
    page.go_back()
    page.go_back()
    expect(page.locator("#q")).to_have_value("state:completed kind:research")
    assert len(page.locator("#runs tbody").inner_text()) == len(filtered)


def test_46_a_browser_whose_clock_is_a_day_off_tells_the_right_times(
    site: Site, tabs: Tabs
) -> None:
    submitted(site.server, "clocked")
    page = tabs.open()
    now = json.loads(page.evaluate("() => JSON.stringify(Date.now())"))
    page.clock.set_system_time((now + DAY_MS) / 1000)
    page.goto(site.at("/ui/runs?q=kind%3Aclocked"))
    live(page)
    told = page.locator("#runs tbody time[data-ago]").first
    expect(told).to_have_attribute("data-local", "")
    assert re.fullmatch(r"now|[\d.]+m?s ago", told.inner_text()), told.inner_text()


def test_42_after_signing_out_the_back_button_shows_nothing(
    empty: ServerThread, tabs: Tabs
) -> None:
    submitted(empty, "secret-kind")
    made = empty.run(
        empty.engine.create_access_token(name="ada", scopes=("read",), namespaces=("default",))
    )
    page = tabs.open()
    page.goto(f"{empty.address}/ui/runs")
    page.wait_for_url(re.compile("/ui/login"))
    page.get_by_label("Access token").fill(made.token.reveal())
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/runs")
    expect(page.get_by_text("secret-kind").first).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(re.compile("/ui/login"))
    page.go_back()
    expect(page.get_by_label("Access token")).to_be_visible()
    assert "secret-kind" not in page.content()
