"""`ff lanes` and `ff workers`: where work waits and who does it."""

from __future__ import annotations

from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.cli.advice import lanes as lane_names
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.plain import plain
from flowfabric.cli.terminal import Column, clean
from flowfabric.cli.times import relative, span
from flowfabric.cli.values import nearest
from flowfabric.limits import PAGE_MAX
from flowfabric.model.bounds import Bounds
from flowfabric.model.results import LaneConfigured, LaneSummary
from flowfabric.model.route import LaneState
from flowfabric.model.state import PublicState
from flowfabric.model.worker import Worker

_STATE_AFTER: Final = {
    "pause": LaneState.PAUSED,
    "resume": LaneState.ACTIVE,
    "drain": LaneState.DRAINING,
    "disable": LaneState.DISABLED,
}
_WORKER_COLUMNS: Final = (
    Column("WORKER"),
    Column("INSTANCE", shrinks=True),
    Column("NAMESPACE", shrinks=True),
    Column("LANES", shrinks=True),
    Column("CAPABILITIES", shrinks=True),
    Column("KINDS", shrinks=True),
    Column("SEEN"),
    Column("SINCE"),
)


async def lanes(call: Call) -> Exit:
    """List the lanes, or switch one."""
    if call.arguments.action == "set":
        return await _configure(call)
    if given := _given(call):
        raise usage(f"{given[0]} belongs to ff lanes set", advice="ff lanes set LANE --weight 3")
    if call.arguments.action is not None:
        return await _switch(call)
    async with call.engine() as engine:
        found = await _all_lanes(engine)
    if call.terminal.as_json:
        call.terminal.document(plain(found))
    elif not found:
        call.terminal.note("no lanes yet: a lane appears with its first execution")
    else:
        _show_lanes(call, found)
    return Exit.OK


def _show_lanes(call: Call, found: list[LaneSummary]) -> None:
    """A column for each state that occurs."""
    states = [
        state.value for state in PublicState if any(lane.counts.get(state.value) for lane in found)
    ]
    columns = (
        Column("LANE", shrinks=True),
        Column("SWITCH", styled=True),
        *(Column(state.upper(), right=True) for state in states),
        Column("SETTINGS", shrinks=True),
        Column("REASON", shrinks=True),
    )
    rows = [
        (
            lane.lane_id,
            lane.lane_state.value,
            *(lane.counts.get(state, 0) for state in states),
            settings_of(lane),
            lane.reason,
        )
        for lane in found
    ]
    call.terminal.table(columns, rows)


async def _all_lanes(engine: EngineBackend) -> list[LaneSummary]:
    return await every_item(lambda at: engine.list_lanes(cursor=at, limit=PAGE_MAX))


async def _switch(call: Call) -> Exit:
    action, lane_id = call.arguments.action, call.arguments.lane
    if lane_id is None:
        raise usage(f"which lane to {action}?", advice=f"ff lanes {action} LANE")
    async with call.engine() as engine:
        known = await lane_names(engine)
        changed = await engine.set_lane_state(
            lane_id=lane_id, lane_state=_STATE_AFTER[action], reason=call.arguments.reason
        )
    if call.terminal.as_json:
        call.terminal.document(plain(changed))
    else:
        new = call.terminal.state(changed.lane_state.value)
        call.terminal.line(f"lane {changed.lane_id}: {changed.previous.value} → {new}")
    if lane_id not in known:
        hint = nearest(lane_id, known)
        call.terminal.note(f"this lane is new: nothing was ever on it{'; ' if hint else ''}{hint}")
    return Exit.OK


_SETTINGS: Final = ("weight", "aging", "budget", "no_budget", "quota", "no_quota")


def _given(call: Call) -> list[str]:
    """The options of `set` that were given."""
    chosen = [name for name in _SETTINGS if getattr(call.arguments, name) not in (None, False)]
    return [f"--{name.replace('_', '-')}" for name in chosen]


async def _configure(call: Call) -> Exit:
    arguments = call.arguments
    if arguments.lane is None:
        raise usage("which lane to set?", advice="ff lanes set LANE --weight 3")
    if not _given(call):
        raise usage("nothing to set", advice="give --weight, --aging, --budget or --quota")
    for name in ("budget", "quota"):
        if getattr(arguments, name) is not None and getattr(arguments, f"no_{name}"):
            raise usage(f"--{name} and --no-{name} contradict", advice="give one of them")
    async with call.engine() as engine:
        configured = await engine.configure_lane(
            lane_id=arguments.lane,
            weight=arguments.weight,
            aging_ms=arguments.aging,
            budget_ids=() if arguments.no_budget else arguments.budget,
            quota_policy_id="" if arguments.no_quota else arguments.quota,
        )
    if call.terminal.as_json:
        call.terminal.document(plain(configured))
    else:
        text = clean(settings_of(configured)) or "as every lane"
        call.terminal.line(f"lane {configured.lane_id}: {text}")
    return Exit.OK


def settings_of(lane: LaneSummary | LaneConfigured) -> str:
    """What is special about a lane."""
    parts = [f"weight {lane.weight}"] if lane.weight != 1 else []
    if lane.aging_ms:
        parts.append(f"aging {span(lane.aging_ms)}")
    return ", ".join([*parts, *bounds_of(lane.bounds)])


def bounds_of(bounds: Bounds) -> list[str]:
    """Budgets, quota and key in words."""
    parts = [f"budget {name}" for name in bounds.budget_ids]
    if bounds.quota_policy_id is not None:
        parts.append(f"quota {bounds.quota_policy_id}")
    if bounds.concurrency_key is not None:
        parts.append(f"key {bounds.concurrency_key}")
    return parts


async def workers(call: Call) -> Exit:
    """Who said within its time that it is there."""
    namespace = call.arguments.namespace
    async with call.engine() as engine:
        now = await engine.server_time_ms()
        found = await every_item(
            lambda at: engine.list_workers(namespace=namespace, cursor=at, limit=PAGE_MAX)
        )
    if call.terminal.as_json:
        call.terminal.document(plain(found))
    elif not found:
        call.terminal.note("no live workers: start one with ff worker MODULE:APP")
    else:
        call.terminal.table(_WORKER_COLUMNS, [_worker_row(worker, now) for worker in found])
    return Exit.OK


def _worker_row(worker: Worker, now: int) -> tuple[object, ...]:
    return (
        worker.worker_id,
        worker.worker_instance_id,
        worker.namespace,
        ", ".join(worker.lanes),
        ", ".join(worker.capabilities) or "-",
        "all" if worker.kinds is None else ", ".join(worker.kinds),
        relative(worker.last_heartbeat_at, now),
        relative(worker.registered_at, now),
    )
