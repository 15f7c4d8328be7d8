"""The grammar of the command line as a whole.

A command is loaded when its word is on the command line: `ff --help` loads none.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from importlib import import_module
from typing import Final

from flowfabric.cli.commands import COMMANDS
from flowfabric.cli.exits import EXIT_MEANINGS
from flowfabric.cli.grammar import FfParser, add_command, add_common

_EXAMPLES: Final = """examples:
  ff worker app:ff                        run a worker for the tasks of app.py
  ff submit greet name=ada times:=3       text as name=text, JSON as name:=json
  ff ps --state failed --since 1h         what failed in the last hour
  ff why ID                               why is this not running?
  ff flow show ID --watch                 a flow, drawn live
"""
_EPILOG: Final = (
    _EXAMPLES
    + "\nexit codes:\n"
    + "\n".join(f"  {code.value:<4}{meaning}" for code, meaning in EXIT_MEANINGS.items())
)


def build_parser(words: Collection[str] | None = None) -> FfParser:
    """Every command; given the words of a command line, only the named ones are loaded."""
    parser = FfParser(
        prog="ff",
        description="FlowFabric: durable execution. Run, see and operate it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_common(parser, None)
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=FfParser, title="commands")
    for each in COMMANDS:
        command = add_command(commands, each.word, each.text)
        if words is None or each.word in words:
            add_common(command, many_tenants=each.many_tenants)
            import_module(f"flowfabric.cli.commands.{each.word}").add_arguments(command)
    return parser


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # rarely needed

    try:
        return f"ff {version('flowfabric')}"
    except PackageNotFoundError:
        return "ff (not installed)"
