"""The grammar of `ff budget` and `ff quota`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flowfabric.cli import values

if TYPE_CHECKING:  # the parser calls this module
    from flowfabric.cli.parser import Commands, FfParser

# The words of model/budget.py, which --help need not load.
HARD_WORDS: Final = ("deny", "block", "cancel_pending", "fail")
SOFT_WORDS: Final = ("warn", "ignore", "block")
MODES: Final = ("strict", "advisory")


class AddCommand(Protocol):
    """Adds a command to a group."""

    def __call__(self, commands: Commands, name: str, handler: str, text: str) -> FfParser:
        """The new command's parser."""
        ...


def add_limits(commands: Commands, add: AddCommand) -> None:
    """Both commands with their actions; without an action they list."""
    _add_budget(
        _actions(add(commands, "budget", "commands.budget:ls", "what may be spent, and what was")),
        add,
    )
    _add_quota(
        _actions(
            add(
                commands,
                "quota",
                "commands.quota:ls",
                "how many may start per window and run at once",
            )
        ),
        add,
    )


def _actions(group: FfParser) -> Commands:
    return group.add_subparsers(metavar="ACTION", parser_class=type(group), title="actions")


def _add_budget(actions: Commands, add: AddCommand) -> None:
    create = add(actions, "create", "commands.budget:create", "put a budget in force")
    _name(create)
    create.add_argument(
        "--scope", metavar="SCOPE", help="lane:L, namespace:N, execution:ID or flow:ID"
    )
    _policy(create)
    add(actions, "ls", "commands.budget:ls", "list budgets with their usage")
    _name(add(actions, "show", "commands.budget:show", "one budget: limits, usage, breaches"))
    change = add(
        actions, "set", "commands.budget:change", "change limits and what they do; 0 lifts one"
    )
    _name(change)
    _policy(change)
    increase = add(actions, "raise", "commands.budget:increase", "raise hard limits")
    _name(increase)
    increase.add_argument(
        "limits",
        nargs="+",
        type=values.raised,
        metavar="DIMENSION=N",
        help="the new limit, or +N for so much more",
    )
    _name(add(actions, "reset", "commands.budget:reset", "count from zero again"))


def _policy(parser: FfParser) -> None:
    for option, text in (("--hard", "never more than this"), ("--soft", "tell from here on")):
        parser.add_argument(
            option,
            action="append",
            default=[],
            type=values.limit,
            metavar="DIMENSION=N",
            help=f"{text} (repeat)",
        )
    parser.add_argument("--on-hard", choices=HARD_WORDS, help="at a hard limit (default: block)")
    parser.add_argument("--on-soft", choices=SOFT_WORDS, help="over a soft limit (default: warn)")
    parser.add_argument("--mode", choices=MODES, help="advisory: hard limits only warn")
    parser.add_argument(
        "--every", type=values.duration_ms, metavar="TIME", help="reset by itself; 0 for never"
    )


def _add_quota(actions: Commands, add: AddCommand) -> None:
    for name, handler, text in (
        ("create", "create", "put a quota in force"),
        ("set", "change", "change limits; 0 lifts one"),
    ):
        parser = add(actions, name, f"commands.quota:{handler}", text)
        _name(parser)
        parser.add_argument("--starts", type=values.number, metavar="N", help="starts per window")
        parser.add_argument(
            "--per", type=values.duration_ms, metavar="TIME", help="the window (default: 1m)"
        )
        parser.add_argument("--at-once", type=values.number, metavar="N", help="running at once")
        parser.add_argument(
            "--jitter", type=values.duration_ms, metavar="TIME", help="spread those told to wait"
        )
    add(actions, "ls", "commands.quota:ls", "list quotas")
    _name(add(actions, "show", "commands.quota:show", "one quota, and what each key uses of it"))


def _name(parser: FfParser) -> None:
    parser.add_argument("name", metavar="NAME")
