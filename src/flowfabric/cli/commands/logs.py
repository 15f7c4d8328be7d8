"""`ff logs`: what the handler of an execution logged."""

from __future__ import annotations

from typing import Final

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.cli.show.terminal import clean, harmless
from flowfabric.cli.show.times import absolute
from flowfabric.model.log_lines import LogLine, LogPage

_PAGE: Final = 500
_STYLES: Final = {"warning": "yellow", "error": "red", "critical": "red", "debug": "dim"}


def add_arguments(parser: FfParser) -> None:
    """The execution, and which of its lines."""
    add_id(parser)
    parser.add_argument(
        "--attempt", type=values.whole_number, metavar="N", help="only this one, from 1"
    )
    parser.add_argument("--follow", "-f", action="store_true", help="wait for more, until it ends")
    parser.add_argument(
        "--after", metavar="PLACE", help="read on after this place, as --json shows it"
    )
    parser.set_defaults(handler=logs)


async def logs(call: Call) -> Exit:
    """The lines, each as it comes; one JSON object on a line with --json."""
    async with call.engine() as engine:
        snapshot = await named(call, engine)
        after: str | None = call.arguments.after
        attempt: int | None = call.arguments.attempt
        while True:
            page = await _page(call, engine, snapshot.execution_id, after)
            for line in page.lines:
                if line.attempt_index + 1 != attempt:
                    attempt = _begin(call, line, is_first=attempt is None)
                _show(call, line)
            call.terminal.out.flush()
            after = page.next_cursor
            if page.closed_at is not None or not (page.lines or call.arguments.follow):
                _tell_dropped(call, page)
                return Exit.OK


async def _page(call: Call, engine: EngineBackend, execution_id: str, after: str | None) -> LogPage:
    attempt = call.arguments.attempt
    return await engine.read_logs(
        execution_id=execution_id,
        attempt_index=None if attempt is None else attempt - 1,
        after=after,
        limit=_PAGE,
        wait_ms=limits.TAIL_MS_MAX if call.arguments.follow else 0,
    )


def _begin(call: Call, line: LogLine, *, is_first: bool) -> int:
    """Where lines of another attempt begin; the first one needs no word."""
    attempt = line.attempt_index + 1
    if not call.terminal.as_json and not (is_first and attempt == 1):
        call.terminal.line(call.terminal.paint(f"--- attempt {attempt}", "dim"))
    return attempt


def _show(call: Call, line: LogLine) -> None:
    if call.terminal.as_json:
        call.terminal.record(
            {
                "place": line.cursor,
                "attempt": line.attempt_index + 1,
                "at": line.at,
                "level": line.level_name,
                "logger": line.logger,
                "message": line.message,
            }
        )
        return
    level = call.terminal.paint(line.level_name.ljust(8), _STYLES.get(line.level_name))
    name = f"{clean(line.logger)}: " if line.logger else ""
    # Indented, so that no message passes for several lines.
    text = harmless(line.message).replace("\n", "\n    ")
    call.terminal.line(f"{absolute(line.at)} {level} {name}{text}")


def _tell_dropped(call: Call, page: LogPage) -> None:
    if page.dropped_count:
        call.terminal.note(
            f"{page.dropped_count} lines were dropped: a log has room for {limits.LOG_LINES_MAX} "
            f"lines and {limits.LOG_BYTES_MAX // 1024} KiB"
        )
