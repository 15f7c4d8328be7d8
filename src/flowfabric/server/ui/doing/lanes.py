"""Switching lanes, and their settings."""

from __future__ import annotations

from flowfabric.api.lanes import ConfigureLane, SetLaneState
from flowfabric.limits import AGING_MS_MAX, LANE_WEIGHT_MAX
from flowfabric.server.exchange import Call
from flowfabric.server.instants import duration_ms
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service
from flowfabric.server.ui.forms import Done, Form


async def switch(service: Service, call: Call, form: Form) -> Done:
    """Another state of a lane."""
    request = SetLaneState(
        lane_id=call.params["lane_id"],
        lane_state=form.text("state"),
        reason=form.text("reason"),
    )
    changed = await ask(service, call, request)
    return Done(
        text=f"Lane {changed.lane_id} was {changed.previous.value}, and is "
        f"{changed.lane_state.value} now."
    )


async def settings(service: Service, call: Call, form: Form) -> Done:
    """Its weight, and how its work ages."""
    request = ConfigureLane(
        lane_id=call.params["lane_id"],
        weight=form.number("weight", least=1, most=LANE_WEIGHT_MAX),
        aging_ms=duration_ms(form.text("aging"), field="aging", most_ms=AGING_MS_MAX),
    )
    lane = await ask(service, call, request)
    return Done(text=f"Lane {lane.lane_id} has the weight {lane.weight} now.")
