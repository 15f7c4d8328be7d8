"""Budgets, quotas and lanes, as an operator's program handles them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.errors import InvalidInput
from flowfabric.limits import PAGE_MAX
from flowfabric.model.budget import BudgetStatus, ScopeType, UsageOutcome
from flowfabric.model.limit_checks import check_amounts
from flowfabric.model.quota import QuotaPolicy, QuotaStatus
from flowfabric.model.results import LaneConfigured
from flowfabric.model.shown import shown, shown_length
from flowfabric.sdk.durations import Duration, to_ms
from flowfabric.sdk.options import names_of

Limits = Mapping[str, int]


class LimitMethods:
    """The part of a fabric that says how much may be spent and started.

    ```
    await ff.create_budget("gpt", hard={"tokens": 1_000_000}, soft={"tokens": 800_000},
                           reset_every="1d")
    await ff.create_quota("crawl", per="10s", starts=30, at_once=5)
    ```
    """

    @abstractmethod
    async def start(self) -> EngineBackend:
        """The running engine."""

    # --- budgets -------------------------------------------------------------------------------

    async def create_budget(
        self,
        name: str,
        *,
        hard: Limits | None = None,
        soft: Limits | None = None,
        on_hard: str = "block",
        on_soft: str = "warn",
        mode: str = "strict",
        reset_every: Duration | None = None,
        scope: str | None = None,
    ) -> BudgetStatus:
        """Put a budget in force: limits by dimension, 0 means no limit.

        The same again changes nothing; other content under the same name is a `LimitConflict`. A
        `scope` is `lane:gpu`, `namespace:acme`, `execution:ID` or `flow:ID`; a budget of a lane or
        a namespace applies to every execution created there from now on.
        """
        scope_type, scope_id = read_scope(scope)
        hard, soft = limits_of(hard, "hard"), limits_of(soft, "soft")
        dimensions = sorted({*hard, *soft})
        engine = await self.start()
        await engine.create_budget(
            budget_id=name,
            dimensions=dimensions,
            hard_limits=[hard.get(each, 0) for each in dimensions],
            soft_limits=[soft.get(each, 0) for each in dimensions],
            scope_type=scope_type,
            scope_id=scope_id,
            enforcement_mode=mode,
            on_hard_limit=on_hard,
            on_soft_limit=on_soft,
            reset_interval_ms=0 if reset_every is None else to_ms(reset_every, field="reset_every"),
        )
        return await engine.get_budget_status(budget_id=name)

    async def update_budget(
        self,
        name: str,
        *,
        hard: Limits | None = None,
        soft: Limits | None = None,
        on_hard: str | None = None,
        on_soft: str | None = None,
        mode: str | None = None,
        reset_every: Duration | None = None,
    ) -> BudgetStatus:
        """Change limits and their effects; fields left out stay. 0 removes a limit.

        Executions that wait for the budget continue at once if it now has room.
        """
        engine = await self.start()
        await engine.update_budget(
            budget_id=name,
            hard_limits=None if hard is None else limits_of(hard, "hard"),
            soft_limits=None if soft is None else limits_of(soft, "soft"),
            enforcement_mode=mode,
            on_hard_limit=on_hard,
            on_soft_limit=on_soft,
            reset_interval_ms=None
            if reset_every is None
            else to_ms(reset_every, field="reset_every"),
        )
        return await engine.get_budget_status(budget_id=name)

    async def raise_budget(self, name: str, /, **hard: int) -> BudgetStatus:
        """New, higher hard limits: `await ff.raise_budget("gpt", tokens=2_000_000)`."""
        engine = await self.start()
        check_raise(await engine.get_budget_status(budget_id=name), limits_of(hard, "hard"))
        return await self.update_budget(name, hard=hard)

    async def reset_budget(self, name: str) -> BudgetStatus:
        """Start counting from zero. Reservations and the counts of breaches stay."""
        engine = await self.start()
        await engine.reset_budget(budget_id=name)
        return await engine.get_budget_status(budget_id=name)

    async def budget(self, name: str) -> BudgetStatus:
        """Limits, usage and counts of one budget, all of one instant."""
        return await (await self.start()).get_budget_status(budget_id=name)

    async def budgets(self) -> list[BudgetStatus]:
        """Every budget, by name."""
        engine = await self.start()
        return await all_budgets(engine)

    async def report_usage(
        self, budget: str, /, *, dedup_key: str | None = None, **amounts: int
    ) -> UsageOutcome:
        """Usage from outside any execution. A repeated key gets the first answer, counted once."""
        checked = check_amounts(amounts, field="amounts")
        engine = await self.start()
        return await engine.report_usage_admin(
            budget_id=budget,
            dimensions=list(checked),
            deltas=list(checked.values()),
            dedup_key=dedup_key,
            must_exist=True,
        )

    # --- quotas --------------------------------------------------------------------------------

    async def create_quota(
        self,
        name: str,
        *,
        per: Duration = "1m",
        starts: int = 0,
        at_once: int = 0,
        jitter: Duration = 0,
    ) -> QuotaStatus:
        """At most `starts` executions in any window of length `per`, and `at_once` running; 0: any.

        Each concurrency key is counted by itself. The same again changes nothing.
        """
        engine = await self.start()
        await engine.create_quota_policy(
            quota_policy_id=name,
            window_seconds=window_seconds(per),
            max_requests_per_window=starts,
            max_concurrent=at_once,
            jitter_ms=to_ms(jitter, field="jitter"),
        )
        return await engine.get_quota_status(quota_policy_id=name)

    async def update_quota(
        self,
        name: str,
        *,
        per: Duration | None = None,
        starts: int | None = None,
        at_once: int | None = None,
        jitter: Duration | None = None,
    ) -> QuotaStatus:
        """Change limits; fields left out stay. Waiting executions are checked at once."""
        engine = await self.start()
        await engine.update_quota_policy(
            quota_policy_id=name,
            window_seconds=None if per is None else window_seconds(per),
            max_requests_per_window=starts,
            max_concurrent=at_once,
            jitter_ms=None if jitter is None else to_ms(jitter, field="jitter"),
        )
        return await engine.get_quota_status(quota_policy_id=name)

    async def quota(self, name: str) -> QuotaStatus:
        """Limits of a quota, and how much of them each key uses."""
        return await (await self.start()).get_quota_status(quota_policy_id=name)

    async def quotas(self) -> list[QuotaPolicy]:
        """Every quota, by name."""
        engine = await self.start()
        return await all_quotas(engine)

    # --- lanes ---------------------------------------------------------------------------------

    async def configure_lane(
        self,
        lane: str,
        *,
        weight: int | None = None,
        aging: Duration | None = None,
        budgets: Iterable[str] | None = None,
        quota: str | None = None,
        tenant_weights: Mapping[str, int] | None = None,
        fair_weights: Mapping[str, int] | None = None,
    ) -> LaneConfigured:
        """How a lane shares its workers, lets work age, and bounds what is submitted to it.

        `weight`: its share beside other lanes of a worker, 1 unless set. `aging`: so much waiting
        outweighs one step of priority; 0 keeps priorities strict. `budgets` and `quota`: the bounds
        of new work on the lane; an empty list and an empty text remove them. `tenant_weights`: the
        shares of namespaces beside the others of the lane, 1 unless set. `fair_weights`: the same
        of fair keys, for what is submitted from then on.

            await ff.configure_lane("default", tenant_weights={"acme": 3})
        """
        engine = await self.start()
        return await engine.configure_lane(
            lane_id=lane,
            weight=weight,
            aging_ms=None if aging is None else to_ms(aging, field="aging"),
            budget_ids=None if budgets is None else names_of(budgets, "budgets"),
            quota_policy_id=quota,
            tenant_weights=tenant_weights,
            fair_weights=fair_weights,
        )


async def all_budgets(engine: EngineBackend) -> list[BudgetStatus]:
    """Every page."""
    return await every_item(lambda at: engine.list_budgets(cursor=at, limit=PAGE_MAX))


async def all_quotas(engine: EngineBackend) -> list[QuotaPolicy]:
    """Every page."""
    return await every_item(lambda at: engine.list_quota_policies(cursor=at, limit=PAGE_MAX))


def limits_of(limits: object, field: str) -> dict[str, int]:
    """Limits by dimension, checked; empty when none are given."""
    return check_amounts({} if limits is None else limits, field=field)


def read_scope(scope: str | None) -> tuple[ScopeType, str]:
    """`lane:gpu` in its parts; nothing and `free` are the budget that is attached by name.

    >>> read_scope("lane:gpu")
    (<ScopeType.LANE: 'lane'>, 'gpu')
    """
    if scope is None or scope == ScopeType.FREE:
        return ScopeType.FREE, ""
    word, colon, target = scope.partition(":") if isinstance(scope, str) else ("", "", "")
    if not colon or not target or word == ScopeType.FREE or word not in list(ScopeType):
        kinds = ", ".join(f"{each.value}:…" for each in ScopeType if each is not ScopeType.FREE)
        raise InvalidInput(f"scope: {shown(scope, 80)} is not one of {kinds}", field="scope")
    return ScopeType(word), target


def check_raise(status: BudgetStatus, hard: Limits) -> None:
    """A raise that would lower a limit, or set one where there is none, is a mistake."""
    if not hard:
        raise InvalidInput("hard: name what to raise, such as tokens=2000", field="hard")
    old: Mapping[str, Any] = {} if status.policy is None else status.policy.hard_limits
    for dimension, limit in hard.items():
        before = old.get(dimension, 0)
        if not before:
            detail = f"hard.{dimension}: budget {status.budget_id} has no such limit to raise"
            raise InvalidInput(detail, field=f"hard.{dimension}")
        if limit < before:
            detail = f"hard.{dimension}: {limit} is below the present {before}; update it instead"
            raise InvalidInput(detail, field=f"hard.{dimension}")


def window_seconds(per: Duration) -> int:
    """A window's length, which quotas count in whole seconds."""
    milliseconds = to_ms(per, field="per")
    if milliseconds % 1000:
        wrong = "below 1s" if milliseconds < 1000 else "no number of whole seconds"
        raise InvalidInput(f"per: {shown_length(milliseconds)} is {wrong}", field="per")
    return milliseconds // 1000
