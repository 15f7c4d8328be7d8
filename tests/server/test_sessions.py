"""Browsers at the door: how a session begins, what it allows, and how it ends."""

from __future__ import annotations

import logging
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest

from flowfabric.model.access import AccessTokenCreated
from flowfabric.server.access import once
from flowfabric.server.access.guard import TokenGuard
from flowfabric.server.access.once import OnceLinks
from flowfabric.server.access.sessions import csrf_of
from flowfabric.server.exchange import Call
from flowfabric.server.ui.entering import wanted_page
from tests.property.budget import budget
from tests.support.http import Desk, Reply
from tests.support.lab import Lab, scenario
from tests.support.mutated import mutated

MUTATED = budget("FF_MUTATED_TOKENS", 300)
FORM = "application/x-www-form-urlencoded"
OWN = {"Sec-Fetch-Site": "same-origin"}
RUNS = "/v1/executions"


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


async def made(lab: Lab, *scopes: str, **fields: Any) -> AccessTokenCreated:
    return await lab.engine.create_access_token(name="ada", scopes=scopes, **fields)


def form(**fields: str) -> dict[str, Any]:
    return {"body": urlencode(fields).encode(), "headers": {**OWN, "Content-Type": FORM}}


async def sent(desk: Desk, path: str, cookie: str | None = None, **fields: str) -> Reply:
    """A form as a page of the server sends it."""
    given = form(**fields)
    if cookie is not None:
        given["headers"]["Cookie"] = cookie
    return await desk.post(path, given["body"], headers=given["headers"])


def cookie_in(reply: Reply) -> str:
    """What a browser would send back."""
    return reply.headers["set-cookie"].partition(";")[0]


async def signed_in(desk: Desk, token: AccessTokenCreated, **fields: str) -> str:
    reply = await sent(desk, "/ui/login", token=token.token.reveal(), **fields)
    assert (reply.status, reply.headers["location"]) == (303, fields.get("next", "/ui"))
    return cookie_in(reply)


async def csrf_for(desk: Desk, cookie: str) -> str:
    """What the forms of a session carry."""
    headers = [(b"host", b"localhost"), (b"cookie", cookie.encode())]
    scope = {"method": "GET", "headers": headers, "client": ("127.0.0.1", 1), "scheme": "http"}
    call = Call(scope, None, "r")  # type: ignore[arg-type]
    call.caller = await desk.service.guard.caller_of(call)
    return csrf_of(desk.service.settings, call)


async def seen(desk: Desk, cookie: str, path: str = RUNS) -> int:
    return (await desk.get(path, headers={"Cookie": cookie})).status


@scenario
async def test_a_token_that_is_pasted_once_begins_a_session_with_its_scopes(lab: Lab) -> None:
    desk = Desk(lab.engine)
    token = await made(lab, "read", namespaces=("default",))
    page = await desk.get("/ui/login?next=/ui/runs")
    assert (page.status, b'name="next" value="/ui/runs"' in page.body) == (200, True)
    reply = await sent(desk, "/ui/login", token=token.token.reveal(), next="/ui/runs")
    assert (reply.status, reply.headers["location"]) == (303, "/ui/runs")
    name, *marks = reply.headers["set-cookie"].split("; ")
    assert name.startswith("ff=")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(marks)
    assert "Secure" not in marks
    cookie = cookie_in(reply)
    assert token.token.reveal() not in cookie
    assert await seen(desk, cookie) == 200
    assert await seen(desk, cookie, "/v1/tokens") == 403
    assert await seen(desk, cookie, f"{RUNS}?namespace=other") == 403
    assert (await desk.get(RUNS)).status == 401


@scenario
async def test_behind_tls_the_cookie_is_secure_and_bears_the_prefix_of_its_host(lab: Lab) -> None:
    token = await made(lab, "read")
    desk = Desk(lab.engine, behind_proxy=True)
    cookie = await signed_in(desk, token)
    assert cookie.startswith("__Host-ff=")
    reply = await sent(desk, "/ui/login", token=token.token.reveal())
    assert "Secure" in reply.headers["set-cookie"].split("; ")
    assert await seen(desk, cookie) == 200
    assert await seen(desk, cookie.replace("__Host-ff", "ff")) == 401


@scenario
async def test_a_session_is_another_after_each_login_and_the_old_one_is_over(lab: Lab) -> None:
    desk = Desk(lab.engine)
    token = await made(lab, "read")
    first = await signed_in(desk, token)
    again = await sent(desk, "/ui/login", first, token=token.token.reveal())
    second = cookie_in(again)
    assert first != second
    assert [await seen(desk, each) for each in (first, second)] == [401, 200]


