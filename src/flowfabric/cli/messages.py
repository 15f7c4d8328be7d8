"""The message of a command line: its arguments, and how it is sent."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import usage
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.model.mailbox import Sent


def add_message(parser: FfParser) -> None:
    """Which execution, which mailbox, and what."""
    add_id(parser)
    parser.add_argument("mailbox", metavar="BOX", help="a mailbox; ff mail ID lists them")
    parser.add_argument(
        "inputs",
        nargs="*",
        type=values.argument,
        metavar="NAME=TEXT|NAME:=JSON",
        help="the message: an object with these fields",
    )
    parser.add_argument("--payload", metavar="JSON", help="the whole message, in their place")
    parser.add_argument("--key", metavar="KEY", help="repeated, it counts once")
    parser.add_argument("--by", default="", metavar="NAME", help="the name of the sender")


async def sent(call: Call, engine: EngineBackend, *, wants_reply: bool) -> tuple[str, Sent]:
    """Send it; to which execution, and what was told."""
    payload = _payload(call)  # refused before the store is asked
    snapshot = await named(call, engine)
    told: Sent = await engine.send_message(
        execution_id=snapshot.execution_id,
        mailbox=call.arguments.mailbox,
        payload=payload,
        sender=call.arguments.by,
        wants_reply=wants_reply,
        idempotency_key=call.arguments.key,
    )
    return snapshot.execution_id, told


def _payload(call: Call) -> bytes:
    whole, inputs = call.arguments.payload, call.arguments.inputs
    if whole is not None:
        if inputs:
            raise usage("--payload and fields", advice="give one of them")
        try:
            _, value = values.result(f"--payload={whole}")
        except ArgumentTypeError as error:
            raise usage(str(error), advice="nothing was sent") from None
        return _encoded(value)
    fields: dict[str, Any] = {}
    for name, value in inputs:
        if name in fields:
            raise usage(f"{name} is given twice", advice="give each once")
        fields[name] = value
    return _encoded(fields)


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
