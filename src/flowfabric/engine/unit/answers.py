"""A second look for a call that was refused: it may repeat one that was answered before."""

from __future__ import annotations

from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.view import View
from flowfabric.kernel.execution.answer import answered_before
from flowfabric.kernel.execution.cancel import Cancel
from flowfabric.kernel.execution.complete import Complete
from flowfabric.kernel.execution.fail import Fail
from flowfabric.kernel.execution.own import Delay
from flowfabric.kernel.flow.dependent import WaitChildren
from flowfabric.kernel.journal.chapter import Continue
from flowfabric.kernel.registry import REPEATABLE
from flowfabric.model.answer import Answer
from flowfabric.stores.base import Transaction
from flowfabric.stores.tables import ANSWERS

# The keys of REPEATABLE.
Repeatable = Complete | Fail | Cancel | Delay | WaitChildren | Continue


async def first_answer(tx: Transaction, view: View, command: Repeatable) -> Answer | None:
    """What this call was answered when its lease lived; only refused calls pay for the look."""
    fence = command.fence
    if fence is None or command.execution_id not in view.executions:
        return None
    key = (command.execution_id, fence.lease_epoch)
    if view.rows.get(ANSWERS, key) is None:
        found, _ = await readable(tx.peek_rows, ANSWERS, [key])
        view.rows.take(ANSWERS, found)
    return answered_before(view.rows.get(ANSWERS, key), fence, REPEATABLE[type(command)], view.at)
