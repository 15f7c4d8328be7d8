"""Signing keys: one is current, retired ones verify in their grace, none is ever overwritten."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric.assemble import open_engine
from flowfabric.engine.engine import Engine
from flowfabric.engine.operations.keys import ensure_signing_key
from flowfabric.errors import ConfigurationMismatch, InvalidInput, RotationConflict
from flowfabric.kernel.wait.keys import KIDS_MAX
from flowfabric.limits import DURATION_MS_MAX
from flowfabric.model.keys import AlreadySeeded, NothingToRotate, Rotated, Seeded
from flowfabric.model.record import replace
from flowfabric.model.suspension import Count, CountKind, SignalEffect
from flowfabric.stores.tables import SECRETS
from tests.support.databases import config_for
from tests.support.lab import Lab, scenario
from tests.support.waits import suspended, told

A, B = "a1" * 32, "b2" * 32
MANY = Count(100, CountKind.DISTINCT_SIGNALS, ("a",))


def beside(lab: Lab, **settings: object) -> Engine:
    """Another engine on the same store."""
    config = replace(config_for(lab.url), **settings)
    return open_engine(lab.url, config=config, clock=lab.clock)


async def kids(lab: Lab) -> dict[str, bool]:
    """Every key that verifies, and whether it is current."""
    return {each.kid: each.is_current for each in await lab.engine.list_waitpoint_hmac_kids()}


@scenario
async def test_the_first_start_stores_a_random_key(lab: Lab) -> None:
    """256 random bits, kid k1, current; the next start finds it."""
    (row,) = (await lab.dump())[SECRETS.name]
    assert (row.kid, row.is_current, row.due_at) == ("k1", 1, None)
    assert len(row.secret_hex) == 64
    async with lab.unchanged():
        await ensure_signing_key(lab.engine)


@scenario
async def test_an_unused_automatic_key_gives_way_to_a_chosen_one(lab: Lab) -> None:
    """Issue 10 C: seeding can answer Seeded although every start makes sure of a key."""
    seed = lab.engine.seed_waitpoint_hmac_secret
    assert await seed(kid="chosen", secret_hex=A) == Seeded("chosen")
    assert await kids(lab) == {"chosen": True, "k1": False}  # what raced for k1 still verifies
    assert (await lab.operator_events("chosen"))[-1].event_type == "key_seeded"
    async with lab.unchanged():
        assert await seed(kid="chosen", secret_hex=A) == AlreadySeeded("chosen", True)
        with pytest.raises(InvalidInput, match="rotate"):
            await seed(kid="other", secret_hex=B)
    waiting = await suspended(lab)
    assert waiting.outcome.waitpoints[0].token.reveal().startswith("chosen:")
    assert await waiting.effect() is SignalEffect.RESUMED


@scenario
async def test_a_chosen_key_takes_the_name_of_the_unused_automatic_one(lab: Lab) -> None:
    """Seeds' servers seed `k1`; it is one key afterwards."""
    seed = lab.engine.seed_waitpoint_hmac_secret
    assert await seed(kid="k1", secret_hex=A) == Seeded("k1")
    (row,) = (await lab.dump())[SECRETS.name]
    assert (row.secret_hex, row.is_current, row.is_automatic) == (A, 1, 0)
    assert await seed(kid="k1", secret_hex=B) == AlreadySeeded("k1", False)


@scenario
async def test_seeding_never_overwrites_what_has_signed(lab: Lab) -> None:
    await suspended(lab)
    (row,) = (await lab.dump())[SECRETS.name]
    seed = lab.engine.seed_waitpoint_hmac_secret
    async with lab.unchanged():
        assert await seed(kid="k1", secret_hex=row.secret_hex) == AlreadySeeded("k1", True)
        same = await seed(kid="k1", secret_hex=row.secret_hex.upper())
        assert same == AlreadySeeded("k1", True)
        assert await seed(kid="k1", secret_hex=A) == AlreadySeeded("k1", False)
    async with lab.refuses(InvalidInput, "rotate"):
        await seed(kid="k2", secret_hex=A)


