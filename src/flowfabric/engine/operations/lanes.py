"""Lanes: their status, their share of a worker, and their work.

Each change is audited as an operator event in its own transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric import limits
from flowfabric.api import lanes as api
from flowfabric.api.page import Page, at_name
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.execution_lists import count_by_lane
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.kernel.place.lanes import ConfigureLane, SwitchLane
from flowfabric.model.budget import ScopeType
from flowfabric.model.checks import check_flag, check_integer, check_lane, clip_text
from flowfabric.model.limit_checks import check_bounds, check_weights, check_word
from flowfabric.model.results import LaneConfigured, LaneSummary
from flowfabric.model.route import Lane, LaneState

_LANES = Listing("list_lanes", at_name)

# --- status ---------------------------------------------------------------------------------------


@commands(api.SetLaneState)
def set_lane_state(_machine: Machine, request: api.SetLaneState) -> SwitchLane:
    """Set any status."""
    wanted = check_word(request.lane_state, LaneState, field="lane_state")
    return _switch(request.lane_id, wanted, request.reason)


@commands(api.PauseLane)
def pause_lane(_machine: Machine, request: api.PauseLane) -> SwitchLane:
    """Hand out no work."""
    return _switch(request.lane_id, LaneState.PAUSED, request.reason)


@commands(api.ResumeLane)
def resume_lane(_machine: Machine, request: api.ResumeLane) -> SwitchLane:
    """Open it."""
    return _switch(request.lane_id, LaneState.ACTIVE, request.reason)


@commands(api.DrainLane)
def drain_lane(_machine: Machine, request: api.DrainLane) -> SwitchLane:
    """Accept no work."""
    return _switch(request.lane_id, LaneState.DRAINING, request.reason)


def _switch(lane_id: str, wanted: LaneState, reason: str) -> SwitchLane:
    return SwitchLane(
        lane_id=check_lane(lane_id),
        lane_state=wanted,
        reason=clip_text(reason, limits.REASON_BYTES, field="reason"),
    )


# --- shares, ageing and bounds -------------------------------------------------------------------


@answers(api.ConfigureLane)
async def configure_lane(machine: Machine, request: api.ConfigureLane) -> LaneConfigured:
    """Named fields change, the others stay."""
    lane, weight, aging_ms = check_lane(request.lane_id), request.weight, request.aging_ms
    budget_ids, quota_policy_id = request.budget_ids, request.quota_policy_id
    if weight is not None:
        weight = check_integer(weight, field="weight", least=1, most=limits.LANE_WEIGHT_MAX)
    if aging_ms is not None:
        aging_ms = check_integer(aging_ms, field="aging_ms", least=0, most=limits.AGING_MS_MAX)
    asked = check_bounds(
        () if budget_ids is None else budget_ids,
        None if quota_policy_id == "" else quota_policy_id,
        None,
    )
    await machine.known.ensure_limits([asked])
    # A lane has many tenants and executions: budgets of one of those cannot be its default.
    places = {ScopeType.LANE: lane, ScopeType.NAMESPACE: "", ScopeType.EXECUTION: ""}
    machine.known.check_scopes(asked.budget_ids, places)
    command = ConfigureLane(
        lane_id=lane,
        weight=weight,
        aging_ms=aging_ms,
        budget_ids=None if budget_ids is None else asked.budget_ids,
        quota_policy_id="" if quota_policy_id == "" else asked.quota_policy_id,
        tenant_weights=check_weights(request.tenant_weights, field="tenant_weights"),
        fair_weights=check_weights(request.fair_weights, field="fair_weights"),
        actor=machine.actor(request.actor),
    )
    return await machine.execute(command)


# --- listing --------------------------------------------------------------------------------------


@answers(api.ListLanes)
async def list_lanes(machine: Machine, request: api.ListLanes) -> Page[LaneSummary]:
    """By name."""
    limit, after = check_limit(request.limit), _LANES.place(request.cursor)
    catalog = await machine.read(lambda reader: reader.catalog())
    is_counted = check_flag(request.with_counts, field="with_counts")
    counts = await count_by_lane(machine) if is_counted else {}
    names = sorted(name for name in catalog.lanes if after is None or name > after[0])
    return _LANES.page(
        names,
        limit,
        place_of=lambda name: (name,),
        show=lambda name: _summary(name, catalog.lanes[name], counts.get(name, {})),
    )


def _summary(name: str, lane: Lane, counts: Mapping[str, int]) -> LaneSummary:
    return LaneSummary(
        name,
        lane.lane_state,
        lane.reason,
        lane.registered_at,
        counts,
        lane.weight,
        lane.aging_ms,
        lane.bounds,
        lane.tenant_weights,
        lane.fair_weights,
    )
