"""Registered workers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from flowfabric.model.columns import Instant, Text
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
    MARKED_DEAD = "marked_dead"
    TTL_SWEPT = "ttl_swept"


class WorkerEvent(Record, frozen=True):
    """One change of the registry."""

    namespace: str
    worker_instance_id: str
    event_type: WorkerEventType
    reason: str
    occurred_at: Instant
