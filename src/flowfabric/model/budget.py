"""Budgets: named dimensions, what may be spent of each, what was spent and by whom.

The row of the policy is the mutex of its budget: whoever changes usage, ledger or holds has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from flowfabric.model.record import Record

AMOUNT_MAX = 2**63 - 1


class ScopeType(StrEnum):
    """What a budget is for. Lane and namespace budgets apply to whatever is created there."""

    FREE = "free"
    EXECUTION = "execution"
    FLOW = "flow"
    LANE = "lane"
    NAMESPACE = "namespace"


class EnforcementMode(StrEnum):
    """Whether hard limits stop anything."""

    STRICT = "strict"
    ADVISORY = "advisory"  # applied, counted and reported, never refused


class HardAction(StrEnum):
    """What a reached hard limit does, beside refusing reports that would pass it."""

    DENY = "deny"  # nothing else: claims go on
    BLOCK = "block"  # attached executions are not started until there is room
    CANCEL_PENDING = "cancel_pending"  # attached executions that wait are cancelled
    FAIL = "fail"  # the execution that breached fails, and so do attached ones that wait


class SoftAction(StrEnum):
    """What passing a soft limit does, beside being reported."""

    WARN = "warn"  # an event
    IGNORE = "ignore"
    BLOCK = "block"  # no attached execution is started; running ones may go on to the hard limit


class BudgetPolicy(Record, frozen=True, kw_only=True):
    """What somebody decided about a budget. A limit of 0 is none."""

    scope_type: ScopeType = ScopeType.FREE
    scope_id: str = ""
    enforcement_mode: EnforcementMode = EnforcementMode.STRICT
    on_hard_limit: HardAction = HardAction.BLOCK
    on_soft_limit: SoftAction = SoftAction.WARN
    reset_interval_ms: int = 0
    hard_limits: Mapping[str, int] = {}
    soft_limits: Mapping[str, int] = {}


class PendingWork(StrEnum):
    """What is still to be done for the executions attached to a budget."""

    NONE = ""
    UNBLOCK = "unblock"
    CANCEL = "cancel"


class BudgetRow(Record, frozen=True):
    """A budget's policy and its life; without a policy it only collects usage."""

    budget_id: str
    policy: BudgetPolicy | None
    created_at: int
    updated_at: int
    generation: int = 0  # rises with every reset: what was spent before is not given back after
    breach_count: int = 0
    soft_breach_count: int = 0
    last_breach_at: int | None = None
    last_breach_dim: str | None = None
    reset_count: int = 0
    last_reset_at: int | None = None
    next_reset_at: int | None = None
    pending: PendingWork = PendingWork.NONE
    due_at: int | None = None  # the next reset, or now while work is pending


class UsageRow(Record, frozen=True):
    """One dimension of one budget."""

    budget_id: str
    dimension: str
    used: int
    held: int  # reserved by running attempts, counted against the hard limit
    updated_at: int


class LedgerRow(Record, frozen=True):
    """What one execution has spent of one dimension, so that it can be given back."""

    budget_id: str
    execution_id: str
    dimension: str
    generation: int
    spent: int


class DedupRow(Record, frozen=True):
    """A report or spend that was seen: its outcome, or that it was refused."""

    budget_id: str
    operation: str
    execution_id: str  # of a spend; empty for reports
    dedup_key: str
    outcome: UsageOutcome  # a HardBreach was refused and is judged again
    due_at: int  # when it is forgotten


class HoldRow(Record, frozen=True):
    """Amounts one attempt has reserved and not yet settled."""

    execution_id: str
    budget_id: str
    hold_id: str
    lease_epoch: int
    amounts: Mapping[str, int]
    due_at: int  # when it lapses


class ScopeRow(Record, frozen=True):
    """A budget that applies to whatever is created on a lane or in a namespace."""

    scope_type: ScopeType
    scope_id: str
    budget_id: str


class AttachmentRow(Record, frozen=True):
    """An execution that names a budget."""

    budget_id: str
    execution_id: str


# --- answers -----------------------------------------------------------------------------------


class Ok(Record, frozen=True, tag="Ok", tag_field="kind"):
    """Applied, within every limit."""


class AlreadyApplied(Record, frozen=True, tag="AlreadyApplied", tag_field="kind"):
    """An earlier call with this key was applied."""


class SoftBreach(Record, frozen=True, tag="SoftBreach", tag_field="kind"):
    """Applied; the first dimension by name that is now over its soft limit."""

    dimension: str
    current_usage: int
    soft_limit: int


class HardBreach(Record, frozen=True, tag="HardBreach", tag_field="kind"):
    """Nothing was applied; the first dimension by name that would be over its hard limit.

    `current_usage` is what was used and reserved before.
    """

    dimension: str
    current_usage: int
    hard_limit: int


UsageOutcome = Ok | AlreadyApplied | SoftBreach | HardBreach


class BudgetCreated(Record, frozen=True, tag=True):
    """The policy is in force."""

    budget_id: str


class BudgetAlreadySatisfied(Record, frozen=True, tag=True):
    """The same policy was in force already."""

    budget_id: str


class BudgetUpdated(Record, frozen=True):
    """The new policy is in force."""

    budget_id: str


class BudgetReset(Record, frozen=True):
    """Usage is zero again; when it resets by itself, 0 for never."""

    next_reset_at: int


class Reserved(Record, frozen=True, tag="Reserved", tag_field="kind"):
    """Amounts are held for the attempt until settled, released or expired."""

    hold_id: str
    expires_at: int


class HoldReleased(Record, frozen=True):
    """Whether this call gave something back."""

    released: bool


class BudgetStatus(Record, frozen=True, kw_only=True):
    """A budget as people see it; instants are integer milliseconds."""

    budget_id: str
    policy: BudgetPolicy | None
    scope_type: ScopeType  # these five are the policy's, where the seeds have them
    scope_id: str
    enforcement_mode: EnforcementMode
    hard_limits: Mapping[str, int]
    soft_limits: Mapping[str, int]
    usage: Mapping[str, int]
    held: Mapping[str, int]
    breach_count: int
    soft_breach_count: int
    last_breach_at: int | None
    last_breach_dim: str | None
    reset_count: int
    last_reset_at: int | None
    next_reset_at: int | None
    created_at: int
    updated_at: int


class UsageAndLimits(Record, frozen=True):
    """What a budget allows and what of it is used; empty when nothing is known of it."""

    hard_limits: Mapping[str, int]
    soft_limits: Mapping[str, int]
    usage: Mapping[str, int]
    held: Mapping[str, int]
