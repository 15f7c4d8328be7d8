"""Filters, and changing every execution they select: count, ask, change page by page, report the
outcome."""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli import bulk, values
from flowfabric.cli.advice import misspelt
from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.show.terminal import clean
from flowfabric.cli.show.times import count
from flowfabric.errors import StoreError
from flowfabric.model.state import PublicState
from flowfabric.sdk.durations import Moment, to_datetime
from flowfabric.sdk.selecting import IsMeant, RunFilter, Tally, change_listed, count_meant

_FILTERS: Final = ("state", "lane", "kind", "tag", "since", "before", "all")


@dataclass(frozen=True, slots=True)
class Verb:
    """The change a command makes to an execution."""

    name: str  # cancel
    done: str  # cancelled
    states: tuple[PublicState, ...]  # the states used when a filter names none
    change: Callable[[EngineBackend, str], Awaitable[Any]]
    refused: Exit = Exit.REFUSED
    is_meant: IsMeant | None = None  # of those that filters select
    # The same change as an operation: its action, and what it is told.
    operation: Mapping[str, Any] = field(default_factory=dict)


def add_filters(parser: FfParser) -> None:
    """Which executions: the same for listing and for changing them."""
    group = parser.add_argument_group("which executions")
    group.add_argument(
        "--state", action="extend", type=values.states, default=[], metavar="STATE", help="a,b too"
    )
    group.add_argument("--lane", metavar="LANE", help="on this lane")
    group.add_argument("--kind", metavar="KIND", help="of this kind")
    group.add_argument("--tag", type=values.tag, metavar="K=V", help="with this tag")
    group.add_argument(
        "--since", type=values.ago_or_instant, metavar="TIME", help="1h, or 2026-11-16T08:00"
    )
    group.add_argument(
        "--before", type=values.ago_or_instant, metavar="TIME", help="created longer ago"
    )


def is_chosen(arguments: Namespace) -> bool:
    """Whether filters were given. The namespace alone does not count: it mostly comes by habit."""
    return any(getattr(arguments, name) for name in _FILTERS)


def run_filter(arguments: Namespace) -> RunFilter:
    """The filters of the command line."""
    return RunFilter(
        state=tuple(arguments.state),
        kind=arguments.kind,
        lane=arguments.lane,
        tag=arguments.tag,
        since=_moment(arguments.since),
        before=_moment(arguments.before),
        namespace=arguments.namespace,
    )


def _moment(given: tuple[str, int] | None) -> Moment | None:
    if given is None:
        return None
    how, milliseconds = given
    return timedelta(milliseconds=milliseconds) if how == "ago" else to_datetime(milliseconds)


async def change_chosen(call: Call, verb: Verb) -> Exit:
    """Count, ask, change: many by an operation, which goes on if this program ends."""
    async with call.engine() as engine:
        now = await engine.server_time_ms()
        listing = run_filter(call.arguments).or_states(verb.states).listing(now)
        # Executions created from here on were not counted: the answer does not cover them.
        listing["created_before"] = min(listing.get("created_before", now + 1), now + 1)
        if verb.is_meant is None:
            matched = await engine.count_listed(**listing)
        else:
            matched = await count_meant(engine, listing, verb.is_meant)
        if not matched and not call.terminal.as_json:
            arguments = call.arguments
            why_none = await misspelt(engine, kind=arguments.kind, lane=arguments.lane)
            if why_none:
                call.terminal.note(clean(why_none))
        if call.arguments.dry_run:
            return counted(call, verb, matched)
        if matched and not call.arguments.yes and not await agreed(call, verb, matched):
            call.terminal.note("nothing was changed")
            return Exit.FAILED
        if matched <= bulk.OPERATION_ABOVE:
            return await _change(call, engine, verb, listing, matched)
    return await bulk.change_by_operation(call, verb, listing)


def counted(call: Call, verb: Verb, matched: int) -> Exit:
    """Say how many it would be."""
    if call.terminal.as_json:
        call.terminal.document({"dry_run": True, "matched": matched})
    else:
        call.terminal.line(f"{count(matched, 'execution')} would be {verb.done}")
    return Exit.OK


async def _change(
    call: Call, engine: EngineBackend, verb: Verb, listing: dict[str, Any], matched: int
) -> Exit:
    tally = Tally()
    try:
        await change_listed(
            engine,
            listing,
            lambda execution_id: verb.change(engine, execution_id),
            tally,
            after_page=lambda: call.terminal.status(f"{tally.done} of {matched} {verb.done} …"),
            is_meant=verb.is_meant or (lambda snapshot: True),
        )
    except asyncio.CancelledError:
        raise _interrupted(verb, tally, matched) from None
    except StoreError:
        call.terminal.complain(f"{tally.done} of {matched} {verb.done} — then the store failed")
        raise
    return told(call, verb, tally)


def _interrupted(verb: Verb, tally: Tally, matched: int) -> CommandFailed:
    return CommandFailed(
        f"interrupted: {tally.done} of {matched} {verb.done}",
        advice="the same command goes on with the rest",
        exit_code=Exit.INTERRUPTED,
        code="interrupted",
        fields={"matched": matched, "done": tally.done, "refused": tally.refused},
    )


def told(call: Call, verb: Verb, tally: Tally) -> Exit:
    """Say how many it was."""
    total = tally.total()
    if call.terminal.as_json:
        call.terminal.document(
            {"matched": total.matched, "done": total.done, "refused": dict(total.refused)}
        )
    elif not total.matched:
        call.terminal.note("no executions match")
    else:
        call.terminal.line(f"{count(total.done, 'execution')} {verb.done}")
    if not total.refused:
        return Exit.OK
    codes = ", ".join(f"{number} {code}" for code, number in total.refused.items())
    call.terminal.complain(
        f"{sum(total.refused.values())} refused ({codes}) — their state does not allow it"
    )
    return verb.refused


async def agreed(call: Call, verb: Verb, matched: int) -> bool:
    """Whether a person at the terminal says yes."""
    what = f"{verb.name} {count(matched, 'execution')}"
    if not sys.stdin.isatty() or not call.terminal.shows_progress:
        raise CommandFailed(
            f"this would {what}",
            advice="add --yes to do it, or --dry-run to only count",
            exit_code=Exit.USAGE,
            code="confirmation_needed",
            fields={"matched": matched},
        )
    call.terminal.end_status()
    print(f"{what}? [y/N] ", end="", file=call.terminal.err, flush=True)
    answer = (await _typed()).strip().lower()
    return answer in ("y", "yes")


async def _typed() -> str:
    """A line from the terminal. Ctrl-C ends the wait for it; a blocking read would go on."""
    there, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), there.set)
    try:
        await there.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
