"""Consumer groups: several processes that share one feed."""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric.model.columns import Instant
from flowfabric.model.feed import Event, EventFilter, EventKind
from flowfabric.model.record import Record

# How far each kind of event was read: the number of the last one.
Places = Mapping[EventKind, int]


class GroupRow(Record, frozen=True):
    """One group, and the lock of its deliveries."""

    group_id: str
    kinds: tuple[EventKind, ...]
    filter: EventFilter
    places: Places  # everything up to here was handed out
    redeliver_ms: int
    last_delivery: int
    dropped: int  # events that were given up
    created_at: Instant
    moved_at: Instant


class DeliveryRow(Record, frozen=True):
    """Events that were handed to a consumer and are not acknowledged: a stretch of the feed."""

    group_id: str
    number: int
    consumer: str
    starts: Places
    ends: Places
    page_size: int  # of the read that made it: a repeated one finds the same
    handed_out: int  # how often, in all
    tries: int  # how often since its first event is the one it is
    redeliver_at: Instant
    subjects: tuple[int, ...]  # short hashes of what the events are about


class ConsumerGroup(Record, frozen=True):
    """A group as listings show it."""

    group_id: str
    kinds: tuple[EventKind, ...]
    filter: EventFilter
    position: str  # everything before this cursor is acknowledged
    redeliver_ms: int
    outstanding: int  # deliveries that are not acknowledged
    dropped: int
    lag_ms: int  # how old the first event is that is not acknowledged; 0: there is none
    created_at: int
    lost_until: int | None = None  # events from before this instant were removed unread


class Delivery(Record, frozen=True):
    """Events for one consumer, in their order; acknowledge them by `delivery`.

    Without events there was nothing to hand out, and nothing is to be acknowledged.
    """

    group_id: str
    events: tuple[Event, ...] = ()
    delivery: str = ""
    tries: int = 0  # how often its first event was handed out
    redeliver_at: int = 0


class Acknowledged(Record, frozen=True):
    """How many deliveries of the group are not acknowledged, this one among them if it has a rest,
    which is redelivered at `redeliver_at`."""

    outstanding: int
    redeliver_at: int | None = None


class GroupCreated(Record, frozen=True):
    """The group is there, with what was asked for. `is_new`: since this call."""

    group_id: str
    is_new: bool
    position: str


class GroupDeleted(Record, frozen=True):
    """It is gone, with its position."""

    group_id: str
