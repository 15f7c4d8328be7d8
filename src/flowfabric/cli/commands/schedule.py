"""`ff schedule`: what starts by the calendar."""

from __future__ import annotations

from typing import Final

from flowfabric.api.page import every_item
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser, add_action, add_actions, add_reason
from flowfabric.cli.scheduling import (
    add_start_options,
    add_timing_options,
    changed_start,
    new_start,
    policy_of,
    timing_of,
)
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import absolute
from flowfabric.errors import NotFound
from flowfabric.model.schedule import USUAL_POLICY, Overlap, ScheduleSnapshot
from flowfabric.model.schedule_words import (
    local_time,
    settings_in_words,
    state_in_words,
    timing_in_words,
)

_COLUMNS: Final = (
    Column("SCHEDULE", shrinks=True, least=16),
    Column("STARTS", shrinks=True),
    Column("WHEN", shrinks=True, least=12),
    Column("NEXT"),
    Column("RUNS", right=True),
    Column("STATE", shrinks=True),
)


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    actions = add_actions(parser)
    add_action(actions, "ls", ls, "list schedules by name")
    for word, handler, text in (
        ("show", why, "one schedule: its next ticks, its last fates, what keeps it back"),
        ("why", why, "the same: why does it not run?"),
        ("trigger", trigger, "start one run now; no tick is used up"),
        ("rm", rm, "remove a schedule; its runs go on"),
        ("resume", resume, "go on with the next tick"),
    ):
        _named(add_action(actions, word, handler, text))
    paused = _named(add_action(actions, "pause", pause, "start nothing until it is resumed"))
    add_reason(paused)
    text = "start a task or a flow by the calendar"
    made = _named(add_action(actions, "create", create, text))
    made.add_argument("kind", nargs="?", metavar="KIND", help="the name of the task")
    add_start_options(made, is_new=True)
    add_timing_options(made)
    changed = _named(add_action(actions, "update", update, "change what is named; the rest stays"))
    add_start_options(changed, is_new=False)
    add_timing_options(changed)
    filled = _named(add_action(actions, "backfill", backfill, "run ticks of the past"))
    filled.add_argument(
        "--from",
        dest="begin",
        type=values.instant,
        required=True,
        metavar="TIME",
        help="an instant, included",
    )
    filled.add_argument(
        "--to",
        dest="end",
        type=values.instant,
        required=True,
        metavar="TIME",
        help="an instant, included",
    )
    filled.add_argument(
        "--overlap", choices=("allow", "skip"), default="allow", help="beside a run"
    )
    filled.add_argument("--dry-run", action="store_true", help="only count")
    filled.add_argument("--again", action="store_true", help="also ticks that may have run")
    gone = add_action(actions, "prune", prune, "remove those that code declares no more")
    gone.add_argument("--dry-run", action="store_true", help="only list them")


def _named(parser: FfParser) -> FfParser:
    parser.add_argument("schedule", metavar="SCHEDULE")
    return parser


def _answer(call: Call, answer: object, text: str) -> Exit:
    if call.terminal.as_json:
        call.terminal.document(plain(answer))
    else:
        call.terminal.line(text)
    return Exit.OK


async def ls(call: Call) -> Exit:
    """Every schedule."""
    async with call.engine() as engine:
        found = await every_item(lambda cursor: engine.list_schedules(cursor=cursor))
    if call.terminal.as_json:
        call.terminal.document(plain(found))
    elif not found:
        call.terminal.note("no schedules yet: @ff.schedule declares one, ff schedule create too")
    else:
        call.terminal.table(_COLUMNS, [_row(each) for each in found])
    return Exit.OK


def _row(each: ScheduleSnapshot) -> tuple[object, ...]:
    next_tick = "-" if each.next_tick is None else absolute(each.next_tick)
    return (
        each.schedule_id,
        each.kind,
        timing_in_words(each.timing),
        next_tick,
        each.runs,
        state_in_words(each),
    )


async def why(call: Call) -> Exit:
    """What is to come, what was, and what keeps it back."""
    name = call.arguments.schedule
    async with call.engine() as engine:
        found = await engine.describe_schedule(schedule_id=name)
        if found is None:
            raise NotFound(f"schedule {name}", entity="schedule")
        ahead = () if found.problem else await engine.preview_schedule(schedule_id=name)
        ticks = await engine.read_ticks(schedule_id=name, limit=10)
    if call.terminal.as_json:
        document = {"schedule": found, "ahead": list(ahead), "ticks": list(ticks)}
        call.terminal.document({key: plain(each) for key, each in document.items()})
        return Exit.OK
    when, state = timing_in_words(found.timing), state_in_words(found)
    call.terminal.line(f"{clean(name)}: {clean(when)}, {clean(state)}")
    for said in settings_in_words(found):
        call.terminal.line(f"  {clean(said)}")
    for warning in found.warnings:
        call.terminal.line(f"  keeps it back: {clean(warning)}")
    for each in ahead:
        mark = f"  {each.mark.value}" if each.mark else ""
        call.terminal.line(f"  next  {absolute(each.tick)}{_local(each.tick, found)}{mark}")
    for tick in ticks:
        told = clean(tick.error or tick.run_id or "")
        call.terminal.line(f"  {absolute(tick.tick)}  {tick.fate.value}  {told}".rstrip())
    return Exit.OK


