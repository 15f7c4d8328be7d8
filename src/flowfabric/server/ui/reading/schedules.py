"""The schedules: what starts by the calendar, and what became of each tick?"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlencode

from flowfabric.api.operation import Scope
from flowfabric.api.schedules import DescribeSchedule, ListSchedules, PreviewSchedule, ReadTicks
from flowfabric.errors import NotFound
from flowfabric.server.exchange import Call
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.route import Reach
from flowfabric.server.service import Service
from flowfabric.server.ui.doing import schedules as doing
from flowfabric.server.ui.pages import Act, Action, Page
from flowfabric.server.ui.views.schedules import (
    PATH,
    Schedule,
    Schedules,
    schedule_of,
    schedules_of,
)

_PAGE: Final = 50
_TICKS: Final = 20
_AHEAD: Final = 5


async def schedules(service: Service, call: Call) -> Schedules:
    """Schedules by name."""
    cursor = dict(call.query).get("cursor") or None
    page = await ask(service, call, ListSchedules(cursor=cursor, limit=_PAGE))
    following = page.next_cursor
    further = None if following is None else f"{PATH}?{urlencode({'cursor': following})}"
    return schedules_of(page.items, next_page=further)


async def schedule(service: Service, call: Call) -> Schedule:
    """One schedule: its next ticks and its last ones."""
    name = call.params["schedule_id"]
    space = dict(call.query).get("namespace") or None
    found, ticks = await asyncio.gather(
        ask(service, call, DescribeSchedule(schedule_id=name, namespace=space)),
        ask(service, call, ReadTicks(schedule_id=name, namespace=space, limit=_TICKS)),
    )
    if found is None:
        raise NotFound(f"schedule {name}: there is none of this name", entity="schedule")
    preview = PreviewSchedule(schedule_id=name, namespace=space, limit=_AHEAD)
    ahead = () if found.problem else await ask(service, call, preview)
    return schedule_of(found, ahead, ticks)


def _action(
    word: str, title: str, act: Act, operation: str, scope: Scope = Scope.OPERATE
) -> Action:
    return Action(
        path=f"{PATH}/{{schedule_id}}/{word}",
        title=title,
        act=act,
        scope=scope,
        reach=Reach.NAMED,
        asks=(operation,),
    )


PAGES: Final = (
    Page(
        path=PATH,
        title="Schedules",
        view=schedules,
        template="schedules.html",
        asks=("list_schedules",),
        parts=("schedules",),
        topics=("tick:5s",),
        nav=Nav(label="Schedules", icon="schedules", key="s", group=1, order=3),
    ),
    Page(
        path=f"{PATH}/{{schedule_id}}",
        title="Schedule",
        view=schedule,
        template="schedule.html",
        asks=("describe_schedule", "read_ticks", "preview_schedule"),
        parts=("schedule",),
        topics=("tick:5s",),
    ),
)
ACTIONS: Final[tuple[Action, ...]] = (
    _action("pause", "Pause a schedule", doing.pause, "pause_schedule"),
    _action("resume", "Resume a schedule", doing.resume, "resume_schedule"),
    _action("trigger", "Start a run now", doing.trigger, "trigger_schedule", Scope.SUBMIT),
    _action("backfill", "Run ticks of the past", doing.backfill, "backfill_schedule", Scope.SUBMIT),
    _action("delete", "Remove a schedule", doing.delete, "delete_schedule"),
)
