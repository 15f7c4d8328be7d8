"""What people look at before and after they decide."""

from __future__ import annotations

from typing import Any

from flowfabric.api.waits import Fresh, SuspendRequest, UsePending
from flowfabric.errors import InvalidCursor, InvalidInput
from flowfabric.model.record import replace
from flowfabric.model.state import BlockingReason
from flowfabric.model.suspension import (
    AnyOf,
    Count,
    CountKind,
    OperatorOnly,
    ReasonCode,
    ResumeCause,
    Single,
    TimeoutOnly,
    WaitpointState,
)
from flowfabric.stores.base import Changes, Transaction
from tests.support.lab import Lab, scenario
from tests.support.waits import Waiting, pending, suspended

TWO = AnyOf((Count(2, CountKind.DISTINCT_SOURCES, ("a",), "approved"), Single("a", "rejected")))


async def asked(lab: Lab, namespace: str = "default") -> Waiting:
    """An execution that waits for two approvals."""
    await lab.create(namespace=namespace)
    claimed = await lab.claim(namespace=namespace)
    return await suspended(lab, TWO, claimed, reason_code=ReasonCode.WAITING_FOR_APPROVAL)


async def decide(lab: Lab, waiting: Waiting, by: str, name: str = "approved") -> None:
    await lab.engine.deliver_approval_signal(
        execution_id=waiting.execution_id,
        waitpoint_id=waiting.at["a"].waitpoint_id,
        signal_name=name,
        idempotency_suffix=by,
        actor=by,
        comment=b'{"comment":"fine"}',
    )


@scenario
async def test_waits_of_one_reason_are_listed_and_counted_alone(lab: Lab) -> None:
    lab.clock.advance(1)
    first = (await asked(lab)).execution_id
    await suspended(lab, TimeoutOnly(), timeout_at=lab.clock.now_ms() + 1_000)
    await suspended(lab, OperatorOnly(), reason_code=ReasonCode.WAITING_FOR_OPERATOR_REVIEW)
    lab.clock.advance(1)
    last = (await asked(lab)).execution_id
    listed = await lab.engine.list_waits(reason="waiting_for_approval")
    assert [each.execution_id for each in listed.items] == [last, first]
    old = await lab.engine.list_waits(reason="waiting_for_approval", oldest_first=True, limit=1)
    assert [each.execution_id for each in old.items] == [first]
    new = await lab.engine.list_waits(
        reason=BlockingReason.WAITING_FOR_APPROVAL, oldest_first=True, cursor=old.next_cursor
    )
    assert ([each.execution_id for each in new.items], new.next_cursor) == ([last], None)
    assert await lab.engine.count_waits(reason="waiting_for_approval") == 2
    assert await lab.engine.count_waits() == 4
    assert await lab.engine.count_waits(at_most=3) == 3
    assert await lab.engine.count_waits(namespace="elsewhere") == 0


@scenario
async def test_a_reason_that_no_suspension_has_is_refused(lab: Lab) -> None:
    wrongs: list[Any] = ["waiting_for_worker", "boredom", 7]
    for wrong in wrongs:
        for ask in (lab.engine.list_waits, lab.engine.count_waits):
            async with lab.refuses(InvalidInput, "reason"):
                await ask(reason=wrong)
    async with lab.refuses(InvalidInput, "at_most"):
        await lab.engine.count_waits(at_most=0)


@scenario
async def test_a_wait_is_shown_with_what_it_is_about_and_its_answers(lab: Lab) -> None:
    schema = '{"type":"object"}'
    running = await lab.started(input_payload=b"solar" * 2_000)
    await lab.engine.progress(running.handle, percent=10, message="draft ready")
    waiting = await suspended(
        lab,
        TWO,
        running,
        reason_code=ReasonCode.WAITING_FOR_APPROVAL,
        waitpoints=(Fresh("a", payload_type=schema),),
        timeout_at=lab.clock.now_ms() + 1_000,
    )
    shown = await lab.engine.show_wait(execution_id=waiting.execution_id, waitpoint_key="a")
    assert shown is not None
    assert (shown.state, shown.payload_type) == (WaitpointState.ACTIVE, schema)
    assert shown.signal_names == ("approved", "rejected")
    assert (shown.have, shown.need, shown.answers) == (0, 2, ())
    assert (shown.progress_message, shown.input_bytes) == ("draft ready", 10_000)
    assert shown.input_start == ("solar" * 2_000)[:4_000]
    await decide(lab, waiting, "ada")
    await decide(lab, waiting, "ada")
    await decide(lab, waiting, "bob")
    ended = await lab.engine.show_wait(execution_id=waiting.execution_id, waitpoint_key="a")
    assert ended is not None
    assert (ended.state, ended.cause) == (WaitpointState.CLOSED, ResumeCause.SIGNAL)
    assert [(each.source_identity, each.counts) for each in ended.answers] == [
        ("ada", True),
        ("bob", True),
    ]
    assert (ended.answers[0].said, ended.have) == ('{"comment":"fine"}', 2)
    assert await lab.engine.show_wait(execution_id=waiting.execution_id, waitpoint_key="b") is None


