"""`ff stats`: what happened on each lane, to each kind of work, in numbers."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column
from flowfabric.cli.show.times import absolute, span
from flowfabric.model.statistic import Histogram, Spending, Statistic, Step
from flowfabric.sdk.statistics import every_spending, every_statistic

_NONE: Final = "0"  # a column in which nothing else stands is left out
_COLUMNS: Final = (
    Column("SINCE"),
    Column("LANE", shrinks=True),
    Column("KIND", shrinks=True),
    Column("CREATED", right=True),
    Column("STARTED", right=True),
    Column("RESUMED", right=True, silent=_NONE),
    Column("COMPLETED", right=True),
    Column("FAILED", right=True),
    Column("CANCELLED", right=True, silent=_NONE),
    Column("EXPIRED", right=True, silent=_NONE),
    Column("SKIPPED", right=True, silent=_NONE),
    Column("RETRIED", right=True, silent=_NONE),
    Column("RECOVERED", right=True, silent=_NONE),
    Column("PICKUP P50", right=True),
    Column("P95", right=True),
    Column("RUN P50", right=True),
    Column("P95", right=True),
)
_SPENDING: Final = (
    Column("SINCE"),
    Column("BUDGET", shrinks=True),
    Column("DIMENSION", shrinks=True),
    Column("SPENT", right=True),
    Column("GIVEN BACK", right=True, silent=_NONE),
)


def add_arguments(parser: FfParser) -> None:
    """Which time, and which work."""
    parser.add_argument(
        "--since",
        type=values.ago_or_instant,
        default=("ago", 3_600_000),
        metavar="TIME",
        help="1h (default), or 2026-11-16T08:00",
    )
    parser.add_argument("--until", type=values.instant, metavar="TIME", help="2026-11-16T09:00")
    parser.add_argument("--lane", metavar="LANE", help="only this lane")
    parser.add_argument("--kind", metavar="KIND", help="only this kind of work")
    parser.add_argument(
        "--by",
        choices=[step.value for step in Step],
        default=Step.TOTAL.value,
        help="a line for each minute or hour (default: total)",
    )
    parser.add_argument(
        "--spending", action="store_true", help="what budgets spent, instead of the work"
    )
    parser.add_argument("--budget", metavar="NAME", help="spending: only this budget")
    parser.set_defaults(handler=stats)


async def stats(call: Call) -> Exit:
    """Work, or spending."""
    given = call.arguments
    word, since = given.since
    times: dict[str, Any] = {"last_ms" if word == "ago" else "since": since, "until": given.until}
    async with call.engine() as engine:
        found: Any
        if given.spending or given.budget:
            wanted = {"budget_id": given.budget, "by": given.by}
            found = await every_spending(engine, **wanted, **times)
        else:
            wanted = {"lane_id": given.lane, "execution_kind": given.kind, "by": given.by}
            found = await every_statistic(engine, namespace=given.namespace, **wanted, **times)
    if call.terminal.as_json:
        call.terminal.document(plain(found))
        return Exit.OK
    if not found.items:
        call.terminal.note("nothing was counted in this time")
    elif isinstance(found.items[0], Spending):
        call.terminal.table(_SPENDING, [_spent(line) for line in found.items])
    else:
        call.terminal.table(_COLUMNS, [_row(line) for line in found.items])
    _say_how_far(call, found.complete_until, getattr(found, "lost_until", None))
    return Exit.OK


def _say_how_far(call: Call, complete_until: int, lost_until: int | None) -> None:
    if complete_until:
        call.terminal.note(f"complete until {absolute(complete_until)}")
    else:
        call.terminal.note("nothing is counted yet: a worker's loop does it every few seconds")
    if lost_until is not None:
        call.terminal.note(f"some events before {absolute(lost_until)} were never counted")


def _row(line: Statistic) -> tuple[object, ...]:
    return (
        absolute(line.begins_at),
        line.lane_id,
        line.execution_kind,
        line.created,
        line.started,
        line.resumed,
        line.succeeded,
        line.failed,
        line.cancelled,
        line.expired,
        line.skipped,
        line.retried,
        line.recovered,
        *_times(line.pickup),
        *_times(line.run),
    )


def _times(histogram: Histogram) -> tuple[str, str]:
    """The median, and what nineteen of twenty do not exceed."""
    estimates = [histogram.percentile_ms(percent) for percent in (50, 95)]
    first, second = ["-" if each is None else span(round(each)) for each in estimates]
    return first, second


def _spent(line: Spending) -> tuple[object, ...]:
    return absolute(line.begins_at), line.budget_id, line.dimension, line.spent, line.given_back
