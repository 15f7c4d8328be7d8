"""Flows that ended: which hooks an end runs, and what they are told."""

from __future__ import annotations

from typing import Any

from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.hook.ended import create_successor, hooks_of
from flowfabric.model.flow import FlowRow, FlowState, final_counts
from flowfabric.model.record import fields_of, to_json
from flowfabric.model.successor import FlowEnded, Hook, Origin, Role

_RUN_BY = {Role.ON_SUCCESS: FlowState.COMPLETED, Role.ON_FAILURE: FlowState.FAILED}


def life_of(flow: FlowRow) -> int:
    """How often the flow went on after an end, as far as it has hooks to tell that to."""
    return 0 if flow.hooks is None else flow.hooks.life


def is_end(before: FlowRow | None, flow: FlowRow) -> bool:
    """Whether hooks follow the change from one image of a flow to the next."""
    if flow.hooks is None or flow.finished_at is None:
        return False
    if before is None or before.finished_at is None:
        return True
    return life_of(before) != life_of(flow)


def flow_hooks_due(ended: FlowRow) -> list[tuple[Role, Hook]]:
    """The hooks that the end of a flow runs."""
    state = ended.public_flow_state
    return [
        (role, hook) for role, hook in hooks_of(ended.hooks) if _RUN_BY.get(role, state) is state
    ]


def create_flow_hook(ended: FlowRow, role: Role, hook: Hook, execution_id: str) -> CreateExecution:
    """The execution of a flow's hook."""
    payload = b"{}"
    if hook.argument is not None:
        document: dict[str, Any] = {hook.argument: fields_of(_flow_ended(ended))}
        payload = to_json(document)
    origin = Origin(role, life_of(ended), flow_id=ended.flow_id)
    return create_successor(hook.successor, execution_id, payload, origin)


def _flow_ended(ended: FlowRow) -> FlowEnded:
    hooks = ended.hooks
    return FlowEnded(
        ended.flow_id,
        ended.flow_kind,
        ended.public_flow_state.value,
        ended.cancel_reason,
        None if hooks is None else hooks.key,
        ended.tags,
        {state.value: number for state, number in final_counts(ended).items()},
        ended.finished_at or 0,
    )
