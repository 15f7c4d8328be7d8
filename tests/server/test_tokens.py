"""Tokens at the door: who may ask for what, and what a refusal tells."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from flowfabric.api.operation import OPERATIONS, Scope
from flowfabric.model.access import AccessTokenCreated
from flowfabric.server.access import guard as guards
from flowfabric.server.access.guard import TokenGuard
from flowfabric.server.plain import handle_text
from flowfabric.server.routes.all import ROUTES
from flowfabric.server.routes.forms import form_of
from tests.support.http import NOTHING, Desk, Reply
from tests.support.lab import Lab, scenario


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


async def made(lab: Lab, *scopes: str, **fields: Any) -> AccessTokenCreated:
    return await lab.engine.create_access_token(name="ci", scopes=scopes, **fields)


def bearer(token: AccessTokenCreated) -> dict[str, str]:
    return {"Authorization": f"Bearer {token.token.reveal()}"}


def guard_at(lab: Lab, desk: Desk, seconds: list[float]) -> TokenGuard:
    """A guard with a time of its own."""
    service = desk.service
    return TokenGuard(lab.engine, service.rates, service.settings, now=lambda: seconds[0])


def told(reply: Reply) -> dict[str, Any]:
    return {name: value for name, value in reply.json.items() if name != "request_id"}


@scenario
async def test_without_any_token_everything_is_allowed_and_the_first_one_ends_that(
    lab: Lab,
) -> None:
    desk = Desk(lab.engine)
    assert (await desk.get("/v1/executions")).status == 200
    token = await made(lab, "read")
    assert (await desk.get("/v1/executions")).status == 401
    assert (await desk.get("/v1/executions", headers=bearer(token))).status == 200
    for path in ("/livez", "/readyz", "/v1"):
        assert (await desk.get(path)).status == 200
    await lab.engine.revoke_access_token(token_id=token.id)
    assert (await Desk(lab.engine).get("/v1/executions")).status == 401


@scenario
async def test_every_request_without_a_good_token_is_refused_by_one_text(lab: Lab) -> None:
    """No token, an unknown one, one that is over, a revoked one."""
    desk = Desk(lab.engine)
    good, revoked = await made(lab, "read"), await made(lab, "read")
    over = await made(lab, "read", expires_in_ms=1_000)
    await lab.engine.revoke_access_token(token_id=revoked.id)
    await lab.after(1_000)
    text = good.token.reveal()
    wrong = ["Bearer", "Bearer ", "Bearer x", "Basic YTpi", f"bearer {text[:-1]}"]
    wrong += [
        "Bearer " + "x" * 8192,
        *(f"Bearer {each.token.reveal()}" for each in (revoked, over)),
    ]
    replies = [await desk.get("/v1/executions")]
    replies += [await desk.get("/v1/executions", headers={"Authorization": one}) for one in wrong]
    twice = [("host", "localhost"), *[("authorization", f"Bearer {text}")] * 2]
    replies.append(await desk.send("GET", "/v1/executions", twice, [b""]))
    assert {reply.status for reply in replies} == {401}
    assert all(reply.headers["www-authenticate"] == "Bearer" for reply in replies)
    assert len({repr(told(reply)) for reply in replies}) == 1
    lower = {"Authorization": f"bearer  {text}"}
    assert (await desk.get("/v1/executions", headers=lower)).status == 200


@scenario
async def test_a_revoked_key_is_refused_within_30_s_everywhere_at_once_where_it_was_revoked(
    lab: Lab,
) -> None:
    """Scenario 24. Time is the guard's own, and the other process hears no hint."""
    seconds = [100.0]
    desk, other = Desk(lab.engine), Desk(lab.engine)
    other.service.guard = guard_at(lab, other, seconds)
    admin, token = await made(lab, "admin"), await made(lab, "read")
    for each in (desk, other):
        assert (await each.get("/v1/executions", headers=bearer(token))).status == 200
    gone = await desk.ask("DELETE", f"/v1/tokens/{token.id}", headers=bearer(admin))
    assert (gone.status, gone.json["is_new"]) == (200, True)
    assert (await desk.get("/v1/executions", headers=bearer(token))).status == 401
    assert (await other.get("/v1/executions", headers=bearer(token))).status == 200
    seconds[0] += 30.0
    assert (await other.get("/v1/executions", headers=bearer(token))).status == 401


@scenario
async def test_a_token_that_is_over_is_refused_though_it_was_known(lab: Lab) -> None:
    seconds = [100.0]
    desk = Desk(lab.engine)
    desk.service.guard = guard_at(lab, desk, seconds)
    token = await made(lab, "read", expires_in_ms=2_000)
    assert (await desk.get("/v1/executions", headers=bearer(token))).status == 200
    seconds[0] += 2.0
    await lab.after(2_000)
    assert (await desk.get("/v1/executions", headers=bearer(token))).status == 401


