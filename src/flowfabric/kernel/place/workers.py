"""The worker registry: the workers that registered."""

from __future__ import annotations

from flowfabric.errors import InvalidInput
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Decision, Moment, refuse
from flowfabric.kernel.execution.routing import Offer
from flowfabric.model.record import replace
from flowfabric.model.results import DrainAsked, Marked, NotRegistered, Refreshed, Registered
from flowfabric.model.worker import Worker, WorkerEvent, WorkerEventType

MARKED_DEAD = "worker marked dead"
STOPPED = "stopped"


class RegisterWorker(Command[Registered | Refreshed], frozen=True, kw_only=True):
    """A worker registers, with its capabilities."""

    offer: Offer
    worker_id: str
    worker_instance_id: str
    liveness_ttl_ms: int
    host: str | None = None
    version: str | None = None
    concurrency: int | None = None

    def needs(self, need: Needs) -> None:
        """The store's clock."""
        need.catalog = True


class CallUpRoutes(Command[int], frozen=True, kw_only=True):
    """A worker has registered: work blocked on its routes goes on, up to a limit; returns how many.

    A transaction of its own, after the registration has committed. `block_route` looks for workers
    after its block has committed. So one of the two sees the other, whichever comes first.
    """

    offer: Offer
    limit: int

    def needs(self, need: Needs) -> None:
        """The routes."""
        need.catalog = True


class HeartbeatWorker(Command[Refreshed | NotRegistered], frozen=True, kw_only=True):
    """A worker is still alive. `busy`: so many of its handlers run."""

    namespace: str
    worker_instance_id: str
    busy: int | None = None

    def needs(self, need: Needs) -> None:
        """The store's clock."""
        need.catalog = True


class MarkWorkerDead(Command[Marked | NotRegistered], frozen=True, kw_only=True):
    """A worker stops; its leases may be revoked at once."""

    namespace: str
    worker_instance_id: str
    reason: str
    revoke_leases: bool

    def needs(self, need: Needs) -> None:
        """The store's clock."""
        need.catalog = True


class LeaveWorker(Command[Marked | NotRegistered], frozen=True, kw_only=True):
    """A worker ends, and signs off."""

    namespace: str
    worker_instance_id: str

    def needs(self, need: Needs) -> None:
        """The store's clock."""
        need.catalog = True


class DrainWorker(Command[DrainAsked | NotRegistered], frozen=True, kw_only=True):
    """An operator wants a worker to end."""

    namespace: str
    worker_instance_id: str
    reason: str

    def needs(self, need: Needs) -> None:
        """The store's clock."""
        need.catalog = True


class SweepWorkers(Command[int], frozen=True, kw_only=True):
    """Remove workers without a recent heartbeat, up to a limit; returns how many."""

    limit: int

    def needs(self, need: Needs) -> None:
        """The store's clock."""
        need.catalog = True


def register_worker(
    known: Worker | None, command: RegisterWorker, at: Moment
) -> Decision[Registered | Refreshed]:
    """New or refreshed; a live instance cannot change the pool it belongs to."""
    live = known is not None and known.is_live(at.now)
    if known is not None and live and known.worker_id != command.worker_id:
        detail = f"worker_id: instance_id reassigned from {known.worker_id}"
        return refuse(InvalidInput, detail, field="worker_id")
    offer = command.offer
    worker = Worker(
        offer.namespaces[0],
        command.worker_instance_id,
        command.worker_id,
        offer.lanes,
        offer.capabilities,
        offer.kinds,
        at.now,
        command.liveness_ttl_ms,
        known.registered_at if known is not None and live else at.now,
        command.host,
        command.version,
        command.concurrency,
        draining=known.draining if known is not None and live else 0,
    )
    if live:
        return Decision(_refreshed(worker), saves=(worker,))
    event = _event(worker, WorkerEventType.REGISTERED, "", at)
    return Decision(Registered(worker.expires_at), events=(event,), saves=(worker,))


def heartbeat_worker(
    known: Worker | None, command: HeartbeatWorker, at: Moment
) -> Decision[Refreshed | NotRegistered]:
    """Alive for another period; an expired worker must register again."""
    if known is None or not known.is_live(at.now):
        return Decision(NotRegistered())
    beating = replace(known, last_heartbeat_at=at.now, busy=command.busy)
    return Decision(_refreshed(beating), saves=(beating,))


def drain_worker(
    known: Worker | None, command: DrainWorker, at: Moment
) -> Decision[DrainAsked | NotRegistered]:
    """Its next heartbeat tells it, if no hint does."""
    if known is None or not known.is_live(at.now):
        return Decision(NotRegistered())
    if known.draining:
        return Decision(DrainAsked())
    event = _event(known, WorkerEventType.DRAINING, command.reason, at)
    return Decision(DrainAsked(), events=(event,), saves=(replace(known, draining=1),))


def _refreshed(worker: Worker) -> Refreshed:
    return Refreshed(worker.expires_at, bool(worker.draining))


def mark_worker_dead(
    known: Worker | None, command: MarkWorkerDead, at: Moment, leases: int
) -> Decision[Marked | NotRegistered]:
    """Removed from the registry; `leases`: so many are revoked with it."""
    if known is None:
        return Decision(NotRegistered())
    event = _event(known, WorkerEventType.MARKED_DEAD, command.reason, at)
    return Decision(Marked(leases), events=(event,), drops=(known,))


def sweep_worker(worker: Worker, at: Moment) -> Decision[bool]:
    """A worker without a recent heartbeat is removed from the registry; one that was heard from
    since it was found stays."""
    if worker.is_live(at.now):
        return Decision(False)
    event = _event(worker, WorkerEventType.TTL_SWEPT, "not heard from", at)
    return Decision(True, events=(event,), drops=(worker,))


def _event(worker: Worker, what: WorkerEventType, reason: str, at: Moment) -> WorkerEvent:
    return WorkerEvent(worker.namespace, worker.worker_instance_id, what, reason, at.now)
