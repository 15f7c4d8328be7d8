"""The grammar of `ff ps` filters and of the commands that change executions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowfabric import limits
from flowfabric.cli import values
from flowfabric.cli.limit_commands import AddCommand

if TYPE_CHECKING:  # the parser calls this module
    from flowfabric.cli.parser import Commands, FfParser


def add_filters(parser: FfParser) -> None:
    """Which executions: the same for listing and for changing them."""
    group = parser.add_argument_group("which executions")
    group.add_argument(
        "--state", action="extend", type=values.states, default=[], metavar="STATE", help="a,b too"
    )
    group.add_argument("--lane", metavar="LANE", help="on this lane")
    group.add_argument("--kind", metavar="KIND", help="of this kind")
    group.add_argument("--tag", type=values.tag, metavar="K=V", help="with this tag")
    group.add_argument(
        "--since", type=values.ago_or_instant, metavar="TIME", help="1h, or 2026-11-16T08:00"
    )
    group.add_argument(
        "--before", type=values.ago_or_instant, metavar="TIME", help="created longer ago"
    )


def add_operating(commands: Commands, add: AddCommand) -> None:
    """Every command that takes ids or filters."""
    for name, text in (
        ("cancel", "cancel executions, whatever they are doing"),
        ("retry", "run finished executions again"),
        ("hold", "keep waiting executions from being claimed"),
        ("release", "end a hold"),
    ):
        parser = add(commands, name, f"operate:{name}", text)
        _ids(parser, least="*")
        if name != "release":
            _reason(parser)
        if name == "retry":
            parser.add_argument(
                "--cascade", action="store_true", help="in a flow: also what was skipped for it"
            )
        _many(parser)
    priority = add(commands, "priority", "operate:priority", "move waiting work up or down")
    priority.add_argument(
        "words",
        nargs="+",
        metavar="ID… N",
        help=f"ids, then {limits.PRIORITY_MIN} to {limits.PRIORITY_MAX}; higher runs sooner",
    )
    priority.set_defaults(rest=("words", str))
    _many(priority)
    revoke = add(
        commands,
        "revoke",
        "operate:revoke",
        "take the lease from the worker that has it; the work is run again",
    )
    _ids(revoke, least="+")
    _reason(revoke)


def _ids(parser: FfParser, *, least: str) -> None:
    """A list of positionals that options may interrupt."""
    parser.add_argument(
        "ids", nargs=least, type=values.reference, metavar="ID", help=values.ID_HELP
    )
    parser.set_defaults(rest=("ids", values.reference))


def _reason(parser: FfParser) -> None:
    parser.add_argument("--reason", default="", metavar="TEXT", help="for the record")


def _many(parser: FfParser) -> None:
    """Filters instead of ids, and the questions that come with them."""
    add_filters(parser)
    parser.add_argument("--all", action="store_true", help="all that it makes sense for")
    parser.add_argument("--dry-run", action="store_true", help="only count them")
    parser.add_argument("--yes", action="store_true", help="do not ask")
