"""Registered workers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from flowfabric.model.columns import Counter, Instant, Text
from flowfabric.model.record import Record


class Worker(Record, frozen=True):
    """One running worker process."""

    namespace: str
    worker_instance_id: str
    worker_id: str
    lanes: tuple[str, ...]
    capabilities: Annotated[tuple[str, ...], Text.WORDS]
    kinds: tuple[str, ...] | None  # None: every kind
    last_heartbeat_at: Instant
    liveness_ttl_ms: int
    registered_at: Instant
    host: str | None = None
    version: str | None = None  # of its client
    concurrency: Counter | None = None  # handlers at once
    busy: Counter | None = None  # of them, so many ran at its last heartbeat
    draining: Counter = 0  # 1: an operator wants it to end

    @property
    def expires_at(self) -> Instant:
        """When it counts as gone without a further heartbeat."""
        return self.last_heartbeat_at + self.liveness_ttl_ms

    def is_live(self, now: int) -> bool:
        """Whether its last heartbeat is recent enough."""
        return now < self.expires_at


class WorkerEventType(StrEnum):
    """Changes of the registry; heartbeats are not recorded."""

    REGISTERED = "registered"
    DRAINING = "draining"
    MARKED_DEAD = "marked_dead"
    TTL_SWEPT = "ttl_swept"


class WorkerEvent(Record, frozen=True):
    """One change of the registry."""

    namespace: str
    worker_instance_id: str
    event_type: WorkerEventType
    reason: str
    occurred_at: Instant


# --- claims whose answers may be lost ------------------------------------------------------------


class ClaimRow(Record, frozen=True):
    """The last claim of a worker that named one by an id: what a repeated claim is answered."""

    worker_instance_id: str
    claim_id: str
    digest: str  # of its parameters
    leases: Mapping[str, tuple[int, str]]  # by execution: the epoch, and the kind of the handle
    repeats: Counter  # how often it was answered again
    due_at: Instant  # when its leases have lapsed, unless they were renewed


class HeldLease(Record, frozen=True, kw_only=True):
    """A lease as its worker knows it."""

    execution_id: str
    lease_epoch: int


class Stop(Record, frozen=True, kw_only=True):
    """A lease that its worker has lost, and the code of the error that its calls meet."""

    execution_id: str
    lease_epoch: int
    code: str


class StopsHeard(Record, frozen=True, kw_only=True):
    """What a worker should stop.

    `is_rung`: something was taken from it while it waited, perhaps a lease that it has got since:
    it asks again at once, with what it holds now. `is_draining`: an operator wants it to end.
    """

    stops: tuple[Stop, ...]
    is_rung: bool
    is_draining: bool


class Unmet(Record, frozen=True, kw_only=True):
    """Waiting work that no live worker can run.

    `missing`: the capabilities that no live worker of its namespace and lane offers; empty where
    each is offered, but by none that would run all of it. `execution_id`: the first of it, which
    was submitted at `created_at`.
    """

    namespace: str
    lane_id: str
    execution_kind: str
    required_capabilities: tuple[str, ...]
    missing: tuple[str, ...]
    execution_id: str
    created_at: int