def _local(tick: int, schedule: ScheduleSnapshot) -> str:
    local = local_time(tick, schedule)
    return f"  {clean(local)}" if local else ""


async def create(call: Call) -> Exit:
    """A task with named arguments, or a flow."""
    given = call.arguments
    start, timing = new_start(given), timing_of(given, None)
    if timing is None:
        raise usage("when does it tick?", advice="give --cron, --every or --at")
    async with call.engine(creates=True) as engine:
        made = await engine.create_schedule(
            schedule_id=given.schedule,
            timing=timing,
            start=start,
            policy=policy_of(given) or USUAL_POLICY,
        )
    for warning in made.schedule.warnings:
        call.terminal.note(clean(warning))
    return _answer(call, made, f"schedule {clean(given.schedule)} is in force")


async def update(call: Call) -> Exit:
    """What is named changes, unless another change came in between."""
    given, name = call.arguments, call.arguments.schedule
    async with call.engine() as engine:
        known = await engine.describe_schedule(schedule_id=name)
        if known is None:
            raise NotFound(f"schedule {name}", entity="schedule")
        start = changed_start(given, await engine.read_schedule_start(schedule_id=name))
        timing = timing_of(given, known.timing)
        policy = policy_of(given, known.policy or USUAL_POLICY)
        if timing is None and policy is None and start is None:
            raise usage("nothing to change", advice="see ff schedule update --help")
        changed = await engine.update_schedule(
            schedule_id=name,
            timing=timing,
            policy=policy,
            start=start,
            expected_version=known.version,
        )
    versions = f"version {changed.version_before} → {changed.schedule.version}"
    return _answer(call, changed, f"schedule {clean(name)}: {versions}")


async def pause(call: Call) -> Exit:
    """Its ticks are missed."""
    name = call.arguments.schedule
    async with call.engine() as engine:
        done = await engine.pause_schedule(schedule_id=name, reason=call.arguments.reason)
    return _answer(call, done, f"schedule {clean(name)} is paused")


async def resume(call: Call) -> Exit:
    """From the next tick on."""
    name = call.arguments.schedule
    async with call.engine() as engine:
        done = await engine.resume_schedule(schedule_id=name)
    return _answer(call, done, f"schedule {clean(name)} goes on")


async def trigger(call: Call) -> Exit:
    """One run."""
    async with call.engine() as engine:
        done = await engine.trigger_schedule(schedule_id=call.arguments.schedule)
    return _answer(call, done, done.run_id)


async def rm(call: Call) -> Exit:
    """Its runs go on."""
    name = call.arguments.schedule
    async with call.engine() as engine:
        done = await engine.delete_schedule(schedule_id=name)
    return _answer(call, done, f"schedule {clean(name)} is gone")


async def prune(call: Call) -> Exit:
    """What code declares no more."""
    async with call.engine() as engine:
        done = await engine.prune_schedules(dry_run=call.arguments.dry_run)
    return _answer(call, done, "\n".join(map(clean, done.schedule_ids)) or "none is undeclared")


async def backfill(call: Call) -> Exit:
    """A transaction at a time."""
    given, begin = call.arguments, call.arguments.begin
    started = refused = have_run = skipped = 0
    async with call.engine() as engine:
        while True:
            part = await engine.backfill_schedule(
                schedule_id=given.schedule,
                begin=begin,
                end=given.end,
                overlap=Overlap(given.overlap),
                dry_run=given.dry_run,
                again=given.again,
            )
            started, refused = started + len(part.started), refused + len(part.refused)
            have_run, skipped = have_run + part.have_run, skipped + part.skipped
            if part.next_begin is None:
                break
            begin = part.next_begin
    word = "would start" if given.dry_run else "started"
    document = {
        "started": started,
        "refused": refused,
        "have_run": have_run,
        "skipped": skipped,
        "dry_run": given.dry_run,
    }
    told = f"{word} {started} runs; {refused} were refused, {have_run} ticks have one already"
    return _answer(call, document, f"{told}, {skipped} were skipped for a run that has not ended")
