"""The building blocks of every command's grammar."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

from flowfabric.cli import values
from flowfabric.cli.exits import Exit, usage

if TYPE_CHECKING:  # argparse has no public name for the first, and at run time no type arguments
    from flowfabric.cli.call import Call

    Commands = argparse._SubParsersAction["FfParser"]
    Handler = Callable[[Call], Exit | Awaitable[Exit]]


class FfParser(argparse.ArgumentParser):
    """An argument parser with one-line errors that name the nearest word."""

    def error(self, message: str) -> NoReturn:
        raise usage(message.removeprefix("argument "), advice=f"see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        what = "command" if isinstance(action, argparse._SubParsersAction) else "choice"
        advice = values.nearest(str(value), known) or f"one of {', '.join(known)}"
        raise usage(f"unknown {what} {value!r}", advice=advice)

    def actions(self) -> list[argparse.Action]:
        """Everything this command takes, in the order of its help."""
        return list(self._actions)

    def option_words(self) -> list[str]:
        """Every option this command knows."""
        return list(self._option_string_actions)


def add_command(commands: Commands, name: str, text: str) -> FfParser:
    """A command, or an action of one, with only its help loaded."""
    parser: FfParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False
    )
    parser.set_defaults(parser=parser, command=name)
    return parser


def add_actions(parser: FfParser) -> Commands:
    """The container of a command's actions."""
    return parser.add_subparsers(metavar="ACTION", parser_class=FfParser, title="actions")


def add_action(
    actions: Commands, name: str, handler: Handler, text: str, *, many_tenants: str | None = None
) -> FfParser:
    """One action and the function that serves it."""
    parser = add_command(actions, name, text)
    add_common(parser, many_tenants=many_tenants)
    parser.set_defaults(handler=handler)
    return parser


def add_common(
    parser: FfParser, default: Any = argparse.SUPPRESS, *, many_tenants: str | None = None
) -> None:
    """The options every command takes. After the command they must not reset those before it."""
    group = parser.add_argument_group("common options")
    group.add_argument(
        "--url",
        default=default,
        metavar="URL",
        help="the store or a server; else FLOWFABRIC_URL, else sqlite:///flowfabric.db",
    )
    if many_tenants is not None:
        group.add_argument(
            "--namespace",
            dest="namespaces",
            action="append",
            metavar="NAME",
            help=many_tenants,
        )
    else:
        group.add_argument(
            "--namespace", default=default, metavar="NAME", help="the tenant (default: default)"
        )
    group.add_argument(
        "--actor", default=default, metavar="NAME", help="for the audit trail (default: user@host)"
    )
    flag = False if default is None else default
    group.add_argument("--json", action="store_true", default=flag, help="one JSON document")
    group.add_argument("--no-color", action="store_true", default=flag, help="no colours")
    group.add_argument("--debug", action="store_true", default=flag, help="show tracebacks")


def add_list(
    parser: FfParser,
    name: str,
    convert: Callable[[str], Any],
    *,
    least: str,
    metavar: str,
    text: str,
) -> None:
    """A list of positionals that options may interrupt."""
    parser.add_argument(name, nargs=least, type=convert, metavar=metavar, help=text)
    parser.set_defaults(rest=(name, convert))


def add_id(parser: FfParser, text: str = values.ID_HELP) -> None:
    """The one execution or flow that a command is about."""
    parser.add_argument("id", type=values.reference, metavar="ID", help=text)


def add_reason(parser: FfParser) -> None:
    """The reason, for the record."""
    parser.add_argument("--reason", default="", metavar="TEXT", help="for the record")


def add_wide(parser: FfParser, *, default: Any = False) -> None:
    """The options of every listing."""
    parser.add_argument("--wide", action="store_true", default=default, help="full ids")


def add_page(parser: FfParser, *, inner: bool) -> None:
    """The size of a listing. The same before and after `ls` (`inner`): options after it must not
    reset those before it."""
    parser.add_argument(
        "--limit",
        type=values.whole_number,
        default=argparse.SUPPRESS if inner else 50,
        metavar="N",
        help="rows (default 50)",
    )
    parser.add_argument(
        "--cursor",
        default=argparse.SUPPRESS if inner else None,
        metavar="CURSOR",
        help="go on where a listing stopped",
    )
    add_wide(parser, default=argparse.SUPPRESS if inner else False)


def words_of(known: type[StrEnum]) -> tuple[str, ...]:
    """The choices of an enumeration of the model."""
    return tuple(word.value for word in known)
