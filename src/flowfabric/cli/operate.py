"""`ff cancel`, `retry`, `hold`, `release`, `revoke`, `priority`: change what is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, describe, exit_of
from flowfabric.cli.plain import plain
from flowfabric.cli.references import execution_of, executions_of
from flowfabric.cli.terminal import clean, mask
from flowfabric.engine.engine import Engine
from flowfabric.errors import (
    ContentionError,
    FlowFabricError,
    StoreUnavailable,
)
from flowfabric.model.results import AlreadySatisfied

_OPERATOR = "operator_override"  # the source that needs no fence

Change = Callable[[Engine, str], Awaitable[Any]]
Words = Callable[[Any], str]


async def cancel(call: Call) -> Exit:
    """Stop each; one that ended otherwise stays as it ended, which is exit code 1."""
    reason = call.arguments.reason or "cancelled from the command line"

    async def change(engine: Engine, execution_id: str) -> Any:
        return await engine.cancel_execution(
            execution_id=execution_id, reason=reason, source=_OPERATOR
        )

    return await _each(call, change, lambda _: "cancelled", refused=Exit.FAILED)


async def retry(call: Call) -> Exit:
    """Run each again from its beginning, its history kept."""

    async def change(engine: Engine, execution_id: str) -> Any:
        return await engine.replay_execution(
            execution_id=execution_id,
            requested_by="ff",
            reason=call.arguments.reason,
            cascade=call.arguments.cascade,
        )

    def words(reply: Any) -> str:
        return f"{reply.public_state.value.replace('_', ' ')} again (replay {reply.replay_count})"

    return await _each(call, change, words)


async def hold(call: Call) -> Exit:
    """Keep each from being claimed."""

    async def change(engine: Engine, execution_id: str) -> Any:
        return await engine.hold_execution(execution_id=execution_id, reason=call.arguments.reason)

    return await _each(call, change, lambda _: "held")


async def release(call: Call) -> Exit:
    """Let each go on."""

    async def change(engine: Engine, execution_id: str) -> Any:
        return await engine.release_execution(execution_id=execution_id)

    return await _each(call, change, lambda reply: f"released, {reply.public_state.value}")


async def revoke(call: Call) -> Exit:
    """Take the lease of each away."""
    reason = call.arguments.reason or "revoked from the command line"

    async def change(engine: Engine, execution_id: str) -> Any:
        return await engine.revoke_lease(execution_id=execution_id, reason=reason)

    def words(reply: Any) -> str:
        if isinstance(reply, AlreadySatisfied):
            return f"nothing to revoke ({reply.reason.replace('_', ' ')})"
        return "lease revoked; it is run again"

    return await _each(call, change, words)


async def priority(call: Call) -> Exit:
    """Change the order among what waits."""
    async with call.engine() as engine:
        reply = await engine.change_priority(
            execution_id=await execution_of(call, engine, call.arguments.id),
            new_priority=call.arguments.priority,
        )
    if call.terminal.as_json:
        call.terminal.document(plain(reply))
    else:
        change = f"priority {reply.old_priority} → {reply.new_priority}"
        call.terminal.line(f"{reply.execution_id}  {change}")
    return Exit.OK


async def _each(call: Call, change: Change, words: Words, *, refused: Exit = Exit.REFUSED) -> Exit:
    """One line per id. One that is refused does not keep the others; the first decides the exit."""
    code = Exit.OK
    documents = []
    async with call.engine() as engine:
        for execution_id in await executions_of(call, engine, call.arguments.ids):
            try:
                reply = await change(engine, execution_id)
            except StoreUnavailable:
                raise
            except FlowFabricError as error:
                ended = refused if isinstance(error, ContentionError) else exit_of(error)
                code = code or ended
                documents.append(_refusal(call, execution_id, error))
            else:
                documents.append({"execution_id": execution_id, "error": None} | plain(reply))
                if not call.terminal.as_json:
                    call.terminal.line(f"{execution_id}  {clean(words(reply))}")
    if call.terminal.as_json:
        call.terminal.document(documents)
    return code


def _refusal(call: Call, execution_id: str, error: FlowFabricError) -> dict[str, Any]:
    call.terminal.complain(f"{execution_id}: {describe(error)}")
    body = error.as_dict()
    return {"execution_id": execution_id, "error": body | {"detail": mask(body["detail"])}}
