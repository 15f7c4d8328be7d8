"""Handlers of events are called before a test goes on."""

from __future__ import annotations

from flowfabric import Event, Fabric
from flowfabric.testing import TestFabric
from tests.testing.conftest import Play

ff = Fabric("memory://")
SEEN: list[str] = []


@ff.task
async def work() -> int:
    return 1


@ff.on("completed", kind="work")
async def told(event: Event) -> None:
    SEEN.append(event.subject)
    if len(SEEN) == 1:
        await work.submit()


def test_events_are_handled_when_all_has_come_to_rest(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        SEEN.clear()
        await fabric.settle()  # a group begins with the events after it was made
        run = await fabric.submit(work)
        await fabric.settle()
        assert len(SEEN) == 2
        assert SEEN[0] == run.id

    play(scenario, ff)
