"""Commands about dead letters."""

from __future__ import annotations

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.dead import Dismiss, dismiss
from flowfabric.model.dead import Dismissed
from flowfabric.model.execution import Execution
from flowfabric.stores.tables import DEAD


@handles(Dismiss)
async def dismiss_dead(unit: Unit, command: Dismiss) -> Dismissed | Refused:
    """Under the lock of its execution."""
    view, key = unit.view, (command.execution_id,)
    current = view.executions.get(command.execution_id)
    if current is not None and not isinstance(current, Execution):
        return view.decide(command)
    row = await unit.overlay.row(DEAD, key)
    if row is not None:
        view.rows.take(DEAD, {key: row})
    return view.apply(None, dismiss(current, row, command, view.at), command)
