"""Any value of any column may be spoiled behind the engine's back: its neighbours live on.

Tables and columns come from the real schema. Many rows are spoiled at a time, each in one column,
while new work is created, claimed, completed, listed and woken beside them. Which rows meet in one
round is the same in every run; FF_SPOILED_MIXES=20 (`bin/soak`) mixes them anew as often.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, NamedTuple

from flowfabric.model.state import PublicState
from tests.property.budget import budget
from tests.support.backdoor import SCHEMA_TABLES, Backdoor, Column, Refused
from tests.support.budgets import make_budget, reserve, settle
from tests.support.flows import arrows, node, submit
from tests.support.gates import quota
from tests.support.history import history
from tests.support.lab import TTL_MS, Lab
from tests.support.logs import log, messages
from tests.support.streams import append, frame, payloads, summary
from tests.support.waits import suspended

# The sweep alone writes marks, long after the events.
LEFT_OUT: Final = (*SCHEMA_TABLES, "ff_log_mark")
MIXES: Final = budget("FF_SPOILED_MIXES", 0)
SETS: Final = 5  # so many of each row: as many columns of a table are spoiled at once
TICKS: Final = 24  # more than all that is due at once takes
HUGE: Final = 1 << 62
# Any text will do in other columns.
WORDS: Final = (
    *("attempt_type", "next_attempt_type", "outcome", "event_type", "scope_type", "grant_kind"),
    *("counted", "reason_code", "requested_by", "timeout_behavior", "cause", "kind"),
    *("action", "phase"),
)
JSON: Final = (
    ("ff_exec_body", "policy"),
    ("ff_exec_body", "tags"),
    ("ff_exec_body", "bounds"),
    ("ff_exec_body", "ties"),
    ("ff_access_token", "scopes"),
    ("ff_access_token", "namespaces"),
    ("ff_session", "roles"),
    ("ff_audit", "details"),
    ("ff_lane_registry", "bounds"),
    ("ff_lane_registry", "tenant_weights"),
    ("ff_lane_registry", "fair_weights"),
    ("ff_worker_registry", "lanes"),
    ("ff_worker_registry", "kinds"),
    ("ff_claim", "leases"),
    ("ff_operator_event", "details"),
    ("ff_budget_policy", "policy"),
    ("ff_budget_usage_dedup", "outcome"),
    ("ff_budget_hold", "amounts"),
    ("ff_budget_hold", "allowed"),
    ("ff_suspension", "condition"),
    ("ff_suspension", "progress"),
    ("ff_waitpoint", "payload_type"),
    ("ff_flow_core", "tags"),
    ("ff_flow_core", "hooks"),
    ("ff_flow_member", "policy"),
    ("ff_lease_answer", "answer"),
    ("ff_operation", "filter"),
    ("ff_operation", "arguments"),
    ("ff_operation", "outcomes"),
    ("ff_statistic_minute", "pickup"),
    ("ff_statistic_minute", "run"),
    ("ff_statistic_roll_up", "places"),
    ("ff_statistic_roll_up", "usage_after"),
)
# Of a budget, up to the largest number there is.
ANY_AMOUNT: Final = (
    *("used", "held", "spent", "used_before", "total", "given_back", "allowed", "soft_allowed"),
    *("limit_then", "used_then", "least", "wanted", "raise_by", "amount", "kept"),
)
# The one row that all waits of an installation need: without it no token can be signed or checked.
SHARED_TABLES: Final = ("ff_waitpoint_hmac",)
# SQLite's line of time: CHECKs refuse what cannot be; a row of another boot counts for nothing.
CLOCK_TABLE: Final = "ff_clock"


class Spoil(NamedTuple):
    """A value that does not belong in a column."""

    column: Column
    value: str  # as SQL

    def __str__(self) -> str:
        return f"{self.column.table}.{self.column.name} = {self.value}"

    @property
    def is_seen(self) -> bool:
        """Whether the value alone shows that no engine has written it."""
        table, name, kind, *_ = self.column
        if self.value == "NULL" or table == CLOCK_TABLE:
            return False  # what may be absent may be absent
        if kind == "text":
            is_word = name in WORDS and table != "ff_audit"  # which names any operation
            return "CAST" in self.value or is_word or (table, name) in JSON
        if name == "ready_rank":
            return False  # any number will do: a wrong one costs only the place among the ready
        return self.value == "-7" or (name not in ANY_AMOUNT and self.value == str(HUGE))

    def is_named(self, line: str) -> bool:
        """Whether a finding is about this column; of an execution it names the execution."""
        table, name, *_ = self.column
        what = "UTF-8" if "CAST" in self.value else name
        return what in line and (table in line or (table.startswith("ff_exec_") and "{fp:" in line))


def spoils_of(column: Column, *, is_sqlite: bool) -> Iterator[Spoil]:
    """What a store may let pass: other types than the column's it refuses by itself."""
    values = []
    if column.kind == "integer":
        values = ["-7", str(min(HUGE, (1 << column.bits - 1) - 1))]
    elif column.kind == "text":
        values = ["'{'", "CAST(x'61ff62' AS TEXT)"] if is_sqlite else ["'{'"]
    if column.nullable:
        values.append("NULL")
    yield from (Spoil(column, value) for value in values)


