"""`ff priority`: move waiting work up or down."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser, add_list
from flowfabric.cli.many import Verb
from flowfabric.cli.operate import NOT_BEGUN, add_many, operate


def add_arguments(parser: FfParser) -> None:
    """Which executions."""
    add_list(
        parser,
        "words",
        str,
        least="+",
        metavar="ID… N",
        text=f"ids, then {limits.PRIORITY_MIN} to {limits.PRIORITY_MAX}; higher runs sooner",
    )
    add_many(parser)
    parser.set_defaults(handler=priority)


async def priority(call: Call) -> Exit:
    """Change the order among waiting executions."""
    *named, number = call.arguments.words
    new_priority = _priority(number)
    call.arguments.ids = [_reference(word) for word in named]

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.change_priority(execution_id=execution_id, new_priority=new_priority)

    verb = Verb(
        *("change the priority of", f"now of priority {new_priority}", NOT_BEGUN, change),
        operation={"action": "priority", "new_priority": new_priority},
    )
    return await operate(
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
