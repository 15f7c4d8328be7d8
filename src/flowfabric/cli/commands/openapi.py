"""`ff openapi`: the HTTP API of a server of this release, for programs."""

from __future__ import annotations

from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser


def add_arguments(parser: FfParser) -> None:
    """Only the arguments that every command takes."""
    parser.set_defaults(handler=openapi)


def openapi(call: Call) -> Exit:
    """The document; it is JSON with and without --json."""
    from flowfabric.cli.commands.version import installed
    from flowfabric.server.routes.all import DESCRIPTION  # what `ff --help` needs no part of

    call.terminal.document(DESCRIPTION.document(installed("flowfabric") or "0"))
    return Exit.OK
