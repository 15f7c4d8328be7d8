"""Quotas: how many executions may start per window and run at once, counted for each key."""

from __future__ import annotations

from enum import StrEnum

from flowfabric.limits import INSTANT_MS_MAX
from flowfabric.model.columns import Counter, Instant
from flowfabric.model.record import Record


class QuotaPolicy(Record, frozen=True):
    """The limits of a quota. A limit of 0 means no limit."""

    quota_policy_id: str
    requests_per_window_seconds: int  # the window's length
    max_requests_per_window: int
    active_concurrency_cap: int
    jitter_ms: int
    created_at: Instant
    updated_at: Instant
    revision: Counter = 0  # rises with every change
    namespace: str | None = None  # whose it is; none: of all

    @property
    def window_ms(self) -> int:
        """The window's length, cut so that even a corrupt one ends within all instants."""
        return min(self.requests_per_window_seconds * 1000, INSTANT_MS_MAX)


class GateRow(Record, frozen=True):
    """The counters of one policy and key. Its row is the lock of its admissions."""

    quota_policy_id: str
    dimension: str
    active: int = 0  # admissions reserved or running
    in_window: int = 0  # admissions not yet older than the window
    wave_at: Instant = 0  # the latest retry time given to a refused caller,
    wave_size: int = 0  # and how many callers were given that time
    seen_at: Instant = 0  # the latest time at which starts were counted: it never goes back
    due_at: Instant | None = None  # check again: there may be unused slots


class AdmissionState(StrEnum):
    """Reserved by a grant, running under a lease, or only counted in the window."""

    RESERVED = "reserved"
    RUNNING = "running"
    RELEASED = "released"


class AdmissionRow(Record, frozen=True):
    """One execution admitted under one policy and key."""

    quota_policy_id: str
    dimension: str
    execution_id: str
    state: AdmissionState
    admitted_at: Instant
    counted_at: Instant | None  # its time in the window; None once the window has passed
    due_at: Instant | None = None  # when a reservation expires

    @property
    def is_active(self) -> bool:
        """Whether it occupies a slot."""
        return self.state is not AdmissionState.RELEASED


# --- answers -----------------------------------------------------------------------------------


class Admitted(Record, frozen=True, tag="Admitted", tag_field="kind"):
    """It may run; it occupies a slot until it is released."""


class AlreadyAdmitted(Record, frozen=True, tag="AlreadyAdmitted", tag_field="kind"):
    """It occupied a slot before."""


class RateExceeded(Record, frozen=True, tag="RateExceeded", tag_field="kind"):
    """Too many starts in the window; retry after the given time."""

    retry_after_ms: int


class ConcurrencyExceeded(Record, frozen=True, tag="ConcurrencyExceeded", tag_field="kind"):
    """Every slot is occupied."""


AdmissionOutcome = Admitted | AlreadyAdmitted | RateExceeded | ConcurrencyExceeded


class QuotaCreated(Record, frozen=True, tag=True):
    """The policy is in force."""

    quota_policy_id: str


class QuotaAlreadySatisfied(Record, frozen=True, tag=True):
    """The same policy was in force already."""

    quota_policy_id: str


class QuotaUpdated(Record, frozen=True):
    """The new limits are in force."""

    quota_policy_id: str
    revision: int


class AdmissionReleased(Record, frozen=True):
    """The slot is free; `released` says whether this call freed it."""

    released: bool


class QuotaStatus(Record, frozen=True):
    """A policy and the counters of its keys."""

    policy: QuotaPolicy
    gates: tuple[GateRow, ...]

    @property
    def revision(self) -> int:
        """Of the policy."""
        return self.policy.revision
