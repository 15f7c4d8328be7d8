"""`ff cancel`, `retry`, `hold`, `release`, `revoke`, `priority`: change executions, one by one as
they are named, or all that filters choose (`many`)."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, describe, exit_of, usage
from flowfabric.cli.many import Verb, change_chosen, is_chosen
from flowfabric.cli.references import executions_of
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import clean, mask
from flowfabric.errors import (
    ContentionError,
    FlowFabricError,
    StoreUnavailable,
)
from flowfabric.model.results import AlreadySatisfied
from flowfabric.model.state import PublicState
from flowfabric.sdk.selecting import LOST, UNFINISHED

_OPERATOR: Final = "operator_override"  # the source that needs no fence
_NOT_BEGUN: Final = (
    PublicState.WAITING,
    PublicState.DELAYED,
    PublicState.RATE_LIMITED,
    PublicState.WAITING_CHILDREN,
)

Words = Callable[[Any], str]


async def cancel(call: Call) -> Exit:
    """Stop each; one that ended otherwise stays as it ended, which is exit code 1."""
    reason = call.arguments.reason or "cancelled from the command line"

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.cancel_execution(
            execution_id=execution_id, reason=reason, source=_OPERATOR
        )

    verb = Verb("cancel", "cancelled", UNFINISHED, change, refused=Exit.FAILED)
    return await _operate(call, verb, lambda _: "cancelled")


async def retry(call: Call) -> Exit:
    """Run each again from its beginning, its history kept."""

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.replay_execution(
            execution_id=execution_id,
            requested_by="ff",
            reason=call.arguments.reason,
            cascade=call.arguments.cascade,
        )

    def words(reply: Any) -> str:
        return f"{reply.public_state.value.replace('_', ' ')} again (replay {reply.replay_count})"

    return await _operate(call, Verb("retry", "to be run again", LOST, change), words)


async def hold(call: Call) -> Exit:
    """Keep each from being claimed."""

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.hold_execution(execution_id=execution_id, reason=call.arguments.reason)

    return await _operate(call, Verb("hold", "held", _NOT_BEGUN, change), lambda _: "held")


async def release(call: Call) -> Exit:
    """Let each go on."""

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.release_execution(execution_id=execution_id)

    verb = Verb("release", "released", (PublicState.WAITING,), change)
    return await _operate(call, verb, lambda reply: f"released, {reply.public_state.value}")


async def priority(call: Call) -> Exit:
    """Change the order among what waits."""
    *named, number = call.arguments.words
    new_priority = _priority(number)
    call.arguments.ids = [_reference(word) for word in named]

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.change_priority(execution_id=execution_id, new_priority=new_priority)

    verb = Verb("change the priority of", f"now of priority {new_priority}", _NOT_BEGUN, change)
    return await _operate(
        call, verb, lambda reply: f"priority {reply.old_priority} → {reply.new_priority}"
    )


def _priority(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise usage(
            f"{text!r:.80} is not a priority: the last word is its number",
            advice="ff priority ID 5, or ff priority 5 --kind KIND",
        ) from None


def _reference(text: str) -> str:
    try:
        return values.reference(text)
    except ArgumentTypeError as error:
        raise usage(str(error), advice="see ff priority --help") from None


async def revoke(call: Call) -> Exit:
    """Take the lease of each away."""
    reason = call.arguments.reason or "revoked from the command line"

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.revoke_lease(execution_id=execution_id, reason=reason)

    def words(reply: Any) -> str:
        if isinstance(reply, AlreadySatisfied):
            return f"nothing to revoke ({reply.reason.replace('_', ' ')})"
        return "lease revoked; it is run again"

    return await _each(call, Verb("revoke", "revoked", (), change), words)


async def _operate(call: Call, verb: Verb, words: Words) -> Exit:
    """By ids or by filters, never by both."""
    by_filter = is_chosen(call.arguments)
    name = call.arguments.command
    if call.arguments.ids and by_filter:
        raise usage("ids and filters: give one of them", advice=f"see ff {name} --help")
    if by_filter:
        return await change_chosen(call, verb)
    if not call.arguments.ids:
        raise usage(
            "name executions, or what they have in common",
            advice=f"ff {name} ID…, ff {name} --state STATE --kind KIND --since 1h, or --all",
        )
    if call.arguments.dry_run:
        raise usage("--dry-run counts what filters choose", advice="leave it out, or the ids")
    return await _each(call, verb, words)


async def _each(call: Call, verb: Verb, words: Words) -> Exit:
    """One line per id. One that is refused does not keep the others; the first decides the exit."""
    code = Exit.OK
    documents = []
    async with call.engine() as engine:
        for execution_id in await executions_of(call, engine, call.arguments.ids):
            try:
                reply = await verb.change(engine, execution_id)
            except StoreUnavailable:
                raise
            except FlowFabricError as error:
                ended = verb.refused if isinstance(error, ContentionError) else exit_of(error)
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
