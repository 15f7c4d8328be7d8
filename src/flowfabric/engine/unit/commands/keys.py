"""Commands about signing keys."""

from __future__ import annotations

from typing import TypeVar

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.engine.unit.waits import SECRETS_MAX
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.wait.keys import RotateKey, SeedKey, rotate_key, seed_key
from flowfabric.model.keys import AlreadySeeded, NothingToRotate, Rotated, Seeded
from flowfabric.model.record import replace
from flowfabric.model.suspension import SecretRow
from flowfabric.stores.tables import SECRETS, WAITPOINTS

R = TypeVar("R")


@handles(SeedKey)
async def seed(unit: Unit, command: SeedKey) -> Seeded | AlreadySeeded | Refused:
    """By the keys there are, and whether one has signed."""
    stored = await _locked(unit)
    is_used = command.is_automatic or bool(await unit.tx.list_rows(WAITPOINTS, None, 1))
    return await _keep(unit, seed_key(stored, command, unit.view.at, is_used=is_used), command)


@handles(RotateKey)
async def rotate(unit: Unit, command: RotateKey) -> Rotated | NothingToRotate | Refused:
    """By the keys there are."""
    return await _keep(unit, rotate_key(await _locked(unit), command, unit.view.at), command)


async def _locked(unit: Unit) -> list[SecretRow]:
    """Every key, locked; read again once they are."""
    await unit.save()
    stored = await unit.tx.list_rows(SECRETS, None, SECRETS_MAX)
    if stored:
        await unit.tx.rows(SECRETS, sorted((each.kid,) for each in stored))
        stored = await unit.tx.list_rows(SECRETS, None, SECRETS_MAX)
    unit.view.rows.take(SECRETS, {(each.kid,): each for each in stored})
    return stored


async def _keep(unit: Unit, decision: Decision[R], command: Command[R]) -> R | Refused:
    """Write key after key: two must never be current, not even inside one statement."""
    unit.view.apply(None, Decision(None, drops=decision.drops))
    for row in decision.saves:
        unit.view.apply(None, Decision(None, saves=(row,)))
        await unit.save()
    return unit.view.apply(None, replace(decision, saves=(), drops=()), command)
