"""Repairs: a look without locks names the suspects, and each is counted again under its lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

from flowfabric import limits
from flowfabric.api import repairs as api
from flowfabric.api.page import at_instant, at_name, at_names, at_uuid
from flowfabric.engine.audit import limits as audit
from flowfabric.engine.audit.flows import graphs_of
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing
from flowfabric.engine.operations.performing import answers
from flowfabric.errors import InvalidInput, NotFound
from flowfabric.kernel.flow.recount import Finding, findings
from flowfabric.kernel.flow.repair import RecountFlow
from flowfabric.kernel.flow.siblings import DrainSiblings, ReconcileSiblings
from flowfabric.kernel.limit.recount import Reattach, RecountBudgets, RecountGate
from flowfabric.model.budget import AttachmentRow, BudgetRow
from flowfabric.model.checks import check_execution_id, check_integer, check_name, check_uuid
from flowfabric.model.execution import Execution
from flowfabric.model.flow import FlowRow
from flowfabric.model.quota import GateRow
from flowfabric.model.record import Record, replace
from flowfabric.model.repair import (
    Correction,
    Repaired,
    SiblingsDrained,
    SiblingsReconciled,
    Unproven,
)
from flowfabric.stores.base import ListFilter, Reader
from flowfabric.stores.indexes import Search, by_key, newest_first
from flowfabric.stores.tables import ATTACHMENTS, BUDGETS, FLOWS, GATES, QUOTAS, Key, Table

R = TypeVar("R", bound=Record)
_AT_ONCE: Final = 50  # budgets, or executions with their budgets, in one transaction
_ROUNDS_MAX: Final = 1_000  # transactions for one flow, or one group


# --- budgets -------------------------------------------------------------------------------------


def _budget_place(what: object, *parts: object) -> tuple[int | str, ...]:
    """After a budget, or, when all budgets are done, after an execution."""
    if what == "budget":
        return ("budget", *at_name(*parts))
    if what != "execution":
        raise InvalidInput("cursor: no place", field="cursor")
    return ("execution", *at_instant(*parts)) if parts else ("execution",)


_BUDGETS: Final = Listing("reconcile_budget_counters", _budget_place)


@answers(api.ReconcileBudgetCounters)
async def reconcile_budget_counters(
    machine: Machine, request: api.ReconcileBudgetCounters
) -> Repaired:
    """Budgets by name, then executions that are missing in their lists, newest first."""
    limit, actor = _limit(request.limit), machine.actor(request.actor)
    place = _BUDGETS.place(request.cursor)
    if request.budget_id is not None:
        key = (check_name(request.budget_id, field="budget_id"),)
        rows = await _one(machine, BUDGETS, key, "budget")
        return await _repair_budgets(machine, rows, actor)
    if place is not None and place[0] == "execution":
        return await _repair_lists(machine, place, limit, actor)
    after = None if place is None else (place[1],)
    rows, following = await _page(machine, BUDGETS, after, limit)
    done = await _repair_budgets(machine, rows, actor)
    next_place = ("execution",) if following is None else ("budget", *following)
    return replace(done, next_cursor=_BUDGETS.cursor(next_place))


async def _repair_budgets(machine: Machine, rows: Sequence[BudgetRow], actor: str) -> Repaired:
    held: Counter[audit.Pair] = await machine.read(audit.held_now) if rows else Counter()
    suspects: list[str] = []
    pairs: list[audit.Pair] = []
    unproven: list[Unproven] = []
    for row in rows:
        look, wrong = await machine.read(partial(_look, row=row, held=held))
        suspects += [row.budget_id] if look.corrections else []
        pairs += wrong
        unproven += look.unproven
    found: list[Correction] = []
    for start in range(0, len(suspects), _AT_ONCE):
        names = tuple(suspects[start : start + _AT_ONCE])
        recount = RecountBudgets(budget_ids=names, actor=actor)
        found += (await machine.execute_together([recount]))[0]
    found += await _reattach(machine, pairs, actor)
    return Repaired(len(rows), tuple(found), tuple(unproven))


async def _look(
    reader: Reader, row: BudgetRow, held: Counter[audit.Pair]
) -> tuple[audit.BudgetLook, list[audit.Pair]]:
    look, wrong = await audit.look_at_budget(reader, row, held), []
    listed: list[AttachmentRow]
    async for listed in audit.pages(reader, ATTACHMENTS, (row.budget_id,)):
        wrong += [pair for pair, _ in await audit.wrongly_attached(reader, listed)]
    return look, wrong


async def _repair_lists(
    machine: Machine, place: tuple[int | str, ...], limit: int, actor: str
) -> Repaired:
    """Executions that are missing in the lists of their budgets, a page of all executions."""
    before = (int(place[1]), str(place[2])) if len(place) > 1 else None

    async def look(reader: Reader) -> tuple[list[Execution], int, list[audit.Pair]]:
        await reader.catalog()
        rows = await reader.list_executions(ListFilter(before=before), limit)
        known = [each for each in rows if isinstance(each, Execution)]
        return known, len(rows), [pair for pair, _ in await audit.unattached(reader, known)]

    known, count, pairs = await machine.read(look)
    found = await _reattach(machine, pairs, actor)
    cursor = None
    if count == limit and known:
        cursor = _BUDGETS.cursor(("execution", *newest_first(known[-1])))
    return Repaired(count, tuple(found), next_cursor=cursor)


async def _reattach(machine: Machine, pairs: Sequence[audit.Pair], actor: str) -> list[Correction]:
    found: list[Correction] = []
    for start in range(0, len(pairs), _AT_ONCE):
        some = tuple(pairs[start : start + _AT_ONCE])
        found += (await machine.execute_together([Reattach(pairs=some, actor=actor)]))[0]
    return found


# --- quotas --------------------------------------------------------------------------------------

_GATES: Final = Listing("reconcile_quota_counters", at_names)


@answers(api.ReconcileQuotaCounters)
async def reconcile_quota_counters(
    machine: Machine, request: api.ReconcileQuotaCounters
) -> Repaired:
    """Keys of quotas in the order of their names, each in a transaction of its own."""
    limit, actor = _limit(request.limit), machine.actor(request.actor)
    place = _GATES.place(request.cursor)
    prefix: Key = ()
    if request.quota_policy_id is not None:
        prefix = (check_name(request.quota_policy_id, field="quota_policy_id"),)
        await _known_quota(machine, prefix)
    after = None if place is None else place[len(prefix) :]
    rows, following = await _page(machine, GATES, after, limit, prefix)
    found: list[Correction] = []
    for row in rows:
        look = await machine.read(partial(audit.look_at_gate, gate=row))
        if look.corrections:
            found += await _repair_gate(machine, row, look.suspects, actor)
    cursor = _GATES.cursor(None if following is None else (following[0], following[1]))
    return Repaired(len(rows), tuple(found), next_cursor=cursor)


async def _known_quota(machine: Machine, key: Key) -> None:
    await _one(machine, QUOTAS, key, "quota policy")


async def _repair_gate(
    machine: Machine, row: GateRow, suspects: Sequence[str], actor: str
) -> list[Correction]:
    """Suspects a page at a time: they are locked."""
    found: list[Correction] = []
    for start in range(0, max(1, len(suspects)), _AT_ONCE):
        some = tuple(suspects[start : start + _AT_ONCE])
        command = RecountGate(gate=GATES.key_of(row), suspects=some, actor=actor)
        found += (await machine.execute_together([command]))[0]
    return found


# --- flows ---------------------------------------------------------------------------------------

_FLOWS: Final = Listing("reconcile_flow_counters", at_uuid)


@answers(api.ReconcileFlowCounters)
async def reconcile_flow_counters(machine: Machine, request: api.ReconcileFlowCounters) -> Repaired:
    """Flows by id, each in transactions of its own."""
    limit, actor = _limit(request.limit), machine.actor(request.actor)
    following: Key | None = None
    if request.flow_id is not None:
        flows = await _one(machine, FLOWS, (check_uuid(request.flow_id),), "flow")
    else:
        flows, following = await _page(machine, FLOWS, _FLOWS.place(request.cursor), limit)
    found: list[Correction] = []
    unproven: list[Unproven] = []
    for flow in flows:
        if any(each.correction or _is_state(each) for each in await _findings(machine, flow)):
            found += await _repair_flow(machine, flow.flow_id, actor)
        left = await _findings(machine, flow)
        unproven += [Unproven(each.subject, each.detail) for each in left]
    cursor = _FLOWS.cursor(None if following is None else (following[0],))
    return Repaired(len(flows), tuple(found), tuple(unproven), cursor)


async def _findings(machine: Machine, flow: FlowRow) -> list[Finding]:
    async def look(reader: Reader) -> list[Finding]:
        await reader.catalog()
        now = (await reader.peek_rows(FLOWS, [(flow.flow_id,)])).values()
        return [
            each
            for graph in await graphs_of(reader, list(now))
            for each in findings(graph, reader.now)
        ]

    return await machine.read(look)


def _is_state(finding: Finding) -> bool:
    """Whether a finding is about the flow as a whole: its state follows from its counts."""
    return finding.subject.startswith("flow ")


async def _repair_flow(machine: Machine, flow_id: str, actor: str) -> list[Correction]:
    found: list[Correction] = []
    command = RecountFlow(flow_id=flow_id, limit=limits.CASCADE_MAX, actor=actor)
    for _ in range(_ROUNDS_MAX):
        (done,) = await machine.execute_together([command])
        found += done.corrections
        if done.is_whole:
            break
    return found


# --- groups --------------------------------------------------------------------------------------


@answers(api.DrainSiblingCancelGroup)
async def drain_sibling_cancel_group(
    machine: Machine, request: api.DrainSiblingCancelGroup
) -> SiblingsDrained:
    """As many transactions as it takes, unless siblings are locked elsewhere."""
    command = DrainSiblings(
        flow_id=check_uuid(request.flow_id),
        execution_id=_downstream(machine, request.downstream_execution_id),
        actor=machine.actor(request.actor),
    )
    cancelled: list[str] = []
    done = SiblingsDrained((), is_drained=False)
    for _ in range(_ROUNDS_MAX):
        (done,) = await machine.execute_together([command])
        cancelled += done.cancelled
        if done.is_drained or not done.cancelled:
            break
    return SiblingsDrained(tuple(cancelled), done.is_drained)


@answers(api.ReconcileSiblingCancelGroup)
async def reconcile_sibling_cancel_group(
    machine: Machine, request: api.ReconcileSiblingCancelGroup
) -> SiblingsReconciled:
    """One transaction."""
    command = ReconcileSiblings(
        flow_id=check_uuid(request.flow_id),
        execution_id=_downstream(machine, request.downstream_execution_id),
        actor=machine.actor(request.actor),
    )
    return (await machine.execute_together([command]))[0]


def _downstream(machine: Machine, value: object) -> str:
    return check_execution_id(
        value, partitions=machine.store.partitions, field="downstream_execution_id"
    )


# --- pages ---------------------------------------------------------------------------------------


def _limit(value: object) -> int:
    return check_integer(value, field="limit", least=1, most=limits.PAGE_MAX)


async def _one(machine: Machine, table: Table[R], key: Key, what: str) -> list[R]:
    found = await machine.read(lambda reader: reader.peek_rows(table, [key]))
    if not found:
        raise NotFound(f"{what} {key[0]}", entity=what.replace(" ", "_"))
    return list(found.values())


async def _page(
    machine: Machine, table: Table[R], after: Key | None, limit: int, prefix: Key = ()
) -> tuple[list[R], Key | None]:
    """Rows in the order of their keys, and the key after which the next page begins."""
    search = Search(by_key(table), (prefix,), after=after, limit=limit, skips_corrupt=True)
    rows = await machine.read(lambda reader: reader.search(search))
    return rows, table.key_of(rows[-1]) if len(rows) == limit else None
