"""Schedules as a program writes them: beside its tasks, or by calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, TypedDict, TypeVar, Unpack, overload

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.api.schedules import DeclaredSchedule, ScheduledStart
from flowfabric.errors import InvalidInput, InvalidSchedule, NotFound
from flowfabric.model.checks import check_name
from flowfabric.model.record import replace
from flowfabric.model.schedule import (
    USUAL_POLICY,
    Backfilled,
    CatchUp,
    Overlap,
    ScheduleChanged,
    ScheduleDeleted,
    SchedulePolicy,
    ScheduleSnapshot,
    SchedulesPruned,
    TickAhead,
    TickInfo,
    Timing,
    Triggered,
)
from flowfabric.model.shown import shown
from flowfabric.sdk.durations import Duration, instant_ms, to_ms
from flowfabric.sdk.flow.flow import Graph
from flowfabric.sdk.home import Home
from flowfabric.sdk.options import NO_OPTIONS, OPTION_NAMES
from flowfabric.sdk.task import Call, Task, TaskWithOptions

T = TypeVar("T", bound=Task[..., Any] | TaskWithOptions[..., Any])

_NOT_SCHEDULED: Final = ("key", "connection", "start_at")


class ScheduleKeywords(TypedDict, total=False):
    """When a schedule ticks, and what becomes of ticks that cannot simply run."""

    cron: str | Iterable[str] | None
    every: Duration | None
    at: datetime | Iterable[datetime] | None
    anchor: datetime | None
    tz: str
    except_on: Iterable[date | str]
    starts: datetime | None
    ends: datetime | None
    jitter: Duration
    catch_up: CatchUp | str
    catch_up_window: Duration
    catch_up_max: int
    overlap: Overlap | str
    pause_on_failure: int | None
    max_runs: int | None


_TIMING_NAMES: Final = frozenset(
    ("cron", "every", "at", "anchor", "tz", "except_on", "starts", "ends", "jitter")
)
_POLICY_NAMES: Final = frozenset(ScheduleKeywords.__annotations__) - _TIMING_NAMES


# --- arguments -----------------------------------------------------------------------------------


def timing_of(given: Mapping[str, Any]) -> Timing:
    """The timing that these arguments say."""
    cron, every, at = given.get("cron"), given.get("every"), given.get("at")
    starts, ends, anchor = given.get("starts"), given.get("ends"), given.get("anchor")
    instants = (at,) if isinstance(at, datetime) else _several(at, "at")
    expressions = (cron,) if isinstance(cron, str) else _several(cron, "cron")
    return Timing(
        cron=expressions,
        every_ms=None if every is None else to_ms(every, field="every"),
        anchor=None if anchor is None else _second(anchor, "anchor"),
        at=tuple(_second(each, "at") for each in instants),
        tz=given.get("tz", "UTC"),
        except_on=tuple(map(_date, _several(given.get("except_on"), "except_on"))),
        starts=None if starts is None else _second(starts, "starts"),
        ends=None if ends is None else _second(ends, "ends"),
        jitter_ms=to_ms(given.get("jitter", 0), field="jitter"),
    )


def policy_of(given: Mapping[str, Any], otherwise: SchedulePolicy = USUAL_POLICY) -> SchedulePolicy:
    """The policy that these arguments say, and the other one for the rest."""
    changes: dict[str, Any] = {}
    for name in _POLICY_NAMES & given.keys():
        match name:
            case "catch_up_window":
                changes["catch_up_window_ms"] = to_ms(given[name], field=name)
            case "catch_up":
                changes[name] = _word(given[name], CatchUp, name)
            case "overlap":
                changes[name] = _word(given[name], Overlap, name)
            case _:
                changes[name] = given[name]
    return replace(otherwise, **changes)


def _several(value: object, field: str) -> tuple[Any, ...]:
    """The items of a list, none without one; a text is one thing, and no list of letters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable | None):
        detail = f"{field}: expected a list, got {shown(value, 80)}"
        raise InvalidSchedule(detail, field=field)
    return tuple(value or ())


def _word(value: object, words: Any, field: str) -> Any:
    try:
        return words(value)
    except ValueError:
        known = ", ".join(words)
        detail = f"{field}: {shown(value, 80)} is not one of {known}"
        raise InvalidSchedule(detail, field=field) from None


