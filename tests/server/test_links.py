"""Signed links: a page that never acts by itself, one decision a link, and no text for guessers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from flowfabric.api.waits import Fresh, SuspendRequest
from flowfabric.model.suspension import Count, CountKind, Single
from flowfabric.server.routes.values import path_id
from tests.support.http import Desk, Reply
from tests.support.lab import Lab, scenario
from tests.support.waits import suspended

if TYPE_CHECKING:
    import pytest

FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


async def link_of(desk: Desk, execution_id: str, key: str = "a", **body: Any) -> dict[str, Any]:
    made = await desk.post(f"/v1/waits/{path_id(execution_id)}/{key}/link", body)
    assert made.status == 200, made
    assert made.headers["cache-control"] == "no-store"
    found: dict[str, Any] = made.json
    return found


def proof_on(page: Reply) -> str:
    found = re.search(r'name="proof" value="([^"]+)"', page.body.decode())
    assert found is not None, page
    return found[1]


async def decided(desk: Desk, path: str, decision: str, **more: str) -> Reply:
    page = await desk.get(path)
    proof = proof_on(page) if b'name="proof"' in page.body else "none"
    form = urlencode({"decision": decision, "proof": proof, **more}).encode()
    return await desk.ask("POST", path, form, headers=FORM)


@scenario
async def test_signals_resume_by_a_link_without_a_token(lab: Lab, desk: Desk) -> None:
    """Scenario 19: `POST /signals` with the link of a suspension resumes it."""
    waiting = await suspended(lab)
    link = (await link_of(desk, waiting.claimed.execution_id))["link"]
    body = {"link": link, "signal_name": "go", "payload": {"n": 1}, "idempotency_key": "k"}
    told = await desk.post("/v1/signals", body)
    assert (told.status, told.json["type"]) == (200, "SignalAccepted")
    assert told.json["effect"] == "resume_condition_satisfied"
    again = await desk.post("/v1/signals", body)
    assert again.json["type"] == "SignalDuplicate"
    named = await desk.post("/v1/signals", {**body, "source": "ada"})
    assert (named.status, named.json["field"]) == (422, "source")


@scenario
async def test_a_page_fetched_100_times_by_a_scanner_changes_nothing_one_post_decides(
    lab: Lab, desk: Desk
) -> None:
    """Scenario 20: … a second shows the decision."""
    waiting = await suspended(lab, Single("a", "approved"))
    made = await link_of(desk, waiting.claimed.execution_id)
    path = made["url"].partition("localhost")[2]
    page = await desk.get(path)
    async with lab.unchanged():
        for _ in range(50):
            page = await desk.get(path)
            assert (page.status, b"approved" in page.body) == (200, True)
            assert (await desk.ask("HEAD", path)).status == 200
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["x-robots-tag"].startswith("noindex")
    assert page.headers["cache-control"] == "no-store"
    assert b"<script" not in page.body
    first = await decided(desk, path, "approved", comment="fine", name="<b>Ada</b>")
    assert (first.status, b"<b>approved</b>" in first.body) == (200, True)
    assert (await lab.state(waiting.claimed.execution_id)).value == "waiting"
    second = await desk.ask(
        "POST",
        path,
        urlencode({"decision": "approved", "proof": proof_on(page)}).encode(),
        headers=FORM,
    )
    assert b"Decided: <b>approved</b>" in second.body


@scenario
async def test_a_form_that_is_not_from_its_page_decides_nothing(lab: Lab, desk: Desk) -> None:
    waiting = await suspended(lab, Single("a", "approved"))
    made = await link_of(desk, waiting.claimed.execution_id)
    other = await link_of(desk, waiting.claimed.execution_id, to="ada")
    path = made["url"].partition("localhost")[2]
    page = await desk.get(path)
    foreign = proof_on(await desk.get(other["url"].partition("localhost")[2]))
    async with lab.unchanged("ff_audit"):  # which tells of refusals
        for proof in ("", "none", foreign, "9.x", proof_on(page).replace(".", "0.", 1)):
            form = urlencode({"decision": "approved", "proof": proof}).encode()
            told = await desk.ask("POST", path, form, headers=FORM)
            assert (told.status, told.json["code"]) == (403, "cross_site_request")
        form = urlencode({"decision": "approved", "proof": proof_on(page)}).encode()
        away = {**FORM, "Sec-Fetch-Site": "cross-site"}
        assert (await desk.ask("POST", path, form, headers=away)).status == 403
        wrong = urlencode({"decision": "maybe", "proof": proof_on(page)}).encode()
        assert (await desk.ask("POST", path, wrong, headers=FORM)).status == 422


@scenario
async def test_links_that_open_nothing_have_one_text(lab: Lab, desk: Desk) -> None:
    waiting = await suspended(lab)
    elsewhere = await suspended(lab)
    link = (await link_of(desk, waiting.claimed.execution_id))["link"]
    other = (await link_of(desk, elsewhere.claimed.execution_id))["link"]
    damaged = link[:-4] + ("AAAA" if link[-4:] != "AAAA" else "BBBB")
    mixed = link[:60] + other[60:]
    texts = set()
    for text in (f"{link}.", link.upper(), damaged, mixed, "ffw1.", "x", link[:-1]):
        for told in (
            await desk.get(f"/w/{text}"),
            await desk.post("/v1/signals", {"link": text, "signal_name": "go"}),
        ):
            assert (told.status, told.json["code"]) == (401, "invalid_token"), text
            texts.add(told.json["detail"])
            assert text not in told.body.decode() or len(text) < 6
    assert len(texts) == 1


@scenario
async def test_a_personal_link_speaks_for_its_recipient_and_others_count_once(
    lab: Lab, desk: Desk
) -> None:
    two = Count(2, CountKind.DISTINCT_SOURCES, ("a",), "approved")
    claimed = await lab.started()
    await lab.engine.suspend(claimed.handle, SuspendRequest(resume_condition=two))
    key = claimed.execution_id
    plain = (await link_of(desk, key))["link"]
    for number in range(3):
        body = {"link": plain, "signal_name": "approved", "idempotency_key": f"k{number}"}
        assert (await desk.post("/v1/signals", body)).status == 200
    assert (await lab.state(key)).value == "suspended"
    personal = await link_of(desk, key, to="ada")
    path = personal["url"].partition("localhost")[2]
    assert b"You answer as ada" in (await desk.get(path)).body
    await decided(desk, path, "approved")
    assert (await lab.state(key)).value == "waiting"
    sources = {row.source_identity for row in (await lab.dump())["ff_signal"]}
    assert "ada" in sources
    assert sum(each.startswith("link:") for each in sources) == 1


@scenario
async def test_a_declared_payload_is_asked_for_and_checked(lab: Lab, desk: Desk) -> None:
    schema = '{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}'
    waiting = await suspended(
        lab, Single("a", "approved"), waitpoints=(Fresh("a", payload_type=schema),)
    )
    made = await link_of(desk, waiting.claimed.execution_id)
    path = made["url"].partition("localhost")[2]
    assert b'name="f.n" type="number"' in (await desk.get(path)).body
    for wrong in ({"f.n": "x"}, {"f.n": ""}, {"f.n": "1", "f.m": "2"}, {}):
        refused = await decided(desk, path, "approved", **wrong)
        assert (refused.status, b'class="flaw' in refused.body) == (422, True)
    right = await decided(desk, path, "approved", **{"f.n": "1"})
    assert (right.status, b"Decided" in right.body) == (200, True)


@scenario
async def test_a_link_is_in_no_line_of_the_log(
    quick: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(quick.engine)
    waiting = await suspended(quick, Single("a", "approved"))
    caplog.set_level("DEBUG")
    made = await link_of(desk, waiting.claimed.execution_id)
    link, path = made["link"], made["url"].partition("localhost")[2]
    await desk.get(path)
    await desk.get(f"{path}x")
    await desk.post("/v1/signals", {"link": f"{link}x", "signal_name": "approved"})
    await desk.post("/v1/signals", {"link": link, "signal_name": "__no"})
    await decided(desk, path, "approved", comment="planted-comment")
    token = link.partition(".")[2]
    assert "POST /w/{link} 200" in caplog.text
    records = str([record.__dict__ for record in caplog.records])
    for secret in (token, token[20:60], "planted-comment"):
        assert secret not in caplog.text + records
