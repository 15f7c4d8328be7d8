"""A budget that asks: questions that spenders share, answers, and what makes both superfluous."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.api.waits import SuspendRequest, UsePending
from flowfabric.errors import (
    AskOver,
    ExecutionNotActive,
    InvalidInput,
    NotFound,
    NothingToAsk,
    StaleLease,
)
from flowfabric.model.ask import Asked, AskState, BudgetAsk, LimitKind
from flowfabric.model.budget import AskFirst, HardBreach, Ok, Reserved
from flowfabric.model.event import BudgetEventType, OperatorEventType
from flowfabric.model.journal import EntryKind, EntryState
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import AlreadyMet, Single, Suspended
from tests.support.budgets import BUDGET, held, make_budget, report, reserve, settle, status, usage
from tests.support.journal import entry
from tests.support.lab import TTL_MS, Lab, scenario

MINUTE_MS = 60_000


async def asking(lab: Lab, hard: int = 10, **fields: Any) -> None:
    """A budget that asks."""
    how = {"on_hard_limit": "ask", **fields}
    await make_budget(lab, hard={"a": hard}, **how)


async def try_reserve(lab: Lab, claimed: Claimed, amount: int, hold_id: str = "h") -> Any:
    return await lab.engine.reserve_budget(
        claimed.handle, budget_id=BUDGET, amounts={"a": amount}, hold_id=hold_id
    )


async def ask(lab: Lab, claimed: Claimed, amount: int, **fields: Any) -> Asked:
    """Ask, as a spender does that was told to."""
    return await lab.engine.ask_budget(
        claimed.handle, budget_id=BUDGET, amounts={"a": amount}, **fields
    )


async def wait(lab: Lab, claimed: Claimed, amount: int) -> Asked:
    """Ask, and wait for the answer without a worker."""
    asked = await ask(lab, claimed, amount)
    key = asked.waitpoint_key
    request = SuspendRequest(
        resume_condition=Single(key), waitpoints=(UsePending(asked.waitpoint_id, key),)
    )
    assert isinstance(await lab.engine.suspend(claimed.handle, request), Suspended)
    return asked


async def answer(lab: Lab, approve: bool = True, **fields: Any) -> Any:
    """A person's answer about the hard limit."""
    how = {"actor": "ada", **fields}
    return await lab.engine.answer_budget_ask(
        budget_id=BUDGET, dimension="a", approve=approve, **how
    )


async def asks(lab: Lab, **fields: Any) -> list[BudgetAsk]:
    return list((await lab.engine.list_budget_asks(**fields)).items)


async def told(lab: Lab) -> None:
    await lab.direct.move_due()


async def resumed(lab: Lab, claimed: Claimed) -> tuple[Claimed, str]:
    """A spender that goes on, and the answer that it was told."""
    again = await lab.claim("w9")
    assert again.execution_id == claimed.execution_id
    info = await lab.engine.resume_info(again.handle)
    assert info is not None
    return again, info.signals[-1].signal_name


@scenario
async def test_a_raise_lets_the_spender_go_on(lab: Lab) -> None:
    await asking(lab)
    claimed = await lab.started()
    await report(lab, {"a": 8})
    assert await try_reserve(lab, claimed, 5) == AskFirst("a", 8, 10)
    asked = await wait(lab, claimed, 5)
    assert (asked.dimension, asked.number, asked.current_usage, asked.limit) == ("a", 1, 8, 10)
    (shown,) = await asks(lab)
    assert (shown.usage, shown.limit, shown.wanted, shown.projected) == (8, 10, 5, 13)
    assert (shown.execution_id, shown.execution_kind) == (claimed.execution_id, "work")
    assert (shown.spenders, shown.state) == (1, AskState.OPEN)
    done = await answer(lab, raise_by=5, comment="go")
    assert (done.state, done.limit, done.told) == (AskState.APPROVED, 15, 1)
    await told(lab)
    assert await asks(lab) == []
    again, word = await resumed(lab, claimed)
    assert word == "approved"
    await reserve(lab, again, {"a": 5})
    assert await settle(lab, again, {"a": 5}) == Ok()
    found = await status(lab)
    assert (found.usage, found.hard_limits, found.allowed) == ({"a": 13}, {"a": 15}, {})
    (last,) = await asks(lab, only_open=False)
    assert (last.answered_by, last.comment, last.raise_by) == ("ada", "go", 5)
    events = await lab.operator_events(BUDGET)
    told_of = [each for each in events if each.event_type is OperatorEventType.BUDGET_ASK_ANSWERED]
    assert [(each.actor, each.details["after"]) for each in told_of] == [("ada", 15)]
    kinds = [each.event_type for each in await lab.budget_events(BUDGET)]
    for kind in (BudgetEventType.ASKED, BudgetEventType.ANSWERED, BudgetEventType.RAISED):
        assert kinds.count(kind) == 1


