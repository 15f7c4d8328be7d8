"""Commands about signing keys."""

from __future__ import annotations

from typing import TypeVar

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.engine.unit.waits import EVERY_SECRET
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.wait.keys import RotateKey, SeedKey, rotate_key, seed_key
from flowfabric.model.keys import AlreadySeeded, NothingToRotate, Rotated, Seeded
from flowfabric.model.record import replace
from flowfabric.model.suspension import SecretRow
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import SECRETS, WAITPOINTS

R = TypeVar("R")


@handles(SeedKey)
async def seed(unit: Unit, command: SeedKey) -> Seeded | AlreadySeeded | Refused:
    """By the keys there are, and whether one has signed."""
    stored = await _locked(unit)
    is_used = command.is_automatic or await _is_used(unit)
    return await _keep(unit, seed_key(stored, command, unit.view.at, is_used=is_used), command)


@handles(RotateKey)
async def rotate(unit: Unit, command: RotateKey) -> Rotated | NothingToRotate | Refused:
    """By the keys there are."""
    return await _keep(unit, rotate_key(await _locked(unit), command, unit.view.at), command)


async def _is_used(unit: Unit) -> bool:
    """Whether a key has signed."""
    return bool(await unit.overlay.search_keys(Search(by_key(WAITPOINTS), limit=1)))


async def _locked(unit: Unit) -> list[SecretRow]:
    """Every key, locked; read again once they are."""
    stored = await unit.overlay.search(EVERY_SECRET)
    if stored:
        await unit.tx.rows(SECRETS, sorted((each.kid,) for each in stored))
        stored = await unit.overlay.search(EVERY_SECRET)
    unit.view.rows.take(SECRETS, {(each.kid,): each for each in stored})
    return stored


async def _keep(unit: Unit, decision: Decision[R], command: Command[R]) -> R | Refused:
    """Write key after key: two must never be current, not even inside one statement."""
    unit.view.apply(None, Decision(None, drops=decision.drops))
    for row in decision.saves:
        unit.view.apply(None, Decision(None, saves=(row,)))
        await unit.overlay.save()
    return unit.view.apply(None, replace(decision, saves=(), drops=()), command)
