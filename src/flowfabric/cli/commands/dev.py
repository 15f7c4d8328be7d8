"""`ff dev MODULE:APP`: a server and a worker for a program that is being written."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, Final

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.commands.worker import names_of
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.logs import write_logs
from flowfabric.cli.reloading import Reloading
from flowfabric.cli.serving import Serving, check_installed, logs_as_json, server_for
from flowfabric.cli.stopping import Stops, first_of, stopping_on_signals
from flowfabric.config import own_variables
from flowfabric.server.sources import choose

_DRAIN_S: Final = 0.5  # for handlers: their executions are run again


def add_arguments(parser: FfParser) -> None:
    """Where the app is, and where the server listens."""
    parser.add_argument("app", metavar="MODULE:APP", help="where the Fabric is, e.g. app:ff")
    parser.add_argument(
        "--bind", metavar="HOST:PORT", help="where the server listens (default: 127.0.0.1:9090)"
    )
    parser.add_argument(
        "--concurrency", type=values.whole_number, metavar="N", help="executions at once"
    )
    parser.set_defaults(handler=dev)


async def dev(call: Call) -> Exit:
    """Until Ctrl-C: the server stays, the worker is replaced when its code changes."""
    call.require_store("ff dev")
    if call.url.startswith("memory:"):
        raise usage("ff dev needs a store that two processes can share", advice="name a file")
    names_of(call.arguments.app)
    settings = choose({"bind": call.arguments.bind}, own_variables(), None).settings
    check_installed(settings)
    form = "json" if logs_as_json(settings, call.terminal) else "text"
    level = logging.DEBUG if call.arguments.debug else logging.WARNING  # workers tell what is done
    write_logs(call.terminal.err, level=level, form=form)
    serving = Serving(call, server_for(call, settings), migrate=True, shows_login=True)
    given: dict[str, Any] = {
        "app": call.arguments.app,
        "url": call.url,
        "namespace": call.arguments.namespace,
        "concurrency": call.arguments.concurrency,
        "drain_s": _DRAIN_S,
        "parent": os.getpid(),
    }
    reloading = Reloading(given, call.terminal)
    with stopping_on_signals(serving.hung_up) as stops:
        working = asyncio.create_task(_worked(reloading, serving, stops))
        working.add_done_callback(lambda _: stops.asked.set())
        try:
            await serving.run(stops)
        finally:
            stops.asked.set()
            await working
    return Exit.OK


async def _worked(reloading: Reloading, serving: Serving, stops: Stops) -> None:
    """The worker, once the schema is there."""
    await first_of(serving.serves.wait(), stops.asked.wait())
    await reloading.run(stops)
