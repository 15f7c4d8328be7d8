"""Fair keys: executions of one key share a lane with those of other keys, however many wait.

Each gets a *tag* when it is created, which takes the place of its age in the order among the ready.
"""

from __future__ import annotations

from enum import StrEnum

from flowfabric.model.columns import Instant, Priority
from flowfabric.model.record import Record


class Fair(Record, frozen=True):
    """The fair key of an execution, and its tag. `finish`: the least tag of the next of its key."""

    key: str
    tag: Instant = 0  # 0: it has none, and stands by its age
    finish: Instant = 0


class FairPhase(StrEnum):
    """What the tag of an unfinished execution says about the clock of its queue."""

    READY = "ready"
    RUNNING = "running"
    AWAY = "away"  # it is delayed, blocked or suspended


class FairRow(Record, frozen=True):
    """An unfinished execution with a fair key, in the queue of its namespace, lane and priority.

    Derived from the execution, and written under its lock.
    """

    execution_id: str
    namespace: str
    lane_id: str
    priority: Priority
    phase: FairPhase
    tag: Instant
    fair_key: str
    finish: Instant
