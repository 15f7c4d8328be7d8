"""Processes race for budgets and quotas and are killed: no limit is passed, nothing is lost.

FF_LIMITS_CALLS=5000 FF_LIMITS_KILLS=50 at night.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from flowfabric.assemble import open_engine
from flowfabric.clock import monotonic
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.model.budget import DedupRow, HardBreach
from flowfabric.model.event import LeaseEventType
from flowfabric.stores.indexes import uuid_of
from flowfabric.stores.tables import ADMISSIONS, DEDUP, GATES, HOLDS, LEDGER, USAGE
from tests.chaos import processes
from tests.chaos.diary import BUDGETS, Answer, Intent, read_diaries
from tests.chaos.processes import Crew, WorkerProcess, crew
from tests.chaos.test_workers_die import doomed, left
from tests.chaos.verdict import Dump, check_store
from tests.property.budget import budget
from tests.support.spend import check_totals

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

SPENDERS = 8
CALLS = budget("FF_LIMITS_CALLS", 40)  # of each process
KILLS = budget("FF_LIMITS_KILLS", 4)
SPENDER = "tests.chaos.spender_process"
PATIENCE_S = processes.PATIENCE_S + CALLS / 5
DIMENSIONS = ("cents", "tokens")
# Calls ask for three cents on average: about half of them fit.
HARD = {"cents": SPENDERS * CALLS * 3 // (2 * len(BUDGETS)), "tokens": SPENDERS * CALLS}
Total = Counter[tuple[str, str]]  # by budget and dimension


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'race.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as each:
        yield each


@pytest.fixture
def engine(url: str, runner: asyncio.Runner) -> Iterator[Engine]:
    """The test's own: it only looks, and at the end sees to what is due."""
    opened = open_engine(url, config=EngineConfig(loops=False, pool_size=2))
    runner.run(opened.start(migrate=True))
    yield opened
    runner.run(opened.close())


# --- budgets -----------------------------------------------------------------------------------


def test_spenders_killed_on_shared_budgets(
    url: str, engine: Engine, runner: asyncio.Runner, tmp_path: Path
) -> None:
    """I12: at no time is more used or promised than a hard limit, and every answer is true."""
    runner.run(set_limits(engine))
    with crew(url) as spenders:
        spend(spenders, tmp_path, lambda: runner.run(look_at_limits(engine)))
    runner.run(until_nothing_is_held(engine))
    dump = runner.run(engine.store.dump())
    diary = Books(dump, *read_diaries(tmp_path))
    diary.check()
    runner.run(repeat_unanswered(engine, diary))


