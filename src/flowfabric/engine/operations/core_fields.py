"""An execution's fields as text under the seeds' names, for tools that ask for single fields."""

from __future__ import annotations

from typing import Final

from flowfabric.kernel.wait.condition import keys_of
from flowfabric.model.execution import Execution
from flowfabric.model.record import to_plain
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import open_waitpoints
from flowfabric.stores.tables import SUSPENSIONS

CURRENT_WAITPOINT: Final = "current_waitpoint_id"
_SECRET_FIELDS: Final = ("lease_id", "grant")


def core_fields(execution: Execution) -> dict[str, str | None]:
    """Every field but the waitpoint, which is another row."""
    attempt_index = execution.attempt_index or 0
    values: dict[str, object] = {
        name: value
        for name in Execution.__struct_fields__
        if name not in _SECRET_FIELDS
        and isinstance(value := getattr(execution, name), str | int | None)
    }
    values |= {
        **to_plain(execution.state),
        "public_state": execution.public_state.value,
        "lane_id": execution.lane_id,
        "namespace": execution.namespace,
        "execution_kind": execution.execution_kind,
        "attempt_index": attempt_index,
        "current_attempt_index": attempt_index,
        "created_at_ms": execution.created_at,
        "terminal_at_ms": execution.completed_at,
        "deadline_at_ms": execution.deadline_at,
        "cancel_reason": execution.cancellation_reason,
        "required_capabilities": ",".join(execution.route.required_capabilities),
        "current_worker_instance_id": execution.worker_instance_id,
        "budget_ids": ",".join(execution.bounds.budget_ids),
        "quota_policy_id": execution.bounds.quota_policy_id,
    }
    return {name: None if value is None else str(value) for name, value in values.items()}


async def current_waitpoint(reader: Reader, execution: Execution) -> str | None:
    """The first waitpoint of the open suspension; None without one."""
    if execution.suspension_id is None:
        return None
    key = (execution.execution_id, execution.suspension_id)
    episode = (await reader.peek_rows(SUSPENSIONS, [key])).get(key)
    if episode is None:
        return None
    order = keys_of(episode.condition)
    rows = await reader.search(open_waitpoints([execution.execution_id]))
    bound = [row for row in rows if row.suspension_id == execution.suspension_id]
    bound.sort(key=lambda row: (order.index(row.waitpoint_key) if order else 0, row.waitpoint_id))
    return bound[0].waitpoint_id if bound else None
