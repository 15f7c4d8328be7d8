"""Approvals: what is shown of what waits for people, and what the forms of it do."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from flowfabric.api.waits import Fresh
from flowfabric.model.event import OperatorEventType
from flowfabric.model.suspension import AllOf, AnyOf, Count, CountKind, ReasonCode, Single
from flowfabric.sdk.payload_types import schema_of
from flowfabric.server.routes.values import path_id
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.pages import page_of, sent, shown
from tests.support.waits import Waiting, suspended
from tests.ui.asking import flash_in, posted, text_of, token
from tests.ui.cases import CASES

LIST: Final = "/ui/approvals"
HOSTILE: Final = "<script>alert(1)</script>\"'\u202e\x1b[2J{{7*7}}"


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


def two_of(key: str) -> AnyOf:
    yes = Count(2, CountKind.DISTINCT_SOURCES, (key,), "approved")
    return AnyOf((yes, Single(key, "rejected")))


async def asked(lab: Lab, key: str = "publish", schema: str | None = None, **more: Any) -> Waiting:
    """An execution that waits for two approvals."""
    namespace = more.pop("namespace", "default")
    await lab.create(more.pop("kind", "brief"), namespace=namespace)
    claimed = await lab.claim(namespace=namespace)
    if said := more.pop("said", None):
        await lab.engine.progress(claimed.handle, message=said)
    return await suspended(
        lab,
        more.pop("condition", None) or two_of(key),
        claimed,
        reason_code=ReasonCode.WAITING_FOR_APPROVAL,
        waitpoints=(Fresh(key, payload_type=schema),) if schema else (),
        **more,
    )


def form_of(waiting: Waiting, key: str = "publish") -> str:
    return f"{LIST}/{path_id(waiting.execution_id)}/{key}"


# --- the list ------------------------------------------------------------------------------------


@scenario
async def test_what_waits_is_listed_with_who_has_decided_and_how_many_are_missing(
    lab: Lab,
) -> None:
    desk = Desk(lab.engine)
    empty = await shown(desk, LIST)
    assert "Nothing waits for people" in text_of(empty)
    lab.clock.advance(10_000)
    first = await asked(
        lab,
        said="draft: All about solar",
        timeout_at=lab.clock.now_ms() + 3_600_000,
        timeout_behavior="cancel",
    )
    lab.clock.advance(10_000)
    await asked(lab, "budget", kind="spend")
    await suspended(lab)  # waits for a signal, and not for people
    ada = await token(lab, "approve")
    desk = Desk(lab.engine)
    approve = form_of(first)
    assert (await posted(desk, approve, ada, decision="approved")).status == 303
    words = text_of(await shown(desk, f"{LIST}?tab=all", headers=await token(lab, "read")))
    assert "2 wait for people" in words
    assert "1 of 2" in words
    assert "approved · 1 more" in words
    assert "2 approvals" in words
    assert "draft: All about solar" in words
    assert "it is cancelled" in words
    assert words.index("publish") < words.index("budget")
    newest = text_of(await shown(desk, f"{LIST}?tab=all&order=new", headers=ada))
    assert newest.index("budget") < newest.index("publish")
    mine = await shown(desk, LIST, headers=ada)
    links = [each.attributes["href"] for each in mine.all("a")]
    assert not [each for each in links if "/publish" in each]
    assert [each for each in links if each.endswith("/budget?decision=approved")]
    assert mine.all("title")[0].text == "(2) Approvals · FlowFabric"
    decided = text_of(await shown(desk, f"{LIST}?tab=decided", headers=ada))
    assert "it counts; the wait goes on" in decided


@scenario
async def test_pages_of_the_list_follow_each_other(lab: Lab) -> None:
    for _ in range(51):
        lab.clock.advance(1)
        await asked(lab)
    desk = Desk(lab.engine)
    page = await shown(desk, f"{LIST}?tab=all")
    assert text_of(page).count("0 of 2") == 50
    following = next(each for each in page.all("a") if each.attributes.get("rel") == "next")
    rest = await shown(desk, following.attributes["href"])
    assert text_of(rest).count("0 of 2") == 1
    assert [each for each in rest.all("a") if each.attributes.get("rel") == "first"]


@scenario
async def test_a_wait_at_several_places_is_decided_place_by_place(lab: Lab) -> None:
    both = AllOf((two_of("legal"), Single("press", "approved")))
    waiting = await asked(lab, condition=both)
    desk = Desk(lab.engine)
    page = await shown(desk, LIST)
    assert "legal 0 of 2" in text_of(page)
    assert "press 0 of 1" in text_of(page)
    form = text_of(await shown(desk, form_of(waiting, "press")))
    assert "this part is decided; the rest of the wait may go on" in form


@scenario
async def test_the_page_of_a_run_leads_to_the_form(lab: Lab) -> None:
    waiting = await asked(lab, "a/b")
    desk, run = Desk(lab.engine), f"/ui/runs/{path_id(waiting.execution_id)}"
    page = await shown(desk, run)
    (form,) = [each.attributes["href"] for each in page.all("a") if each.text == "Answer…"]
    assert "brief: a/b" in text_of(await shown(desk, form))
    reader = await shown(desk, run, headers=await token(lab, "read"))
    assert not [each for each in reader.all("a") if each.text == "Answer…"]


# --- deciding ------------------------------------------------------------------------------------


@scenario
async def test_two_people_approve_and_each_is_told_what_came_of_it(lab: Lab) -> None:
    waiting = await asked(lab)
    ada, bob = await token(lab, "approve"), await token(lab, "approve")
    desk, path = Desk(lab.engine), form_of(waiting)
    page = text_of(await shown(desk, path, headers=ada))
    assert "If you approve, it still waits for 1 more." in page
    assert "is told that it was rejected" in page
    first = await posted(desk, path, ada, decision="approved", comment="fine <b>")
    assert (first.status, first.headers["location"]) == (303, LIST)
    assert "it counts; the wait goes on" in flash_in(first)
    again = await posted(desk, path, ada, decision="approved")
    assert again.status == 409
    assert "You have answered already: approved" in text_of(page_of(again))
    seen = await shown(desk, path, headers=ada)
    assert [each.text for each in seen.all("button") if "decision" in each.attributes.values()] == [
        "Reject"
    ]
    other = text_of(await shown(desk, path, headers=bob))
    assert "fine <b>" in other
    assert "If you approve, the run goes on at once." in other
    last = await posted(desk, path, bob, decision="approved")
    assert "the run goes on" in flash_in(last)
    assert (await lab.state(waiting.execution_id)).value == "waiting"


@scenario
async def test_who_comes_late_is_told_who_decided_and_nothing_is_doubled(lab: Lab) -> None:
    waiting = await asked(lab)
    ada, bob = await token(lab, "approve"), await token(lab, "approve")
    desk, path = Desk(lab.engine), form_of(waiting)
    await shown(desk, path, headers=bob)
    assert (await posted(desk, path, ada, decision="rejected")).status == 303
    async with lab.unchanged("ff_audit"):
        late = await posted(desk, path, bob, decision="approved")
    words = text_of(page_of(late))
    assert late.status == 409
    assert "Meanwhile: It was decided: token:" in words
    assert "rejected. " in words
    assert not [each for each in page_of(late).all("button") if each.text == "Approve"]


@scenario
async def test_a_form_decides_the_wait_that_was_seen_and_not_the_next_under_its_key(
    lab: Lab,
) -> None:
    waiting = await asked(lab)
    desk, path = Desk(lab.engine), form_of(waiting)
    page = await shown(desk, path)
    await lab.engine.resume_execution(execution_id=waiting.execution_id)
    again = await lab.claim()
    reason = ReasonCode.WAITING_FOR_APPROVAL
    await suspended(lab, two_of("publish"), again, reason_code=reason)
    seen = next(a["value"] for _, a in page.elements if a.get("name") == "waitpoint")
    async with lab.unchanged("ff_audit"):
        late = await sent(desk, path, page, decision="approved", waitpoint=seen)
    assert late.status == 409
    assert "The wait that you saw is over." in text_of(page_of(late))
    fresh = next(a["value"] for _, a in page_of(late).elements if a.get("name") == "waitpoint")
    done = await sent(desk, path, page_of(late), decision="approved", waitpoint=fresh)
    assert done.status == 303


@scenario
async def test_a_form_of_each_type_is_checked_on_the_page_and_bypassed_by_the_engine(
    lab: Lab,
) -> None:
    desk, headers = Desk(lab.engine), await token(lab, "approve")
    for case in CASES:
        waiting = await asked(lab, schema=schema_of(case.kind))
        path = form_of(waiting)
        page = await shown(desk, path, headers=headers)
        assert [a for _, a in page.elements if a.get("name") == "f"], case
        async with lab.unchanged("ff_audit"):
            wrong = await posted(desk, path, headers, decision="approved", f=case.wrong)
            assert wrong.status == 422, case
            assert case.problem in text_of(page_of(wrong)), case
            api = f"/v1/waits/{path_id(waiting.execution_id)}/publish/approve"
            bypassed = await desk.post(api, {"payload": case.bypassed}, headers=headers)
            assert (bypassed.status, bypassed.json["code"]) == (422, "invalid_payload"), case
        right = await posted(desk, path, headers, decision="approved", f=case.good)
        assert right.status == 303, case


@scenario
async def test_another_row_decides_nothing_and_keeps_what_was_typed(lab: Lab) -> None:
    waiting = await asked(lab, schema=schema_of(list[str]))
    desk, path = Desk(lab.engine), form_of(waiting)
    page = await shown(desk, path)
    async with lab.unchanged("ff_audit"):
        more = await sent(desk, path, page, **{"f.0": "one", "more": "f", "by": "ada"})
    rows = [a for t, a in page_of(more).elements if t == "input" and a.get("name", "")[:2] == "f."]
    assert [each["value"] for each in rows] == ["one", ""]
    assert 'value="ada"' in more.body.decode()
    done = await sent(desk, path, page_of(more), **{"f.0": "one", "decision": "approved"})
    assert done.status == 303


@scenario
async def test_a_decision_that_is_not_on_the_page_is_refused(lab: Lab) -> None:
    waiting = await asked(lab)
    headers = await token(lab, "approve")
    desk, path = Desk(lab.engine), form_of(waiting)
    async with lab.unchanged("ff_audit"):
        refused = await posted(desk, path, headers, decision="maybe")
    assert refused.status == 422
    assert "decision" in text_of(page_of(refused))
    assert (await desk.get(f"{path}s", headers=headers)).status == 404


# --- who may --------------------------------------------------------------------------------------


@scenario
async def test_a_token_that_approves_sees_the_waits_of_its_namespaces_and_nothing_else(
    lab: Lab,
) -> None:
    own = await asked(lab, namespace="a", said="mine")
    foreign = await asked(lab, namespace="b", said="theirs")
    headers = await token(lab, "approve", namespaces=("a",))
    desk = Desk(lab.engine)
    for tab in ("you", "all", "decided"):
        page = await shown(desk, f"{LIST}?tab={tab}", headers=headers)
        assert "theirs" not in text_of(page)
        assert path_id(foreign.execution_id) not in str(page.elements)
        assert not [a for _, a in page.elements if a.get("href", "").startswith("/ui/runs")]
        counts = [each for each in page.all("span") if each.attributes.get("class") == "count"]
        assert [each.text for each in counts] == ["1"]
    mine = await shown(desk, form_of(own), headers=headers)
    assert "mine" in text_of(mine)
    for reply in (
        await desk.get(form_of(foreign), headers=headers),
        await posted(desk, form_of(foreign), headers, decision="approved"),
    ):
        assert reply.status == 404
    assert (await desk.get(f"{LIST}?namespace=b", headers=headers)).status == 403
    several = await token(lab, "approve", namespaces=("a", "b"))
    assert "mine" in text_of(await shown(desk, LIST, headers=several))
    there = await shown(desk, f"{LIST}?namespace=b", headers=several)
    assert "theirs" in text_of(there)
    assert "mine" not in text_of(there)


@scenario
async def test_who_may_not_decide_is_offered_no_action(lab: Lab) -> None:
    waiting = await asked(lab)
    reader = await token(lab, "read")
    desk, path = Desk(lab.engine), form_of(waiting)
    for page in (await shown(desk, LIST, headers=reader), await shown(desk, path, headers=reader)):
        words = [each.text for each in (*page.all("button"), *page.all("a"))]
        assert not {"Approve", "Approve…", "Reject", "Copy link…"} & {*words}
    async with lab.unchanged("ff_audit"):
        for forged in (path, f"{path}/link"):
            refused = await posted(desk, forged, reader, decision="approved")
            assert refused.status == 403
    submitter = await token(lab, "submit")
    assert (await desk.get(LIST, headers=submitter)).status == 403


@scenario
async def test_a_form_without_its_proof_decides_nothing(lab: Lab) -> None:
    waiting = await asked(lab)
    desk = Desk(lab.engine)
    async with lab.unchanged("ff_audit"):
        for proof in ({}, {"csrf": "x"}):
            refused = await posted(desk, form_of(waiting), {}, decision="approved", **proof)
            assert refused.status == 403
        away = {"sec-fetch-site": "cross-site"}
        page = await shown(desk, form_of(waiting))
        csrf = next(a["value"] for _, a in page.elements if a.get("name") == "csrf")
        assert (await posted(desk, form_of(waiting), away, csrf=csrf)).status == 403


# --- links ---------------------------------------------------------------------------------------


@scenario
async def test_making_a_link_is_audited_and_the_link_decides(lab: Lab) -> None:
    waiting = await asked(lab)
    admin = await token(lab, "admin")
    desk, path = Desk(lab.engine), form_of(waiting)
    page = await shown(desk, path, headers=admin)
    assert "The link is a credential" in text_of(page)
    made = await posted(desk, f"{path}/link", admin, to="ada")
    assert made.status == 200
    assert made.headers["cache-control"] == "no-store"
    assert page_of(made).all("body")[0].attributes["data-live"] == path
    (url,) = [each.text for each in page_of(made).all("code") if "/w/ffw1." in each.text]
    events = await lab.operator_events(waiting.execution_id)
    (read,) = [each for each in events if each.event_type is OperatorEventType.TOKEN_READ]
    assert read.actor.startswith("token:")
    link = url.partition("localhost")[2]
    public = await desk.get(link, headers={"accept": "text/html"})
    assert b"You answer as ada" in public.body
    await lab.engine.resume_execution(execution_id=waiting.execution_id)
    gone = await desk.get(link)
    assert b"An operator ended the wait. It takes no more answers." in gone.body
    again = await posted(desk, f"{path}/link", admin)
    assert again.status == 409


@scenario
async def test_a_link_that_opens_nothing_is_a_page_for_a_browser(lab: Lab) -> None:
    desk = Desk(lab.engine)
    page = await desk.get("/w/ffw1.nothing", headers={"accept": "text/html,*/*"})
    assert (page.status, b"This link opens nothing" in page.body) == (401, True)
    assert page.headers["referrer-policy"] == "no-referrer"


@scenario
async def test_a_link_whose_time_is_over_says_so(lab: Lab) -> None:
    waiting = await asked(lab, timeout_at=lab.clock.now_ms() + 1_000, timeout_behavior="fail")
    made = await Desk(lab.engine).post(
        f"/v1/waits/{path_id(waiting.execution_id)}/publish/link", {}
    )
    link = made.json["url"].partition("localhost")[2]
    open_page = await Desk(lab.engine).get(link)
    assert b"it fails." in open_page.body
    await lab.after(2_000)
    await lab.engine.expire_suspension(execution_id=waiting.execution_id)
    assert b"Its time is over. It takes no more answers." in (await Desk(lab.engine).get(link)).body


@scenario
async def test_the_page_of_a_link_has_the_form_of_the_type(lab: Lab) -> None:
    """Another row, and a form with a fault, decide nothing and keep what was typed."""
    waiting = await asked(lab, schema=schema_of(list[int]))
    desk = Desk(lab.engine)
    made = await desk.post(f"/v1/waits/{path_id(waiting.execution_id)}/publish/link", {"to": "ada"})
    link = made.json["url"].partition("localhost")[2]
    page = await desk.get(link)
    proof = page.body.decode().partition('name="proof" value="')[2].partition('"')[0]
    async with lab.unchanged("ff_audit"):
        more = await posted(desk, link, {}, proof=proof, more="f", **{"f.0": "7"})
        assert (more.status, b'name="f.1"' in more.body) == (200, True)
        assert b'name="f.0" type="number" inputmode="numeric" step="1" value="7"' in more.body
        wrong = await posted(desk, link, {}, proof=proof, decision="approved", **{"f.0": "x"})
        assert (wrong.status, b"is no whole number" in wrong.body) == (422, True)
    done = await posted(desk, link, {}, proof=proof, decision="approved", **{"f.0": "7"})
    assert b"Decided: <b>approved</b>" in done.body
    shown_wait = await lab.engine.show_wait(
        execution_id=waiting.execution_id, waitpoint_key="publish"
    )
    assert shown_wait is not None
    assert [(each.source_identity, each.said) for each in shown_wait.answers] == [("ada", "[7]")]


# --- hostile texts -------------------------------------------------------------------------------


@scenario
async def test_hostile_texts_are_text_on_every_page(lab: Lab) -> None:
    schema = {
        "type": "object",
        "description": HOSTILE,
        "properties": {
            HOSTILE: {"type": "string", "title": HOSTILE, "description": HOSTILE},
            "pick": {"enum": [HOSTILE, "</select><b>"]},
            "many": {"type": "array", "items": {"type": "string"}, "title": HOSTILE},
            "day": {"type": "string", "format": "date", "default": HOSTILE},
        },
    }
    waiting = await asked(
        lab,
        kind="<i>kind",
        key="<b>key",
        said=HOSTILE,
        schema=json.dumps(schema),
        condition=two_of("<b>key"),
    )
    desk = Desk(lab.engine)
    path = form_of(waiting, "%3Cb%3Ekey")
    page = await shown(desk, path)
    sent_back = await sent(desk, path, page, **{"f.day": HOSTILE, "decision": "approved"})
    assert sent_back.status == 422
    await lab.engine.deliver_approval_signal(
        execution_id=waiting.execution_id,
        waitpoint_id=waiting.outcome.waitpoints[0].waitpoint_id,
        signal_name="approved",
        idempotency_suffix="e",
        actor="<u>eve\u202e",
        comment=json.dumps({"pick": HOSTILE}).encode(),
    )
    made = await desk.post(f"/v1/waits/{path_id(waiting.execution_id)}/%3Cb%3Ekey/link", {})
    replies = [
        sent_back,
        await desk.get(path),
        await desk.get(f"{LIST}?tab=all"),
        await desk.get(f"{LIST}?tab=decided"),
        await desk.get(made.json["url"].partition("localhost")[2]),
    ]
    for reply in replies:
        body = reply.body.decode()
        for raw in ("<script>alert", "<i>kind", "<b>key", "<u>eve", "</select><b>", "\u202e", "49"):
            assert raw not in body or raw == "49", raw
        if b"<style>" not in reply.body:
            page_of(reply)
