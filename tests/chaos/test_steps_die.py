"""kill -9 of workers whose handlers make steps: what is recorded is never done again, and nothing
that others could see was done by what was lost.

FF_CHAOS_KILLS=200 at night (`bin/soak`).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flowfabric import Fabric, Run
from flowfabric.model.event import LeaseEventType
from flowfabric.model.state import PublicState
from tests.chaos.journal_process import STUCK_AT
from tests.chaos.journaled import BUDGET, STEPS, TANGLE, Notes, journaled_fabric, read_notes
from tests.chaos.nest import PROCESS, Nest
from tests.chaos.processes import Crew, crew
from tests.chaos.verdict import check_store
from tests.property.budget import budget
from tests.support.effects import check_steps, keys_of, leaves, results
from tests.support.inner import inner

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

KILLS = budget("FF_CHAOS_KILLS", 16)
AT_ONCE = 200  # workflows
HANDS = 3
STEPS_OF_A_LIFE = 250


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'chaos.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


class Site:
    """The test's own fabric: it submits and looks, and recovers nothing."""

    def __init__(self, url: str, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self.folder = folder
        self.fabric = journaled_fabric(url, Notes(folder / "none.notes"))
        self.runs: list[Run[Any]] = []

    def submit(self, name: str, *args: Any, times: int = 1) -> None:
        """So many workflows."""

        async def story() -> list[Run[Any]]:
            task = self.fabric.tasks[name]
            return [await task.submit(*args) for _ in range(times)]

        self.runs += self._runner.run(story())

    def left(self) -> int:
        """How many have not ended. None is ever held: the code is the same."""

        async def story() -> int:
            counts = await (await self.fabric.start()).count_executions()
            states = Counter[str]()
            for each in counts.values():
                states.update(each)
            bad = {name: states[name] for name in ("suspended", "failed") if states[name]}
            assert not bad, await _why(self.fabric, bad)
            return states.total() - states["completed"]

        return self._runner.run(story())

    def results(self) -> list[Any]:
        """Of all, in the order of submission."""

        async def story() -> list[Any]:
            return [await run.result("10s") for run in self.runs]

        return self._runner.run(story())

    def dump(self) -> tuple[dict[str, list[Any]], list[str]]:
        """What is stored, and what the doctor says."""

        async def story() -> tuple[dict[str, list[Any]], list[str]]:
            engine = await self.fabric.start()
            report = await engine.doctor()
            problems = [f"{e.code} {e.subject}: {e.detail}" for e in report.problems]
            return await inner(engine).dump(), problems

        return self._runner.run(story())

    def open_budget(self) -> None:
        """For the steps that spend."""
        self._runner.run(self.fabric.create_budget(BUDGET, hard={"tokens": 1_000_000}))

    def spent(self) -> tuple[int, int]:
        """What these have used, and what is held."""
        found = self._runner.run(self.fabric.budget(BUDGET))
        return int(found.usage.get("tokens", 0)), int(found.held.get("tokens", 0))

    def close(self) -> None:
        self._runner.run(self.fabric.close())
        self._runner.close()


async def _why(fabric: Fabric, bad: dict[str, int]) -> str:
    engine = await fabric.start()
    dump = await inner(engine).dump()
    told = {each.continuation_metadata_pointer for each in dump["ff_suspension"]}
    return f"{bad}: {sorted(map(str, told))[:3]}"


@pytest.fixture
def site(url: str, tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "notes"
    folder.mkdir()
    found = Site(url, folder)
    yield found
    found.close()


# --- one kill, exactly there ------------------------------------------------------------------


@pytest.mark.parametrize("task", ["ten", "ten_in_a_thread"])
def test_killed_in_its_seventh_step_it_goes_on_there(task: str, url: str, site: Site) -> None:
    site.submit(task, STEPS)
    with crew(url) as workers:
        first = workers.hire("stuck", PROCESS, str(site.folder))
        workers.wait_until(lambda: first.heard("seventh") == 1, "the seventh step")
        workers.kill(first)
        Nest(workers, site.folder).hatch()
        workers.wait_until(lambda: site.left() == 0, "the rest of the steps")
    dump, problems = site.dump()
    notes = read_notes(site.folder)
    (result,) = site.results()
    name = "effect" if task == "ten" else "plain_effect"
    keys = [name, *(f"{name}#{number}" for number in range(2, STEPS + 1))]
    ran = Counter(each.key for each in notes)
    assert ran == {key: 2 if at == STUCK_AT else 1 for at, key in enumerate(keys, 1)}
    assert keys_of(result) == keys
    assert result == [msgspec.json.decode(row.value) for row in dump["ff_journal"]]
    assert problems == []
    check_steps(notes, dump["ff_journal"])


# --- a storm ----------------------------------------------------------------------------------


def test_workers_killed_at_random_repeat_nothing_that_is_recorded(url: str, site: Site) -> None:
    with crew(url) as workers:
        kill_many(workers, site, KILLS)
        workers.wait_until(lambda: site.left() == 0, "the rest of the work")
    dump, problems = site.dump()
    notes = read_notes(site.folder)
    assert {each.public_state for each in dump["executions"]} == {PublicState.COMPLETED}
    assert problems == []
    check_store(dump)
    check_steps(notes, dump["ff_journal"])
    recorded = results(dump["ff_journal"])
    for run, result in zip(site.runs, site.results(), strict=True):
        assert keys_of(result) == TANGLE
        assert set(leaves(result)) <= recorded[run.id]
    lost = [e for e in dump["lease_events"] if e.event_type is LeaseEventType.EXPIRED]
    assert len(lost) >= KILLS / 2, "the kills hit no worker that held a lease"


def test_workers_killed_among_payments_and_submits_do_each_once(url: str, site: Site) -> None:
    """7.1.21: a budget is charged what completed steps cost, and nothing stays held; what handlers
    submit exists once, and its id is what every run of them was told."""
    kills, count = max(2, KILLS // 4), 4

    def pay() -> None:
        site.submit("paying", count, times=AT_ONCE // 8)

    site.open_budget()
    with crew(url) as workers:
        kill_many(workers, site, kills, submit=pay, life=AT_ONCE // 4)
        workers.wait_until(lambda: site.left() == 0, "the rest of the work")
    dump, problems = site.dump()
    assert problems == []
    check_store(dump)
    check_steps(read_notes(site.folder), dump["ff_journal"])
    told = [each for result in site.results() for each in result]
    made = [each.execution_id for each in dump["executions"] if each.execution_kind == "noted"]
    assert sorted(told) == sorted(made)
    assert len(set(made)) == len(site.runs) * count
    assert site.spent() == (len(site.runs) * count, 0)
    begun = sum(each.key.startswith("pay") for each in read_notes(site.folder))
    assert begun > len(made), "no kill has hit a payment"


def kill_many(
    workers: Crew,
    site: Site,
    kills: int,
    *,
    submit: Callable[[], None] | None = None,
    life: int = STEPS_OF_A_LIFE,
) -> None:
    """Each worker dies soon after one of its next steps; there is always work."""
    rng = random.Random(kills)
    more = submit or partial(site.submit, "tangle", times=AT_ONCE)
    more()
    enough = site.left() // 2
    nest = Nest(workers, site.folder)
    fates = {nest.hatch(): rng.randint(1, life) for _ in range(HANDS)}
    while kills:
        if site.left() < enough:
            more()
        workers.listen(0.05)
        steps = nest.steps()
        for worker in [pid for pid, fate in fates.items() if steps[pid] >= fate][:kills]:
            os.kill(worker, signal.SIGKILL)
            del fates[worker]
            fates[nest.hatch()] = rng.randint(1, life)
            kills -= 1
