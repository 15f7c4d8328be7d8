"""Changing executions, one by one by id, or all that filters select (`many`): the shared part of
the commands that do so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, describe, exit_of, usage
from flowfabric.cli.grammar import FfParser, add_list
from flowfabric.cli.many import Verb, add_filters, change_chosen, is_chosen
from flowfabric.cli.references import executions_of
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import clean, mask
from flowfabric.errors import (
    ContentionError,
    FlowFabricError,
    StoreUnavailable,
)
from flowfabric.model.state import PublicState

Words = Callable[[Any], str]
# The states meant by a command about waiting work, when none is named.
NOT_BEGUN: Final = (
    PublicState.WAITING,
    PublicState.DELAYED,
    PublicState.RATE_LIMITED,
    PublicState.WAITING_CHILDREN,
)


def add_ids(parser: FfParser, *, least: str) -> None:
    """The executions by their names."""
    add_list(parser, "ids", values.reference, least=least, metavar="ID", text=values.ID_HELP)


def add_many(parser: FfParser) -> None:
    """Filters instead of ids, and the confirmation that comes with them."""
    add_filters(parser)
    parser.add_argument("--all", action="store_true", help="all that it makes sense for")
    parser.add_argument("--dry-run", action="store_true", help="only count them")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--no-wait", action="store_true", help="above 1,000: leave it to engines, see ff operations"
    )


async def operate(call: Call, verb: Verb, words: Words) -> Exit:
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
    return await each(call, verb, words)


async def each(call: Call, verb: Verb, words: Words) -> Exit:
    """One line per id. A refusal does not stop the others; the first decides the exit code."""
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
