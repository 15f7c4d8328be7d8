"""Traces that callers name in headers: `traceparent` and `tracestate`."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import SubmitFlow
from flowfabric.model.record import replace
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.routes.asking import answered, ask
from flowfabric.server.routes.forms import form_of
from flowfabric.server.service import Service


def of_caller(call: Call, requests: Sequence[NewExecution]) -> Sequence[NewExecution]:
    """Submits as part of the caller's trace, but for those that name one themselves. What is not
    sound is dropped when they are recorded."""
    parent = call.header(b"traceparent")
    if parent is None:
        return requests
    state = call.header(b"tracestate")
    return [
        replace(each, traceparent=parent, tracestate=state) if each.traceparent is None else each
        for each in requests
    ]


async def submit_flow(service: Service, call: Call) -> Answer:
    """A flow, whose members are part of the caller's trace."""
    request = await form_of(call.row).read(service, call)
    if isinstance(request, SubmitFlow) and call.header(b"traceparent") is not None:
        members = of_caller(call, [each.execution for each in request.nodes])
        pairs = zip(request.nodes, members, strict=True)
        request = replace(request, nodes=[replace(n, execution=made) for n, made in pairs])
    return answered(call, await ask(service, call, request))
