"""Routes and lanes: which workers may run which work, and whether the lane is open.

A claim is matched against routes. Executions of one kind share one, so matching happens a few times
per claim and not once per waiting execution: work that no worker can run is never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.budget import ScopeType
from flowfabric.model.columns import Instant
from flowfabric.model.record import Record


class Route(Record, frozen=True, cache_hash=True):
    """Where an execution waits: only a worker that matches all four parts sees it.

    Every create looks up its number, so a route keeps its hash.
    """

    namespace: str
    lane_id: str
    execution_kind: str
    required_capabilities: tuple[str, ...] = ()


class LaneState(StrEnum):
    """Whether a lane hands out work and accepts work."""

    ACTIVE = "active"
    PAUSED = "paused"  # accepts work, hands out none
    DRAINING = "draining"  # hands out work, accepts none
    DISABLED = "disabled"  # neither

    @property
    def hands_out(self) -> bool:
        """Whether workers may claim from the lane."""
        return self is _ACTIVE or self is _DRAINING

    @property
    def takes_in(self) -> bool:
        """Whether executions may be created on the lane."""
        return self is _ACTIVE or self is _PAUSED


# Reading a member of an enumeration costs ten times a module-level name, and every create does.
_ACTIVE: Final = LaneState.ACTIVE
_PAUSED: Final = LaneState.PAUSED
_DRAINING: Final = LaneState.DRAINING
_DISABLED: Final = LaneState.DISABLED


class Lane(Record, frozen=True):
    """A named queue and its status."""

    lane_id: str
    lane_state: LaneState
    registered_at: Instant
    changed_at: Instant
    reason: str = ""
    weight: int = 1  # its share of a worker that serves several lanes
    aging_ms: int = 0  # this much waiting outweighs one step of priority; 0: priority is strict
    bounds: Bounds = UNBOUNDED  # for executions that name none themselves
    # the share of a tenant beside the others of the lane; those that are not named have 1
    tenant_weights: Mapping[str, int] = {}
    fair_weights: Mapping[str, int] = {}  # the same of fair keys


class Catalog(Record, frozen=True):
    """Everything claims are matched against. Small, cached, replaced when its version changes."""

    version: int
    routes: tuple[Route, ...]
    lanes: dict[str, Lane]
    scopes: dict[tuple[ScopeType, str], tuple[str, ...]] = {}  # budgets of lanes and namespaces
    unreadable: dict[str, str] = {}  # lanes with an unreadable row, and why

    def lane_state(self, lane_id: str) -> LaneState:
        """The lane's status; a lane that was never used is active.

        The settings of a lane with an unreadable row are unknown, so nothing starts there.
        """
        lane = self.lanes.get(lane_id)
        if lane is not None:
            return lane.lane_state
        return _DISABLED if lane_id in self.unreadable else _ACTIVE

    def lane_fault(self, lane_id: str) -> str | None:
        """The defect of the lane's row; None when it can be read."""
        detail = self.unreadable.get(lane_id)
        return None if detail is None else f"lane {lane_id} cannot be read: {detail}"

    def lane_weight(self, lane_id: str) -> int:
        """The lane's share of a worker that serves several."""
        lane = self.lanes.get(lane_id)
        return lane.weight if lane is not None else 1

    def tenant_weight(self, lane_id: str, namespace: str) -> int:
        """A tenant's share of the lane beside other tenants."""
        lane = self.lanes.get(lane_id)
        return lane.tenant_weights.get(namespace, 1) if lane is not None else 1

    def fair_weight(self, lane_id: str, key: str) -> int:
        """The share of a fair key beside others."""
        lane = self.lanes.get(lane_id)
        return lane.fair_weights.get(key, 1) if lane is not None else 1

    def lane_aging_ms(self, lane_id: str) -> int:
        """How work ages on the lane."""
        lane = self.lanes.get(lane_id)
        return lane.aging_ms if lane is not None else 0

    def bounds_for(self, route: Route, asked: Bounds, flow_id: str | None = None) -> Bounds:
        """The bounds of an execution created on a route.

        Budgets add up: those it names, the lane's defaults, and those with the scope of the lane,
        of the namespace or of the flow it is created in. The quota is its own, else the lane's.
        """
        lane = self.lanes.get(route.lane_id)
        default = lane.bounds if lane is not None else UNBOUNDED
        scoped = self._scoped(route, flow_id) if self.scopes else ()
        if default is UNBOUNDED and not scoped:
            return asked
        budgets = {*asked.budget_ids, *default.budget_ids, *scoped}
        return Bounds(
            budget_ids=tuple(sorted(budgets)),
            quota_policy_id=asked.quota_policy_id or default.quota_policy_id,
            concurrency_key=asked.concurrency_key,
        )

    def _scoped(self, route: Route, flow_id: str | None) -> tuple[str, ...]:
        """The budgets with the lane, the namespace or the flow as their scope."""
        scopes = self.scopes
        return (
            *scopes.get((ScopeType.LANE, route.lane_id), ()),
            *scopes.get((ScopeType.NAMESPACE, route.namespace), ()),
            *(scopes.get((ScopeType.FLOW, flow_id), ()) if flow_id is not None else ()),
        )
