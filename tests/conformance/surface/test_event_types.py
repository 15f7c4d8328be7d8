"""Every declared kind of event is written by something: a kind that nothing writes is a promise
to whoever subscribes to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from flowfabric.model.attempt import FailureClass
from flowfabric.model.bulk import BulkOperation
from flowfabric.model.code import pin_of
from flowfabric.model.event import BudgetEventType, LeaseEventType, OperatorEventType
from flowfabric.model.flow import FlowEventType
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.schedule import Timing
from flowfabric.model.state import BlockingReason, TerminalOutcome
from flowfabric.model.suspension import Count, CountKind, OperatorOnly, SignalEffect
from flowfabric.model.words import TimeoutBehavior
from flowfabric.model.worker import WorkerEventType
from flowfabric.stores.tables import FLOWS
from tests.support.budgets import BUDGET, make_budget, report
from tests.support.flows import arrows, node, submit
from tests.support.gates import QUOTA, quota
from tests.support.journal import entry, record
from tests.support.lab import LANE, Lab, scenario
from tests.support.schedules import SCHEDULE, declare, declared
from tests.support.spoiling import busy, change
from tests.support.statistics import roll_up
from tests.support.waits import early, pending, suspended

Acts = Callable[[Lab], Awaitable[Any]]
OVERRIDE: Final = "operator_override"


async def operators_act_on_waiting_work(lab: Lab) -> None:
    key = await lab.create()
    await lab.engine.change_priority(execution_id=key, new_priority=9)
    await lab.engine.hold_execution(execution_id=key, reason="look")
    await lab.engine.set_execution_tag(execution_id=key, key="team.name", value="red")
    await lab.engine.release_execution(execution_id=key)
    await lab.engine.block_execution_for_admission(
        execution_id=key, reason=BlockingReason.WAITING_FOR_QUOTA, reason_detail="full"
    )
    await lab.engine.unblock_execution(execution_id=key)
    await lab.cancel(key)
    await lab.engine.replay_execution(execution_id=key)
    await lab.engine.pause_lane(lane_id="other")


async def operators_act_on_many(lab: Lab) -> None:
    lost = await lab.started()
    await lab.engine.fail(lost.handle, reason="x", failure_class=FailureClass.PERMANENT)
    await lab.engine.dismiss_dead(execution_id=lost.execution_id)
    told = await lab.engine.describe_failure(execution_id=lost.execution_id)
    assert told is not None
    await roll_up(lab)
    await lab.engine.mark_failure_group(fingerprint=told.fingerprint)
    await lab.engine.restore_dead(execution_id=lost.execution_id)
    await lab.engine.retry_with_input(execution_id=lost.execution_id, input_payload=b"1")
    for is_stopped in (True, False):
        begun = await lab.engine.start_operation(action="hold")
        assert isinstance(begun, BulkOperation)
        if is_stopped:
            await lab.engine.stop_operation(operation_id=begun.operation_id)
        await lab.engine.tick()


async def operators_move_and_fork_work(lab: Lab) -> None:
    begun = await lab.started()
    await record(lab, begun, entry(0, "a"))
    await lab.engine.fork_execution(execution_id=begun.execution_id, before="a")
    needs = {"required_capabilities": [pin_of("work", "2")]}
    pinned = await lab.create(policy={"routing_requirements": needs})
    await lab.engine.repin_execution(execution_id=pinned, expected="2", version="3")


async def lines_are_released(lab: Lab) -> None:
    failing = await lab.started(serial_key="acme", on_head_failure="hold")
    await lab.engine.fail(failing.handle, reason="no", failure_class="permanent")
    await lab.engine.release_line(serial_key="acme")


async def operators_act_on_running_work(lab: Lab) -> None:
    for end in ("complete", "fail"):
        key = await lab.create()
        await lab.engine.issue_grant_and_claim(
            execution_id=key, lane_id=LANE, lease_duration_ms=30_000
        )
        if end == "complete":
            await lab.engine.complete_execution(execution_id=key, source=OVERRIDE)
        else:
            await lab.engine.fail_execution(execution_id=key, source=OVERRIDE, failure_reason="x")
    lost = await lab.started()
    await lab.engine.revoke_lease(execution_id=lost.execution_id, reason="suspect")


async def leases_lapse_and_are_taken_over(lab: Lab) -> None:
    await lab.configure(reclaim_grace_ms=60_000)
    kept = await lab.started(policy=ExecutionPolicy(renewal_events=True))
    await lab.engine.renew(kept.handle)
    await lab.engine.complete(kept.handle)
    lost = await lab.lapsed()
    who: dict[str, Any] = {"worker_id": "w2", "worker_instance_id": "w2-1"}
    await lab.engine.issue_reclaim_grant(execution_id=lost.execution_id, **who)
    taken: Any = await lab.engine.reclaim_execution(execution_id=lost.execution_id, **who)
    await lab.engine.complete(taken.handle)


async def budgets_ask(lab: Lab) -> None:
    await make_budget(lab, "asks", hard={"a": 1}, on_hard_limit="ask")
    claimed = await lab.started()
    await lab.engine.ask_budget(claimed.handle, budget_id="asks", amounts={"a": 2})
    await lab.engine.answer_budget_ask(budget_id="asks", dimension="a", approve=False)


async def limits_are_made_and_passed(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 10}, soft={"a": 5})
    await report(lab, {"a": 6})
    await report(lab, {"a": 60})
    for limit in (20, 10):
        await lab.engine.update_budget(budget_id=BUDGET, hard_limits={"a": limit})
    await lab.engine.reset_budget(budget_id=BUDGET)
    await quota(lab, cap=1)
    await lab.engine.update_quota_policy(quota_policy_id=QUOTA, max_concurrent=2)


async def keys_are_seeded_and_rotated(lab: Lab) -> None:
    await lab.engine.seed_waitpoint_hmac_secret(kid="mine", secret_hex="a1" * 32)
    await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="next")


async def waits_begin_and_end(lab: Lab) -> None:
    asked = await suspended(lab)
    (row,) = (await lab.dump())["ff_waitpoint"]
    await lab.engine.read_waitpoint_token(
        execution_id=row.execution_id, waitpoint_id=row.waitpoint_id
    )
    await asked.send("another name")
    await asked.send()
    resumed = await suspended(lab, claimed=await lab.claim())
    await lab.engine.resume_execution(execution_id=resumed.execution_id)
    await suspended(
        lab,
        claimed=await lab.claim(),
        timeout_at=lab.now + 1,
        timeout_behavior=TimeoutBehavior.ESCALATE,
    )
    await lab.after(1)
    claimed = await lab.started()
    await early(lab, claimed, await pending(lab, claimed))
    for_operator = await suspended(lab, OperatorOnly(), claimed=claimed)
    await for_operator.send()
    by_two = await suspended(lab, Count(2, CountKind.DISTINCT_SOURCES, ("a",)))
    await by_two.send(by="ann")
    await by_two.send(by="ann")


async def executions_end_in_every_way(lab: Lab) -> None:
    await lab.completed()
    failing = await lab.started()
    await lab.engine.fail(failing.handle, reason="x", failure_class=FailureClass.PERMANENT)
    await lab.create(execution_deadline_at=lab.now + 1)
    await lab.after(1)


async def flows_end_and_reopen(lab: Lab) -> None:
    graph = await submit(lab, [node("a"), node("b")], arrows("a>b"))
    await graph.fail("a")
    await lab.engine.replay_execution(execution_id=graph.ids["a"], cascade=True)
    await graph.complete("a")
    await graph.complete("b")
    other = await submit(lab, [node("a")])
    await lab.engine.cancel_flow(flow_id=other.flow_id, reason="enough")


async def operators_repair(lab: Lab) -> None:
    made = await busy(lab)
    await change(lab, FLOWS, node_count=7)
    await lab.engine.reconcile_flow_counters()
    await lab.engine.drain_sibling_cancel_group(
        flow_id=made.flow_id, downstream_execution_id=made.execution_ids["any"]
    )
    await lab.engine.cancel_flow(flow_id=made.flow_id, reason="enough")


async def groups_are_made_and_changed(lab: Lab) -> None:
    for kinds in (("flow",), ("worker",)):
        await lab.engine.create_consumer_group(group_id="g", kinds=kinds)
    await lab.engine.delete_consumer_group(group_id="g")


async def access_tokens_are_made_and_revoked(lab: Lab) -> None:
    made = await lab.engine.create_access_token(name="ci", scopes=("read",))
    await lab.engine.revoke_access_token(token_id=made.id)


async def schedules_are_made_and_changed(lab: Lab) -> None:
    await declare(lab, declared())
    await lab.engine.update_schedule(schedule_id=SCHEDULE, timing=Timing(every_ms=60_000))
    await lab.engine.pause_schedule(schedule_id=SCHEDULE)
    await lab.after(60_000)
    await lab.engine.resume_schedule(schedule_id=SCHEDULE)
    await lab.engine.trigger_schedule(schedule_id=SCHEDULE)
    await lab.engine.backfill_schedule(schedule_id=SCHEDULE, begin=lab.now - 60_000, end=lab.now)
    await declare(lab)
    await lab.engine.prune_schedules()


async def workers_come_and_go(lab: Lab) -> None:
    for name in ("dead", "silent"):
        await lab.engine.register_worker(
            worker_id=name, worker_instance_id=name, lanes=(LANE,), liveness_ttl_ms=1_000
        )
    await lab.engine.drain_worker(worker_instance_id="dead", reason="deploy")
    await lab.engine.mark_worker_dead(worker_instance_id="dead", reason="gone")
    await lab.after(2_000)


async def tidy(lab: Lab) -> None:
    """Nothing is left that the next act could meet."""
    for execution in (await lab.dump())["executions"]:
        if not execution.is_terminal:
            await lab.cancel(execution.execution_id)


# Which acts must write all the kinds of which log.
OPERATORS: Final = (
    access_tokens_are_made_and_revoked,
    groups_are_made_and_changed,
    operators_act_on_waiting_work,
    operators_act_on_running_work,
    operators_act_on_many,
    operators_move_and_fork_work,
    lines_are_released,
    limits_are_made_and_passed,
    keys_are_seeded_and_rotated,
    waits_begin_and_end,
    flows_end_and_reopen,
    operators_repair,
    schedules_are_made_and_changed,
    budgets_ask,
)
LOGS: Final[dict[str, tuple[Any, str, tuple[Acts, ...]]]] = {
    "operator_events": (OperatorEventType, "event_type", OPERATORS),
    "lease_events": (
        LeaseEventType,
        "event_type",
        (leases_lapse_and_are_taken_over, operators_act_on_running_work, waits_begin_and_end),
    ),
    "completion_events": (
        [each for each in TerminalOutcome if each is not TerminalOutcome.NONE],
        "outcome",
        (executions_end_in_every_way, operators_act_on_waiting_work, flows_end_and_reopen),
    ),
    "budget_events": (
        BudgetEventType,
        "event_type",
        (limits_are_made_and_passed, budgets_ask),
    ),
    "flow_events": (FlowEventType, "event_type", (flows_end_and_reopen,)),
    "worker_events": (WorkerEventType, "event_type", (workers_come_and_go,)),
    "signal_events": (SignalEffect, "effect", (waits_begin_and_end,)),
}


@scenario
async def test_there_is_no_log_without_its_kinds(lab: Lab) -> None:
    assert {name for name in await lab.dump() if name.endswith("_events")} == LOGS.keys()


@pytest.mark.parametrize("log", LOGS)
@scenario
async def test_every_declared_event_type_is_written_by_something(lab: Lab, log: str) -> None:
    """Issue 10 C: one walk over the words of each log."""
    kinds, field, acts = LOGS[log]
    written: set[str] = set()
    for act in acts:
        await act(lab)
        await tidy(lab)
        written |= {getattr(event, field) for event in (await lab.dump())[log]}
    assert written == {kind.value for kind in kinds}


@scenario
async def test_blocks_quotas_and_keys_are_audited_with_what_changed(lab: Lab) -> None:
    """Issue 10 C: enough to say what an operator did; limits that lift their own block are none."""
    await operators_act_on_waiting_work(lab)
    (key,) = [each.execution_id for each in (await lab.dump())["executions"]]
    told = {event.event_type: event.details for event in await lab.operator_events(key)}
    why = {"blocking_reason": "waiting_for_quota"}
    assert told[OperatorEventType.BLOCKED] == why | {"detail": "full"}
    assert told[OperatorEventType.UNBLOCKED] == why
    await limits_are_made_and_passed(lab)
    made, changed = [event.details for event in await lab.operator_events(QUOTA)]
    assert made["after"]["max_concurrent"] == 1
    after = {**made["after"], "max_concurrent": 2}
    assert changed == {"before": made["after"], "after": after}
    await keys_are_seeded_and_rotated(lab)
    (rotated,) = await lab.operator_events("next")
    assert rotated.details["previous_kid"] == "mine"
    assert "a1" * 32 not in str((await lab.dump())["operator_events"])


@scenario
async def test_a_quota_that_has_room_again_writes_no_operator_event(lab: Lab) -> None:
    await quota(lab, cap=1)
    first = await lab.started(quota_policy_id=QUOTA)
    waiting = await lab.create(quota_policy_id=QUOTA)
    assert await lab.claims("w2") == []
    await lab.engine.complete(first.handle)
    assert (await lab.claim("w2")).execution_id == waiting
    assert await lab.operator_events(waiting) == []
