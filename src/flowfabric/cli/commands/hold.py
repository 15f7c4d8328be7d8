"""`ff hold`: keep executions from being claimed."""

from __future__ import annotations

from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_reason
from flowfabric.cli.many import Verb
from flowfabric.cli.operate import NOT_BEGUN, add_ids, add_many, operate


def add_arguments(parser: FfParser) -> None:
    """Which executions."""
    add_ids(parser, least="*")
    add_reason(parser)
    add_many(parser)
    parser.set_defaults(handler=hold)


async def hold(call: Call) -> Exit:
    """Keep each from being claimed."""

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.hold_execution(execution_id=execution_id, reason=call.arguments.reason)

    operation = {"action": "hold", "reason": call.arguments.reason}
    verb = Verb("hold", "held", NOT_BEGUN, change, operation=operation)
    return await operate(call, verb, lambda _: "held")
