"""The audit of lines behind `ff doctor`: places against the executions that wait there."""

from __future__ import annotations

from collections.abc import Iterable

from flowfabric.engine.audit.limits import pages
from flowfabric.engine.unit.corrupt import readable
from flowfabric.kernel.order.line import line_key
from flowfabric.kernel.order.release import line_corrections
from flowfabric.kernel.repair import told
from flowfabric.model.execution import Execution
from flowfabric.model.line import LineRow, PlaceRow
from flowfabric.model.repair import Correction
from flowfabric.stores.base import Reader
from flowfabric.stores.tables import LINE_ROWS, PLACES, UNIQUES

Defect = tuple[str, str]  # the row, and what is wrong with it


async def audit_lines(reader: Reader) -> list[Defect]:
    """Wrong counts, places that nothing waits at, turns that are not passed on. Rows that cannot be
    decoded are reported elsewhere."""
    found: list[Defect] = []
    async for lines in pages(reader, LINE_ROWS):
        for line in lines:
            found += [(each.subject, told(each)) for each in await look_at_line(reader, line)]
    async for places in pages(reader, PLACES):
        keys = sorted({(each.namespace, each.serial_key) for each in places})
        known, spoiled = await readable(reader.peek_rows, LINE_ROWS, keys)
        lost = [key for key in keys if key not in known and key not in spoiled]
        found += [(f"line {'/'.join(key)}", "has places and no row") for key in lost]
    return found


async def audit_keys(reader: Reader) -> list[Defect]:
    """Unique keys of executions that have ended: the next submit takes them, so they only take
    room."""
    found: list[Defect] = []
    async for rows in pages(reader, UNIQUES):
        there = await reader.get(sorted({each.execution_id for each in rows}))
        for row in rows:
            execution = there.get(row.execution_id)
            if execution is None or (isinstance(execution, Execution) and execution.is_terminal):
                subject = f"unique key {row.namespace}/{row.execution_kind}/{row.unique_key}"
                found.append((subject, f"its execution {row.execution_id} has ended"))
    return found


async def is_wrong(reader: Reader, line: LineRow) -> bool:
    """Whether a line is to be set right."""
    return bool(await look_at_line(reader, line))


async def look_at_line(reader: Reader, line: LineRow) -> tuple[Correction, ...]:
    """What is wrong with one line."""
    places: list[PlaceRow] = []
    async for page in pages(reader, PLACES, LINE_ROWS.key_of(line)):
        places += page
    ids = [line.head_id, *(each.execution_id for each in places)]
    found = await reader.get(ids)
    known = {
        each: image if isinstance(image, Execution) else None
        for each in ids
        if (image := found.get(each)) is None or isinstance(image, Execution)
    }
    if line.head_id not in known:
        return ()  # whether a head that cannot be read has ended is unknown
    return line_corrections(line, known[line.head_id], places, known)


async def strays(reader: Reader, executions: Iterable[Execution]) -> list[Defect]:
    """Executions that wait for a turn which nothing will give them."""
    said = {
        (*key, each.line_place): each.execution_id
        for each in executions
        if each.is_behind and not each.is_terminal and (key := line_key(each)) is not None
    }
    known, spoiled = await readable(reader.peek_rows, PLACES, sorted(said))
    lost = [
        key
        for key, execution_id in said.items()
        if key not in spoiled and (key not in known or known[key].execution_id != execution_id)
    ]
    rows, odd = await readable(reader.peek_rows, LINE_ROWS, sorted({key[:2] for key in lost}))
    return [
        (said[key], f"waits for a turn in line {'/'.join(key[:2])}, which does not know it")
        for key in lost
        if key[:2] not in odd and (key[:2] not in rows or rows[key[:2]].head_id != said[key])
    ]
