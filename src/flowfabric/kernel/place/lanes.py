"""Lanes: the effect of their status on everything that starts or adds work, and their settings."""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric.errors import Corruption, InvalidInput, LaneClosed
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.limits import LANE_WEIGHTS_MAX
from flowfabric.model.bounds import Bounds
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.record import replace
from flowfabric.model.results import LaneChanged, LaneConfigured
from flowfabric.model.route import Catalog, Lane, LaneState


class SwitchLane(Command[LaneChanged], frozen=True, kw_only=True):
    """Open, pause, drain or disable a lane."""

    lane_id: str
    lane_state: LaneState
    reason: str

    def needs(self, need: Needs) -> None:
        """The lanes."""
        need.catalog = True


class ConfigureLane(Command[LaneConfigured], frozen=True, kw_only=True):
    """How a lane shares workers, ages its work and bounds it; None: unchanged."""

    lane_id: str
    weight: int | None
    aging_ms: int | None
    budget_ids: tuple[str, ...] | None
    quota_policy_id: str | None  # empty: removes the quota
    tenant_weights: Mapping[str, int] | None = None  # of the named ones; a weight of 1 is none
    fair_weights: Mapping[str, int] | None = None

    def needs(self, need: Needs) -> None:
        """The lanes."""
        need.catalog = True


def may_start(lane_id: str, catalog: Catalog) -> bool:
    """Whether a lane hands out work, by any kind of claim."""
    return catalog.lane_state(lane_id).hands_out


def refuse_start(lane_id: str, catalog: Catalog) -> Refused | None:
    """Why a named execution may not be started or granted now. A grant made before the lane was
    closed cannot be redeemed until it is open again, while the grant lives."""
    if may_start(lane_id, catalog):
        return None
    return _closed(lane_id, catalog, "hands out no work")


def refuse_entry(lane_id: str, catalog: Catalog) -> Refused | None:
    """Why a lane accepts no more work: neither new executions nor replays."""
    if catalog.lane_state(lane_id).takes_in:
        return None
    return _closed(lane_id, catalog, "takes no work in")


def _closed(lane_id: str, catalog: Catalog, what: str) -> Refused:
    if (fault := catalog.lane_fault(lane_id)) is not None:
        return Refused(Corruption, fault, {"field": "lane_id", "lane_id": lane_id})
    state = catalog.lane_state(lane_id).value
    fields = {"field": "lane_id", "lane_id": lane_id, "lane_state": state}
    return Refused(LaneClosed, f"lane {lane_id} is {state}: it {what}", fields)


# --- changes -------------------------------------------------------------------------------------


def switch_lane(catalog: Catalog, command: SwitchLane, at: Moment) -> Decision[LaneChanged]:
    """Each status from each other; an unknown lane is created with its status."""
    lane_id, wanted = command.lane_id, command.lane_state
    if refusal := _unreadable(lane_id, catalog):
        return Decision(refusal)
    previous = catalog.lane_state(lane_id)
    old = catalog.lanes.get(lane_id) or Lane(lane_id, wanted, at.now, at.now)
    lane = replace(old, lane_state=wanted, changed_at=at.now, reason=command.reason)
    details = {
        "previous": previous.value,
        "lane_state": wanted.value,
        "reason": command.reason,
    }
    audit = _changed(lane_id, details, at)
    return Decision(LaneChanged(lane_id, wanted, previous), events=(audit,), saves=(lane,))


def configure_lane(
    catalog: Catalog, command: ConfigureLane, at: Moment
) -> Decision[LaneConfigured]:
    """Named fields change, the others stay."""
    lane_id = command.lane_id
    if refusal := _unreadable(lane_id, catalog):
        return Decision(refusal)
    old = catalog.lanes.get(lane_id) or Lane(lane_id, LaneState.ACTIVE, at.now, at.now)
    tenants = with_weights(old.tenant_weights, command.tenant_weights, "tenant_weights")
    keys = with_weights(old.fair_weights, command.fair_weights, "fair_weights")
    if isinstance(tenants, Refused):
        return Decision(tenants)
    if isinstance(keys, Refused):
        return Decision(keys)
    budgets, quota = command.budget_ids, command.quota_policy_id
    lane = replace(
        old,
        changed_at=at.now,
        weight=old.weight if command.weight is None else command.weight,
        aging_ms=old.aging_ms if command.aging_ms is None else command.aging_ms,
        bounds=Bounds(
            budget_ids=old.bounds.budget_ids if budgets is None else budgets,
            quota_policy_id=old.bounds.quota_policy_id if quota is None else quota or None,
        ),
        tenant_weights=tenants,
        fair_weights=keys,
    )
    reply = LaneConfigured(lane_id, lane.weight, lane.aging_ms, lane.bounds, tenants, keys)
    details: dict[str, object] = {"weight": lane.weight, "aging_ms": lane.aging_ms}
    if command.tenant_weights:
        details["tenant_weights"] = command.tenant_weights
    if command.fair_weights:
        details["fair_weights"] = command.fair_weights
    audit = _changed(lane_id, details, at)
    return Decision(reply, events=(audit,), saves=(lane,))


def with_weights(
    old: Mapping[str, int], changed: Mapping[str, int] | None, field: str
) -> Mapping[str, int] | Refused:
    """Weights after a change of some; those that are as all others have are not kept."""
    if not changed:
        return old
    weights = {name: weight for name, weight in sorted({**old, **changed}.items()) if weight != 1}
    if len(weights) > LANE_WEIGHTS_MAX:
        detail = f"{field}: the lane would have more than {LANE_WEIGHTS_MAX}"
        return Refused(InvalidInput, detail, {"field": field})
    return weights


def _unreadable(lane_id: str, catalog: Catalog) -> Refused | None:
    """A lane that cannot be decoded is not overwritten."""
    fault = catalog.lane_fault(lane_id)
    return None if fault is None else Refused(Corruption, fault, {"field": "lane_id"})


def _changed(lane_id: str, details: Mapping[str, object], at: Moment) -> OperatorEvent:
    return OperatorEvent(lane_id, OperatorEventType.LANE_CHANGED, details, "", {}, at.now)
