"""The calls by which a test looks at schedules, which fire as it moves time."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime
from typing import Final

from flowfabric.limits import PAGE_MAX
from flowfabric.model.schedule import Fate
from flowfabric.sdk.durations import instant_ms, to_datetime
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.schedules import Declaration, Schedules, declare
from flowfabric.testing.stage import Stage

_RAN: Final = (Fate.RAN, Fate.CAUGHT_UP)


class ScheduleTests:
    """The part of a test fabric that is about schedules."""

    ff: Fabric
    _declared: tuple[Declaration, ...] = ()

    @abstractmethod
    def _stage_here(self) -> Stage:
        """Where the test takes place."""

    @property
    def schedules(self) -> Schedules:
        """Schedules by calls: see `Fabric.schedules`."""
        return self.ff.schedules

    async def _declare(self) -> None:
        """As a worker does when it starts: once, and again when the test declares more."""
        wanted = self.ff.declarations
        if wanted != self._declared:
            self._declared = wanted
            await declare(self._stage_here().front, wanted, self.ff.tasks.values())

    async def assert_fate(self, schedule: str, tick: datetime, fate: Fate | str) -> None:
        """What became of one tick of a schedule."""
        at = instant_ms(tick, field="tick")
        engine = self._stage_here().front
        found = await engine.read_ticks(schedule_id=schedule, after=at - 1, limit=1)
        known = found[0].fate.value if found and found[0].tick == at else "none"
        wanted = Fate(fate).value
        assert known == wanted, f"the fate of {tick} is {known}, expected {wanted}"  # noqa: S101

    async def assert_scheduled(
        self, schedule: str, *, between: tuple[datetime, datetime], times: int | None = None
    ) -> None:
        """The calendar has started runs for ticks between two instants, both included; so many,
        or at least one."""
        begin, end = (instant_ms(each, field="between") for each in between)
        engine, after, ran = self._stage_here().front, begin - 1, list[datetime]()
        while page := await engine.read_ticks(schedule_id=schedule, after=after, limit=PAGE_MAX):
            ran += [to_datetime(t.tick) for t in page if t.fate in _RAN and t.tick <= end]
            after = page[-1].tick
        said = f"{schedule} ran {len(ran)} times between {between[0]} and {between[1]}"
        assert ran if times is None else len(ran) == times, said  # noqa: S101
