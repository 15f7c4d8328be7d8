"""Budgets: named dimensions, the limits of each, the usage, and the share of each execution.

The policy row is the lock of its budget: a transaction that changes usage, ledger or reservations
has locked it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, TypeAlias

from flowfabric.model.columns import Counter, Instant, Numbers
from flowfabric.model.record import Record

AMOUNT_MAX = 2**63 - 1
Amount: TypeAlias = Annotated[int, Numbers(AMOUNT_MAX)]


class ScopeType(StrEnum):
    """The scope of a budget. Lane and namespace budgets apply to every execution created there."""

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
    """The effect of a reached hard limit, beside refusing reports that would exceed it."""

    DENY = "deny"  # no further effect: claims go on
    BLOCK = "block"  # attached executions do not start until usage is below the limit
    CANCEL_PENDING = "cancel_pending"  # attached executions that wait are cancelled
    FAIL = "fail"  # the execution that exceeded it fails, and so do attached ones that wait
    ASK = "ask"  # people are asked; the spender waits for their answer, and new work for room


class SoftAction(StrEnum):
    """The effect of exceeding a soft limit, beside reporting it."""

    WARN = "warn"  # an event
    IGNORE = "ignore"
    BLOCK = "block"  # no attached execution is started; running ones may go on to the hard limit
    ASK = "ask"  # people are asked before a reservation passes it; reports are as with `warn`


class BudgetPolicy(Record, frozen=True, kw_only=True):
    """The limits of a budget and their effects. A limit of 0 means no limit."""

    scope_type: ScopeType = ScopeType.FREE
    scope_id: str = ""
    enforcement_mode: EnforcementMode = EnforcementMode.STRICT
    on_hard_limit: HardAction = HardAction.BLOCK
    on_soft_limit: SoftAction = SoftAction.WARN
    reset_interval_ms: int = 0
    hard_limits: Mapping[str, int] = {}
    soft_limits: Mapping[str, int] = {}


class PendingWork(StrEnum):
    """Work still pending for the executions attached to a budget."""

    NONE = ""
    UNBLOCK = "unblock"
    CANCEL = "cancel"


class BudgetRow(Record, frozen=True):
    """A budget's policy and state; without a policy it only collects usage."""

    budget_id: str
    policy: BudgetPolicy | None
    created_at: Instant
    updated_at: Instant
    # rises with every reset: amounts spent before a reset are not given back after it
    generation: int = 0
    breach_count: int = 0
    soft_breach_count: int = 0
    last_breach_at: Instant | None = None
    last_breach_dim: str | None = None
    reset_count: int = 0
    last_reset_at: Instant | None = None
    next_reset_at: Instant | None = None
    pending: PendingWork = PendingWork.NONE
    due_at: Instant | None = None  # the next reset, or now while work is pending
    revision: Counter = 0  # rises with every change of the policy
    namespace: str | None = None  # whose it is; none: of all


class UsageRow(Record, frozen=True):
    """One dimension of one budget."""

    budget_id: str
    dimension: str
    used: Amount
    held: Amount  # reserved by running attempts, counted against the hard limit
    updated_at: Instant
    used_before: Amount = 0  # in all periods that a reset has ended
    allowed: Amount = 0  # allowances beyond the hard limit, granted in this period
    soft_allowed: Amount = 0  # the same for the soft limit

    @property
    def total(self) -> int:
        """What was used in the life of the budget, as far as a number of the store holds it."""
        return min(AMOUNT_MAX, self.used_before + self.used)


class LedgerRow(Record, frozen=True):
    """The usage of one execution in one dimension: `spent` can be given back, `kept` cannot."""

    budget_id: str
    execution_id: str
    dimension: str
    generation: int
    spent: Amount
    kept: Amount = 0  # reported by its workers, or spent before a reset of the budget
    flow_id: str | None = None  # the flow in whose total it is counted

    @property
    def total(self) -> int:
        """All that was spent in the life of the execution, as far as a number of the store holds
        it."""
        return min(AMOUNT_MAX, self.spent + self.kept)