@scenario
async def test_a_logout_ends_the_session_on_all_servers(lab: Lab) -> None:
    """Scenario 42 of the dashboard: … and the browser keeps nothing of its pages."""
    desk, other = Desk(lab.engine), Desk(lab.engine)
    cookie = await signed_in(desk, await made(lab, "read"))
    assert [await seen(each, cookie) for each in (desk, other)] == [200, 200]
    gone = await sent(desk, "/ui/logout", cookie, csrf=await csrf_for(desk, cookie))
    assert (gone.status, gone.headers["location"]) == (303, "/ui/login")
    assert gone.headers["clear-site-data"] == '"cache"'
    assert "Max-Age=0" in gone.headers["set-cookie"]
    assert [await seen(each, cookie) for each in (desk, other)] == [401, 401]
    assert (await sent(desk, "/ui/logout", cookie)).status == 303


@scenario
async def test_a_server_that_hears_no_hint_refuses_an_ended_session_within_30_s(lab: Lab) -> None:
    seconds = [100.0]
    desk, deaf = Desk(lab.engine), Desk(lab.engine)
    service = deaf.service
    service.guard = TokenGuard(lab.engine, service.rates, service.settings, now=lambda: seconds[0])
    cookie = await signed_in(desk, await made(lab, "read"))
    assert await seen(deaf, cookie) == 200
    await sent(desk, "/ui/logout", cookie, csrf=await csrf_for(desk, cookie))
    assert await seen(deaf, cookie) == 200
    seconds[0] += 30.0
    assert await seen(deaf, cookie) == 401


@scenario
async def test_a_session_ends_with_its_token_and_in_time(lab: Lab) -> None:
    desk = Desk(lab.engine, session_idle_ms=60_000, session_max_ms=100_000)
    revoked, kept = await made(lab, "read"), await made(lab, "read")
    gone, old = await signed_in(desk, revoked), await signed_in(desk, kept)
    assert [await seen(desk, each) for each in (gone, old)] == [200, 200]
    await lab.engine.revoke_access_token(token_id=revoked.id)
    assert [await seen(desk, each) for each in (gone, old)] == [401, 200]
    await lab.after(50_000)
    assert await seen(Desk(lab.engine), old) == 200
    await lab.after(50_000)
    assert await seen(Desk(lab.engine), old) == 401
    idle = await signed_in(desk, kept)
    await lab.after(60_000)
    assert await seen(Desk(lab.engine), idle) == 401


@scenario
async def test_a_link_is_good_once_for_a_minute(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(lab.engine)
    await made(lab, "read")
    path = f"/ui/login?once={desk.service.once.make()}"
    assert (await desk.ask("HEAD", path)).status == 200
    first, replayed = await desk.get(path), await desk.get(path)
    assert (first.status, replayed.status) == (303, 401)
    assert await seen(desk, cookie_in(first), "/v1/tokens") == 200
    assert "set-cookie" not in replayed.headers
    seconds = [0.0]
    desk.service.once = OnceLinks(lambda: seconds[0])
    path = f"/ui/login?once={desk.service.once.make()}"
    seconds[0] += once.LIFE_S
    assert (await desk.get(path)).status == 401
    for wrong in ("", "x", "\ud800".encode("utf-8", "surrogatepass").hex()):
        assert (await desk.get(f"/ui/login?once={wrong}")).status == 401


@scenario
async def test_twenty_failed_logins_of_an_address_are_answered_with_429(lab: Lab) -> None:
    desk = Desk(lab.engine, rate_address=1_000)
    token = await made(lab, "read")
    told = [await sent(desk, "/ui/login", token="ff_wrong") for _ in range(20)]
    assert {each.status for each in told} == {401}
    assert all(b"opens nothing" in each.body for each in told)
    assert (await sent(desk, "/ui/login", token=token.token.reveal())).status == 429
    assert (await desk.get("/ui/login?once=x")).status == 429


@scenario
async def test_a_cookie_bearing_post_from_another_site_is_refused_the_same_with_a_key_works(
    lab: Lab,
) -> None:
    """Scenario 28."""
    desk = Desk(lab.engine)
    token = await made(lab, "submit", "read")
    cookie = await signed_in(desk, token)
    csrf = await csrf_for(desk, cookie)
    body = {"execution_kind": "work"}
    own = {"Cookie": cookie, "X-CSRF-Token": csrf}
    origin = {"Origin": "http://localhost"}
    for proof in (OWN, origin):
        assert (await desk.post(RUNS, body, headers={**own, **proof})).status == 201
    stale = await csrf_for(desk, await signed_in(desk, token))
    refused: list[dict[str, str]] = [
        own,
        {**own, "Sec-Fetch-Site": "cross-site"},
        {**own, "Sec-Fetch-Site": "same-site"},
        {**own, "Sec-Fetch-Site": "none"},
        {**own, "Origin": "http://evil.example"},
        {**own, "Origin": "null"},
        {**own, **origin, "Sec-Fetch-Site": "cross-site"},
        {"Cookie": cookie, **OWN},
        {**own, **OWN, "X-CSRF-Token": csrf[:-1] + "0"},
        {**own, **OWN, "X-CSRF-Token": stale},
        {**own, **OWN, "X-CSRF-Token": ""},
    ]
    for headers in refused:
        reply = await desk.post(RUNS, body, headers=headers)
        assert (reply.status, reply.json["code"]) == (403, "cross_site_request"), headers
    bearer = {"Authorization": f"Bearer {token.token.reveal()}"}
    for headers in refused:
        assert (await desk.post(RUNS, body, headers={**headers, **bearer})).status == 201


@scenario
async def test_a_request_with_a_token_reads_no_cookie(lab: Lab) -> None:
    desk = Desk(lab.engine)
    cookie = await signed_in(desk, await made(lab, "admin"))
    reader = await made(lab, "read")
    bearer = {"Authorization": f"Bearer {reader.token.reveal()}", "Cookie": cookie}
    assert (await desk.get("/v1/tokens", headers=bearer)).status == 403
    wrong = {"Authorization": "Bearer ff_wrong", "Cookie": cookie}
    assert (await desk.get(RUNS, headers=wrong)).status == 401


@scenario
async def test_a_login_from_another_site_is_refused(lab: Lab) -> None:
    desk = Desk(lab.engine)
    token = await made(lab, "read")
    for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
        body = urlencode({"token": token.token.reveal()}).encode()
        given = {"Content-Type": FORM, **headers}
        reply = await desk.post("/ui/login", body, headers=given)
        assert (reply.status, b'data-code="cross_site_request"' in reply.body) == (403, True)
    odd = await desk.post("/ui/login", {"token": "x"}, headers=OWN)
    assert odd.status == 415
    bad = await desk.post("/ui/login", b"\xff", headers={**OWN, "Content-Type": FORM})
    assert bad.status == 400


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example/ui",
        "javascript:alert(1)",
        "/\t/evil.example",
        "/ui\r\nSet-Cookie: ff=x",
        "evil.example",
        "",
        "/" + "x" * 3_000,
        "/ü",
    ],
)
@scenario
async def test_after_a_login_comes_only_a_page_of_this_server(lab: Lab, wanted: str) -> None:
    desk = Desk(lab.engine)
    token = await made(lab, "read")
    reply = await sent(desk, "/ui/login", token=token.token.reveal(), next=wanted)
    assert (reply.status, reply.headers["location"]) == (303, "/ui")
    page = await desk.get(f"/ui/login?{urlencode({'next': wanted})}")
    assert b'name="next" value="/ui"' in page.body
    path = f"/ui/login?{urlencode({'next': wanted, 'once': desk.service.once.make()})}"
    assert (await desk.get(path)).headers["location"] == "/ui"
    assert wanted_page("/ui/runs?state=failed&tag=a.b:c") == "/ui/runs?state=failed&tag=a.b:c"


