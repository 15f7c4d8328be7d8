"""The page of one run: its explanation, its timeline, its tabs, and what can be done with it."""

from __future__ import annotations

import json
from typing import Final

import pytest

from flowfabric.api.executions import Explain
from flowfabric.api.operation import Request
from flowfabric.model.stream import NewFrame
from flowfabric.model.suspension import Single
from flowfabric.model.telling import facts_of, limits_of, workers_of
from flowfabric.server.routes.values import path_id
from flowfabric.server.ui.views.execution import TABS
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.pages import Document, page_of, sent, shown
from tests.support.statistics import roll_up
from tests.support.waits import suspended

_TRACE: Final = """KeyError: 'x'
Traceback (most recent call last):
  File "/srv/app.py", line 12, in brief
    inner()
  File "/usr/lib/python3.11/site-packages/flowfabric/sdk/call.py", line 3, in run
    raise
KeyError: 'x'"""


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


def words(page: Document) -> str:
    return " ".join(" ".join(page.texts).split())


def buttons(page: Document) -> set[str]:
    return {each.text.strip() for each in page.all("button")}


async def address(lab: Lab, kind: str = "brief", **more: object) -> tuple[str, str]:
    key = await lab.create(kind, **more)
    return key, f"/ui/runs/{path_id(key)}"


@scenario
async def test_every_tab_of_a_run_is_a_page_without_a_fault(lab: Lab) -> None:
    desk = Desk(lab.engine)
    _, fresh = await address(lab)
    claimed = await lab.claim("w1")
    await lab.engine.complete(claimed.handle, result=json.dumps({"ok": [1, {"a": None}]}).encode())
    _, waiting = await address(lab)
    for path in (fresh, waiting):
        for tab, name in TABS:
            page = await shown(desk, f"{path}?tab={tab}")
            current = [e for e in page.all("a") if e.attributes.get("aria-current") == "page"]
            assert name in {each.text for each in current}


@scenario
async def test_why_is_first_and_says_what_the_engine_says(lab: Lab) -> None:
    desk = Desk(lab.engine)
    key, path = await address(lab)
    claimed = await lab.claim("w1")
    await suspended(lab, Single("publish", "go"), claimed)
    page = await shown(desk, path)
    explanation = await lab.engine.call(Explain(execution_id=key))
    text = words(page)
    assert explanation.summary in text
    for fact in facts_of(explanation, await lab.engine.server_time_ms()):
        assert fact.name in text
        assert " ".join(fact.text.split()) in text
    assert text.index(explanation.summary) < text.index("Timeline")


@scenario
async def test_every_kind_of_wait_is_told_as_the_engine_tells_it(lab: Lab) -> None:
    """Acceptance 6, for kinds of waits that differ in what is told."""
    desk = Desk(lab.engine)
    await lab.engine.create_budget(
        budget_id="gpt", dimensions=["tokens"], hard_limits=[1], soft_limits=[0]
    )
    await lab.engine.report_usage_admin(
        budget_id="gpt", dimensions=["tokens"], deltas=[1], dedup_key="a"
    )
    needs = {"routing_requirements": {"required_capabilities": ["gpu"]}}
    keys = [
        await lab.create("waits"),
        await lab.create("gpu", policy=needs),
        await lab.create("later", delay_until=lab.now + 60_000),
        await lab.create("spends", budget_ids=["gpt"]),
        await lab.create("held"),
    ]
    await lab.engine.hold_execution(execution_id=keys[-1], reason="look first")
    await lab.claims("w1")
    await lab.after(1_000)
    for key in keys:
        explanation = await lab.engine.call(Explain(execution_id=key))
        text = words(await shown(desk, f"/ui/runs/{path_id(key)}"))
        assert " ".join(explanation.summary.split()) in text
        for fact in facts_of(explanation, lab.now):
            assert fact.name in text
            assert " ".join(fact.text.split()) in text
        for name, *_ in (*limits_of(explanation), *workers_of(explanation)):
            assert str(name) in text


@scenario
async def test_a_failed_run_shows_its_failure_and_the_place_in_its_own_code(lab: Lab) -> None:
    desk = Desk(lab.engine)
    _, path = await address(lab)
    claimed = await lab.claim("w1")
    await lab.engine.fail(
        claimed.handle, reason=_TRACE, failure_class="permanent", category="KeyError"
    )
    _, other = await address(lab)
    claimed = await lab.claim("w1")
    await lab.engine.fail(
        claimed.handle, reason=_TRACE, failure_class="permanent", category="KeyError"
    )
    await roll_up(lab)
    text = words(await shown(desk, path))
    assert "KeyError: 'x'" in text
    assert "same as 1 other in" in text
    assert "same as 1 other in" in words(await shown(desk, other))
    assert "/srv/app.py:12 in brief" in text


@scenario
async def test_what_is_not_there_is_a_page_that_says_so(lab: Lab) -> None:
    desk = Desk(lab.engine)
    page = await shown(desk, "/ui/runs/17.0193a1f0-0000-7000-8000-000000000000", 404)
    assert "not yours" in words(page)


