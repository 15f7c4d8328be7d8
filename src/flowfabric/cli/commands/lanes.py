"""`ff lanes`: where work waits, and the settings of each lane."""

from __future__ import annotations

from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.cli import values
from flowfabric.cli.advice import lanes as lane_names
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser, add_reason
from flowfabric.cli.show.executions import bounds_of
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import span
from flowfabric.limits import PAGE_MAX
from flowfabric.model.results import LaneConfigured, LaneSummary
from flowfabric.model.route import LaneState
from flowfabric.model.state import PublicState

_STATE_AFTER: Final = {
    "pause": LaneState.PAUSED,
    "resume": LaneState.ACTIVE,
    "drain": LaneState.DRAINING,
    "disable": LaneState.DISABLED,
}


def add_arguments(parser: FfParser) -> None:
    """The list, a switch, or the settings of one lane."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("pause", "resume", "drain", "disable", "set"),
        metavar="pause|resume|drain|disable|set",
        help="pause: take work, hand none out; drain: the reverse; disable: neither",
    )
    parser.add_argument("lane", nargs="?", metavar="LANE")
    add_reason(parser)
    parser.add_argument("--weight", type=values.whole_number, metavar="N", help="set: its part")
    parser.add_argument(
        "--tenant-weight",
        action="append",
        type=values.weight,
        metavar="NAMESPACE=N",
        help="set: a tenant's part beside the others of the lane; 1 is what all have (repeat)",
    )
    parser.add_argument(
        "--fair-weight",
        action="append",
        type=values.weight,
        metavar="KEY=N",
        help="set: the part of a fair key beside others, for new work (repeat)",
    )
    parser.add_argument(
        "--aging",
        type=values.duration_ms,
        metavar="TIME",
        help="set: so much waiting outweighs one step of priority; 0 for never",
    )
    parser.add_argument(
        "--budget", action="append", metavar="NAME", help="set: new work spends from it (repeat)"
    )
    parser.add_argument("--no-budget", action="store_true", help="set: from none")
    parser.add_argument("--quota", metavar="NAME", help="set: new work is admitted under it")
    parser.add_argument("--no-quota", action="store_true", help="set: under none")
    parser.set_defaults(handler=lanes)


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
        hint = values.nearest(lane_id, known)
        call.terminal.note(f"this lane is new: nothing was ever on it{'; ' if hint else ''}{hint}")
    return Exit.OK


_SETTINGS: Final = (
    *("weight", "tenant_weight", "fair_weight", "aging"),
    *("budget", "no_budget", "quota", "no_quota"),
)


def _given(call: Call) -> list[str]:
    """The options of `set` that were given."""
    chosen = [name for name in _SETTINGS if getattr(call.arguments, name) not in (None, False)]
    return [f"--{name.replace('_', '-')}" for name in chosen]


async def _configure(call: Call) -> Exit:
    arguments = call.arguments
    if arguments.lane is None:
        raise usage("which lane to set?", advice="ff lanes set LANE --weight 3")
    if not _given(call):
        raise usage(
            "nothing to set", advice="give --weight, --tenant-weight, --aging, --budget or --quota"
        )
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
            tenant_weights=_weights(arguments.tenant_weight, "--tenant-weight"),
            fair_weights=_weights(arguments.fair_weight, "--fair-weight"),
        )
    if call.terminal.as_json:
        call.terminal.document(plain(configured))
    else:
        text = clean(settings_of(configured)) or "as every lane"
        call.terminal.line(f"lane {configured.lane_id}: {text}")
    return Exit.OK


def _weights(pairs: list[tuple[str, int]] | None, option: str) -> dict[str, int] | None:
    if pairs is None:
        return None
    if len({name for name, _ in pairs}) < len(pairs):
        raise usage(f"{option}: a name is given twice", advice="give each once")
    return dict(pairs)


def settings_of(lane: LaneSummary | LaneConfigured) -> str:
    """The settings of a lane that are not the default."""
    parts = [f"weight {lane.weight}"] if lane.weight != 1 else []
    parts += [f"{name} {weight}" for name, weight in lane.tenant_weights.items()]
    parts += [f"fair {name} {weight}" for name, weight in lane.fair_weights.items()]
    if lane.aging_ms:
        parts.append(f"aging {span(lane.aging_ms)}")
    return ", ".join([*parts, *bounds_of(lane.bounds)])
