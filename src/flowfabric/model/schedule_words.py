"""Schedules in words: what a terminal and a page say of them, from one place."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flowfabric.model.record import fields_of
from flowfabric.model.schedule import USUAL_POLICY, ScheduleSnapshot, Timing
from flowfabric.model.times import absolute, span


def timing_in_words(timing: Timing | None) -> str:
    """When it ticks.

    >>> timing_in_words(Timing(cron=("0 9 * * 1-5",), tz="Europe/Berlin"))
    '0 9 * * 1-5 Europe/Berlin'
    """
    if timing is None:
        return "?"
    if timing.every_ms is not None:
        return f"every {timing.every_ms // 1000} s"
    return f"{'; '.join(timing.cron) or f'{len(timing.at)} instants'} {timing.tz}"


def state_in_words(schedule: ScheduleSnapshot) -> str:
    """Whether it ticks, and what is wrong with it."""
    words = [f"paused by {schedule.paused_by or 'a caller'}"] if schedule.paused_at else []
    words += ["undeclared"] if schedule.undeclared_at else []
    words += ["two versions of its code take turns"] if schedule.flaps else []
    words += [schedule.problem] if schedule.problem else []
    return ", ".join(words) or ("active" if schedule.next_tick else "finished")


def settings_in_words(schedule: ScheduleSnapshot) -> list[str]:
    """What is said of its ticks beside their times, where it is not as usual."""
    timing, policy = schedule.timing, schedule.policy
    if timing is None or policy is None:
        return []
    bounds = [
        f"{name} {absolute(instant)}"
        for name in ("anchor", "starts", "ends")
        if (instant := getattr(timing, name)) is not None
    ]
    days = [f"not on {', '.join(timing.except_on)}"] if timing.except_on else []
    jitter = [f"up to {span(timing.jitter_ms)} later"] if timing.jitter_ms else []
    usual = fields_of(USUAL_POLICY)
    rules = [
        f"{name.removesuffix('_ms').replace('_', ' ')} "
        f"{span(value) if name.endswith('_ms') else value}"
        for name, value in fields_of(policy).items()
        if value != usual[name]
    ]
    parts: Iterable[list[str]] = ([*bounds, *days, *jitter], rules)
    return [", ".join(part) for part in parts if part]


def local_time(tick: int, schedule: ScheduleSnapshot) -> str:
    """The tick in the time zone of the schedule, where that is another one than UTC."""
    zone = schedule.timing.tz if schedule.timing else "UTC"
    if zone == "UTC":
        return ""
    try:
        local = datetime.fromtimestamp(tick / 1000, ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError):  # known where it fires, and not here
        return ""
    return f"{local:%a %Y-%m-%d %H:%M:%S} {zone}"
