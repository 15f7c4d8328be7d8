"""How soon the loop finds what is due, in a time that passes only while it sleeps."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from flowfabric.api.hints import Bell
from flowfabric.engine.due_work import DueLook
from flowfabric.engine.here import WorkersHere
from flowfabric.engine.wakeups import Wakeups
from flowfabric.limits import LEASE_TTL_MS_MIN
from flowfabric.loops import supervisor, timekeeper
from flowfabric.loops.timekeeper import Timekeeper

if TYPE_CHECKING:
    import pytest

STEP_MS = 37  # goes through all places between two looks
LEASES = 200


class Ledger:
    """Leases that other processes take and never give back, one every few moments."""

    def __init__(self) -> None:
        self.wakeups = Wakeups()
        self.workers_here = WorkersHere()
        self.next_look_at = 0
        self.now = 0
        self.taken = [STEP_MS * number for number in range(1, LEASES + 1)]
        self.waits: list[int] = []  # from the taking of a lease to its end
        self.over = asyncio.Event()

    async def next_due(self) -> DueLook:
        known = [at for at in self.taken if at <= self.now]
        return DueLook(self.now, min(known) + LEASE_TTL_MS_MIN if known else None)

    async def move_due(self) -> int:
        lapsed = [at for at in self.taken if at + LEASE_TTL_MS_MIN <= self.now]
        self.waits += [self.now - at for at in lapsed]
        self.taken = [at for at in self.taken if at not in lapsed]
        if not self.taken:
            self.over.set()
        return len(lapsed)

    async def trim_retention(self) -> int:
        return 0

    async def sweep(self) -> int:
        return 0

    async def sweep_workers(self) -> int:
        return 0

    async def roll_up(self, *, limit: int, every_ms: int) -> int:
        return 0

    async def sleep(self, event: asyncio.Event, seconds: float) -> bool:
        """Nobody hints; the time is over at once."""
        if not isinstance(event, Bell):  # housekeeping, which rests until it is asked for
            await event.wait()
            event.clear()
            return True
        self.now += max(1, round(seconds * 1000))
        await asyncio.sleep(0)
        return False


L = TypeVar("L", bound=Ledger)


def run_until_over(kind: type[L], monkeypatch: pytest.MonkeyPatch) -> L:
    async def story() -> L:
        ledger = kind()
        monkeypatch.setattr(supervisor, "wait_event", ledger.sleep)
        loop = Timekeeper(ledger)
        loop.start()
        async with asyncio.timeout(60):
            await ledger.over.wait()
        await loop.stop()
        return ledger

    return asyncio.run(story())


def test_the_shortest_lease_taken_elsewhere_is_missed_within_its_length_and_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = run_until_over(Ledger, monkeypatch).waits
    assert len(waits) == LEASES
    assert min(waits) >= LEASE_TTL_MS_MIN
    assert max(waits) <= LEASE_TTL_MS_MIN + 1_000


class Pieces(Ledger):
    """One thing is due, and every piece of it leaves the next to be done at once."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.looks = 250, 0

    async def next_due(self) -> DueLook:
        self.looks += not self.over.is_set()  # the loop may look once more before it is stopped
        if not self.left:
            self.over.set()
        return DueLook(self.now, self.now if self.left else None)

    async def move_due(self) -> int:
        self.left -= 1
        if self.left:
            self.next_look_at = self.now
        return 1


def test_a_long_piece_of_work_is_looked_for_only_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces = run_until_over(Pieces, monkeypatch)
    assert pieces.left == 0
    assert pieces.looks == 250 // timekeeper.PIECES_MAX + 2  # begun three times, then nothing


class Late:
    """A worker of the same process, which stood still with it and has something to report."""

    instance_id = "late-1"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def catch_up(self) -> None:
        await asyncio.sleep(0)
        self._ledger.taken = [at for at in self._ledger.taken if at > self._ledger.now]
        self._ledger.over.set()


class Overdue(Ledger):
    """Everything was due long ago."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000
        self.stack = ExitStack()
        self.stack.enter_context(self.workers_here.present(Late(self)))


def test_workers_of_the_same_process_report_before_their_leases_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = run_until_over(Overdue, monkeypatch)
    assert ledger.waits == []
    assert ledger.workers_here.ids == {"late-1"}
    ledger.stack.close()
    assert ledger.workers_here.ids == frozenset()
