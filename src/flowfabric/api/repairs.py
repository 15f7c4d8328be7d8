"""Repairs of what `doctor` finds: counters are set to what the rows they count say.

Each is bounded, harmless while work goes on, and changes nothing when it is repeated. What was set
right is in the reply and in the audit trail.
"""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api.operation import Kind, Scope, UnsafeRequest, operation
from flowfabric.errors import InvalidCursor, NotFound
from flowfabric.model.repair import Repaired, SiblingsDrained, SiblingsReconciled


@operation("reconcile_budget_counters", Kind.ADMIN, Scope.ADMIN, errors=(NotFound, InvalidCursor))
class ReconcileBudgetCounters(UnsafeRequest[Repaired], frozen=True, kw_only=True):
    """Set what budgets hold to the sum of their reservations, and their lists right.

    What was used cannot be counted again: reports leave no rows. It is reported where the
    ledger proves it too low. With `budget_id`, only that budget; executions that are missing in
    its list are found without one only.
    """

    budget_id: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("reconcile_quota_counters", Kind.ADMIN, Scope.ADMIN, errors=(NotFound, InvalidCursor))
class ReconcileQuotaCounters(UnsafeRequest[Repaired], frozen=True, kw_only=True):
    """Free slots of executions that do not run; count slots and starts of each key again."""

    quota_policy_id: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("reconcile_flow_counters", Kind.ADMIN, Scope.ADMIN, errors=(NotFound, InvalidCursor))
class ReconcileFlowCounters(UnsafeRequest[Repaired], frozen=True, kw_only=True):
    """Count members, edges, groups and children of flows; defer what no task would do."""

    flow_id: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("drain_sibling_cancel_group", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class DrainSiblingCancelGroup(UnsafeRequest[SiblingsDrained], frozen=True, kw_only=True):
    """Perform the deferred cancels of a decided group now: of what still runs for it."""

    flow_id: str
    downstream_execution_id: str


@operation("reconcile_sibling_cancel_group", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class ReconcileSiblingCancelGroup(UnsafeRequest[SiblingsReconciled], frozen=True, kw_only=True):
    """Restore the deferred cancels of a decided group if they are missing; drop stale ones."""

    flow_id: str
    downstream_execution_id: str
