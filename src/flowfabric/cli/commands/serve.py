"""`ff serve`: the operations over HTTP, and the background work, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import logging
from argparse import BooleanOptionalAction
from pathlib import Path
from typing import Any, Final

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.logs import write_logs
from flowfabric.cli.serving import Serving, check_installed, logs_as_json, server_for
from flowfabric.cli.serving_many import ServingMany
from flowfabric.cli.show.terminal import Column, mask
from flowfabric.cli.stopping import stopping_on_signals
from flowfabric.config import own_variables
from flowfabric.server.lines import about_request
from flowfabric.server.settings import SETTINGS, Form, ServerSettings
from flowfabric.server.sources import DEFAULT_FILE, Chosen, choose, unknown_variables, written

_COLUMNS: Final = (Column("SETTING"), Column("VALUE"), Column("FROM"))
_METAVARS: Final = {Form.DURATION: "TIME", Form.COUNT: "N", Form.WORDS: "A,B"}


def add_arguments(parser: FfParser) -> None:
    """A flag for each setting, and what is about all of them."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"settings (default: {DEFAULT_FILE}, if any)"
    )
    parser.add_argument(
        "--print-config", action="store_true", help="show the settings in force, and stop"
    )
    parser.add_argument(
        "--migrate", action="store_true", help="bring the schema of the store up to date first"
    )
    parser.add_argument(
        "--workers",
        type=values.whole_number,
        default=1,
        metavar="N",
        help="processes that share the socket (more than one: on PostgreSQL only)",
    )
    group = parser.add_argument_group(
        "settings", f"also FLOWFABRIC_SERVER_… and keys of [server] in {DEFAULT_FILE}"
    )
    for key, setting in SETTINGS.items():
        option, text = f"--{key.replace('_', '-')}", setting.about.text.replace("`", "")
        if setting.about.form is Form.FLAG:
            group.add_argument(option, action=BooleanOptionalAction, default=None, help=text)
        else:
            metavar = "|".join(setting.about.words) or _METAVARS.get(setting.about.form, "TEXT")
            group.add_argument(option, metavar=metavar, help=text)
    parser.set_defaults(handler=serve)


async def serve(call: Call) -> Exit:
    """Serve until stopped; then answer what is in flight."""
    arguments = call.arguments
    call.require_store("ff serve")
    chosen = choose(vars(arguments), own_variables(), arguments.config)
    for warning in unknown_variables(own_variables()):
        call.terminal.complain(warning)
    if arguments.print_config:
        _print(call, chosen)
        return Exit.OK
    check_installed(chosen.settings)
    if not arguments.migrate:
        call.refuse_missing_file()
    settings = chosen.settings
    form = "json" if logs_as_json(settings, call.terminal) else "text"
    level = logging.DEBUG if arguments.debug else getattr(logging, settings.log_level.upper())
    write_logs(call.terminal.err, level=level, form=form, about=about_request)
    if arguments.workers > 1:
        return await _serve_by_many(call, settings)
    serving = Serving(call, server_for(call, settings), migrate=arguments.migrate)
    with stopping_on_signals(serving.hung_up) as stops:
        await serving.run(stops)
    return Exit.OK


async def _serve_by_many(call: Call, settings: ServerSettings) -> Exit:
    if not call.url.startswith(("postgres://", "postgresql://")):
        raise usage(
            f"--workers {call.arguments.workers} needs PostgreSQL: a file has one server",
            advice="leave it out, or name a database with --url",
        )
    serving = ServingMany(call, settings, call.arguments.workers, migrate=call.arguments.migrate)
    with stopping_on_signals(serving.hung_up) as stops:
        return await serving.run(stops)


def _print(call: Call, chosen: Chosen) -> None:
    """The settings in force, and where each comes from."""
    rows: list[tuple[str, Any, str]] = [("url", mask(call.url), call.source_of_url)]
    for key, setting in SETTINGS.items():
        value = getattr(chosen.settings, setting.field)
        rows.append((key, mask(written(setting, value)), chosen.sources[key]))
    if call.terminal.as_json:
        found = {name: {"value": value, "source": source} for name, value, source in rows}
        call.terminal.document(found)
        return
    call.terminal.table(_COLUMNS, [(name, value or "-", source) for name, value, source in rows])
