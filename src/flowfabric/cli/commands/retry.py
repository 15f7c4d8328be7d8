"""`ff retry`: run finished executions again."""

from __future__ import annotations

from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser, add_reason
from flowfabric.cli.many import Verb, is_chosen
from flowfabric.cli.operate import add_ids, add_many, operate
from flowfabric.cli.references import executions_of
from flowfabric.cli.show.plain import plain
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
    parser.add_argument(
        "--input",
        dest="inputs",
        action="append",
        type=values.argument,
        default=[],
        metavar="NAME=TEXT|NAME:=JSON",
        help="another argument, for a new execution (repeat)",
    )
    parser.add_argument("--key", help="with --input: the same key again is the same execution")
    add_many(parser)
    parser.set_defaults(handler=retry)


async def retry(call: Call) -> Exit:
    """Run each again, its history kept; one with a journal goes on by it."""
    given = call.arguments
    if given.inputs:
        return await _with_input(call)
    if given.key is not None:
        raise usage("--key: is for a new execution", advice="give it with --input")

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.replay_execution(
            execution_id=execution_id,
            requested_by="ff",
            reason=given.reason,
            cascade=given.cascade,
            fresh=given.fresh,
        )

    def words(reply: Any) -> str:
        return f"{reply.public_state.value.replace('_', ' ')} again (replay {reply.replay_count})"

    told = {"reason": given.reason, "cascade": given.cascade, "fresh": given.fresh}
    verb = Verb(*("retry", "to be run again", LOST, change), operation={"action": "retry", **told})
    return await operate(call, verb, words)


async def _with_input(call: Call) -> Exit:
    """A new execution, linked to the old one, which stays as it is."""
    given = call.arguments
    if len(given.ids) != 1 or is_chosen(given) or given.cascade or given.fresh:
        raise usage("--input is for one execution", advice="ff retry ID --input NAME=TEXT")
    arguments = values.by_name(given.inputs, "--input")
    async with call.engine() as engine:
        (execution_id,) = await executions_of(call, engine, given.ids)
        retried = await engine.retry_with_input(
            execution_id=execution_id,
            arguments=arguments,
            reason=given.reason,
            idempotency_key=given.key,
        )
    call.shown.remember("execution", [retried.execution_id], is_listing=False)
    if call.terminal.as_json:
        call.terminal.document(plain(retried))
    else:
        call.terminal.line(retried.execution_id)
        call.terminal.note("a new execution with another input; ff show tells where it is from")
    return Exit.OK
