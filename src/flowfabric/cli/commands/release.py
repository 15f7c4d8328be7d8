"""`ff release`: end a hold."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.many import Verb
from flowfabric.cli.operate import add_ids, add_many, operate
from flowfabric.model.results import ExecutionSnapshot
from flowfabric.model.state import BlockingReason, PublicState

# What held them, and the states in which such executions are.
_REASONS: Final = {
    "operator": (PublicState.WAITING,),
    "mismatch": (PublicState.SUSPENDED,),
}


def add_arguments(parser: FfParser) -> None:
    """Which executions."""
    add_ids(parser, least="*")
    add_many(parser)
    parser.add_argument(
        "--reason",
        choices=tuple(_REASONS),
        default="operator",
        help="with filters: held by an operator, or because the code did not fit the journal",
    )
    parser.set_defaults(handler=release)


async def release(call: Call) -> Exit:
    """Release each."""

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.release_execution(execution_id=execution_id)

    reason = call.arguments.reason
    is_meant = _is_held if reason == "mismatch" else None
    operation = {"action": "release"}
    if is_meant is not None:
        operation["blocking_reason"] = BlockingReason.PAUSED_BY_POLICY
    verb = Verb(
        *("release", "released", _REASONS[reason], change),
        is_meant=is_meant,
        operation=operation,
    )
    return await operate(call, verb, lambda reply: f"released, {reply.public_state.value}")


def _is_held(snapshot: ExecutionSnapshot) -> bool:
    """Whether a worker held it; others wait for something else."""
    return snapshot.blocking_reason is BlockingReason.PAUSED_BY_POLICY
