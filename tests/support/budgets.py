"""Short words for what tests say about budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowfabric.model.budget import BudgetStatus, Reserved, UsageOutcome
from flowfabric.model.event import BudgetEventType, OperatorEventType
from flowfabric.model.results import Claimed
from tests.support.lab import Lab

BUDGET = "b"


async def make_budget(
    lab: Lab,
    budget_id: str = BUDGET,
    hard: Mapping[str, int] | None = None,
    soft: Mapping[str, int] | None = None,
    **fields: Any,
) -> Any:
    """A budget with these limits."""
    hard, soft = hard or {}, soft or {}
    names = sorted({*hard, *soft})
    return await lab.engine.create_budget(
        budget_id=budget_id,
        dimensions=names,
        hard_limits=[hard.get(name, 0) for name in names],
        soft_limits=[soft.get(name, 0) for name in names],
        **fields,
    )


async def report(
    lab: Lab, amounts: Mapping[str, int], budget_id: str = BUDGET, **fields: Any
) -> UsageOutcome:
    """What was used, said by nobody in particular."""
    return await lab.engine.report_usage_admin(
        budget_id=budget_id, dimensions=list(amounts), deltas=list(amounts.values()), **fields
    )


async def spend(
    lab: Lab, execution_id: str, amounts: Mapping[str, int], budget_id: str = BUDGET, **fields: Any
) -> UsageOutcome:
    """What one execution spent."""
    return await lab.engine.record_spend(
        budget_id=budget_id, execution_id=execution_id, deltas=amounts, **fields
    )


async def give_back(lab: Lab, execution_id: str, budget_id: str = BUDGET) -> None:
    """Release what one execution spent."""
    await lab.engine.release_budget(budget_id=budget_id, execution_id=execution_id)


async def reserve(
    lab: Lab,
    claimed: Claimed,
    amounts: Mapping[str, int],
    hold_id: str = "h",
    budget_id: str = BUDGET,
    **fields: Any,
) -> Reserved:
    """A hold that must be granted."""
    reply = await lab.engine.reserve_budget(
        claimed.handle, budget_id=budget_id, amounts=amounts, hold_id=hold_id, **fields
    )
    assert isinstance(reply, Reserved), reply
    return reply


async def settle(
    lab: Lab,
    claimed: Claimed,
    amounts: Mapping[str, int],
    hold_id: str = "h",
    budget_id: str = BUDGET,
) -> UsageOutcome:
    """Replace a hold by what was spent."""
    return await lab.engine.settle_budget(
        claimed.handle, budget_id=budget_id, hold_id=hold_id, amounts=amounts
    )


async def status(lab: Lab, budget_id: str = BUDGET) -> BudgetStatus:
    """The budget as people see it."""
    return await lab.engine.get_budget_status(budget_id=budget_id)


async def usage(lab: Lab, budget_id: str = BUDGET) -> dict[str, int]:
    """What is used by dimension."""
    found = await lab.engine.read_budget_usage_and_limits(budget_id=budget_id)
    return dict(found.usage)


async def held(lab: Lab, budget_id: str = BUDGET) -> dict[str, int]:
    """What is reserved by dimension."""
    found = await lab.engine.read_budget_usage_and_limits(budget_id=budget_id)
    return dict(found.held)


async def ledger(lab: Lab, execution_id: str, budget_id: str = BUDGET) -> dict[str, int]:
    """The stored lines of one execution."""
    rows = (await lab.dump())["ff_budget_usage_by_exec"]
    key = (budget_id, execution_id)
    return {row.dimension: row.spent for row in rows if (row.budget_id, row.execution_id) == key}


async def happened(lab: Lab, budget_id: str = BUDGET) -> list[BudgetEventType]:
    """What happened to a budget, in order."""
    return [event.event_type for event in await lab.budget_events(budget_id)]


async def events(lab: Lab, budget_id: str = BUDGET) -> list[OperatorEventType]:
    """What was published about a budget, in order."""
    return [event.event_type for event in await lab.operator_events(budget_id)]
