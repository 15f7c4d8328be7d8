"""Events: one feed of everything that happened, its subscriptions, and the timeline of one
execution.

A feed is read in pages. Each page ends with a cursor, and reading on from it misses nothing and
shows nothing twice, also where transactions commit in another order than they began. `after` is
such a cursor; `None` begins with the oldest event that is kept, `"now"` behind the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.words import EventKindGiven
from flowfabric.errors import CursorExpired, InvalidCursor, InvalidTagKey, NotFound
from flowfabric.model.feed import EventFilter, EventPage, Timeline

NOW: Final = "now"
EVERYTHING: Final = EventFilter()
_ERRORS: Final = (InvalidCursor, CursorExpired, InvalidTagKey)


@operation("read_events", Kind.READ, Scope.READ, errors=_ERRORS)
class ReadEvents(Request[EventPage], frozen=True, kw_only=True):
    """A page of the feed, oldest first; without kinds, all of them.

    Events of one execution come in the order in which they happened. `until`: a cursor; nothing
    that comes behind it is shown, and a page that has come there is the end.
    """

    kinds: Sequence[EventKindGiven] = ()
    filter: EventFilter = EVERYTHING
    after: str | None = None
    limit: int = limits.PAGE_DEFAULT
    until: str | None = None


@operation("subscribe_events", Kind.WAIT, Scope.READ, errors=_ERRORS)
class SubscribeEvents(Request[EventPage], frozen=True, kw_only=True):
    """As `read_events`, but waits up to `wait_ms` for an event.

    Ask again with the cursor of the answer, for as long as you like.
    """

    kinds: Sequence[EventKindGiven] = ()
    filter: EventFilter = EVERYTHING
    after: str | None = NOW
    limit: int = limits.PAGE_DEFAULT
    wait_ms: int = limits.SUBSCRIBE_WAIT_MS


@operation("subscribe_completion", Kind.WAIT, Scope.READ, errors=_ERRORS)
class SubscribeCompletion(Request[EventPage], frozen=True, kw_only=True):
    """Ends of executions: one event for each end."""

    filter: EventFilter = EVERYTHING
    after: str | None = NOW
    limit: int = limits.PAGE_DEFAULT
    wait_ms: int = limits.SUBSCRIBE_WAIT_MS


@operation("subscribe_lease_history", Kind.WAIT, Scope.READ, errors=_ERRORS)
class SubscribeLeaseHistory(Request[EventPage], frozen=True, kw_only=True):
    """Leases that were acquired, expired, reclaimed, revoked or released.

    A lease that ends with its execution is told by the completion. Renewals change no owner and
    are not told, unless an execution's policy has `renewal_events`.
    """

    filter: EventFilter = EVERYTHING
    after: str | None = NOW
    limit: int = limits.PAGE_DEFAULT
    wait_ms: int = limits.SUBSCRIBE_WAIT_MS


@operation("subscribe_signal_delivery", Kind.WAIT, Scope.READ, errors=_ERRORS)
class SubscribeSignalDelivery(Request[EventPage], frozen=True, kw_only=True):
    """Signals that were delivered, each with its effect."""

    filter: EventFilter = EVERYTHING
    after: str | None = NOW
    limit: int = limits.PAGE_DEFAULT
    wait_ms: int = limits.SUBSCRIBE_WAIT_MS


@operation("subscribe_instance_tags", Kind.WAIT, Scope.READ, errors=_ERRORS)
class SubscribeInstanceTags(Request[EventPage], frozen=True, kw_only=True):
    """Tags that were set on executions and flows after their creation."""

    filter: EventFilter = EVERYTHING
    after: str | None = NOW
    limit: int = limits.PAGE_DEFAULT
    wait_ms: int = limits.SUBSCRIBE_WAIT_MS


@operation("read_timeline", Kind.READ, Scope.READ, errors=(NotFound,))
class ReadTimeline(Request[Timeline], frozen=True, kw_only=True):
    """Everything that is known to have happened to one execution, in order."""

    execution_id: str
