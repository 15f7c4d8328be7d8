"""Operations on budgets: policies, reports, spends, reservations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowfabric import ids, limits
from flowfabric.engine.core import EngineCore
from flowfabric.engine.spoiled import readable
from flowfabric.errors import Corruption, InvalidInput, NotFound
from flowfabric.kernel.budget import CreateBudget, ResetBudget, UpdateBudget
from flowfabric.kernel.spending import (
    RecordSpend,
    ReleaseBudget,
    ReleaseHold,
    ReportUsage,
    Reserve,
    Settle,
)
from flowfabric.model.budget import (
    AMOUNT_MAX,
    BudgetCreated,
    BudgetPolicy,
    BudgetReset,
    BudgetRow,
    BudgetStatus,
    BudgetUpdated,
    EnforcementMode,
    HardAction,
    HardBreach,
    HoldReleased,
    Reserved,
    ScopeType,
    SoftAction,
    UsageAndLimits,
    UsageOutcome,
    UsageRow,
)
from flowfabric.model.checks import check_flag, check_integer, check_lane, check_name, check_text
from flowfabric.model.handle import Handle
from flowfabric.model.limit_checks import (
    amounts_of_lists,
    check_amounts,
    check_budget_policy,
    check_reset_interval,
    check_word,
)
from flowfabric.model.record import Record
from flowfabric.model.results import AlreadySatisfied
from flowfabric.stores.base import Reader, Transaction
from flowfabric.stores.tables import BUDGETS, USAGE, Key


class Usage(Record, frozen=True, kw_only=True):
    """What a worker used. Every part counts, each under its own name.

    >>> Usage(input_tokens=120, custom={"cost_micros": 900}).amounts()
    {'cost_micros': 900, 'input_tokens': 120}
    """

    input_tokens: int = 0
    output_tokens: int = 0
    wall_ms: int = 0
    custom: Mapping[str, int] = {}
    dedup_key: str | None = None

    def amounts(self) -> dict[str, int]:
        """One map of dimension to amount; what was not used is left out."""
        amounts = check_amounts(self.custom, field="custom")
        for name in ("input_tokens", "output_tokens", "wall_ms"):
            value = check_integer(getattr(self, name), field=name, least=0, most=AMOUNT_MAX)
            if value and name in amounts:
                raise InvalidInput(f"custom.{name}: given twice", field=f"custom.{name}")
            if value:
                amounts[name] = value
        if len(amounts) > limits.DIMENSIONS_MAX:
            return check_amounts(amounts, field="usage")
        return dict(sorted(amounts.items()))


class Budgeting(EngineCore):
    """Budgets limit what executions may spend; see docs/guides/limits.md."""

    # --- policies ------------------------------------------------------------------------------

    async def create_budget(
        self,
        *,
        budget_id: str,
        dimensions: Sequence[str] = (),
        hard_limits: Sequence[int] = (),
        soft_limits: Sequence[int] = (),
        scope_type: ScopeType | str = ScopeType.FREE,
        scope_id: str = "",
        enforcement_mode: EnforcementMode | str = EnforcementMode.STRICT,
        on_hard_limit: HardAction | str = HardAction.BLOCK,
        on_soft_limit: SoftAction | str = SoftAction.WARN,
        reset_interval_ms: int = 0,
    ) -> BudgetCreated | AlreadySatisfied:
        """Put a policy in force; the three lists stand side by side, 0 is no limit.

        The same again is AlreadySatisfied, other content under the same id a LimitConflict.
        """
        fields = ("dimensions", "hard_limits"), ("dimensions", "soft_limits")
        policy = check_budget_policy(
            scope_type=scope_type,
            scope_id=scope_id,
            enforcement_mode=enforcement_mode,
            on_hard_limit=on_hard_limit,
            on_soft_limit=on_soft_limit,
            reset_interval_ms=reset_interval_ms,
            hard_limits=amounts_of_lists(dimensions, hard_limits, fields=fields[0]),
            soft_limits=amounts_of_lists(dimensions, soft_limits, fields=fields[1]),
        )
        if policy.scope_type is ScopeType.LANE:
            check_lane(policy.scope_id, field="scope_id")
        if policy.scope_type is ScopeType.EXECUTION:
            self.check_id(policy.scope_id)
        command = CreateBudget(check_name(budget_id, field="budget_id"), policy)
        reply: BudgetCreated | AlreadySatisfied = await self.execute(command)
        return reply

    async def update_budget(
        self,
        *,
        budget_id: str,
        hard_limits: Mapping[str, int] | None = None,
        soft_limits: Mapping[str, int] | None = None,
        enforcement_mode: EnforcementMode | str | None = None,
        on_hard_limit: HardAction | str | None = None,
        on_soft_limit: SoftAction | str | None = None,
        reset_interval_ms: int | None = None,
    ) -> BudgetUpdated:
        """Raise or lower limits and change what they do; what is not named stays."""

        def amounts(value: Mapping[str, int] | None, field: str) -> dict[str, int] | None:
            return None if value is None else check_amounts(value, field=field)

        def word(value: Any, words: Any, field: str) -> Any:
            return None if value is None else check_word(value, words, field=field)

        command = UpdateBudget(
            check_name(budget_id, field="budget_id"),
            amounts(hard_limits, "hard_limits"),
            amounts(soft_limits, "soft_limits"),
            word(enforcement_mode, EnforcementMode, "enforcement_mode"),
            word(on_hard_limit, HardAction, "on_hard_limit"),
            word(on_soft_limit, SoftAction, "on_soft_limit"),
            None if reset_interval_ms is None else check_reset_interval(reset_interval_ms),
        )
        reply: BudgetUpdated = await self.execute(command)
        return reply

    async def reset_budget(self, *, budget_id: str) -> BudgetReset:
        """Usage to zero; breach counts are lifetime totals and stay."""
        reply: BudgetReset = await self.execute(
            ResetBudget(check_name(budget_id, field="budget_id"))
        )
        return reply

    # --- spending ------------------------------------------------------------------------------

    async def report_usage(
        self,
        handle: Handle,
        *,
        budget_id: str,
        usage: Usage,
        dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT,
        must_exist: bool = False,
    ) -> UsageOutcome:
        """What the owner of a lease used. Repeating a key returns the first outcome.

        Usage of a budget without a policy counts, and a policy made later sees it; with
        `must_exist` it is refused with NotFound.
        """
        checked = self.check_handle(handle)
        if not isinstance(usage, Usage):
            raise InvalidInput("usage: expected a Usage", field="usage")
        command = ReportUsage(
            check_name(budget_id, field="budget_id"),
            usage.amounts(),
            _dedup_key(usage.dedup_key, "dedup_key"),
            _ttl(dedup_ttl_ms, "dedup_ttl_ms"),
            checked.execution_id,
            checked.fence,
            check_flag(must_exist, field="must_exist"),
        )
        reply: UsageOutcome = await self.execute(command)
        return reply

    async def report_usage_admin(
        self,
        *,
        budget_id: str,
        dimensions: Sequence[str],
        deltas: Sequence[int],
        dedup_key: str | None = None,
        dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT,
        must_exist: bool = False,
    ) -> UsageOutcome:
        """A report from outside any execution; `must_exist` as in `report_usage`."""
        command = ReportUsage(
            check_name(budget_id, field="budget_id"),
            amounts_of_lists(dimensions, deltas, fields=("dimensions", "deltas")),
            _dedup_key(dedup_key, "dedup_key"),
            _ttl(dedup_ttl_ms, "dedup_ttl_ms"),
            must_exist=check_flag(must_exist, field="must_exist"),
        )
        reply: UsageOutcome = await self.execute(command)
        return reply

    async def record_spend(
        self,
        *,
        budget_id: str,
        execution_id: str,
        deltas: Mapping[str, int],
        idempotency_key: str | None = None,
        dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT,
    ) -> UsageOutcome:
        """A spend that `release_budget` can give back; a repeated key is AlreadyApplied."""
        command = RecordSpend(
            check_name(budget_id, field="budget_id"),
            self.check_id(execution_id),
            check_amounts(deltas, field="deltas"),
            _dedup_key(idempotency_key, "idempotency_key"),
            _ttl(dedup_ttl_ms, "dedup_ttl_ms"),
        )
        reply: UsageOutcome = await self.execute(command)
        return reply

    async def release_budget(self, *, budget_id: str, execution_id: str) -> None:
        """Give back exactly what an execution spent, once."""
        name, owner = check_name(budget_id, field="budget_id"), self.check_id(execution_id)
        await self.execute(ReleaseBudget(name, owner))

    async def reserve_budget(
        self,
        handle: Handle,
        *,
        budget_id: str,
        amounts: Mapping[str, int],
        hold_id: str | None = None,
        ttl_ms: int = limits.HOLD_TTL_MS_DEFAULT,
    ) -> Reserved | HardBreach:
        """Hold amounts against the hard limits before they are spent.

        The hold comes back by itself when it is settled, released, when its time is over, and when
        the lease ends for whatever reason. Asking twice with one `hold_id` holds once. NotFound for
        a budget that does not exist.
        """
        checked = self.check_handle(handle)
        name = ids.new_secret_id() if hold_id is None else check_name(hold_id, field="hold_id")
        command = Reserve(
            check_name(budget_id, field="budget_id"),
            checked.execution_id,
            checked.fence,
            name,
            check_amounts(amounts),
            _ttl(ttl_ms, "ttl_ms"),
        )
        reply: Reserved | HardBreach = await self.execute(command)
        return reply

    async def settle_budget(
        self, handle: Handle, *, budget_id: str, hold_id: str, amounts: Mapping[str, int]
    ) -> UsageOutcome:
        """Replace a hold by what was really spent; it joins the execution's ledger."""
        checked = self.check_handle(handle)
        command = Settle(
            check_name(budget_id, field="budget_id"),
            checked.execution_id,
            checked.fence,
            check_name(hold_id, field="hold_id"),
            check_amounts(amounts),
        )
        reply: UsageOutcome = await self.execute(command)
        return reply

    async def release_hold(self, handle: Handle, *, budget_id: str, hold_id: str) -> HoldReleased:
        """Give a hold back unspent."""
        checked = self.check_handle(handle)
        command = ReleaseHold(
            check_name(budget_id, field="budget_id"),
            checked.execution_id,
            checked.fence,
            check_name(hold_id, field="hold_id"),
        )
        reply: HoldReleased = await self.execute(command)
        return reply

    # --- reading -------------------------------------------------------------------------------

    async def get_budget_status(self, *, budget_id: str) -> BudgetStatus:
        """Policy, usage and counters of one budget, all of one instant."""
        name = check_name(budget_id, field="budget_id")
        found = await self._statuses([name])
        if not found or found[0].policy is None:
            raise NotFound(f"budget {name}", entity="budget")
        return found[0]

    async def list_budgets(
        self, *, after: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> list[BudgetStatus]:
        """Budgets by id, those after `after`; usage without a policy is not listed.

        One whose rows cannot be read is left out; `doctor` names it.
        """
        check_integer(limit, field="limit", least=1, most=limits.PAGE_MAX)
        start = None if after is None else check_text(after, field="after", max_bytes=1024)

        async def work(reader: Reader) -> list[str]:
            found: list[str] = []
            key = None if start is None else (start,)
            while len(found) < limit:
                rows = await reader.page_rows(BUDGETS, {}, key, limit, newest_first=False)
                found += [row.budget_id for row in rows if row.policy is not None]
                if len(rows) < limit:
                    break
                key = (rows[-1].budget_id,)
            return found[:limit]

        return await self._statuses(await self.read(work))

    async def read_budget_usage_and_limits(self, *, budget_id: str) -> UsageAndLimits:
        """Limits and usage; empty where nothing is known."""
        name = check_name(budget_id, field="budget_id")
        found = await self._statuses([name])
        if not found:
            return UsageAndLimits({}, {}, {}, {})
        status = found[0]
        hard = {} if status.policy is None else status.policy.hard_limits
        soft = {} if status.policy is None else status.policy.soft_limits
        return UsageAndLimits(hard, soft, status.usage, status.held)

    async def _statuses(self, budget_ids: Sequence[str]) -> list[BudgetStatus]:
        """Each budget as it was at one instant; those nobody knows are left out."""
        found = await self.read(lambda reader: _look(reader, budget_ids))
        moving = [name for name, status in found.items() if status is None]
        if moving:
            found |= await self.transact(lambda tx: _look_held(tx, moving))
        return [status for name in budget_ids if (status := found.get(name)) is not None]


async def _look(reader: Reader, budget_ids: Sequence[str]) -> dict[str, BudgetStatus | None]:
    """What is committed; none for a budget that changed between its row and its usage."""
    keys = [(each,) for each in budget_ids]
    rows, spoiled = await readable(reader.peek_rows, BUDGETS, keys)
    usage, odd = await readable(reader.peek_rows, USAGE, keys)
    again, _ = await readable(reader.peek_rows, BUDGETS, [key for key in keys if key not in odd])
    if len(keys) == 1 and (spoiled or odd):  # it was asked for by its name
        raise Corruption({**odd, **spoiled}[keys[0]])
    steady = _together(rows, usage)
    return {
        name: steady[name] if rows.get((name,)) == row else None for (name,), row in again.items()
    }


async def _look_held(tx: Transaction, budget_ids: Sequence[str]) -> dict[str, BudgetStatus | None]:
    """The same under lock, for budgets that never rest."""
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
    return {name: status_of(row, lines.get(name, ())) for (name,), row in rows.items()}


def status_of(row: BudgetRow, usage: Sequence[UsageRow]) -> BudgetStatus:
    """A budget as people see it."""
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
    )


def _dedup_key(value: str | None, field: str) -> str | None:
    if value is None or value == "":
        return None
    return check_text(value, field=field, max_bytes=limits.IDEMPOTENCY_KEY_BYTES)


def _ttl(value: int, field: str) -> int:
    return check_integer(value, field=field, least=1, most=limits.DURATION_MS_MAX)
