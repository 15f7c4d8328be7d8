"""The worker registry: claims do not depend on it, explanations and operators do."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.page import Page
from flowfabric.errors import InvalidCapabilities, InvalidCursor
from flowfabric.model.results import DrainAsked, Marked, NotRegistered, Refreshed, Registered
from flowfabric.model.worker import HeldLease, StopsHeard, Unmet, Worker


@operation("register_worker", Kind.WRITE, Scope.WORKER, errors=(InvalidCapabilities,))
class RegisterWorker(Request[Registered | Refreshed], frozen=True, kw_only=True):
    """Say that a worker is there, and what it can do."""

    worker_id: str
    worker_instance_id: str
    lanes: Sequence[str]
    liveness_ttl_ms: int
    capabilities: Sequence[str] = ()
    kinds: Sequence[str] | None = None
    namespace: str | None = None
    host: str | None = None
    version: str | None = None
    concurrency: int | None = None


@operation("heartbeat_worker", Kind.WRITE, Scope.WORKER)
class HeartbeatWorker(Request[Refreshed | NotRegistered], frozen=True, kw_only=True):
    """Still there, and so many handlers run. `NotRegistered` asks to register again."""

    worker_instance_id: str
    namespace: str | None = None
    busy: int | None = None


@operation("leave_worker", Kind.WRITE, Scope.WORKER)
class LeaveWorker(Request[Marked | NotRegistered], frozen=True, kw_only=True):
    """The worker ends: it is taken off the registry."""

    worker_instance_id: str
    namespace: str | None = None


@operation("drain_worker", Kind.WRITE, Scope.OPERATE)
class DrainWorker(Request[DrainAsked | NotRegistered], frozen=True, kw_only=True):
    """Ask a worker to claim no more, to finish what it runs, and to end."""

    worker_instance_id: str
    reason: str = ""
    namespace: str | None = None


@operation("wait_for_stops", Kind.WAIT, Scope.WORKER)
class WaitForStops(Request[StopsHeard], frozen=True, kw_only=True):
    """Which of the leases that a worker holds it has lost: by a cancel, a revocation, another
    worker. Waits up to `wait_ms` for the first of them.
    """

    worker_instance_id: str
    held: Sequence[HeldLease] = ()
    namespace: str | None = None
    wait_ms: int = 0


@operation("mark_worker_dead", Kind.WRITE, Scope.OPERATE)
class MarkWorkerDead(Request[Marked | NotRegistered], frozen=True, kw_only=True):
    """Take a worker off the registry; with `revoke_leases` its work is run again at once."""

    worker_instance_id: str
    reason: str
    namespace: str | None = None
    revoke_leases: bool = False


@operation("list_unmet", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListUnmet(Request[Page[Unmet]], frozen=True, kw_only=True):
    """Waiting work of a tenant that no live worker can run, by lane and kind: what it wants.

    A line for each lane, kind and set of capabilities, and no count: it costs a look for each,
    at most `limits.UNMET_LOOKS` for a page. A page may be short although another follows.
    """

    namespace: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("list_workers", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListWorkers(Request[Page[Worker]], frozen=True, kw_only=True):
    """Live workers by namespace and instance; every namespace when none is named."""

    namespace: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT
