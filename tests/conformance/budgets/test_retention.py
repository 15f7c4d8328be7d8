"""What budgets keep about executions goes with them; what is only remembered is swept."""

from __future__ import annotations

from flowfabric.model.budget import Ok
from flowfabric.model.policy import ExecutionPolicy
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
from tests.support.lab import Lab, scenario

OF_EXECUTIONS = ("ff_budget_usage_by_exec", "ff_budget_hold", "ff_budget_attachment")
SHORT = ExecutionPolicy(retention_ttl_ms=1000)


@scenario
async def test_a_purge_takes_ledgers_holds_and_attachments_along(lab: Lab) -> None:
    """Of the purged execution only; what it spent stays spent."""
    await make_budget(lab)
    gone = await lab.started(policy=SHORT, budget_ids=(BUDGET,))
    kept = await lab.started(budget_ids=(BUDGET,))
    for claimed in (gone, kept):
        await spend(lab, claimed.execution_id, {"a": 5})
        await reserve(lab, claimed, {"a": 2})
    await lab.engine.complete(gone.handle)
    lab.clock.advance(1000)
    await lab.engine.trim_retention()
    dump = await lab.dump()
    for table in OF_EXECUTIONS:
        assert [row.execution_id for row in dump[table]] == [kept.execution_id], table
    assert await usage(lab) == {"a": 10}
    await give_back(lab, gone.execution_id)
    assert await usage(lab) == {"a": 10}


@scenario
async def test_an_attachment_ends_with_the_work(lab: Lab) -> None:
    """Before the purge: a budget's list is as long as its living work."""
    await make_budget(lab)
    claimed = await lab.started(budget_ids=(BUDGET,))
    waiting = await lab.create(budget_ids=(BUDGET,))
    await lab.engine.complete(claimed.handle)
    await lab.cancel(waiting)
    assert (await lab.dump())["ff_budget_attachment"] == []


@scenario
async def test_a_replay_is_attached_again(lab: Lab) -> None:
    await make_budget(lab)
    execution_id = await lab.completed(budget_ids=(BUDGET,))
    await lab.engine.replay_execution(execution_id=execution_id)
    rows = (await lab.dump())["ff_budget_attachment"]
    assert [(row.budget_id, row.execution_id) for row in rows] == [(BUDGET, execution_id)]


@scenario
async def test_keys_are_swept_after_their_time(lab: Lab) -> None:
    """And not before."""
    await make_budget(lab, hard={"a": 1})
    execution_id = await lab.create()
    await report(lab, {"b": 1}, dedup_key="short", dedup_ttl_ms=1000)
    await report(lab, {"a": 9}, dedup_key="refused", dedup_ttl_ms=1000)
    await spend(lab, execution_id, {"b": 1}, idempotency_key="short", dedup_ttl_ms=1000)
    await report(lab, {"b": 1}, dedup_key="long")

    async def keys() -> list[str]:
        return sorted(row.dedup_key for row in (await lab.dump())["ff_budget_usage_dedup"])

    lab.clock.advance(999)
    await lab.engine.sweep()
    assert await keys() == ["long", "refused", "short", "short"]
    lab.clock.advance(1)
    await lab.engine.sweep()
    assert await keys() == ["long"]
    assert await report(lab, {"b": 1}, dedup_key="short") == Ok()
    assert await usage(lab) == {"b": 4}


@scenario
async def test_a_budget_and_its_counters_outlive_their_work(lab: Lab) -> None:
    await make_budget(lab)
    claimed = await lab.started(policy=SHORT, budget_ids=(BUDGET,))
    await reserve(lab, claimed, {"a": 2})
    await settle(lab, claimed, {"a": 2})
    await lab.engine.complete(claimed.handle)
    await lab.after(10 * 86_400_000)
    assert await usage(lab) == {"a": 2}
    assert [each.budget_id for each in (await lab.engine.list_budgets()).items] == [BUDGET]
