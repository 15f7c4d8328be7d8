"""New work: one execution, many at once, or inside a caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from flowfabric import limits
from flowfabric.api import executions as api
from flowfabric.api.executions import NewExecution
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.performing import answers, readied
from flowfabric.engine.operations.requests import to_create
from flowfabric.engine.operations.submits import recorded_submit, submit_recorded
from flowfabric.errors import FlowFabricError, InvalidInput
from flowfabric.ids import member_ids, new_execution_id, new_execution_ids
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.model.checks import check_list, check_uuid
from flowfabric.model.results import CreateResult


@readied(api.NewExecution)
async def create_execution(machine: Machine, request: NewExecution) -> CreateExecution:
    """Create one, which shares a commit with other commands."""
    command = to_create(request, machine.config, _new_id(machine, request))
    await machine.known.ensure((command,))
    return command


@answers(api.CreateExecutions)
async def create_executions(machine: Machine, request: api.CreateExecutions) -> list[CreateResult]:
    """Create many in a transaction of their own."""
    commands = _checked(machine, request.requests)
    recorded = recorded_submit(machine, request.handle, request.entries, commands)
    await machine.known.ensure(commands)
    if recorded is not None:
        return cast("list[CreateResult]", await submit_recorded(machine, recorded))
    return await machine.execute_together(commands, _raise_first_refusal)


@answers(api.CreateExecutionsIn)
async def create_executions_in(
    machine: Machine, request: api.CreateExecutionsIn
) -> list[CreateResult]:
    """Create in the caller's transaction."""
    commands = _checked(machine, request.requests)
    return await machine.execute_in(request.connection, commands, commands, _raise_first_refusal)


def _new_id(machine: Machine, request: NewExecution) -> str:
    flow_id, partitions = request.colocate_with, machine.store.partitions
    if flow_id is None:
        return new_execution_id(partitions)
    return member_ids(check_uuid(flow_id, field="colocate_with"), 1, partitions)[0]


def _checked(machine: Machine, requests: Sequence[NewExecution]) -> list[CreateExecution]:
    requests = check_list(requests, field="requests")
    if len(requests) > limits.CREATE_MAX:
        raise InvalidInput(
            f"requests: {len(requests)} is over the limit {limits.CREATE_MAX}",
            field="requests",
        )
    commands = []
    ids = new_execution_ids(len(requests), machine.store.partitions)
    for index, (given, execution_id) in enumerate(zip(requests, ids, strict=True)):
        try:
            request = _request(given)
            if request.colocate_with is not None:
                execution_id = _new_id(machine, request)  # noqa: PLW2901 - the other is not used
            commands.append(to_create(request, machine.config, execution_id))
        except FlowFabricError as error:
            error.detail = f"requests[{index}]: {error.detail}"
            error.fields["index"] = index
            raise
    return commands


def _request(given: NewExecution | dict[str, Any]) -> NewExecution:
    if isinstance(given, NewExecution):
        return given
    if not isinstance(given, dict):
        raise InvalidInput("expected a NewExecution or a dict of its fields", field="requests")
    unknown = set(given) - set(NewExecution.__struct_fields__)
    if unknown:
        name = min(unknown)
        raise InvalidInput(f"{name}: unknown field", field=name)
    if "execution_kind" not in given:
        raise InvalidInput("execution_kind: is required", field="execution_kind")
    return NewExecution(**given)


def _raise_first_refusal(replies: Sequence[object]) -> None:
    for index, reply in enumerate(replies):
        if isinstance(reply, Refused):
            error = reply.to_error()
            error.detail = f"requests[{index}]: {error.detail}"
            error.fields["index"] = index
            raise error
