"""`ff revoke`: revoke a lease."""

from __future__ import annotations

from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_reason
from flowfabric.cli.many import Verb
from flowfabric.cli.operate import add_ids, each
from flowfabric.model.results import AlreadySatisfied


def add_arguments(parser: FfParser) -> None:
    """Which executions."""
    add_ids(parser, least="+")
    add_reason(parser)
    parser.set_defaults(handler=revoke)


async def revoke(call: Call) -> Exit:
    """Revoke the lease of each."""
    reason = call.arguments.reason or "revoked from the command line"

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.revoke_lease(execution_id=execution_id, reason=reason)

    def words(reply: Any) -> str:
        if isinstance(reply, AlreadySatisfied):
            return f"nothing to revoke ({reply.reason.replace('_', ' ')})"
        return "lease revoked; it is run again"

    return await each(call, Verb("revoke", "revoked", (), change), words)
