"""In whose name things are done over HTTP, and what belongs to whom of limits."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from flowfabric.model.suspension import Count, CountKind, Single
from flowfabric.server.routes.values import path_id
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.waits import suspended

BUDGET = {"budget_id": "x", "dimensions": ["a"], "hard_limits": [5], "soft_limits": [0]}


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


async def shown(lab: Lab, *scopes: str, **fields: Any) -> tuple[str, dict[str, str]]:
    """A token's actor, and the header that shows it."""
    made = await lab.engine.create_access_token(name="x", scopes=scopes, **fields)
    await lab.engine.authenticate(token=made.token)  # its use is noted now
    return f"token:{made.id}", {"Authorization": f"Bearer {made.token.reveal()}"}


async def decided(lab: Lab) -> list[tuple[str, str]]:
    signals = (await lab.dump())["ff_signal"]
    return [(each.signal_name, each.source_identity) for each in signals]


@scenario
async def test_approving_as_ada_through_the_api_is_recorded_as_the_keys_identity(lab: Lab) -> None:
    """Scenario 21: … a body field `by` is 422."""
    desk = Desk(lab.engine)
    wait = await suspended(lab, Single("a"))
    actor, headers = await shown(lab, "approve")
    path = f"/v1/waits/{path_id(wait.execution_id)}/a/approve"
    async with lab.unchanged():
        refused = await desk.post(path, {"by": "ada"}, headers=headers)
    assert (refused.status, refused.json["field"]) == (422, "by")
    command = {
        "type": "deliver_approval_signal",
        "execution_id": wait.execution_id,
        "waitpoint_id": wait.outcome.waitpoints[0].waitpoint_id,
        "signal_name": "approved",
        "idempotency_suffix": "1",
        "actor": "ada",
    }
    _, worker = await shown(lab, "approve", "submit")
    reply = await desk.post("/v1/commands", {"items": [command]}, headers=worker)
    assert (reply.json["items"][0]["status"], reply.json["items"][0]["field"]) == (422, "actor")
    done = await desk.post(path, headers=headers)
    assert (done.status, done.json["type"]) == (200, "SignalAccepted")
    assert await decided(lab) == [("approved", actor)]


@scenario
async def test_a_token_that_speaks_for_others_names_them_and_is_named_too(lab: Lab) -> None:
    desk = Desk(lab.engine)
    wait = await suspended(lab, Single("a"))
    actor, headers = await shown(lab, "approve", speaks_for=True)
    path = f"/v1/waits/{path_id(wait.execution_id)}/a/reject"
    assert (await desk.post(path, {"by": "ada"}, headers=headers)).status == 200
    assert await decided(lab) == [("rejected", f"ada via {actor}")]


@scenario
async def test_two_approvals_with_one_key_count_once_for_2_different_sources(lab: Lab) -> None:
    """Scenario 22, by whatever way they come."""
    desk = Desk(lab.engine)
    wait = await suspended(lab, Count(2, CountKind.DISTINCT_SOURCES, ("a",)))
    base = f"/v1/waits/{path_id(wait.execution_id)}/a"
    _, one = await shown(lab, "operate", "submit")
    _, other = await shown(lab, "approve")
    signal = {
        "execution_id": wait.execution_id,
        "waitpoint_id": wait.outcome.waitpoints[0].waitpoint_id,
        "signal_name": "approved",
    }
    for kind in ("user", "service"):
        typed = {"type": "deliver_trusted_signal", "signal": {**signal, "source_type": kind}}
        for reply in (
            await desk.post("/v1/commands", {"items": [typed]}, headers=one),
            await desk.post(f"{base}/approve", headers=one),
            await desk.post(
                f"{base}/signal", {"signal_name": "approved", "source_type": kind}, headers=one
            ),
        ):
            assert reply.status == 200
    assert len(await decided(lab)) > 1
    assert (await lab.describe(wait.execution_id)).public_state.value == "suspended"
    await desk.post(f"{base}/approve", headers=other)
    assert (await lab.describe(wait.execution_id)).public_state.value != "suspended"


@scenario
async def test_an_operators_actor_is_its_token(lab: Lab) -> None:
    desk = Desk(lab.engine)
    key = await lab.create()
    actor, headers = await shown(lab, "operate")
    path = f"/v1/executions/{path_id(key)}"
    held = await desk.post(f"{path}/hold", {"reason": "x", "actor": "ada"}, headers=headers)
    assert held.status == 200
    vouching, more = await shown(lab, "operate", speaks_for=True)
    await desk.post(f"{path}/release", {"actor": "ada"}, headers=more)
    actors = [event.actor for event in await lab.operator_events(key)]
    assert actors == [actor, f"ada via {vouching}"]


# --- limits --------------------------------------------------------------------------------------


