"""Minute statistics: counted from the logs exactly once, whatever happens to those that count."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any, Final

import asyncpg
import pytest

from flowfabric import limits
from flowfabric.api.executions import NewExecution
from flowfabric.engine import roll_up as rolling
from flowfabric.engine.due_work import sweep
from flowfabric.engine.unit.records import save_rows
from flowfabric.errors import FlowFabricError, InvalidCursor, InvalidInput
from flowfabric.model.attempt import AttemptType
from flowfabric.model.flow import AllSucceeded
from flowfabric.model.policy import ExecutionPolicy, FixedBackoff, RetryPolicy, TimeoutPolicy
from flowfabric.model.record import replace
from flowfabric.model.statistic import MINUTE_MS, Histogram, bucket_of
from flowfabric.stores.base import StoreConflict
from flowfabric.stores.tables import MINUTES
from tests.support.budgets import give_back, make_budget, report, spend
from tests.support.flows import arrows, node, submit
from tests.support.lab import LANE, TTL_MS, Lab, scenario
from tests.support.statistics import passed, read, roll_up, shown, total, truth
from tests.support.waits import suspended

DAY_MS: Final = 86_400_000
RETRY: Final = RetryPolicy(max_retries=1, backoff=FixedBackoff(delay_ms=0))
TRIED_TWICE: Final = ExecutionPolicy(retry_policy=RETRY)


def a_minute_begins(lab: Lab) -> int:
    lab.clock.set(lab.now - lab.now % MINUTE_MS + MINUTE_MS)
    return lab.now


# --- what is counted -----------------------------------------------------------------------------


@scenario
async def test_each_figure_is_counted_by_lane_and_kind(lab: Lab) -> None:
    await lab.completed(lane_id="mail")
    await lab.create("brief", lane_id="mail")
    claimed = await lab.started(policy=TRIED_TWICE)
    await lab.engine.fail(claimed.handle, reason="no", failure_class="transient")
    again = await lab.claim()
    await lab.engine.fail(again.handle, reason="no", failure_class="transient")
    await roll_up(lab)
    assert await shown(lab) == {
        ("default", "mail", "work"): {"created": 1, "started": 1, "succeeded": 1},
        ("default", "mail", "brief"): {"created": 1},
        ("default", LANE, "work"): {"created": 1, "started": 2, "retried": 1, "failed": 1},
    }


@scenario
async def test_an_attempt_that_goes_on_after_a_wait_is_no_new_start(lab: Lab) -> None:
    waiting = await suspended(lab)
    await waiting.send()
    resumed = await lab.claim()
    await lab.engine.complete(resumed.handle)
    await roll_up(lab)
    assert await total(lab) == {"created": 1, "started": 1, "resumed": 1, "succeeded": 1}


@scenario
async def test_a_lost_lease_is_counted_once_however_its_work_is_recovered(lab: Lab) -> None:
    await lab.lapsed()
    await lab.after(120_000)
    revoked = await lab.claim()
    await lab.engine.revoke_lease(execution_id=revoked.execution_id, reason="stuck")
    await roll_up(lab)
    assert await total(lab) == {"created": 1, "started": 2, "recovered": 2}


@scenario
async def test_a_retry_of_work_whose_lease_was_lost_is_counted(lab: Lab) -> None:
    """The time of its attempt ends while no worker has it: no event tells of it."""
    timeout = TimeoutPolicy(attempt_timeout_ms=TTL_MS)
    claimed = await lab.started(policy=replace(TRIED_TWICE, timeout_policy=timeout))
    lab.clock.set(claimed.lease_expires_at)
    await lab.engine.mark_lease_expired_if_due(execution_id=claimed.execution_id)
    await lab.after(0)
    assert (await lab.claim()).attempt_type is AttemptType.RETRY
    await roll_up(lab)
    assert await total(lab) == {"created": 1, "started": 2, "recovered": 1, "retried": 1}


@scenario
async def test_members_of_flows_count_as_created_and_as_skipped(lab: Lab) -> None:
    graph = await submit(lab, [node("a"), node("b", AllSucceeded(), kind="late")], arrows("a>b"))
    await lab.cancel(graph.ids["a"])
    await roll_up(lab)
    assert await shown(lab) == {
        ("default", LANE, "work"): {"created": 1, "cancelled": 1},
        ("default", LANE, "late"): {"created": 1, "skipped": 1},
    }


@scenario
async def test_one_commit_leaves_one_entry_for_all_that_it_creates_alike(lab: Lab) -> None:
    await lab.engine.create_executions([NewExecution(execution_kind="a") for _ in range(50)])
    counts = (await lab.dump())["work_counts"]
    assert [(each.execution_kind, each.count) for each in counts] == [("a", 50)]
    page = await lab.engine.read_events()
    assert page.events == ()  # of no feed
    assert page.is_end


@scenario
async def test_times_are_counted_in_the_minute_in_which_they_end(lab: Lab) -> None:
    begun = a_minute_begins(lab)
    await lab.create()
    lab.clock.advance(3_000)
    await lab.claim()
    lab.clock.advance(MINUTE_MS)
    await roll_up(lab)
    (line,) = await read(lab, by="minute")
    assert (line.begins_at, line.pickup) == (begun, histogram(3_000))
    assert line.pickup.percentile_ms(50) == pytest.approx(3_500)


def histogram(*durations: int) -> Histogram:
    counts = [0] * (max(map(bucket_of, durations)) + 1)
    for each in durations:
        counts[bucket_of(each)] += 1
    return Histogram(tuple(counts), sum(durations))


@scenario
async def test_the_running_time_is_that_of_the_attempt_without_its_waits(lab: Lab) -> None:
    claimed = await lab.started(policy=TRIED_TWICE)
    lab.clock.advance(400)
    waiting = await suspended(lab, claimed=claimed)
    lab.clock.advance(10_000)
    await waiting.send()
    resumed = await lab.claim()
    lab.clock.advance(200)
    await lab.engine.fail(resumed.handle, reason="no", failure_class="transient")
    last = await lab.claim()
    lab.clock.advance(7)
    await lab.engine.complete(last.handle)
    await roll_up(lab)
    (line,) = await read(lab)
    assert line.run == histogram(600, 7)
    assert line.pickup == histogram(0, 0, 0)


@scenario
async def test_an_end_without_an_attempt_has_no_running_time(lab: Lab) -> None:
    await lab.cancel(await lab.create())
    await roll_up(lab)
    (line,) = await read(lab)
    assert (line.cancelled, line.run.count, line.pickup.count) == (1, 0, 0)


# --- exactly once --------------------------------------------------------------------------------


class Story:
    """A random history."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.random = lab, random.Random(seed)
        self.owned: list[Any] = []
        self.ended: list[str] = []

    async def step(self) -> None:
        lab, pick = self.lab, self.random.choice
        lab.clock.advance(self.random.randint(1, 8_000))
        act = pick((self.create, self.create, self.claim, self.claim, self.end, self.end, self.odd))
        with suppress(FlowFabricError):  # its lease is lost, or it has ended
            await act()
        if self.random.random() < 0.2:
            await lab.engine.tick()
        if self.random.random() < 0.2:
            await lab.direct.roll_up(limit=self.random.randint(1, 5))

    async def create(self) -> None:
        lane, kind = self.random.choice(("x", "y")), self.random.choice(("a", "b"))
        new = NewExecution(execution_kind=kind, lane_id=lane, policy=TRIED_TWICE)
        await self.lab.engine.create_executions([new] * self.random.randint(1, 3))

    async def claim(self) -> None:
        self.owned += await self.lab.claims(lanes=("x", "y"), limit=self.random.randint(1, 3))

    async def end(self) -> None:
        if not self.owned:
            return
        claimed = self.owned.pop(self.random.randrange(len(self.owned)))
        self.ended.append(claimed.execution_id)
        if self.random.random() < 0.5:
            await self.lab.engine.complete(claimed.handle)
        else:
            await self.lab.engine.fail(claimed.handle, reason="no", failure_class="transient")

    async def odd(self) -> None:
        engine = self.lab.engine
        what = self.random.randrange(4)
        if what == 0 and self.ended:
            await engine.replay_execution(execution_id=self.ended.pop())
        elif what == 1 and self.owned:
            await self.lab.cancel(self.owned.pop().execution_id)
        elif what == 2 and self.owned:
            owner = self.owned.pop().execution_id
            await engine.revoke_lease(execution_id=owner, reason="stuck")
        elif self.owned:
            claimed = self.owned.pop()
            await engine.delay(claimed.handle, delay_until=self.lab.now + 1_000)


