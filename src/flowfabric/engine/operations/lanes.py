"""Lanes: their switch, how they share a worker, and what is on them.

Each change is audited as an operator event in its own transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowfabric import limits
from flowfabric.api import lanes as api
from flowfabric.api.page import Page, at_name
from flowfabric.engine.core import EngineCore
from flowfabric.engine.operations.execution_lists import count_by_lane
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.errors import Corruption
from flowfabric.model.bounds import Bounds
from flowfabric.model.budget import ScopeType
from flowfabric.model.checks import check_integer, check_lane, clip_text
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.limit_checks import check_bounds, check_word
from flowfabric.model.record import replace
from flowfabric.model.results import LaneChanged, LaneConfigured, LaneSummary
from flowfabric.model.route import Catalog, Lane, LaneState
from flowfabric.stores.base import Changes, Transaction

_LANES = Listing("list_lanes", at_name)

# --- the switch ----------------------------------------------------------------------------------


@answers(api.SetLaneState)
async def set_lane_state(machine: EngineCore, request: api.SetLaneState) -> LaneChanged:
    """To any position."""
    return await _switch(machine, request.lane_id, request.lane_state, request.reason)


@answers(api.PauseLane)
async def pause_lane(machine: EngineCore, request: api.PauseLane) -> LaneChanged:
    """Hand nothing out."""
    return await _switch(machine, request.lane_id, LaneState.PAUSED, request.reason)


@answers(api.ResumeLane)
async def resume_lane(machine: EngineCore, request: api.ResumeLane) -> LaneChanged:
    """Open it."""
    return await _switch(machine, request.lane_id, LaneState.ACTIVE, request.reason)


@answers(api.DrainLane)
async def drain_lane(machine: EngineCore, request: api.DrainLane) -> LaneChanged:
    """Take nothing in."""
    return await _switch(machine, request.lane_id, LaneState.DRAINING, request.reason)


async def _switch(
    machine: EngineCore, lane_id: str, lane_state: LaneState | str, reason: str
) -> LaneChanged:
    """Check, save, and wake claims that wait for a lane which hands out again."""
    lane, text = check_lane(lane_id), clip_text(reason, limits.REASON_BYTES, field="reason")
    wanted = check_word(lane_state, LaneState, field="lane_state")

    async def work(tx: Transaction) -> LaneChanged:
        return await _save_switch(tx, lane, wanted, text)

    reply = await machine.transact(work)
    if wanted.hands_out:
        machine.store.hints.publish({f"lane:{lane}": 1_000_000})
    return reply


async def _save_switch(
    tx: Transaction, lane_id: str, wanted: LaneState, reason: str
) -> LaneChanged:
    catalog = await tx.catalog()
    previous = catalog.lane_state(lane_id)
    known = _readable_lane(catalog, lane_id)
    old = known or Lane(lane_id, wanted, tx.now, tx.now)
    await tx.save_lane(replace(old, lane_state=wanted, changed_at=tx.now, reason=reason))
    details = {"previous": previous.value, "lane_state": wanted.value, "reason": reason}
    await _audit_lane(tx, lane_id, details)
    return LaneChanged(lane_id, wanted, previous)


# --- shares, ageing and bounds -------------------------------------------------------------------


@answers(api.ConfigureLane)
async def configure_lane(machine: EngineCore, request: api.ConfigureLane) -> LaneConfigured:
    """What is named changes, the rest stays."""
    lane, weight, aging_ms = check_lane(request.lane_id), request.weight, request.aging_ms
    budget_ids, quota_policy_id = request.budget_ids, request.quota_policy_id
    if weight is not None:
        weight = check_integer(weight, field="weight", least=1, most=limits.LANE_WEIGHT_MAX)
    if aging_ms is not None:
        aging_ms = check_integer(aging_ms, field="aging_ms", least=0, most=limits.AGING_MS_MAX)
    asked = await _lane_bounds(machine, lane, budget_ids, quota_policy_id)

    async def work(tx: Transaction) -> LaneConfigured:
        known = _readable_lane(await tx.catalog(), lane)
        old = known or Lane(lane, LaneState.ACTIVE, tx.now, tx.now)
        quota = old.bounds.quota_policy_id
        new = replace(
            old,
            changed_at=tx.now,
            weight=old.weight if weight is None else weight,
            aging_ms=old.aging_ms if aging_ms is None else aging_ms,
            bounds=check_bounds(
                old.bounds.budget_ids if budget_ids is None else asked.budget_ids,
                quota if quota_policy_id is None else asked.quota_policy_id,
                None,
            ),
        )
        await tx.save_lane(new)
        details = {"weight": new.weight, "aging_ms": new.aging_ms}
        await _audit_lane(tx, lane, details)
        return LaneConfigured(lane, new.weight, new.aging_ms, new.bounds)

    return await machine.transact(work)


async def _lane_bounds(
    machine: EngineCore,
    lane_id: str,
    budget_ids: Sequence[str] | None,
    quota_policy_id: str | None,
) -> Bounds:
    """Bounds that exist and may be the default of a lane."""
    asked = check_bounds(
        () if budget_ids is None else budget_ids,
        None if quota_policy_id == "" else quota_policy_id,
        None,
    )
    await machine.ensure_limits([asked])
    # A lane has many tenants and executions: budgets of one of those cannot be its default.
    places = {ScopeType.LANE: lane_id, ScopeType.NAMESPACE: "", ScopeType.EXECUTION: ""}
    machine.check_scopes(asked.budget_ids, places)
    return asked


def _readable_lane(catalog: Catalog, lane_id: str) -> Lane | None:
    """The lane as it is set up, if it is; one that cannot be read is not written over."""
    if (fault := catalog.lane_fault(lane_id)) is not None:
        raise Corruption(fault, field="lane_id")
    return catalog.lanes.get(lane_id)


async def _audit_lane(tx: Transaction, lane_id: str, details: dict[str, Any]) -> None:
    changes = Changes()
    changes.operator_events.append(
        OperatorEvent(lane_id, OperatorEventType.LANE_CHANGED, details, "", {}, tx.now)
    )
    await tx.save(changes)


# --- what is on them -----------------------------------------------------------------------------


@answers(api.ListLanes)
async def list_lanes(machine: EngineCore, request: api.ListLanes) -> Page[LaneSummary]:
    """By name."""
    limit, after = check_limit(request.limit), _LANES.place(request.cursor)
    catalog = await machine.read(lambda reader: reader.catalog())
    counts = await count_by_lane(machine)
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
    )
