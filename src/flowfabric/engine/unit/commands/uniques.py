"""Submits under unique keys."""

from __future__ import annotations

from typing import Any

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.order.unique import CreateUnique, Met, begun, meet, row_of
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.results import Batched, Created, CreateResult
from flowfabric.model.unique import UniqueRow
from flowfabric.stores.tables import KEYS, UNIQUES


@handles(CreateUnique)
async def create_unique(unit: Unit, command: CreateUnique) -> CreateResult | Refused:
    """The idempotency key is looked at first; then the execution that has the unique key."""
    view = unit.view
    command = begun(command, view.at)
    current = view.executions.get(command.execution_id)
    decision = view.preview(command, current if isinstance(current, Execution) else None)
    if decision.execution is None:  # refused, or done before
        return decision.reply
    found = unit.tied.uniques.holder(command.unique_key)
    if isinstance(found, Refused):
        return found
    replaced_id = None
    if found is not None:
        met = await _meet(unit, *found, command)
        reply = _take(unit, found[1], met, command, decision)
        if reply is not None:
            return reply
        ended = met.decision.execution
        replaced_id = ended.execution_id if ended is not None and ended.is_terminal else None
    view.rows.put(UNIQUES, row_of(command, view.at))
    new = decision.new
    if command.unique.batch_items is not None and new is not None and new.idempotency is not None:
        new = replace(new, idempotency=replace(new.idempotency, batch_index=0))
        decision = replace(decision, new=new)
    view.take_created(command, decision)
    reply = decision.reply
    if isinstance(reply, Created):
        index = None if command.unique.batch_items is None else 0
        reply = replace(reply, batch_index=index, replaced_id=replaced_id)
    return reply


async def _meet(unit: Unit, row: UniqueRow, other: Execution, command: CreateUnique) -> Met:
    body = None
    if command.unique.batch_items is not None:
        body = (await unit.overlay.bodies([other.execution_id])).get(other.execution_id)
    return meet(row, other, body, command, unit.view.at)


def _take(
    unit: Unit, other: Execution, met: Met, command: CreateUnique, created: Decision[Any]
) -> CreateResult | Refused | None:
    """What it means to the other one joins the batch; None where a new one is to be created."""
    view = unit.view
    reply = view.apply(other, met.decision, command)
    if isinstance(reply, Refused):
        return reply
    if met.payload is not None:
        view.hand_over(other.execution_id, met.payload, command.body.payload_encoding)
    if met.row is not None:
        view.rows.put(UNIQUES, met.row)
    if met.drops:
        view.rows.drop(UNIQUES, [command.unique_key])
    known = None if created.new is None else created.new.idempotency
    if reply is not None and known is not None:
        index = reply.batch_index if isinstance(reply, Batched) else None
        view.rows.put(KEYS, replace(known, execution_id=other.execution_id, batch_index=index))
    return reply