@scenario
async def test_many_spenders_share_one_question(lab: Lab) -> None:
    await asking(lab)
    spenders = [await lab.started(f"w{at}") for at in range(110)]
    await report(lab, {"a": 10})
    for each in spenders:
        await wait(lab, each, 2)
    (shown,) = await asks(lab)
    assert (shown.spenders, shown.wanted, shown.number) == (110, 220, 1)
    assert (await answer(lab, raise_by=220)).told == 110
    for _ in range(3):  # a bounded number at a time
        await told(lab)
        lab.clock.advance(100)
    states = {await lab.state(each.execution_id) for each in spenders}
    assert states == {PublicState.WAITING}
    assert (await lab.dump())["ff_budget_asker"] == []


@scenario
async def test_a_rejection_reaches_those_that_asked(lab: Lab) -> None:
    await asking(lab)
    one, two = await lab.started(), await lab.started("w2")
    await report(lab, {"a": 10})
    await wait(lab, one, 1)
    early = await ask(lab, two, 1)  # it does not wait yet
    await answer(lab, approve=False)
    await told(lab)
    _, word = await resumed(lab, one)
    assert word == "rejected"
    key = early.waitpoint_key
    request = SuspendRequest(
        resume_condition=Single(key), waitpoints=(UsePending(early.waitpoint_id, key),)
    )
    met = await lab.engine.suspend(two.handle, request)
    assert isinstance(met, AlreadyMet)
    assert met.signals[0].signal_name == "rejected"
    assert (await ask(lab, two, 1)).number == 2  # asked again, it is another question


@scenario
async def test_an_allowance_is_for_this_run_once(lab: Lab) -> None:
    await asking(lab)
    one, two = await lab.started(), await lab.started("w2")
    await report(lab, {"a": 10})
    await wait(lab, one, 3)
    await answer(lab, once=True)
    await told(lab)
    assert (await status(lab)).allowed == {"a": 3}
    again, word = await resumed(lab, one)
    assert word == "approved"
    assert await try_reserve(lab, two, 1) == AskFirst("a", 10, 10)  # it is not for others
    assert await try_reserve(lab, again, 4) == AskFirst("a", 10, 10)  # nor for more
    await reserve(lab, again, {"a": 3})
    assert await try_reserve(lab, again, 1, "h2") == AskFirst("a", 13, 10)  # nor twice
    await lab.engine.release_hold(again.handle, budget_id=BUDGET, hold_id="h")
    await reserve(lab, again, {"a": 3}, "h3")  # what was not spent may be reserved again
    assert await settle(lab, again, {"a": 3}, "h3") == Ok()
    assert await try_reserve(lab, again, 1, "h4") == AskFirst("a", 13, 10)
    found = await status(lab)
    assert (found.usage, found.allowed, found.hard_limits) == ({"a": 13}, {"a": 3}, {"a": 10})
    assert (await lab.dump())["ff_budget_allowance"] == []
    await lab.engine.reset_budget(budget_id=BUDGET)
    assert (await status(lab)).allowed == {}


@scenario
async def test_an_allowance_outlives_the_worker_that_dies(lab: Lab) -> None:
    await asking(lab)
    claimed = await lab.started()
    await report(lab, {"a": 10})
    await wait(lab, claimed, 3)
    await answer(lab, once=True)
    await told(lab)
    again, _ = await resumed(lab, claimed)
    await reserve(lab, again, {"a": 3})
    lab.clock.advance(TTL_MS + 1)
    await lab.engine.tick()
    assert await held(lab) == {}
    last = await lab.claim("w3")  # a full budget that asks keeps back only what has not begun
    await reserve(lab, last, {"a": 3})
    assert await settle(lab, last, {"a": 3}) == Ok()
    assert await usage(lab) == {"a": 13}


@scenario
async def test_one_spender_may_be_answered_alone(lab: Lab) -> None:
    await asking(lab)
    one, two = await lab.started(), await lab.started("w2")
    await report(lab, {"a": 10})
    await wait(lab, one, 3)
    await wait(lab, two, 4)
    reply = await answer(lab, once=True, execution_id=two.execution_id)
    assert (reply.told, reply.state) == (1, AskState.APPROVED)
    assert await lab.state(two.execution_id) is PublicState.WAITING
    assert await lab.state(one.execution_id) is PublicState.SUSPENDED
    (left,) = await asks(lab)
    assert (left.spenders, left.wanted) == (1, 3)
    assert await asks(lab, execution_id=two.execution_id) == []
    assert await asks(lab, execution_id=one.execution_id) == [left]
    await answer(lab, approve=False, execution_id=one.execution_id)
    assert await asks(lab) == []
    assert await lab.state(one.execution_id) is PublicState.WAITING


