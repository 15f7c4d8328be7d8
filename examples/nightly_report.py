"""A nightly report through both changes of the clocks, tested in milliseconds.

The schedule says 02:30 in Berlin. On 29 March that time is left out, on 25 October it comes twice:
each day has one report. Runs by itself; nothing is stored. See docs/guides/schedules.md.
"""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from flowfabric import Context, Fabric
from flowfabric.testing import TestFabric, run

BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 27, 12, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 23, 12, tzinfo=UTC)

ff = Fabric("memory://")


@ff.step
async def send(day: str) -> str:
    """Would send a mail."""
    return f"the report for {day}"


@ff.schedule("30 2 * * *", tz="Europe/Berlin", key="nightly-report")
@ff.task
async def report(ctx: Context) -> str:
    """For the day of the tick: the run may be late, and the present another day."""
    assert ctx.schedule is not None
    return await send(ctx.schedule.tick.astimezone(BERLIN).date().isoformat())


async def nights(begin: datetime) -> None:
    """Three nights pass; in the middle one the clocks change."""
    async with TestFabric(ff, start=begin) as fabric:
        sent = fabric.spy(send)
        await fabric.advance("3d")
        ticks = await fabric.schedules.ticks("nightly-report")
        for each in reversed(ticks):
            at = datetime.fromtimestamp(each.tick / 1000, BERLIN)
            print(f"{at:%d %B %H:%M %Z} {at.astimezone(UTC):%H:%M} UTC  {each.fate.value}")
        assert sent.count == 3
        await fabric.assert_scheduled("nightly-report", between=(begin, fabric.now), times=3)


async def paused_by_hand() -> None:
    """It is paused for two nights; then the reports that are missing are sent."""
    async with TestFabric(ff, start=SPRING) as fabric:
        sent = fabric.spy(send)
        await fabric.settle()
        await fabric.schedules.pause("nightly-report", reason="the mail server moves")
        await fabric.advance("2d")
        await fabric.schedules.resume("nightly-report")
        missed = [each.fate.value for each in await fabric.schedules.ticks("nightly-report")]
        done = await fabric.schedules.backfill("nightly-report", begin=SPRING, end=fabric.now)
        await fabric.settle()
        print(f"{missed}, then {len(done.started)} reports backfilled:")
        for call in sent.calls:
            print(f"  {call[0]}")


if __name__ == "__main__":
    print("clocks go forward:")
    run(nights(SPRING))
    print("clocks go back:")
    run(nights(AUTUMN))
    run(paused_by_hand())