class SpendScope(StrEnum):
    """Of what a spend total is the sum."""

    FLOW = "flow"
    KIND = "kind"


class TotalRow(Record, frozen=True):
    """What the executions of a flow, or of a kind, have spent of a budget in one dimension.

    Written under the lock of the budget's row, like its usage. `scope_id`: the flow or the kind.
    """

    scope: SpendScope
    namespace: str
    scope_id: str
    budget_id: str
    dimension: str
    spent: Amount


class DedupRow(Record, frozen=True):
    """A report or spend that was seen: its outcome, or that it was refused."""

    budget_id: str
    operation: str
    execution_id: str  # of a spend; empty for reports
    dedup_key: str
    outcome: UsageOutcome  # a HardBreach was refused, so a repeated call is judged again
    due_at: Instant  # when the row expires


class HoldRow(Record, frozen=True):
    """Amounts one attempt has reserved and not yet settled."""

    execution_id: str
    budget_id: str
    hold_id: str
    lease_epoch: int
    amounts: Mapping[str, int]
    due_at: Instant  # when it expires
    allowed: Mapping[str, int] = {}  # what allowances cover, by kind of limit and dimension


class ScopeRow(Record, frozen=True):
    """A budget that applies to every execution created on a lane or in a namespace."""

    scope_type: ScopeType
    scope_id: str
    budget_id: str


class AttachmentRow(Record, frozen=True):
    """The attachment of an execution to a budget it names."""

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
    """Nothing was applied; names the first dimension, by name, that would exceed its hard limit.

    `current_usage` is the amount used and reserved before.
    """

    dimension: str
    current_usage: int
    hard_limit: int


class AskFirst(Record, frozen=True, tag="AskFirst", tag_field="kind"):
    """Nothing was reserved: the budget wants people to be asked first, by `ask_budget`.

    `current_usage` is the amount used and reserved, `limit` the one in the way.
    """

    dimension: str
    current_usage: int
    limit: int
    is_soft: bool = False


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
    revision: int


class BudgetReset(Record, frozen=True):
    """Usage is zero again. `next_reset_at` is the next automatic reset, 0 for never."""

    next_reset_at: int


class Reserved(Record, frozen=True, tag="Reserved", tag_field="kind"):
    """The amounts are reserved for the attempt until settled, released or expired.

    `asks`: the budget may suspend the execution to ask people, so what is settled is to be recorded
    for its next run.
    """

    hold_id: str
    expires_at: int
    asks: bool = False


class HoldReleased(Record, frozen=True):
    """Whether this call gave something back."""

    released: bool


class BudgetStatus(Record, frozen=True, kw_only=True):
    """A budget as it is shown; instants are integer milliseconds."""

    budget_id: str
    policy: BudgetPolicy | None
    scope_type: ScopeType  # these five are the policy's, under the names the seeds use
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
    allowed: Mapping[str, int] = {}  # allowances beyond hard limits, granted in this period
    soft_allowed: Mapping[str, int] = {}
    revision: int = 0  # rises with every change of the policy
    namespace: str | None = None  # whose it is; None: of all


class Spent(Record, frozen=True):
    """What an execution, or the members of a flow, have spent of a budget in one dimension."""

    budget_id: str
    dimension: str
    spent: int


class KindSpent(Record, frozen=True):
    """What all executions of a kind have spent of a budget in one dimension."""

    namespace: str
    execution_kind: str
    budget_id: str
    dimension: str
    spent: int


class UsageAndLimits(Record, frozen=True):
    """The limits and usage of a budget; empty when the budget is unknown."""

    hard_limits: Mapping[str, int]
    soft_limits: Mapping[str, int]
    usage: Mapping[str, int]
    held: Mapping[str, int]
