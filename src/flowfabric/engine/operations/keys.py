"""Signing keys: one is current, retired ones verify until they expire."""

from __future__ import annotations

from flowfabric import ids, limits
from flowfabric.api import keys as api
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.unit.waits import EVERY_SECRET
from flowfabric.errors import ConfigurationMismatch, InvalidInput
from flowfabric.kernel.wait.keys import RotateKey, SeedKey, is_over, same_secret
from flowfabric.kernel.wait.token import check_kid, check_secret
from flowfabric.model.checks import check_integer
from flowfabric.model.keys import AlreadySeeded, NothingToRotate, Rotated, Seeded
from flowfabric.model.suspension import KeyInfo
from flowfabric.stores.base import Reader

FIRST_KID = "k1"


async def ensure_signing_key(machine: Machine) -> None:
    """On first start: the configured secret, or a random one, is stored.

    A configured secret that is not the stored one is refused, for tokens would not verify;
    unless the stored one is random and has signed nothing yet.
    """
    wanted, kid = machine.config.waitpoint_secret, machine.config.waitpoint_kid
    if wanted is None:
        if not await machine.read(lambda reader: reader.search_keys(EVERY_SECRET)):
            await _seed(machine, FIRST_KID, ids.new_signing_secret(), is_automatic=True)
        return
    secret, name = (
        check_secret(wanted, field="waitpoint_secret"),
        check_kid(kid, field="waitpoint_kid"),
    )
    stored = await machine.read(lambda reader: reader.search(EVERY_SECRET))
    if any(same_secret(each, secret) for each in stored):
        return
    try:
        seeded = await _seed(machine, name, secret)
    except InvalidInput:
        seeded = AlreadySeeded(name, same_secret=False)
    if isinstance(seeded, AlreadySeeded) and not seeded.same_secret:
        raise ConfigurationMismatch(
            "waitpoint_secret: is not the stored one; rotate with `ff keys rotate`"
        )


@answers(api.SeedWaitpointHmacSecret)
async def seed_waitpoint_hmac_secret(
    machine: Machine, request: api.SeedWaitpointHmacSecret
) -> Seeded | AlreadySeeded:
    """Install a given key."""
    kid, secret = check_kid(request.kid), check_secret(request.secret_hex)
    return await _seed(machine, kid, secret, actor=machine.actor(request.actor))


async def _seed(
    machine: Machine, kid: str, secret: str, *, is_automatic: bool = False, actor: str = ""
) -> Seeded | AlreadySeeded:
    """In a transaction of its own: other commands there would use the keys from before."""
    command = SeedKey(kid=kid, secret_hex=secret, is_automatic=is_automatic, actor=actor)
    (seeded,) = await machine.execute_together([command])
    return seeded


@answers(api.RotateWaitpointHmacSecretAll)
async def rotate_waitpoint_hmac_secret_all(
    machine: Machine, request: api.RotateWaitpointHmacSecretAll
) -> Rotated | NothingToRotate:
    """Rotate to a random key unless one is given."""
    name = check_kid(request.new_kid, field="new_kid")
    given = None
    if request.new_secret_hex is not None:
        given = check_secret(request.new_secret_hex, field="new_secret_hex")
    grace = limits.KEY_GRACE_MS_DEFAULT if request.grace_ms is None else request.grace_ms
    grace = check_integer(grace, field="grace_ms", least=0, most=limits.DURATION_MS_MAX)
    command = RotateKey(
        kid=name,
        secret_hex=given or ids.new_signing_secret(),
        grace_ms=grace,
        is_given=given is not None,
        actor=machine.actor(request.actor),
    )
    (rotated,) = await machine.execute_together([command])
    return rotated


@answers(api.ListWaitpointHmacKids)
async def list_waitpoint_hmac_kids(
    machine: Machine, request: api.ListWaitpointHmacKids
) -> tuple[KeyInfo, ...]:
    """Keys that have not expired."""

    async def work(reader: Reader) -> tuple[KeyInfo, ...]:
        await reader.catalog()  # also reads the store's clock
        stored = await reader.search(EVERY_SECRET)
        return tuple(
            KeyInfo(each.kid, bool(each.is_current), each.created_at, each.due_at)
            for each in stored
            if not is_over(each, reader.now)
        )

    return await machine.read(work)
