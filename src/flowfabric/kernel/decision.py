"""What a rule returns."""

from __future__ import annotations

from typing import Any

from flowfabric import limits
from flowfabric.errors import FlowFabricError
from flowfabric.model.answer import AnswerRow
from flowfabric.model.attempt import Attempt
from flowfabric.model.event import Event
from flowfabric.model.execution import Body, Execution, IdempotencyRecord
from flowfabric.model.record import Record


class Moment(Record, frozen=True):
    """When a decision is taken and the settings in force."""

    now: int
    retention_ms: int = limits.RETENTION_MS_DEFAULT
    reclaim_grace_ms: int = 0
    payload_bytes_max: int = limits.PAYLOAD_BYTES_DEFAULT
    # Instances of workers that live in the very process that decides.
    workers_here: frozenset[str] = frozenset()


class Refused(Record, frozen=True):
    """The rule said no: which error the caller shall see, and its fields."""

    error: type[FlowFabricError]
    detail: str = ""
    fields: dict[str, Any] = {}

    def to_error(self) -> FlowFabricError:
        """The exception for the edge."""
        return self.error(self.detail, **self.fields)


class Decision(Record, frozen=True):
    """The reply to one command, and what shall be remembered."""

    reply: Any
    execution: Execution | None = None  # the new image; none when nothing changed
    attempt: Attempt | None = None  # the attempt that ended
    events: tuple[Event, ...] = ()
    body: Body | None = None  # only at creation
    idempotency: IdempotencyRecord | None = None  # only at creation
    answer: AnswerRow | None = None  # for the owner's repeated call, where the image will go on


def refuse(error: type[FlowFabricError], detail: str = "", **fields: Any) -> Decision:
    """A decision that changes nothing."""
    return Decision(Refused(error, detail, fields))