def _second(value: object, field: str) -> int:
    try:
        return instant_ms(value, field=field)
    except InvalidInput as error:
        raise InvalidSchedule(error.detail, field=field) from None


def _date(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _split(kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of the schedule, and those of what it starts."""
    names = _TIMING_NAMES | _POLICY_NAMES
    own = {name: kwargs.pop(name) for name in names & kwargs.keys()}
    return own, kwargs


def start_of(fabric: Home, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Start:
    """What each tick starts: a task with its arguments, a call, or a flow that was written."""
    if isinstance(what, Graph):
        if args or kwargs:
            detail = f"{what.kind}: a flow has its arguments already"
            raise InvalidSchedule(detail, field="flow")
        request = what.request()
        return _Start(what.kind, ScheduledStart(flow=replace(request, idempotency_key=None)))
    call = _call(fabric, what, args, kwargs)
    for name in _NOT_SCHEDULED:
        if getattr(call.options, name) is not None:
            detail = f"{name}: belongs to one submission, and a schedule makes many"
            raise InvalidSchedule(detail, field=name)
    for name in ("delay", "deadline"):
        if isinstance(getattr(call.options, name), datetime):
            raise InvalidSchedule(f"{name}: give a duration, from each tick on", field=name)
    return _Start(call.kind, ScheduledStart(execution=call.request()))


@dataclass(frozen=True, slots=True)
class _Start:
    kind: str
    start: ScheduledStart


def _call(fabric: Home, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[Any]:
    if isinstance(what, Call):
        return what
    options = {name: kwargs.pop(name) for name in OPTION_NAMES & kwargs.keys()}
    if isinstance(what, TaskWithOptions):
        return what.task.call_with(what.chosen.but(**options), args, kwargs)
    if isinstance(what, Task):
        return what.call_with(NO_OPTIONS.but(**options), args, kwargs)
    return fabric.call_of(what, NO_OPTIONS.but(**options), args, kwargs)


# --- declarations --------------------------------------------------------------------------------


class Declaration:
    """A schedule that a program declares; it is written when a worker starts."""

    def __init__(
        self, fabric: Home, key: str, origin: str, what: Any, given: tuple[Any, Any, Any]
    ) -> None:
        self.key = check_name(key, field="key")
        self.origin = origin
        self._fabric = fabric
        self._what = what
        self._own, self._args, self._kwargs = given
        self.request()  # refused where it is written

    def request(self) -> DeclaredSchedule:
        """As it is told to an engine."""
        start = start_of(self._fabric, self._what, self._args, dict(self._kwargs))
        return DeclaredSchedule(
            schedule_id=self.key,
            timing=timing_of(self._own),
            start=start.start,
            origin=self.origin,
            policy=policy_of(self._own),
        )

    def __repr__(self) -> str:
        return f"<schedule {self.key}>"


def origin_of(function: Callable[..., Any] | None) -> str:
    """The part of a program that a function belongs to: its package, or its script."""
    module = "__main__" if function is None else function.__module__
    if module != "__main__":
        return module.partition(".")[0]
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(path).stem if path else module


def origin_of_caller(depth: int) -> str:
    """The part of a program that has called."""
    frame = sys._getframe(depth)
    module = frame.f_globals.get("__name__", "__main__")
    if module != "__main__":
        return str(module).partition(".")[0]
    return origin_of(None)


class ScheduleDeclaring:
    """`ff.schedule`: schedules that are written beside tasks. A part of a fabric."""

    _declarations: dict[str, Declaration]

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """Every schedule that this program declares."""
        return tuple(self._declarations.values())

    @overload
    def schedule(
        self, cron: str | None = None, /, *, key: str | None = None, **when: Any
    ) -> Callable[[T], T]: ...
    @overload
    def schedule(
        self,
        what: Task[..., Any] | TaskWithOptions[..., Any] | Call[Any] | Graph,
        /,
        *args: Any,
        key: str | None = None,
        **when: Any,
    ) -> Declaration: ...

    def schedule(self, what: Any = None, /, *args: Any, key: str | None = None, **when: Any) -> Any:
        """Start a task or a flow by the calendar; written when a worker starts.

        As a decorator above `@ff.task` it takes a cron expression, `every=` or `at=`; given a task
        with its arguments, or a flow, it declares a schedule for that. `key` is its name, that of
        the task unless given. Arguments beside: `tz`, `except_on`, `starts`, `ends`, `jitter`,
        `catch_up`, `overlap`, `pause_on_failure`, `max_runs`, and options of a submit.

        ```
        @ff.schedule("0 9 * * 1-5", tz="Europe/Berlin", key="report")
        @ff.task
        async def report(ctx: Context) -> None: ...

        ff.schedule(cleanup, "tmp", every="1h", key="cleanup-tmp")
        ```
        """
        if what is None or (isinstance(what, str) and not args):
            expression = {} if what is None else {"cron": what}
            if what is not None and "cron" in when:
                raise InvalidSchedule("cron: is given twice", field="cron")
            given = {**expression, **when}

            def decorate(task: T) -> T:
                self._declare(task, (), dict(given), key, depth=0)
                return task

            return decorate
        return self._declare(what, args, when, key, depth=3)

    def _declare(
        self,
        what: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str | None,
        *,
        depth: int,
    ) -> Declaration:
        own, rest = _split(kwargs)
        task = what.task if isinstance(what, TaskWithOptions | Call) else what
        if not isinstance(what, Task | TaskWithOptions | Call | Graph):
            detail = f"task: {shown(what, 80)} is no task and no flow; write @ff.task below"
            raise InvalidSchedule(detail, field="task")
        origin = origin_of(task.function) if isinstance(task, Task) else origin_of_caller(depth)
        name = key if key is not None else str(getattr(task, "name", getattr(what, "kind", "")))
        home: Any = self
        made = Declaration(home, name, origin, what, (own, args, rest))
        known = self._declarations.get(name)
        if known is not None and known.origin != made.origin:
            detail = f"key: {known.origin} declares a schedule {name} already"
            raise InvalidSchedule(detail, field="key")
        self._declarations[name] = made
        return made


async def declare(
    engine: EngineBackend,
    declarations: Iterable[Declaration],
    tasks: Iterable[Task[..., Any]],
    *,
    actor: str | None = None,
) -> Any:
    """Tell an engine all that a program declares, and for which parts of it that is all."""
    told = [each.request() for each in declarations]
    origins = {each.origin for each in told} | {origin_of(task.function) for task in tasks}
    return await engine.declare_schedules(schedules=told, origins=sorted(origins), actor=actor)


# --- calls ---------------------------------------------------------------------------------------


class Schedules:
    """`ff.schedules`: schedules by calls.

    ```
    await ff.schedules.create("report", report, cron="0 9 * * 1-5", tz="Europe/Berlin")
    await ff.schedules.pause("report", reason="holidays")
    ```
    """

    def __init__(self, fabric: Home) -> None:
        self._fabric = fabric

    async def create(
        self,
        name: str,
        what: Any,
        /,
        *args: Any,
        actor: str | None = None,
        **when: Any,
    ) -> ScheduleSnapshot:
        """Start a task with its arguments, or a flow, by the calendar. The same again changes
        nothing. Arguments as of `ff.schedule`; `snapshot.warnings` says what is odd."""
        own, rest = _split(when)
        engine = await self._fabric.start()
        made = await engine.create_schedule(
            schedule_id=name,
            timing=timing_of(own),
            start=start_of(self._fabric, what, args, rest).start,
            policy=policy_of(own),
            actor=actor,
        )
        return made.schedule

    async def get(self, name: str) -> ScheduleSnapshot:
        """A schedule as it stands; raises NotFound if there is none of the name."""
        engine = await self._fabric.start()
        found = await engine.describe_schedule(schedule_id=name)
        if found is None:
            raise NotFound(f"schedule {name}", entity="schedule")
        return found

    async def list(
        self, *, paused: bool | None = None, undeclared: bool | None = None
    ) -> list[ScheduleSnapshot]:
        """All schedules by name, or those that are paused, or that code declares no more."""
        engine = await self._fabric.start()
        return await every_item(
            lambda cursor: engine.list_schedules(
                is_paused=paused, is_undeclared=undeclared, cursor=cursor
            )
        )

    async def update(
        self,
        name: str,
        what: Any = None,
        /,
        *args: Any,
        actor: str | None = None,
        **when: Any,
    ) -> ScheduleChanged:
        """Change what is named. A new `cron`, `every` or `at` replaces the whole timing."""
        own, rest = _split(when)
        engine = await self._fabric.start()
        before = await self.get(name)
        timing = policy = start = None
        if own.keys() & _TIMING_NAMES:
            timing = _changed_timing(before, own)
        if own.keys() & _POLICY_NAMES:
            policy = policy_of(own, before.policy or USUAL_POLICY)
        if what is not None:
            start = start_of(self._fabric, what, args, rest).start
        elif rest:
            field = min(rest)
            raise InvalidSchedule(f"{field}: give the task that it is for", field=field)
        return await engine.update_schedule(
            schedule_id=name,
            timing=timing,
            start=start,
            policy=policy,
            expected_version=before.version,
            actor=actor,
        )

    async def pause(
        self, name: str, *, reason: str = "", actor: str | None = None
    ) -> ScheduleChanged:
        """Start nothing until it is resumed."""
        engine = await self._fabric.start()
        return await engine.pause_schedule(schedule_id=name, reason=reason, actor=actor)

    async def resume(self, name: str, *, actor: str | None = None) -> ScheduleChanged:
        """Go on with the next tick."""
        engine = await self._fabric.start()
        return await engine.resume_schedule(schedule_id=name, actor=actor)

    async def trigger(self, name: str, *, actor: str | None = None) -> Triggered:
        """Start one run now; no tick is used up."""
        engine = await self._fabric.start()
        return await engine.trigger_schedule(schedule_id=name, actor=actor)

    async def backfill(
        self,
        name: str,
        *,
        begin: datetime,
        end: datetime,
        overlap: Overlap | str = Overlap.ALLOW,
        dry_run: bool = False,
        again: bool = False,
        actor: str | None = None,
    ) -> Backfilled:
        """Start runs for ticks of the past that have none, both ends included; 500 in one
        transaction. After a crash the same call finds what is there."""
        engine = await self._fabric.start()
        start, last = instant_ms(begin, field="begin"), instant_ms(end, field="end")
        whole: Backfilled | None = None
        while True:
            part = await engine.backfill_schedule(
                schedule_id=name,
                begin=start,
                end=last,
                overlap=_word(overlap, Overlap, "overlap"),
                dry_run=dry_run,
                again=again,
                actor=actor,
            )
            whole = part if whole is None else joined(whole, part)
            if part.next_begin is None:
                return whole
            start = part.next_begin

    async def delete(self, name: str, *, actor: str | None = None) -> ScheduleDeleted:
        """Remove it. One that code declares comes back when a worker starts: pause it instead."""
        engine = await self._fabric.start()
        return await engine.delete_schedule(schedule_id=name, actor=actor)

    async def prune(self, *, dry_run: bool = False, actor: str | None = None) -> SchedulesPruned:
        """Delete those that code declares no more."""
        engine = await self._fabric.start()
        return await engine.prune_schedules(dry_run=dry_run, actor=actor)

    async def ticks(
        self, name: str, *, after: datetime | None = None, limit: int = 100
    ) -> Sequence[TickInfo]:
        """What became of its last ticks, newest first; or of those after an instant, oldest
        first."""
        engine = await self._fabric.start()
        start = None if after is None else instant_ms(after, field="after")
        return await engine.read_ticks(schedule_id=name, after=start, limit=limit)

    async def preview(
        self, name: str | None = None, *, limit: int = 5, **when: Unpack[ScheduleKeywords]
    ) -> Sequence[TickAhead]:
        """The next ticks of a schedule; or of `cron=…`, `every=…`, `at=…` before it is used."""
        engine = await self._fabric.start()
        timing = timing_of(when) if when else None
        return await engine.preview_schedule(schedule_id=name, timing=timing, limit=limit)


def joined(whole: Backfilled, part: Backfilled) -> Backfilled:
    """Two parts of one backfill."""
    return replace(
        part,
        total=whole.total,
        started=(*whole.started, *part.started),
        refused=(*whole.refused, *part.refused),
        have_run=whole.have_run + part.have_run,
        skipped=whole.skipped + part.skipped,
    )


def _changed_timing(before: ScheduleSnapshot, own: Mapping[str, Any]) -> Timing:
    """Some of the arguments are new; another kind of ticks leaves nothing of the old one."""
    known = before.timing
    if known is None or own.keys() & {"cron", "every", "at"}:
        kept = {} if known is None else {"tz": known.tz}
        return timing_of({**kept, **own})
    fresh = timing_of(own)
    names = {"jitter": "jitter_ms"}
    changes = {
        names.get(name, name): getattr(fresh, names.get(name, name))
        for name in own.keys() & _TIMING_NAMES
    }
    return replace(known, **changes)


class ScheduleMethods(ScheduleDeclaring):
    """What a fabric offers about schedules."""

    @property
    def schedules(self) -> Schedules:
        """Schedules by calls: create, pause, trigger, backfill …"""
        home: Any = self
        return Schedules(home)


class SyncSchedules:
    """`ff.sync.schedules`: the same calls, which block."""

    def __init__(self, schedules: Schedules, wait: Callable[[Any], Any]) -> None:
        self._schedules = schedules
        self._wait = wait

    def create(self, name: str, what: Any, /, *args: Any, **when: Any) -> ScheduleSnapshot:
        """See `Schedules.create`."""
        made: ScheduleSnapshot = self._wait(self._schedules.create(name, what, *args, **when))
        return made

    def get(self, name: str) -> ScheduleSnapshot:
        """See `Schedules.get`."""
        found: ScheduleSnapshot = self._wait(self._schedules.get(name))
        return found

    def update(self, name: str, what: Any = None, /, *args: Any, **when: Any) -> ScheduleChanged:
        """See `Schedules.update`."""
        changed: ScheduleChanged = self._wait(self._schedules.update(name, what, *args, **when))
        return changed

    def pause(self, name: str, *, reason: str = "", actor: str | None = None) -> ScheduleChanged:
        """See `Schedules.pause`."""
        changed: ScheduleChanged = self._wait(
            self._schedules.pause(name, reason=reason, actor=actor)
        )
        return changed

    def resume(self, name: str, *, actor: str | None = None) -> ScheduleChanged:
        """See `Schedules.resume`."""
        changed: ScheduleChanged = self._wait(self._schedules.resume(name, actor=actor))
        return changed

    def trigger(self, name: str, *, actor: str | None = None) -> Triggered:
        """See `Schedules.trigger`."""
        started: Triggered = self._wait(self._schedules.trigger(name, actor=actor))
        return started

    def backfill(self, name: str, *, begin: datetime, end: datetime, **how: Any) -> Backfilled:
        """See `Schedules.backfill`."""
        done: Backfilled = self._wait(self._schedules.backfill(name, begin=begin, end=end, **how))
        return done

    def delete(self, name: str, *, actor: str | None = None) -> ScheduleDeleted:
        """See `Schedules.delete`."""
        gone: ScheduleDeleted = self._wait(self._schedules.delete(name, actor=actor))
        return gone

    def prune(self, *, dry_run: bool = False, actor: str | None = None) -> SchedulesPruned:
        """See `Schedules.prune`."""
        gone: SchedulesPruned = self._wait(self._schedules.prune(dry_run=dry_run, actor=actor))
        return gone

    def ticks(
        self, name: str, *, after: datetime | None = None, limit: int = 100
    ) -> Sequence[TickInfo]:
        """See `Schedules.ticks`."""
        found: Sequence[TickInfo] = self._wait(
            self._schedules.ticks(name, after=after, limit=limit)
        )
        return found

    def preview(
        self, name: str | None = None, *, limit: int = 5, **when: Unpack[ScheduleKeywords]
    ) -> Sequence[TickAhead]:
        """See `Schedules.preview`."""
        found: Sequence[TickAhead] = self._wait(self._schedules.preview(name, limit=limit, **when))
        return found

    def list(
        self, *, paused: bool | None = None, undeclared: bool | None = None
    ) -> Sequence[ScheduleSnapshot]:
        """See `Schedules.list`."""
        found: Sequence[ScheduleSnapshot] = self._wait(
            self._schedules.list(paused=paused, undeclared=undeclared)
        )
        return found
