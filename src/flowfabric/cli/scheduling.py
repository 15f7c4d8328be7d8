"""The options of a schedule: when it ticks, what becomes of its ticks, and what each of them
starts."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, Final

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import SubmitFlow
from flowfabric.api.schedules import ScheduledStart
from flowfabric.cli import values
from flowfabric.cli.exits import CommandFailed, Exit, usage
from flowfabric.cli.grammar import FfParser, add_list, words_of
from flowfabric.cli.new_work import (
    add_work_options,
    fields_of_work,
    payload_of,
    policy_of_work,
)
from flowfabric.model.policy import policy_from
from flowfabric.model.record import replace
from flowfabric.model.schedule import USUAL_POLICY, CatchUp, Overlap, SchedulePolicy, Timing

_NONE: Final = "none"  # takes back what was said before
_KINDS: Final = ("cron", "every", "at")
_CALENDAR: Final = {"tz": "tz", "jitter": "jitter_ms", "except_on": "except_on"}
_BOUNDS: Final = {"anchor": "anchor", "starts": "starts", "ends": "ends"}
_POLICY: Final = {
    "catch_up": "catch_up",
    "catch_up_window": "catch_up_window_ms",
    "catch_up_max": "catch_up_max",
    "overlap": "overlap",
    "pause_on_failure": "pause_on_failure",
    "max_runs": "max_runs",
}
_OF_EXECUTIONS: Final = (
    *("kind", "lane", "priority", "needs", "budget", "quota", "concurrency_key", "retries"),
    *("start_within", "deadline", "delay", "serial", "mailbox"),
)


def _or_none(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """A value, or the word that takes it back."""

    def converted(text: str) -> Any:
        return _NONE if text == _NONE else convert(text)

    return converted


def _second(text: str) -> int:
    instant = values.instant(text)
    if instant % 1000:
        raise ArgumentTypeError(f"{text!r} is no whole second")
    return instant


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a day; write 2026-12-24") from None


def add_timing_options(parser: FfParser) -> None:
    """When it ticks, and what becomes of ticks that cannot simply run."""
    when = parser.add_argument_group("when it ticks (one of --cron, --every and --at)")
    when.add_argument("--cron", action="append", metavar="EXPRESSION", help="repeat for several")
    when.add_argument("--every", type=values.duration_ms, metavar="TIME", help="elapsed time")
    when.add_argument(
        "--at", action="append", type=_second, metavar="WHEN", help="an instant (repeat)"
    )
    when.add_argument("--tz", metavar="ZONE", help="such as Europe/Berlin")
    when.add_argument(
        "--anchor", type=_or_none(_second), metavar="WHEN", help="with --every: a tick, or none"
    )
    when.add_argument(
        "--except-on",
        action="append",
        type=_or_none(_day),
        metavar="DAY",
        help="no tick on this day of the time zone (repeat), or none",
    )
    when.add_argument(
        "--starts", type=_or_none(_second), metavar="WHEN", help="no tick before, or none"
    )
    when.add_argument("--ends", type=_or_none(_second), metavar="WHEN", help="nor after, or none")
    when.add_argument(
        "--jitter", type=values.duration_ms, metavar="TIME", help="each up to so much later"
    )
    policy = parser.add_argument_group("what becomes of its ticks")
    policy.add_argument("--catch-up", choices=words_of(CatchUp), help="missed ticks")
    policy.add_argument(
        "--catch-up-window", type=values.duration_ms, metavar="TIME", help="not older ones"
    )
    policy.add_argument(
        "--catch-up-max", type=values.whole_number, metavar="N", help="of `all`: the latest"
    )
    policy.add_argument("--overlap", choices=words_of(Overlap), help="beside a run")
    policy.add_argument(
        "--pause-on-failure",
        type=_or_none(values.whole_number),
        metavar="N",
        help="after so many failures in a row, or none",
    )
    policy.add_argument(
        "--max-runs", type=_or_none(values.whole_number), metavar="N", help="in all, or none"
    )


def add_start_options(parser: FfParser, *, is_new: bool) -> None:
    """What each tick starts: a task with its arguments, or a flow."""
    add_list(
        parser,
        "arguments",
        values.argument,
        least="*",
        metavar="ARGUMENT",
        text="name=text or name:=json",
    )
    if not is_new:
        parser.add_argument("--kind", metavar="KIND", help="another task")
    parser.add_argument(
        "--flow", metavar="FILE", help="a flow: the JSON body of POST /v1/flows, - for stdin"
    )
    parser.add_argument("--delay", type=values.duration_ms, metavar="TIME", help="after each tick")
    parser.add_argument(
        "--serial", metavar="KEY", help="its runs wait for others of the key, in their order"
    )
    add_work_options(parser)


# --- read ----------------------------------------------------------------------------------------


def timing_of(given: Namespace, known: Timing | None) -> Timing | None:
    """The timing as it is to be; None: as it is. Other ticks keep the time zone alone."""
    named: dict[str, Any] = {
        field: value
        for name, field in (_CALENDAR | _BOUNDS).items()
        if (value := getattr(given, name)) is not None
    }
    if "except_on" in named:
        named["except_on"] = tuple(day for day in named["except_on"] if day != _NONE)
    cleared: dict[str, Any] = dict.fromkeys(each for each in named if named[each] == _NONE)
    named |= cleared
    if all(getattr(given, name) is None for name in _KINDS):
        if not named:
            return None
        if known is None:
            raise usage("when does it tick?", advice="give --cron, --every or --at")
        return replace(known, **named)
    zone = {} if known is None else {"tz": known.tz}
    ticks = Timing(cron=tuple(given.cron or ()), every_ms=given.every, at=tuple(given.at or ()))
    return replace(ticks, **zone | named)


def policy_of(given: Namespace, known: SchedulePolicy = USUAL_POLICY) -> SchedulePolicy | None:
    """The policy as it is to be; None: as it is."""
    named: dict[str, Any] = {
        field: None if value == _NONE else value
        for name, field in _POLICY.items()
        if (value := getattr(given, name)) is not None
    }
    for name, words in (("catch_up", CatchUp), ("overlap", Overlap)):
        if name in named:
            named[name] = words(named[name])
    return replace(known, **named) if named else None


def new_start(given: Namespace) -> ScheduledStart:
    """What a new schedule starts."""
    if given.flow is not None:
        if given.kind is not None:
            raise usage("a task and --flow are given", advice="a schedule starts one of the two")
        return _changed_flow(given, None)
    if given.kind is None:
        raise usage("what does it start?", advice="name a task, or give --flow FILE")
    empty = NewExecution(execution_kind=given.kind, input_payload=b"{}", payload_encoding="json")
    return ScheduledStart(execution=_changed_execution(given, empty))


def changed_start(given: Namespace, known: ScheduledStart) -> ScheduledStart | None:
    """What it is to start; None: as it does."""
    if given.flow is not None or (known.flow is not None and given.kind is None):
        changed = _changed_flow(given, known.flow)
    else:
        kind = given.kind or ""
        before = known.execution or NewExecution(execution_kind=kind, payload_encoding="json")
        before = replace(before, execution_kind=given.kind or before.execution_kind)
        changed = ScheduledStart(execution=_changed_execution(given, before))
    return None if changed == known else changed


def _changed_execution(given: Namespace, known: NewExecution) -> NewExecution:
    named = fields_of_work(given)
    if given.arguments:
        named |= {"input_payload": payload_of(given.arguments), "payload_encoding": "json"}
    if given.serial is not None:
        named["serial_key"] = given.serial
    before = policy_from(known.policy)
    policy = policy_of_work(given, before)
    if policy != before:
        named["policy"] = policy
    return replace(known, **named)


def _changed_flow(given: Namespace, known: SubmitFlow | None) -> ScheduledStart:
    """Of a flow only the whole, and its labels: its nodes have the other options."""
    unset: tuple[Any, ...] = (None, [])
    odd = next((name for name in _OF_EXECUTIONS if getattr(given, name, None) not in unset), None)
    if odd is not None or given.arguments:
        option = "arguments" if odd is None else f"--{odd.replace('_', '-')}"
        raise usage(f"{option}: are those of a task, and it starts a flow", advice="see --flow")
    flow = known if given.flow is None else _read_flow(given.flow)
    if flow is not None and given.tag:
        flow = replace(flow, tags=dict(given.tag))
    return ScheduledStart(flow=flow)


def _read_flow(name: str) -> SubmitFlow:
    from flowfabric.server.shapes import shape_of  # keeps --help fast

    try:
        body = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandFailed(
            f"{name!s:.300} cannot be read: {error.strerror}",
            advice="--flow names a file with the JSON body of POST /v1/flows",
            exit_code=Exit.USAGE,
            code="unreadable_file",
        ) from None
    flow: SubmitFlow = shape_of(SubmitFlow).read(body)
    return flow
