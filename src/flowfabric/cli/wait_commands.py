"""The grammar of `ff waits` and `ff keys`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from flowfabric.cli import values
from flowfabric.cli.limit_commands import AddCommand

if TYPE_CHECKING:  # the parser calls this module
    from flowfabric.cli.parser import Commands, FfParser


def add_waits(commands: Commands, add: AddCommand) -> None:
    """Both commands with their actions; without an action they list."""
    waits = add(commands, "waits", "commands.waits:ls", "what suspended executions wait for")
    _list_options(waits)
    _add_waits(_actions(waits), add)
    keys = add(commands, "keys", "commands.keys:ls", "the keys that sign waitpoint tokens")
    _add_keys(_actions(keys), add)


def _actions(group: FfParser) -> Commands:
    return group.add_subparsers(metavar="ACTION", parser_class=type(group), title="actions")


def _add_waits(actions: Commands, add: AddCommand) -> None:
    listing = add(actions, "ls", "commands.waits:ls", "list what waits, newest first")
    _list_options(listing, inner=True)
    show = add(actions, "show", "commands.waits:show", "one execution: its waits, past and present")
    _execution(show)
    for name, text in (
        ("approve", "say yes in somebody's name"),
        ("reject", "say no in somebody's name"),
    ):
        decide = add(actions, name, f"commands.waits:{name}", text)
        _execution(decide)
        _key(decide)
        decide.add_argument("--by", required=True, metavar="NAME", help="who decides")
        decide.add_argument("--comment", metavar="TEXT", help="arrives as its payload")
        _payload(decide)
    _add_signal(add(actions, "signal", "commands.waits:send", "send any signal"))
    link = add(
        actions, "link", "commands.waits:link", "print the link of a wait; it is a credential"
    )
    _execution(link)
    _key(link)
    resume = add(actions, "resume", "commands.waits:resume", "end a wait whatever it waits for")
    _execution(resume)
    resume.add_argument("--by", default="operator", metavar="NAME", help="for the record")


def _add_signal(send: FfParser) -> None:
    send.add_argument(
        "target", metavar="ID|LINK|-", help="the execution, or a link; - reads a link from stdin"
    )
    send.add_argument("word", metavar="KEY|NAME", help="with an id its key; with a link the name")
    send.add_argument("--name", metavar="NAME", help="the signal's name (default: the key)")
    send.add_argument("--by", metavar="SOURCE", help="user:ada, service:crm, or just ada")
    send.add_argument("--idempotency-key", metavar="KEY", help="the same key counts once")
    _payload(send)


def _list_options(parser: FfParser, *, inner: bool = False) -> None:
    """The same before and after `ls`; what stands there must not reset what stood before it."""
    unset = argparse.SUPPRESS if inner else None
    parser.add_argument("--lane", default=unset, metavar="LANE")
    parser.add_argument("--kind", default=unset, metavar="KIND")
    parser.add_argument(
        "--limit",
        type=values.whole_number,
        default=argparse.SUPPRESS if inner else 50,
        metavar="N",
        help="rows (default 50)",
    )
    parser.add_argument(
        "--cursor", default=unset, metavar="CURSOR", help="go on where a listing stopped"
    )
    values.add_wide(parser, default=argparse.SUPPRESS if inner else False)


def _add_keys(actions: Commands, add: AddCommand) -> None:
    add(actions, "ls", "commands.keys:ls", "list keys; secrets are never shown")
    rotate = add(actions, "rotate", "commands.keys:rotate", "sign with a new key from now on")
    rotate.add_argument("--kid", metavar="NAME", help="of the new key (default: the next number)")
    rotate.add_argument(
        "--grace",
        type=values.duration_ms,
        metavar="TIME",
        help="how long tokens of the old key are still good (default 1d)",
    )
    rotate.add_argument(
        "--secret-file", metavar="FILE", help="the new secret in hex, - for stdin (default: random)"
    )


def _execution(parser: FfParser) -> None:
    parser.add_argument("id", type=values.reference, metavar="ID", help=values.ID_HELP)


def _key(parser: FfParser) -> None:
    parser.add_argument("key", metavar="KEY", help="what it waits on: ff waits show ID tells")


def _payload(parser: FfParser) -> None:
    parser.add_argument(
        "payload",
        nargs="*",
        type=values.argument,
        default=[],
        metavar="FIELD",
        help="the payload's fields: name=text or name:=json",
    )
    parser.set_defaults(rest=("payload", values.argument))
    parser.add_argument("--payload", dest="body", metavar="JSON", help="the whole payload instead")