class Probe:
    """New work beside the spoiled rows: all of it must go its usual way."""

    def __init__(self, lab: Lab, lanes: Sequence[str]) -> None:
        self.lab = lab
        self.engine = lab.engine
        self.lanes = (*lanes, "good")

    async def run(self) -> None:
        """Everything; the order is that of a day's work."""
        await quota(self.lab, "good", rate=50, cap=9)
        await make_budget(self.lab, "good", {"tokens": 100}, reset_interval_ms=300_000)
        await self.engine.register_worker(
            worker_id="w1", worker_instance_id="w1-1", lanes=self.lanes, liveness_ttl_ms=60_000
        )
        await self.work()
        await self.graph()
        await self.timers()
        await self.lists()
        await self.late()
        await self.lab.direct.roll_up()

    async def claims(self) -> list[Any]:
        """Of every lane at once; what belongs to the spoiled sets is not looked at."""
        found = await self.lab.claims(lanes=self.lanes, limit=50)
        return [each for each in found if each.lane_id == "good"]

    async def work(self) -> None:
        """Created, claimed, spent, suspended, signalled and completed."""
        lab, engine = self.lab, self.engine
        bounds: dict[str, Any] = {"budget_ids": ("good",), "quota_policy_id": "good"}
        first = await lab.create(lane_id="good", tags={"a.b": "c"}, idempotency_key="x", **bounds)
        (claimed,) = await self.claims()
        assert claimed.execution_id == first
        await engine.renew(claimed.handle)
        await append(lab, claimed, frame(b"shown"), summary(b'{"a":1}'))
        assert len(await payloads(lab, claimed)) == 2
        await log(lab, claimed, "said")
        assert await messages(lab, claimed) == ["said"]
        await reserve(lab, claimed, {"tokens": 2}, budget_id="good")
        await settle(lab, claimed, {"tokens": 1}, budget_id="good")
        waiting = await suspended(lab, claimed=claimed)
        assert (await engine.explain(execution_id=first)).waits
        await waiting.send()
        (again,) = await self.claims()
        await engine.complete(again.handle, result=b"2")
        assert await lab.state(first) is PublicState.COMPLETED

    async def graph(self) -> None:
        """A flow runs to its end."""
        nodes = [node("a", lane_id="good"), node("b", lane_id="good")]
        graph = await submit(self.lab, nodes, arrows("a>b"))
        for _ in "ab":
            (claimed,) = await self.claims()
            await self.engine.complete(claimed.handle, result=b"3")
        assert (await graph.snapshot()).public_flow_state.value == "completed"

    async def timers(self) -> None:
        """Delays end, lapsed leases are found, what is over is swept."""
        lab = self.lab
        later = await lab.create(lane_id="good", delay_until=lab.now + 10)
        await lab.after(10)
        (claimed,) = await self.claims()
        assert claimed.execution_id == later
        await lab.after(TTL_MS)
        assert await lab.state(later) is PublicState.WAITING
        await lab.cancel(later)
        await self.engine.next_due()

    async def late(self) -> None:
        """All that is due in a day is done, while everything else is due as well."""
        lab, engine = self.lab, self.engine
        await lab.create(lane_id="good", budget_ids=("good",))
        (claimed,) = await self.claims()
        await reserve(lab, claimed, {"tokens": 7}, budget_id="good")
        waiting = await suspended(lab, claimed=claimed, timeout_at=lab.now + 1_000)
        later = await lab.create(lane_id="good", delay_until=lab.now + 2_000)
        graph = await submit(lab, [node("a", lane_id="good"), node("b", lane_id="good")])
        await engine.cancel_flow_header(flow_id=graph.flow_id, grace_ms=1_000)
        lab.clock.advance(86_400_000)
        left = [await engine.tick() for _ in range(TICKS)]
        assert left[-1] == 0, "the loop is busy with what it cannot move"
        assert await lab.state(waiting.execution_id) is PublicState.FAILED
        assert await lab.state(later) is PublicState.WAITING
        assert set((await graph.states()).values()) == {"cancelled"}
        budget = await engine.get_budget_status(budget_id="good")
        assert (budget.reset_count, dict(budget.held)) == (1, {})

    async def lists(self) -> None:
        """Every listing shows the new, whatever else there is."""
        engine = self.engine
        found = await engine.list_executions(lane_id="good")
        assert len(found.items) >= 4
        await engine.list_executions(limit=1000)
        await engine.count_executions()
        assert (await engine.list_flows(limit=1000)).items
        assert "good" in {each.lane_id for each in (await engine.list_lanes()).items}
        await engine.list_suspended()
        await engine.list_expired_leases()
        assert "good" in {each.budget_id for each in (await engine.list_budgets()).items}
        assert "good" in {each.budget_id for each in (await engine.list_spend()).items}
        assert (await engine.list_quota_policies()).items
        assert "w1-1" in {each.worker_instance_id for each in (await engine.list_workers()).items}


