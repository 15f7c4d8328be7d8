"""Failures, audit and system: what is broken, who did what, and how the server fares."""

from __future__ import annotations

import json

import pytest

from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.pages import Document, sent, shown
from tests.support.statistics import roll_up

HOSTILE = "<script>alert(1)</script>\u202e{{7*7}}"


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: what the operations answer on each store is tested elsewhere."""
    return quick


def text_of(page: Document) -> str:
    return " ".join(" ".join(page.texts).split())


async def fail(lab: Lab, many: int, reason: str = "RateLimitError: 429") -> None:
    for _ in range(many):
        claimed = await lab.started()
        await lab.engine.fail(claimed.handle, reason=reason, failure_class="permanent")
    await roll_up(lab)


async def group_of(desk: Desk) -> tuple[str, Document]:
    page = await shown(desk, "/ui/failures")
    (href,) = {
        each.attributes["href"]
        for each in page.all("a")
        if each.attributes["href"].startswith("/ui/failures/")
    }
    return href, await shown(desk, href)


# --- failures ------------------------------------------------------------------------------------


@scenario
async def test_failures_that_are_alike_are_one_line(lab: Lab) -> None:
    desk = Desk(lab.engine)
    assert "No failures in the last 24 hours" in text_of(await shown(desk, "/ui/failures"))
    await fail(lab, 3, HOSTILE)
    assert "1 kind of failure, 3 runs" in text_of(await shown(desk, "/ui/failures"))
    href, page = await group_of(desk)
    assert "{{7*7}}" in text_of(page)
    run = next(each.attributes["data-open"] for each in page.all("tr") if each.attributes)
    (alike,) = [each for each in (await shown(desk, run)).all("a") if "same as" in each.text]
    assert (alike.text, alike.attributes["href"]) == ("same as 2 others in the last day", href)
    assert len([each for each in page.all("tr") if "data-open" in each.attributes]) == 3


@scenario
async def test_a_group_is_run_again_by_one_operation(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await fail(lab, 2)
    href, page = await group_of(desk)
    path = href.partition("?")[0]
    fields = {"namespace": "default", "count": "2", "action": "retry", "reason": "mended"}
    reply = await sent(desk, f"{path}/change", page, **fields)
    assert reply.headers["location"].startswith("/ui/operations/")
    page = await shown(desk, reply.headers["location"])
    (operation,) = (await lab.engine.list_operations()).items
    assert operation.action == "retry"


@scenario
async def test_many_are_changed_only_with_their_number_typed(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await fail(lab, 1)
    href, page = await group_of(desk)
    path = href.partition("?")[0]
    fields = {"namespace": "default", "count": "340", "action": "dismiss"}
    for wrong in ({}, {"typed": "34"}, {"action": "cancel"}):
        async with lab.unchanged():
            await sent(desk, f"{path}/change", page, **{**fields, **wrong})
    await sent(desk, f"{path}/change", page, **fields, typed="340")
    assert len((await lab.engine.list_operations()).items) == 1


@scenario
async def test_what_is_known_is_hidden_for_a_while(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await fail(lab, 5)
    href, page = await group_of(desk)
    path = href.partition("?")[0]
    await sent(desk, f"{path}/known", page, **{"namespace": "default", "for": "1d"})
    assert "No failures" in text_of(await shown(desk, "/ui/failures"))
    assert "known until" in text_of(await shown(desk, "/ui/failures?known=1"))
    page = await shown(desk, href)
    await sent(desk, f"{path}/known", page, namespace="default")
    assert "1 kind of failure" in text_of(await shown(desk, "/ui/failures"))
    await shown(desk, "/ui/failures/nothing", 404)


# --- audit and system ----------------------------------------------------------------------------


@scenario
async def test_the_audit_trail_is_filtered_and_exported(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await lab.engine.pause_lane(lane_id="mail", reason=HOSTILE, actor="ada")
    await lab.engine.drain_lane(lane_id="mail", actor="bob")
    page = await shown(desk, "/ui/audit")
    assert "{{7*7}}" in text_of(page)
    page = await shown(desk, "/ui/audit?actor=bob")
    assert [each.text for each in page.all("b") if each.text in ("ada", "bob")] == ["bob"]
    export = await desk.get("/ui/audit/export?actor=ada")
    assert "attachment" in export.headers["content-disposition"]
    assert [json.loads(line)["actor"] for line in export.body.splitlines()] == ["ada"]
    await shown(desk, "/ui/audit?since=soon", 422)


@scenario
async def test_the_system_tells_its_health_and_revokes_tokens(lab: Lab) -> None:
    desk = Desk(lab.engine)
    page = await shown(desk, "/ui/system")
    assert "ff token new" in text_of(page)
    reply = await sent(desk, "/ui/system/doctor", page)
    cookie = {"cookie": reply.headers["set-cookie"].partition(";")[0]}
    assert "Nothing is wrong." in text_of(await shown(desk, "/ui/system", headers=cookie))
    boss = await lab.engine.create_access_token(name="boss", scopes=("admin",))
    other = await lab.engine.create_access_token(name=HOSTILE[:20], scopes=("read",))
    bearer = {"Authorization": f"Bearer {boss.token.reveal()}"}
    page = await shown(desk, "/ui/system", headers=bearer)
    assert boss.token.reveal() not in text_of(page)
    path = f"/ui/system/tokens/{other.id}/revoke"
    assert any(each.get("action") == path for tag, each in page.elements if tag == "form")
    form = {**bearer, "content-type": "application/x-www-form-urlencoded"}
    assert (await desk.post(path, b"back=/ui/system", headers=form)).status == 303
    tokens = (await lab.engine.list_access_tokens()).items
    assert [each.name for each in tokens if each.revoked_at is not None] == [HOSTILE[:20]]