@pytest.mark.parametrize("how", ["update", "reset", "mode", "block", "settled", "released"])
@scenario
async def test_room_by_other_means_ends_a_question(lab: Lab, how: str) -> None:
    await asking(lab)
    claimed, other = await lab.started(), await lab.started("w2")
    await reserve(lab, other, {"a": 9})
    await wait(lab, claimed, 5)
    changes: dict[str, dict[str, Any]] = {
        "update": {"hard_limits": {"a": 14}},
        "mode": {"enforcement_mode": "advisory"},
        "block": {"on_hard_limit": "block"},
    }
    if how in changes:
        await lab.engine.update_budget(budget_id=BUDGET, **changes[how])
    elif how == "reset":
        await settle(lab, other, {"a": 9})
        await lab.engine.reset_budget(budget_id=BUDGET)
    elif how == "settled":
        await settle(lab, other, {"a": 1})
    else:
        lab.clock.advance(TTL_MS + 1)
        await lab.engine.tick()
    assert await asks(lab) == []
    await told(lab)
    assert await lab.state(claimed.execution_id) is PublicState.WAITING
    async with lab.refuses(AskOver):
        await answer(lab, raise_by=1)
    (last,) = await asks(lab, only_open=False, budget_id=BUDGET)
    assert last.state is AskState.OVER


@scenario
async def test_a_question_without_spenders_is_dropped(lab: Lab) -> None:
    await asking(lab)
    one, two = await lab.started(), await lab.started("w2")
    await report(lab, {"a": 10})
    await wait(lab, one, 1)
    await wait(lab, two, 2)
    await lab.cancel(one.execution_id)
    await lab.after(MINUTE_MS)
    (left,) = await asks(lab)
    assert (left.spenders, left.wanted) == (1, 2)
    await lab.cancel(two.execution_id)
    await lab.after(MINUTE_MS)
    assert await asks(lab) == []
    dump = await lab.dump()
    assert dump["ff_budget_asker"] == []
    assert dump["ff_budget_ask"][0].due_at is None


@scenario
async def test_a_soft_limit_may_ask_too(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 20}, soft={"a": 10}, on_soft_limit="ask")
    claimed = await lab.started()
    assert await report(lab, {"a": 8}) == Ok()
    assert await try_reserve(lab, claimed, 30) == HardBreach("a", 8, 20)
    assert await try_reserve(lab, claimed, 4) == AskFirst("a", 8, 10, is_soft=True)
    await wait(lab, claimed, 4)
    (shown,) = await asks(lab)
    assert (shown.limit_kind, shown.limit) == (LimitKind.SOFT, 10)
    async with lab.refuses(NotFound):  # it asks nothing about the hard limit
        await answer(lab, once=True)
    await answer(lab, once=True, limit_kind="soft")
    await told(lab)
    again, _ = await resumed(lab, claimed)
    await reserve(lab, again, {"a": 4})
    await settle(lab, again, {"a": 4})
    found = await status(lab)
    assert (found.usage, found.soft_allowed, found.allowed) == ({"a": 12}, {"a": 4}, {})


@scenario
async def test_a_full_budget_that_asks_starts_nothing_new(lab: Lab) -> None:
    await asking(lab)
    first = await lab.create(budget_ids=(BUDGET,))
    running = await lab.claim()
    assert running.execution_id == first
    await report(lab, {"a": 10})
    second = await lab.create(budget_ids=(BUDGET,))
    assert await lab.claims("w2") == []
    assert await lab.state(second) is PublicState.RATE_LIMITED
    await wait(lab, running, 2)
    await answer(lab, raise_by=5)
    await told(lab)
    assert await lab.state(second) is PublicState.WAITING


@scenario
async def test_answers_count_once(lab: Lab) -> None:
    await asking(lab)
    claimed = await lab.started()
    await report(lab, {"a": 10})
    await wait(lab, claimed, 1)
    first = await answer(lab, raise_by=7, number=1)
    async with lab.unchanged():
        assert await answer(lab, raise_by=7, number=1) == first
    for other in ({"raise_by": 8}, {"once": True}, {"raise_by": 7, "actor": "bo"}):
        async with lab.refuses(AskOver):
            await answer(lab, **other)
    async with lab.refuses(AskOver):
        await answer(lab, approve=False)
    assert (await status(lab)).hard_limits == {"a": 17}