@scenario
async def test_patch_budgets_x_without_if_match_is_428_with_a_stale_one_412_and_nothing_changed(
    lab: Lab,
) -> None:
    """Scenario 31."""
    desk = Desk(lab.engine)
    assert (await desk.post("/v1/budgets", BUDGET)).status == 201
    read = await desk.get("/v1/budgets/x")
    assert (read.headers["etag"], read.json["revision"]) == ('"0"', 0)
    change = {"hard_limits": {"a": 9}}
    async with lab.unchanged():
        missing = await desk.patch("/v1/budgets/x", change)
        stale = await desk.patch("/v1/budgets/x", change, headers={"If-Match": '"7"'})
    assert (missing.status, missing.json["code"]) == (428, "if_match_required")
    assert (stale.status, stale.json["code"]) == (412, "revision_mismatch")
    assert stale.json["revision"] == 0
    done = await desk.patch("/v1/budgets/x", change, headers={"If-Match": '"0"'})
    assert (done.status, done.headers["etag"]) == (200, '"1"')
    assert (await desk.get("/v1/budgets/x")).json["hard_limits"] == {"a": 9}
    # Its usage changes without a revision: what a client knows is never what it still is.
    known = await desk.get("/v1/budgets/x", headers={"If-None-Match": '"1"'})
    assert (known.status, known.headers["etag"]) == (200, '"1"')


@scenario
async def test_a_limit_belongs_to_its_namespace_and_a_taken_foreign_name_is_409(lab: Lab) -> None:
    desk = Desk(lab.engine)
    _, mine = await shown(lab, "admin", namespaces=("a",))
    _, other = await shown(lab, "admin", namespaces=("b",))
    quota = {"quota_policy_id": "q", "max_concurrent": 1}
    await lab.engine.create_budget(budget_id="ours")
    for path, name, body in (("/v1/budgets", "x", BUDGET), ("/v1/quotas", "q", quota)):
        assert (await desk.post(path, body, headers=mine)).status == 201
        taken = await desk.post(path, body, headers=other)
        assert (taken.status, taken.json["code"]) == (409, "limit_conflict")
        match = {"If-Match": '"0"'}
        async with lab.unchanged():
            assert (await desk.get(f"{path}/{name}", headers=other)).status == 404
            refused = await desk.patch(f"{path}/{name}", {}, headers={**other, **match})
            absent = await desk.patch(f"{path}/absent-one", {}, headers={**other, **match})
        assert (refused.status, refused.json["detail"]) == (
            404,
            absent.json["detail"].replace("absent-one", name),
        )
        assert (await desk.get(f"{path}/{name}", headers=mine)).status == 200
        changed = await desk.patch(f"{path}/{name}", {}, headers={**mine, **match})
        assert changed.status == 200
    listed = (await desk.get("/v1/budgets", headers=other)).json["items"]
    assert [each["budget_id"] for each in listed] == ["ours"]
    assert (await desk.post("/v1/budgets/x/reset", headers=mine)).status == 200
    async with lab.unchanged():
        shared = await desk.post("/v1/budgets/ours/reset", headers=mine)
    assert (shared.status, shared.json["code"]) == (403, "missing_namespace")


@pytest.mark.parametrize("name", ["x" * 129, "equipe\u00a0achats", "\u3000", "日本" * 40])
@scenario
async def test_a_foreign_limit_of_an_unusual_name_is_404_too(lab: Lab, name: str) -> None:
    """Whatever may be a name is looked up."""
    desk = Desk(lab.engine)
    _, other = await shown(lab, "admin", namespaces=("b",))
    await lab.engine.create_budget(budget_id=name, namespace="a")
    path = f"/v1/budgets/{quote(name)}"
    async with lab.unchanged():
        assert (await desk.get(path, headers=other)).status == 404
        match = {"If-Match": '"0"'}
        assert (await desk.patch(path, {}, headers={**other, **match})).status == 404
        assert (await desk.post(f"{path}/reset", headers=other)).status == 404


@scenario
async def test_attaching_a_foreign_limit_is_404_and_a_shared_one_is_taken(lab: Lab) -> None:
    desk = Desk(lab.engine)
    _, other = await shown(lab, "submit", namespaces=("b",))
    limits: dict[str, Any] = {"dimensions": ("a",), "hard_limits": (5,), "soft_limits": (0,)}
    await lab.engine.create_budget(budget_id="x", namespace="a", **limits)
    await lab.engine.create_budget(budget_id="ours", **limits)
    await lab.engine.create_quota_policy(quota_policy_id="q", namespace="a", max_concurrent=1)
    foreign: list[dict[str, Any]] = [{"budget_ids": ["x"]}, {"quota_policy_id": "q"}]
    for more in foreign:
        body = {"execution_kind": "work", **more}
        async with lab.unchanged():
            assert (await desk.post("/v1/executions", body, headers=other)).status == 404
    shared = {"execution_kind": "work", "budget_ids": ["ours"]}
    assert (await desk.post("/v1/executions", shared, headers=other)).status == 201


@scenario
async def test_a_budget_for_a_foreign_place_is_refused(lab: Lab) -> None:
    desk = Desk(lab.engine)
    _, mine = await shown(lab, "admin", namespaces=("a",))
    foreign = await lab.create(namespace="b")
    for kind, name, status in (
        ("namespace", "b", 403),
        ("lane", "default", 403),
        ("execution", foreign, 404),
        ("namespace", "a", 201),
    ):
        body = {"budget_id": "x", "scope_type": kind, "scope_id": name}
        assert (await desk.post("/v1/budgets", body, headers=mine)).status == status, kind
