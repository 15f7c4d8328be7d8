"""The audit trail of a server: each act with its actor and request id, and what was refused."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.operation import OPERATIONS, Kind, Scope
from flowfabric.api.origins import coming_from
from flowfabric.engine.acts import act_of
from flowfabric.model.access import AccessTokenCreated
from flowfabric.model.audit import RequestOrigin
from flowfabric.model.suspension import Single
from flowfabric.server.access.refusals import RefusalLog
from flowfabric.server.routes.all import ALL_ROUTES
from flowfabric.server.routes.values import path_id
from tests.support.http import Desk, Reply
from tests.support.lab import Lab, scenario
from tests.support.waits import suspended

# They prove something of a caller, or wait; none does anything to the work of others.
NO_ACTS = {"authenticate", "read_session", "record_refusals", "shutdown_prepare", "wait_for_reply"}
UNKNOWN = "0.01890000-0000-7000-8000-000000000001"


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


class Person:
    """A token at a desk; each request has an id of its own."""

    def __init__(self, desk: Desk, token: AccessTokenCreated) -> None:
        self.desk = desk
        self.id = f"token:{token.id}"
        self.headers = {"Authorization": f"Bearer {token.token.reveal()}"}

    async def ask(self, method: str, path: str, request_id: str, **more: Any) -> Reply:
        headers = {**self.headers, "X-Request-Id": request_id, **more.pop("headers", {})}
        return await self.desk.ask(method, path, headers=headers, **more)


async def person(lab: Lab, desk: Desk, *scopes: str, **fields: Any) -> Person:
    return Person(desk, await lab.engine.create_access_token(name="x", scopes=scopes, **fields))


async def trail(desk: Desk, reader: Person, query: str = "") -> list[dict[str, Any]]:
    await desk.service.refusals.written()
    reply = await reader.ask("GET", f"/v1/audit{query}", "look")
    assert reply.status == 200, reply
    items: list[dict[str, Any]] = reply.json["items"]
    return items


@scenario
async def test_each_act_over_http_has_its_entry_with_actor_and_request_id(lab: Lab) -> None:
    desk = Desk(lab.engine)
    ada = await person(lab, desk, "admin")
    ids = [path_id(await lab.create()) for _ in range(2)]
    failed = await lab.claim()
    await lab.engine.fail(failed.handle, reason="no", failure_class="permanent")
    other = next(each for each in ids if each != path_id(failed.execution_id))
    budget = {"budget_id": "b", "dimensions": ["a"], "hard_limits": [5], "soft_limits": [0]}
    asked = [
        ("POST", f"/v1/executions/{other}/cancel", {"reason": "stop it"}),
        ("POST", f"/v1/executions/{path_id(failed.execution_id)}/retry", {}),
        ("POST", "/v1/budgets", budget),
        ("PATCH", "/v1/budgets/b", {"hard_limits": {"a": 7}}),
        ("POST", "/v1/tokens", {"name": "ci", "scopes": ["read"]}),
        ("PATCH", "/v1/lanes/default", {"weight": 3}),
    ]
    for number, (method, path, body) in enumerate(asked):
        given = {"If-Match": '"0"'} if method == "PATCH" and "budgets" in path else {}
        reply = await ada.ask(method, path, f"r-{number}", body=body, headers=given)
        assert reply.status < 300, reply
    found = await trail(desk, ada, f"?actor={ada.id}")
    assert [(each["request_id"], each["action"]) for each in reversed(found)] == [
        ("r-0", "cancel_execution"),
        ("r-1", "replay_execution"),
        ("r-2", "create_budget"),
        ("r-3", "update_budget"),
        ("r-4", "create_access_token"),
        ("r-5", "configure_lane"),
    ]
    assert {(each["address"], each["code"], each["times"]) for each in found} == {
        ("127.0.0.1", "", 1)
    }
    assert found[-1]["reason"] == "stop it"
    assert ("5" in repr(found[2]["details"]), "7" in repr(found[2]["details"])) == (True, True)
    one = await trail(desk, ada, "?subject=b&action=update_budget")
    assert one == [found[2]]


@scenario
async def test_workers_submits_and_reads_have_no_entry(lab: Lab) -> None:
    desk = Desk(lab.engine)
    ada = await person(lab, desk, "admin")
    before = await trail(desk, ada)
    await ada.ask("POST", "/v1/executions", "r-1", body={"execution_kind": "work"})
    await ada.ask("GET", "/v1/executions", "r-2")
    register = {"worker_id": "w", "worker_instance_id": "w1", "lanes": ["default"]}
    await ada.ask(
        "POST", "/v1/workers/register", "r-3", body={**register, "liveness_ttl_ms": 60_000}
    )
    await ada.ask("GET", "/v1/tokens", "r-4")
    assert await trail(desk, ada) == before


@scenario
async def test_commands_have_an_entry_each(lab: Lab) -> None:
    desk = Desk(lab.engine)
    ada, worker = await person(lab, desk, "admin"), await person(lab, desk, "worker")
    held = [await lab.create() for _ in range(2)]
    items = [{"type": "hold_execution", "execution_id": each, "reason": "wait"} for each in held]
    await ada.ask("POST", "/v1/commands", "r-1", body={"items": items})
    await worker.ask("POST", "/v1/commands", "r-2", body={"items": items})
    found = await trail(desk, ada, "?action=hold_execution")
    done = {(each["subject"], each["request_id"]) for each in found if not each["code"]}
    assert done == {(each, "r-1") for each in held}
    refused = [each for each in found if each["code"]]
    assert [(each["actor"], each["code"]) for each in refused] == [(worker.id, "missing_scope")]


@scenario
async def test_refused_calls_are_gathered_by_minute_and_actor(lab: Lab) -> None:
    seconds = [100.0]
    desk = Desk(lab.engine)
    desk.service.refusals = RefusalLog(lab.engine, now=lambda: seconds[0])
    ada = await person(lab, desk, "admin")
    reader, submitter = await person(lab, desk, "read"), await person(lab, desk, "submit")
    for number in range(3):
        await reader.ask("POST", f"/v1/executions/{UNKNOWN}/cancel", f"a-{number}", body={})
        await submitter.ask("GET", "/v1/executions", f"b-{number}")
        await desk.get("/v1/executions", headers={"X-Request-Id": f"c-{number}"})

    async def seen() -> list[tuple[str, str, str, str, int]]:
        fields = ("actor", "action", "code", "request_id", "times")
        found = [each for each in await trail(desk, ada) if each["code"]]
        return sorted(tuple(each[name] for name in fields) for each in found)

    first = {
        (reader.id, "cancel_execution", "missing_scope", "a-0", 1),
        (submitter.id, "list_executions", "missing_scope", "b-0", 1),
        ("", "list_executions", "unauthorized", "c-0", 1),
    }
    assert set(await seen()) == first
    seconds[0] += 60.0
    desk.service.refusals.look()
    more = {
        (reader.id, "cancel_execution", "missing_scope", "a-2", 2),
        (submitter.id, "list_executions", "missing_scope", "b-2", 2),
        ("", "list_executions", "unauthorized", "c-2", 2),
    }
    assert set(await seen()) == first | more
    await reader.ask("GET", "/v1/tokens", "a-9")
    assert (reader.id, "list_access_tokens", "missing_scope", "a-9", 1) in await seen()
    await desk.service.refusals.close()


@scenario
async def test_refused_calls_of_many_callers_are_counted_together(lab: Lab) -> None:
    desk = Desk(lab.engine, rate_address=10_000_000)
    ada = await person(lab, desk, "admin")
    log = desk.service.refusals
    log._seen.update((f"token:{number}", "") for number in range(1_000))
    log._until = float("inf")
    for _ in range(5):
        await desk.get("/v1/executions")
    log._until = 0.0
    log._turn()
    found = [each for each in await trail(desk, ada) if each["code"]]
    assert [(each["actor"], each["address"], each["times"]) for each in found] == [("", "", 5)]
    await log.close()


@scenario
async def test_a_session_is_begun_and_ended_in_the_name_of_its_token(lab: Lab) -> None:
    desk = Desk(lab.engine)
    ada = await person(lab, desk, "admin")
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    text = ada.headers["Authorization"].removeprefix("Bearer ")
    reply = await desk.post("/ui/login", f"token={text}".encode(), headers=form)
    assert reply.status == 303
    await desk.post("/ui/login", b"token=ff_wrong", headers=form)
    (opened,) = await trail(desk, ada, "?action=open_session")
    assert (opened["actor"], opened["code"]) == (ada.id, "")
    refused = [each for each in await trail(desk, ada) if each["code"] == "unauthorized"]
    assert [(each["action"], each["address"]) for each in refused] == [
        ("POST /ui/login", "127.0.0.1")
    ]
    assert text.split("_")[2] not in repr(await trail(desk, ada))


@scenario
async def test_an_admin_of_a_namespace_sees_its_entries_alone(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await person(lab, desk, "read")
    local = await person(lab, desk, "admin", namespaces=("a",))
    for space in ("a", "b"):
        held = await lab.create(namespace=space)
        await lab.engine.hold_execution(execution_id=held, reason=space)
    found = await trail(desk, local)
    assert {each["namespace"] for each in found} == {"a"}
    assert {each["action"] for each in found} == {"hold_execution", "create_access_token"}
    foreign = await local.ask("GET", "/v1/audit?namespaces=b", "r")
    assert foreign.status == 403
    assert (await (await person(lab, desk, "operate")).ask("GET", "/v1/audit", "r")).status == 403


def test_no_route_changes_the_audit_trail() -> None:
    about = [each.name for each in ALL_ROUTES if "audit" in each.path]
    assert [each for each in about if not each.startswith("GET ")] == []
    assert "GET /v1/audit" in about


@scenario
async def test_a_decision_by_a_link_is_entered_in_the_name_of_the_link(lab: Lab) -> None:
    desk = Desk(lab.engine, rate_address=1_000)
    ada = await person(lab, desk, "admin")
    waiting = await suspended(lab, Single("a", "approved"))
    execution_id = waiting.claimed.execution_id
    made = await ada.ask("POST", f"/v1/waits/{path_id(execution_id)}/a/link", "r-1", body={})
    body = {"link": made.json["link"], "signal_name": "approved"}
    assert (await desk.post("/v1/signals", body)).status == 200
    (decided,) = await trail(desk, ada, "?action=deliver_signal")
    assert (decided["subject"], decided["actor"][:5]) == (execution_id, "link:")
    (read,) = await trail(desk, ada, "?action=read_waitpoint_token")
    assert (read["actor"], read["request_id"]) == (ada.id, "r-1")
    assert made.json["link"] not in repr(await trail(desk, ada))


def test_every_operation_on_the_work_of_others_is_an_act() -> None:
    """What is added later is one, too; the exceptions are known by name."""
    scopes = {Scope.OPERATE, Scope.APPROVE, Scope.ADMIN}
    for each in OPERATIONS.values():
        with coming_from(RequestOrigin(request_id="r")):
            act = act_of(each.request(**dict.fromkeys(each.request.__struct_fields__, "x")))
        is_one = each.scope in scopes and each.kind is not Kind.READ and each.name not in NO_ACTS
        assert (act is not None) is is_one, each.name
        assert act is None or act.action == each.name