@scenario
async def test_a_repeated_question_is_asked_once(lab: Lab) -> None:
    """The reply was lost: the entry of the journal names the waitpoint of the first call."""
    await asking(lab)
    claimed = await lab.started()
    await report(lab, {"a": 10})
    place = entry(0, "place", kind=EntryKind.WAITPOINT, state=EntryState.OPEN)
    first = await ask(lab, claimed, 1, entries=(place,))
    again = await ask(lab, claimed, 1, entries=(place,))
    assert again.waitpoint_id == first.waitpoint_id
    (shown,) = await asks(lab)
    assert shown.spenders == 1
    assert len((await lab.dump())["ff_budget_asker"]) == 1


@scenario
async def test_only_the_owner_asks_and_only_where_there_is_a_question(lab: Lab) -> None:
    await asking(lab)
    claimed = await lab.started()
    async with lab.refuses(NothingToAsk):
        await ask(lab, claimed, 5)
    await report(lab, {"a": 10})
    await lab.engine.complete(claimed.handle)
    async with lab.refuses(ExecutionNotActive):
        await ask(lab, claimed, 5)
    other = await lab.started()
    lab.clock.advance(TTL_MS + 1)
    await lab.engine.tick()
    await lab.claim("w2")
    async with lab.refuses(StaleLease):
        await ask(lab, other, 5)
    assert await asks(lab) == []


@scenario
async def test_bad_answers_change_nothing(lab: Lab) -> None:
    await asking(lab)
    claimed = await lab.started()
    await report(lab, {"a": 10})
    await wait(lab, claimed, 1)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("raise_by", {}),
        ("raise_by", {"raise_by": 1, "once": True}),
        ("raise_by", {"raise_by": -1}),
        ("raise_by", {"raise_by": 2**63 - 1}),
        ("raise_by", {"raise_by": 1, "execution_id": claimed.execution_id}),
        ("once", {"approve": False, "once": True}),
        ("raise_by", {"approve": False, "raise_by": 3}),
        ("number", {"once": True, "number": 0}),
        ("limit_kind", {"once": True, "limit_kind": "firm"}),
        ("comment", {"once": True, "comment": "x" * 100_000}),
    ]
    for field, fields in wrong:
        async with lab.refuses(InvalidInput, field=field):
            await answer(lab, **fields)
    async with lab.refuses(AskOver):
        await answer(lab, once=True, number=2)
    stranger = await lab.create()
    async with lab.refuses(NotFound):
        await answer(lab, once=True, execution_id=stranger)
    async with lab.refuses(NotFound):
        await lab.engine.answer_budget_ask(budget_id="none", dimension="a", approve=False)
    async with lab.refuses(InvalidInput, field="amounts"):
        await lab.engine.ask_budget(claimed.handle, budget_id=BUDGET, amounts={})
    (shown,) = await asks(lab)
    assert shown.spenders == 1


@scenario
async def test_questions_come_in_pages(lab: Lab) -> None:
    claimed = await lab.started()
    for name in ("b1", "b2", "b3"):
        await make_budget(lab, name, hard={"a": 1, "b": 1}, on_hard_limit="ask")
        for dimension in ("b", "a"):
            await lab.engine.ask_budget(claimed.handle, budget_id=name, amounts={dimension: 2})
            lab.clock.advance(1)
    for only_open in (True, False):
        found, cursor = [], None
        while True:
            page = await lab.engine.list_budget_asks(cursor=cursor, limit=2, only_open=only_open)
            found += [(each.budget_id, each.dimension) for each in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(found) == 6
        expected = [(name, d) for name in ("b1", "b2", "b3") for d in ("b", "a")]
        assert found == (expected if only_open else sorted(expected))


@scenario
async def test_answering_against_asking_loses_no_spender(lab: Lab) -> None:
    """A spender asks before, while or after the question is answered: it goes on all the same."""
    await asking(lab, 1)
    await report(lab, {"a": 1})
    for at in range(10):
        one, two = await lab.started(), await lab.started("w2")
        await wait(lab, one, 1)
        asked, _ = await asyncio.gather(
            ask(lab, two, 1), answer(lab, approve=False), return_exceptions=True
        )
        await told(lab)
        assert await lab.state(one.execution_id) is PublicState.WAITING, at
        again = await lab.claim("w3")
        if isinstance(asked, Asked):
            rows = (await lab.dump())["ff_waitpoint"]
            (place,) = [each for each in rows if each.waitpoint_id == asked.waitpoint_id]
            assert bool(await asks(lab)) or place.signal_count == 1
        else:
            assert isinstance(asked, NothingToAsk), asked
        for each in (again, two):
            await lab.engine.complete(each.handle)
        await lab.after(MINUTE_MS)
        assert await asks(lab) == []


def test_a_reservation_says_whether_its_budget_asks() -> None:
    assert Reserved("h", 1) == Reserved("h", 1, asks=False)
