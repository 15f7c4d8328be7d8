"""The grammar of the command line: every command, its options and the function that serves it.

Handlers are named, not imported: `ff --help` loads nothing that talks to a store.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from flowfabric.cli import values
from flowfabric.cli.exits import EXIT_MEANINGS, usage
from flowfabric.cli.flow_commands import add_flows
from flowfabric.cli.limit_commands import add_limits
from flowfabric.cli.operate_commands import add_filters, add_operating
from flowfabric.cli.wait_commands import add_waits

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


class FfParser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line and name the nearest word."""

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


if TYPE_CHECKING:  # argparse has no public name for it, and at run time no type arguments
    Commands = argparse._SubParsersAction[FfParser]


def build_parser() -> FfParser:
    parser = FfParser(
        prog="ff",
        description="FlowFabric: durable execution. Run, see and operate it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        parents=[_common(None)],
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=FfParser, title="commands")
    _add_running(commands)
    _add_reading(commands)
    add_operating(commands, _command)
    _add_places(commands)
    _add_keeping(commands)
    add_flows(commands, _command)
    add_limits(commands, _command)
    add_waits(commands, _command)
    return parser


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # rarely needed

    try:
        return f"ff {version('flowfabric')}"
    except PackageNotFoundError:
        return "ff (not installed)"


def _common(default: Any, *, many_tenants: bool = False) -> FfParser:
    """The options every command takes. After the command they must not reset those before it."""
    common = FfParser(add_help=False)
    group = common.add_argument_group("common options")
    group.add_argument(
        "--url",
        default=default,
        metavar="URL",
        help="the store; else FLOWFABRIC_URL, else sqlite:///flowfabric.db",
    )
    if many_tenants:
        group.add_argument(
            "--namespace",
            dest="namespaces",
            action="append",
            metavar="NAME",
            help="serve this tenant (repeat; default: the app's own)",
        )
    else:
        group.add_argument(
            "--namespace", default=default, metavar="NAME", help="the tenant (default: default)"
        )
    flag = False if default is None else default
    group.add_argument("--json", action="store_true", default=flag, help="one JSON document")
    group.add_argument("--no-color", action="store_true", default=flag, help="no colours")
    group.add_argument("--debug", action="store_true", default=flag, help="show tracebacks")
    return common


def _command(
    commands: Commands, name: str, handler: str, text: str, *, many_tenants: bool = False
) -> FfParser:
    parser: FfParser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        allow_abbrev=False,
        parents=[_common(argparse.SUPPRESS, many_tenants=many_tenants)],
    )
    parser.set_defaults(handler=f"flowfabric.cli.{handler}", parser=parser, command=name)
    return parser


def _list_of(
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


def _add_running(commands: Commands) -> None:
    worker = _command(
        commands,
        "worker",
        "commands.worker:worker",
        "run a worker until Ctrl-C or SIGTERM",
        many_tenants=True,
    )
    worker.add_argument("app", metavar="MODULE:APP", help="where the Fabric is, e.g. app:ff")
    worker.add_argument(
        "--concurrency", type=values.whole_number, metavar="N", help="executions at once"
    )
    worker.add_argument(
        "--lane", action="append", metavar="LANE", help="serve this lane (repeat; default: its own)"
    )
    worker.add_argument(
        "--capability", action="append", metavar="WORD", help="offer this capability (repeat)"
    )
    worker.add_argument(
        "--lease-ttl", type=values.duration_ms, metavar="TIME", help="how soon a crash is noticed"
    )
    worker.add_argument(
        "--drain-timeout", type=values.duration_ms, metavar="TIME", help="to finish when stopped"
    )
    worker.add_argument("--quiet", action="store_true", help="log warnings only")
    worker.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="for people or machines"
    )
    _add_submit(commands)


def _add_submit(commands: Commands) -> None:
    submit = _command(commands, "submit", "commands.submit:submit", "create an execution")
    submit.add_argument("kind", metavar="KIND", help="the name of the task")
    _list_of(
        submit,
        "payload",
        values.argument,
        least="*",
        metavar="ARGUMENT",
        text="name=text or name:=json",
    )
    submit.add_argument("--key", metavar="KEY", help="idempotency key: the same key runs once")
    submit.add_argument("--priority", type=values.integer, metavar="N", help="higher runs sooner")
    begin = submit.add_mutually_exclusive_group()
    begin.add_argument("--delay", type=values.duration_ms, metavar="TIME", help="start in 10m")
    begin.add_argument(
        "--start-at", type=values.instant, metavar="WHEN", help="not before 2026-11-16T08:00"
    )
    submit.add_argument("--lane", default="default", metavar="LANE", help="default: default")
    submit.add_argument(
        "--tag", action="append", type=values.tag, default=[], metavar="K=V", help="repeat"
    )
    submit.add_argument(
        "--needs", action="append", default=[], metavar="WORD", help="needed capability (repeat)"
    )
    submit.add_argument(
        "--budget", action="append", default=[], metavar="NAME", help="spends from it (repeat)"
    )
    submit.add_argument("--quota", metavar="NAME", help="admitted under this quota")
    submit.add_argument(
        "--concurrency-key", metavar="KEY", help="the quota's limits hold for each key by itself"
    )
    submit.add_argument(
        "--retries", type=values.number, metavar="N", help="tries after the first fails"
    )
    submit.add_argument("--wait", action="store_true", help="wait for the result and print it")
    submit.add_argument(
        "--timeout", type=values.duration_ms, metavar="TIME", help="longest wait (with --wait)"
    )


