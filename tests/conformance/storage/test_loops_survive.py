"""One record that cannot be moved stops nothing: the loops of a running engine go on with the rest.

The loops run for real here; only the store's clock stands still until it is moved.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.engine.engine import Engine
from flowfabric.engine.operations import requests
from flowfabric.engine.unit.flows.flows import Flows
from flowfabric.engine.unit.flows.joins import Joins
from flowfabric.engine.unit.limits import Limits
from flowfabric.engine.unit.view import View
from flowfabric.engine.unit.waits import Waits
from flowfabric.kernel.execution.wake import Wake
from flowfabric.limits import ASIDE_MS_MIN, DUE_BATCH
from flowfabric.loops import supervisor, timekeeper
from flowfabric.model.flow import AllSucceeded
from flowfabric.model.state import PublicState
from flowfabric.stores.base import StoreConflict
from flowfabric.stores.migrations import migrations_of
from flowfabric.stores.tables import ADMISSIONS, BUDGETS, FLOW_TASKS, HOLDS, WAITPOINTS
from tests.support.flows import edge, fan_in, submit
from tests.support.lab import TTL_MS, Lab, scenario

ERRORS = (RecursionError, OverflowError, ValueError, ZeroDivisionError)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops look often."""
    monkeypatch.setattr(timekeeper, "LOOK_AGAIN_MS", 20)
    monkeypatch.setattr(timekeeper, "STUCK_LOOK_MS", 20)
    monkeypatch.setattr(supervisor, "FAILURE_PAUSE_S_MAX", 0.02)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - what it waits for tells nothing by itself
            await asyncio.sleep(0.01)


async def reaches(lab: Lab, execution_id: str, state: PublicState) -> None:
    async def is_there() -> bool:
        return await lab.state(execution_id) is state

    await until(is_there)


async def with_loops(lab: Lab) -> None:
    await lab.configure(loops=True)


async def assert_all_goes_on(lab: Lab) -> None:
    """Delays, leases, deadlines and cascades are still moved by the running loops."""
    lane = f"lane-{lab.now}"  # none of an earlier call is met
    delayed = await lab.create(lane_id=lane, delay_until=lab.now + 10)
    leased = await lab.started(lane_id=lane)
    ending = await lab.create(lane_id=lane, execution_deadline_at=lab.now + TTL_MS)
    lab.clock.advance(TTL_MS)
    await reaches(lab, delayed, PublicState.WAITING)
    await reaches(lab, leased.execution_id, PublicState.WAITING)
    await reaches(lab, ending, PublicState.EXPIRED)


# --- three ways in -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", ERRORS)
@scenario
async def test_an_error_at_the_look_hides_nothing_that_is_due(
    lab: Lab, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_self: Engine) -> Any:
        raise error("from nowhere")

    await with_loops(lab)
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "next_due", broken)
        await assert_all_goes_on(lab)
        timers = lab.engine.loop_status().duties[0]
        assert timers.last_error == error.__name__
        problems = (await lab.engine.doctor()).problems
        assert [each.subject for each in problems if each.code == "loops"] == ["timers"]

    async def is_well() -> bool:
        return not lab.engine.loop_status().duties[0].failures_in_a_row

    await until(is_well)
    await assert_all_goes_on(lab)
    assert (await lab.engine.doctor()).healthy


def as_before_the_check(statement: str) -> str:
    """Write what PostgreSQL refuses by now; the check is put back as the migration made it."""
    check = re.compile(
        r"ALTER TABLE ff_exec_core ADD CONSTRAINT ff_exec_core_ranges.*?;", re.DOTALL
    )
    made = check.search("".join(each.sql for each in migrations_of("postgres")))
    assert made is not None
    drop = "ALTER TABLE ff_exec_core DROP CONSTRAINT ff_exec_core_ranges;"
    return f"{drop} {statement} {made[0]}"


