"""The execution: one unit of durable work, with all the fields its rules decide by."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from flowfabric.limits import INSTANT_MS_MAX, PRIORITY_MAX
from flowfabric.model.attempt import AttemptType
from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.columns import (
    Counter,
    Freed,
    InBody,
    Instant,
    Later,
    Long,
    Numbers,
    Once,
    Percent,
    Priority,
    Step,
    Taken,
    Usually,
)
from flowfabric.model.policy import DEFAULT_POLICY, ExecutionPolicy
from flowfabric.model.record import Record
from flowfabric.model.route import Route
from flowfabric.model.state import (
    AttemptState,
    EligibilityState,
    LifecyclePhase,
    OwnershipState,
    PublicState,
    StateVector,
)
from flowfabric.model.successor import Undos
from flowfabric.model.ties import UNTIED, Ties

# Reading a member of an enumeration costs ten times a module-level name, and rules read these
# often.
_TERMINAL: Final = LifecyclePhase.TERMINAL
STRICT_STEP: Final = 10**15  # one step of priority outweighs any difference of age
_LEAST_RANK: Final = -PRIORITY_MAX * STRICT_STEP
_TIMED: Final = EligibilityState.NOT_ELIGIBLE_UNTIL_TIME
_LEASED: Final = OwnershipState.LEASED
_ELIGIBLE_NOW: Final = EligibilityState.ELIGIBLE_NOW
_INTERRUPTED: Final = AttemptState.ATTEMPT_INTERRUPTED


class GrantKind(StrEnum):
    """The action a grant permits its worker."""

    CLAIM = "claim"
    RECLAIM = "reclaim"


class Grant(Record, frozen=True):
    """A short-lived right of one worker to claim one execution.

    It is part of the execution: at most one, removed by any transition.
    """

    kind: GrantKind
    grant_id: str
    worker_id: str
    worker_instance_id: str
    expires_at: Instant

    def is_live(self, now: int) -> bool:
        """Whether it still keeps other workers away; the instant of expiry included."""
        return now <= self.expires_at


class Fence(Record, frozen=True):
    """Proof of ownership. The epoch stops accidents, the secret lease id stops malice."""

    lease_id: str
    lease_epoch: int
    attempt_id: str

    def __repr__(self) -> str:
        return f"Fence(lease_epoch={self.lease_epoch}, attempt_id={self.attempt_id!r})"


class Execution(Record, frozen=True):
    """The current image of one execution. A transition makes a new one.

    New fields come last: their order is the order of stored arrays. See `model/columns.py` for the
    markers.
    """

    execution_id: Once[str]
    route: Once[Route]
    state: Step[StateVector]
    priority: Priority
    created_at: Once[Instant]
    # when it may be claimed; kept afterwards as the record of the last delay
    eligible_at: Annotated[Instant, Usually("created_at")]
    last_transition_at: Step[Instant]
    last_mutation_at: Annotated[Step[Instant], Usually("last_transition_at")]
    flow_id: str | None = None
    blocking_detail: Freed[str] = ""
    # the lease: the id stays after release so that its owner's repeated call is recognised
    lease_epoch: Step[Long] = 0
    lease_id: Taken[str | None] = None
    worker_id: Step[str | None] = None
    worker_instance_id: Step[str | None] = None
    lease_acquired_at: Step[Instant | None] = None
    lease_expires_at: Step[Instant | None] = None
    lease_renewed_at: Step[Instant | None] = None
    # lease lost (expired or revoked): when it becomes claimable again
    reclaim_at: Later[Instant | None] = None
    # the attempt that has or last had the lease
    attempt_index: Taken[Counter | None] = None
    attempt_id: Taken[str | None] = None
    attempt_type: Taken[AttemptType | None] = None
    attempt_started_at: Taken[Instant | None] = None
    attempt_due_at: Step[Instant | None] = None
    attempt_spent_ms: Later[Long] = 0  # running time of the attempt before its current lease
    next_attempt_type: Later[AttemptType] = AttemptType.INITIAL
    total_attempt_count: Taken[Counter] = 0
    retry_count: Later[Counter] = 0
    replay_count: Later[Counter] = 0
    reclaim_count: Later[Counter] = 0
    deadline_at: Instant | None = None
    started_at: Taken[Instant | None] = None
    completed_at: Step[Instant | None] = None
    purge_at: Step[Instant | None] = None
    failure_reason: Later[str | None] = None
    failure_category: Later[str | None] = None
    cancellation_reason: Later[str | None] = None
    cancelled_by: Later[str | None] = None
    progress_pct: Later[Percent | None] = None
    progress_message: Later[str | None] = None
    progress_updated_at: Later[Instant | None] = None
    aging_ms: Once[Long] = 0  # this much waiting outweighs one step of priority; 0: it is strict
    blocked_on: Later[str | None] = None  # the budget, quota or route that blocks it
    blocked_until: Later[Instant | None] = None  # when its block is checked again
    suspension_id: Later[str | None] = None  # the open episode
    signal_count: Later[Counter] = 0
    signal_bytes: Later[Long] = 0  # of all their payloads
    side_holds: Later[Counter] = 0  # reservations and slots of other quotas that end with its lease
    open_group: Freed[Counter] = 0  # 1 while others must end before it may run
    grant: Later[Grant | None] = None
    policy: InBody[ExecutionPolicy] = DEFAULT_POLICY
    tags: InBody[Mapping[str, str]] = {}
    bounds: InBody[Bounds] = UNBOUNDED
    journal_index: Later[Counter] = 0  # which journal: a fresh replay begins the next one
    chapter_index: Later[Counter] = 0  # which part of it
    forked_from: Later[str | None] = None  # the execution whose journal it began with
    is_watched: Later[Counter] = 0  # 1: others may wait for its end
    ties: InBody[Ties] = UNTIED
    # its number in the line of its serial key while others are ahead of it; 0: none are
    line_place: Long = 0
    undos: Later[Undos | None] = None  # what is to be undone if it does not succeed

    @property
    def namespace(self) -> str:
        """The tenant it belongs to."""
        return self.route.namespace

    @property
    def lane_id(self) -> str:
        """The lane it waits on."""
        return self.route.lane_id

    @property
    def execution_kind(self) -> str:
        """The name of the work."""
        return self.route.execution_kind

    @property
    def public_state(self) -> PublicState:
        """The one word shown to people."""
        return self.state.public_state

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.state.lifecycle_phase is _TERMINAL

    @property
    def is_leased(self) -> bool:
        """Whether a lease is recorded as valid (it may have expired unnoticed)."""
        return self.state.ownership_state is _LEASED

    @property
    def is_waiting(self) -> bool:
        """Whether a worker may claim it."""
        return self.state.eligibility_state is _ELIGIBLE_NOW

    @property
    def is_runnable(self) -> bool:
        """Whether it waits for any reason: not running, not suspended, not ended."""
        return self.state.lifecycle_phase is LifecyclePhase.RUNNABLE

    @property
    def has_open_group(self) -> bool:
        """Whether other members of its flow must end before it may run."""
        return self.open_group == 1

    @property
    def due_at(self) -> Step[Instant | None]:
        """When the loop must act on it: the earliest of all its times.

        An ended execution is due only for its purge, which has a time of its own.
        """
        if self.completed_at is not None:
            return None
        state = self.state
        if state.ownership_state is _LEASED:
            due = self.lease_expires_at
        elif state.eligibility_state is _TIMED:
            due = self.eligible_at
        elif self.blocked_until is not None:
            due = self.blocked_until
        else:
            due = self.reclaim_at
        deadline, attempt_due = self.deadline_at, self.attempt_due_at
        if deadline is not None and (due is None or deadline < due):
            due = deadline
        if attempt_due is not None and (due is None or attempt_due < due):
            due = attempt_due
        if self.policy.timeout_policy.start_within_ms is not None:
            start_by = self.start_by
            if start_by is not None and (due is None or start_by < due):
                due = start_by
        return due

    @property
    def start_by(self) -> Instant | None:
        """When it expires unless it has been started; none once it was, or while others of its flow
        must end before."""
        within = self.policy.timeout_policy.start_within_ms
        if within is None or self.total_attempt_count or self.open_group:
            return None
        return min(self.eligible_at + within, INSTANT_MS_MAX)

    @property
    def ready_rank(self) -> Annotated[int, Numbers(INSTANT_MS_MAX, _LEAST_RANK)]:
        """The order among the ready, smallest first: strictly by priority, then age.

        With aging, `aging_ms` of waiting weigh as much as one step of priority. All executions age
        alike, so the order of two of them never changes and one indexed number expresses it. With a
        fair key the tag stands in the place of the creation.
        """
        step, ties = self.aging_ms or STRICT_STEP, self.ties
        if ties is UNTIED or ties.fair is None:
            return self.created_at - self.priority * step
        return (ties.fair.tag or self.created_at) - self.priority * step

    @property
    def is_interrupted(self) -> bool:
        """Whether its attempt was paused and continues when claimed."""
        return self.state.attempt_state is _INTERRUPTED

    @property
    def serial_key(self) -> str | None:
        """The key of the executions among which it runs one at a time."""
        return self.ties.serial_key

    @property
    def unique_key(self) -> str | None:
        """The key that it alone of its kind has."""
        return None if self.ties.unique is None else self.ties.unique.key

    @property
    def fair_key(self) -> str | None:
        """The key by which it shares its lane."""
        return None if self.ties.fair is None else self.ties.fair.key

    @property
    def is_behind(self) -> bool:
        """Whether others of its serial key are ahead of it."""
        return self.line_place > 0

    def __repr__(self) -> str:
        return f"Execution({self.execution_id}, {self.public_state.value}, {self.execution_kind})"

    def spent_ms(self, now: int) -> int:
        """How long its attempt has been running, over all its leases."""
        return self.attempt_spent_ms + max(0, now - (self.lease_acquired_at or now))

    def granted_to_other(self, now: int) -> bool:
        """Whether a live grant keeps other workers from claiming it."""
        return self.grant is not None and self.grant.is_live(now)


class Body(Record, frozen=True):
    """The part written once at creation and handed to the worker."""

    execution_id: str
    payload: bytes = b""
    payload_encoding: str | None = None
    creator_identity: str = ""
    idempotency_key: str | None = None
    trace: str | None = None  # of its submit: see `model/trace.py`


class IdempotencyRecord(Record, frozen=True):
    """One key under which an execution was created, until its window ends."""

    namespace: str
    idempotency_key: str
    execution_id: str
    fingerprint: bytes
    expires_at: Instant
    batch_index: Counter | None = None  # where its items begin in the batch they joined
