"""`ff retry`: run finished executions again."""

from __future__ import annotations

from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_reason
from flowfabric.cli.many import Verb
from flowfabric.cli.operate import add_ids, add_many, operate
from flowfabric.sdk.selecting import LOST


def add_arguments(parser: FfParser) -> None:
    """Which executions."""
    add_ids(parser, least="*")
    add_reason(parser)
    parser.add_argument(
        "--cascade", action="store_true", help="in a flow: also what was skipped for it"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="from the top: steps that are recorded run again"
    )
    add_many(parser)
    parser.set_defaults(handler=retry)


async def retry(call: Call) -> Exit:
    """Run each again, its history kept; one with a journal goes on by it."""

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.replay_execution(
            execution_id=execution_id,
            requested_by="ff",
            reason=call.arguments.reason,
            cascade=call.arguments.cascade,
            fresh=call.arguments.fresh,
        )

    def words(reply: Any) -> str:
        return f"{reply.public_state.value.replace('_', ' ')} again (replay {reply.replay_count})"

    given = call.arguments
    told = {"reason": given.reason, "cascade": given.cascade, "fresh": given.fresh}
    verb = Verb(*("retry", "to be run again", LOST, change), operation={"action": "retry", **told})
    return await operate(call, verb, words)
