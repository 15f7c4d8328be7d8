"""Schedules that someone must see to: not understood by a process, or declared by two versions of
one program."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from flowfabric.api.admin import Problem
from flowfabric.api.executions import NewExecution
from flowfabric.api.schedules import ScheduledStart
from flowfabric.engine import complaint, plans
from flowfabric.model.event import OperatorEventType
from flowfabric.model.schedule import Declared, DeclaredAs, Overlap, ScheduleRow, Timing
from flowfabric.sdk.worker.declaring import tell
from tests.support.lab import Lab, scenario
from tests.support.schedules import (
    DAY_MS,
    HOUR_MS,
    SECOND_MS,
    declare,
    declared,
    fates,
    schedule,
    settled,
)

if TYPE_CHECKING:
    import pytest

PROBLEM = "tz: no time zone 'Mars/Base'"


def misunderstood(lab: Lab, patch: pytest.MonkeyPatch, *names: str) -> None:
    """As in a process that is older than these schedules."""
    decoded = plans._decoded

    def older(row: ScheduleRow) -> Any:
        return PROBLEM if row.schedule_id in names else decoded(row)

    patch.setattr(plans, "_decoded", older)
    lab.direct.plans._known.clear()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was told of schedules that are not understood."""
    return [each.message for each in caplog.records if "understand" in each.message]


@scenario
async def test_what_a_process_does_not_understand_is_left_to_others_and_named(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not before another process would have started it, and once a minute at most, all in one
    line. Others run as ever."""
    seconds = [0.0]
    monkeypatch.setattr(complaint, "stopwatch", lambda: seconds[0])
    lab.clock.set(lab.now // HOUR_MS * HOUR_MS)
    for name in ("fine", "odd-1", "odd-2"):
        own = ScheduledStart(execution=NewExecution(execution_kind=name))
        await schedule(lab, name=name, starts=own, overlap=Overlap.ALLOW)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "flowfabric.loops"):
        misunderstood(lab, patch, "odd-1", "odd-2")
        await lab.after(HOUR_MS)
        await settled(lab)
        assert await fates(lab, "fine") == ["ran"]
        assert await fates(lab, "odd-1") == []
        assert lines(caplog) == []
        assert [each.code for each in (await lab.engine.doctor()).problems] == []
        for _ in range(30):  # ten minutes of the store, and as long for the log
            await lab.after(20 * SECOND_MS)
            seconds[0] += 20
        told = lines(caplog)
        assert 2 <= len(told) <= 10
        assert f"default/odd-1 ({PROBLEM})" in told[0]
        assert f"default/odd-1 ({PROBLEM})" in told[-1]
        assert f"default/odd-2 ({PROBLEM})" in told[-1]
        problems = (await lab.engine.doctor()).problems
        assert [(each.code, each.subject) for each in problems] == [
            ("unreadable", "ff_schedule default/odd-1"),
            ("unreadable", "ff_schedule default/odd-2"),
        ]
        assert PROBLEM in problems[0].detail
        assert "release" in problems[0].advice
        shown = await lab.engine.describe_schedule(schedule_id="odd-1")
        assert shown is not None
        assert shown.problem == PROBLEM
    lab.direct.plans._known.clear()
    for _ in range(3):  # what was set aside is tried again by itself
        await lab.after(HOUR_MS)
    await settled(lab)
    assert "caught_up" in await fates(lab, "odd-1")
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_an_overdue_schedule_that_is_understood_needs_a_process_with_loops(lab: Lab) -> None:
    await schedule(lab)
    lab.clock.advance(HOUR_MS + 2 * 60_000)
    found = (await lab.engine.doctor()).problems
    assert [(each.code, each.subject) for each in found] == [
        ("overdue", "ff_schedule default/report"),
        ("loops", "all processes"),
    ]


@scenario
async def test_two_versions_of_a_declaration_that_take_turns_are_named(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """By each worker that changes it back, by doctor, and in the audit trail with the worker."""
    old = declared(timing=Timing(every_ms=HOUR_MS))
    new = declared(timing=Timing(every_ms=2 * HOUR_MS, tz="Europe/Berlin"))
    outcome = Declared("", DeclaredAs.UNCHANGED)
    notices: tuple[Problem, ...] = ()
    for turn, each in enumerate((old, new, old, new)):
        worker = f"worker {'ab'[turn % 2]}"
        answer = await declare(lab, each, actor=worker)
        (outcome,) = answer.declared
        assert outcome.outcome is (DeclaredAs.CHANGED if turn else DeclaredAs.CREATED)
        assert outcome.flaps == max(0, turn - 1)
        with caplog.at_level(logging.WARNING, "flowfabric.worker"):
            tell(answer)
        assert len(caplog.records) == outcome.flaps  # a new version alone is nothing odd
        notices = (await lab.engine.doctor()).notices
        assert [each.code for each in notices if each.code == "flapping"] == ["flapping"] * (
            outcome.flaps > 1
        )
    assert outcome.detail == (
        "version 3 → 4: every_ms 3600000 → 7200000, tz as usual → Europe/Berlin"
    )
    assert outcome.detail in caplog.records[-1].message
    (notice,) = [each for each in notices if each.code == "flapping"]
    assert notice.subject == "ff_schedule default/report"
    assert notice.detail == "two versions of shop take turns to declare it, 2 times by now"
    events = (await lab.dump())["operator_events"]
    changed = [e for e in events if e.event_type is OperatorEventType.SCHEDULE_CHANGED]
    assert [each.actor for each in changed] == ["worker b", "worker a", "worker b"]
    assert (await declare(lab, new)).declared[0].outcome is DeclaredAs.UNCHANGED
    lab.clock.advance(DAY_MS)
    assert "flapping" not in [each.code for each in (await lab.engine.doctor()).notices]
    await declare(lab, declared(timing=Timing(every_ms=3 * HOUR_MS)))  # a third one ends it
    found = await lab.engine.describe_schedule(schedule_id="report")
    assert found is not None
    assert found.flaps == 0
