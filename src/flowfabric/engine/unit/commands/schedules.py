"""Commands about schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric import limits
from flowfabric.engine.plans import Plan
from flowfabric.engine.unit.firing import (
    Firing,
    Runs,
    find_runs,
    is_execution_id,
    previous_runs,
    scheduled,
    start_run,
    watch_run,
)
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.schedule import change, fate
from flowfabric.model.event import OperatorEvent
from flowfabric.model.record import replace
from flowfabric.model.schedule import (
    Backfilled,
    Fate,
    Overlap,
    ScheduleRow,
    SchedulesDeclared,
    TickInfo,
    Triggered,
)
from flowfabric.model.watch import watcher_of
from flowfabric.stores.indexes import SCHEDULES_OF_ORIGIN, Search
from flowfabric.stores.tables import (
    SCHEDULES,
    TICKS,
    WATCHES,
)

_SECOND_MS: Final = 1_000


# --- commands ------------------------------------------------------------------------------------


async def _held(unit: Unit, namespace: str, schedule_id: str) -> ScheduleRow | None:
    """A schedule as it stands, locked."""
    key = (namespace, schedule_id)
    if unit.view.rows.get(SCHEDULES, key) is None:
        unit.view.rows.take(SCHEDULES, await unit.tx.rows(SCHEDULES, [key]))
    return unit.view.rows.get(SCHEDULES, key)


def _put_scheduled(unit: Unit, row: ScheduleRow) -> ScheduleRow:
    plan = unit.plans.of(row)
    if not isinstance(plan, str):
        row = scheduled(unit, row, plan)
    unit.view.rows.put(SCHEDULES, row)
    return row


def _take(
    unit: Unit,
    decision: Decision[change.Changed],
    command: change.ScheduleCommand[change.Changed],
) -> change.Changed | Refused:
    """Take a change, with the next tick of the schedule as it is then."""
    reply = unit.view.apply(None, decision, command)
    if isinstance(reply, Refused) or not decision.saves:
        return reply
    return replace(reply, row=_put_scheduled(unit, reply.row))


@handles(change.CreateSchedule)
async def create(unit: Unit, command: change.CreateSchedule) -> change.Changed | Refused:
    """From the next tick on."""
    known = await _held(unit, command.namespace, command.schedule_id)
    decision = change.new_schedule(known, command, unit.view.at)
    if known is None and not isinstance(decision.reply, Refused):
        plan = unit.plans.of(decision.reply.row)
        if not isinstance(plan, str) and (refusal := refuse_past(plan, unit.view.at.now)):
            return refusal
    return _take(unit, decision, command)


def refuse_past(plan: Plan, now: int) -> Refused | None:
    """A calendar without a tick to come."""
    if plan.calendar.next(now) is not None:
        return None
    field = "at" if plan.timing.at else "ends"
    return change.refuse_past(field)


@handles(change.UpdateSchedule)
async def update(unit: Unit, command: change.UpdateSchedule) -> change.Changed | Refused:
    """What was due is done as it was defined until now."""
    row = await _held(unit, command.namespace, command.schedule_id)
    if row is None:
        return change.schedule_not_found(command.schedule_id)
    if (refusal := change.refuse_version(row, command.version)) is not None:
        return refusal
    content = change.content_of(row)
    if command.definition is not None:
        content = replace(content, definition=command.definition)
    if command.start is not None:
        content = replace(content, start=command.start[0], kind=command.start[1])
    if content == change.content_of(row):
        return change.Changed(row, row.version)
    if command.definition is not None:
        plan = unit.plans.of(replace(row, definition=content.definition, start=content.start))
        if not isinstance(plan, str) and (refusal := refuse_past(plan, unit.view.at.now)):
            return refusal
        row = await _up_to_date(unit, row)
    decision = change.updated_schedule(row, content, unit.view.at)
    taken = _take(unit, decision, command)
    if not isinstance(taken, Refused):
        await _watch_last(unit, taken.row)
    return taken


async def _up_to_date(unit: Unit, row: ScheduleRow) -> ScheduleRow:
    """A schedule that has decided every tick until now, if it is understood."""
    key, now = SCHEDULES.key_of(row), unit.view.at.now
    plan = unit.plans.of(row)
    if isinstance(plan, str):
        return row
    if row.next_at is not None and row.next_at <= now:
        runs = await previous_runs(unit, [(row, plan)])
        await Firing(unit, row, plan, runs).fire()
    return unit.view.rows.get(SCHEDULES, key) or row


async def _watch_last(unit: Unit, row: ScheduleRow) -> None:
    """By another policy the end of a run that goes on may matter."""
    plan, run_id = unit.plans.of(row), row.last_run_id
    if isinstance(plan, str) or not fate.watches(plan.policy) or run_id is None:
        return
    if is_execution_id(run_id):
        await unit.load([run_id])
        execution = unit.view.execution(run_id)
        if execution is None or execution.is_terminal:
            return
    else:
        await unit.flows.graph.locks.lock([run_id])
        flow = unit.flows.graph.flow(run_id)
        if flow is None or flow.finished_at is not None:
            return
    key = (run_id, watcher_of(row.namespace, row.schedule_id))
    unit.view.rows.take(WATCHES, await unit.tx.rows(WATCHES, [key]))
    watch_run(unit, row, run_id)


@handles(change.PauseSchedule)
async def pause(unit: Unit, command: change.PauseSchedule) -> change.Changed | Refused:
    """Ticks whose turn has not come are missed, too."""
    row = await _held(unit, command.namespace, command.schedule_id)
    if row is None:
        return change.schedule_not_found(command.schedule_id)
    decision = change.paused_schedule(row, command.reason, command.actor, unit.view.at)
    return _take(unit, decision, command)


@handles(change.ResumeSchedule)
async def resume(unit: Unit, command: change.ResumeSchedule) -> change.Changed | Refused:
    """What was due until now was missed."""
    row = await _held(unit, command.namespace, command.schedule_id)
    if row is None:
        return change.schedule_not_found(command.schedule_id)
    if row.is_paused:
        row = await _up_to_date(unit, row)
    return _take(unit, change.resumed_schedule(row, unit.view.at), command)


@handles(change.DeleteSchedule)
async def delete(unit: Unit, command: change.DeleteSchedule) -> change.Changed | Refused:
    """Its runs go on."""
    row = await _held(unit, command.namespace, command.schedule_id)
    if row is None or (command.only_undeclared and row.undeclared_at is None):
        return change.schedule_not_found(command.schedule_id)
    decision = change.deleted_schedule(row, unit.view.at)
    return unit.view.apply(None, decision, command)


@handles(change.TriggerSchedule)
async def trigger(unit: Unit, command: change.TriggerSchedule) -> Triggered | Refused:
    """Beside the calendar, under an instant that no tick of it has."""
    row = await _held(unit, command.namespace, command.schedule_id)
    if row is None:
        return change.schedule_not_found(command.schedule_id)
    plan = unit.plans.of(row)
    if isinstance(plan, str):
        return change.not_understood(row, plan)
    view, number = unit.view, row.runs + 1
    tick = await _free_instant(unit, row)
    run = await start_run(unit, plan, row, tick, number, caught_up=False)
    if isinstance(run, Refused):
        return run
    view.rows.put(SCHEDULES, replace(row, runs=number))
    kept = unit.plans.kept
    view.rows.put(
        TICKS, fate.tick_row(row, tick, Fate.MANUAL, view.at, kept, number=number, run_id=run)
    )
    reply = Triggered(row.schedule_id, tick, number, run)
    _sign(unit, change.triggered_schedule(row, reply, view.at), command)
    return reply


async def _free_instant(unit: Unit, row: ScheduleRow) -> int:
    """Ticks of the calendar are whole seconds, and manual ones never are."""
    tick = unit.view.at.now
    while True:
        if tick % _SECOND_MS:
            key = (row.namespace, row.schedule_id, tick)
            if await unit.overlay.row(TICKS, key) is None:
                return tick
        tick += 1


def _sign(unit: Unit, event: OperatorEvent, command: Command[object]) -> None:
    unit.view.note_event(replace(event, actor=command.actor) if command.actor else event)


@handles(change.BackfillSchedule)
async def backfill(unit: Unit, command: change.BackfillSchedule) -> Backfilled | Refused:
    """Each under the key of its tick: a repeated call finds what is there."""
    row = await _held(unit, command.namespace, command.schedule_id)
    if row is None:
        return change.schedule_not_found(command.schedule_id)
    plan = unit.plans.of(row)
    if isinstance(plan, str):
        return change.not_understood(row, plan)
    end = min(command.end, row.done_until)  # later ticks come by themselves
    most = limits.BACKFILL_MAX
    ticks = plan.calendar.ticks(command.begin - 1, end, limit=10 * most)
    refusal = change.refuse_backfill(row, command, ticks, unit.plans.kept, unit.view.at)
    if refusal is not None:
        return refusal
    keys = [(row.namespace, row.schedule_id, tick) for tick in ticks]
    unit.view.rows.take(TICKS, await unit.tx.rows(TICKS, keys) if keys else {})
    return await Backfill(unit, row, plan, command).run(ticks)


class Backfill:
    """Runs for ticks that have none."""

    def __init__(
        self, unit: Unit, row: ScheduleRow, plan: Plan, command: change.BackfillSchedule
    ) -> None:
        self._unit = unit
        self._row = row
        self._plan = plan
        self._command = command
        self._started: list[TickInfo] = []
        self._refused: list[TickInfo] = []

    async def run(self, ticks: Sequence[int]) -> Backfilled:
        """As many as one transaction takes."""
        unit, command, first = self._unit, self._command, self._row
        have_run = skipped = weight = 0
        following = None
        is_blocked = command.overlap is Overlap.SKIP and await self._is_open()
        for tick in ticks:
            key = (first.namespace, first.schedule_id, tick)
            known = unit.view.rows.get(TICKS, key)
            if known is not None and (known.fate.has_run or known.fate is Fate.QUEUED):
                have_run += 1
            elif is_blocked:
                skipped += 1
            elif weight >= limits.BACKFILL_BATCH and not command.is_dry_run:
                following = tick
                break
            else:
                weight += self._plan.weight
                await self._start(tick)
                is_blocked = command.overlap is Overlap.SKIP and bool(self._started)
        reply = Backfilled(
            schedule_id=first.schedule_id,
            total=len(ticks),
            started=tuple(self._started),
            refused=tuple(self._refused),
            have_run=have_run,
            skipped=skipped,
            next_begin=following,
            is_dry_run=command.is_dry_run,
        )
        if self._row is not first:
            unit.view.rows.put(SCHEDULES, self._row)
            event = change.backfilled_schedule(self._row, command, reply, unit.view.at)
            _sign(unit, event, command)
        return reply

    async def _is_open(self) -> bool:
        runs, run_id = Runs(), self._row.last_backfill_id
        if run_id is not None:
            await find_runs(self._unit, runs, [run_id])
        return runs.is_open(run_id)

    async def _start(self, tick: int) -> None:
        unit, row, at = self._unit, self._row, self._unit.view.at
        if self._command.is_dry_run:
            self._started.append(TickInfo(tick, Fate.BACKFILLED, at.now))
            return
        number = row.runs + 1
        run = await start_run(unit, self._plan, row, tick, number, caught_up=True)
        if isinstance(run, Refused):
            error = f"{run.error.code}: {run.detail}"[:1000]
            self._refused.append(TickInfo(tick, Fate.REFUSED, at.now, error=error))
            return
        self._row = replace(row, runs=number, last_backfill_id=run)
        kept = unit.plans.kept
        done = fate.tick_row(row, tick, Fate.BACKFILLED, at, kept, number=number, run_id=run)
        unit.view.rows.put(TICKS, done)
        self._started.append(TickInfo(tick, Fate.BACKFILLED, at.now, number, run))


@handles(change.DeclareSchedules)
async def declare(unit: Unit, command: change.DeclareSchedules) -> SchedulesDeclared:
    """Only what changed is written."""
    view, names = unit.view, [each.schedule_id for each in command.declarations]
    origins = tuple((command.namespace, origin) for origin in sorted(set(command.origins)))
    known = await unit.overlay.search(Search(SCHEDULES_OF_ORIGIN, origins)) if origins else []
    keys = {(command.namespace, name) for name in names}
    lost = [row for row in known if row.schedule_id not in names and row.undeclared_at is None]
    keys |= {SCHEDULES.key_of(row) for row in lost}
    if keys:
        view.rows.take(SCHEDULES, await unit.tx.rows(SCHEDULES, sorted(keys)))
    outcomes = []
    for each in sorted(command.declarations, key=lambda each: each.schedule_id):
        row = view.rows.get(SCHEDULES, (command.namespace, each.schedule_id))
        if row is not None and row.digest != each.digest and row.origin == each.origin:
            row = await _up_to_date(unit, row)
        declared = change.declare(row, each, command.namespace, view.at)
        outcomes.append(declared.outcome)
        if declared.row is not None:
            (_put_scheduled if declared.is_rescheduled else _put_plain)(unit, declared.row)
            if declared.is_rescheduled:
                await _watch_last(unit, declared.row)
        if declared.event is not None:
            _sign(unit, declared.event, command)
    standing = [view.rows.get(SCHEDULES, SCHEDULES.key_of(row)) for row in lost]
    gone = change.undeclared(
        [row for row in standing if row is not None], frozenset(names), view.at
    )
    for row, event in gone:
        view.rows.put(SCHEDULES, row)
        _sign(unit, event, command)
    order = {name: at for at, name in enumerate(names)}
    outcomes.sort(key=lambda each: order[each.schedule_id])
    return SchedulesDeclared(tuple(outcomes), tuple(row.schedule_id for row, _ in gone))


def _put_plain(unit: Unit, row: ScheduleRow) -> ScheduleRow:
    unit.view.rows.put(SCHEDULES, row)
    return row
