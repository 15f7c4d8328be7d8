"""`ff workers`: the live workers."""

from __future__ import annotations

from typing import Final

from flowfabric.api.page import every_item
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column
from flowfabric.cli.show.times import relative
from flowfabric.limits import PAGE_MAX
from flowfabric.model.worker import Worker

_COLUMNS: Final = (
    Column("WORKER"),
    Column("INSTANCE", shrinks=True),
    Column("NAMESPACE", shrinks=True),
    Column("LANES", shrinks=True),
    Column("CAPABILITIES", shrinks=True),
    Column("KINDS", shrinks=True),
    Column("SEEN"),
    Column("SINCE"),
)


def add_arguments(parser: FfParser) -> None:
    """Only the arguments that every command takes."""
    parser.set_defaults(handler=workers)


async def workers(call: Call) -> Exit:
    """Every worker with a recent heartbeat."""
    namespace = call.arguments.namespace
    async with call.engine() as engine:
        now = await engine.server_time_ms()
        found = await every_item(
            lambda at: engine.list_workers(namespace=namespace, cursor=at, limit=PAGE_MAX)
        )
    if call.terminal.as_json:
        call.terminal.document(plain(found))
    elif not found:
        call.terminal.note("no live workers: start one with ff worker MODULE:APP")
    else:
        call.terminal.table(_COLUMNS, [_row(worker, now) for worker in found])
    return Exit.OK


def _row(worker: Worker, now: int) -> tuple[object, ...]:
    return (
        worker.worker_id,
        worker.worker_instance_id,
        worker.namespace,
        ", ".join(worker.lanes),
        ", ".join(worker.capabilities) or "-",
        "all" if worker.kinds is None else ", ".join(worker.kinds),
        relative(worker.last_heartbeat_at, now),
        relative(worker.registered_at, now),
    )
