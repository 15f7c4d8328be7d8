"""Versions of code, read from routes and journals; and executions that are moved to another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from flowfabric.api import code as api
from flowfabric.api.executions import ListExecutions
from flowfabric.api.page import Page, at_instant
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.execution_lists import find_page
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.kernel.execution.repin import Repin
from flowfabric.model.code import CodeUse, Repinned, check_version, pinned_version, repinned
from flowfabric.model.execution import Execution
from flowfabric.model.journal import PATCH_PREFIX, EntryKind, EntryMark
from flowfabric.model.state import TERMINAL_STATES, PublicState
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import ENTRY_MARKS, JOURNAL

_CODE: Final = Listing("list_code", at_instant)
_AT_ONCE: Final = 200  # journals of one page
_MARKERS_MAX: Final = 10_000  # of one page
_LIVE: Final = tuple(each.value for each in PublicState if each not in TERMINAL_STATES)
_MARKS: Final = by_key(JOURNAL).reading(ENTRY_MARKS)


@answers(api.ListCode)
async def list_code(machine: Machine, request: api.ListCode) -> Page[CodeUse]:
    """A page of live executions, with what the first entries of their journals say."""
    wanted = ListExecutions(
        namespace=request.namespace,
        execution_kind=request.execution_kind,
        states=_LIVE,
        limit=min(check_limit(request.limit), _AT_ONCE),
    )
    found, following = await find_page(machine, wanted, _CODE.place(request.cursor))

    async def work(reader: Reader) -> tuple[CodeUse, ...]:
        firsts = await _marks(reader, found, only_first=True)
        markers = await _marks(reader, found, only_first=False)
        return tuple(_use(each, firsts, markers) for each in found)

    return Page(await machine.read(work), _CODE.cursor(following))


async def _marks(
    reader: Reader, executions: Sequence[Execution], *, only_first: bool
) -> dict[str, list[EntryMark]]:
    """The first entry of each journal, or those that tell of changes."""
    where = [(each.execution_id, each.journal_index, each.chapter_index) for each in executions]
    marks: dict[str, list[EntryMark]] = defaultdict(list)
    if not where:
        return marks
    if only_first:
        search = Search(_MARKS, tuple(where), until=0)
    else:
        kind = (("kind", EntryKind.PATCH),)
        search = Search(_MARKS, tuple(where), only=kind, limit=_MARKERS_MAX)
    for row in await reader.search(search):
        marks[row.execution_id].append(row)
    return marks


def _use(
    execution: Execution,
    firsts: dict[str, list[EntryMark]],
    markers: dict[str, list[EntryMark]],
) -> CodeUse:
    key = execution.execution_id
    first = next(iter(firsts.get(key, ())), None)
    code = None if first is None else first.code
    return CodeUse(
        key,
        execution.execution_kind,
        execution.public_state,
        first is not None,
        pinned_version(execution.route),
        None if code is None else code.version,
        tuple(sorted({each.key.removeprefix(PATCH_PREFIX) for each in markers.get(key, ())})),
    )


@answers(api.RepinExecution)
async def repin_execution(machine: Machine, request: api.RepinExecution) -> Repinned:
    """Move one execution; its new route has to be known before."""
    key = machine.check_id(request.execution_id)
    command = Repin(
        execution_id=key,
        expected=check_version(request.expected, field="expected"),
        version=check_version(request.version, field="version"),
        actor=machine.actor(request.actor),
    )
    found = (await machine.read(lambda reader: reader.get((key,)))).get(key)
    if isinstance(found, Execution):
        await machine.known.ensure_routes((repinned(found.route, command.version),))
    reply: Repinned = await machine.execute(command)
    return reply
