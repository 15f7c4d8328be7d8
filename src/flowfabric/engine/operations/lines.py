"""Lines of serial keys: listing them, letting them go on, and setting them right."""

from __future__ import annotations

from typing import Final

from flowfabric import limits
from flowfabric.api import lines as api
from flowfabric.api.page import Page, at_number
from flowfabric.engine.audit.lines import is_wrong
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.errors import NotFound
from flowfabric.kernel.order.release import RecountLine, ReleaseLine
from flowfabric.model.checks import check_integer, check_name, check_text
from flowfabric.model.execution import Execution
from flowfabric.model.line import InLine, Line, LineRow
from flowfabric.model.repair import Correction, Repaired
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import LINE_ROWS, PLACES


def check_serial_key(value: object, *, field: str = "serial_key") -> str:
    """The key of a line."""
    return check_text(value, field=field, max_bytes=limits.IDEMPOTENCY_KEY_BYTES)


def _at_key(key: object) -> tuple[str]:
    return (check_serial_key(key, field="cursor"),)


_LINES: Final = Listing("list_lines", _at_key)
_LINE: Final = Listing("list_line", at_number)
_REPAIRS: Final = Listing("reconcile_lines", _at_key)


def _namespace(machine: Machine, value: str | None) -> str:
    return check_name(machine.config.namespace if value is None else value, field="namespace")


@answers(api.ListLines)
async def list_lines(machine: Machine, request: api.ListLines) -> Page[Line]:
    """By key."""
    limit, after = check_limit(request.limit), _LINES.place(request.cursor)
    namespace = _namespace(machine, request.namespace)
    search = Search(
        by_key(LINE_ROWS), ((namespace,),), after=after, limit=limit + 1, skips_corrupt=True
    )
    rows = await machine.read(lambda reader: reader.search(search)) if limit else []
    return _LINES.page(rows, limit, place_of=lambda row: (row.serial_key,), show=_shown)


def _shown(row: LineRow) -> Line:
    return Line(row.namespace, row.serial_key, row.head_id, row.waiting, row.held_at)


@answers(api.ListLine)
async def list_line(machine: Machine, request: api.ListLine) -> Page[InLine]:
    """By number; the head first."""
    limit, after = check_limit(request.limit), _LINE.place(request.cursor)
    key = (_namespace(machine, request.namespace), check_serial_key(request.serial_key))

    async def work(reader: Reader) -> list[InLine]:
        row = (await reader.peek_rows(LINE_ROWS, [key])).get(key)
        if row is None:
            if after is not None:
                return []
            raise NotFound(f"line {key[1]}", entity="line")
        search = Search(by_key(PLACES), (key,), after=after, limit=limit + 1, skips_corrupt=True)
        places = [(each.number, each.execution_id) for each in await reader.search(search)]
        if after is None or row.head_number > after[0]:
            places.insert(0, (row.head_number, row.head_id))
        found = await reader.get([each for _, each in places]) if places else {}
        return [
            InLine(
                number,
                execution_id,
                execution.execution_kind,
                execution.public_state,
                execution.last_transition_at,
            )
            for number, execution_id in places
            if isinstance(execution := found.get(execution_id), Execution)
        ]

    rows = await machine.read(work) if limit else []
    return _LINE.page(rows, limit, place_of=lambda each: (each.number,), show=lambda each: each)


@commands(api.ReleaseLine)
def release_line(machine: Machine, request: api.ReleaseLine) -> ReleaseLine:
    """The failed head loses the turn."""
    return ReleaseLine(
        namespace=_namespace(machine, request.namespace),
        serial_key=check_serial_key(request.serial_key),
    )


@answers(api.ReconcileLines)
async def reconcile_lines(machine: Machine, request: api.ReconcileLines) -> Repaired:
    """Lines by key, each in a transaction of its own."""
    limit = check_integer(request.limit, field="limit", least=1, most=limits.PAGE_MAX)
    actor, namespace = machine.actor(request.actor), _namespace(machine, request.namespace)
    after = _REPAIRS.place(request.cursor)
    if request.serial_key is not None:
        key = (namespace, check_serial_key(request.serial_key))
        named = await machine.read(lambda reader: reader.peek_rows(LINE_ROWS, [key]))
        rows = list(named.values())
    else:
        search = Search(
            by_key(LINE_ROWS), ((namespace,),), after=after, limit=limit, skips_corrupt=True
        )
        rows = await machine.read(lambda reader: reader.search(search))
    found: list[Correction] = []
    for row in rows:
        if await machine.read(lambda reader, row=row: is_wrong(reader, row)):  # type: ignore[misc]
            command = RecountLine(namespace=row.namespace, serial_key=row.serial_key, actor=actor)
            found += (await machine.execute_together([command]))[0]
    is_last = len(rows) < limit or request.serial_key is not None
    following = None if is_last else (rows[-1].serial_key,)
    return Repaired(len(rows), tuple(found), next_cursor=_REPAIRS.cursor(following))
