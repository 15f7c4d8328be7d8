"""The outcome of a rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from flowfabric import limits
from flowfabric.errors import FlowFabricError
from flowfabric.model.attempt import Attempt
from flowfabric.model.event import Event
from flowfabric.model.execution import Body, Execution, IdempotencyRecord
from flowfabric.model.failure import FailureEntry
from flowfabric.model.flow import FlowEvent
from flowfabric.model.record import Record, replace
from flowfabric.model.statistic import WorkCount
from flowfabric.model.worker import WorkerEvent

AnyEvent = Event | FlowEvent | WorkerEvent | WorkCount | FailureEntry
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Moment(Record, frozen=True):
    """The instant of a decision and the settings in force."""

    now: int
    retention_ms: int = limits.RETENTION_MS_DEFAULT
    reclaim_grace_ms: int = 0
    payload_bytes_max: int = limits.PAYLOAD_BYTES_DEFAULT
    # Instances of workers in the process that decides.
    workers_here: frozenset[str] = frozenset()
    failed_retention_ms: int = limits.FAILED_RETENTION_MS_DEFAULT
    partitions: int = limits.FLOW_PARTITIONS_DEFAULT


class New(Record, frozen=True):
    """The part of an execution that is written once, at creation."""

    body: Body
    idempotency: IdempotencyRecord | None = None


class Refused(Record, frozen=True):
    """A refusal: the error for the caller, and its fields."""

    error: type[FlowFabricError]
    detail: str = ""
    fields: Mapping[str, object] = {}

    def to_error(self) -> FlowFabricError:
        """The exception for the edge."""
        return self.error(self.detail, **self.fields)


class Decision(Record, Generic[R_co], frozen=True):
    """The reply to one command, and the changes to store."""

    reply: R_co | Refused
    execution: Execution | None = None  # the new image; None when nothing changed
    attempt: Attempt | None = None  # the attempt that ended
    events: tuple[AnyEvent, ...] = ()
    saves: tuple[Record, ...] = ()  # next images of rows, and of objects kept in several rows
    drops: tuple[Record, ...] = ()  # rows to delete
    new: New | None = None  # only where an execution is created

    def told(self, reply: R) -> Decision[R]:
        """The same with another reply."""
        return Decision(
            reply, self.execution, self.attempt, self.events, self.saves, self.drops, self.new
        )

    def audited(self, event: AnyEvent) -> Decision[R_co]:
        """The same, with one more event."""
        return replace(self, events=(*self.events, event))


def refuse(error: type[FlowFabricError], detail: str = "", **fields: object) -> Decision[R]:
    """A decision that changes nothing."""
    return Decision(Refused(error, detail, fields))
