"""The grammar of `ff flow`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from flowfabric.cli import values
from flowfabric.cli.limit_commands import AddCommand

if TYPE_CHECKING:  # the parser calls this module
    from flowfabric.cli.parser import Commands, FfParser

# The words of model/flow.py and sdk/flow_run.py, which --help need not load.
STATUSES: Final = ("active", "completed", "failed", "cancelled")
POLICIES: Final = ("all", "pending", "only")


def add_flows(commands: Commands, add: AddCommand) -> None:
    """The command with its actions; without an action it lists."""
    flow = add(commands, "flow", "commands.flow:ls", "flows: executions that depend on each other")
    _list_options(flow)
    actions: Commands = flow.add_subparsers(
        metavar="ACTION", parser_class=type(flow), title="actions"
    )
    _list_options(add(actions, "ls", "commands.flow:ls", "list flows, newest first"), inner=True)
    show = add(actions, "show", "show.flow:show", "one flow, drawn with the states of its nodes")
    _flow(show)
    show.add_argument("--watch", action="store_true", help="redraw it until it has ended")
    show.add_argument("--all", action="store_true", help="a row for every node, also many alike")
    cancel = add(actions, "cancel", "commands.flow:cancel", "cancel a flow")
    _flow(cancel)
    cancel.add_argument(
        "--policy",
        choices=POLICIES,
        default="all",
        metavar="all|pending|only",
        help="all its nodes (default), those that have not begun, or the flow only",
    )
    cancel.add_argument("--reason", default="", metavar="TEXT", help="for the record")
    cancel.add_argument(
        "--wait", type=values.duration_ms, metavar="TIME", help="for the nodes of a large flow"
    )
    retry = add(
        actions, "retry", "commands.flow:retry", "run again what failed, and what that skipped"
    )
    _flow(retry)
    retry.add_argument("--reason", default="", metavar="TEXT", help="for the record")


def _flow(parser: FfParser) -> None:
    parser.add_argument(
        "id", type=values.reference, metavar="ID", help=f"of a flow or a member: {values.ID_HELP}"
    )


def _list_options(parser: FfParser, *, inner: bool = False) -> None:
    """The same before and after `ls`; what stands there must not reset what stood before it."""
    unset = argparse.SUPPRESS if inner else None
    parser.add_argument(
        "--status",
        choices=STATUSES,
        default=unset,
        metavar="STATUS",
        help="active, completed, failed or cancelled",
    )
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