class Ward:
    """A store with every kind of row in it, to be spoiled and healed again and again."""

    def __init__(self, lab: Lab, door: Backdoor) -> None:
        self.lab = lab
        self.door = door
        self.lanes = [f"bad{number}" for number in range(SETS)]
        self.columns: list[Column] = []
        self._heals = 1_000
        self._rows: dict[str, list[str]] = {}

    async def prepare(self) -> None:
        """Fill every table; the route of the new work is known to the engine from now on."""
        await self.lab.cancel(await self.lab.create(lane_id="good"))
        for lane in self.lanes:
            await history(self.lab, lane)
        await self.door.keep()
        for table in await self.door.tables():
            if table not in LEFT_OUT:
                found = await self.door.addresses(table, "good")
                self._rows[table] = sorted(found, key=_made)
                assert self._rows[table], f"{table} has no row to spoil"
        self.columns = await self.door.columns(LEFT_OUT)

    def rounds(self, mix: int) -> Iterator[list[tuple[Spoil, str]]]:
        """Spoils with the row of each: no two in one row, all tables at once."""
        for table in self._rows if mix else ():
            Random(f"{mix} {table}").shuffle(self._rows[table])
        left: dict[str, list[Spoil]] = defaultdict(list)
        for column in self.columns:
            if column.table not in SHARED_TABLES:
                left[column.table] += spoils_of(column, is_sqlite=self.door.is_sqlite)
        while any(left.values()):
            some = []
            for table, spoils in left.items():
                rows = self._rows[table]
                some += list(zip(spoils, rows, strict=False))
                del spoils[: len(rows)]
            yield some

    async def untold(self, spoils: Sequence[Spoil]) -> list[str]:
        """Of these, what doctor does not name."""
        report = await self.lab.engine.doctor()
        assert not [each for each in report.problems if each.code == "check_failed"]
        said = [f"{each.subject} {each.detail}" for each in report.problems]
        return [
            str(spoil)
            for spoil in spoils
            if spoil.is_seen and not any(spoil.is_named(line) for line in said)
        ]

    @asynccontextmanager
    async def spoiled(self, spoils: Sequence[tuple[Spoil, str]]) -> AsyncIterator[list[Spoil]]:
        """With those spoils that the schema lets pass."""
        done = []
        for spoil, row in spoils:
            try:
                await self.door.change(spoil.column, spoil.value, row)
            except Refused:
                continue
            done.append(spoil)
        self._heals += 1
        await self.door.run(f"UPDATE ff_partition_config SET catalog_version = {self._heals}")
        now = self.lab.now
        yield done
        self.lab.clock.set(now)
        self._heals += 1
        await self.door.restore(self._heals)


def _made(address: str) -> str:
    """In the order rows were made: ids grow with time, but for the partition in front."""
    return re.sub(r"{fp:\d+}", "", address)


@asynccontextmanager
async def ward(lab: Lab) -> AsyncIterator[Ward]:
    door = Backdoor(lab)
    await door.open()
    try:
        place = Ward(lab, door)
        await place.prepare()
        yield place
    finally:
        await door.close()


def test_a_spoiled_value_in_any_column_disturbs_no_other_work(durable_lab: Lab) -> None:
    """Each row is judged by itself, everywhere."""
    lab = durable_lab

    async def check() -> None:
        async with ward(lab) as place:
            tried, silent = 0, []
            for mix in range(MIXES + 1):
                for spoils in place.rounds(mix):
                    async with place.spoiled(spoils) as done:
                        tried += len(done)
                        silent += await place.untold(done)
                        await Probe(lab, place.lanes).run()
            assert not silent
            assert tried > len(place.columns)

    lab.run(check())