@scenario
async def test_a_result_nested_too_deep_that_is_handed_on_stops_no_loop(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older version stored it; the loops have to go on with what follows from it."""
    await with_loops(lab)
    named = [edge("a", "b", passes_result=True, input_name="x")]
    deep, flat = await submit(lab, "ab", named), await submit(lab, "ab", named)
    with monkeypatch.context() as older:
        older.setattr(requests, "check_nesting", lambda *_, **__: None)
        older.setattr(Joins, "remaining", 0)  # so that all of it is left to the loops
        for graph, result in ((deep, b"[" * 3_000 + b"]" * 3_000), (flat, b"1")):
            handle = await graph.handle("a")
            await lab.engine.complete(handle, result=result)
    await reaches(lab, deep.ids["b"], PublicState.FAILED)
    await reaches(lab, flat.ids["b"], PublicState.WAITING)
    assert (await lab.describe(deep.ids["b"])).failure_category == "input_too_deep"
    assert lab.engine.loop_status().set_aside == ()
    await assert_all_goes_on(lab)


INT4_MAX = (1 << 31) - 1


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("priority", INT4_MAX),
        ("created_at", -1),
        ("created_at", 1 << 62),
        ("retry_count", -1),
        ("total_attempt_count", INT4_MAX),  # the next one would not fit
    ],
)
def test_a_number_that_can_never_be_right_is_reported_and_stops_nothing(
    durable_lab: Lab, column: str, value: int
) -> None:
    """Rows of an older version may hold one: ranks made of it would not fit into any column."""
    lab = durable_lab

    async def check() -> None:
        store = lab.engine.backend_label()
        bad = await lab.create(lane_id="off", delay_until=lab.now + 10)
        spoil = f"UPDATE ff_exec_core SET {column} = {value} WHERE execution_id = '{bad[-36:]}';"
        await lab.sql(spoil if store == "sqlite" else as_before_the_check(spoil))
        await with_loops(lab)
        await assert_all_goes_on(lab)
        problems = (await lab.engine.doctor()).problems
        found = [each for each in problems if each.code == "corrupt"]
        assert [each.subject for each in found] == [bad]
        assert column in found[0].detail

    lab.run(check())


@pytest.mark.parametrize("error", ERRORS)
@scenario
async def test_a_record_that_cannot_be_moved_is_set_aside_until_it_can(
    lab: Lab,
    error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await with_loops(lab)
    bad = await lab.create(lane_id="off", delay_until=lab.now + 10)
    decide = View.decide

    def fails(self: View, command: Any) -> Any:
        if isinstance(command, Wake) and command.execution_id == bad:
            raise error("this one cannot be moved")
        return decide(self, command)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "flowfabric.loops"):
        patch.setattr(View, "decide", fails)
        await assert_all_goes_on(lab)
        await assert_all_goes_on(lab)  # and again, past it
        aside = lab.engine.loop_status().set_aside
        assert [each.thing for each in aside] == [("execution", (bad,))]
        assert aside[0].error == error.__name__
        report = await lab.engine.doctor()
        assert [bad in each.subject for each in report.problems if each.code == "loops"] == [True]
        assert not any(each.failures_total for each in lab.engine.loop_status().duties)
    told = [record for record in caplog.records if bad in record.getMessage()]
    assert len(told) == 1
    assert told[0].exc_info
    lab.clock.advance(100 * ASIDE_MS_MIN)
    await reaches(lab, bad, PublicState.WAITING)
    assert lab.engine.loop_status().set_aside == ()
    assert (await lab.engine.doctor()).healthy


@scenario
async def test_a_conflict_that_no_retry_ends_stops_no_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stray row in the way of one record looks like a rival that comes again and again."""
    await with_loops(lab)
    bad = await lab.create(lane_id="off", delay_until=lab.now + 10)
    decide = View.decide

    def collides(self: View, command: Any) -> Any:
        if isinstance(command, Wake) and command.execution_id == bad:
            raise StoreConflict("a row is in the way")
        return decide(self, command)

    monkeypatch.setattr(View, "decide", collides)
    await assert_all_goes_on(lab)
    assert [each.thing for each in lab.engine.loop_status().set_aside] == [("execution", (bad,))]


def test_rows_of_an_unreadable_budget_keep_no_loop_busy(durable_lab: Lab) -> None:
    lab = durable_lab

    async def check() -> None:
        await lapsing_hold(lab, "bad")
        await lab.sql("UPDATE ff_budget_policy SET policy = '{' WHERE budget_id = 'bad'")
        lab.clock.advance(20_000)
        moved = [await lab.engine.move_due() for _ in range(3)]
        assert moved[1:] == [0, 0]

    lab.run(check())


# --- everything that is due by itself ----------------------------------------------------------


async def lapsing_waitpoint(lab: Lab, lane: str) -> None:
    claimed = await lab.started(lane_id=lane)
    await lab.engine.create_waitpoint(claimed.handle, waitpoint_key="k", expires_in_ms=100)


async def lapsing_hold(lab: Lab, lane: str) -> None:
    await lab.engine.create_budget(
        budget_id=lane, dimensions=["n"], hard_limits=[9], soft_limits=[0]
    )
    claimed = await lab.started(lane_id=lane, budget_ids=(lane,))
    await lab.engine.reserve_budget(
        claimed.handle, budget_id=lane, hold_id="h", amounts={"n": 1}, ttl_ms=1000
    )


async def budget_to_reset(lab: Lab, lane: str) -> None:
    await lab.engine.create_budget(
        budget_id=lane, dimensions=["n"], hard_limits=[9], soft_limits=[0], reset_interval_ms=1000
    )


async def lapsing_place(lab: Lab, lane: str) -> None:
    await lab.engine.create_quota_policy(quota_policy_id=lane, max_concurrent=1)
    key = await lab.create(lane_id=lane, quota_policy_id=lane)
    await lab.engine.issue_claim_grant(
        execution_id=key, worker_id="w", worker_instance_id="w-1", grant_ttl_ms=100
    )


async def owed_cancel(lab: Lab, _lane: str) -> None:
    graph = await fan_in(lab, 2, AllSucceeded())
    await lab.engine.cancel_flow_header(flow_id=graph.flow_id, grace_ms=100)


TIMED = {
    WAITPOINTS: lapsing_waitpoint,
    HOLDS: lapsing_hold,
    BUDGETS: budget_to_reset,
    ADMISSIONS: lapsing_place,
    FLOW_TASKS: owed_cancel,
}


@pytest.mark.parametrize("table", TIMED, ids=lambda table: table.name)
@scenario
async def test_a_row_that_cannot_be_moved_stops_no_other_of_its_table(
    lab: Lab, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first that is due is the bad one; of all others none is left."""
    await TIMED[table](lab, "bad")
    dump = await lab.dump()
    bad = {table.key_of(row) for row in dump[table.name] if row.due_at is not None}
    assert bad
    await TIMED[table](lab, "good")
    for kind in (Limits, Waits, Flows):
        monkeypatch.setattr(kind, "move_due", _failing(kind.move_due, table, bad))
    lab.clock.advance(20_000)
    for _ in range(10):
        await lab.engine.move_due()
    left = {
        table.key_of(row)
        for row in (await lab.dump())[table.name]
        if row.due_at is not None and row.due_at <= lab.now
    }
    assert left == bad
    assert {each.thing for each in lab.engine.loop_status().set_aside} == {
        (table.name, key) for key in bad
    }


def _failing(move_due: Any, table: Any, bad: set[Any]) -> Any:
    async def moving(self: Any, *args: Any) -> Any:
        for due in args:
            keys = due.of(table) if hasattr(due, "of") else due
            if isinstance(keys, list | tuple) and bad.intersection(keys):
                raise OverflowError
        return await move_due(self, *args)

    return moving


@scenario
async def test_many_that_cannot_be_moved_in_front_hide_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one look takes: the first are set aside, and the next look sees past them."""
    count = 12
    bad = {await lab.create(lane_id="off", delay_until=lab.now + 1) for _ in range(count)}
    good = await lab.create(lane_id="on", delay_until=lab.now + 2)
    decide = View.decide

    def fails(self: View, command: Any) -> Any:
        if isinstance(command, Wake) and command.execution_id in bad:
            raise RecursionError
        return decide(self, command)

    monkeypatch.setattr(View, "decide", fails)
    lab.clock.advance(2)
    for _ in range(4):
        await lab.engine.move_due(limit=5)
    assert await lab.state(good) is PublicState.WAITING
    assert len(lab.engine.loop_status().set_aside) == count
    assert count < DUE_BATCH


# --- what doctor sees of the loops of others ---------------------------------------------------


@scenario
async def test_doctor_tells_that_nothing_moves_what_is_due(lab: Lab) -> None:
    """The loops of other processes cannot be asked; what they leave undone can be seen."""
    await lab.create(delay_until=lab.now + 10)
    await lapsing_hold(lab, "on")
    lab.clock.advance(59_000)
    assert not [e for e in (await lab.engine.doctor()).problems if e.code in ("loops", "overdue")]
    lab.clock.advance(60_000)
    problems = (await lab.engine.doctor()).problems
    overdue = [each for each in problems if each.code == "overdue"]
    assert len(overdue) == 3  # the delay, the lease, the hold
    assert any(each.subject.startswith("ff_budget_hold ") for each in overdue)
    told = [each.detail for each in problems if each.code == "loops"]
    assert len(told) == 1
    assert told[0].startswith("3 records are overdue by more than 60 s: is any ")
    await lab.engine.tick()
    assert (await lab.engine.doctor()).healthy
