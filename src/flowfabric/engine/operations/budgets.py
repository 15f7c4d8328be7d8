"""Budgets: policies, reports, spends, reservations, usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from flowfabric import ids, limits
from flowfabric.api import budgets as api
from flowfabric.api.page import Page, at_name
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.engine.unit.corrupt import readable
from flowfabric.errors import Corruption, InvalidInput, NotFound
from flowfabric.kernel.limit.budget_policy import CreateBudget, ResetBudget, UpdateBudget
from flowfabric.kernel.limit.reservation import ReleaseHold, Reserve, Settle
from flowfabric.kernel.limit.spending import RecordSpend, ReleaseBudget, ReportUsage
from flowfabric.model.budget import (
    BudgetPolicy,
    BudgetRow,
    BudgetStatus,
    EnforcementMode,
    HardAction,
    ScopeType,
    SoftAction,
    UsageAndLimits,
    UsageRow,
)
from flowfabric.model.checks import check_flag, check_integer, check_lane, check_name, check_text
from flowfabric.model.limit_checks import (
    amounts_of_lists,
    check_amounts,
    check_budget_policy,
    check_owner,
    check_reset_interval,
    check_revision,
    check_word,
)
from flowfabric.stores.base import Reader, Transaction
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import BUDGETS, USAGE, Key

_BUDGETS = Listing("list_budgets", at_name)

W = TypeVar("W", bound=StrEnum)

# --- policies ------------------------------------------------------------------------------------


@commands(api.CreateBudget)
def create_budget(machine: Machine, request: api.CreateBudget) -> CreateBudget:
    """Put a policy in force."""
    fields = ("dimensions", "hard_limits"), ("dimensions", "soft_limits")
    dimensions = request.dimensions
    policy = check_budget_policy(
        scope_type=request.scope_type,
        scope_id=request.scope_id,
        enforcement_mode=request.enforcement_mode,
        on_hard_limit=request.on_hard_limit,
        on_soft_limit=request.on_soft_limit,
        reset_interval_ms=request.reset_interval_ms,
        hard_limits=amounts_of_lists(dimensions, request.hard_limits, fields=fields[0]),
        soft_limits=amounts_of_lists(dimensions, request.soft_limits, fields=fields[1]),
    )
    if policy.scope_type is ScopeType.LANE:
        check_lane(policy.scope_id, field="scope_id")
    if policy.scope_type is ScopeType.EXECUTION:
        machine.check_id(policy.scope_id)
    return CreateBudget(
        budget_id=check_name(request.budget_id, field="budget_id"),
        policy=policy,
        namespace=check_owner(request.namespace),
    )


@commands(api.UpdateBudget)
def update_budget(machine: Machine, request: api.UpdateBudget) -> UpdateBudget:
    """Change the named fields."""
    interval = request.reset_interval_ms
    return UpdateBudget(
        budget_id=check_name(request.budget_id, field="budget_id"),
        hard_limits=_amounts(request.hard_limits, "hard_limits"),
        soft_limits=_amounts(request.soft_limits, "soft_limits"),
        enforcement_mode=_word(request.enforcement_mode, EnforcementMode, "enforcement_mode"),
        on_hard_limit=_word(request.on_hard_limit, HardAction, "on_hard_limit"),
        on_soft_limit=_word(request.on_soft_limit, SoftAction, "on_soft_limit"),
        reset_interval_ms=None if interval is None else check_reset_interval(interval),
        expected_revision=check_revision(request.expected_revision),
    )


def _amounts(value: Mapping[str, int] | None, field: str) -> dict[str, int] | None:
    return None if value is None else check_amounts(value, field=field)


def _word(value: W | str | None, words: type[W], field: str) -> W | None:
    return None if value is None else check_word(value, words, field=field)


@commands(api.ResetBudget)
def reset_budget(machine: Machine, request: api.ResetBudget) -> ResetBudget:
    """Set usage to zero."""
    return ResetBudget(budget_id=check_name(request.budget_id, field="budget_id"))


# --- spending ------------------------------------------------------------------------------------


@commands(api.ReportUsage)
def report_usage(machine: Machine, request: api.ReportUsage) -> ReportUsage:
    """Report by the owner of a lease."""
    handle, usage = machine.check_handle(request.handle), request.usage
    if not isinstance(usage, api.Usage):
        raise InvalidInput("usage: expected a Usage", field="usage")
    return ReportUsage(
        budget_id=check_name(request.budget_id, field="budget_id"),
        amounts=usage.amounts(),
        dedup_key=_dedup_key(usage.dedup_key, "dedup_key"),
        dedup_ttl_ms=_ttl(request.dedup_ttl_ms, "dedup_ttl_ms"),
        execution_id=handle.execution_id,
        fence=handle.fence,
        must_exist=check_flag(request.must_exist, field="must_exist"),
    )


@commands(api.ReportUsageAdmin)
def report_usage_admin(machine: Machine, request: api.ReportUsageAdmin) -> ReportUsage:
    """Report from outside any execution."""
    fields = ("dimensions", "deltas")
    return ReportUsage(
        budget_id=check_name(request.budget_id, field="budget_id"),
        amounts=amounts_of_lists(request.dimensions, request.deltas, fields=fields),
        dedup_key=_dedup_key(request.dedup_key, "dedup_key"),
        dedup_ttl_ms=_ttl(request.dedup_ttl_ms, "dedup_ttl_ms"),
        must_exist=check_flag(request.must_exist, field="must_exist"),
        is_admin=True,
        actor=machine.actor(request.actor),
    )


@commands(api.RecordSpend)
def record_spend(machine: Machine, request: api.RecordSpend) -> RecordSpend:
    """Add to the execution's ledger."""
    return RecordSpend(
        budget_id=check_name(request.budget_id, field="budget_id"),
        execution_id=machine.check_id(request.execution_id),
        amounts=check_amounts(request.deltas, field="deltas"),
        dedup_key=_dedup_key(request.idempotency_key, "idempotency_key"),
        dedup_ttl_ms=_ttl(request.dedup_ttl_ms, "dedup_ttl_ms"),
    )


