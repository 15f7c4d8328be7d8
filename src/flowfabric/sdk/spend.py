"""What was spent, read as people want it: amounts by budget and dimension."""

from __future__ import annotations

from collections.abc import Iterable

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.limits import PAGE_MAX
from flowfabric.model.budget import KindSpent, Spent

Spend = dict[str, dict[str, int]]  # by budget, then by dimension


async def spend_of_execution(engine: EngineBackend, execution_id: str) -> list[Spent]:
    """Every page."""
    return await every_item(
        lambda at: engine.list_execution_spend(execution_id=execution_id, cursor=at, limit=PAGE_MAX)
    )


async def spend_of_flow(engine: EngineBackend, flow_id: str) -> list[Spent]:
    """Every page."""
    return await every_item(
        lambda at: engine.list_flow_spend(flow_id=flow_id, cursor=at, limit=PAGE_MAX)
    )


async def spend_of_kinds(
    engine: EngineBackend, namespace: str | None, kind: str | None
) -> list[KindSpent]:
    """Every page."""
    return await every_item(
        lambda at: engine.list_spend(
            namespace=namespace, execution_kind=kind, cursor=at, limit=PAGE_MAX
        )
    )


def by_budget(lines: Iterable[Spent]) -> Spend:
    """Lines as one value."""
    found: Spend = {}
    for line in lines:
        found.setdefault(line.budget_id, {})[line.dimension] = line.spent
    return found
