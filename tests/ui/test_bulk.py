"""Changes to many runs: seen before they are made, and followed while they are."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from flowfabric.limits import OPERATION_PAUSE_MS
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.pages import Document, page_of, sent, shown


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


def words(page: Document) -> str:
    return " ".join(" ".join(page.texts).split())


def hidden(page: Document, form: str) -> dict[str, str]:
    """The hidden fields of a page, as its form sends them; `form` names the page's form."""
    assert any(a.get("id") == form for t, a in page.elements if t == "form")
    return {
        a["name"]: a["value"]
        for t, a in page.elements
        if t == "input" and a.get("type") == "hidden" and a["name"] not in ("csrf", "back", "theme")
    }


@scenario
async def test_all_of_a_filter_is_changed_as_an_operation_that_is_followed(lab: Lab) -> None:
    desk = Desk(lab.engine)
    mine = [await lab.create("brief") for _ in range(3)]
    other = await lab.create("judge")
    page = await shown(desk, "/ui/runs/preview?action=hold&all=1&q=kind:brief")
    assert "Hold 3 runs?" in words(page)
    reply = await sent(desk, "/ui/runs/change", page, **hidden(page, "change"))
    place = reply.headers["location"]
    assert re.fullmatch(r"/ui/operations/[0-9a-f-]{36}", place)
    again = await sent(desk, "/ui/runs/change", page, **hidden(page, "change"))
    assert again.headers["location"] == place
    for _ in range(3):
        await lab.after(OPERATION_PAUSE_MS)
    followed = words(await shown(desk, place))
    assert "3 of 3" in followed
    for key in mine:
        assert (await lab.describe(key)).blocking_reason == "paused_by_operator"
    assert (await lab.describe(other)).blocking_reason != "paused_by_operator"
    assert "hold" in words(await shown(desk, "/ui/operations"))


@scenario
async def test_a_selection_is_changed_and_never_what_came_afterwards(lab: Lab) -> None:
    desk = Desk(lab.engine)
    first, second = await lab.create("brief"), await lab.create("brief")
    listed = await shown(desk, "/ui/runs")
    ids = [a["value"] for t, a in listed.elements if t == "input" and a.get("name") == "id"]
    assert len(ids) == 2
    query = "&".join(f"id={each}" for each in ids)
    page = await shown(desk, f"/ui/runs/preview?action=cancel&{query}")
    late = await lab.create("brief")
    body = "&".join(f"id={each}" for each in ids)
    csrf = next(a["value"] for t, a in page.elements if a.get("name") == "csrf")
    reply = await desk.post(
        "/ui/runs/change",
        f"csrf={csrf}&action=cancel&count=2&back=/ui/runs&{body}".encode(),
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert (reply.status, reply.headers["location"]) == (303, "/ui/runs")
    for key in (first, second):
        assert (await lab.describe(key)).public_state == "cancelled"
    assert (await lab.describe(late)).public_state == "waiting"


@scenario
async def test_many_are_changed_only_after_their_number_was_typed(lab: Lab) -> None:
    desk = Desk(lab.engine)
    for _ in range(101):
        await lab.create("brief")
    page = await shown(desk, "/ui/runs/preview?action=cancel&all=1")
    assert "Type 101 to go on" in words(page)
    fields = hidden(page, "change")
    refused = await sent(desk, "/ui/runs/change", page, **fields)
    assert refused.headers["location"] == "/ui/runs/preview?action=cancel&all=1"
    done = await sent(desk, "/ui/runs/change", page, **fields, typed="101")
    assert done.headers["location"].startswith("/ui/operations/")
    stopped = await sent(
        desk,
        f"{done.headers['location']}/stop",
        await shown(desk, done.headers["location"]),
    )
    assert stopped.status == 303
    assert "stopped" in words(await shown(desk, done.headers["location"]))


@scenario
async def test_a_wrong_word_is_told_with_the_right_one_and_changes_nothing(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await lab.create("brief")
    page = await shown(desk, f"/ui/runs?q={quote('state:faild kind:breif lame:x')}")
    text = words(page)
    for right in ("state:failed", "kind:brief", "lane:x"):
        assert right in text
    refused = await desk.get("/ui/runs/preview?action=cancel&all=1&q=state:faild")
    assert refused.status == 422
    page_of(refused)
    assert (await desk.get("/ui/runs/preview?action=explode&all=1")).status == 422


@scenario
async def test_a_filter_that_nothing_fits_offers_itself_without_each_word(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await lab.create("brief")
    page = await shown(desk, "/ui/runs?q=kind:brief+state:failed")
    links = {each.text: each.attributes["href"] for each in page.all("a")}
    assert links["without state:failed"] == "/ui/runs?q=kind%3Abrief"
    assert "brief" in words(await shown(desk, links["without state:failed"]))


@scenario
async def test_a_caller_of_two_namespaces_sees_one_of_them_at_a_time(lab: Lab) -> None:
    desk = Desk(lab.engine)
    for space in ("a", "b", "c"):
        await lab.create(f"of-{space}", namespace=space)
    made = await lab.engine.create_access_token(name="x", scopes=("read",), namespaces=("a", "b"))
    bearer = {"authorization": f"Bearer {made.token.reveal()}"}
    for query, seen in (("", "of-a"), ("?q=namespace:b", "of-b")):
        rows = {e.text for e in (await shown(desk, f"/ui/runs{query}", headers=bearer)).all("b")}
        assert rows & {"of-a", "of-b", "of-c"} == {seen}
    await shown(desk, "/ui/runs?q=namespace:c", 403, headers=bearer)


@scenario
async def test_pages_of_runs_follow_each_other(lab: Lab) -> None:
    desk = Desk(lab.engine)
    for _ in range(60):
        await lab.create("brief")
    page = await shown(desk, "/ui/runs?q=kind:brief")
    assert "60 match" in words(page)
    (following,) = [e for e in page.all("a") if e.attributes.get("rel") == "next"]
    second = await shown(desk, following.attributes["href"])
    rows = [a for t, a in second.elements if t == "tr" and "data-open" in a]
    assert len(rows) == 10
    assert [e for e in second.all("a") if e.attributes.get("rel") == "first"]
