"""`ff version`: this program and the parts that differ from machine to machine."""

from __future__ import annotations

import platform
import sqlite3
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser


def add_arguments(parser: FfParser) -> None:
    """Only the arguments that every command takes."""
    parser.set_defaults(handler=version)


def version(call: Call) -> Exit:
    """This program and the parts that differ from machine to machine."""
    found = {
        "flowfabric": installed("flowfabric"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "asyncpg": installed("asyncpg"),
        "platform": platform.platform(),
    }
    if call.terminal.as_json:
        call.terminal.document(found)
    else:
        call.terminal.facts([(name, value or "not installed") for name, value in found.items()])
    return Exit.OK


def installed(name: str) -> str | None:
    try:
        return version_of(name)
    except PackageNotFoundError:
        return None
