"""Schedules: what starts by the calendar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric import limits
from flowfabric.api import schedules as api
from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import SubmitFlow
from flowfabric.api.page import Page, at_name
from flowfabric.api.schedules import ScheduledStart
from flowfabric.calendar import Calendar, check_calendar
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.workers import live_workers
from flowfabric.engine.plans import Plan, Start, definition_text, start_bytes
from flowfabric.errors import FlowFabricError, InvalidInput, InvalidSchedule, NotFound
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.execution.routing import able_worker
from flowfabric.kernel.schedule import change
from flowfabric.model.checks import (
    check_flag,
    check_instant,
    check_integer,
    check_list,
    check_name,
    clip_text,
)
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import Record, from_msgpack
from flowfabric.model.schedule import (
    Backfilled,
    Definition,
    Overlap,
    ScheduleChanged,
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePolicy,
    ScheduleRow,
    SchedulesDeclared,
    ScheduleSnapshot,
    SchedulesPruned,
    Source,
    TickAhead,
    TickInfo,
    TickRow,
    Timing,
    Triggered,
)
from flowfabric.model.schedule_checks import check_schedule_policy, check_timing
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import SCHEDULES, TICKS

_SCHEDULES: Final = Listing("list_schedules", at_name)
_ONE_OF = "start: give an execution or a flow, one of the two"
_OF_ONE_SUBMIT: Final = (
    "idempotency_key",
    "delay_until",
    "execution_deadline_at",
    "colocate_with",
)
_OF_ONE_FLOW: Final = ("idempotency_key", "flow_id", "connection", "handle", "entries")


# --- making and changing them --------------------------------------------------------------------


@answers(api.CreateSchedule)
async def create_schedule(machine: Machine, request: api.CreateSchedule) -> ScheduleCreated:
    """From the next tick on."""
    namespace = machine.namespace(request.namespace)
    name = check_name(request.schedule_id, field="schedule_id")
    definition = _definition(request.timing, request.policy)
    content = await _content(machine, namespace, name, definition, request.start)
    command = change.CreateSchedule(
        namespace=namespace,
        schedule_id=name,
        content=content,
        actor=machine.actor(request.actor),
    )
    changed = await machine.execute(command)
    snapshot = await _told(machine, changed.row)
    return ScheduleCreated(snapshot, is_new=not changed.version_before)


@answers(api.UpdateSchedule)
async def update_schedule(machine: Machine, request: api.UpdateSchedule) -> ScheduleChanged:
    """What is not named stays."""
    namespace = machine.namespace(request.namespace)
    name = check_name(request.schedule_id, field="schedule_id")
    row = await _require(machine, namespace, name)
    definition, start = row.definition, row.start
    if request.timing is not None or request.policy is not None:
        if request.timing is None or request.policy is None:
            plan = _understood(machine, row)
            timing = plan.timing if request.timing is None else request.timing
            policy = plan.policy if request.policy is None else request.policy
        else:
            timing, policy = request.timing, request.policy
        definition = definition_text(_definition(timing, policy))
    new_start = None
    if request.start is not None:
        checked = _start(request.start)
        start = start_bytes(checked)
        new_start = (start, _kind(checked))
    content = change.Content(definition, start, row.kind if new_start is None else new_start[1])
    await _check(machine, namespace, name, content)
    version = request.expected_version
    if version is not None:
        check_integer(version, field="expected_version", least=1, most=1 << 30)
    elif definition != row.definition and None in (request.timing, request.policy):
        version = row.version  # the part that was not named is that of this one
    command = change.UpdateSchedule(
        namespace=namespace,
        schedule_id=name,
        definition=definition if definition != row.definition else None,
        start=new_start,
        version=version,
        actor=machine.actor(request.actor),
    )
    return await _changed(machine, command)


@answers(api.PauseSchedule)
async def pause_schedule(machine: Machine, request: api.PauseSchedule) -> ScheduleChanged:
    """Start nothing."""
    command = change.PauseSchedule(
        namespace=machine.namespace(request.namespace),
        schedule_id=check_name(request.schedule_id, field="schedule_id"),
        reason=clip_text(request.reason, limits.REASON_BYTES, field="reason"),
        actor=machine.actor(request.actor),
    )
    return await _changed(machine, command)


@answers(api.ResumeSchedule)
async def resume_schedule(machine: Machine, request: api.ResumeSchedule) -> ScheduleChanged:
    """From the next tick on."""
    command = change.ResumeSchedule(
        namespace=machine.namespace(request.namespace),
        schedule_id=check_name(request.schedule_id, field="schedule_id"),
        actor=machine.actor(request.actor),
    )
    return await _changed(machine, command)


async def _changed(
    machine: Machine, command: change.ScheduleCommand[change.Changed]
) -> ScheduleChanged:
    changed = await machine.execute(command)
    machine.aside.forget((SCHEDULES.name, SCHEDULES.key_of(changed.row)))
    return ScheduleChanged(await _told(machine, changed.row), changed.version_before)


@answers(api.DeleteSchedule)
async def delete_schedule(machine: Machine, request: api.DeleteSchedule) -> ScheduleDeleted:
    """Its runs go on."""
    command = change.DeleteSchedule(
        namespace=machine.namespace(request.namespace),
        schedule_id=check_name(request.schedule_id, field="schedule_id"),
        actor=machine.actor(request.actor),
    )
    changed = await machine.execute(command)
    return ScheduleDeleted(changed.row.schedule_id, changed.row.version)


@answers(api.PruneSchedules)
async def prune_schedules(machine: Machine, request: api.PruneSchedules) -> SchedulesPruned:
    """Each in a transaction of its own; one that was declared again meanwhile stays."""
    namespace, actor = machine.namespace(request.namespace), machine.actor(request.actor)
    is_dry = check_flag(request.dry_run, field="dry_run")
    names = [
        row.schedule_id
        for row in await machine.read(lambda reader: _all_rows(reader, namespace))
        if row.undeclared_at is not None
    ]
    if is_dry:
        return SchedulesPruned(tuple(names), is_dry_run=True)
    gone = []
    for name in names:
        command = change.DeleteSchedule(
            namespace=namespace, schedule_id=name, only_undeclared=True, actor=actor
        )
        try:
            await machine.execute(command)
        except NotFound:
            continue
        gone.append(name)
    return SchedulesPruned(tuple(gone))


async def _all_rows(reader: Reader, namespace: str) -> list[ScheduleRow]:
    search = Search(by_key(SCHEDULES), ((namespace,),), limit=limits.PAGE_MAX, skips_corrupt=True)
    found: list[ScheduleRow] = []
    while True:
        page = await reader.search(search)
        found += page
        if len(page) < limits.PAGE_MAX:
            return found
        after = (page[-1].schedule_id,)
        search = Search(
            by_key(SCHEDULES),
            ((namespace,),),
            after=after,
            limit=limits.PAGE_MAX,
            skips_corrupt=True,
        )


@answers(api.DeclareSchedules)
async def declare_schedules(machine: Machine, request: api.DeclareSchedules) -> SchedulesDeclared:
    """Only what changed is written."""
    namespace = machine.namespace(request.namespace)
    given = check_list(request.schedules, field="schedules")
    most = limits.SCHEDULES_DECLARED_MAX
    if len(given) > most:
        detail = f"schedules: {len(given)} are more than {most}"
        raise InvalidInput(detail, field="schedules")
    declarations = []
    for at, each in enumerate(given):
        try:
            declarations.append(await _declaration(machine, namespace, each))
        except FlowFabricError as error:
            error.detail = f"schedules[{at}]: {error.detail}"
            raise
    names = [each.schedule_id for each in declarations]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput(f"schedules: {twice} is declared twice", field="schedules")
    origins = [
        check_name(each, field="origins") for each in check_list(request.origins, field="origins")
    ]
    command = change.DeclareSchedules(
        namespace=namespace,
        declarations=tuple(declarations),
        origins=tuple(origins),
        actor=machine.actor(request.actor),
    )
    return await machine.execute(command)


async def _declaration(
    machine: Machine, namespace: str, given: api.DeclaredSchedule
) -> change.Declaration:
    if not isinstance(given, api.DeclaredSchedule):
        raise InvalidInput("schedules: expected a DeclaredSchedule", field="schedules")
    name = check_name(given.schedule_id, field="schedule_id")
    definition = _definition(given.timing, given.policy)
    content = await _content(machine, namespace, name, definition, given.start)
    origin = check_name(given.origin, field="origin")
    return change.Declaration(name, content, change.digest_of(content), origin)


# --- what they do --------------------------------------------------------------------------------


def _definition(timing: Timing, policy: SchedulePolicy) -> Definition:
    checked = check_timing(timing)
    check_calendar(checked)
    return Definition(timing=checked, policy=check_schedule_policy(policy))


async def _content(
    machine: Machine, namespace: str, name: str, definition: Definition, start: ScheduledStart
) -> change.Content:
    checked = _start(start)
    content = change.Content(definition_text(definition), start_bytes(checked), _kind(checked))
    await _check(machine, namespace, name, content)
    return content


def _start(given: object) -> ScheduledStart:
    """The request for an execution or a flow, without what belongs to one submission."""
    if not isinstance(given, ScheduledStart):
        detail = f"start: expected a ScheduledStart, got {type(given).__name__}"
        raise InvalidSchedule(detail, field="start")
    if (given.execution is None) is (given.flow is None):
        raise InvalidSchedule(_ONE_OF, field="start")
    word = "execution"
    names: tuple[str, ...] = _OF_ONE_SUBMIT
    kind: type[NewExecution | SubmitFlow] = NewExecution
    if given.execution is None:
        word, kind, names = "flow", SubmitFlow, _OF_ONE_FLOW
    request = getattr(given, word)
    if not isinstance(request, kind):
        detail = f"start.{word}: expected a {kind.__name__}"
        raise InvalidSchedule(detail, field=f"start.{word}")
    for each in names:
        if getattr(request, each) not in (None, ()):
            field = f"start.{word}.{each}"
            detail = f"{field}: belongs to one submission, and a schedule makes many"
            raise InvalidSchedule(detail, field=field)
    return given


def _kind(start: ScheduledStart) -> str:
    if start.flow is not None:
        return check_name(start.flow.flow_kind, field="start.flow.flow_kind")
    assert start.execution is not None  # noqa: S101 - checked before
    return check_name(start.execution.execution_kind, field="start.execution.execution_kind")


async def _check(machine: Machine, namespace: str, name: str, content: change.Content) -> None:
    """What it starts can be started; its routes are known from now on."""
    row = change.draft(namespace, name, content)
    plan = machine.plans.of(row)
    if isinstance(plan, str):
        raise InvalidSchedule(plan, field="start")
    request = plan.start.execution or plan.start.flow
    if request is not None and request.namespace not in (None, namespace):
        field = "start.namespace"
        detail = f"{field}: the schedule's is {namespace}"
        raise InvalidSchedule(detail, field=field)
    command = machine.plans.check(row)
    creates, known = _creates(command), machine.known
    of_flow = None if isinstance(command, CreateExecution) else command.flow.hooks
    hooks = await known.hook_routes(creates, of_flow)
    await known.ensure_routes(hooks.union(each.route for each in creates))


def _creates(command: Start) -> list[CreateExecution]:
    if isinstance(command, CreateExecution):
        return [command]
    return [node.create for node in command.nodes]


def _understood(machine: Machine, row: ScheduleRow) -> Plan:
    plan = machine.plans.of(row)
    if isinstance(plan, str):
        detail = f"schedule {row.schedule_id}: {plan}; give a timing and a policy"
        raise InvalidSchedule(detail, field="timing")
    return plan


# --- runs ----------------------------------------------------------------------------------------


@answers(api.TriggerSchedule)
async def trigger_schedule(machine: Machine, request: api.TriggerSchedule) -> Triggered:
    """One run now."""
    command = change.TriggerSchedule(
        namespace=machine.namespace(request.namespace),
        schedule_id=check_name(request.schedule_id, field="schedule_id"),
        actor=machine.actor(request.actor),
    )
    return await machine.execute(command)


@answers(api.BackfillSchedule)
async def backfill_schedule(machine: Machine, request: api.BackfillSchedule) -> Backfilled:
    """Runs for ticks that have none."""
    begin, end = (
        check_instant(request.begin, field="begin"),
        check_instant(request.end, field="end"),
    )
    if end < begin:
        raise InvalidSchedule("end: is before begin", field="end")
    overlap = check_word(request.overlap, Overlap, field="overlap")
    if overlap not in (Overlap.ALLOW, Overlap.SKIP):
        raise InvalidSchedule("overlap: allow or skip", field="overlap")
    command = change.BackfillSchedule(
        namespace=machine.namespace(request.namespace),
        schedule_id=check_name(request.schedule_id, field="schedule_id"),
        begin=begin,
        end=end,
        overlap=overlap,
        again=check_flag(request.again, field="again"),
        is_dry_run=check_flag(request.dry_run, field="dry_run"),
        actor=machine.actor(request.actor),
    )
    return await machine.execute(command)


# --- reading -------------------------------------------------------------------------------------


@answers(api.DescribeSchedule)
async def describe_schedule(
    machine: Machine, request: api.DescribeSchedule
) -> ScheduleSnapshot | None:
    """As it stands."""
    namespace = machine.namespace(request.namespace)
    row = await _find(machine, namespace, check_name(request.schedule_id, field="schedule_id"))
    return None if row is None else await _told(machine, row)


@answers(api.ReadScheduleStart)
async def read_schedule_start(machine: Machine, request: api.ReadScheduleStart) -> ScheduledStart:
    """What each tick starts."""
    namespace = machine.namespace(request.namespace)
    row = await _require(machine, namespace, check_name(request.schedule_id, field="schedule_id"))
    return from_msgpack(row.start, ScheduledStart, field="start")


@answers(api.ListSchedules)
async def list_schedules(machine: Machine, request: api.ListSchedules) -> Page[ScheduleSnapshot]:
    """By name."""
    namespace, limit = machine.namespace(request.namespace), check_limit(request.limit)
    after = _SCHEDULES.place(request.cursor)
    wanted = (request.is_paused, request.is_undeclared)
    for word, value in zip(("is_paused", "is_undeclared"), wanted, strict=True):
        if value is not None:
            check_flag(value, field=word)
    search = Search(
        by_key(SCHEDULES), ((namespace,),), after=after, limit=limit + 1, skips_corrupt=True
    )
    rows = await machine.read(lambda reader: reader.search(search)) if limit else []
    page = _SCHEDULES.page(
        rows,
        limit,
        place_of=lambda row: (row.schedule_id,),
        show=lambda row: snapshot_of(machine, row),
    )
    shown = [each for each in page.items if _passes(each, *wanted)]
    return Page(tuple(shown), page.next_cursor)


def _passes(shown: ScheduleSnapshot, is_paused: bool | None, is_undeclared: bool | None) -> bool:
    if is_paused is not None and (shown.paused_at is not None) is not is_paused:
        return False
    return is_undeclared is None or (shown.undeclared_at is not None) is is_undeclared


@answers(api.ReadTicks)
async def read_ticks(machine: Machine, request: api.ReadTicks) -> tuple[TickInfo, ...]:
    """What became of ticks."""
    namespace, limit = machine.namespace(request.namespace), check_limit(request.limit)
    name, after = check_name(request.schedule_id, field="schedule_id"), request.after
    if after is not None:
        check_instant(after, field="after")
    search = Search(
        by_key(TICKS),
        ((namespace, name),),
        after=None if after is None else (after,),
        limit=limit,
        is_backwards=after is None,
        skips_corrupt=True,
    )
    rows = await machine.read(lambda reader: reader.search(search)) if limit else []
    return tuple(map(tick_info, rows))


def tick_info(row: TickRow) -> TickInfo:
    """A tick as it is shown."""
    return TickInfo(
        row.tick, row.fate, row.decided_at, row.number, row.run_id, row.merged_into, row.error
    )


@answers(api.PreviewSchedule)
async def preview_schedule(machine: Machine, request: api.PreviewSchedule) -> tuple[TickAhead, ...]:
    """The next ticks."""
    limit = check_integer(request.limit, field="limit", least=0, most=limits.PREVIEW_MAX)
    after = request.after
    if after is not None:
        check_instant(after, field="after")
    if (request.schedule_id is None) is (request.timing is None):
        detail = "schedule_id: give it or a timing, one of the two"
        raise InvalidSchedule(detail, field="schedule_id")
    if request.timing is not None:
        calendar: Calendar = check_calendar(check_timing(request.timing))
        begin = await machine.read(_now) if after is None else after
        return tuple(
            TickAhead(tick, tick, calendar.mark(tick))
            for tick in calendar.ticks(begin, limit=limit)
        )
    namespace = machine.namespace(request.namespace)
    row = await _require(machine, namespace, check_name(request.schedule_id, field="schedule_id"))
    plan = _understood(machine, row)
    begin = row.done_until if after is None else after
    left = limit
    if plan.policy.max_runs is not None:
        left = min(limit, max(0, plan.policy.max_runs - row.runs))
    return tuple(
        TickAhead(tick, plan.fires_at(row, tick), plan.calendar.mark(tick))
        for tick in plan.calendar.ticks(begin, limit=left)
    )


async def _now(reader: Reader) -> int:
    await reader.catalog()
    return reader.now


async def _find(machine: Machine, namespace: str, name: str) -> ScheduleRow | None:
    key = (namespace, name)
    return (await machine.read(lambda reader: reader.peek_rows(SCHEDULES, [key]))).get(key)


async def _require(machine: Machine, namespace: str, name: str) -> ScheduleRow:
    row = await _find(machine, namespace, name)
    if row is None:
        raise change.schedule_not_found(name).to_error()
    return row


def snapshot_of(
    machine: Machine, row: ScheduleRow, warnings: Sequence[str] = ()
) -> ScheduleSnapshot:
    """A schedule as it is shown."""
    plan = machine.plans.of(row)
    problem, is_flow = "", False
    timing = policy = None
    if isinstance(plan, str):
        problem = plan
    else:
        timing, policy, is_flow = plan.timing, plan.policy, plan.start.flow is not None
    return ScheduleSnapshot(
        schedule_id=row.schedule_id,
        namespace=row.namespace,
        source=row.source,
        version=row.version,
        kind=row.kind,
        is_flow=is_flow,
        timing=timing,
        policy=policy,
        problem=problem,
        created_at=row.created_at,
        changed_at=row.changed_at,
        next_tick=row.next_tick,
        next_at=row.next_at,
        paused_at=row.paused_at,
        paused_by=row.paused_by,
        pause_reason=row.pause_reason,
        runs=row.runs,
        failures=row.failures,
        last_tick=row.last_tick,
        last_run_id=row.last_run_id,
        queued_tick=row.queued_tick,
        origin=row.origin if row.source is Source.DECLARED else None,
        flaps=row.flaps,
        undeclared_at=row.undeclared_at,
        warnings=tuple(warnings),
    )


async def _told(machine: Machine, row: ScheduleRow) -> ScheduleSnapshot:
    """With what may keep its runs from starting, or from going on."""
    if isinstance(machine.plans.of(row), str):
        return snapshot_of(machine, row)
    try:
        creates = _creates(machine.plans.check(row))
    except FlowFabricError as error:
        return snapshot_of(machine, row, [f"every start would be refused: {error.detail}"])
    warnings = await machine.read(lambda reader: _warnings(reader, row, creates))
    try:
        await machine.known.ensure_limits([each.bounds for each in creates])
    except NotFound as error:
        warnings.append(f"every start would be refused: {error.detail}")
    return snapshot_of(machine, row, warnings)


class _Unable(Record, frozen=True):
    """A kind and a lane that no worker serves."""

    kind: str
    lane: str


async def _warnings(
    reader: Reader, row: ScheduleRow, creates: Sequence[CreateExecution]
) -> list[str]:
    catalog = await reader.catalog()
    workers = await live_workers(reader, row.namespace, None, limits.PAGE_MAX)
    warnings: list[str] = []
    unable = {
        _Unable(each.route.execution_kind, each.route.lane_id): None
        for each in creates
        if able_worker(workers, each.route, reader.now) is None
    }
    warnings += [f"no worker handles {each.kind} on lane {each.lane}" for each in unable]
    for lane in sorted({each.route.lane_id for each in creates}):
        if not catalog.lane_state(lane).takes_in:
            state = catalog.lane_state(lane).value
            warnings.append(f"every start would be refused: lane {lane} is {state}")
        elif not catalog.lane_state(lane).hands_out:
            warnings.append(f"runs wait: lane {lane} is {catalog.lane_state(lane).value}")
    return warnings
