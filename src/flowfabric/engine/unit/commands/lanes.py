"""Commands about lanes."""

from __future__ import annotations

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.place.lanes import ConfigureLane, SwitchLane, configure_lane, switch_lane
from flowfabric.model.record import replace
from flowfabric.model.results import LaneChanged, LaneConfigured
from flowfabric.model.route import Lane


@handles(SwitchLane)
async def switch(unit: Unit, command: SwitchLane) -> LaneChanged | Refused:
    """Claims that wait for a lane which hands out again are woken."""
    decision = switch_lane(unit.catalog, command, unit.view.at)
    await _keep(unit, decision, command)
    if decision.saves and command.lane_state.hands_out:
        unit.view.effects.wake_lane(command.lane_id)
    return decision.reply


@handles(ConfigureLane)
async def configure(unit: Unit, command: ConfigureLane) -> LaneConfigured | Refused:
    """What is named changes."""
    decision = configure_lane(unit.catalog, command, unit.view.at)
    await _keep(unit, decision, command)
    return decision.reply


async def _keep(unit: Unit, decision: Decision[object], command: Command[object]) -> None:
    """Write the lane; later commands of the batch see it."""
    for lane in decision.saves:
        if isinstance(lane, Lane):
            await unit.tx.save_lane(lane)
            lanes = {**unit.catalog.lanes, lane.lane_id: lane}
            unit.view.catalog = replace(unit.catalog, lanes=lanes)
    unit.view.apply(None, replace(decision, saves=()), command)
