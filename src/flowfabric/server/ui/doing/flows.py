"""What an operator does to a flow: cancel it, or run again what it has lost."""

from __future__ import annotations

from typing import Final

from flowfabric.api.flows import CancelFlow, RetryFlow
from flowfabric.errors import InvalidInput
from flowfabric.model.flow import FLOW_CANCELLED, CancellationPolicy
from flowfabric.model.flow_results import (
    CancellationScheduled,
    FlowCancelled,
    PartiallyCancelled,
)
from flowfabric.model.times import count
from flowfabric.server.exchange import Call
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service
from flowfabric.server.ui.forms import Done, Form
from flowfabric.server.ui.pages import Action
from flowfabric.server.ui.views.flows import PATH

_POLICIES: Final = {each.value: each for each in CancellationPolicy}


async def cancel(service: Service, call: Call, form: Form) -> Done:
    """Cancel the flow, and the nodes that the policy names."""
    policy = _POLICIES.get(form.text("policy"))
    if policy is None:
        raise InvalidInput("policy: choose what is cancelled with the flow", field="policy")
    reply = await ask(
        service,
        call,
        CancelFlow(
            flow_id=call.params["flow_id"],
            policy=policy,
            reason=form.text("reason") or FLOW_CANCELLED,
        ),
    )
    return Done(text=_told(reply))


def _told(reply: FlowCancelled | CancellationScheduled | PartiallyCancelled) -> str:
    match reply:
        case CancellationScheduled():
            what = count(reply.member_count, "node")
            return f"The flow is cancelled. None of its {what} starts any more; each follows."
        case PartiallyCancelled():
            left = count(len(reply.failed_member_execution_ids), "node")
            return f"The flow is cancelled. The cancel of {left} is put off."
        case _:
            return "The flow is cancelled."


async def retry(service: Service, call: Call, form: Form) -> Done:
    """Run lost nodes again, and those that were skipped because of them."""
    request = RetryFlow(flow_id=call.params["flow_id"], reason=form.text("reason"))
    reply = await ask(service, call, request)
    if not reply.replayed:
        return Done(text="Nothing to run again: no node it needs was lost.")
    left = f" {reply.left} more are left: retry again." if reply.left else ""
    return Done(text=f"{count(len(reply.replayed), 'node')} run again.{left}")


ACTIONS: Final = (
    Action(
        path=f"{PATH}/{{flow_id}}/retry",
        title="Run again what a flow has lost",
        act=retry,
        asks=("retry_flow",),
    ),
    Action(
        path=f"{PATH}/{{flow_id}}/cancel",
        title="Cancel a flow, by one of its policies",
        act=cancel,
        asks=("cancel_flow",),
    ),
)
