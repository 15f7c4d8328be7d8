"""Commands about lanes."""

from __future__ import annotations

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.place.lanes import ConfigureLane, SwitchLane, configure_lane, switch_lane
from flowfabric.model.record import replace
from flowfabric.model.results import LaneChanged, LaneConfigured
from flowfabric.model.route import Catalog, Lane
from flowfabric.stores.tables import LANES


@handles(SwitchLane)
async def switch(unit: Unit, command: SwitchLane) -> LaneChanged | Refused:
    """Claims that wait for a lane which hands out again are woken."""
    decision = switch_lane(await _held(unit, command.lane_id), command, unit.view.at)
    _keep(unit, decision, command)
    if decision.saves and command.lane_state.hands_out:
        unit.view.effects.wake_lane(command.lane_id)
    return decision.reply


@handles(ConfigureLane)
async def configure(unit: Unit, command: ConfigureLane) -> LaneConfigured | Refused:
    """What is named changes."""
    decision = configure_lane(await _held(unit, command.lane_id), command, unit.view.at)
    _keep(unit, decision, command)
    return decision.reply


async def _held(unit: Unit, lane_id: str) -> Catalog:
    """The catalog with the lane as it stands, locked: the catalog itself is read without a lock. A
    lane that cannot be decoded is not read again, as it is refused."""
    if unit.catalog.lane_fault(lane_id) is None:
        unit.view.rows.take(LANES, await unit.tx.rows(LANES, [(lane_id,)]))
        if (lane := unit.view.rows.get(LANES, (lane_id,))) is not None:
            _know(unit, lane)
    return unit.catalog


def _keep(unit: Unit, decision: Decision[object], command: Command[object]) -> None:
    """Write the lane; later commands of the batch see it."""
    unit.view.apply(None, decision, command)
    for lane in decision.saves:
        if isinstance(lane, Lane):
            _know(unit, lane)


def _know(unit: Unit, lane: Lane) -> None:
    lanes = {**unit.catalog.lanes, lane.lane_id: lane}
    unit.view.catalog = replace(unit.catalog, lanes=lanes)
