"""What executions, flows and kinds have spent: the ledger and its totals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.api.budgets import Usage
from flowfabric.errors import InvalidCursor, InvalidInput, NotFound
from flowfabric.kernel.flow.flow import AddMember
from flowfabric.kernel.limit.spending import ReportUsage
from flowfabric.model.budget import KindSpent, Spent
from flowfabric.model.policy import ExecutionPolicy, RetryPolicy
from flowfabric.model.results import Claimed
from flowfabric.stores.tables import TOTALS
from tests.support.budgets import (
    BUDGET,
    give_back,
    make_budget,
    report,
    reserve,
    settle,
    spend,
    usage,
)
from tests.support.flows import empty, node, submit
from tests.support.lab import Lab, scenario
from tests.support.spend import check_totals

DAY_MS = 86_400_000


async def tell(lab: Lab, claimed: Claimed, budget_id: str = BUDGET, **amounts: int) -> None:
    """What the owner of a lease used."""
    used = Usage(custom=amounts)
    await lab.engine.report_usage(claimed.handle, budget_id=budget_id, usage=used)


async def of_one(lab: Lab, execution_id: str) -> dict[tuple[str, str], int]:
    page = await lab.engine.list_execution_spend(execution_id=execution_id)
    assert all(type(each) is Spent for each in page.items)
    return {(each.budget_id, each.dimension): each.spent for each in page.items}


async def of_flow(lab: Lab, flow_id: str) -> dict[str, int]:
    page = await lab.engine.list_flow_spend(flow_id=flow_id)
    return {each.dimension: each.spent for each in page.items}


async def of_kinds(lab: Lab, kind: str | None = None) -> dict[tuple[str, str], int]:
    page = await lab.engine.list_spend(execution_kind=kind)
    return {(each.execution_kind, each.dimension): each.spent for each in page.items}


@scenario
async def test_reports_settlements_and_records_add_up(lab: Lab) -> None:
    """Whatever way it was spent, in every attempt."""
    await make_budget(lab)
    policy = ExecutionPolicy(retry_policy=RetryPolicy(max_retries=1))
    claimed = await lab.started(policy=policy)
    await tell(lab, claimed, a=3)
    await reserve(lab, claimed, {"a": 9, "b": 4})
    await settle(lab, claimed, {"a": 5, "b": 4})
    await reserve(lab, claimed, {"a": 50}, "never settled")
    await spend(lab, claimed.execution_id, {"b": 2})
    await lab.engine.fail(claimed.handle, reason="again", failure_class="transient")
    await lab.after(DAY_MS)
    again = await lab.claim()
    await tell(lab, again, budget_id="other", a=7)
    await lab.engine.complete(again.handle)
    assert await of_one(lab, claimed.execution_id) == {
        (BUDGET, "a"): 8,
        (BUDGET, "b"): 6,
        ("other", "a"): 7,
    }
    found = (await lab.engine.list_spend()).items
    assert found == (
        KindSpent("default", "work", BUDGET, "a", 8),
        KindSpent("default", "work", BUDGET, "b", 6),
        KindSpent("default", "work", "other", "a", 7),
    )
    check_totals(await lab.dump())


@scenario
async def test_what_is_refused_or_repeated_is_not_counted(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 10})
    claimed = await lab.started()
    for _ in range(2):
        used = Usage(custom={"a": 6}, dedup_key="once")
        await lab.engine.report_usage(claimed.handle, budget_id=BUDGET, usage=used)
    await tell(lab, claimed, a=6)
    await report(lab, {"a": 1})  # from outside any execution
    assert await of_one(lab, claimed.execution_id) == {(BUDGET, "a"): 6}
    assert await of_kinds(lab) == {("work", "a"): 6}
    assert await usage(lab) == {"a": 7}


@scenario
async def test_only_what_was_recorded_or_settled_is_given_back(lab: Lab) -> None:
    """As before: a report stays."""
    await make_budget(lab)
    claimed = await lab.started()
    await tell(lab, claimed, a=3)
    await spend(lab, claimed.execution_id, {"a": 5, "b": 1})
    await give_back(lab, claimed.execution_id)
    assert await usage(lab) == {"a": 3, "b": 0}
    assert await of_one(lab, claimed.execution_id) == {(BUDGET, "a"): 3}
    assert await of_kinds(lab) == {("work", "a"): 3, ("work", "b"): 0}
    await give_back(lab, claimed.execution_id)
    assert await usage(lab) == {"a": 3, "b": 0}
    check_totals(await lab.dump())


@scenario
async def test_a_reset_forgets_nothing_that_was_spent(lab: Lab) -> None:
    await make_budget(lab)
    claimed = await lab.started()
    await spend(lab, claimed.execution_id, {"a": 5})
    await lab.engine.reset_budget(budget_id=BUDGET)
    await spend(lab, claimed.execution_id, {"a": 2})
    assert await of_one(lab, claimed.execution_id) == {(BUDGET, "a"): 7}
    await give_back(lab, claimed.execution_id)  # of this period
    assert await usage(lab) == {"a": 0}
    assert await of_one(lab, claimed.execution_id) == {(BUDGET, "a"): 5}
    assert await of_kinds(lab) == {("work", "a"): 5}
    check_totals(await lab.dump())


@scenario
async def test_the_members_of_a_flow_add_up_and_go_with_it(lab: Lab) -> None:
    await make_budget(lab)
    graph = await submit(lab, [node("a"), node("b")])
    for claimed in await lab.claims(limit=2):
        await tell(lab, claimed, a=4)
        await reserve(lab, claimed, {"b": 2})
        await settle(lab, claimed, {"b": 1})
        await lab.engine.complete(claimed.handle)
    assert await of_flow(lab, graph.flow_id) == {"a": 8, "b": 2}
    check_totals(await lab.dump())
    lab.clock.advance(2 * DAY_MS)
    while await lab.engine.tick():
        continue
    rows = (await lab.dump())[TOTALS.name]
    assert [(row.scope.value, row.dimension, row.spent) for row in rows] == [
        ("kind", "a", 8),
        ("kind", "b", 2),
    ]
    with pytest.raises(NotFound, match="flow"):
        await lab.engine.list_flow_spend(flow_id=graph.flow_id)


@scenario
async def test_an_execution_that_joins_a_flow_brings_along_what_it_spent(lab: Lab) -> None:
    """With its next spending; what is given back is taken from where it is counted."""
    await make_budget(lab)
    flow_id = (await empty(lab)).flow_id
    claimed = await lab.started(colocate_with=flow_id)
    await tell(lab, claimed, a=3)
    await spend(lab, claimed.execution_id, {"a": 2})
    await lab.engine.add_execution_to_flow(flow_id=flow_id, execution_id=claimed.execution_id)
    assert await of_flow(lab, flow_id) == {}
    await tell(lab, claimed, a=1)
    assert await of_flow(lab, flow_id) == {"a": 6}
    await give_back(lab, claimed.execution_id)
    assert await of_flow(lab, flow_id) == {"a": 4}
    check_totals(await lab.dump())


@scenario
async def test_spending_for_an_execution_that_is_gone_counts_for_the_budget_alone(
    lab: Lab,
) -> None:
    await make_budget(lab)
    claimed = await lab.started(policy=ExecutionPolicy(retention_ttl_ms=1000))
    await tell(lab, claimed, a=3)
    await lab.engine.complete(claimed.handle)
    await lab.after(1000)
    await spend(lab, claimed.execution_id, {"a": 2})
    assert await usage(lab) == {"a": 5}
    assert await of_kinds(lab) == {("work", "a"): 3}
    with pytest.raises(NotFound, match="execution"):
        await of_one(lab, claimed.execution_id)


@scenario
async def test_kinds_and_tenants_are_told_apart(lab: Lab) -> None:
    await make_budget(lab)
    for kind, namespace, amount in (("x", "default", 1), ("y", "default", 2), ("x", "else", 4)):
        key = await lab.create(kind, namespace=namespace)
        await spend(lab, key, {"a": amount})
    assert await of_kinds(lab) == {("x", "a"): 1, ("y", "a"): 2}
    assert await of_kinds(lab, "y") == {("y", "a"): 2}
    (other,) = (await lab.engine.list_spend(namespace="else")).items
    assert (other.namespace, other.execution_kind, other.spent) == ("else", "x", 4)
    page = await lab.engine.list_spend(execution_kind="x", limit=1)
    assert page.next_cursor is None
    async with lab.refuses(InvalidInput, field="execution_kind"):
        await lab.engine.list_spend(execution_kind="")
    async with lab.refuses(InvalidCursor, field="cursor"):
        await lab.engine.list_spend(cursor="x")


@pytest.mark.parametrize("seed", range(2))
@scenario
async def test_many_spends_in_one_batch(lab: Lab, seed: int) -> None:
    """Commands that share a transaction see each other's lines and totals."""
    await make_budget(lab)
    claimed = [await lab.started() for _ in range(4)]
    given = [claimed[(seed + number) % 4] for number in range(12)]
    await asyncio.gather(*(tell(lab, each, a=number) for number, each in enumerate(given)))
    assert await of_kinds(lab) == {("work", "a"): sum(range(12))}
    check_totals(await lab.dump())


@scenario
async def test_an_execution_joins_a_flow_and_spends_in_one_commit(lab: Lab) -> None:
    """The flow, whose totals were not looked for, counts that with its next spending."""
    await make_budget(lab)
    graph = await submit(lab, [node("a")])
    member = await lab.claim()
    await tell(lab, member, a=5)
    other = await lab.started(colocate_with=graph.flow_id)
    key = other.execution_id
    join = AddMember(execution_id=key, flow_id=graph.flow_id)
    used = ReportUsage(
        budget_id=BUDGET,
        amounts={"a": 3},
        dedup_key=None,
        dedup_ttl_ms=0,
        execution_id=key,
        fence=other.handle.fence,
    )
    commands: list[Any] = [join, used]
    await lab.engine.execute_together(commands)
    assert await of_one(lab, key) == {(BUDGET, "a"): 3}
    await tell(lab, other, a=1)
    assert await of_flow(lab, graph.flow_id) == {"a": 9}
    check_totals(await lab.dump())
