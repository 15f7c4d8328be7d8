"""Asking workers to end, and taking off those that are lost."""

from __future__ import annotations

from flowfabric.api.workers import DrainWorker, MarkWorkerDead
from flowfabric.errors import NotFound
from flowfabric.model.results import NotRegistered
from flowfabric.server.exchange import Call
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service
from flowfabric.server.ui.forms import Done, Form


async def drain(service: Service, call: Call, form: Form) -> Done:
    """It claims no more, finishes what it runs, and ends."""
    request = DrainWorker(
        worker_instance_id=call.params["worker_instance_id"],
        reason=form.text("reason"),
        namespace=form.text("namespace") or None,
    )
    reply = await ask(service, call, request)
    if isinstance(reply, NotRegistered):
        raise _gone(request.worker_instance_id)
    return Done(text=f"Worker {request.worker_instance_id} claims no more, and ends.")


async def dead(service: Service, call: Call, form: Form) -> Done:
    """Its leases are revoked: other workers go on with its work at once."""
    request = MarkWorkerDead(
        worker_instance_id=call.params["worker_instance_id"],
        reason=form.text("reason") or "taken off by an operator",
        namespace=form.text("namespace") or None,
        revoke_leases=True,
    )
    reply = await ask(service, call, request)
    if isinstance(reply, NotRegistered):
        raise _gone(request.worker_instance_id)
    return Done(
        text=f"Worker {request.worker_instance_id} was taken off; {reply.revoked_leases} of its "
        "leases were revoked."
    )


def _gone(instance: str) -> NotFound:
    return NotFound(f"worker {instance}: is not registered any more", entity="worker")
