"""People at the door: an identity provider or a proxy vouches for them, or nobody is let in."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlencode

import pytest

from flowfabric.errors import InvalidInput
from flowfabric.model.record import replace
from flowfabric.server.access.grants import grants_of
from flowfabric.server.access.proxies import PEER
from flowfabric.server.oidc.client import CALLBACK, provider_of
from flowfabric.server.oidc.jwt import BadToken, Expected, RsaKey, read_token, rsa_keys
from flowfabric.server.oidc.jwt import verify_rs256 as is_signed
from flowfabric.server.oidc.provider import Fetched, NoLogin, Provider, fetch
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings
from flowfabric.server.sources import choose
from tests.support.http import Desk, Reply
from tests.support.idp import CLIENT, ISSUER, StubProvider, pair, url64
from tests.support.lab import Lab, scenario

PEOPLE: dict[str, Any] = {
    "public_url": "https://ff.example",
    "oidc_issuer": ISSUER,
    "oidc_client_id": CLIENT,
    "oidc_groups": ("ops=operate@default+shop", "staff=read", "root=admin"),
}


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


class Browser:
    """One person's: it keeps cookies."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, **headers: str) -> Reply:
        told = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        given = {"Cookie": told} if told else {}
        reply = await self.desk.get(path, headers={**given, **headers})
        name, _, value = reply.headers.get("set-cookie", "=").partition(";")[0].partition("=")
        if name:
            self.cookies[name] = value
        return reply


class House:
    """A desk, and the provider that it asks."""

    def __init__(self, lab: Lab, **settings: Any) -> None:
        self.stub = StubProvider(lab.now / 1_000)
        self.desk = Desk(lab.engine, **{**PEOPLE, **settings})
        self.seconds = [0.0]
        known = self.desk.service.provider
        assert known is not None
        self.desk.service.provider = Provider(
            known._client, self.stub.fetch, now=lambda: self.seconds[0]
        )

    async def begun(self, browser: Browser, wanted: str = "/ui/runs") -> dict[str, str]:
        """What a browser brings back from the provider."""
        away = await browser.get(f"/ui/login/oidc?{urlencode({'next': wanted})}")
        assert away.status == 303, away
        assert away.headers["location"].startswith(f"{ISSUER}/authorize?tenant=1&")
        return self.stub.consent(away.headers["location"])

    async def entered(self, browser: Browser) -> Reply:
        return await browser.get(f"{CALLBACK}?{urlencode(await self.begun(browser))}")


