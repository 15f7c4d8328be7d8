"""Signing keys: one is current, retired ones verify until they expire."""

from __future__ import annotations

import hmac

from flowfabric import ids, limits
from flowfabric.api import keys as api
from flowfabric.api.keys import AlreadySeeded, NothingToRotate, Rotated, Seeded
from flowfabric.engine.core import EngineCore
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.unit.waits import SECRETS_MAX
from flowfabric.errors import ConfigurationMismatch, InvalidInput, RotationConflict
from flowfabric.kernel.wait.token import check_kid, check_secret, current, gives_way
from flowfabric.model.checks import check_integer
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.record import replace
from flowfabric.model.suspension import KeyInfo, SecretRow
from flowfabric.stores.base import Changes, Reader, RowChanges, Transaction
from flowfabric.stores.tables import SECRETS, WAITPOINTS

FIRST_KID = "k1"
KIDS_MAX = 32  # keys that verify at once


async def ensure_signing_key(machine: EngineCore) -> None:
    """On first start: the configured secret, or a random one, is stored.

    A configured secret that is not the stored one is refused, for tokens would not verify;
    unless the stored one is random and has signed nothing yet.
    """
    wanted, kid = machine.config.waitpoint_secret, machine.config.waitpoint_kid
    if wanted is None:
        if not await machine.read(lambda reader: reader.list_rows(SECRETS, None, 1)):
            await _seed(machine, FIRST_KID, ids.new_signing_secret(), automatic=True)
        return
    secret, name = (
        check_secret(wanted, field="waitpoint_secret"),
        check_kid(kid, field="waitpoint_kid"),
    )
    stored = await machine.read(lambda reader: reader.list_rows(SECRETS, None, SECRETS_MAX))
    if any(_same(each, secret) for each in stored):
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
    machine: EngineCore, request: api.SeedWaitpointHmacSecret
) -> Seeded | AlreadySeeded:
    """A chosen key."""
    return await _seed(machine, check_kid(request.kid), check_secret(request.secret_hex))


async def _seed(
    machine: EngineCore, name: str, secret: str, *, automatic: bool = False
) -> Seeded | AlreadySeeded:
    async def work(tx: Transaction) -> Seeded | AlreadySeeded:
        await tx.catalog()
        stored = await _held(tx)
        known = next((each for each in stored if each.kid == name), None)
        is_used = automatic or bool(await tx.list_rows(WAITPOINTS, None, 1))
        if not gives_way(stored, is_used=is_used):
            if known is not None:
                return AlreadySeeded(name, _same(known, secret))
            if stored:
                raise InvalidInput("kid: another key is current, rotate instead", field="kid")
        if known is not None:
            await _write(tx, updated=[SecretRow(name, secret, tx.now, 1, None)])
        elif stored:
            await _rotate(tx, stored, name, secret, limits.KEY_GRACE_MS_DEFAULT, True)
        else:
            first = SecretRow(name, secret, tx.now, 1, None, int(automatic))
            await _write(tx, inserted=[first])
        if not automatic:
            await _audit(tx, name, OperatorEventType.KEY_SEEDED)
        return Seeded(name)

    return await machine.transact(work)


@answers(api.RotateWaitpointHmacSecretAll)
async def rotate_waitpoint_hmac_secret_all(
    machine: EngineCore, request: api.RotateWaitpointHmacSecretAll
) -> Rotated | NothingToRotate:
    """A random key unless one is given."""
    name = check_kid(request.new_kid, field="new_kid")
    given = None
    if request.new_secret_hex is not None:
        given = check_secret(request.new_secret_hex, field="new_secret_hex")
    grace = limits.KEY_GRACE_MS_DEFAULT if request.grace_ms is None else request.grace_ms
    grace = check_integer(grace, field="grace_ms", least=0, most=limits.DURATION_MS_MAX)
    fresh = given or ids.new_signing_secret()

    async def work(tx: Transaction) -> Rotated | NothingToRotate:
        await tx.catalog()
        rotated = await _rotate(tx, await _held(tx), name, fresh, grace, given is not None)
        if isinstance(rotated, Rotated):
            details = {"previous_kid": rotated.previous_kid, "grace_ms": grace}
            await _audit(tx, name, OperatorEventType.KEY_ROTATED, **details)
        return rotated

    return await machine.transact(work)


@answers(api.ListWaitpointHmacKids)
async def list_waitpoint_hmac_kids(
    machine: EngineCore, request: api.ListWaitpointHmacKids
) -> tuple[KeyInfo, ...]:
    """Those that are not over."""

    async def work(reader: Reader) -> tuple[KeyInfo, ...]:
        await reader.catalog()  # also reads the store's clock
        stored = await reader.list_rows(SECRETS, None, SECRETS_MAX)
        return tuple(
            KeyInfo(each.kid, bool(each.is_current), each.created_at, each.due_at)
            for each in stored
            if not _is_over(each, reader.now)
        )

    return await machine.read(work)


async def _held(tx: Transaction) -> list[SecretRow]:
    """Every key, held; read again once they are."""
    stored = await tx.list_rows(SECRETS, None, SECRETS_MAX)
    if stored:
        await tx.rows(SECRETS, sorted((each.kid,) for each in stored))
    return await tx.list_rows(SECRETS, None, SECRETS_MAX)


async def _audit(
    tx: Transaction, kid: str, event_type: OperatorEventType, **details: object
) -> None:
    """What is told of a key: its name and never its secret."""
    changes = Changes()
    changes.operator_events.append(OperatorEvent(kid, event_type, details, "", {}, tx.now))
    await tx.save(changes)


async def _rotate(
    tx: Transaction, stored: list[SecretRow], name: str, secret: str, grace: int, given: bool
) -> Rotated | NothingToRotate:
    gone = [each for each in stored if _is_over(each, tx.now)]
    kept = [each for each in stored if each not in gone]
    known = next((each for each in kept if each.kid == name), None)
    if known is not None:
        if given and not _same(known, secret):
            raise RotationConflict(f"new_kid: {name} has another secret", field="new_kid")
        if known.is_current:
            return NothingToRotate(name)
    elif len(kept) >= KIDS_MAX:
        raise InvalidInput(f"new_kid: {KIDS_MAX} keys still verify", field="new_kid")
    old = current(kept)
    retired = [] if old is None else [replace(old, is_current=0, due_at=tx.now + grace)]
    # Two steps: there must never be two current keys, not even inside one statement.
    await _write(tx, updated=retired, deleted=[(each.kid,) for each in gone])
    if known is None:
        await _write(tx, inserted=[SecretRow(name, secret, tx.now, 1, None)])
    else:
        again = replace(known, is_current=1, due_at=None, created_at=tx.now)
        await _write(tx, updated=[again])
    return Rotated(old.kid if old is not None else None, name, len(gone))


async def _write(
    tx: Transaction,
    *,
    inserted: list[SecretRow] | None = None,
    updated: list[SecretRow] | None = None,
    deleted: list[tuple[str]] | None = None,
) -> None:
    rows = RowChanges()
    rows.inserted += inserted or []
    rows.updated += updated or []
    rows.deleted += deleted or []
    changes = Changes()
    if rows:
        changes.rows = {SECRETS: rows}
        await tx.save(changes)


def _is_over(row: SecretRow, now: int) -> bool:
    return row.due_at is not None and row.due_at <= now


def _same(row: SecretRow, secret_hex: str) -> bool:
    return hmac.compare_digest(row.secret_hex.encode(), secret_hex.encode())
