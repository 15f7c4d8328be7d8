"""Consumer groups: several processes share one feed.

Each event is handed to one consumer at a time, again to another if it is not acknowledged in time,
and events about one execution in the order in which they happened. So a consumer may see an event
twice, but never misses one.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.events import EVERYTHING, NOW
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.api.words import EventKindGiven
from flowfabric.errors import (
    CursorExpired,
    DeliveryExpired,
    InvalidCursor,
    InvalidTagKey,
    NotFound,
    ResourceExhausted,
)
from flowfabric.model.feed import EventFilter
from flowfabric.model.group import (
    Acknowledged,
    ConsumerGroup,
    Delivery,
    GroupCreated,
    GroupDeleted,
)


@operation(
    "create_consumer_group",
    Kind.WRITE,
    Scope.OPERATE,
    errors=(InvalidCursor, InvalidTagKey, ResourceExhausted),
)
class CreateConsumerGroup(UnsafeRequest[GroupCreated], frozen=True, kw_only=True):
    """A group that reads these events, from `after` on.

    One that exists keeps its position, unless `reset` moves it to `after`. Other kinds or
    another filter apply from the position on; what is not acknowledged is handed out again.
    """

    group_id: str
    kinds: Sequence[EventKindGiven] = ()
    filter: EventFilter = EVERYTHING
    after: str | None = NOW
    redeliver_ms: int = limits.REDELIVER_MS_DEFAULT
    reset: bool = False


@operation("list_consumer_groups", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListConsumerGroups(Request[Page[ConsumerGroup]], frozen=True, kw_only=True):
    """Groups by name, each with its position and how far it lags behind."""

    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("delete_consumer_group", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class DeleteConsumerGroup(UnsafeRequest[GroupDeleted], frozen=True, kw_only=True):
    """Forget a group and its position."""

    group_id: str


@operation("read_group", Kind.WAIT, Scope.WORKER, errors=(NotFound, CursorExpired))
class ReadGroup(Request[Delivery], frozen=True, kw_only=True):
    """The next events for one consumer, waiting up to `wait_ms` for some.

    What it has, it has for the group's `redeliver_ms`; after that another consumer gets it.
    """

    group_id: str
    consumer: str
    limit: int = limits.PAGE_DEFAULT
    wait_ms: int = limits.SUBSCRIBE_WAIT_MS


@operation(
    "ack_group",
    Kind.WRITE,
    Scope.WORKER,
    errors=(NotFound, DeliveryExpired, InvalidCursor),
)
class AckGroup(Request[Acknowledged], frozen=True, kw_only=True):
    """A delivery was handled: all of it, or up to the event with the cursor `up_to`.

    The rest is kept for another `redeliver_ms`; `up_to=""` says that none was handled yet.
    `dropped`: how many of the handled ones were given up.
    """

    group_id: str
    consumer: str
    delivery: str
    up_to: str | None = None
    dropped: int = 0
