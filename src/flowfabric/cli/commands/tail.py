"""`ff tail`: what an execution shows while it runs."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.cli.show.plain import decoded
from flowfabric.model.stream import Frame, FrameKind, StreamPage

_PAGE = 500


def add_arguments(parser: FfParser) -> None:
    """The execution, and which of its frames."""
    add_id(parser)
    parser.add_argument(
        "--attempt", type=values.whole_number, metavar="N", help="only this one, from 1"
    )
    parser.add_argument("--follow", "-f", action="store_true", help="wait for more, until it ends")
    parser.add_argument(
        "--after", metavar="PLACE", help="read on after this place, as --json shows it"
    )
    parser.set_defaults(handler=tail)


async def tail(call: Call) -> Exit:
    """The frames, each as it comes; one JSON object on a line with --json."""
    async with call.engine() as engine:
        snapshot = await named(call, engine)
        after: str | None = call.arguments.after
        while True:
            page = await _page(call, engine, snapshot.execution_id, after)
            for frame in page.frames:
                _show(call, frame)
            after = page.next_cursor
            if page.closed_at is not None or not (page.frames or call.arguments.follow):
                return Exit.OK


async def _page(
    call: Call, engine: EngineBackend, execution_id: str, after: str | None
) -> StreamPage:
    wait_ms = limits.TAIL_MS_MAX if call.arguments.follow else 0
    if (attempt := call.arguments.attempt) is None:
        return await engine.read_execution_stream(
            execution_id=execution_id, after=after, limit=_PAGE, wait_ms=wait_ms
        )
    return await engine.tail_stream(
        execution_id=execution_id,
        attempt_index=attempt - 1,
        after=after or "0-0",
        count_limit=_PAGE,
        wait_ms=wait_ms,
    )


def _show(call: Call, frame: Frame) -> None:
    if call.terminal.as_json:
        place = frame.cursor if call.arguments.attempt is None else frame.id
        call.terminal.record(
            {
                "place": place,
                "attempt": frame.attempt_index + 1,
                "type": frame.frame_type,
                "mode": frame.mode.value,
                "at": frame.appended_at,
                "payload": decoded(frame.payload),
            }
        )
    elif frame.kind is FrameKind.STDERR:
        call.terminal.complain(frame.text.rstrip("\n"))
    else:
        call.terminal.stored(frame.text.rstrip("\n"))
