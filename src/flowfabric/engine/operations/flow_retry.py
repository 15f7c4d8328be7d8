"""Running the lost members of a flow again."""

from __future__ import annotations

from typing import Final

from flowfabric import limits
from flowfabric.api import flows as api
from flowfabric.api.control import ReplayExecution
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.control import replay_execution
from flowfabric.engine.operations.flow_reads import describe_flow, list_flow_members
from flowfabric.engine.operations.performing import answers
from flowfabric.errors import MaxReplaysExhausted, NotFound
from flowfabric.kernel.decision import Refused
from flowfabric.model.checks import check_text, check_uuid
from flowfabric.model.flow_results import FlowRetried, MemberInfo
from flowfabric.model.record import replace
from flowfabric.model.verdict import RUN_AGAIN, unexcused
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import EDGES

_REASON: Final = "the flow is retried"


@answers(api.RetryFlow)
async def retry_flow(machine: Machine, request: api.RetryFlow) -> FlowRetried:
    """Judged as it is read; what has changed by the time of the commit refuses it."""
    flow_id = check_uuid(request.flow_id)
    check_text(request.reason, field="reason", max_bytes=limits.REASON_BYTES, empty=True)
    lost = await _lost(machine, flow_id)
    now = lost[: limits.RETRIED_AT_ONCE]
    if now:
        commands = [
            replace(
                replay_execution(
                    machine,
                    ReplayExecution(
                        execution_id=each.execution_id,
                        requested_by="ff",
                        reason=request.reason or _REASON,
                        cascade=True,
                    ),
                ),
                actor=machine.actor(request.actor),
            )
            for each in now
        ]
        await machine.execute_together(commands, lambda replies: _check(replies, now))
    return FlowRetried(flow_id, tuple(now), len(lost) - len(now))


async def _lost(machine: Machine, flow_id: str) -> list[MemberInfo]:
    members = await list_flow_members(machine, api.ListFlowMembers(flow_id=flow_id))
    described = await describe_flow(machine, api.DescribeFlow(flow_id=flow_id))
    if described is None:
        raise NotFound(f"flow {flow_id}", entity="flow", flow_id=flow_id)
    search = Search(by_key(EDGES), ((flow_id,),))
    edges = await machine.read(lambda reader: reader.search(search))
    links = [(each.upstream_execution_id, each.downstream_execution_id) for each in edges]
    missing = unexcused(members, links, described.edge_groups)
    return [each for each in missing if each.public_state in RUN_AGAIN]


def _check(replies: object, members: list[MemberInfo]) -> None:
    """The first refusal, with the name of its node."""
    for reply, member in zip(replies, members, strict=True):  # type: ignore[call-overload]
        if isinstance(reply, Refused):
            error = reply.to_error()
            if isinstance(error, MaxReplaysExhausted):
                error.detail = f"{member.node_name or member.execution_id}: {error.detail}"
            raise error