@scenario
async def test_rotation_keeps_one_current_key(lab: Lab) -> None:
    """Noop on exact replay, a conflict on another secret, grace on the old one."""
    rotate = lab.engine.rotate_waitpoint_hmac_secret_all
    assert await rotate(new_kid="a", new_secret_hex=A, grace_ms=1000) == Rotated("k1", "a", 0)
    async with lab.unchanged():
        assert await rotate(new_kid="a", new_secret_hex=A) == NothingToRotate("a")
        assert await rotate(new_kid="a") == NothingToRotate("a")
        with pytest.raises(RotationConflict, match="new_kid"):
            await rotate(new_kid="a", new_secret_hex=B)
        with pytest.raises(RotationConflict, match="new_kid"):
            await rotate(new_kid="k1", new_secret_hex=B)
    assert await kids(lab) == {"k1": False, "a": True}
    lab.clock.advance(999)
    assert await kids(lab) == {"k1": False, "a": True}
    lab.clock.advance(1)
    assert await kids(lab) == {"a": True}
    assert await rotate(new_kid="b", new_secret_hex=B) == Rotated("a", "b", 1)
    assert {row.kid for row in (await lab.dump())[SECRETS.name]} == {"a", "b"}
    found = {each.kid: each.expires_at for each in await lab.engine.list_waitpoint_hmac_kids()}
    assert found == {"a": lab.now + 86_400_000, "b": None}


@told
async def test_rotating_back_voids_nothing(lab: Lab) -> None:
    """A→B→A keeps A's secret, clears its expiry, and is never collected."""
    rotate = lab.engine.rotate_waitpoint_hmac_secret_all
    await rotate(new_kid="a", new_secret_hex=A)
    first = await suspended(lab, MANY)
    await rotate(new_kid="b", new_secret_hex=B, grace_ms=1000)
    second = await suspended(lab, MANY)
    async with lab.refuses(RotationConflict):
        await rotate(new_kid="a", new_secret_hex=B)
    assert await rotate(new_kid="a", new_secret_hex=A, grace_ms=500) == Rotated("b", "a", 0)
    assert (await kids(lab))["a"]
    await lab.after(500)
    assert await first.effect() is SignalEffect.APPENDED
    await lab.after(2 * 86_400_000)
    assert await kids(lab) == {"a": True}
    assert await first.effect() is SignalEffect.APPENDED
    with pytest.raises(Exception, match="invalid_token"):
        await second.send()
    assert (await rotate(new_kid="c", grace_ms=1)) == Rotated("a", "c", 0)
    assert await kids(lab) == {"a": False, "c": True}
    assert await first.effect() is SignalEffect.APPENDED


@told
async def test_a_name_may_be_used_again_when_its_key_is_over(lab: Lab) -> None:
    """An expired key does not come back to life under its name."""
    rotate = lab.engine.rotate_waitpoint_hmac_secret_all
    old = await suspended(lab, MANY)
    await rotate(new_kid="b", grace_ms=10)
    lab.clock.advance(10)
    assert await rotate(new_kid="k1", grace_ms=10) == Rotated("b", "k1", 1)
    with pytest.raises(Exception, match="invalid_token"):
        await old.send()
    new = await suspended(lab, MANY)
    assert new.at["a"].token.reveal().startswith("k1:")
    assert await new.effect() is SignalEffect.APPENDED


@told
async def test_a_grace_of_nothing_retires_at_once(lab: Lab) -> None:
    waiting = await suspended(lab, MANY)
    await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="b", grace_ms=0)
    with pytest.raises(Exception, match="invalid_token"):
        await waiting.send()
    assert await kids(lab) == {"b": True}


@scenario
async def test_expired_keys_are_swept_and_the_current_never(lab: Lab) -> None:
    """By the loop too."""
    await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="b", grace_ms=1000)
    await lab.after(999)
    assert len((await lab.dump())[SECRETS.name]) == 2
    await lab.after(1)
    assert [row.kid for row in (await lab.dump())[SECRETS.name]] == ["b"]
    await lab.after(DURATION_MS_MAX // 100)
    assert await kids(lab) == {"b": True}


@scenario
async def test_only_so_many_keys_verify_at_once(lab: Lab) -> None:
    """The current key is never lost in a crowd of retired ones."""
    rotate = lab.engine.rotate_waitpoint_hmac_secret_all
    for number in range(KIDS_MAX - 1):
        await rotate(new_kid=f"n{number}", grace_ms=1000)
    async with lab.refuses(InvalidInput, "new_kid"):
        await rotate(new_kid="one-more")
    await rotate(new_kid="k1", grace_ms=1000)
    lab.clock.advance(1000)
    assert await rotate(new_kid="one-more") == Rotated("k1", "one-more", KIDS_MAX - 1)


@scenario
async def test_one_validator_for_kids_secrets_and_grace(lab: Lab) -> None:
    """No secret in the error, nothing changed."""
    seed = lab.engine.seed_waitpoint_hmac_secret
    rotate = lab.engine.rotate_waitpoint_hmac_secret_all
    async with lab.unchanged():
        for kid in ("", "a:b", "a b", "x" * 33, "ä", None, 5, "a\n"):
            with pytest.raises(InvalidInput, match="kid"):
                await seed(kid=kid, secret_hex=A)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="new_kid"):
                await rotate(new_kid=kid, new_secret_hex=A)  # type: ignore[arg-type]
        for secret in ("", "ab", "zz" * 32, "ab" * 31, "abc" * 23, "00" * 32, 5, b"ab" * 32):
            with pytest.raises(InvalidInput, match="secret_hex") as first:
                await seed(kid="k2", secret_hex=secret)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="new_secret_hex") as second:
                await rotate(new_kid="k2", new_secret_hex=secret)  # type: ignore[arg-type]
            for caught in (first, second):
                assert not secret or str(secret) not in str(caught.value)
        for grace in (-1, DURATION_MS_MAX + 1, 2**53, 1.5, "1", True):
            with pytest.raises(InvalidInput, match="grace_ms"):
                await rotate(new_kid="k2", grace_ms=grace)  # type: ignore[arg-type]


