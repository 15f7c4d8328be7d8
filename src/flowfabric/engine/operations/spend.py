"""Reads of what was spent: by executions from the ledger, by flows and kinds from their totals."""

from __future__ import annotations

from typing import Final

from flowfabric.api import budgets as api
from flowfabric.api.page import Page, at_name, at_names
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.errors import NotFound
from flowfabric.model.budget import KindSpent, LedgerRow, SpendScope, Spent, TotalRow
from flowfabric.model.checks import check_name, check_uuid
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import LEDGER_OF, Search, by_key
from flowfabric.stores.tables import FLOWS, TOTALS, Key


def _at_kind(kind: object, budget_id: object, dimension: object) -> tuple[str, str, str]:
    return *at_name(kind), *at_names(budget_id, dimension)


_KINDS: Final = Listing("list_spend", _at_kind)
_OF_ONE: Final = Listing("list_execution_spend", at_names)
_OF_FLOW: Final = Listing("list_flow_spend", at_names)


@answers(api.ListSpend)
async def list_spend(machine: Machine, request: api.ListSpend) -> Page[KindSpent]:
    """The totals of a tenant's kinds, or of one."""
    limit, after = check_limit(request.limit), _KINDS.place(request.cursor)
    prefix: Key = (SpendScope.KIND, machine.namespace(request.namespace))
    place: Key | None = after
    if request.execution_kind is not None:
        prefix = (*prefix, check_name(request.execution_kind, field="execution_kind"))
        place = None if after is None else after[1:]
    search = Search(by_key(TOTALS), (prefix,), after=place, limit=limit + 1, skips_corrupt=True)
    rows = await machine.read(lambda reader: reader.search(search)) if limit else []
    return _KINDS.page(
        rows,
        limit,
        place_of=lambda row: (row.scope_id, row.budget_id, row.dimension),
        show=lambda row: KindSpent(
            row.namespace, row.scope_id, row.budget_id, row.dimension, row.spent
        ),
    )


@answers(api.ListExecutionSpend)
async def list_execution_spend(machine: Machine, request: api.ListExecutionSpend) -> Page[Spent]:
    """The lines of an execution."""
    limit, after = check_limit(request.limit), _OF_ONE.place(request.cursor)
    execution_id = machine.check_id(request.execution_id)
    search = Search(LEDGER_OF, ((execution_id,),), after=after, limit=limit + 1, skips_corrupt=True)

    async def work(reader: Reader) -> list[LedgerRow]:
        if not await reader.get([execution_id]):
            raise NotFound(f"execution {execution_id}", entity="execution")
        return await reader.search(search) if limit else []

    rows = await machine.read(work)
    return _OF_ONE.page(
        rows,
        limit,
        place_of=lambda row: (row.budget_id, row.dimension),
        show=lambda row: Spent(row.budget_id, row.dimension, row.total),
    )


@answers(api.ListFlowSpend)
async def list_flow_spend(machine: Machine, request: api.ListFlowSpend) -> Page[Spent]:
    """The totals of a flow."""
    limit, after = check_limit(request.limit), _OF_FLOW.place(request.cursor)
    flow_id = check_uuid(request.flow_id)

    async def work(reader: Reader) -> list[TotalRow]:
        flow = (await reader.peek_rows(FLOWS, [(flow_id,)])).get((flow_id,))
        if flow is None:
            raise NotFound(f"flow {flow_id}", entity="flow")
        whose = (SpendScope.FLOW, flow.namespace, flow_id)
        search = Search(by_key(TOTALS), (whose,), after=after, limit=limit + 1, skips_corrupt=True)
        return await reader.search(search) if limit else []

    rows = await machine.read(work)
    return _OF_FLOW.page(
        rows,
        limit,
        place_of=lambda row: (row.budget_id, row.dimension),
        show=lambda row: Spent(row.budget_id, row.dimension, row.spent),
    )