@commands(api.ReleaseBudget)
def release_budget(machine: Machine, request: api.ReleaseBudget) -> ReleaseBudget:
    """Give back the amounts in the execution's ledger."""
    name = check_name(request.budget_id, field="budget_id")
    return ReleaseBudget(budget_id=name, execution_id=machine.check_id(request.execution_id))


@commands(api.ReserveBudget)
def reserve_budget(machine: Machine, request: api.ReserveBudget) -> Reserve:
    """Reserve; a reservation without a name gets one."""
    handle, hold_id = machine.check_handle(request.handle), request.hold_id
    name = ids.new_secret_id() if hold_id is None else check_name(hold_id, field="hold_id")
    return Reserve(
        budget_id=check_name(request.budget_id, field="budget_id"),
        execution_id=handle.execution_id,
        fence=handle.fence,
        hold_id=name,
        amounts=check_amounts(request.amounts),
        ttl_ms=_ttl(request.ttl_ms, "ttl_ms"),
    )


@commands(api.SettleBudget)
def settle_budget(machine: Machine, request: api.SettleBudget) -> Settle:
    """Replace the reservation by the actual usage."""
    handle = machine.check_handle(request.handle)
    return Settle(
        budget_id=check_name(request.budget_id, field="budget_id"),
        execution_id=handle.execution_id,
        fence=handle.fence,
        hold_id=check_name(request.hold_id, field="hold_id"),
        amounts=check_amounts(request.amounts),
    )


@commands(api.ReleaseHold)
def release_hold(machine: Machine, request: api.ReleaseHold) -> ReleaseHold:
    """Release an unspent reservation."""
    handle = machine.check_handle(request.handle)
    return ReleaseHold(
        budget_id=check_name(request.budget_id, field="budget_id"),
        execution_id=handle.execution_id,
        fence=handle.fence,
        hold_id=check_name(request.hold_id, field="hold_id"),
    )


# --- reading -------------------------------------------------------------------------------------


@answers(api.GetBudgetStatus)
async def get_budget_status(machine: Machine, request: api.GetBudgetStatus) -> BudgetStatus:
    """One budget that has a policy."""
    name = check_name(request.budget_id, field="budget_id")
    found = await _statuses(machine, [name])
    if not found or found[0].policy is None:
        raise NotFound(f"budget {name}", entity="budget")
    return found[0]


@answers(api.ListBudgets)
async def list_budgets(machine: Machine, request: api.ListBudgets) -> Page[BudgetStatus]:
    """One page of those that have a policy, by id."""
    limit, after = check_limit(request.limit), _BUDGETS.place(request.cursor)

    async def work(reader: Reader) -> list[str]:
        found: list[str] = []
        key, size = after, limit + 1
        while len(found) < size:
            page = Search(by_key(BUDGETS), after=key, limit=size, skips_corrupt=True)
            rows = await reader.search(page)
            found += [row.budget_id for row in rows if row.policy is not None]
            if len(rows) < size:
                break
            key = (rows[-1].budget_id,)
        return found[:size]

    names = await machine.read(work)
    page = _BUDGETS.page(names, limit, place_of=lambda name: (name,), show=str)
    return Page(tuple(await _statuses(machine, page.items)), page.next_cursor)