async def set_limits(engine: Engine) -> None:
    for budget_id in BUDGETS:
        await engine.create_budget(
            budget_id=budget_id,
            dimensions=DIMENSIONS,
            hard_limits=[HARD[name] for name in DIMENSIONS],
            soft_limits=[HARD[name] // 2 for name in DIMENSIONS],
        )


def spend(spenders: Crew, diaries: Path, look: Callable[[], None]) -> None:
    """Until everybody has made its calls; now and then one dies and another takes its place."""
    rng = random.Random(KILLS)
    hired = 0

    def hire() -> WorkerProcess:
        nonlocal hired
        hired += 1
        return spenders.hire("spend", SPENDER, str(diaries / f"{hired}.diary"), str(CALLS // 2))

    for _ in range(SPENDERS):
        hire()
    deadline = monotonic() + PATIENCE_S
    fates = sorted(rng.random() * SPENDERS * CALLS * 0.6 for _ in range(KILLS))
    while fates or not all(each.heard("end") for each in spenders.alive):
        assert monotonic() < deadline, "in vain: the spenders' calls"
        spenders.listen(0.05)
        look()
        made = sum(int(line[0]) for line in spenders.lines("did"))
        busy = [each for each in spenders.alive if each.heard("did") and not each.heard("end")]
        if fates and made >= fates[0] and busy:
            fates.pop(0)
            spenders.kill(rng.choice(busy))
            hire()
        elif fates and all(each.heard("end") for each in spenders.alive):
            hire()  # all were done before this one saw it: somebody has to be killed yet


async def look_at_limits(engine: Engine) -> None:
    for status in (await engine.list_budgets()).items:
        for name, hard in HARD.items():
            committed = status.usage.get(name, 0) + status.held.get(name, 0)
            assert committed <= hard, f"{status.budget_id}: {name} {committed}/{hard}"


async def until_nothing_is_held(engine: Engine) -> None:
    """Leases of the dead run out and with them what they had reserved."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await engine.tick()
            dump = await engine.store.dump()
            if not dump[HOLDS.name] and not any(each.is_leased for each in dump["executions"]):
                break
            await asyncio.sleep(0.05)
    assert not [row for row in dump[USAGE.name] if row.held], "held by nobody"
    assert not [each for each in dump["executions"] if each.side_holds], "holds that are gone"


class Books:
    """What the store says was spent, beside what the spenders were told."""

    def __init__(
        self, dump: Dump, intents: list[Intent], answers: Mapping[str, list[Answer]]
    ) -> None:
        self._dump = dump
        self._intents = {intent.number: intent for intent in intents}
        self._answers = answers
        asked = Counter(intent.number for intent in intents)  # a repeated call has its number twice
        self.unanswered = [
            intent
            for number, intent in self._intents.items()
            if asked[number] > len(answers.get(number, ()))
        ]
        self._seen: dict[tuple[str, str, str], DedupRow] = {
            (row.budget_id, row.execution_id, row.dedup_key): row for row in dump[DEDUP.name]
        }

    def check(self) -> None:
        """Usage is what was reported and what the ledgers say; ledgers say what was answered."""
        used = total((row.budget_id, row.dimension, row.used) for row in self._dump[USAGE.name])
        spent = total((row.budget_id, row.dimension, row.spent) for row in self._dump[LEDGER.name])
        kept = total((row.budget_id, row.dimension, row.kept) for row in self._dump[LEDGER.name])
        by_owners = Counter[tuple[str, str]]()
        reported = Counter[tuple[str, str]]()
        for intent in self._intents.values():
            if intent.what in ("report", "owner_report") and self.applied(intent):
                reported.update(entries(intent.budget_id, intent.amounts))
                if intent.what == "owner_report":
                    by_owners.update(entries(intent.budget_id, intent.amounts))
        assert +kept == +by_owners
        check_totals(self._dump)
        assert +used == +(reported + spent)
        self._check_ledgers()
        for number in self._intents:
            outcomes = [answer.outcome for answer in self._answers.get(number, ())]
            assert set(outcomes) <= KNOWN, outcomes
        assert any(used[key, "cents"] > HARD["cents"] * 0.9 for key in BUDGETS), "no limit was near"

    def applied(self, intent: Intent) -> bool:
        """What the store remembers of a report or spend; an answer must say the same."""
        owner = intent.execution_id if intent.what == "spend" else ""
        row = self._seen.get((intent.budget_id, owner, intent.key))
        stored = row is not None and not isinstance(row.outcome, HardBreach)
        answers = self._answers.get(intent.number, ())
        if any(answer.was_applied for answer in answers):
            assert stored, f"{intent}: acknowledged and not there"
        elif intent not in self.unanswered:
            assert not stored, f"{intent}: refused and there"
        return stored

    def _check_ledgers(self) -> None:
        told = Counter[tuple[str, str, str]]()
        unknown: dict[str, Intent] = {}  # a hand has one call under way: at most one each
        for intent in self._intents.values():
            if intent.what == "spend" and self.applied(intent):
                told.update(ledger_entries(intent, intent.amounts))
            elif intent.what == "settle":
                answers = self._answers.get(intent.number, ())
                if answers:  # asked twice, it is answered twice and charged once
                    told.update(ledger_entries(intent, settled(intent, answers[0])))
                else:
                    unknown[intent.execution_id] = intent
        stored = Counter(
            {
                (row.execution_id, row.budget_id, row.dimension): row.spent
                for row in self._dump[LEDGER.name]
            }
        )
        for execution_id, intent in unknown.items():
            rest = Counter({k: n - told[k] for k, n in stored.items() if k[0] == execution_id})
            known = (intent.budget_id, execution_id, intent.key) in self._seen
            possible = [intent.amounts, covered(intent)] if known else [{}]
            assert +rest in [Counter(ledger_entries(intent, each)) for each in possible]
            told.update(+rest)
        assert +stored == +told


KNOWN = {
    *("Ok", "SoftBreach", "HardBreach", "AlreadyApplied", "Reserved", "HoldReleased"),
    *("NotFound", "LeaseExpired", "StaleLease", "ExecutionNotActive"),
}


def settled(intent: Intent, answer: Answer) -> Mapping[str, int]:
    """What a settlement charged: everything, or what the hold covered."""
    if answer.was_applied:
        return intent.amounts
    return covered(intent) if answer.outcome == "HardBreach" else {}


def covered(intent: Intent) -> dict[str, int]:
    return {
        name: min(amount, intent.covered.get(name, 0)) for name, amount in intent.amounts.items()
    }


def total(rows: Iterable[tuple[str, str, int]]) -> Total:
    found: Total = Counter()
    for budget_id, dimension, amount in rows:
        found[budget_id, dimension] += amount
    return found


def entries(budget_id: str, amounts: Mapping[str, int]) -> dict[tuple[str, str], int]:
    return {(budget_id, name): amount for name, amount in amounts.items() if amount}


def ledger_entries(intent: Intent, amounts: Mapping[str, int]) -> dict[tuple[str, str, str], int]:
    return {
        (intent.execution_id, intent.budget_id, name): amount
        for name, amount in amounts.items()
        if amount
    }


async def repeat_unanswered(engine: Engine, diary: Books) -> None:
    """I6: who got no answer asks again; what was applied is not applied twice."""
    for intent in diary.unanswered:
        if intent.what not in ("report", "owner_report", "spend"):
            continue
        before = await engine.get_budget_status(budget_id=intent.budget_id)
        reply: Any
        if intent.what == "spend":
            reply = await engine.record_spend(
                budget_id=intent.budget_id,
                execution_id=intent.execution_id,
                deltas=intent.amounts,
                idempotency_key=intent.key,
            )
        else:
            reply = await engine.report_usage_admin(
                budget_id=intent.budget_id,
                dimensions=list(intent.amounts),
                deltas=list(intent.amounts.values()),
                dedup_key=intent.key,
            )
        after = await engine.get_budget_status(budget_id=intent.budget_id)
        expected = Counter(before.usage)
        if not diary.applied(intent) and not isinstance(reply, HardBreach):
            expected.update(intent.amounts)
        assert +Counter(after.usage) == +expected, f"{intent}: {reply}"


# --- quotas ------------------------------------------------------------------------------------

WORKERS = 4
CAP = 3
KEYS = ("red", "green", "blue")
EXECUTIONS = budget("FF_QUOTA_EXECUTIONS", 240)
WORKER_KILLS = budget("FF_QUOTA_KILLS", 6)


def test_workers_killed_under_a_quota(url: str, engine: Engine, runner: asyncio.Runner) -> None:
    """I12: never more at once than the cap, for each key; all complete and all places are free."""
    runner.run(make_work(engine))
    runner.run(change(url, WATCH))
    try:
        kill_workers(url, engine, runner)
        watched = runner.run(watched_leases(url))
    finally:
        runner.run(change(url, UNWATCH))  # other tests use the same database
    dump = runner.run(engine.store.dump())
    check_store(dump)
    keys = {uuid_of(e.execution_id): e.bounds.concurrency_key for e in dump["executions"]}
    most = most_at_once(watched, keys)
    assert most == dict.fromkeys(KEYS, CAP), "the cap was passed, or never reached"
    lost = [e for e in dump["lease_events"] if e.event_type is LeaseEventType.EXPIRED]
    assert lost, "the kills hit nobody who held a lease"
    check_gates(dump)
    assert not [row for row in dump[ADMISSIONS.name] if row.is_active]


def kill_workers(url: str, engine: Engine, runner: asyncio.Runner) -> None:
    """Workers die with work in their hands, until all of it is done."""
    with crew(url) as workers:
        rng = random.Random(WORKER_KILLS)
        fates = {workers.hire("work"): rng.randint(1, 4) for _ in range(WORKERS)}
        for _ in range(WORKER_KILLS):
            workers.wait_until(lambda: bool(doomed(fates)), "a worker with work in its hands")
            victim = doomed(fates)[0]
            workers.kill(victim)
            del fates[victim]
            fates[workers.hire("work")] = rng.randint(1, 4)
        workers.wait_until(lambda: runner.run(left(engine)) == 0, "the rest of the work")


async def make_work(engine: Engine) -> None:
    await engine.create_quota_policy(quota_policy_id="capped", max_concurrent=CAP)
    requests: list[Any] = [
        {
            "execution_kind": "work",
            "quota_policy_id": "capped",
            "concurrency_key": KEYS[number % len(KEYS)],
        }
        for number in range(EXECUTIONS)
    ]
    await engine.create_executions(requests)


# Writes down, in the order of the writes, when an execution becomes leased (60) and when it no
# longer is. The engine's events do not say that in one order: an end is in another log.
WATCH = {
    "sqlite": """
        CREATE TABLE lease_watch (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, execution_id TEXT, begins INTEGER);
        CREATE TRIGGER lease_watch AFTER UPDATE ON ff_exec_core
        WHEN (OLD.state_id = 60) <> (NEW.state_id = 60) BEGIN
            INSERT INTO lease_watch (execution_id, begins)
            VALUES (NEW.execution_id, NEW.state_id = 60);
        END;
    """,
    "postgresql": """
        CREATE TABLE lease_watch (seq BIGSERIAL, execution_id TEXT, begins BOOLEAN);
        CREATE FUNCTION lease_watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO lease_watch (execution_id, begins)
            VALUES (NEW.execution_id, NEW.state_id = 60);
            RETURN NULL;
        END $$;
        CREATE TRIGGER lease_watch AFTER UPDATE ON ff_exec_core FOR EACH ROW
        WHEN ((OLD.state_id = 60) <> (NEW.state_id = 60)) EXECUTE FUNCTION lease_watch();
    """,
}
WATCHED = "SELECT execution_id, begins FROM lease_watch ORDER BY seq"


UNWATCH = {
    "sqlite": "DROP TRIGGER lease_watch; DROP TABLE lease_watch;",
    "postgresql": """
        DROP TRIGGER lease_watch ON ff_exec_core;
        DROP FUNCTION lease_watch();
        DROP TABLE lease_watch;
    """,
}


async def change(url: str, script: Mapping[str, str]) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(script["sqlite"])
        return
    server = await asyncpg.connect(url)
    await server.execute(script["postgresql"])
    await server.close()


async def watched_leases(url: str) -> list[tuple[str, bool]]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return [(row[0], bool(row[1])) for row in connection.execute(WATCHED)]
    server = await asyncpg.connect(url)
    try:
        return [(row[0], row[1]) for row in await server.fetch(WATCHED)]
    finally:
        await server.close()


def most_at_once(changes: Iterable[tuple[str, bool]], keys: Mapping[str, str]) -> dict[str, int]:
    """By the order in which leases were written to begin and end."""
    running: Counter[str] = Counter()
    most: dict[str, int] = {}
    for uuid, begins in changes:
        key = keys[uuid]
        running[key] += 1 if begins else -1
        most[key] = max(most.get(key, 0), running[key])
    return most


def check_gates(dump: Dump) -> None:
    """Counters are what there is to count."""
    rows = dump[ADMISSIONS.name]
    for gate in dump[GATES.name]:
        key = (gate.quota_policy_id, gate.dimension)
        own = [row for row in rows if (row.quota_policy_id, row.dimension) == key]
        assert gate.active == sum(row.is_active for row in own), gate
        assert gate.in_window == sum(row.counted_at is not None for row in own), gate
