"""Background work goes on whatever happens to it, and each kind of it by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from flowfabric.engine import complaint
from flowfabric.engine.complaint import Complaints
from flowfabric.engine.due_work import DueLook
from flowfabric.engine.here import WorkersHere
from flowfabric.engine.wakeups import Wakeups
from flowfabric.errors import InvalidInput, StoreUnavailable
from flowfabric.limits import DUE_BATCH
from flowfabric.loops import supervisor, timekeeper
from flowfabric.loops.supervisor import Duty
from flowfabric.loops.timekeeper import Timekeeper

ERRORS = (
    RecursionError("too deep"),
    OverflowError("too large"),
    ValueError("odd"),
    KeyError("lost"),
    MemoryError(),
    InvalidInput("lane_id: unreadable"),
    StoreUnavailable("gone"),
)
WORK = ("next_due", "move_due", "trim_retention", "sweep", "sweep_workers", "roll_up")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what it waits for tells nothing by itself
            await asyncio.sleep(0.001)


class Worn:
    """An engine one of whose operations fails as long as it is told to."""

    def __init__(self) -> None:
        self.wakeups = Wakeups()
        self.workers_here = WorkersHere()
        self.next_look_at = 0
        self.calls = dict.fromkeys(WORK, 0)
        self.broken: dict[str, Exception] = {}

    def _call(self, name: str) -> None:
        self.calls[name] += 1
        if name in self.broken:
            raise self.broken[name]

    async def next_due(self) -> DueLook:
        self._call("next_due")
        return DueLook(1, 1)

    async def move_due(self) -> int:
        self._call("move_due")
        return 0

    async def trim_retention(self) -> int:
        self._call("trim_retention")
        return 0

    async def sweep(self) -> int:
        self._call("sweep")
        return 0

    async def sweep_workers(self) -> int:
        self._call("sweep_workers")
        return 0

    async def roll_up(self, *, limit: int, every_ms: int) -> int:
        self._call("roll_up")
        return 0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause is longer than a few milliseconds."""
    monkeypatch.setattr(timekeeper, "HOUSEKEEPING_S", 0.002)
    monkeypatch.setattr(timekeeper, "ROLL_UP_S", 0.002)
    monkeypatch.setattr(timekeeper, "STUCK_LOOK_MS", 2)
    monkeypatch.setattr(supervisor, "FAILURE_PAUSE_S", 0.001)
    monkeypatch.setattr(supervisor, "FAILURE_PAUSE_S_MAX", 0.004)
    monkeypatch.setattr(supervisor, "OUTAGE_PAUSE_S", 0.002)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_one_failing_kind_of_work_stops_no_other_and_comes_back(
    work: str, error: Exception
) -> None:
    """Whatever is raised, and wherever: also a look that fails hides nothing that is due."""

    async def story() -> None:
        engine = Worn()
        engine.broken[work] = error
        loop = Timekeeper(engine)
        loop.start()
        await until(lambda: min(engine.calls.values()) > 5)
        failing = [each for each in loop.status() if each.failures_in_a_row]
        assert len(failing) == 1
        assert failing[0].failures_total >= 5
        assert failing[0].last_error == type(error).__name__
        assert all(each.is_running for each in loop.status())
        engine.broken.clear()
        await until(lambda: not any(each.failures_in_a_row for each in loop.status()))
        assert all(each.seconds_since_turn is not None for each in loop.status())
        await loop.stop()
        assert not any(each.is_running for each in loop.status())

    asyncio.run(story())


@pytest.mark.usefixtures("quick")
def test_an_error_is_told_with_its_traceback_once_and_not_every_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        engine = Worn()
        engine.broken["next_due"] = RecursionError("too deep")
        loop = Timekeeper(engine)
        loop.start()
        await until(lambda: engine.calls["next_due"] > 30)
        await loop.stop()

    with caplog.at_level(logging.WARNING, "flowfabric.loops"):
        asyncio.run(story())
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info
    assert "timers" in caplog.text
    assert "RecursionError: too deep" in caplog.text


