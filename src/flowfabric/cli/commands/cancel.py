"""`ff cancel`: stop executions, whatever they are doing."""

from __future__ import annotations

from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_reason
from flowfabric.cli.many import Verb
from flowfabric.cli.operate import add_ids, add_many, operate
from flowfabric.sdk.selecting import UNFINISHED


def add_arguments(parser: FfParser) -> None:
    """Which executions."""
    add_ids(parser, least="*")
    add_reason(parser)
    add_many(parser)
    parser.set_defaults(handler=cancel)


async def cancel(call: Call) -> Exit:
    """Stop each; one that ended in another way is left alone, which is exit code 1."""
    reason = call.arguments.reason or "cancelled from the command line"

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.cancel_execution(
            execution_id=execution_id, reason=reason, source="operator_override"
        )

    verb = Verb(
        *("cancel", "cancelled", UNFINISHED, change),
        refused=Exit.FAILED,
        operation={"action": "cancel", "reason": reason},
    )
    return await operate(call, verb, lambda _: "cancelled")
