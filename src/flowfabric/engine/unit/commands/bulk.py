"""Commands about bulk operations."""

from __future__ import annotations

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.bulk import StartOperation, StopOperation, start, stop
from flowfabric.kernel.decision import Refused
from flowfabric.model.bulk import BulkOperation, OperationRow
from flowfabric.stores.tables import OPERATIONS


@handles(StartOperation)
async def start_operation(unit: Unit, command: StartOperation) -> BulkOperation | Refused:
    """A new row."""
    known = await _held(unit, command.operation_id)
    return unit.view.apply(None, start(known, command, unit.view.at), command)


@handles(StopOperation)
async def stop_operation(unit: Unit, command: StopOperation) -> BulkOperation | Refused:
    """The row is held, so this waits for the piece that is being done."""
    known = await _held(unit, command.operation_id)
    return unit.view.apply(None, stop(known, command, unit.view.at), command)


async def _held(unit: Unit, operation_id: str) -> OperationRow | None:
    key = (operation_id,)
    unit.view.rows.take(OPERATIONS, await unit.tx.rows(OPERATIONS, [key]))
    return unit.view.rows.get(OPERATIONS, key)