@answers(api.ReadBudgetUsageAndLimits)
async def read_budget_usage_and_limits(
    machine: Machine, request: api.ReadBudgetUsageAndLimits
) -> UsageAndLimits:
    """A budget with or without a policy."""
    name = check_name(request.budget_id, field="budget_id")
    found = await _statuses(machine, [name])
    if not found:
        return UsageAndLimits({}, {}, {}, {})
    status = found[0]
    hard = {} if status.policy is None else status.policy.hard_limits
    soft = {} if status.policy is None else status.policy.soft_limits
    return UsageAndLimits(hard, soft, status.usage, status.held)


async def _statuses(machine: Machine, budget_ids: Sequence[str]) -> list[BudgetStatus]:
    """Each budget at one instant; unknown ones are left out."""
    found = await machine.read(lambda reader: _look(reader, budget_ids))
    moving = [name for name, status in found.items() if status is None]
    if moving:
        found |= await machine.transact(lambda tx: _look_held(tx, moving))
    return [status for name in budget_ids if (status := found.get(name)) is not None]


async def _look(reader: Reader, budget_ids: Sequence[str]) -> dict[str, BudgetStatus | None]:
    """The committed state; None for a budget that changed between its row and its usage."""
    keys = [(each,) for each in budget_ids]
    rows, spoiled = await readable(reader.peek_rows, BUDGETS, keys)
    usage, odd = await readable(reader.peek_rows, USAGE, keys)
    again, _ = await readable(reader.peek_rows, BUDGETS, [key for key in keys if key not in odd])
    if len(keys) == 1 and (spoiled or odd):  # it was requested by its name
        raise Corruption({**odd, **spoiled}[keys[0]])
    steady = _together(rows, usage)
    return {
        name: steady[name] if rows.get((name,)) == row else None for (name,), row in again.items()
    }


async def _look_held(tx: Transaction, budget_ids: Sequence[str]) -> dict[str, BudgetStatus | None]:
    """The same under lock, for budgets that change all the time."""
    await tx.catalog()
    keys = [(each,) for each in sorted(budget_ids)]
    rows = await tx.rows(BUDGETS, keys)
    return {**_together(rows, await tx.rows(USAGE, keys))}


def _together(
    rows: Mapping[Key, BudgetRow], usage: Mapping[Key, UsageRow]
) -> dict[str, BudgetStatus]:
    lines: dict[str, list[UsageRow]] = {}
    for line in usage.values():
        lines.setdefault(line.budget_id, []).append(line)
    return {name: _status(row, lines.get(name, ())) for (name,), row in rows.items()}


def _status(row: BudgetRow, usage: Sequence[UsageRow]) -> BudgetStatus:
    """A budget as it is shown."""
    ordered = sorted(usage, key=lambda each: each.dimension)
    policy = row.policy or BudgetPolicy()
    return BudgetStatus(
        budget_id=row.budget_id,
        policy=row.policy,
        scope_type=policy.scope_type,
        scope_id=policy.scope_id,
        enforcement_mode=policy.enforcement_mode,
        hard_limits=policy.hard_limits,
        soft_limits=policy.soft_limits,
        usage={each.dimension: each.used for each in ordered},
        held={each.dimension: each.held for each in ordered if each.held},
        breach_count=row.breach_count,
        soft_breach_count=row.soft_breach_count,
        last_breach_at=row.last_breach_at,
        last_breach_dim=row.last_breach_dim,
        reset_count=row.reset_count,
        last_reset_at=row.last_reset_at,
        next_reset_at=row.next_reset_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        allowed={each.dimension: each.allowed for each in ordered if each.allowed},
        soft_allowed={each.dimension: each.soft_allowed for each in ordered if each.soft_allowed},
        revision=row.revision,
        namespace=row.namespace,
    )


# --- checks ---------------------------------------------------------------------------------------


def _dedup_key(value: str | None, field: str) -> str | None:
    if value is None or value == "":
        return None
    return check_text(value, field=field, max_bytes=limits.IDEMPOTENCY_KEY_BYTES)


def _ttl(value: int, field: str) -> int:
    return check_integer(value, field=field, least=1, most=limits.DURATION_MS_MAX)