@scenario
async def test_several_sessions_in_one_request_are_none(lab: Lab) -> None:
    desk = Desk(lab.engine)
    one = await signed_in(desk, await made(lab, "read"))
    assert await seen(desk, f"other=1; {one}; more=2") == 200
    assert await seen(desk, f"{one}; {one}") == 401
    assert await seen(desk, "ff=") == 401
    assert await seen(desk, "x=" + "y" * 20_000 + f"; {one}") == 401
    twice = [("host", "localhost"), ("cookie", one), ("cookie", one)]
    assert (await desk.send("GET", RUNS, twice, [b""])).status == 401


@scenario
async def test_no_mutated_cookie_opens_anything(lab: Lab) -> None:
    desk = Desk(lab.engine, rate_address=10_000_000)
    cookie = await signed_in(desk, await made(lab, "read"))
    text, random = cookie.removeprefix("ff="), Random(5)
    for _ in range(MUTATED):
        tried = mutated(text, random)
        if tried.strip() != text:
            assert await seen(desk, f"ff={tried}") == 401, tried
    assert await seen(desk, cookie) == 200


@scenario
async def test_secrets_of_sessions_appear_in_no_log_listing_or_error(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Scenario 42."""
    caplog.set_level(logging.DEBUG)
    desk = Desk(lab.engine)
    token = await made(lab, "admin")
    text, link = token.token.reveal(), desk.service.once.make()
    cookie = await signed_in(desk, token)
    csrf = await csrf_for(desk, cookie)
    replies = [
        await sent(desk, "/ui/login", token=f"{text}x", next="/ui"),
        await desk.get(f"/ui/login?once={link}x"),
        await desk.get("/v1/tokens", headers={"Cookie": cookie}),
        await desk.get("/v1/executions/none", headers={"Cookie": cookie}),
        await desk.post(RUNS, {}, headers={"Cookie": cookie, **OWN, "X-CSRF-Token": f"{csrf}x"}),
    ]
    secrets = (text, text.split("_")[2], link, cookie.removeprefix("ff="), csrf)
    shown = f"{replies!r}{caplog.text}{[vars(each) for each in caplog.records]!r}"
    shown += repr(await lab.engine.dump())
    for secret in secrets:
        assert secret not in shown
