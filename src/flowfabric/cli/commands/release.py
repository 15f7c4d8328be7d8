"""`ff release`: end a hold."""

from __future__ import annotations

from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.many import Verb
from flowfabric.cli.operate import add_ids, add_many, operate
from flowfabric.model.state import PublicState


def add_arguments(parser: FfParser) -> None:
    """Which executions."""
    add_ids(parser, least="*")
    add_many(parser)
    parser.set_defaults(handler=release)


async def release(call: Call) -> Exit:
    """Release each."""

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.release_execution(execution_id=execution_id)

    verb = Verb("release", "released", (PublicState.WAITING,), change)
    return await operate(call, verb, lambda reply: f"released, {reply.public_state.value}")
