"""Schedules as programs write them, under virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from flowfabric import Context, Fabric
from flowfabric.errors import InvalidSchedule
from flowfabric.model.schedule import TickMark
from flowfabric.testing import TestFabric, run

START = datetime(2030, 3, 30, 12, tzinfo=UTC)  # a day before clocks go forward in Berlin


def program() -> tuple[Fabric, list[Any]]:
    ff, seen = Fabric("memory://"), list[Any]()

    @ff.schedule("30 2 * * *", tz="Europe/Berlin", key="report")
    @ff.task
    async def report(ctx: Context) -> None:
        seen.append(ctx.schedule)

    return ff, seen


def test_a_declared_schedule_fires_once_in_the_gap_and_its_run_knows_the_tick() -> None:
    async def story() -> None:
        ff, seen = program()
        async with TestFabric(ff, start=START) as fabric:
            await fabric.advance("2d")
            gap = datetime(2030, 3, 31, 1, tzinfo=UTC)
            assert [each.tick for each in seen] == [gap, datetime(2030, 4, 1, 0, 30, tzinfo=UTC)]
            assert (seen[0].id, seen[0].number, seen[0].caught_up) == ("report", 1, False)
            await fabric.assert_fate("report", gap, "ran")
            await fabric.assert_scheduled("report", between=(START, fabric.now), times=2)
            later = await fabric.schedules.preview(
                cron="30 2 * * *", tz="Europe/Berlin", starts=datetime(2030, 10, 27, tzinfo=UTC)
            )
            assert later[0].mark is TickMark.FIRST_OF_TWO

    run(story())


def test_calls_make_change_pause_trigger_backfill_and_delete_one() -> None:
    async def story() -> None:
        async with TestFabric(start=START) as fabric:

            @fabric.task
            async def work(ctx: Context, topic: str) -> None:
                assert topic == "solar"

            calls = fabric.schedules
            made = await calls.create("s", work, "solar", every="1h", overlap="allow", priority=3)
            assert made.warnings == ("no worker handles work on lane default",)
            changed = await calls.update("s", every="30m")
            assert (changed.version_before, changed.schedule.version) == (1, 2)
            assert changed.schedule.policy == made.policy
            await calls.pause("s", reason="holiday", actor="ada")
            await fabric.advance("1h")
            assert {each.fate.value for each in await calls.ticks("s")} == {"missed_paused"}
            await calls.resume("s")
            done = await calls.backfill("s", begin=START, end=fabric.now)
            assert len(done.started) == 3
            again = await calls.backfill("s", begin=START, end=fabric.now)
            assert (again.started, again.have_run) == ((), 3)
            await calls.trigger("s")
            await fabric.settle()
            assert [each.schedule_id for each in await calls.list()] == ["s"]
            await calls.delete("s")
            assert await calls.list() == []

    run(story())


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"cron": "0 25 * * *"}, "cron[0]"),
        ({"cron": "@reboot"}, "cron[0]"),
        ({"cron": "FREQ=DAILY"}, "cron[0]"),
        ({"cron": "0 0 30 2 *"}, "cron[0]"),
        ({"cron": "0 0 * *"}, "cron[0]"),
        ({"cron": "* * * * *", "tz": "Nowhere/Town"}, "tz"),
        ({"cron": "* * * * *", "every": "1h"}, "cron"),
        ({"cron": 5}, "cron"),
        ({"at": "2031-01-01"}, "at"),
        ({"every": "1h", "except_on": "2031-01-01"}, "except_on"),
        ({"every": "500ms"}, "every_ms"),
        ({"every": "1h", "jitter": "2h"}, "jitter_ms"),
        ({"cron": "* * * * *", "jitter": "2m"}, "jitter_ms"),
        ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, "at"),
        ({"at": datetime(2031, 1, 1)}, "at"),  # noqa: DTZ001 - on purpose
        ({"every": "1h", "starts": datetime(2031, 1, 1)}, "starts"),  # noqa: DTZ001
        ({"every": "1h", "catch_up_max": 0}, "catch_up_max"),
        ({"every": "1h", "overlap": "terminate"}, "overlap"),
        (
            {
                "every": "1h",
                "starts": datetime(2031, 1, 1, tzinfo=UTC),
                "ends": datetime(2030, 1, 1, tzinfo=UTC),
            },
            "ends",
        ),
    ],
)
def test_a_wrong_schedule_is_refused_by_name(given: dict[str, Any], field: str) -> None:
    async def story() -> None:
        async with TestFabric(start=START) as fabric:

            @fabric.task
            async def work() -> None: ...

            with pytest.raises(InvalidSchedule) as caught:
                await fabric.schedules.create("s", work, **given)
            assert caught.value.fields["field"] == field
            assert await fabric.schedules.list() == []

    run(story())


def test_a_wrong_expression_is_told_in_words_with_its_position() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def work() -> None: ...

    for expression, words, position in (
        ("0 25 * * *", "Bad hour", 2),
        ("0 0 * * FOO", "Bad day-of-week", 8),
        ("@reboot", "is none of @hourly", 0),
        ("FREQ=DAILY", "RRULE is not read; write one or more cron expressions", 0),
    ):
        with pytest.raises(InvalidSchedule, match=words) as caught:
            asyncio.run(ff.schedules.preview(cron=expression))
        assert caught.value.fields["position"] == position


def test_a_key_and_a_naive_schedule_belong_to_no_declaration() -> None:
    ff, _ = program()
    work = ff.tasks["report"]
    with pytest.raises(InvalidSchedule, match="key"):
        ff.schedule(work.options(key="once"), every="1h")
    made = ff.schedule(work, every="1h", key="hourly", lane="slow")
    request = made.request()
    assert request.start.execution is not None
    assert (request.schedule_id, request.start.execution.lane_id) == ("hourly", "slow")
