"""What a rule returns."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from flowfabric import limits
from flowfabric.errors import FlowFabricError
from flowfabric.model.attempt import Attempt
from flowfabric.model.event import Event
from flowfabric.model.execution import Body, Execution, IdempotencyRecord
from flowfabric.model.flow import FlowEvent
from flowfabric.model.record import Record, replace
from flowfabric.model.worker import WorkerEvent

AnyEvent = Event | FlowEvent | WorkerEvent
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Moment(Record, frozen=True):
    """When a decision is taken and the settings in force."""

    now: int
    retention_ms: int = limits.RETENTION_MS_DEFAULT
    reclaim_grace_ms: int = 0
    payload_bytes_max: int = limits.PAYLOAD_BYTES_DEFAULT
    # Instances of workers that live in the very process that decides.
    workers_here: frozenset[str] = frozenset()


class New(Record, frozen=True):
    """What is written once, when an execution is created."""

    body: Body
    idempotency: IdempotencyRecord | None = None


class Refused(Record, frozen=True):
    """The rule said no: which error the caller shall see, and its fields."""

    error: type[FlowFabricError]
    detail: str = ""
    fields: dict[str, Any] = {}

    def to_error(self) -> FlowFabricError:
        """The exception for the edge."""
        return self.error(self.detail, **self.fields)


class Decision(Record, Generic[R_co], frozen=True):
    """The reply to one command, and what shall be remembered."""

    reply: R_co | Refused
    execution: Execution | None = None  # the new image; none when nothing changed
    attempt: Attempt | None = None  # the attempt that ended
    events: tuple[AnyEvent, ...] = ()
    saves: tuple[Record, ...] = ()  # next images of rows, and of what is kept in several rows
    drops: tuple[Record, ...] = ()  # rows that go
    new: New | None = None  # only where an execution is created

    def told(self, reply: R) -> Decision[R]:
        """The same, answered otherwise."""
        return Decision(
            reply, self.execution, self.attempt, self.events, self.saves, self.drops, self.new
        )

    def audited(self, event: AnyEvent) -> Decision[R_co]:
        """The same, with one more event."""
        return replace(self, events=(*self.events, event))


def refuse(error: type[FlowFabricError], detail: str = "", **fields: object) -> Decision[R]:
    """A decision that changes nothing."""
    return Decision(Refused(error, detail, fields))
