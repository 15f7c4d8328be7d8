"""The line of an execution that waits for its turn, and its place among fair keys, read as
committed."""

from __future__ import annotations

from flowfabric.kernel.explain.lines import COUNTED_MAX, LineLook
from flowfabric.kernel.order.fair import queue_of
from flowfabric.kernel.order.line import line_key
from flowfabric.limits import FAIR_COUNTED_MAX
from flowfabric.model.execution import Execution
from flowfabric.model.fair import FairPhase
from flowfabric.model.state import BlockingReason
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import FAIR_TAGS, Search, by_key
from flowfabric.stores.tables import LINE_ROWS, PLACES


async def look_at_line(execution: Execution, reader: Reader) -> LineLook | None:
    """Its place and the head; None where it does not wait for its turn."""
    key = line_key(execution)
    is_told = execution.state.blocking_reason is not BlockingReason.WAITING_FOR_TURN
    if key is None or is_told:
        return None
    row = (await reader.peek_rows(LINE_ROWS, [key])).get(key)
    if row is None:
        return None
    until = execution.line_place - 1
    ahead = Search(by_key(PLACES), (key,), until=until, limit=COUNTED_MAX)
    between = len(await reader.search_keys(ahead))
    head = (await reader.get([row.head_id])).get(row.head_id)
    return LineLook(row, head if isinstance(head, Execution) else None, between)


async def fair_ahead(execution: Execution, reader: Reader) -> int | None:
    """How many ready executions with fair keys are before it in its queue, at most
    `FAIR_COUNTED_MAX`; None where it has no such place."""
    fair = execution.ties.fair
    if fair is None or not fair.tag or not execution.is_waiting:
        return None
    whose = (*queue_of(execution), FairPhase.READY)
    search = Search(FAIR_TAGS, (whose,), until=fair.tag - 1, limit=FAIR_COUNTED_MAX)
    return len(await reader.search_keys(search))
