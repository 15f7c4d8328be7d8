"""Failures, and groups of those that are alike."""

from __future__ import annotations

from enum import StrEnum

from flowfabric.model.columns import Counter, Instant, Long
from flowfabric.model.record import Record


class FailureOrigin(Record, frozen=True, kw_only=True):
    """Where a failure comes from, as its worker tells it.

    `exception`: the class. `frame`: the innermost function of the user's own code, as
    `module:function`, and its `line`. `version`: of the code. Lines and versions change without
    making another failure of it.
    """

    exception: str
    frame: str | None = None
    line: Counter | None = None
    version: str | None = None


class Failing(StrEnum):
    """What failed."""

    FAILED = "failed"  # an execution: no attempt follows
    RETRIED = "retried"  # an attempt that is followed by another


class FailureEntry(Record, frozen=True):
    """One attempt failed, or its execution did without one. No event of a feed."""

    execution_id: str
    attempt_index: Counter | None
    namespace: str
    lane_id: str
    execution_kind: str
    fingerprint: str
    category: str
    message: str  # the first line of the reason
    counted: Failing
    occurred_at: Instant
    exception: str | None = None
    frame: str | None = None
    line: Counter | None = None
    version: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether no attempt follows."""
        return self.counted is Failing.FAILED


class FailureGroupRow(Record, frozen=True):
    """Failures of one fingerprint: what the latest of them said, and which ones there were."""

    namespace: str
    fingerprint: str
    category: str
    message: str
    exception: str | None
    frame: str | None
    line: Counter | None
    execution_kinds: tuple[str, ...]  # the latest few
    versions: tuple[str, ...]  # likewise
    failed: Long  # executions, since the first was seen
    retried: Long  # attempts that were followed by another
    first_seen_at: Instant
    last_seen_at: Instant
    expires_at: Instant
    known_until: Instant | None = None
    known_by: str = ""
    known_reason: str = ""


class FailureHourRow(Record, frozen=True):
    """One hour of a group, minute by minute."""

    namespace: str
    fingerprint: str
    hour_at: Instant  # its first instant
    failed: tuple[int, ...]
    retried: tuple[int, ...]
    expires_at: Instant


class FailureCount(Record, frozen=True):
    """So many failures of a group from an instant on, for a step of time."""

    begins_at: int
    failed: int  # executions
    retried: int  # attempts that were followed by another


class FailureGroup(Record, frozen=True, kw_only=True):
    """Failures that are alike: of one category, class and innermost frame of the user's own code.

    `message`, `line`: of the latest. `failed`, `retried`: in the time that was asked for, and
    `counts` by its steps, without empty ones. `known_until`: a person knows of it until then.
    """

    namespace: str
    fingerprint: str
    category: str
    message: str
    exception: str | None
    frame: str | None
    line: int | None
    execution_kinds: tuple[str, ...]
    versions: tuple[str, ...]
    failed: int
    retried: int
    first_seen_at: int
    last_seen_at: int
    counts: tuple[FailureCount, ...] = ()
    known_until: int | None = None
    known_by: str = ""
    known_reason: str = ""


class FailureGroups(Record, frozen=True):
    """A page of groups, the latest failure first; everything before `complete_until` is counted."""

    items: tuple[FailureGroup, ...]
    complete_until: int
    next_cursor: str | None = None


class FailureTold(Record, frozen=True):
    """The latest failure of an execution, and the group of those like it, once it is counted."""

    execution_id: str
    fingerprint: str
    group: FailureGroup | None


class FailureMarked(Record, frozen=True):
    """Until when a group is known; none: it is not."""

    fingerprint: str
    known_until: int | None
