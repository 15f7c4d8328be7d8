"""Routes and lanes: who may run what, and whether the way is open.

A route is what a claim is matched against. Executions of one kind share it, so matching happens a
few times per claim and not once per waiting execution: work nobody can run is never looked at.
"""

from __future__ import annotations

from enum import StrEnum

from flowfabric.model.record import Record


class Route(Record, frozen=True):
    """Where an execution waits: only a worker that fits all four parts sees it."""

    namespace: str
    lane_id: str
    execution_kind: str
    required_capabilities: tuple[str, ...] = ()


class LaneState(StrEnum):
    """Whether a lane hands work out and takes work in."""

    ACTIVE = "active"
    PAUSED = "paused"  # takes work, hands none out
    DRAINING = "draining"  # hands work out, takes none
    DISABLED = "disabled"  # neither

    @property
    def hands_out(self) -> bool:
        """Whether workers may claim from the lane."""
        return self in (LaneState.ACTIVE, LaneState.DRAINING)

    @property
    def takes_in(self) -> bool:
        """Whether executions may be created on the lane."""
        return self in (LaneState.ACTIVE, LaneState.PAUSED)


class Lane(Record, frozen=True):
    """A named queue and its switch."""

    lane_id: str
    lane_state: LaneState
    registered_at: int
    changed_at: int
    reason: str = ""


class Catalog(Record, frozen=True):
    """Everything claims are matched against. Small, cached, replaced when its version moves."""

    version: int
    routes: tuple[Route, ...]
    lanes: dict[str, Lane]

    def lane_state(self, lane_id: str) -> LaneState:
        """The lane's switch; a lane nobody has used yet is active."""
        lane = self.lanes.get(lane_id)
        return lane.lane_state if lane else LaneState.ACTIVE
