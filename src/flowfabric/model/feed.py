"""The feed: events of every kind, as callers read them, and the groups that share one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from flowfabric.model.columns import Instant
from flowfabric.model.record import Record


class EventKind(StrEnum):
    """What an event is about; each kind is a log of its own. Events of one instant are shown in
    this order: an end comes after what led to it."""

    LEASE = "lease"  # an execution changed its owner
    SIGNAL = "signal"  # a signal was delivered
    OPERATOR = "operator"  # an operator acted: the audit trail
    COMPLETION = "completion"  # an execution ended
    FLOW = "flow"  # a flow began or ended
    BUDGET = "budget"  # a limit was passed, moved or reset
    WORKER = "worker"  # a worker registered or left


class Event(Record, frozen=True):
    """One event as it is read from a feed."""

    kind: EventKind
    event_type: str  # the word of its kind: an outcome, a change of ownership, an action
    subject: str  # the execution, flow, worker, lane, budget … it is about
    namespace: str
    occurred_at: int
    cursor: str  # read after this one to go on behind it
    details: Mapping[str, Any] = {}
    tags: Mapping[str, str] = {}


class EventFilter(Record, frozen=True, kw_only=True):
    """Which events a reader wants. Empty parts do not filter; all given parts must match.

    >>> EventFilter(namespace="shop", lane_id="mail").lane_id
    'mail'
    """

    namespace: str | None = None
    tag: tuple[str, str] | None = None  # a tag's key and value
    lane_id: str | None = None
    execution_kind: str | None = None
    execution_id: str | None = None
    flow_id: str | None = None
    event_types: tuple[str, ...] = ()


class EventPage(Record, frozen=True):
    """Some events of a feed, oldest first, and the cursor behind the last."""

    events: tuple[Event, ...]
    cursor: str
    is_end: bool  # whether no more could be read at that moment


class TimelineEntry(Record, frozen=True):
    """One thing that happened to an execution."""

    occurred_at: int
    what: str  # created, started, ended, suspended, signal, lease, operator …
    detail: str  # in words
    attempt_index: int | None = None
    actor: str = ""
    fields: Mapping[str, Any] = {}


class Timeline(Record, frozen=True):
    """The life of one execution, in order. `is_whole`: nothing was left out for its length."""

    execution_id: str
    entries: tuple[TimelineEntry, ...]
    is_whole: bool = True


class LogMark(Record, frozen=True):
    """How far a log was trimmed: a reader behind this has lost events."""

    log: str
    trimmed_id: int
    trimmed_at: Instant  # events from before this instant are gone
