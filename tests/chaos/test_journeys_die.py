"""kill -9 of workers, of their engines, and of PostgreSQL, while thousands of handlers make steps,
branch, wait and spawn: none is lost, nothing is recorded twice, and no effect begins before what it
depends on is durable.

FF_JOURNEYS=5000 FF_JOURNEY_KILLS=200 FF_JOURNEY_OUTAGES=20 at night (`bin/soak`).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flowfabric import Run
from flowfabric.errors import NotFound, StateError
from flowfabric.ids import new_secret_id
from flowfabric.model.event import LeaseEventType
from flowfabric.model.journal import EntryState
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import ReasonCode
from tests.chaos.journaled import Notes, journaled_fabric, read_notes
from tests.chaos.journeys import EFFECTS, JOURNEY, LEGS, PLACES
from tests.chaos.mortal import MortalServer, mortal_server
from tests.chaos.nest import Nest
from tests.chaos.processes import Crew, crew
from tests.chaos.storm import insist
from tests.chaos.verdict import check_store
from tests.property.budget import budget
from tests.support.effects import Effect, check_steps, keys_of, leaves, results
from tests.support.inner import inner

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

JOURNEYS = budget("FF_JOURNEYS", 24)
KILLS = budget("FF_JOURNEY_KILLS", 3)
OUTAGES = budget("FF_JOURNEY_OUTAGES", 1)  # of PostgreSQL
AT_ONCE = 200
HANDS = 3
WAVE = 10  # journeys more, as long as deaths are left
PATIENCE_S = max(240.0, 1.5 * JOURNEYS)
LOOK_S = 0.05
TELL_S = 0.2
LEASE = "3s"


class Agency:
    """It books journeys, tells each what it waits for, and sees them home."""

    def __init__(self, url: str, folder: Path) -> None:
        self.fabric = journaled_fabric(url, Notes(folder / "none.notes"))
        self.runs: list[Run[Any]] = []
        self.said: set[str] = set()
        self.ended = 0

    @property
    def under_way(self) -> int:
        """Journeys that have not ended."""
        return len(self.runs) - self.ended

    async def book(self) -> None:
        """As many more as there is room for."""
        first, left = len(self.runs), JOURNEYS - len(self.runs)
        last = first + min(WAVE if left <= 0 else left, AT_ONCE - self.under_way)
        submit = self.fabric.tasks["journey"].options
        self.runs += await asyncio.gather(
            *(insist(partial(submit(key=f"journey-{n}").submit, n)) for n in range(first, last))
        )

    async def look(self) -> None:
        """How many have ended. None fails."""
        engine = await self.fabric.start()
        count = engine.count_listed
        failed = await insist(partial(count, states=("failed", "cancelled", "expired")))
        assert not failed, await insist(partial(engine.list_executions, states=("failed",)))
        ended = partial(count, states=("completed",), execution_kind="journey")
        self.ended = await insist(ended)

    async def tell(self) -> None:
        """Each that waits is told what it waits for, sometimes by two rivals at once."""
        waits = await insist(partial(self.fabric.waits, kind="journey", limit=AT_ONCE))
        # The code is the same in every run: none is ever held.
        assert not [each for each in waits if each.reason is ReasonCode.PAUSED_BY_POLICY], waits
        places = {
            (wait.execution_id, key)
            for wait in waits
            for line in wait.lines
            for key in line.waitpoint_keys
        }
        rivals = [each for each in places if random.random() < 0.3]
        await asyncio.gather(*(self._say(*place) for place in (*places, *rivals)))

    async def _say(self, execution_id: str, place: str) -> None:
        say: Callable[[], Awaitable[object]]
        if place == "publish":
            by = random.choice(("ada", "bob"))
            say = partial(self.fabric.approve, execution_id, place, by=by)
        elif place in PLACES:
            word = f"{place}={new_secret_id()}"
            self.said.add(word)
            say = partial(self.fabric.signal, execution_id, place, word, idempotency_key=word)
        else:
            return
        with suppress(NotFound, StateError):  # an earlier round of ours was fast enough
            await insist(say)

    async def live(self, until: asyncio.Event) -> None:
        """Until everything is over."""
        while not until.is_set():
            await self.tell()
            await self.look()
            await asyncio.sleep(TELL_S)

    async def results(self) -> list[Any]:
        """Of all, in the order they were booked."""
        return [await insist(partial(run.result, "10s")) for run in self.runs]

    async def dump(self) -> dict[str, list[Any]]:
        """What is stored, once the doctor has nothing to say."""
        engine = await self.fabric.start()
        async with asyncio.timeout(PATIENCE_S):
            while (await insist(engine.doctor)).problems:  # noqa: ASYNC110 - it tells nothing itself
                await asyncio.sleep(1)
        return await inner(engine).dump()


class Storm:
    """Workers die soon after one of their next steps, and the server now and then."""

    def __init__(self, agency: Agency, workers: Crew, folder: Path, server: MortalServer | None):
        self._agency = agency
        self._workers = workers
        self._server = server
        self._nest = Nest(workers, folder, LEASE)
        self._rng = random.Random(KILLS)
        self.kills = 0
        self.outages = 0
        self.outages_wanted = OUTAGES if server is not None else 0

    async def blow(self) -> None:
        """Until all journeys have been booked, all deaths died, and all journeys have ended."""
        agency = self._agency
        fates = {self._nest.hatch(): self._life() for _ in range(HANDS)}
        async with asyncio.timeout(PATIENCE_S):
            while not (self._is_over and agency.under_way == 0):
                if not self._is_over and agency.under_way < min(AT_ONCE, JOURNEYS) // 2:
                    await agency.book()
                self._workers.listen(0)
                steps = self._nest.steps()
                for worker in [pid for pid, fate in fates.items() if steps[pid] >= fate]:
                    if self.kills < KILLS:
                        self._kill(worker)
                        del fates[worker]
                        fates[self._nest.hatch()] = self._life()
                await self._maybe_outage(steps.total())
                await asyncio.sleep(LOOK_S)

    @property
    def _is_over(self) -> bool:
        enough = len(self._agency.runs) >= JOURNEYS
        return enough and self.kills >= KILLS and self.outages >= self.outages_wanted

    def _life(self) -> int:
        """In steps: on average as long as lets all deaths fit in."""
        return self._rng.randint(1, max(2, JOURNEYS * EFFECTS // (KILLS + HANDS)))

    def _kill(self, worker: int) -> None:
        os.kill(worker, signal.SIGKILL)
        self.kills += 1

    async def _maybe_outage(self, steps: int) -> None:
        if self._server is None or self.outages >= self.outages_wanted:
            return
        every = JOURNEYS * EFFECTS // (2 * (OUTAGES + 1))
        if steps >= (self.outages + 1) * every:
            await asyncio.to_thread(self._server.kill)
            await asyncio.sleep(self._rng.uniform(0, 1.5))
            await asyncio.to_thread(self._server.start)
            self.outages += 1


@pytest.fixture(params=("sqlite", "postgres"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | MortalServer]:
    """A file, or a server that can be killed."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path / 'chaos.db'}"
        else:
            yield stack.enter_context(mortal_server())