@scenario
async def test_rotations_at_once_end_with_one_current_key(lab: Lab) -> None:
    """Whatever their order, and no error but a conflict of the same name."""
    rotate = lab.engine.rotate_waitpoint_hmac_secret_all
    done = await asyncio.gather(*(rotate(new_kid=f"n{number}") for number in range(8)))
    assert all(isinstance(each, Rotated) for each in done)
    assert sum((await kids(lab)).values()) == 1
    assert len(await kids(lab)) == 9
    chain = {each.previous_kid for each in done if isinstance(each, Rotated)}
    assert len(chain) == 8


def test_a_configured_secret_is_installed_and_a_wrong_one_refused(durable_lab: Lab) -> None:
    """Refuses to start on a mismatch or a weak key; the refusal shows no secret."""
    lab = durable_lab

    async def check() -> None:
        await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="mine", new_secret_hex=A)
        good = beside(lab, waitpoint_secret=A.upper())
        await good.start()
        await good.close()
        for wrong, error in (
            (B, ConfigurationMismatch),
            ("00" * 32, InvalidInput),
            ("x", InvalidInput),
        ):
            engine = beside(lab, waitpoint_secret=wrong)
            async with lab.unchanged():
                with pytest.raises(error, match="waitpoint_secret") as caught:
                    await engine.start()
            assert wrong not in str(caught.value).split()
            await engine.close()

    lab.run(check())


def test_two_engines_that_start_at_once_agree_on_one_key(durable_lab: Lab) -> None:
    """An empty store ends with one current key, ten times over."""
    lab = durable_lab

    async def check() -> None:
        for number in range(10):
            await lab.sql("DELETE FROM ff_waitpoint_hmac")
            engines = [beside(lab), beside(lab, waitpoint_secret=A if number % 2 else None)]
            done = await asyncio.gather(
                *(engine.start() for engine in engines), return_exceptions=True
            )
            rows = (await lab.dump())[SECRETS.name]
            assert [row.is_current for row in rows] == [1]
            assert done == [None, None]
            assert (rows[0].secret_hex == A) is bool(number % 2)  # the configured one wins
            for engine in engines:
                await engine.close()

    lab.run(check())


def test_a_fresh_store_takes_the_configured_secret(durable_lab: Lab) -> None:
    lab = durable_lab

    async def check() -> None:
        await lab.sql("DELETE FROM ff_waitpoint_hmac")
        engine = beside(lab, waitpoint_secret=A)
        await engine.start()
        (row,) = (await lab.dump())[SECRETS.name]
        assert (row.kid, row.secret_hex) == ("k1", A)
        assert await engine.seed_waitpoint_hmac_secret(kid="k1", secret_hex=A) == AlreadySeeded(
            "k1", True
        )
        await engine.close()
        await lab.sql("DELETE FROM ff_waitpoint_hmac")
        named = beside(lab, waitpoint_secret=B, waitpoint_kid="2027")
        await named.start()
        assert await kids(lab) == {"2027": True}
        await named.close()
        malformed = beside(lab, waitpoint_secret=B, waitpoint_kid="a:b")
        with pytest.raises(InvalidInput, match="waitpoint_kid"):
            await malformed.start()
        await malformed.close()
        await lab.sql("DELETE FROM ff_waitpoint_hmac")
        seeded = await lab.engine.seed_waitpoint_hmac_secret(kid="z", secret_hex=B)
        assert seeded == Seeded("z")
        await lab.sql("DELETE FROM ff_waitpoint_hmac")
        bootstrap = await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="b")
        assert bootstrap == Rotated(None, "b", 0)

    lab.run(check())
