"""The logs of runs: appending lines, reading them, and waiting for what comes."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api import logs as api
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.log_reads import attempt_page, execution_page
from flowfabric.engine.operations.new_lines import lines_command
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.engine.operations.tailing import check_attempt, check_wait_s, tail
from flowfabric.engine.tails import Reached, Subject
from flowfabric.errors import InvalidCursor
from flowfabric.kernel.stream.log_lines import AppendLines
from flowfabric.model.checks import check_integer
from flowfabric.model.log_lines import LinePlace, LogPage, line_place_from
from flowfabric.stores.tables import RUN_LOGS


@commands(api.AppendLogs)
def append_logs(machine: Machine, request: api.AppendLogs) -> AppendLines:
    """By the owner."""
    return lines_command(machine.check_handle(request.handle), request.logs)


@answers(api.ReadLogs)
async def read_logs(machine: Machine, request: api.ReadLogs) -> LogPage:
    """At once where there is something to tell, else when it comes."""
    checked = machine.check_id(request.execution_id)
    wanted, after = request.attempt_index, line_place_from(request.after)
    if wanted is not None:
        after = _within(check_attempt(wanted), after, is_given=request.after is not None)
    limit = check_integer(request.limit, field="limit", least=1, most=limits.PAGE_MAX)
    read_page = execution_page if wanted is None else attempt_page

    async def read(place: Reached) -> tuple[LogPage, LinePlace]:
        page = await machine.read(
            lambda reader: read_page(reader, checked, LinePlace(*place), limit)
        )
        return page, line_place_from(page.next_cursor)

    subject = Subject(checked, wanted is None, RUN_LOGS)
    return await tail(machine, subject, after, check_wait_s(request.wait_ms), read)


def _within(attempt_index: int, place: LinePlace, *, is_given: bool) -> LinePlace:
    """The place in the log of one attempt; that of another is a mistake."""
    if not is_given:
        return LinePlace(attempt_index, 0)
    if place.attempt_index != attempt_index:
        detail = f"after: {place} is not in the log of attempt {attempt_index}"
        raise InvalidCursor(detail, field="after")
    return place
