"""Lanes: their switch, how they share a worker, and what is on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.api.words import LaneStateGiven
from flowfabric.errors import BudgetScopeMismatch, InvalidCursor, NotFound
from flowfabric.model.results import LaneChanged, LaneConfigured, LaneSummary


@operation("set_lane_state", Kind.WRITE, Scope.OPERATE)
class SetLaneState(UnsafeRequest[LaneChanged], frozen=True, kw_only=True):
    """Switch a lane: active, paused (no claims), draining (no creates), disabled (neither)."""

    lane_id: str
    lane_state: LaneStateGiven
    reason: str = ""


@operation("pause_lane", Kind.WRITE, Scope.OPERATE)
class PauseLane(UnsafeRequest[LaneChanged], frozen=True, kw_only=True):
    """Hand no work out; work is still taken in."""

    lane_id: str
    reason: str = ""


@operation("resume_lane", Kind.WRITE, Scope.OPERATE)
class ResumeLane(UnsafeRequest[LaneChanged], frozen=True, kw_only=True):
    """Open the lane again."""

    lane_id: str
    reason: str = ""


@operation("drain_lane", Kind.WRITE, Scope.OPERATE)
class DrainLane(UnsafeRequest[LaneChanged], frozen=True, kw_only=True):
    """Take no work in; what is there is still handed out."""

    lane_id: str
    reason: str = ""


@operation("configure_lane", Kind.WRITE, Scope.OPERATE, errors=(NotFound, BudgetScopeMismatch))
class ConfigureLane(UnsafeRequest[LaneConfigured], frozen=True, kw_only=True):
    """How a lane shares a worker with others, lets work age and bounds what is created on it.

    What is not named stays; an empty list and an empty text take defaults away. Executions
    that exist keep what they were created with. `tenant_weights`: by namespace, the shares of
    tenants beside the others of the lane; 1 is what all have. `fair_weights`: the same of fair
    keys, for what is created from then on.
    """

    lane_id: str
    weight: int | None = None
    aging_ms: int | None = None
    budget_ids: Sequence[str] | None = None
    quota_policy_id: str | None = None
    tenant_weights: Mapping[str, int] | None = None
    fair_weights: Mapping[str, int] | None = None


@operation("list_lanes", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListLanes(Request[Page[LaneSummary]], frozen=True, kw_only=True):
    """Lanes by name, with their switch and counts per state.

    Counting reads a row for each execution; without counts only the catalog is read.
    """

    with_counts: bool = True
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT
