"""Counters of limits written by hand are set to what the rows they count say."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from flowfabric.errors import InvalidCursor, InvalidInput, NotFound
from flowfabric.model.budget import AttachmentRow, HardBreach, Reserved
from flowfabric.model.event import OperatorEventType
from flowfabric.model.repair import Correction, Repaired
from flowfabric.model.state import PublicState
from flowfabric.stores.base import RowChanges
from flowfabric.stores.tables import ADMISSIONS, ATTACHMENTS, GATES, USAGE
from tests.support.lab import Lab, scenario
from tests.support.spoiling import change, drop, write

BOUNDS: Final[dict[str, Any]] = {"budget_ids": ("b",), "quota_policy_id": "q"}


async def busy(lab: Lab) -> Any:
    """One execution runs under both limits, and has reserved 5 of 100."""
    engine = lab.engine
    await engine.create_budget(
        budget_id="b", dimensions=["tokens"], hard_limits=[100], soft_limits=[0]
    )
    await engine.create_quota_policy(
        quota_policy_id="q", max_requests_per_window=5, max_concurrent=1
    )
    claimed = await lab.started(**BOUNDS)
    held = await engine.reserve_budget(claimed.handle, budget_id="b", amounts={"tokens": 5})
    assert isinstance(held, Reserved)
    return claimed


async def budgets(lab: Lab, **fields: Any) -> list[Repaired]:
    """All pages."""
    pages = [await lab.engine.reconcile_budget_counters(**fields)]
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(await lab.engine.reconcile_budget_counters(cursor=cursor, **fields))
    return pages


async def corrections(lab: Lab, **fields: Any) -> list[Correction]:
    return [each for page in await budgets(lab, **fields) for each in page.corrections]


async def quotas(lab: Lab, **fields: Any) -> Repaired:
    return await lab.engine.reconcile_quota_counters(**fields)


async def audited(lab: Lab, subject: str) -> list[Any]:
    return [
        each.details["corrections"]
        for each in await lab.operator_events(subject)
        if each.event_type is OperatorEventType.COUNTERS_REPAIRED
    ]


# --- budgets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0, 7, 99])
@scenario
async def test_what_a_budget_holds_is_counted_again(lab: Lab, wrong: int) -> None:
    await busy(lab)
    await change(lab, USAGE, held=wrong)
    assert [each.code for each in (await lab.engine.doctor()).problems] == ["limits"]
    assert await corrections(lab) == [Correction("budget b", "held tokens", wrong, 5)]
    assert (await lab.engine.doctor()).problems == ()
    async with lab.unchanged():
        assert await corrections(lab) == []
    told = {"subject": "budget b", "counter": "held tokens", "was": wrong, "is": 5}
    assert await audited(lab, "b") == [[told]]


@scenario
async def test_a_dimension_without_a_counter_gets_one(lab: Lab) -> None:
    await busy(lab)
    await drop(lab, USAGE)
    assert await corrections(lab, budget_id="b") == [Correction("budget b", "held tokens", 0, 5)]
    assert (await lab.engine.get_budget_status(budget_id="b")).held == {"tokens": 5}


@scenario
async def test_work_that_a_wrong_counter_blocks_goes_on(lab: Lab) -> None:
    await busy(lab)
    await change(lab, USAGE, held=100)
    blocked = await lab.create(budget_ids=("b",))
    assert await lab.claims("w2") == []
    assert await lab.state(blocked) is PublicState.RATE_LIMITED
    await budgets(lab)
    assert (await lab.claim("w2")).execution_id == blocked


@scenario
async def test_what_was_used_is_reported_and_left(lab: Lab) -> None:
    """Reports leave no rows; spends do, and so prove only a least amount."""
    claimed = await busy(lab)
    await lab.engine.record_spend(
        budget_id="b", execution_id=claimed.execution_id, deltas={"tokens": 20}, idempotency_key="k"
    )
    await lab.engine.report_usage_admin(budget_id="b", dimensions=["tokens"], deltas=[30])
    assert [page.unproven for page in await budgets(lab)] == [(), ()]
    await change(lab, USAGE, used=19)
    async with lab.unchanged():
        first, _ = await budgets(lab)
    (told,) = first.unproven
    assert (told.subject, told.detail) == ("budget b", "used tokens is 19, 20 were spent")
    (problem,) = (await lab.engine.doctor()).problems
    assert problem.detail == told.detail


@scenario
async def test_lists_of_budgets_are_set_right_both_ways(lab: Lab) -> None:
    running = await busy(lab)
    ended = await lab.completed()
    other = await lab.create(budget_ids=("b",))
    await drop(lab, ATTACHMENTS)
    stale = RowChanges()
    stale.inserted += [AttachmentRow("b", ended)]
    await write(lab, ATTACHMENTS, stale)
    assert {each.code for each in (await lab.engine.doctor()).problems} == {"limits"}
    found = await corrections(lab, limit=1)
    assert {(each.counter, each.after) for each in found} == {
        (f"attached {ended}", 0),
        (f"attached {running.execution_id}", 1),
        (f"attached {other}", 1),
    }
    assert (await lab.engine.doctor()).problems == ()
    async with lab.unchanged():
        assert await corrections(lab) == []


@scenario
async def test_budgets_are_looked_at_page_by_page(lab: Lab) -> None:
    for name in "abc":
        await lab.engine.create_budget(
            budget_id=name, dimensions=["x"], hard_limits=[9], soft_limits=[0]
        )
    await lab.create()
    assert [page.looked_at for page in await budgets(lab, limit=2)] == [2, 1, 1]


@scenario
async def test_reservations_during_a_repair_are_kept(lab: Lab) -> None:
    claimed = await busy(lab)
    await change(lab, USAGE, held=99)
    refused = await lab.engine.reserve_budget(
        claimed.handle, budget_id="b", amounts={"tokens": 5}, hold_id="two"
    )
    assert isinstance(refused, HardBreach)
    await budgets(lab)
    assert isinstance(
        await lab.engine.reserve_budget(
            claimed.handle, budget_id="b", amounts={"tokens": 5}, hold_id="two"
        ),
        Reserved,
    )
    async with lab.unchanged():
        assert await corrections(lab) == []


@scenario
async def test_nothing_is_changed_while_reservations_come_and_go(lab: Lab) -> None:
    """A look without locks may see half of a change; the count under the lock does not."""
    await busy(lab)
    await lab.engine.create_quota_policy(quota_policy_id="wide", max_concurrent=50)
    found: list[Correction] = []

    async def work(name: str) -> None:
        for _ in range(4):
            await lab.create(budget_ids=("b",), quota_policy_id="wide")
            for claimed in await lab.claims(name):
                held = await lab.engine.reserve_budget(
                    claimed.handle, budget_id="b", amounts={"tokens": 3}
                )
                assert isinstance(held, Reserved)
                await lab.engine.complete(claimed.handle)

    async def repair() -> None:
        for _ in range(8):
            found.extend(await corrections(lab))
            found.extend((await quotas(lab)).corrections)

    await asyncio.gather(*map(work, ("w2", "w3", "w4")), repair(), repair())
    assert found == []
    assert (await lab.engine.doctor()).problems == ()


# --- quotas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counter", "right"), [("active", 1), ("in_window", 1)])
@pytest.mark.parametrize("wrong", [0, 4])
@scenario
async def test_a_key_of_a_quota_is_counted_again(
    lab: Lab, counter: str, right: int, wrong: int
) -> None:
    await busy(lab)
    await change(lab, GATES, **{counter: wrong})
    assert [each.code for each in (await lab.engine.doctor()).problems] == ["limits"]
    done = await quotas(lab)
    assert done == Repaired(1, (Correction("quota q default", counter, wrong, right),))
    assert (await lab.engine.doctor()).problems == ()
    async with lab.unchanged():
        assert await quotas(lab) == Repaired(1)
    told = {"subject": "quota q default", "counter": counter, "was": wrong, "is": right}
    assert await audited(lab, "q") == [[told]]


@scenario
async def test_a_slot_of_an_execution_that_does_not_run_is_given_back(lab: Lab) -> None:
    claimed = await busy(lab)
    (admission,) = (await lab.dump())[ADMISSIONS.name]
    await lab.engine.complete(claimed.handle)
    left = RowChanges()
    left.updated += [admission]
    left.fields.update(("state", "due_at"))
    await write(lab, ADMISSIONS, left)
    await change(lab, GATES, active=1)
    waiting = await lab.create(quota_policy_id="q")
    assert await lab.claims("w2") == []
    assert [each.code for each in (await lab.engine.doctor()).problems] == ["limits"]
    done = await quotas(lab, quota_policy_id="q")
    slot = Correction("quota q default", f"slot of {claimed.execution_id}", 1, 0)
    assert done.corrections == (slot,)
    assert (await lab.claim("w2")).execution_id == waiting
    assert (await lab.engine.doctor()).problems == ()
    async with lab.unchanged():
        assert await quotas(lab) == Repaired(1)


@scenario
async def test_keys_of_quotas_are_looked_at_page_by_page(lab: Lab) -> None:
    await lab.engine.create_quota_policy(quota_policy_id="q", max_concurrent=1)
    await lab.engine.create_quota_policy(quota_policy_id="r", max_concurrent=1)
    for name, key in (("q", "x"), ("q", "y"), ("q", "z"), ("r", "x")):
        await lab.create(quota_policy_id=name, concurrency_key=key)
    await lab.claims(limit=9)
    await change(lab, GATES, active=3)
    first = await quotas(lab, limit=2, quota_policy_id="q")
    assert (first.looked_at, len(first.corrections)) == (2, 2)
    second = await quotas(lab, limit=2, quota_policy_id="q", cursor=first.next_cursor)
    assert (second.looked_at, second.next_cursor) == (1, None)
    (wrong,) = (await quotas(lab)).corrections
    assert wrong.subject == "quota r x"


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "fields", "error", "word"),
    [
        ("budget", {"budget_id": ""}, InvalidInput, "budget_id"),
        ("budget", {"budget_id": "none"}, NotFound, "budget none"),
        ("budget", {"limit": 0}, InvalidInput, "limit"),
        ("budget", {"cursor": "x"}, InvalidCursor, "cursor"),
        ("quota", {"quota_policy_id": 5}, InvalidInput, "quota_policy_id"),
        ("quota", {"quota_policy_id": "none"}, NotFound, "quota policy none"),
        ("quota", {"limit": True}, InvalidInput, "limit"),
        ("quota", {"cursor": "x"}, InvalidCursor, "cursor"),
    ],
)
@scenario
async def test_bad_input_is_refused(
    lab: Lab, call: str, fields: dict[str, Any], error: Any, word: str
) -> None:
    await busy(lab)
    async with lab.refuses(error, word):
        await getattr(lab.engine, f"reconcile_{call}_counters")(**fields)


@scenario
async def test_a_cursor_of_another_repair_is_refused(lab: Lab) -> None:
    await busy(lab)
    first = await lab.engine.reconcile_budget_counters()
    assert first.next_cursor is not None
    async with lab.refuses(InvalidCursor, "cursor"):
        await lab.engine.reconcile_quota_counters(cursor=first.next_cursor)