@scenario
async def test_a_run_is_held_released_and_cancelled_by_forms(lab: Lab) -> None:
    desk = Desk(lab.engine)
    key, path = await address(lab)
    for word, state in (("hold", "waiting"), ("release", "waiting"), ("cancel", "cancelled")):
        page = await shown(desk, path)
        reply = await sent(desk, f"{path}/{word}", page, reason="because")
        assert (reply.status, reply.headers["location"]) == (303, path)
        cookie = reply.headers["set-cookie"].partition(";")[0]
        after = await shown(desk, path, headers={"cookie": cookie})
        (line,) = [e for e in after.closed if e.attributes.get("id") == "flash"]
        assert reply.headers["x-request-id"] in line.text
        assert (await lab.describe(key)).public_state == state
    assert (await lab.describe(key)).cancellation_reason == "because"


@scenario
async def test_a_refusal_shows_the_engines_text(lab: Lab) -> None:
    desk = Desk(lab.engine)
    key, path = await address(lab)
    page = await shown(desk, path)
    await lab.cancel(key)
    reply = await sent(desk, f"{path}/hold", page)
    assert reply.status == 303
    cookie = reply.headers["set-cookie"].partition(";")[0]
    after = await shown(desk, path, headers={"cookie": cookie})
    (line,) = [e for e in after.closed if e.attributes.get("id") == "flash"]
    assert "refused" in line.attributes["class"]
    assert "cancelled" in line.text


@scenario
async def test_a_form_of_another_page_or_site_changes_nothing(lab: Lab) -> None:
    desk = Desk(lab.engine)
    key, path = await address(lab)
    form = {"content-type": "application/x-www-form-urlencoded"}
    for body, more in (
        (b"reason=x", {}),
        (b"csrf=guess&reason=x&back=/ui/runs", {}),
        (b"csrf=guess&reason=x", {"sec-fetch-site": "cross-site"}),
        (b"csrf=guess&reason=x", {"origin": "https://evil.example"}),
    ):
        reply = await desk.post(f"{path}/cancel", body, headers={**form, **more})
        assert reply.status == 403, reply
        page_of(reply)
    assert (await lab.describe(key)).public_state == "waiting"


@scenario
async def test_without_the_scope_no_action_is_offered(lab: Lab) -> None:
    desk = Desk(lab.engine)
    _, path = await address(lab)
    assert "Hold" in buttons(await shown(desk, path))
    made = await lab.engine.create_access_token(name="x", scopes=("read",))
    bearer = {"authorization": f"Bearer {made.token.reveal()}"}
    page = await shown(desk, path, headers=bearer)
    assert not buttons(page) & {"Hold", "Cancel…", "Priority…", "Make the new run"}


@scenario
async def test_a_retry_with_another_input_is_linked_and_compared(lab: Lab) -> None:
    desk = Desk(lab.engine)
    _, path = await address(lab, input_payload=b'{"topic": "solar", "n": 1}')
    claimed = await lab.claim("w1")
    await lab.engine.complete(claimed.handle, result=b"1")
    page = await shown(desk, f"{path}?tab=data")
    reply = await sent(desk, f"{path}/retry-with", page, input='{"topic": "wind", "n": 1}')
    new = reply.headers["location"]
    assert reply.status == 303
    links = {each.attributes["href"] for each in (await shown(desk, new)).all("a")}
    assert path in links
    compared = words(await shown(desk, f"{new}/compare"))
    assert "input.topic" in compared.replace(" ", "")
    assert "wind" in compared
    bad = await sent(desk, f"{path}/retry-with", page, input="{no json")
    assert bad.headers["location"].startswith(path)


@scenario
async def test_a_payload_is_saved_and_never_shown_as_a_page(lab: Lab) -> None:
    desk = Desk(lab.engine)
    _, path = await address(lab, input_payload=b"<script>alert(1)</script>")
    reply = await desk.get(f"{path}/payload/input")
    assert reply.body == b"<script>alert(1)</script>"
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"].startswith("attachment")
    assert (await desk.get(f"{path}/payload/other")).status == 404
    await shown(desk, f"{path}?tab=data")


@scenario
async def test_a_page_asks_for_few_things(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dashboard, section 5: the operations of a page are bounded, however much there is."""
    desk = Desk(lab.engine)
    _, path = await address(lab)
    asked: list[str] = []
    call = lab.engine.call

    async def counted(request: Request[object]) -> object:
        asked.append(type(request).__name__)
        return await call(request)

    monkeypatch.setattr(lab.engine, "call", counted)
    await shown(desk, "/ui/runs")  # from then on it is known whether there are tokens
    for page, most in (("/ui/runs", 5), ("/ui/runs?q=state:failed+kind:brief", 5), (path, 8)):
        asked.clear()
        await shown(desk, page)
        assert len(asked) <= most, asked
    for tab, _ in TABS:
        asked.clear()
        await shown(desk, f"{path}?tab={tab}")
        assert len(asked) <= 8, (tab, asked)


@scenario
async def test_a_stream_of_text_is_one_text_and_other_frames_are_trees(lab: Lab) -> None:
    desk = Desk(lab.engine)
    _, path = await address(lab)
    claimed = await lab.claim("w1")
    frames = [NewFrame(payload=json.dumps(word).encode()) for word in ("All ", "about ", "<sun>")]
    await lab.engine.append_frames(claimed.handle, frames=frames)
    assert "All about <sun>" in words(await shown(desk, f"{path}?tab=stream"))
    await lab.engine.append_frames(claimed.handle, frames=[NewFrame(payload=b'{"tokens": 7}')])
    page = await shown(desk, f"{path}?tab=stream")
    assert "tokens" in words(page)
    assert [e for e in page.all("div") if e.attributes.get("class") == "frame"]
