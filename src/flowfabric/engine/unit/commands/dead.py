"""Commands about dead letters."""

from __future__ import annotations

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.dead import Dismiss, Restore, dismiss, restore
from flowfabric.model.dead import DeadRow, Dismissed, Restored
from flowfabric.model.execution import Execution
from flowfabric.stores.base import Corrupt
from flowfabric.stores.tables import DEAD


@handles(Dismiss)
async def dismiss_dead(unit: Unit, command: Dismiss) -> Dismissed | Refused:
    """Out of the listing."""
    current, row = await _held(unit, command.execution_id)
    if current is not None and not isinstance(current, Execution):
        return unit.view.decide(command)
    return unit.view.apply(None, dismiss(current, row, command, unit.view.at), command)


@handles(Restore)
async def restore_dead(unit: Unit, command: Restore) -> Restored | Refused:
    """Into the listing again."""
    current, row = await _held(unit, command.execution_id)
    if current is not None and not isinstance(current, Execution):
        return unit.view.decide(command)
    return unit.view.apply(None, restore(current, row, command, unit.view.at), command)


async def _held(unit: Unit, execution_id: str) -> tuple[Execution | Corrupt | None, DeadRow | None]:
    """An execution and its dead letter, under the lock of the first."""
    key = (execution_id,)
    row = await unit.overlay.row(DEAD, key)
    if row is not None:
        unit.view.rows.take(DEAD, {key: row})
    return unit.view.executions.get(execution_id), row