def _add_reading(commands: Commands) -> None:
    ps = _command(commands, "ps", "commands.ps:ps", "list executions, newest first")
    add_filters(ps)
    ps.add_argument("--text", metavar="WORDS", help="found in kind, lane, tags or reasons")
    ps.add_argument(
        "--limit", type=values.whole_number, default=50, metavar="N", help="rows (default 50)"
    )
    ps.add_argument("--cursor", metavar="CURSOR", help="go on where a listing stopped")
    ps.add_argument("--all", action="store_true", help="every page")
    values.add_wide(ps)
    show = _command(commands, "show", "commands.show:show", "everything about one execution")
    _one_id(show)
    why = _command(commands, "why", "commands.show:why", "why is this not running?")
    _one_id(why)
    result = _command(
        commands, "result", "commands.show:result", "print the result of an execution"
    )
    _one_id(result)
    result.add_argument(
        "--wait",
        type=values.duration_ms,
        nargs="?",
        const=None,
        default=0,
        metavar="TIME",
        help="wait for it, so long at most",
    )
    result.add_argument("--raw", action="store_true", help="the stored bytes, unchanged")


def _one_id(parser: FfParser) -> None:
    parser.add_argument("id", type=values.reference, metavar="ID", help=values.ID_HELP)


def _add_places(commands: Commands) -> None:
    lanes = _command(commands, "lanes", "commands.lanes:lanes", "list lanes, switch or set one")
    lanes.add_argument(
        "action",
        nargs="?",
        choices=("pause", "resume", "drain", "disable", "set"),
        metavar="pause|resume|drain|disable|set",
        help="pause: take work, hand none out; drain: the reverse; disable: neither",
    )
    lanes.add_argument("lane", nargs="?", metavar="LANE")
    lanes.add_argument("--reason", default="", metavar="TEXT", help="for the record")
    lanes.add_argument("--weight", type=values.whole_number, metavar="N", help="set: its part")
    lanes.add_argument(
        "--aging",
        type=values.duration_ms,
        metavar="TIME",
        help="set: so much waiting outweighs one step of priority; 0 for never",
    )
    lanes.add_argument(
        "--budget", action="append", metavar="NAME", help="set: new work spends from it (repeat)"
    )
    lanes.add_argument("--no-budget", action="store_true", help="set: from none")
    lanes.add_argument("--quota", metavar="NAME", help="set: new work is admitted under it")
    lanes.add_argument("--no-quota", action="store_true", help="set: under none")
    _command(commands, "workers", "commands.lanes:workers", "list live workers")


def _add_keeping(commands: Commands) -> None:
    db = _command(commands, "db", "commands.db:db", "the database schema: migrate, check, print")
    db.add_argument(
        "action",
        choices=("migrate", "check", "sql"),
        metavar="migrate|check|sql",
        help="migrate: bring it up to date; check: compare; sql: print the statements",
    )
    bench = _command(commands, "bench", "commands.db:bench", "measure this machine")
    bench.add_argument(
        "scenario",
        type=values.scenario,
        choices=("cycle", "worker", "latency"),
        metavar="cycle|worker|latency",
    )
    bench.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    bench.add_argument("--n", type=values.whole_number, metavar="N", help="executions")
    completion = _command(
        commands, "completion", "commands.completion:completion", "print a script for your shell"
    )
    completion.add_argument(
        "what",
        choices=("bash", "zsh", "fish", "lanes", "kinds", "budgets", "quotas"),
        metavar="bash|zsh|fish",
        help="the shell; its script also asks for lanes, kinds, budgets and quotas",
    )
    doctor = _command(
        commands,
        "doctor",
        "commands.doctor:doctor",
        "check store, schema, indexes, values and stuck rows",
    )
    doctor.add_argument(
        "--quick", action="store_true", help="leave out the checks that read every row"
    )
    _command(commands, "version", "commands.db:version", "versions of this program and its parts")
