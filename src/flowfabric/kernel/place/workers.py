"""The worker registry: who says it is there."""

from __future__ import annotations

from flowfabric.errors import InvalidInput
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.execution.routing import Offer
from flowfabric.model.record import Record, replace
from flowfabric.model.results import NotRegistered, Refreshed, Registered
from flowfabric.model.worker import Worker, WorkerEvent, WorkerEventType


class RegistryDecision(Record, frozen=True):
    """The reply, the new image of the worker's row, and the event."""

    reply: object
    worker: Worker | None = None
    event: WorkerEvent | None = None


def register_worker(
    known: Worker | None,
    *,
    offer: Offer,
    worker_id: str,
    worker_instance_id: str,
    liveness_ttl_ms: int,
    at: Moment,
) -> RegistryDecision:
    """New or refreshed; a live instance cannot change the pool it belongs to."""
    live = known is not None and known.is_live(at.now)
    if known is not None and live and known.worker_id != worker_id:
        detail = f"worker_id: instance_id reassigned from {known.worker_id}"
        return RegistryDecision(Refused(InvalidInput, detail, {"field": "worker_id"}))
    worker = Worker(
        offer.namespaces[0],
        worker_instance_id,
        worker_id,
        offer.lanes,
        offer.capabilities,
        offer.kinds,
        at.now,
        liveness_ttl_ms,
        known.registered_at if known is not None and live else at.now,
    )
    if live:
        return RegistryDecision(Refreshed(worker.expires_at), worker)
    event = WorkerEvent(
        offer.namespaces[0], worker_instance_id, WorkerEventType.REGISTERED, "", at.now
    )
    return RegistryDecision(Registered(worker.expires_at), worker, event)


def heartbeat_worker(known: Worker | None, at: Moment) -> RegistryDecision:
    """Alive for another while; a lapsed worker must register again."""
    if known is None or not known.is_live(at.now):
        return RegistryDecision(NotRegistered())
    beating = replace(known, last_heartbeat_at=at.now)
    return RegistryDecision(Refreshed(beating.expires_at), beating)