@scenario
async def test_a_key_in_the_query_string_is_refused_and_appears_in_no_log(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Scenario 25, and the same in a path."""
    caplog.set_level(logging.DEBUG)
    desk = Desk(lab.engine)
    token = await made(lab, "admin")
    text = token.token.reveal()
    for path in (
        f"/v1/executions?token={text}",
        f"/v1/executions?access_token={text}&limit=5",
        f"/v1/executions?{text}",
        f"/v1/executions?cursor={text.replace('_', '%5F')}",
        f"/v1/executions/{text}",
        "/v1/executions?api_key=other",
    ):
        for headers in (None, bearer(token)):
            reply = await desk.get(path, headers=headers)
            assert (reply.status, reply.json["field"]) == (422, "query"), path
            assert text not in repr(reply)
            assert "Authorization" in reply.json["detail"]
    assert text not in caplog.text
    assert not any(text in repr(vars(record)) for record in caplog.records)


def test_no_route_has_a_parameter_under_the_words_of_a_token() -> None:
    for route in ROUTES:
        words = {*form_of(route).query, *route.own_query} if route.operation else set()
        assert not words & guards._WORDS, route.name


@scenario
async def test_a_token_lacks_a_scope_and_the_refusal_names_it_and_not_the_object(
    lab: Lab,
) -> None:
    desk = Desk(lab.engine)
    key = await desk.created()
    token = await made(lab, "submit")
    for path in (f"/v1/executions/{key}", "/v1/executions/17.absent"):
        refused = await desk.get(path, headers=bearer(token))
        assert (refused.status, refused.json["code"]) == (403, "missing_scope")
        assert refused.json["scope"] == "read"
        assert key not in repr(refused)


@scenario
async def test_a_command_the_keys_scope_forbids_is_403_in_that_item_others_run(
    lab: Lab,
) -> None:
    desk = Desk(lab.engine)
    token, reader = await made(lab, "submit"), await made(lab, "read")
    items = [
        {"type": "create_execution", "execution_kind": "a"},
        {"type": "ping"},
        {"type": "list_executions"},
        {"type": "create_execution", "execution_kind": "b"},
    ]
    reply = await desk.post("/v1/commands", {"items": items}, headers=bearer(token))
    first, ping, refused, last = reply.json["items"]
    assert (first["type"], last["type"], ping) == ("Created", "Created", None)
    assert (refused["status"], refused["scope"]) == (403, "read")
    whole = await desk.post("/v1/commands", {"items": items}, headers=bearer(reader))
    assert (whole.status, whole.json["code"]) == (403, "missing_scope")
    assert (await desk.post("/v1/commands", {"items": items})).status == 401


@scenario
async def test_a_submit_by_the_owner_of_a_lease_needs_the_scope_of_workers(lab: Lab) -> None:
    desk = Desk(lab.engine)
    owner = await lab.started()
    entry = {"position": 0, "key": "submit:x#1", "kind": "submit", "value_base64": "MQ=="}
    command = {
        "type": "create_executions",
        "requests": [{"execution_kind": "x"}],
        "handle": handle_text(owner.handle),
        "entries": [entry],
    }
    token = await made(lab, "submit")
    reply = await desk.post("/v1/commands", {"items": [command]}, headers=bearer(token))
    (refused,) = reply.json["items"]
    assert (refused["status"], refused.get("scope")) == (403, "worker"), refused
    assert [each.execution_id for each in (await lab.engine.list_executions()).items] == [
        owner.execution_id
    ]


@scenario
async def test_a_token_is_made_listed_and_revoked_over_http(lab: Lab) -> None:
    desk = Desk(lab.engine)
    admin = await made(lab, "admin")
    wanted = {"name": "bot", "scopes": ["approve"], "speaks_for": True, "expires_in_ms": 60_000}
    created = await desk.post("/v1/tokens", wanted, headers=bearer(admin))
    assert created.status == 201
    text = created.json["token"]
    assert text.startswith(f"ff_{created.json['id']}_")
    used = await desk.get("/v1/waits", headers={"Authorization": f"Bearer {text}"})
    assert used.status == 200
    listing = await desk.get("/v1/tokens", headers=bearer(admin))
    shown = {each["id"]: each for each in listing.json["items"]}[created.json["id"]]
    assert (shown["name"], shown["created_by"]) == ("bot", f"token:{admin.id}")
    assert text not in repr(listing)
    assert text.split("_")[2] not in repr(listing)
    assert (await desk.get("/v1/tokens", headers={"Authorization": f"Bearer {text}"})).status == 403
    missing = await desk.ask("DELETE", "/v1/tokens/0000000000", headers=bearer(admin))
    assert missing.status == 404


@scenario
async def test_too_many_tokens_that_open_nothing_are_429_and_a_good_one_known_goes_on(
    lab: Lab,
) -> None:
    desk = Desk(lab.engine, rate_login=3)
    token = await made(lab, "read")
    assert (await desk.get("/v1/executions", headers=bearer(token))).status == 200
    statuses = [
        (await desk.get("/v1/executions", headers={"Authorization": "Bearer x"})).status
        for _ in range(4)
    ]
    assert statuses == [401, 401, 401, 429]
    assert (await desk.get("/v1/executions", headers=bearer(token))).status == 200


@scenario
async def test_a_caller_that_asks_too_often_is_429_with_retry_after(lab: Lab) -> None:
    desk = Desk(lab.engine, rate_token=1, rate_address=1)
    token, other = await made(lab, "read"), await made(lab, "read")
    for headers in (bearer(token), None):
        replies = [await desk.get("/v1", headers=headers) for _ in range(3)]
        assert [reply.status for reply in replies] == [200, 200, 429]
        assert replies[2].json["code"] == "rate_limited"
        assert int(replies[2].headers["retry-after"]) >= 1
    assert (await desk.get("/v1", headers=bearer(other))).status == 200
    assert (await desk.get("/livez")).status == 200


def test_the_scope_of_every_route_is_that_of_what_it_asks_for() -> None:
    """Where a route says another one, it is stricter, or it is listed here with its reason."""
    other = {
        "GET /v1/operations",  # what operators do is shown to operators
        "GET /v1/operations/{operation_id}",
        "POST /v1/groups/{group_id}/read",
    }
    for route in ROUTES:
        if route.operation is not None and route.name not in other:
            assert route.scope is OPERATIONS[route.operation].scope, route.name
    assert {each.name for each in ROUTES if each.scope is None and not each.is_open} <= {
        "POST /v1/commands",
        "POST /v1/hints",
        "GET /v1",
        "GET /livez",
        "GET /readyz",
    }
    asked = {operation.scope for operation in OPERATIONS.values()}
    assert set(Scope) == asked | {route.scope for route in ROUTES if route.scope is not None}


@scenario
async def test_a_request_with_a_foreign_host_on_loopback_is_421(lab: Lab) -> None:
    """Scenario 27."""
    desk = Desk(lab.engine)
    for host in ("evil.example", "evil.example:9090", "localhost.evil.example", ""):
        reply = await desk.get("/v1/executions", headers={"Host": host})
        assert (reply.status, reply.json["code"]) == (421, "misdirected_request"), host
    for host in ("localhost", "127.0.0.1:9090", "[::1]:9090"):
        assert (await desk.get("/v1/executions", headers={"Host": host})).status == 200
    named = Desk(lab.engine, public_url="https://ff.example.com", allowed_hosts=("ff.lan",))
    for host in ("ff.example.com", "FF.lan:443"):
        assert (await named.get("/v1/executions", headers={"Host": host})).status == 200


@scenario
async def test_a_post_from_another_site_is_refused_the_same_with_a_bearer_key_works(
    lab: Lab,
) -> None:
    """Scenario 28, also while no token exists: a page may reach loopback by somebody's browser."""
    desk = Desk(lab.engine)
    key = await desk.created()
    hold = f"/v1/executions/{key}/hold"
    host = {"Host": "localhost:9090", "Cookie": "ff=anything"}
    foreign: list[dict[str, str]] = [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:8000"},
        {"Origin": "http://[::1"},
    ]
    for headers in foreign:
        async with lab.unchanged():
            refused = await desk.post(hold, {"reason": "x"}, headers={**host, **headers})
        assert (refused.status, refused.json["code"]) == (403, "cross_site_request"), headers
        assert (await desk.get("/v1/executions", headers={**host, **headers})).status == 200
    without = {"Origin": "http://localhost:9090"}
    assert (await desk.post(hold, {"reason": "x"}, headers={**host, **without})).status == 200
    assert (await desk.post(f"/v1/executions/{key}/release", headers=host)).status == 200
    own = {"Sec-Fetch-Site": "same-origin", "Origin": "null"}
    assert (await desk.post(hold, {"reason": "x"}, headers={**host, **own})).status == 200
    token = await made(lab, "operate")
    program = {**host, **foreign[2], **bearer(token)}
    assert (await desk.post(hold, {"reason": "x"}, headers=program)).status != 403
    refused = await desk.post(hold, {"reason": "x"}, headers={**host, **own})
    assert refused.status == 401  # a cookie opens nothing


@scenario
async def test_a_planted_token_appears_in_no_log_and_no_answer(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Scenario 42, for access tokens: on every route, good or not."""
    caplog.set_level(logging.DEBUG)
    desk = Desk(lab.engine, rate_login=100_000)
    good, other = await made(lab, "read"), await made(lab, "read")
    await lab.engine.revoke_access_token(token_id=other.id)
    secrets = [each.token.reveal().split("_")[2] for each in (good, other)]
    for route in ROUTES:
        path = re.sub(r"\{\w+\}", "x", route.path)
        for token in (good, other):
            body = {"wait_ms": 0} if route.method in ("POST", "PATCH") else NOTHING
            reply = await desk.ask(route.method, path, body, headers=bearer(token))
            assert not any(each in repr(reply) for each in secrets), route.name
    shown = caplog.text + repr([vars(record) for record in caplog.records])
    assert not any(each in shown for each in secrets)
