"""Questions of budgets at the command line: `ff budget asks`, `approve` and `reject`."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_action
from flowfabric.cli.references import as_shown, execution_of
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import relative
from flowfabric.model.ask import AskAnswered, BudgetAsk, LimitKind
from flowfabric.sdk.asks import all_asks

_COLUMNS: Final = (
    Column("BUDGET"),
    Column("DIMENSION"),
    Column("LIMIT", right=True),
    Column("USED", right=True),
    Column("WANTED", right=True),
    Column("PROJECTED", right=True),
    Column("RUNS", right=True),
    Column("FIRST"),
    Column("KIND", shrinks=True),
    Column("ASKED", shrinks=True),
    Column("ANSWER", shrinks=True),
)


def add_asking(actions: Any) -> None:
    """The actions of `ff budget` about questions."""
    listing = add_action(actions, "asks", asks, "what budgets ask people, oldest first")
    listing.add_argument("name", nargs="?", metavar="NAME", help="of this budget only")
    listing.add_argument(
        "--run", type=values.reference, metavar="ID", help="what this execution waits for"
    )
    listing.add_argument("--answered", action="store_true", help="also the last answered ones")
    listing.add_argument("--wide", action="store_true", help="whole ids, nothing cut")
    approving = add_action(actions, "approve", approve, "say yes to what a budget asks")
    how = approving.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--raise-by", type=values.number, metavar="N", help="raise the limit by so much"
    )
    how.add_argument("--once", action="store_true", help="what waits may spend what it asked for")
    _add_answer(approving)
    _add_answer(add_action(actions, "reject", reject, "say no: BudgetExceeded in what waits"))


def _add_answer(parser: FfParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("dimension", metavar="DIMENSION")
    parser.add_argument("--by", required=True, metavar="NAME", help="who decides")
    parser.add_argument("--soft", action="store_true", help="about the soft limit")
    parser.add_argument(
        "--run", type=values.reference, metavar="ID", help="only for this execution"
    )
    parser.add_argument(
        "--number", type=values.number, metavar="N", help="of the question, or it is refused"
    )
    parser.add_argument("--comment", metavar="TEXT", help="kept, and told to what waits")


async def asks(call: Call) -> Exit:
    """Questions, a line for each."""
    arguments = call.arguments
    async with call.engine() as engine:
        run = None if arguments.run is None else await execution_of(call, engine, arguments.run)
        found = await all_asks(
            engine,
            budget_id=arguments.name,
            execution_id=run,
            only_open=not arguments.answered,
        )
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        call.terminal.document(plain(found))
    elif not found:
        call.terminal.note("no budget asks anything")
    else:
        names = as_shown(call, "execution", [each.execution_id for each in found])
        call.terminal.table(_COLUMNS, [_row(each, names, now) for each in found])
    return Exit.OK


def _row(ask: BudgetAsk, names: dict[str, str], now: int) -> tuple[object, ...]:
    is_soft = ask.limit_kind is LimitKind.SOFT
    return (
        ask.budget_id,
        ask.dimension + (" (soft)" if is_soft else ""),
        ask.limit,
        ask.usage,
        ask.wanted or "-",
        ask.projected,
        ask.spenders or "-",
        names[ask.execution_id],
        ask.execution_kind,
        relative(ask.asked_at, now),
        _answer(ask),
    )


def _answer(ask: BudgetAsk) -> str:
    if ask.answered_at is None:
        return f"none yet, number {ask.number}"
    how = f" by {ask.raise_by}" if ask.raise_by else " once" if ask.is_once else ""
    return f"{ask.state.value}{how}" + (f", {ask.answered_by}" if ask.answered_by else "")


async def approve(call: Call) -> Exit:
    """Raise the limit, or let what waits spend once."""
    return await _decide(
        call, approve=True, raise_by=call.arguments.raise_by or 0, once=call.arguments.once
    )


async def reject(call: Call) -> Exit:
    """Refuse what waits."""
    return await _decide(call, approve=False)


async def _decide(call: Call, **how: Any) -> Exit:
    arguments = call.arguments
    async with call.engine() as engine:
        run = None if arguments.run is None else await execution_of(call, engine, arguments.run)
        reply = await engine.answer_budget_ask(
            budget_id=arguments.name,
            dimension=arguments.dimension,
            limit_kind=LimitKind.SOFT if arguments.soft else LimitKind.HARD,
            number=arguments.number,
            execution_id=run,
            comment=arguments.comment or "",
            actor=arguments.by,
            **how,
        )
    if call.terminal.as_json:
        call.terminal.document(plain(reply))
    else:
        call.terminal.line(clean(_told(reply)))
    return Exit.OK


def _told(reply: AskAnswered) -> str:
    runs = "1 execution goes on" if reply.told == 1 else f"{reply.told} executions go on"
    return (
        f"budget {reply.budget_id}: question {reply.number} about {reply.dimension} is "
        f"{reply.state.value}; the {reply.limit_kind.value} limit is {reply.limit}, {runs}"
    )
