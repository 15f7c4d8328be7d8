"""`ff spend`: what one execution, a flow, or kinds of work have spent of budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.references import flow_of, named
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column
from flowfabric.model.budget import Spent
from flowfabric.sdk.spend import spend_of_execution, spend_of_flow, spend_of_kinds

_SPENT: Final = (
    Column("BUDGET", shrinks=True),
    Column("DIMENSION", shrinks=True),
    Column("SPENT", right=True),
)
_KINDS: Final = (Column("KIND", shrinks=True), *_SPENT)


def add_arguments(parser: FfParser) -> None:
    """Whose; without any, that of all kinds."""
    parser.add_argument("id", nargs="?", type=values.reference, metavar="ID", help=values.ID_HELP)
    parser.add_argument(
        "--flow", type=values.reference, metavar="ID", help="the members of this flow together"
    )
    parser.add_argument("--kind", metavar="KIND", help="all executions of this kind together")
    parser.set_defaults(handler=spend)


async def spend(call: Call) -> Exit:
    """Reservations are not spent yet: `ff budget show` has them."""
    given = call.arguments
    if sum(each is not None for each in (given.id, given.flow, given.kind)) > 1:
        raise usage("name one: an execution, --flow or --kind", advice="see ff spend --help")
    async with call.engine() as engine:
        if given.id is not None:
            execution_id = (await named(call, engine)).execution_id
            return _shown(call, await spend_of_execution(engine, execution_id))
        if given.flow is not None:
            flow_id = await flow_of(call, engine, given.flow)
            return _shown(call, await spend_of_flow(engine, flow_id))
        found = await spend_of_kinds(engine, given.namespace, given.kind)
    if call.terminal.as_json:
        call.terminal.document({"spend": plain(found)})
    elif not found:
        call.terminal.note("nothing was spent yet")
    else:
        rows = [(each.execution_kind, each.budget_id, each.dimension, each.spent) for each in found]
        call.terminal.table(_KINDS, rows)
    return Exit.OK


def _shown(call: Call, found: Sequence[Spent]) -> Exit:
    if call.terminal.as_json:
        call.terminal.document({"spend": plain(found)})
    elif not found:
        call.terminal.note("nothing was spent yet")
    else:
        call.terminal.table(
            _SPENT, [(each.budget_id, each.dimension, each.spent) for each in found]
        )
    return Exit.OK
