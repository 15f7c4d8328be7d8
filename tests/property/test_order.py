"""Serial and unique keys under rivals, retries and lost workers, on every store.

Several clients of several engines submit under a few keys while workers claim, complete, fail, and
forget what they claimed, and leases lapse. What is stored between the rounds, and the log of leases
at the end, are judged without a rule of the kernel. FF_ORDER_HISTORIES for more histories.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from flowfabric.api.executions import NewUnique
from flowfabric.assemble import open_engine
from flowfabric.clock import ManualClock
from flowfabric.engine.engine import Engine
from flowfabric.errors import ExecutionNotActive, LeaseExpired, StaleLease, UniqueConflict
from flowfabric.kernel.order import line, unique
from flowfabric.model.event import LeaseEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed, Created, Existing
from tests.property.budget import budget
from tests.property.crowd import CONFIG
from tests.support.mutants import Mutant, plant
from tests.support.runner import StepRunner

HISTORIES = budget("FF_ORDER_HISTORIES", 2)
ROUNDS = budget("FF_ORDER_ROUNDS", 8)
RIVALS, WORKERS, SUBMITS = 4, 3, 3  # submits of each rival in each round
KEYS = ("a", "b")
LEASE_MS = 2_000
RETRIES: dict[str, Any] = {
    "retry_policy": {"max_retries": 2, "backoff": {"type": "fixed", "delay_ms": 0}},
    "max_reclaim_count": 100,
}


class Story:
    """One history on one store."""

    def __init__(self, url: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(1_000_000)
        config = replace(CONFIG, lease_ttl_ms=LEASE_MS, retention_ms=10**9)
        count = 1 if url.startswith("memory") else 3
        self.engines = [open_engine(url, config=config, clock=self.clock) for _ in range(count)]
        self.asked: dict[tuple[int, str], list[str]] = defaultdict(list)  # by rival and serial key
        self.key_of: dict[str, str] = {}  # of those in a line
        self.refused = self.late = 0

    async def tell(self) -> None:
        """Rounds of work, then all that is left to do."""
        for engine in self.engines:
            await engine.start(migrate=True)
        try:
            for _ in range(ROUNDS):
                await self.round(submits=SUBMITS)
            for _ in range(100):
                if not await self.live():
                    break
                await self.round(submits=0)
            assert not await self.live(), "they do not end"
            await self.judge()
        finally:
            for engine in self.engines:
                await engine.close()

    async def round(self, *, submits: int) -> None:
        """Rivals and workers beside each other, then a look at what is there."""
        rivals = [self.submit(rival) for rival in range(RIVALS) for _ in range(bool(submits))]
        await asyncio.gather(
            *rivals, *(self.work(each, end=not submits) for each in range(WORKERS))
        )
        check(await self.engines[0].store.dump())
        self.clock.advance(self.chance.choice((0, 300, LEASE_MS + CONFIG.reclaim_grace_ms + 1)))
        for engine in self.engines:
            while await engine.tick():
                continue

    async def submit(self, rival: int) -> None:
        """One after the other, as a program that waits for each answer."""
        engine = self.chance.choice(self.engines)
        for _ in range(SUBMITS):
            key = self.chance.choice(KEYS)
            if self.key_of and self.chance.random() < 0.1:
                await self.cancel(engine, self.chance.choice(list(self.key_of)))
            if self.chance.random() < 0.5:
                made: Any = await engine.create_execution(
                    execution_kind="line", serial_key=key, policy=RETRIES
                )
                assert isinstance(made, Created)
                self.asked[rival, key].append(made.execution_id)
                self.key_of[made.execution_id] = key
                continue
            how = self.chance.choice(("existing", "refuse", "replace"))
            try:
                made = await engine.create_execution(
                    execution_kind="one", unique=NewUnique(key=key, on_conflict=how), policy=RETRIES
                )
            except UniqueConflict:
                assert how == "refuse"
                self.refused += 1
            else:
                assert isinstance(made, Created) or (how == "existing" and type(made) is Existing)

    async def cancel(self, engine: Engine, execution_id: str) -> None:
        """Wherever it stands in its line."""
        with suppress(ExecutionNotActive):
            await engine.cancel_execution(
                execution_id=execution_id, reason="x", source="operator_override"
            )

    async def work(self, number: int, *, end: bool) -> None:
        """Claim some, and end them, have them tried again, or forget them as a dead worker does."""
        engine = self.engines[number % len(self.engines)]
        for _ in range(3):
            claimed = await engine.claim(
                lanes=["default"], worker_id="w", worker_instance_id=f"w-{number}", limit=3
            )
            for each in claimed:
                await self.treat(engine, each, self.chance.random() * (0.7 if end else 1))

    async def treat(self, engine: Engine, claimed: Claimed, luck: float) -> None:
        if luck > 0.85:
            return
        try:
            if luck > 0.6:
                await engine.fail(claimed.handle, reason="x", failure_class="transient")
            else:
                await engine.complete(claimed.handle)
        except (ExecutionNotActive, StaleLease, LeaseExpired):
            self.late += 1  # replaced or cancelled, or its lease has lapsed

    async def live(self) -> int:
        found = await self.engines[0].store.dump()
        return sum(not each.is_terminal for each in found["executions"])

    async def judge(self) -> None:
        """The order in which they began, from the log of leases."""
        found = await self.engines[0].store.dump()
        taken = [
            each.execution_id
            for each in found["lease_events"]
            if each.event_type is LeaseEventType.ACQUIRED and each.execution_id in self.key_of
        ]
        for key in KEYS:
            turns = [
                name for name, _ in groupby(each for each in taken if self.key_of[each] == key)
            ]
            assert len(turns) == len(set(turns)), f"two of {key} were at work at once"
            place = {name: at for at, name in enumerate(turns)}
            for rival in range(RIVALS):
                own = [place[name] for name in self.asked[rival, key] if name in place]
                assert own == sorted(own), f"{key}: one of rival {rival} was overtaken"
        assert not found["ff_unique"]
        assert not found["ff_serial"]
        assert not found["ff_serial_line"]
        assert (await self.engines[0].doctor()).problems == ()


def check(found: dict[str, list[Any]]) -> None:
    """One live execution of each unique key, one begun and not ended of each serial key."""
    live: list[Execution] = [each for each in found["executions"] if not each.is_terminal]
    uniques = Counter(each.ties.unique.key for each in live if each.ties.unique is not None)
    assert set(uniques.values()) <= {1}, "two live executions of one unique key"
    begun = Counter(
        each.ties.serial_key for each in live if each.ties.serial_key and each.total_attempt_count
    )
    assert set(begun.values()) <= {1}, "two of one serial key have begun"
    owners = {row.unique_key: row.execution_id for row in found["ff_unique"]}
    for each in live:
        if each.ties.unique is not None:
            owner = owners.get(each.ties.unique.key)
            assert owner == each.execution_id, "the key is another's"


def told(url: str, seed: int, runner: StepRunner) -> Story:
    """A history from its beginning to its end."""
    story = Story(url, seed)
    runner.run(story.tell())
    return story


@pytest.fixture(params=("memory", "sqlite", "postgres"))
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], str]:
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return lambda _: url
    if request.param == "memory":
        return lambda _: "memory://"
    return lambda seed: f"sqlite:///{tmp_path / f'order-{seed}.db'}"


def test_keys_hold_whatever_rivals_and_workers_do(
    new_url: Callable[[int], str], runner: StepRunner
) -> None:
    is_shared = new_url(0) == new_url(1) != "memory://"  # all that ends there stays there
    stories = [told(new_url(seed), seed, runner) for seed in range(1 if is_shared else HISTORIES)]
    assert sum(len(each.key_of) for each in stories) > 10 * len(stories)
    assert any(each.refused for each in stories)


FAULTS = {
    "nobody waits in a line": Mutant(
        line.join, "if execution.state.eligibility_state in _FREE_TO_WAIT:", "if False:"
    ),
    "one that leaves the line lets the next one begin": Mutant(
        line.leave,
        "return Decision(False, out, saves=(shorter,), drops=(gone,))",
        "return Decision(True, out, saves=(shorter,), drops=(gone,))",
    ),
    "a key is free for anybody": Mutant(
        unique.has_key, "if execution is None or execution.is_terminal:", "if True:"
    ),
    "a replaced one goes on": Mutant(
        unique.meet,
        "Met(stop(other, reason, REPLACED_BY, at).told(None), drops=True)",
        "Met(Decision(None), drops=True)",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_rule_is_noticed(
    name: str, runner: StepRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant([FAULTS[name]], monkeypatch)
    assert any(is_wrong(seed, runner) for seed in range(10))


def is_wrong(seed: int, runner: StepRunner) -> bool:
    try:
        told("memory://", seed, runner)
    except AssertionError:
        return True
    return False