@scenario
async def test_a_person_signs_in_by_the_provider_and_has_what_the_first_group_allows(
    lab: Lab, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3:cret\n")
    house = House(lab, oidc_client_secret_file=str(secret))
    browser = Browser(house.desk)
    page = await browser.get("/ui/login?next=/ui/runs")
    assert b"/ui/login/oidc?next=/ui/runs" in page.body
    reply = await house.entered(browser)
    assert (reply.status, reply.headers["location"]) == (303, "/ui/runs")
    assert "Secure" in reply.headers["set-cookie"]
    ((form, headers),) = house.stub.sent
    assert form["redirect_uri"] == f"https://ff.example{CALLBACK}"
    assert headers["Authorization"] == "Basic Zmxvd2ZhYnJpYzpzMyUzQWNyZXQ="
    assert (await browser.get("/v1/executions?namespace=shop")).status == 200
    assert (await browser.get("/v1/executions?namespace=other")).status == 403
    assert (await browser.get("/v1/tokens")).status == 403
    (row,) = (await lab.engine.dump())["ff_session"]
    assert (row.subject, row.roles) == ("ada", ("ops", "staff"))
    (entry,) = (await lab.engine.list_audit(action="open_session")).items
    assert entry.actor == "user:ada"


@scenario
async def test_a_session_has_what_the_table_grants_at_present(lab: Lab) -> None:
    house = House(lab)
    browser = Browser(house.desk)
    await house.entered(browser)
    assert (await browser.get("/v1/executions?namespace=shop")).status == 200
    browser.desk = Desk(lab.engine, **{**PEOPLE, "oidc_groups": ("staff=submit",)})
    assert (await browser.get("/v1/executions")).status == 403
    browser.desk = Desk(lab.engine, **{**PEOPLE, "oidc_groups": ("root=admin",)})
    assert (await browser.get("/v1/executions")).status == 401


@scenario
async def test_where_people_sign_in_nothing_is_open_without_proof(lab: Lab) -> None:
    assert (await House(lab).desk.get("/v1/executions")).status == 401
    reply = await House(lab).desk.get("/ui/runs")
    assert reply.headers["location"].startswith("/ui/login?next=")
    nothing = await Desk(lab.engine).get("/ui/login/oidc")
    assert nothing.status == 404


@scenario
async def test_a_login_that_was_not_begun_in_this_browser_is_refused(lab: Lab) -> None:
    house = House(lab)
    own, other = Browser(house.desk), Browser(house.desk)
    told, foreign = await house.begun(own), await house.begun(other)
    for query in (
        {**told, "state": foreign["state"]},
        {**told, "state": ""},
        {"code": told["code"]},
        {**told, "state": told["state"][:-1]},
    ):
        reply = await own.get(f"{CALLBACK}?{urlencode(query)}")
        assert (reply.status, b'data-code="cross_site_request"' in reply.body) == (403, True)
    bare = Browser(house.desk)
    assert (await bare.get(f"{CALLBACK}?{urlencode(told)}")).status == 403
    bare.cookies["__Host-ff-login"] = "x"
    assert (await bare.get(f"{CALLBACK}?{urlencode(told)}")).status == 403
    assert house.stub.sent == []
    assert (await own.get(f"{CALLBACK}?{urlencode(told)}")).status == 303


@scenario
async def test_a_code_is_good_once_and_only_with_its_own_verifier(lab: Lab) -> None:
    house = House(lab)
    own, other = Browser(house.desk), Browser(house.desk)
    told, foreign = await house.begun(own), await house.begun(other)
    login = own.cookies["__Host-ff-login"]
    assert (await own.get(f"{CALLBACK}?{urlencode(told)}")).status == 303
    own.cookies["__Host-ff-login"] = login
    assert (await own.get(f"{CALLBACK}?{urlencode(told)}")).status == 401
    stolen = {"code": foreign["code"], "state": told["state"]}
    own.cookies["__Host-ff-login"] = login
    assert (await own.get(f"{CALLBACK}?{urlencode(stolen)}")).status == 401


SPOILED: dict[str, tuple[str, dict[str, Any]]] = {
    "another issuer": ("claims", {"iss": "https://evil.example"}),
    "another client": ("claims", {"aud": "other"}),
    "no client": ("claims", {"aud": []}),
    "several clients and none that asked": ("claims", {"aud": [CLIENT, "other"]}),
    "asked for by another": ("claims", {"azp": "other"}),
    "over": ("claims", {"exp": 1}),
    "no end": ("claims", {"exp": "never"}),
    "an end that is no number": ("claims", {"exp": True}),
    "not yet": ("claims", {"nbf": 10**11}),
    "from the future": ("claims", {"iat": 10**11}),
    "another login": ("claims", {"nonce": "other"}),
    "no login": ("claims", {"nonce": None}),
    "nobody": ("claims", {"sub": ""}),
    "a person that is no text": ("claims", {"sub": 7}),
    "a long name": ("claims", {"sub": "x" * 300}),
    "a name with a line": ("claims", {"sub": "a\nb"}),
    "no signature": ("head", {"alg": "none"}),
    "a shared secret": ("head", {"alg": "HS256"}),
    "another hash": ("head", {"alg": "RS512"}),
    "a critical part": ("head", {"crit": ["b64"]}),
}


@pytest.mark.parametrize("name", SPOILED)
@scenario
async def test_an_id_token_that_proves_nothing_lets_nobody_in(lab: Lab, name: str) -> None:
    house = House(lab)
    part, values = SPOILED[name]
    getattr(house.stub, part).update(values)
    browser = Browser(house.desk)
    reply = await house.entered(browser)
    assert (reply.status, b"log of the server" in reply.body) == (401, True)
    assert (await lab.engine.dump())["ff_session"] == []


@scenario
async def test_a_person_without_a_group_of_the_table_is_refused(lab: Lab) -> None:
    house = House(lab)
    for groups in ([], ["guests"], "guests", None, {"ops": 1}, [1, 2]):
        house.stub.claims["groups"] = groups
        reply = await house.entered(Browser(house.desk))
        assert (reply.status, b'data-code="missing_scope"' in reply.body) == (403, True)
    house.stub.claims["groups"] = "staff"
    assert (await house.entered(Browser(house.desk))).status == 303


@scenario
async def test_the_signature_is_by_a_key_of_the_provider_which_may_be_replaced(lab: Lab) -> None:
    house = House(lab)
    browser = Browser(house.desk)
    assert (await house.entered(browser)).status == 303
    house.stub.pair, house.stub.kid = pair(2), "k2"
    assert (await house.entered(browser)).status == 401  # asked a moment ago
    assert house.stub.asked.count("/keys") == 1
    house.stub.keys = {"keys": [pair(2).jwk("k2")]}
    house.seconds[0] += 60.0
    assert (await house.entered(browser)).status == 303
    house.stub.kid = "k1"
    assert (await house.entered(browser)).status == 401
    house.stub.pair, house.stub.kid = pair(1), "k2"
    assert (await house.entered(browser)).status == 401
    assert house.stub.asked.count("/.well-known/openid-configuration") == 1
    house.seconds[0] += 3_600.0
    house.stub.pair = pair(2)
    assert (await house.entered(browser)).status == 303
    assert house.stub.asked.count("/.well-known/openid-configuration") == 2


@scenario
async def test_what_a_provider_answers_is_never_shown(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    evil = b"<script>evil</script>"
    configuration = "/.well-known/openid-configuration"
    pages = []
    for path, answer in (
        (configuration, Fetched(500, evil)),
        (configuration, Fetched(200, evil)),
        (configuration, Fetched(200, b"[" * 100_000)),
        (configuration, Fetched(200, b'{"issuer": "https://evil.example"}')),
        (configuration, Fetched(200, json.dumps({"issuer": ISSUER, "jwks_uri": 1}).encode())),
    ):
        house = House(lab)
        house.stub.instead[path] = answer
        pages.append(await Browser(house.desk).get("/ui/login/oidc"))
    for answer in (
        Fetched(400, evil),
        Fetched(200, b"{}"),
        Fetched(200, b'{"id_token": "a.b"}'),
        Fetched(200, b'{"id_token": "a.b.c"}'),
        Fetched(200, json.dumps({"id_token": "x" * 70_000}).encode()),
    ):
        house = House(lab)
        house.stub.instead["/token"] = answer
        pages.append(await house.entered(Browser(house.desk)))
    house = House(lab)
    browser = Browser(house.desk)
    told = await house.begun(browser)
    told = {"error": evil.decode(), "error_description": evil.decode(), "state": told["state"]}
    pages.append(await browser.get(f"{CALLBACK}?{urlencode(told)}"))
    assert {page.status for page in pages} == {401}
    assert not any(evil in page.body or b"evil.example" in page.body for page in pages)
    assert "evil" not in caplog.text
    insecure = House(lab)
    insecure.stub.document["token_endpoint"] = "http://idp.example/token"
    assert (await Browser(insecure.desk).get("/ui/login/oidc")).status == 401


@scenario
async def test_twenty_failed_logins_by_the_provider_are_answered_with_429(lab: Lab) -> None:
    house = House(lab, rate_address=1_000)
    for _ in range(20):
        assert (await Browser(house.desk).get(f"{CALLBACK}?state=x&code=y")).status == 403
    assert (await Browser(house.desk).get(f"{CALLBACK}?state=x&code=y")).status == 429


# --- signatures ----------------------------------------------------------------------------------


def test_a_signature_is_good_for_its_message_and_key_alone() -> None:
    one, other, message = pair(1), pair(2), b"head.body"
    key = RsaKey(one.modulus, one.exponent)
    good = one.sign(message)
    assert is_signed(key, message, good)
    assert not is_signed(key, message + b".", good)
    assert not is_signed(RsaKey(other.modulus, other.exponent), message, good)
    for at in (0, 1, 100, len(good) - 1):
        assert not is_signed(key, message, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    ending = one.block(message)[one.block(message).index(b"\x00\x30") :]
    digest = ending[-32:]
    forged = [
        b"",
        bytes(one.size),
        good[1:],
        good + b"\x00",
        b"\x00" + good,
        (int.from_bytes(good) + one.modulus).to_bytes(one.size + 1),
        one.open_to(one.block(message, ending=b"\x00" + digest)),  # without the name of the hash
        one.open_to((b"\x00\x01\xff\xff" + ending).ljust(one.size, b"\x00")),  # short padding
        one.open_to(b"\x00\x02" + one.block(message)[2:]),  # another kind of block
        one.open_to(b"\x00\x01" + b"\xfe" * (one.size - 2 - len(ending)) + ending),
        one.open_to(one.block(message, ending=ending[:2] + b"\x32" + ending[3:])),
    ]
    for signature in forged:
        assert not is_signed(key, message, signature)


def test_a_signature_that_another_program_made_is_good() -> None:
    """By OpenSSL, with a key of 2,048 bits and the exponent 65,537."""
    vector = json.loads((Path(__file__).parent / "rs256.json").read_text())
    keys = rsa_keys({"keys": [vector["key"]]})
    message = vector["message"].encode()
    signature = bytes.fromhex(vector["signature"])
    assert is_signed(keys["openssl"], message, signature)
    assert not is_signed(keys["openssl"], message + b"x", signature)


def test_keys_that_could_be_broken_or_are_for_something_else_are_left_out() -> None:
    good = pair(1).jwk("good")
    small = {**good, "kid": "small", "n": url64((2**1_023 + 1).to_bytes(128))}
    several = [
        *({**good, "kid": "enc", "use": "enc"}, {**good, "kid": "alg", "alg": "PS256"}),
        *({**good, "kid": "ec", "kty": "EC"}, {**good, "kid": 7}, "x", None, small),
        *(
            {**good, "kid": "one", "e": url64(b"\x01")},
            {**good, "kid": "even", "e": url64(b"\x04")},
        ),
        *({**good, "kid": "pad", "n": good["n"] + "="}, {**good, "kid": "none", "n": ""}),
        good,
    ]
    assert rsa_keys({"keys": several}).keys() == {"good"}
    documents: list[object] = [{}, {"keys": {}}, [], None]
    for document in documents:
        assert rsa_keys(document) == {}


def test_a_part_that_is_written_in_two_ways_is_refused() -> None:
    stub = StubProvider(1_000.0)
    token, key = stub.token("n"), rsa_keys(stub.keys)["k1"]
    expected = Expected(ISSUER, CLIENT, "n", 1_000.0)
    assert read_token(token, key, expected)["sub"] == "ada"
    head, body, signature = token.split(".")
    for wrong in (
        f"{head}.{body}",
        f"{token}.",
        f"{head}.{body}.{signature}=",
        f"{head}.{body}.{signature}\n",
        f"{head}.{body}.",
        f"{head}=.{body}.{signature}",
        f"{head}.{body[:-2]}.{signature}",
        f"ü{token}",
    ):
        with pytest.raises(BadToken):
            read_token(wrong, key, expected)
    with pytest.raises(BadToken, match="over"):
        read_token(token, key, replace(expected, now_s=1_361.0))
    assert read_token(token, key, replace(expected, now_s=1_359.0))


# --- proxies -------------------------------------------------------------------------------------

PROXIED: dict[str, Any] = {
    "trusted_proxies": ("192.0.2.0/24", "2001:db8::1"),
    "trusted_user_header": "X-Remote-User",
    "trusted_groups_header": "X-Remote-Groups",
    "oidc_groups": ("ops=operate", "staff=read"),
}


def behind(desk: Desk, peer: str | None) -> None:
    """Each request comes by this connection."""
    inner = desk.app

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, PEER: peer}, receive, send)

    desk.app = app  # type: ignore[assignment]


@scenario
async def test_a_header_names_a_person_only_from_an_address_that_is_listed(lab: Lab) -> None:
    named = {"X-Remote-User": "ada", "X-Remote-Groups": "x, staff"}
    for peer, status in (
        ("192.0.2.9", 303),
        ("2001:db8::1", 303),
        ("198.51.100.1", 200),
        (None, 200),
    ):
        desk = Desk(lab.engine, **PROXIED)
        behind(desk, peer)
        browser = Browser(desk)
        assert (await browser.get("/ui/login?next=/ui/runs", **named)).status == status
        assert (await browser.get("/v1/executions", **named)).status == (
            200 if status == 303 else 401
        )
    for wrong in (
        {},
        {"X-Remote-User": ""},
        {"X-Remote-User": "a\tb"},
        {"X-Remote-User": "x" * 300},
    ):
        desk = Desk(lab.engine, **PROXIED)
        behind(desk, "192.0.2.9")
        headers = {"X-Remote-Groups": "staff", **wrong}
        assert (await Browser(desk).get("/ui/login", **headers)).status == 200
    desk = Desk(lab.engine, **PROXIED)
    behind(desk, "192.0.2.9")
    strangers = {"X-Remote-User": "ada", "X-Remote-Groups": "guests"}
    assert (await Browser(desk).get("/ui/login", **strangers)).status == 200


@scenario
async def test_a_session_by_a_proxy_lasts_while_the_proxy_names_the_same_person(lab: Lab) -> None:
    desk = Desk(lab.engine, **PROXIED)
    behind(desk, "192.0.2.9")
    browser = Browser(desk)
    ada = {"X-Remote-User": "ada", "X-Remote-Groups": "staff"}
    await browser.get("/ui/login", **ada)
    assert (await browser.get("/v1/executions", **ada)).status == 200
    assert (await browser.get("/v1/executions")).status == 401
    assert (await browser.get("/v1/executions", **{"X-Remote-User": "bob"})).status == 401
    assert (await browser.get("/v1/executions", **ada)).status == 200


@scenario
async def test_a_session_by_a_proxy_ends_when_the_groups_allow_something_else(lab: Lab) -> None:
    desk = Desk(lab.engine, **PROXIED)
    behind(desk, "192.0.2.9")
    browser = Browser(desk)
    await browser.get("/ui/login", **{"X-Remote-User": "ada", "X-Remote-Groups": "ops"})
    for groups, status in (
        ("x,ops,staff", 200),
        ("staff,ops", 200),
        ("staff", 401),
        ("", 401),
        ("ops", 200),
    ):
        ada = {"X-Remote-User": "ada", "X-Remote-Groups": groups}
        assert (await browser.get("/v1/operations", **ada)).status == status
    staff = {"X-Remote-User": "ada", "X-Remote-Groups": "staff"}
    assert (await browser.get("/ui/login", **staff)).status == 303
    assert (await browser.get("/v1/operations", **staff)).status == 403


@scenario
async def test_the_address_of_the_connection_counts_and_not_the_one_that_is_forwarded(
    lab: Lab,
) -> None:
    desk = Desk(lab.engine, **PROXIED)
    ada = {"X-Remote-User": "ada", "X-Remote-Groups": "staff"}
    for proxies, forwarded, status in (
        (("127.0.0.1",), "203.0.113.5", 303),
        (("203.0.113.0/24",), "203.0.113.5", 200),
    ):
        settings = ServerSettings(**{**PROXIED, "trusted_proxies": proxies})
        desk.app = Server(lab.engine, settings)._behind_proxies()  # type: ignore[assignment]
        headers = {**ada, "X-Forwarded-For": forwarded, "X-Forwarded-Proto": "https"}
        reply = await desk.get("/ui/login", headers=headers)
        assert reply.status == status
        assert ("__Host-ff=" in reply.headers.get("set-cookie", "")) is (status == 303)


# --- settings ------------------------------------------------------------------------------------


def test_the_table_of_groups_is_read_from_the_file_of_settings(tmp_path: Path) -> None:
    path = tmp_path / "ff.toml"
    path.write_text(
        '[server]\npublic_url = "https://ff.example"\n[server.oidc]\n'
        f'issuer = "{ISSUER}"\nclient_id = "{CLIENT}"\n[server.oidc.groups]\n'
        'ops = { scopes = ["operate"], namespaces = ["shop", "web"] }\n'
        '"all staff" = { scopes = ["read", "approve"] }\n'
    )
    settings = choose({}, {}, path).settings
    first, second = grants_of(settings.oidc_groups)
    assert (first.group, first.scopes, first.namespaces) == ("ops", ("operate",), ("shop", "web"))
    assert (second.group, second.namespaces) == ("all staff", None)
    assert provider_of(settings) is not None
    for text in (
        "[server.oidc]\nissue = 'x'",
        "[server.oidc.groups]\nops = { scopes = 'operate' }",
        "[server.oidc.groups]\nops = { namespaces = ['a'] }",
        "[server.oidc.groups]\nops = { scopes = ['operate'], more = [] }",
        "[server.oidc.groups]\nops = { scopes = ['operat'] }",
        "[server.oidc.groups]\nops = { scopes = ['read'], namespaces = ['a+b'] }",
    ):
        path.write_text(text)
        with pytest.raises(InvalidInput, match="oidc"):
            choose({}, {}, path)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("oidc_issuer", {**PEOPLE, "oidc_issuer": "http://idp.example"}),
        ("oidc_issuer", {**PEOPLE, "oidc_issuer": "https://user@idp.example"}),
        ("oidc_client_id", {**PEOPLE, "oidc_client_id": None}),
        ("public_url", {**PEOPLE, "public_url": None}),
        ("oidc_groups", {**PEOPLE, "oidc_groups": ()}),
        ("oidc_groups", {**PEOPLE, "oidc_groups": ("ops",)}),
        ("oidc_groups", {**PEOPLE, "oidc_groups": ("ops=read", "ops=admin")}),
        ("trusted_proxies", {**PROXIED, "trusted_proxies": ()}),
        ("trusted_groups_header", {**PROXIED, "trusted_groups_header": None}),
    ],
)
def test_settings_for_people_that_make_no_sense_are_refused(
    field: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        ServerSettings(**settings)
    assert caught.value.fields["field"] == field


# --- the wire ------------------------------------------------------------------------------------


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"x" * (300_000 if self.path == "/long" else 100)
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Location", "http://169.254.169.254/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is written."""


@pytest.fixture
def address() -> Iterator[str]:
    """A program that answers."""
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@scenario
async def test_an_answer_of_a_provider_is_bounded_and_followed_nowhere(
    lab: Lab, address: str
) -> None:
    assert (await fetch(f"{address}/", form=None, headers={})).body == b"x" * 100
    assert (await fetch(f"{address}/away", form=None, headers={})).status == 302
    with pytest.raises(NoLogin, match="too long"):
        await fetch(f"{address}/long", form=None, headers={})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        with pytest.raises(NoLogin, match="reached"):
            await fetch(nowhere, form=None, headers={})
