"""Every route by every scope, and about own, foreign and all things: as written down by hand."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowNode
from flowfabric.api.operation import OPERATIONS
from flowfabric.model.bulk import BulkOperation
from flowfabric.model.feed import EventFilter
from flowfabric.model.suspension import Single
from flowfabric.server.access.territory import (
    CHOSEN,
    OF_ALL,
    OF_TOKENS,
    OPEN,
    SIFTED,
    is_for_all_only,
)
from flowfabric.server.plain import handle_text
from flowfabric.server.routes.all import ALL_ROUTES
from flowfabric.server.routes.values import path_id
from tests.server.matrix import EXPECTED, Line
from tests.support.http import Desk, Reply
from tests.support.lab import Lab, scenario
from tests.support.schedules import HOURLY, start
from tests.support.waits import suspended

LETTERS: Final = {
    "r": "read",
    "s": "submit",
    "w": "worker",
    "a": "approve",
    "o": "operate",
    "A": "admin",
    "m": "metrics",
}
ABSENT: Final = {
    "execution_id": "17.0193a1f0-0000-7000-8000-000000000000",
    "full_id": "{fp:17}:0193a1f0-0000-7000-8000-000000000000",
    "flow_id": "0193a1f0-0000-7000-8000-000000000000",
    "waitpoint_key": "a",
    "link": "ffw1.x",
    "mailbox": "orders",
    "schedule_id": "absent-sched",
    "fingerprint": "absent-failure",
    "operation_id": "0193a1f0-0000-7000-8000-000000000001",
    "group_id": "absent-group",
    "budget_id": "absent-budge",
    "quota_policy_id": "absent-quota",
    "lane_id": "default",
    "serial_key": "absent-seria",
    "worker_instance_id": "absent-worke",
    "token_id": "absent-token",
    "name": "ui.absent.css",
    "dimension": "a",
    "limit_kind": "hard",
    "which": "input",
}
# What an execution has only when somebody has made it, and none has here: 404 for its owner, too.
NOT_MADE: Final = (
    *("/published", "/summary", "/result", "/failure", "/compare"),
    "/graph/members/{execution_id}",
)
# No body would fit it: it has no journal, and is in no flow.
NOT_FITTING: Final = ("/fork", "/compare", "/members", "/edges", "/joins")


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


async def token(lab: Lab, *scopes: str, namespace: str | None = None) -> dict[str, str]:
    namespaces = None if namespace is None else (namespace,)
    made = await lab.engine.create_access_token(name="x", scopes=scopes, namespaces=namespaces)
    await lab.engine.authenticate(token=made.token)  # its use is noted now
    return {"Authorization": f"Bearer {made.token.reveal()}"}


def filled(value: Any, names: dict[str, str]) -> Any:
    """A body with the ids of a namespace in the places that name them."""
    if isinstance(value, dict):
        return {key: filled(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, names) for each in value]
    return value.format(**names) if isinstance(value, str) else value


async def ask(
    desk: Desk, route: str, names: dict[str, str], headers: dict[str, str] | None
) -> Reply:
    line = EXPECTED[route]
    method, path = route.split(" ")
    more = {} if line.if_match is None else {"If-Match": line.if_match}
    body = {} if method in ("GET", "DELETE") else {"body": filled(line.body or {}, names)}
    if line.form is not None:
        body = {"body": urlencode(filled(line.form, names)).encode()}
        more["Content-Type"] = "application/x-www-form-urlencoded"
    target = path.format(**names) + line.query
    return await desk.ask(method, target, **body, headers={**(headers or {}), **more})


def code_of(reply: Reply, name: str = "code") -> Any:
    """What a refusal says of itself, as JSON or as a page."""
    if reply.headers.get("content-type", "").startswith(
        ("application/json", "application/problem+json")
    ):
        return reply.json.get(name)
    found = re.search(rf'id="refusal"[^>]* data-{name}="(\w+)"', reply.body.decode())
    return None if found is None else found[1]


def is_sent_to_login(reply: Reply) -> bool:
    return reply.status == 303 and reply.headers["location"].startswith("/ui/login?next=")


def test_every_route_is_written_down() -> None:
    assert {route.name for route in ALL_ROUTES} == {*EXPECTED}


@scenario
async def test_every_route_by_every_scope(lab: Lab) -> None:
    desk = Desk(lab.engine, rate_address=100_000, metrics_auth=True)
    tokens = {letter: await token(lab, word) for letter, word in LETTERS.items()}
    names = {**ABSENT, "handle": "x"}
    for route, line in EXPECTED.items():
        for letter, headers in tokens.items():
            reply = await ask(desk, route, names, headers)
            code = code_of(reply)
            if line.tokens == "@":  # the link in it decides, and this one is none
                assert (reply.status, code) == (401, "invalid_token"), (route, letter)
            elif line.tokens in ("*", "+") or letter in line.tokens:
                assert reply.status != 401, (route, letter)
                assert code != "missing_scope", (route, letter)
            else:
                assert (reply.status, code) == (403, "missing_scope"), (route, letter)
                assert code_of(reply, "scope") == LETTERS[line.tokens[0]], route
        nobody = await ask(desk, route, names, None)
        is_refused = nobody.status == 401 or is_sent_to_login(nobody)
        assert is_refused is (line.tokens != "*"), (route, nobody)


def test_what_is_for_tokens_of_all_namespaces_is_known_by_name() -> None:
    """An operation that is forgotten is for these alone; this test tells that it was."""
    assert {each.name for each in OPERATIONS.values() if is_for_all_only(each)} == OF_ALL | {
        *("doctor", "prepare", "trim_retention", "reconcile_execution_index", "reconcile_lines"),
        *("reconcile_budget_counters", "reconcile_flow_counters", "reconcile_quota_counters"),
        *("seed_waitpoint_hmac_secret", "rotate_waitpoint_hmac_secret_all"),
        *("shares_database", "read_gauges"),
        *("open_session", "read_session", "end_session", "record_refusals"),
    }
    assert {*OPERATIONS} >= OF_ALL | OPEN | SIFTED | OF_TOKENS | CHOSEN


# --- namespaces ----------------------------------------------------------------------------------


async def furnished(lab: Lab, space: str) -> dict[str, str]:
    """One of everything in a namespace; the names of all of it."""
    engine, lane = lab.engine, f"lane-{space}"
    made = await engine.create_execution(
        execution_kind="work", namespace=space, lane_id=lane, mailboxes={"orders": None}
    )
    claimed = await lab.claim(f"w-{space}", lanes=(lane,), namespace=space)
    assert claimed.execution_id == made.execution_id
    await suspended(lab, Single("a", "go"), claimed)
    flow = await engine.submit_flow(
        namespace=space,
        nodes=[FlowNode(name="a", execution=NewExecution(execution_kind=f"flow-{space}"))],
    )
    await engine.create_schedule(
        schedule_id=f"daily-{space}", namespace=space, timing=HOURLY, start=start()
    )
    await engine.create_consumer_group(
        group_id=f"group-{space}", filter=EventFilter(namespace=space), after=None
    )
    for _ in range(2):
        await lab.create(namespace=space, serial_key=f"line-{space}", lane_id=f"lane-2-{space}")
    (head,) = await lab.claims(f"w-{space}", lanes=(f"lane-2-{space}",), namespace=space)
    await engine.fail(head.handle, reason="broken", failure_class="permanent")
    failure = await engine.describe_failure(execution_id=head.execution_id)
    assert failure is not None
    operation = await engine.start_operation(action="hold", namespace=space, lane_id="none")
    assert isinstance(operation, BulkOperation)
    await engine.register_worker(
        worker_id=f"w-{space}",
        worker_instance_id=f"worker-{space}",
        lanes=(lane,),
        liveness_ttl_ms=60_000,
        namespace=space,
    )
    access = await engine.create_access_token(
        name=f"token-{space}", scopes=("read",), namespaces=(space,)
    )
    return {
        "execution_id": path_id(made.execution_id),
        "full_id": made.execution_id,
        "flow_id": flow.flow_id,
        "waitpoint_key": "a",
        "mailbox": "orders",
        "schedule_id": f"daily-{space}",
        "fingerprint": failure.fingerprint,
        "operation_id": operation.operation_id,
        "group_id": f"group-{space}",
        "budget_id": "gpt-of-all",
        "quota_policy_id": "quota",
        "lane_id": lane,
        "serial_key": f"line-{space}",
        "worker_instance_id": f"worker-{space}",
        "token_id": access.id,
        "which": "input",
        "handle": handle_text(claimed.handle),
        "dimension": "a",
        "limit_kind": "hard",
    }


async def both(lab: Lab) -> tuple[dict[str, str], dict[str, str]]:
    await lab.engine.create_budget(
        budget_id="gpt-of-all", dimensions=["a"], hard_limits=[10**6], soft_limits=[0]
    )
    await lab.engine.create_quota_policy(quota_policy_id="quota", max_concurrent=5)
    return await furnished(lab, "a"), await furnished(lab, "b")


def told(reply: Reply, names: dict[str, str]) -> tuple[int, Any]:
    """A reply without what differs by the request: its id, and the ids it was asked with."""
    text = reply.body.decode()
    text = text.replace(reply.headers["x-request-id"], "<request>")
    for name, value in sorted(names.items(), key=lambda each: -len(each[1])):
        if len(value) > 4:  # no word of the answer itself
            text = text.replace(value, f"<{name}>")
    return reply.status, text


def lines(*whose: str) -> dict[str, Line]:
    return {route: line for route, line in EXPECTED.items() if line.whose in whose}


@scenario
async def test_a_key_of_namespace_a_gets_404_for_bs_things_on_every_route(lab: Lab) -> None:
    """Scenario 23: exactly what is answered of a thing that does not exist, and nothing changes."""
    desk = Desk(lab.engine)
    own, foreign = await both(lab)
    stranger = await token(lab, "admin", namespace="a")
    absent = {**ABSENT, "waitpoint_key": "a", "handle": own["handle"]}
    for route in lines("object"):
        async with lab.unchanged("ff_audit"):  # a call that finds nothing is told
            reply = await ask(desk, route, foreign, stranger)
        nothing = await ask(desk, route, absent, stranger)
        if "frames" not in route:  # its body is the proof, and another one
            assert told(reply, foreign) == told(nothing, absent), route
        assert reply.status in (200, 404) or route.endswith(NOT_FITTING), (route, reply)


@scenario
async def test_the_owner_and_a_key_of_all_namespaces_get_at_each_thing(lab: Lab) -> None:
    desk = Desk(lab.engine)
    own, other = await both(lab)
    owner, everyone = await token(lab, "admin", namespace="a"), await token(lab, "admin")
    header = {**everyone, "x-flowfabric-namespace": "b"}
    for route in sorted(lines("object"), key=lambda each: each.startswith("DELETE")):
        for names, headers in ((own, owner), (other, header)):
            reply = await ask(desk, route, names, headers)
            assert reply.status not in (401, 403), (route, reply)
            if not route.endswith(NOT_MADE):
                assert reply.status != 404, (route, reply)
            assert reply.status != 422 or route.endswith(NOT_FITTING), (route, reply)


@scenario
async def test_a_listing_has_the_callers_own_and_nothing_of_others(lab: Lab) -> None:
    desk = Desk(lab.engine)
    own, foreign = await both(lab)
    caller = await token(lab, "admin", namespace="a")
    only_a = {own[name] for name in own} - {foreign[name] for name in foreign}
    only_b = {foreign[name] for name in foreign} - {own[name] for name in own}
    seen = set()
    for route in lines("own", "shared"):
        if not route.startswith("GET"):
            continue
        mine = (await ask(desk, route, own, caller)).body.decode()
        for text in only_b - {"lane-b"}:
            assert text not in mine, (route, text)
        seen |= {text for text in only_a if text in mine}
    for name in ("flow_id", "schedule_id", "operation_id", "group_id", "token_id"):
        assert own[name] in seen, name
    lanes = (await desk.get("/v1/lanes", headers=caller)).json["items"]
    counted = {each["lane_id"]: each["counts"] for each in lanes}
    assert counted["lane-a"] == {"suspended": 1}
    assert counted["lane-b"] == {}


@scenario
async def test_what_belongs_to_all_is_changed_only_with_a_key_of_all(lab: Lab) -> None:
    desk = Desk(lab.engine, metrics_auth=True)
    own, _ = await both(lab)
    restricted, everyone = await token(lab, "admin", namespace="a"), await token(lab, "admin")
    for route in lines("all"):
        async with lab.unchanged():
            refused = await ask(desk, route, own, restricted)
        assert (refused.status, code_of(refused)) == (403, "missing_namespace"), route
        reply = await ask(desk, route, own, everyone)
        assert reply.status not in (401, 403, 404) or "answer" in route, (route, reply)


@scenario
async def test_new_things_are_the_callers_own_and_a_foreign_namespace_is_403(lab: Lab) -> None:
    desk = Desk(lab.engine)
    caller = await token(lab, "admin", namespace="a")
    made = await desk.post("/v1/executions", {"execution_kind": "work"}, headers=caller)
    assert made.status == 201
    snapshot = await lab.describe(made.json["execution_id"])
    assert snapshot.namespace == "a"
    for body, headers in (
        ({"execution_kind": "work", "namespace": "b"}, caller),
        ({"execution_kind": "work"}, {**caller, "x-flowfabric-namespace": "b"}),
    ):
        async with lab.unchanged():
            refused = await desk.post("/v1/executions", body, headers=headers)
        assert (refused.status, refused.json["code"]) == (403, "missing_namespace")
    two = await lab.engine.create_access_token(name="two", scopes=("admin",), namespaces=("a", "c"))
    several = {"Authorization": f"Bearer {two.token.reveal()}"}
    open_one = await desk.post("/v1/executions", {"execution_kind": "work"}, headers=several)
    assert (open_one.status, open_one.json["field"]) == (422, "namespace")
    assert "a, c" in open_one.json["detail"]
    named = await desk.post(
        "/v1/executions", {"execution_kind": "work", "namespace": "c"}, headers=several
    )
    assert named.status == 201


@scenario
async def test_foreign_ids_in_lists_are_as_absent_ones(lab: Lab) -> None:
    desk = Desk(lab.engine)
    own, foreign = await both(lab)
    caller = await token(lab, "admin", namespace="a")
    for ids in ([foreign["full_id"]], [own["full_id"], foreign["full_id"]]):
        waits = {"type": "describe_waits", "execution_ids": ids}
        reply = await desk.post("/v1/commands", {"items": [waits]}, headers=caller)
        (found,) = reply.json["items"]
        assert {*found} == {own["full_id"]} & {*ids}
    items: list[dict[str, Any]] = [
        {"type": "describe_execution", "execution_id": each["full_id"]} for each in (own, foreign)
    ]
    items += [{"type": "progress", "handle": each["handle"], "percent": 5} for each in (foreign,)]
    first, second, third = (await desk.post("/v1/commands", {"items": items}, headers=caller)).json[
        "items"
    ]
    assert first["execution_id"] == own["full_id"]
    assert second is None
    assert third["status"] in (404, 409)


@scenario
async def test_hints_of_foreign_things_are_not_told(lab: Lab) -> None:
    desk = Desk(lab.engine)
    own, foreign = await both(lab)
    caller = await token(lab, "worker", namespace="a")
    ids = [each["full_id"] for each in (own, foreign)]
    topics = [f"done:{each}" for each in ids]
    topics += [f"flow:{own['flow_id']}", f"flow:{foreign['flow_id']}", "lane:default", "done:*"]
    body = {"topics": topics, "wait_ms": 0, "origin": "another", "after": 0}
    heard = (await desk.post("/v1/hints", body, headers=caller)).json["topics"]
    assert heard == [topics[0], topics[2], "lane:default", "done:*"]


@scenario
async def test_a_restricted_admin_makes_and_sees_tokens_of_its_own_namespaces_only(
    lab: Lab,
) -> None:
    desk = Desk(lab.engine)
    caller = await token(lab, "admin", namespace="a")
    wanted = {"name": "x", "scopes": ["read"]}
    made = await desk.post("/v1/tokens", wanted, headers=caller)
    assert made.json["namespaces"] == ["a"]
    foreign = await desk.post("/v1/tokens", {**wanted, "namespaces": ["a", "b"]}, headers=caller)
    assert (foreign.status, foreign.json["code"]) == (403, "missing_namespace")