@pytest.mark.usefixtures("quick")
def test_an_outage_is_told_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        engine = Worn()
        engine.broken["move_due"] = StoreUnavailable("gone")
        loop = Timekeeper(engine)
        loop.start()
        await until(lambda: engine.calls["move_due"] > 10)
        engine.broken.clear()
        await until(lambda: not any(each.failures_in_a_row for each in loop.status()))
        await loop.stop()

    with caplog.at_level(logging.WARNING, "flowfabric.loops"):
        asyncio.run(story())
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "waits for the store" in told[0]
    assert "the store is back" in told[1]


def test_pauses_after_failures_grow_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    over = asyncio.Event()

    async def fail() -> float:
        if len(pauses) == 12:
            over.set()
            await asyncio.Event().wait()
        raise ValueError

    async def sleep(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)

    async def story() -> None:
        monkeypatch.setattr(asyncio, "sleep", sleep)
        duty = Duty("work", fail)
        duty.start()
        await over.wait()
        await duty.stop(0.0)

    asyncio.run(story())
    for tries, pause in enumerate(pauses):
        longest = min(30.0, 0.5 * 2**tries)
        assert longest / 2 <= pause <= longest


def test_the_same_error_is_told_again_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    monkeypatch.setattr(complaint, "stopwatch", lambda: now)
    complaints = Complaints(logging.getLogger("flowfabric.loops"))

    def fail(text: str) -> None:
        try:
            raise ValueError(text)
        except ValueError as error:
            complaints.tell("it failed: %s", text, error=error)

    told = []
    for second in range(10_000):
        now = float(second)
        fail(f"record {second}")
        told += [second] * len(caplog.records)
        caplog.clear()
    assert told == [0, 10, 30, 70, 150, 310, 630, 1270, 2550, 5110, 8710]


# --- the end -----------------------------------------------------------------------------------


def test_the_turn_under_way_may_end_before_the_work_is_stopped() -> None:
    async def story() -> None:
        begun, done = asyncio.Event(), []

        async def turn() -> float:
            begun.set()
            await asyncio.sleep(0.05)
            done.append(True)
            return 0.0

        duty = Duty("work", turn)
        duty.start()
        await begun.wait()
        await duty.stop(10.0)
        assert done == [True]

    asyncio.run(story())


@pytest.mark.parametrize("grace_s", [0.0, 0.05])
def test_a_turn_that_does_not_end_is_cancelled_after_the_grace(grace_s: float) -> None:
    async def story() -> None:
        begun, cancelled = asyncio.Event(), []

        async def turn() -> float:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise
            return 0.0

        duty = Duty("work", turn)
        duty.start()
        await begun.wait()
        await duty.stop(grace_s)
        assert cancelled == [True]
        assert not duty.status().is_running

    asyncio.run(story())


def test_work_that_rests_is_stopped_at_once() -> None:
    async def story() -> None:
        async def turn() -> float:
            return 3600.0

        duties = [Duty("a", turn), Duty("b", turn, woken=asyncio.Event(), first_s=3600.0)]
        for duty in duties:
            duty.start()
        await until(lambda: duties[0].status().seconds_since_turn is not None)
        async with asyncio.timeout(5):
            await asyncio.gather(*(duty.stop(3600.0) for duty in duties))

    asyncio.run(story())


def test_work_without_an_end_lets_others_run() -> None:
    """A store in memory never waits, and whatever the work leaves to be done wakes it again."""

    async def story() -> int:
        woken, turns = asyncio.Event(), 0

        async def turn() -> float:
            nonlocal turns
            turns += 1
            if turns < 10_000:  # it would hold up the test for ever
                woken.set()
            return 0.0

        duty = Duty("work", turn, woken=woken)
        duty.start()
        for _ in range(10):
            await asyncio.sleep(0)
        await duty.stop(1.0)
        return turns

    assert asyncio.run(story()) < 100


@pytest.mark.usefixtures("quick")
def test_housekeeping_goes_on_at_once_while_a_batch_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timekeeper, "jitter", lambda: 0.0)
    monkeypatch.setattr(timekeeper, "HOUSEKEEPING_S", 3600.0)

    class Full(Worn):
        async def sweep(self) -> int:
            await super().sweep()
            return DUE_BATCH if self.calls["sweep"] < 10 else 0

    async def story() -> Any:
        engine = Full()
        loop = Timekeeper(engine)
        loop.start()
        await until(lambda: engine.calls["sweep"] >= 10)
        await loop.stop()
        return engine.calls

    assert asyncio.run(story())["sweep"] == 10
