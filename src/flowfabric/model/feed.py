"""The feed: events of every kind, as callers read them, and the groups that share one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from flowfabric.model.record import Record


class EventKind(StrEnum):
    """What an event is about; each kind is a log of its own."""

    COMPLETION = "completion"  # an execution ended
    LEASE = "lease"  # an execution changed its owner
    SIGNAL = "signal"  # a signal was delivered
    OPERATOR = "operator"  # an operator acted: the audit trail
    FLOW = "flow"  # a flow began or ended
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


class LogMark(Record, frozen=True):
    """How far a log was trimmed: a reader behind this has lost events."""

    log: str
    trimmed_xact: int
    trimmed_id: int
    trimmed_at: int  # events from before this instant are gone
