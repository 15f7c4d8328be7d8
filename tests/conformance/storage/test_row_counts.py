"""Nothing grows for ever: when its time is over, everything that work has left behind is gone."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.leases import Complete
from flowfabric.model.results import Completed, Created
from tests.support.backdoor import SCHEMA_TABLES, Backdoor
from tests.support.gates import QUOTA, quota
from tests.support.history import history
from tests.support.lab import Lab, scenario

DAY_MS: Final = 86_400_000
KEYS: Final = 600
# What stays on purpose, and why. The names of the memory store's parts are their tables' here.
STAYS: Final = {
    "ff_lane_registry": "a lane is set up by people; there are few",
    "ff_route": "what executions are matched by; kinds, lanes and needs are few",
    "ff_budget_policy": "a budget is set up by people",
    "ff_budget_ask": "the last question about each limit of a budget",
    "ff_budget_scope": "a budget is set up by people",
    "ff_budget_usage": "one row for each dimension of a budget",
    "ff_spend_total": "one row for each kind that spent from a dimension of a budget",
    "ff_quota_policy": "a quota is set up by people",
    "ff_waitpoint_hmac": "the keys in force",
    "ff_access_token": "a token is made by people; at most 1,000 are kept",
    "ff_log_mark": "one row for each log",
    "ff_consumer_group": "a group is set up by people",
    "ff_group_delivery": "a bounded number for each group, until it is acknowledged",
    "ff_statistic_roll_up": "one row",
    "ff_statistic_usage": "one row for each dimension of a budget",
    **dict.fromkeys(SCHEMA_TABLES, "the schema itself"),
}
# Of every log the newest entry stays, so that ids go on from it.
LAST_STAYS: Final = ("event", "failure", "ff_work_count", "work_counts")


async def counts(lab: Lab) -> Counter[str]:
    """The rows of every table there is."""
    if lab.engine.backend_label() == "memory":
        return Counter({name: len(rows) for name, rows in (await lab.dump()).items()})
    door = Backdoor(lab)
    await door.open()
    try:
        found = Counter[str]()
        for table in await door.tables():
            found[table] = (await door.rows(f"SELECT count(*) FROM {table}"))[0][0]
        return found
    finally:
        await door.close()


async def age(lab: Lab) -> None:
    """Let so much time pass that all is over, with the loop at work: the audit trail is kept for a
    year."""
    for days in (*[1] * 32, 365):
        lab.clock.advance(days * DAY_MS)
        while await lab.engine.tick():
            continue


async def let_lines_go(lab: Lab) -> None:
    """A failed head holds up its line until people decide."""
    for each in (await lab.engine.list_lines()).items:
        if each.held_at is not None:
            await lab.engine.release_line(serial_key=each.serial_key)


async def cancel_everything(lab: Lab) -> None:
    """Whatever has not ended ends now, and nothing more begins."""
    for schedule in (await lab.engine.list_schedules()).items:
        await lab.engine.delete_schedule(schedule_id=schedule.schedule_id)
    page = await lab.engine.list_executions(limit=1000)
    for each in page.items:
        if not each.public_state.is_terminal:
            await lab.cancel(each.execution_id)


@scenario
async def test_every_tables_row_count_returns_to_its_start_after_retention(lab: Lab) -> None:
    """One test over all tables, as the database names them."""
    before = await counts(lab)
    for name in ("one", "two"):
        await history(lab, name)
    busy = await counts(lab)
    unused = {name for name in busy if not busy[name]}
    assert unused <= {"ff_log_mark"}, "a table that is never used"  # the sweep alone writes marks
    await cancel_everything(lab)
    await let_lines_go(lab)
    await age(lab)
    after = await counts(lab)
    grown = {
        name: (before[name], count)
        for name, count in after.items()
        if count > max(before[name], any(each in name for each in LAST_STAYS)) and name not in STAYS
    }
    assert grown == {}
    assert (await lab.engine.doctor()).problems == ()


@pytest.mark.parametrize(("rate", "cap"), [(5, 0), (0, 2), (5, 2)])
@scenario
async def test_keys_that_are_used_once_leave_nothing(lab: Lab, rate: int, cap: int) -> None:
    await quota(lab, rate=rate, cap=cap)
    before = await counts(lab)
    requests = [
        NewExecution(execution_kind="work", quota_policy_id=QUOTA, concurrency_key=f"key-{number}")
        for number in range(KEYS)
    ]
    assert all(isinstance(each, Created) for each in await lab.engine.create_executions(requests))
    claimed = await lab.claims(limit=KEYS)
    replies = await lab.engine.complete_many([Complete(handle=each.handle) for each in claimed])
    assert [type(each) for each in replies] == [Completed] * KEYS
    assert (await counts(lab))["ff_quota_gate"] == KEYS
    lab.clock.advance(120_000)
    while await lab.engine.move_due():
        continue
    after = await counts(lab)
    assert (after["ff_quota_gate"], after["ff_quota_admitted"]) == (0, 0)
    assert before["ff_quota_gate"] == 0


@scenario
async def test_a_key_that_is_used_keeps_its_counters(lab: Lab) -> None:
    """Tidying up never takes what still counts: neither a place that is taken nor a start."""
    await quota(lab, rate=2, cap=1, window=300)
    running = await lab.started(quota_policy_id=QUOTA)
    lab.clock.advance(29_000)
    for _ in range(10):
        await lab.engine.renew(running.handle)
        await lab.after(29_000)
    second = await lab.create(quota_policy_id=QUOTA)
    assert await lab.claims() == []
    await lab.engine.complete(running.handle)
    assert (await lab.claim()).execution_id == second