@pytest.mark.parametrize("seed", range(4))
@scenario
async def test_any_history_is_counted_exactly(lab: Lab, seed: int) -> None:
    story = Story(lab, seed)
    for _ in range(80):
        await story.step()
    await roll_up(lab)
    expected = await truth(lab)
    assert await shown(lab) == expected
    assert sum(counts.get("retried", 0) for counts in expected.values()) > 0
    assert sum(counts.get("recovered", 0) for counts in expected.values()) > 0


@scenario
async def test_two_that_count_at_once_count_nothing_twice(lab: Lab) -> None:
    for _ in range(30):
        await lab.completed()
    await passed(lab.direct)
    twin = lab.direct.again()
    await twin.start()
    try:
        rollers = (lab.direct, twin) * 2
        while any(await asyncio.gather(*(each.roll_up(limit=3) for each in rollers))):
            continue
    finally:
        await twin.close()
    assert await total(lab) == {"created": 30, "started": 30, "succeeded": 30}


@scenario
async def test_a_count_that_fails_at_its_end_is_repeated(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.completed()
    await passed(lab.direct)
    save, fails = save_rows, [StoreConflict("at its end"), RuntimeError("killed")]

    async def failing(tx: Any, rows: Any) -> None:
        await save(tx, rows)
        if fails:
            raise fails.pop(0)

    monkeypatch.setattr(rolling, "save_rows", failing)
    with pytest.raises(RuntimeError, match="killed"):
        await lab.direct.roll_up()
    assert await total(lab) == {}
    await roll_up(lab)
    assert await total(lab) == {"created": 1, "started": 1, "succeeded": 1}


@pytest.fixture
def postgres_lab(postgres_url: str) -> Any:
    lab = Lab(postgres_url)
    lab.open()
    yield lab
    lab.close()


def test_a_late_commit_is_counted_when_it_comes(postgres_lab: Lab) -> None:
    """Only on PostgreSQL transactions end in another order than they began."""

    async def story(lab: Lab) -> None:
        new = NewExecution(execution_kind="joined")
        connection: Any = await asyncpg.connect(lab.url)
        try:
            await roll_up(lab)
            begun = lab.now
            async with connection.transaction():
                await lab.engine.create_executions_in(connection, [new, new])
                await lab.completed()
                for _ in range(3):  # they cannot be told from what the open one may still write
                    lab.clock.advance(limits.STATISTIC_IDLE_MS)
                    await lab.direct.roll_up()
                assert "joined" not in [each.execution_kind for each in await read(lab)]
                page = await lab.engine.read_statistics(since=0)
                assert page.complete_until <= begun
            await roll_up(lab)
            assert {each.execution_kind: each.created for each in await read(lab)} == {
                "joined": 2,
                "work": 1,
            }
            (late, *_) = [each for each in await read(lab, by="minute") if each.created == 2]
            assert late.begins_at == begun - begun % MINUTE_MS
            for _ in range(2):
                lab.clock.advance(limits.STATISTIC_IDLE_MS)
                await passed(lab.direct)
                await lab.direct.roll_up()
            page = await lab.engine.read_statistics(since=0)
            assert page.complete_until > begun
        finally:
            await connection.close()

    postgres_lab.run(story(postgres_lab))


def test_submits_of_a_callers_own_transaction_count_only_if_it_commits(postgres_lab: Lab) -> None:
    async def story(lab: Lab) -> None:
        connection: Any = await asyncpg.connect(lab.url)
        try:
            transaction = connection.transaction()
            await transaction.start()
            await lab.engine.create_executions_in(connection, [NewExecution(execution_kind="a")])
            await transaction.rollback()
            async with connection.transaction():
                new = [NewExecution(execution_kind="b")] * 2
                await lab.engine.create_executions_in(connection, new)
                await lab.engine.submit_flow(nodes=[node("n", kind="c")], connection=connection)
        finally:
            await connection.close()
        await roll_up(lab)
        assert {each.execution_kind: each.created for each in await read(lab)} == {"b": 2, "c": 1}

    postgres_lab.run(story(postgres_lab))


# --- how far they are ----------------------------------------------------------------------------


@scenario
async def test_a_reply_says_until_when_it_is_complete(lab: Lab) -> None:
    assert (await lab.engine.read_statistics()).complete_until == 0
    for _ in range(3):  # on PostgreSQL a later count proves an earlier one
        await lab.completed()
        lab.clock.advance(10_000)
        await roll_up(lab)
    page = await lab.engine.read_statistics()
    lag = lab.now - page.complete_until
    assert lag == (0 if lab.engine.backend_label() != "postgres" else 10_000 + 5_000)
    assert page.lost_until is None


@scenario
async def test_a_count_that_finds_nothing_writes_nothing_for_a_minute(lab: Lab) -> None:
    await lab.completed()
    await roll_up(lab)
    async with lab.unchanged():
        lab.clock.advance(limits.STATISTIC_IDLE_MS - 1)
        assert await lab.direct.roll_up() == 0
    lab.clock.advance(1)
    await lab.direct.roll_up()
    (row,) = (await lab.dump())["ff_statistic_roll_up"]
    assert row.counted_at == lab.now


@scenario
async def test_one_engine_counts_for_all_that_ask_soon_after(lab: Lab) -> None:
    await lab.completed()
    await roll_up(lab)
    await lab.completed()
    await passed(lab.direct)
    lab.clock.advance(4_999)
    assert await lab.direct.roll_up(every_ms=5_000) == 0
    lab.clock.advance(1)
    assert await lab.direct.roll_up(every_ms=5_000) == 3


@scenario
async def test_events_that_were_gone_before_they_were_counted_are_owned_up_to(lab: Lab) -> None:
    await lab.completed()
    await roll_up(lab)
    for _ in range(2):  # the newest of a log always stays
        await lab.completed()
    lab.clock.advance(lab.config.event_retention_ms + 1)
    until = lab.now - lab.config.event_retention_ms
    await sweep(lab.direct, 100)
    await lab.completed()
    await roll_up(lab)
    assert (await lab.engine.read_statistics(since=0)).lost_until == until
    assert (await total(lab))["succeeded"] == 3


@scenario
async def test_minutes_are_kept_for_thirty_days(lab: Lab) -> None:
    begun = a_minute_begins(lab)
    await make_budget(lab, hard={"tokens": 100})
    await report(lab, {"tokens": 5})
    await lab.create()
    await roll_up(lab)
    lab.clock.set(begun + 30 * DAY_MS - 1)
    await lab.engine.sweep()
    assert await total(lab) == {"created": 1}
    assert len((await lab.engine.read_spending(since=0)).items) == 1
    lab.clock.advance(1)
    await lab.engine.sweep()
    assert await total(lab) == {}
    assert (await lab.engine.read_spending(since=0)).items == ()


@scenario
async def test_an_engine_restricted_to_some_tenants_counts_for_all(lab: Lab) -> None:
    await lab.configure(loop_namespaces=("default",))
    await lab.create(namespace="other")
    await roll_up(lab)
    assert [each.namespace for each in await read(lab)] == ["other"]


# --- reading -------------------------------------------------------------------------------------


@scenario
async def test_statistics_are_read_by_time_and_by_what_they_are_about(lab: Lab) -> None:
    begun = a_minute_begins(lab)
    for minute in range(3):
        lab.clock.set(begun + minute * MINUTE_MS)
        for lane, kind, tenant in (("x", "a", "n1"), ("x", "b", "n2"), ("y", "a", "n1")):
            await lab.create(kind, lane_id=lane, namespace=tenant)
    lab.clock.set(begun + 60 * MINUTE_MS)
    await lab.create("a", lane_id="x", namespace="n1")
    await roll_up(lab)
    assert await total(lab) == {"created": 10}
    assert await total(lab, lane_id="x") == {"created": 7}
    assert await total(lab, execution_kind="b") == {"created": 3}
    assert await total(lab, namespace="n1", lane_id="y") == {"created": 3}
    assert await total(lab, namespace="n3") == {}
    assert await total(lab, since=begun + MINUTE_MS) == {"created": 7}
    assert await total(lab, since=begun + MINUTE_MS + 59_999) == {"created": 7}
    assert await total(lab, until=begun + MINUTE_MS) == {"created": 3}
    assert await total(lab, until=begun + MINUTE_MS + 1) == {"created": 6}
    assert await total(lab, since=begun, until=begun) == {}
    assert len(await read(lab, by="minute")) == 10
    hours = await read(lab, by="hour", lane_id="x", execution_kind="a")
    assert sum(each.created for each in hours) == 4
    assert {each.begins_at % 3_600_000 for each in hours} == {0}
    recent = await lab.engine.read_statistics(by="total", limit=1000)
    assert recent.items[0].begins_at == begun  # an hour, and the minute it begins in
    assert await lab.engine.read_statistics(limit=0) == replace(recent, items=())


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"since": -1}, "since"),
        ({"since": "1h"}, "since"),
        ({"until": True}, "until"),
        ({"last_ms": -1}, "last_ms"),
        ({"since": 2, "until": 1}, "until"),
        ({"by": "day"}, "by"),
        ({"limit": -1}, "limit"),
        ({"limit": limits.PAGE_MAX + 1}, "limit"),
        ({"namespace": ""}, "namespace"),
        ({"lane_id": 7}, "lane_id"),
        ({"execution_kind": "x" * 10_000}, "execution_kind"),
    ],
)
@scenario
async def test_a_wrong_argument_is_named(lab: Lab, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await lab.direct.read_statistics(**fields)
    assert caught.value.fields["field"] == field


@scenario
async def test_a_cursor_of_another_listing_is_refused(lab: Lab) -> None:
    for _ in range(2):
        await lab.create()
        lab.clock.advance(MINUTE_MS)
    await roll_up(lab)
    page = await lab.engine.read_statistics(limit=1)
    for cursor in (page.next_cursor, "nonsense"):
        with pytest.raises(InvalidCursor):
            await lab.engine.read_spending(cursor=cursor)


# --- spending ------------------------------------------------------------------------------------


async def spent(lab: Lab, **fields: Any) -> dict[str, tuple[int, int]]:
    page = await lab.engine.read_spending(since=0, by="total", **fields)
    return {
        f"{each.budget_id}.{each.dimension}": (each.spent, each.given_back) for each in page.items
    }


@scenario
async def test_spending_is_counted_across_resets(lab: Lab) -> None:
    await make_budget(lab, "b", {"tokens": 100, "calls": 10})
    await report(lab, {"tokens": 30, "calls": 1}, budget_id="b")
    await roll_up(lab)
    await report(lab, {"tokens": 20}, budget_id="b")
    await lab.engine.reset_budget(budget_id="b")
    await report(lab, {"tokens": 5}, budget_id="b")
    await lab.engine.reset_budget(budget_id="b")
    await roll_up(lab)
    assert await spent(lab) == {"b.tokens": (55, 0), "b.calls": (1, 0)}
    await report(lab, {"tokens": 7}, budget_id="b")
    lab.clock.advance(MINUTE_MS)
    await roll_up(lab)
    await roll_up(lab)
    assert await spent(lab, budget_id="b") == {"b.tokens": (62, 0), "b.calls": (1, 0)}
    assert await spent(lab, budget_id="other") == {}
    minutes = (await lab.engine.read_spending()).items
    assert [(each.dimension, each.spent) for each in minutes] == [
        ("calls", 1),
        ("tokens", 55),
        ("tokens", 7),
    ]


@scenario
async def test_what_is_given_back_is_told_beside_what_was_spent(lab: Lab) -> None:
    await make_budget(lab, "b", {"tokens": 100})
    claimed = await lab.started()
    await spend(lab, claimed.execution_id, {"tokens": 40}, budget_id="b")
    await roll_up(lab)
    await give_back(lab, claimed.execution_id, budget_id="b")
    await roll_up(lab)
    assert await spent(lab) == {"b.tokens": (40, 40)}


@scenario
async def test_many_budgets_are_looked_at_in_turn(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STATISTIC_BUDGETS", 2)
    for number in range(5):
        await make_budget(lab, f"b{number}", {"tokens": 100})
        await report(lab, {"tokens": number + 1}, budget_id=f"b{number}")
    for _ in range(4):
        lab.clock.advance(limits.STATISTIC_IDLE_MS)
        await lab.direct.roll_up()
    expected = {f"b{number}.tokens": (number + 1, 0) for number in range(5)}
    assert await spent(lab) == expected


@scenario
async def test_pages_go_on_where_the_one_before_ended(lab: Lab) -> None:
    for number in range(9):
        await lab.create(f"k{number % 3}")
        lab.clock.advance(MINUTE_MS)
    await roll_up(lab)
    stored = len((await lab.dump())[MINUTES.name])
    assert stored == 9
    for limit in (1, 2, 4, 9, 100):
        lines = await read(lab, limit=limit)
        assert [(each.execution_kind, each.created) for each in lines] == [
            ("k0", 3),
            ("k1", 3),
            ("k2", 3),
        ]
