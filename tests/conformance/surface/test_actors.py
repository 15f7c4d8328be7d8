"""Whoever changes the work of others leaves a name: every unsafe operation carries an actor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from flowfabric.api.operation import OPERATIONS, UnsafeRequest
from flowfabric.errors import InvalidInput
from flowfabric.ids import new_uuid7s
from flowfabric.model.code import pin_of
from flowfabric.model.event import OperatorEvent
from flowfabric.model.flow import CancellationPolicy
from flowfabric.model.schedule import Timing
from flowfabric.model.state import BlockingReason
from flowfabric.model.suspension import OperatorOnly
from flowfabric.stores.tables import FLOW_TASKS, FLOWS, GATES, LINE_ROWS, USAGE
from tests.support.budgets import BUDGET, make_budget, report
from tests.support.flows import submit
from tests.support.gates import QUOTA, quota
from tests.support.journal import entry, record
from tests.support.lab import LANE, Lab, scenario
from tests.support.schedules import HOURLY, declare, declared, schedule, start
from tests.support.spoiling import busy, change, drop
from tests.support.statistics import roll_up
from tests.support.waits import suspended

ANN: Final = {"actor": "ann"}
OVERRIDE: Final = {"source": "operator_override"}
Act = Callable[[Lab], Awaitable[Any]]


async def running(lab: Lab) -> str:
    return (await lab.started()).execution_id


async def held(lab: Lab) -> str:
    key = await lab.create()
    await lab.engine.hold_execution(execution_id=key, reason="look")
    return key


async def blocked(lab: Lab) -> str:
    key = await lab.create()
    await lab.engine.block_execution_for_admission(
        execution_id=key, reason=BlockingReason.WAITING_FOR_QUOTA
    )
    return key


async def waiting(lab: Lab) -> str:
    wait = await suspended(lab, OperatorOnly())
    return wait.claimed.execution_id


async def asked(lab: Lab) -> str:
    await suspended(lab)
    (row,) = (await lab.dump())["ff_waitpoint"]
    return str(row.waitpoint_id)


async def completed(lab: Lab) -> str:
    return await lab.completed()


async def created(lab: Lab) -> str:
    return await lab.create()


async def journaled(lab: Lab) -> str:
    claimed = await lab.started()
    await record(lab, claimed, entry(0, "a"))
    return claimed.execution_id


async def pinned(lab: Lab) -> str:
    needs = {"required_capabilities": [pin_of("work", "2")]}
    return await lab.create(policy={"routing_requirements": needs})


async def questioned(lab: Lab) -> str:
    """A budget that asks."""
    claimed = await lab.started()
    await lab.engine.create_budget(
        budget_id="asks", dimensions=["a"], hard_limits=[1], soft_limits=[0], on_hard_limit="ask"
    )
    await lab.engine.ask_budget(claimed.handle, budget_id="asks", amounts={"a": 2})
    return "asks"


async def paid(lab: Lab) -> str:
    await make_budget(lab, hard={"a": 10})
    return BUDGET


async def gated(lab: Lab) -> str:
    await quota(lab, cap=1)
    return QUOTA


async def two_members(lab: Lab) -> str:
    return (await submit(lab, "ab")).flow_id


async def lost_member(lab: Lab) -> str:
    """A flow with a member that has failed."""
    flow_id = await two_members(lab)
    claimed = await lab.claim()
    await lab.engine.fail(claimed.handle, reason="x", failure_class="permanent")
    return flow_id


async def other(lab: Lab) -> str:
    return "other"


async def overdrawn(lab: Lab) -> str:
    """A budget that says it holds what no reservation holds."""
    await make_budget(lab, hard={"a": 10})
    await report(lab, {"a": 1})
    await change(lab, USAGE, held=5)
    return BUDGET


async def crowded(lab: Lab) -> str:
    await quota(lab, cap=2)
    await lab.started(quota_policy_id=QUOTA)
    await change(lab, GATES, active=2)
    return QUOTA


async def miscounted(lab: Lab) -> str:
    flow_id = await two_members(lab)
    await change(lab, FLOWS, node_count=7)
    return flow_id


async def grouped(lab: Lab) -> str:
    return (await lab.engine.create_consumer_group(group_id="g")).group_id


async def failed(lab: Lab) -> str:
    claimed = await lab.started()
    await lab.engine.fail(claimed.handle, reason="x", failure_class="permanent")
    return claimed.execution_id


async def failed_alike(lab: Lab) -> str:
    told = await lab.engine.describe_failure(execution_id=await failed(lab))
    assert told is not None
    await roll_up(lab)
    return told.fingerprint


async def dismissed(lab: Lab) -> str:
    key = await failed(lab)
    await lab.engine.dismiss_dead(execution_id=key)
    return key


async def scheduled(lab: Lab) -> str:
    return (await schedule(lab)).schedule_id


async def unscheduled(lab: Lab) -> str:
    name = await scheduled(lab)
    await lab.engine.pause_schedule(schedule_id=name)
    return name


async def overdue(lab: Lab) -> str:
    """A schedule with a tick that was missed."""
    name = (await schedule(lab, Timing(at=(lab.now + 1_000, lab.now + 900_000)))).schedule_id
    await lab.engine.pause_schedule(schedule_id=name)
    await lab.after(1_000)
    return name


async def default(lab: Lab) -> str:
    return "default"


async def unclaimed(lab: Lab) -> str:
    """A namespace with a schedule that its program declares no more."""
    await declare(lab, declared())
    await declare(lab)
    return "default"


async def held_up(lab: Lab) -> str:
    """A line whose head failed."""
    failing = await lab.started(serial_key="acme", on_head_failure="hold")
    await lab.engine.fail(failing.handle, reason="no", failure_class="permanent")
    return "acme"


async def misnumbered(lab: Lab) -> str:
    """A line that counts more than there are."""
    await lab.create(serial_key="acme")
    await change(lab, LINE_ROWS, waiting=3)
    return "acme"


async def unstarted(lab: Lab) -> str:
    return new_uuid7s(1)[0]


async def begun(lab: Lab) -> str:
    name = await unstarted(lab)
    await lab.engine.start_operation(action="hold", operation_id=name)
    return name


async def tokened(lab: Lab) -> str:
    return (await lab.engine.create_access_token(name="ci", scopes=("read",))).id


async def decided(lab: Lab) -> str:
    """A member whose group is decided, while two of its upstreams still run."""
    return (await busy(lab)).execution_ids["any"]


async def forgotten(lab: Lab) -> str:
    key = await decided(lab)
    await drop(lab, FLOW_TASKS)
    return key


REASON: Final = {"reason": "x"}
STOP: Final = {"policy": CancellationPolicy.CANCEL_ALL, **REASON}
QUOTA_FULL: Final = {"reason": BlockingReason.WAITING_FOR_QUOTA}
# How each succeeds: what it is about, the name of that argument, and the other arguments.
CALLS: Final[dict[str, tuple[Act, str, dict[str, Any]]]] = {
    "complete_execution": (running, "execution_id", OVERRIDE),
    "fail_execution": (running, "execution_id", {"failure_reason": "x", **OVERRIDE}),
    "cancel_execution": (created, "execution_id", {**REASON, **OVERRIDE}),
    "change_priority": (created, "execution_id", {"new_priority": 9}),
    "fork_execution": (journaled, "execution_id", {"before": "a"}),
    "mark_failure_group": (failed_alike, "fingerprint", {}),
    "retry_with_input": (failed, "execution_id", {"input_payload": b"1"}),
    "repin_execution": (pinned, "execution_id", {"expected": "2", "version": "3"}),
    "replay_execution": (completed, "execution_id", {}),
    "revoke_lease": (running, "execution_id", REASON),
    "hold_execution": (created, "execution_id", REASON),
    "release_execution": (held, "execution_id", {}),
    "block_execution_for_admission": (created, "execution_id", QUOTA_FULL),
    "block_route": (created, "execution_id", {}),
    "unblock_execution": (blocked, "execution_id", {}),
    "resume_execution": (waiting, "execution_id", {}),
    "issue_grant_and_claim": (
        created,
        "execution_id",
        {"lane_id": LANE, "lease_duration_ms": 30_000},
    ),
    "dismiss_dead": (failed, "execution_id", REASON),
    "restore_dead": (dismissed, "execution_id", REASON),
    "start_operation": (unstarted, "operation_id", {"action": "hold"}),
    "stop_operation": (begun, "operation_id", {}),
    "set_lane_state": (other, "lane_id", {"lane_state": "paused", **REASON}),
    "pause_lane": (other, "lane_id", REASON),
    "resume_lane": (other, "lane_id", REASON),
    "drain_lane": (other, "lane_id", REASON),
    "configure_lane": (other, "lane_id", {"weight": 2}),
    "create_budget": (other, "budget_id", {}),
    "update_budget": (paid, "budget_id", {"hard_limits": {"a": 20}}),
    "reset_budget": (paid, "budget_id", {}),
    "answer_budget_ask": (questioned, "budget_id", {"dimension": "a", "approve": False}),
    "create_quota_policy": (other, "quota_policy_id", {"max_concurrent": 2}),
    "update_quota_policy": (gated, "quota_policy_id", {"max_concurrent": 2}),
    "seed_waitpoint_hmac_secret": (other, "kid", {"secret_hex": "a1" * 32}),
    "rotate_waitpoint_hmac_secret_all": (other, "new_kid", {}),
    "cancel_flow": (two_members, "flow_id", STOP),
    "cancel_flow_header": (two_members, "flow_id", STOP),
    "retry_flow": (lost_member, "flow_id", REASON),
    "set_execution_tag": (created, "execution_id", {"key": "a.b", "value": "c"}),
    "set_flow_tag": (two_members, "flow_id", {"key": "a.b", "value": "c"}),
    "set_flow_tags": (two_members, "flow_id", {"tags": {"a.b": "c"}}),
    "report_usage_admin": (paid, "budget_id", {"dimensions": ["a"], "deltas": [1]}),
    "read_waitpoint_token": (asked, "waitpoint_id", {}),
    "create_schedule": (other, "schedule_id", {"timing": HOURLY, "start": start()}),
    "update_schedule": (scheduled, "schedule_id", {"timing": Timing(every_ms=60_000)}),
    "pause_schedule": (scheduled, "schedule_id", {}),
    "resume_schedule": (unscheduled, "schedule_id", {}),
    "delete_schedule": (scheduled, "schedule_id", {}),
    "trigger_schedule": (scheduled, "schedule_id", {}),
    "backfill_schedule": (overdue, "schedule_id", {"begin": 0, "end": 2**41, "again": True}),
    "prune_schedules": (unclaimed, "namespace", {}),
    "declare_schedules": (default, "namespace", {"schedules": [declared()], "origins": ["shop"]}),
    "create_access_token": (other, "name", {"scopes": ("read",)}),
    "revoke_access_token": (tokened, "token_id", {}),
    "create_consumer_group": (other, "group_id", {}),
    "delete_consumer_group": (grouped, "group_id", {}),
    "reconcile_budget_counters": (overdrawn, "budget_id", {}),
    "reconcile_quota_counters": (crowded, "quota_policy_id", {}),
    "reconcile_flow_counters": (miscounted, "flow_id", {}),
    "reconcile_lines": (misnumbered, "serial_key", {}),
    "release_line": (held_up, "serial_key", {}),
    "drain_sibling_cancel_group": (decided, "downstream_execution_id", {}),
    "reconcile_sibling_cancel_group": (forgotten, "downstream_execution_id", {}),
}
UNSAFE: Final = [
    name for name, each in OPERATIONS.items() if issubclass(each.request, UnsafeRequest)
]


async def signed(lab: Lab) -> list[OperatorEvent]:
    events: list[OperatorEvent] = (await lab.dump())["operator_events"]
    return [event for event in events if event.actor]


@pytest.mark.parametrize("name", UNSAFE)
@scenario
async def test_the_actor_of_an_unsafe_operation_is_kept(lab: Lab, name: str) -> None:
    make, label, arguments = CALLS[name]
    subject = await make(lab)
    if label == "downstream_execution_id":
        arguments = {**arguments, "flow_id": (await lab.record(subject)).flow_id}
    if label == "waitpoint_id":
        (row,) = (await lab.dump())["ff_waitpoint"]
        arguments = {"execution_id": row.execution_id}
    await getattr(lab.engine, name)(**{label: subject}, **arguments, **ANN)
    assert [event.actor for event in await signed(lab)] == ["ann"]


@scenario
async def test_the_engine_signs_for_calls_without_an_actor(lab: Lab) -> None:
    await lab.configure(actor="nightly")
    key = await lab.create()
    await lab.engine.hold_execution(execution_id=key, reason="look")
    await lab.engine.release_execution(execution_id=key, actor="ann")
    assert [event.actor for event in await lab.operator_events(key)] == ["nightly", "ann"]


@scenario
async def test_what_happens_by_itself_has_no_actor(lab: Lab) -> None:
    await lab.configure(actor="nightly")
    await suspended(lab, OperatorOnly(), timeout_at=lab.now + 10, timeout_behavior="escalate")
    await lab.after(10)
    await lab.engine.tick()
    assert (await lab.dump())["operator_events"]
    assert await signed(lab) == []


@pytest.mark.parametrize("actor", ["", "a\nb", "x" * 257, 5])
@scenario
async def test_an_actor_is_a_name(lab: Lab, actor: Any) -> None:
    key = await lab.create()
    async with lab.refuses(InvalidInput, "actor"):
        await lab.engine.hold_execution(execution_id=key, reason="look", actor=actor)