def test_journeys_through_a_storm(place: str | MortalServer, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    asyncio.run(_travel(place, folder))


async def _travel(place: str | MortalServer, folder: Path) -> None:
    server = None if isinstance(place, str) else place
    url = place if isinstance(place, str) else place.url
    agency = Agency(url, folder)
    await agency.fabric.start()
    with crew(url) as workers:
        storm, is_over = Storm(agency, workers, folder, server), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(agency.live(is_over))
            await storm.blow()
            is_over.set()
    found, dump = await agency.results(), await agency.dump()
    await agency.fabric.close()
    judge(agency, found, dump, read_notes(folder))
    lost = [e for e in dump["lease_events"] if e.event_type is LeaseEventType.EXPIRED]
    assert len(lost) >= KILLS / 2, "the kills hit no worker that held a lease"


def judge(
    agency: Agency, found: list[Any], dump: dict[str, list[Any]], notes: list[Effect]
) -> None:
    """None lost, none twice, none too early."""
    executions = dump["executions"]
    assert {each.public_state for each in executions} == {PublicState.COMPLETED}
    kinds = Counter(each.route.execution_kind for each in executions)
    assert kinds == {"journey": len(agency.runs), "leg": LEGS * len(agency.runs)}
    check_store(dump)
    check_steps(notes, dump["ff_journal"], agency.said)
    keys = Counter((e.execution_id, e.key) for e in dump["ff_journal"] if e.state is EntryState.OK)
    assert set(keys.values()) == {1}, "an entry was recorded twice"
    recorded = set().union(*results(dump["ff_journal"]).values())
    for result in found:
        assert keys_of(result) == JOURNEY
        assert set(leaves(result)) <= recorded | agency.said | set(JOURNEY["by"])