@scenario
async def test_a_pending_waitpoint_is_shown_without_a_wait(lab: Lab) -> None:
    claimed = await lab.started()
    await pending(lab, claimed)
    shown = await lab.engine.show_wait(execution_id=claimed.execution_id, waitpoint_key="a")
    assert shown is not None
    assert (shown.state, shown.reason, shown.lines) == (WaitpointState.PENDING, None, ())


@scenario
async def test_approvals_are_listed_newest_first_in_pages(lab: Lab) -> None:
    here, there = await asked(lab), await asked(lab, namespace="elsewhere")
    plain = await suspended(lab)
    await decide(lab, here, "ada")
    await plain.send()
    await decide(lab, there, "eve", "rejected")
    await decide(lab, here, "bob")
    page = await lab.engine.list_approvals(limit=2)
    assert [(each.source_identity, each.signal_name) for each in page.items] == [
        ("bob", "approved"),
        ("eve", "rejected"),
    ]
    newest = page.items[0]
    assert (newest.execution_kind, newest.waitpoint_key) == ("work", "a")
    assert newest.effect == "resume_condition_satisfied"
    rest = await lab.engine.list_approvals(cursor=page.next_cursor)
    assert [each.source_identity for each in rest.items] == ["ada"]
    assert rest.next_cursor is None
    away = await lab.engine.list_approvals(namespace="elsewhere")
    assert [each.execution_id for each in away.items] == [there.execution_id]
    async with lab.refuses(InvalidCursor, "cursor"):
        await lab.engine.list_approvals(cursor="x")


@scenario
async def test_the_list_of_approvals_ends_although_numbers_begin_late(lab: Lab) -> None:
    """PostgreSQL numbers all logs together, and numbers of swept entries do not come back."""
    if lab.url.startswith("postgres"):
        await lab.sql("SELECT setval('ff_event_id', nextval('ff_event_id') + 1000000)")
    await decide(lab, await asked(lab), "ada")
    page = await lab.engine.list_approvals()
    assert [each.source_identity for each in page.items] == ["ada"]
    assert page.next_cursor is None


@scenario
async def test_an_answer_of_a_budget_is_no_approval(lab: Lab) -> None:
    """The question is answered, and the engine tells those that asked."""
    await lab.engine.create_budget(
        budget_id="b", dimensions=["a"], hard_limits=[1], soft_limits=[0], on_hard_limit="ask"
    )
    claimed = await lab.started()
    asked = await lab.engine.ask_budget(claimed.handle, budget_id="b", amounts={"a": 2})
    place = UsePending(asked.waitpoint_id, asked.waitpoint_key)
    wait = SuspendRequest(resume_condition=Single(asked.waitpoint_key), waitpoints=(place,))
    await lab.engine.suspend(claimed.handle, wait)
    await lab.engine.answer_budget_ask(budget_id="b", dimension="a", approve=True, once=True)
    await lab.direct.move_due()
    assert (await lab.state(claimed.execution_id)).value == "waiting"
    assert (await lab.engine.list_approvals()).items == ()


@scenario
async def test_a_page_of_approvals_looks_through_so_many_events(lab: Lab) -> None:
    """Others are not walked through in one page; the next page goes on behind them."""
    waiting = await asked(lab)
    await decide(lab, waiting, "ada")
    event = (await lab.dump())["signal_events"][0]

    async def crowd(tx: Transaction) -> None:
        await tx.catalog()
        changes = Changes()
        for _ in range(5_300):
            changes.log(replace(event, signal_name="go"))
        await tx.save(changes)

    await lab.direct.store.transact(crowd)
    page = await lab.engine.list_approvals()
    assert page.items == ()
    found = await lab.engine.list_approvals(cursor=page.next_cursor)
    assert [each.source_identity for each in found.items] == ["ada"]
