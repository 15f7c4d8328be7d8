"""Sessions: known by their text alone, and over by time, by logout, or with their token."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import InvalidInput, Unauthorized
from flowfabric.limits import SESSION_USE_MS, TOKEN_LIFE_MS_DEFAULT
from flowfabric.model.session import SessionOpened, Way
from flowfabric.model.suspension import Token
from tests.support.lab import Lab, scenario

HOUR_MS = 3_600_000


async def opened(lab: Lab, **fields: Any) -> SessionOpened:
    given = {"way": "oidc", "subject": "ada", "roles": ("ops",), **fields}
    return await lab.engine.open_session(**given)


@scenario
async def test_a_session_is_known_by_its_text_alone(lab: Lab) -> None:
    one = await opened(lab)
    found = await lab.engine.read_session(text=one.text)
    assert (found.way, found.subject, found.roles) == (Way.OIDC, "ada", ("ops",))
    assert (found.created_at, found.ends_at) == (lab.now, lab.now + 7 * 24 * HOUR_MS)
    text = one.text.reveal()
    assert len(text) == 43
    for wrong in ("", text[:-1], f"{text}0", text.swapcase(), f"{text[:-1]}ß", f" {text}"):
        async with lab.refuses(Unauthorized):
            await lab.engine.read_session(text=Token(wrong))


@scenario
async def test_the_text_of_a_session_is_stored_nowhere(lab: Lab) -> None:
    one = await opened(lab)
    assert one.text.reveal() not in repr(await lab.engine.dump())
    assert one.text.reveal() not in repr(one)


@scenario
async def test_a_session_is_over_without_use_and_at_its_end(lab: Lab) -> None:
    idle = await opened(lab, idle_ms=HOUR_MS, life_ms=3 * HOUR_MS)
    used = await opened(lab, idle_ms=HOUR_MS, life_ms=3 * HOUR_MS)
    for _ in range(5):
        await lab.after(HOUR_MS // 2)
        await lab.engine.read_session(text=used.text)
    async with lab.refuses(Unauthorized):
        await lab.engine.read_session(text=idle.text)
    await lab.after(HOUR_MS // 2)
    async with lab.refuses(Unauthorized):
        await lab.engine.read_session(text=used.text)
    await lab.engine.tick()
    assert (await lab.engine.dump())["ff_session"] == []


@scenario
async def test_the_use_of_a_session_is_noted_every_five_minutes_at_most(lab: Lab) -> None:
    one = await opened(lab)
    began = lab.now
    for after_ms, noted in ((SESSION_USE_MS - 1, 0), (1, SESSION_USE_MS), (1, SESSION_USE_MS)):
        await lab.after(after_ms)
        await lab.engine.read_session(text=one.text)
        (row,) = (await lab.engine.dump())["ff_session"]
        assert row.used_at == began + noted


@scenario
async def test_a_session_that_has_ended_opens_nothing(lab: Lab) -> None:
    one = await opened(lab)
    assert (await lab.engine.end_session(text=one.text)).is_new
    async with lab.refuses(Unauthorized):
        await lab.engine.read_session(text=one.text)
    assert not (await lab.engine.end_session(text=one.text)).is_new
    assert not (await lab.engine.end_session(text=Token("nonsense"))).is_new


@scenario
async def test_a_session_ends_when_another_replaces_it(lab: Lab) -> None:
    one = await opened(lab)
    two = await opened(lab, replaces=one.text)
    async with lab.refuses(Unauthorized):
        await lab.engine.read_session(text=one.text)
    assert (await lab.engine.read_session(text=two.text)).subject == "ada"


@scenario
async def test_a_session_ends_with_the_token_that_it_was_begun_with(lab: Lab) -> None:
    made = await lab.engine.create_access_token(
        name="ada", scopes=("read",), namespaces=("a",), expires_in_ms=3 * HOUR_MS
    )
    one = await opened(lab, way="token", token=made.token, subject="", roles=())
    found = await lab.engine.read_session(text=one.text)
    assert found.token is not None
    assert (found.token.id, found.token.namespaces, found.subject) == (made.id, ("a",), "ada")
    assert found.ends_at == made.expires_at
    await lab.engine.revoke_access_token(token_id=made.id)
    async with lab.refuses(Unauthorized):
        await lab.engine.read_session(text=one.text)
    async with lab.refuses(Unauthorized):
        await opened(lab, way="token", token=made.token, subject="", roles=())


@scenario
async def test_a_token_that_opens_nothing_begins_no_session(lab: Lab) -> None:
    made = await lab.engine.create_access_token(name="ci", scopes=("read",))
    text = made.token.reveal()
    assert made.expires_at == lab.now + TOKEN_LIFE_MS_DEFAULT
    for wrong in ("", "ff_x", text[:-1]):
        async with lab.refuses(Unauthorized):
            await opened(lab, way="token", token=Token(wrong), subject="", roles=())
    assert (await lab.engine.dump())["ff_session"] == []


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("way", {"way": "password"}),
        ("token", {"way": "token"}),
        ("token", {"token": Token("ff_x")}),
        ("token", {"way": "token", "token": "ff_x"}),
        ("subject", {"subject": ""}),
        ("roles", {"roles": "ops"}),
        ("roles", {"roles": tuple(map(str, range(101)))}),
        ("idle_ms", {"idle_ms": 0}),
        ("life_ms", {"life_ms": -1}),
        ("replaces", {"replaces": "text"}),
    ],
)
@scenario
async def test_a_bad_argument_is_named(lab: Lab, field: str, fields: dict[str, Any]) -> None:
    async with lab.refuses(InvalidInput, field):
        await opened(lab, **fields)
