"""Waitpoints: listed without tokens, closed when unused, gone in time."""

from __future__ import annotations

import pytest

from flowfabric.api.waits import SuspendRequest, UsePending
from flowfabric.errors import (
    NotFound,
    PendingWaitpointExpired,
    WaitpointClosed,
    WaitpointInUse,
    WaitpointNotPending,
)
from flowfabric.limits import PAGE_MAX
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import (
    AllOf,
    Count,
    CountKind,
    OperatorOnly,
    SignalEffect,
    Single,
    WaitpointState,
)
from tests.support.lab import TTL_MS, Lab
from tests.support.waits import early, pending, signal_to, suspended, told, waitpoints


@told
async def test_a_listing_shows_what_may_still_be_signalled_and_no_token(lab: Lab) -> None:
    """Pending and active, names from the condition, a fingerprint."""
    claimed = await lab.started()
    early_bird = await pending(lab, claimed, "later", expires_in_ms=5000)
    done = await pending(lab, claimed, "done")
    await lab.engine.close_waitpoint(
        execution_id=claimed.execution_id, waitpoint_id=done.waitpoint_id
    )
    condition = AllOf(
        (
            Single("a", "yes"),
            Single("a", "no"),
            Single("b"),
            Count(1, CountKind.DISTINCT_SIGNALS, ("a", "c"), "yes"),
        )
    )
    waiting = await suspended(lab, condition, claimed, timeout_at=lab.now + 9000)
    page = await lab.engine.list_pending_waitpoints(execution_id=claimed.execution_id)
    assert page.next_cursor is None
    found = {each.waitpoint_key: each for each in page.items}
    assert [each.waitpoint_id for each in page.items] == sorted(
        each.waitpoint_id for each in page.items
    )
    assert found.keys() == {"later", "a", "b", "c"}
    assert found["a"].required_signal_names == ("yes", "no")
    assert found["b"].required_signal_names == ()  # any
    assert found["c"].required_signal_names == ("yes",)
    assert found["later"].state is WaitpointState.PENDING
    assert found["later"].expires_at == lab.now + 5000
    assert (found["a"].state, found["a"].activated_at) == (WaitpointState.ACTIVE, lab.now)
    assert found["a"].expires_at == lab.now + 9000
    assert {each.token_kid for each in page.items} == {"k1"}
    assert len({each.token_fingerprint for each in page.items}) == 4
    shown = repr(page)
    for details in (early_bird, *waiting.outcome.waitpoints):
        assert details.token.reveal().partition(":")[2] not in shown


@told
async def test_a_listing_pages_by_id_and_filters_before_it_pages(lab: Lab) -> None:
    """Closed ones never end a listing early."""
    claimed = await lab.started()
    made = [await pending(lab, claimed, f"k{number}") for number in range(9)]
    for details in sorted(made, key=lambda each: each.waitpoint_id)[:5]:
        await lab.engine.close_waitpoint(
            execution_id=claimed.execution_id, waitpoint_id=details.waitpoint_id
        )
    seen: list[str] = []
    cursor, pages = None, 0
    while True:
        page = await lab.engine.list_pending_waitpoints(
            execution_id=claimed.execution_id, cursor=cursor, limit=2
        )
        seen += [each.waitpoint_id for each in page.items]
        pages += 1
        cursor = page.next_cursor
        if cursor is None:
            break
    assert pages == 2
    assert seen == sorted(each.waitpoint_id for each in made)[5:]
    assert PAGE_MAX == 1000
    with pytest.raises(NotFound, match="execution"):
        await lab.engine.list_pending_waitpoints(execution_id=claimed.execution_id[:-4] + "0000")


@told
async def test_a_pending_waitpoint_can_be_closed_again_and_again(lab: Lab) -> None:
    """Twice is harmless; the first reason stays."""
    claimed = await lab.started()
    details = await pending(lab, claimed)
    await early(lab, claimed, details)
    where = {"execution_id": claimed.execution_id, "waitpoint_id": details.waitpoint_id}
    closed = await lab.engine.close_waitpoint(**where, reason="changed my mind")
    assert closed.state is WaitpointState.CLOSED
    async with lab.unchanged():
        await lab.engine.close_waitpoint(**where, reason="again")
    (row,) = await waitpoints(lab, claimed.execution_id)
    assert row.close_reason == "changed my mind"
    async with lab.refuses(WaitpointClosed, "changed my mind"):
        await lab.engine.deliver_signal(signal_to(claimed.execution_id, details))
    async with lab.refuses(WaitpointNotPending, "closed"):
        request = SuspendRequest(
            resume_condition=Single("a"), waitpoints=(UsePending(details.waitpoint_id, "a"),)
        )
        await lab.engine.suspend(claimed.handle, request)
    assert await lab.engine.read_waitpoint_token(**where) is None


@told
async def test_a_waitpoint_that_is_waited_on_cannot_be_closed(lab: Lab) -> None:
    """An active one ends with its suspension and in no other way."""
    waiting, other = await suspended(lab), await suspended(lab)
    address = waiting.at["a"].waitpoint_id
    async with lab.refuses(WaitpointInUse, "waits on it"):
        await lab.engine.close_waitpoint(execution_id=waiting.execution_id, waitpoint_id=address)
    for key, wrong in ((other.execution_id, address), (waiting.execution_id, "0" * 36)):
        async with lab.refuses(NotFound, "waitpoint"):
            await lab.engine.close_waitpoint(execution_id=key, waitpoint_id=wrong)
    assert await waiting.effect() is SignalEffect.RESUMED
    async with lab.unchanged():
        await lab.engine.close_waitpoint(execution_id=waiting.execution_id, waitpoint_id=address)


@told
async def test_a_pending_waitpoint_lapses_in_time(lab: Lab) -> None:
    """Refused at its expiry, swept and or not; on every store."""
    claimed = await lab.started()
    details = await pending(lab, claimed, expires_in_ms=1000)
    lab.clock.advance(999)
    await early(lab, claimed, details)
    assert await lab.engine.move_due() == 0
    lab.clock.advance(1)
    async with lab.refuses(WaitpointClosed, "expired"):
        await lab.engine.deliver_signal(signal_to(claimed.execution_id, details))
    request = SuspendRequest(
        resume_condition=Single("a"), waitpoints=(UsePending(details.waitpoint_id, "a"),)
    )
    async with lab.refuses(PendingWaitpointExpired):
        await lab.engine.suspend(claimed.handle, request)
    assert await lab.engine.move_due() == 1
    (row,) = await waitpoints(lab, claimed.execution_id)
    assert (row.state, row.close_reason) == (WaitpointState.CLOSED, "never_committed")
    async with lab.refuses(WaitpointClosed, "never_committed"):
        await lab.engine.deliver_signal(signal_to(claimed.execution_id, details))
    assert await lab.engine.move_due() == 0
    assert await lab.state(claimed.execution_id) is PublicState.ACTIVE


@told
async def test_an_activated_waitpoint_does_not_lapse(lab: Lab) -> None:
    claimed = await lab.started()
    details = await pending(lab, claimed, expires_in_ms=1000)
    waiting = await suspended(
        lab, Single("a"), claimed, waitpoints=(UsePending(details.waitpoint_id, "a"),)
    )
    await lab.after(5000)
    assert await waiting.effect() is SignalEffect.RESUMED


@told
async def test_a_waitpoint_nobody_waited_on_ends_with_its_execution(lab: Lab) -> None:
    """Also when other waits, leases and attempts came between."""
    claimed = await lab.started()
    await pending(lab, claimed, "never", expires_in_ms=10_000_000)
    waiting = await suspended(lab, claimed=claimed)
    await waiting.send()
    await lab.claim()
    await lab.after(TTL_MS)
    last = await lab.claim("w2")
    await lab.engine.complete(last.handle)
    rows = await waitpoints(lab, claimed.execution_id)
    assert {row.state for row in rows} == {WaitpointState.CLOSED}


@told
async def test_every_call_makes_a_new_waitpoint(lab: Lab) -> None:
    """The same key twice is two addresses with two tokens."""
    claimed = await lab.started()
    first, second = await pending(lab, claimed), await pending(lab, claimed)
    assert first.waitpoint_id != second.waitpoint_id
    assert first.token != second.token


@told
async def test_suspended_executions_are_listed_newest_first_by_a_stable_cursor(lab: Lab) -> None:
    """Real times in their own fields; the cursor is the sort key, rows may vanish."""
    made = []
    for number in range(5):
        lab.clock.advance(10)
        waiting = await suspended(
            lab,
            OperatorOnly(),
            reason_code="manual_pause",
            timeout_at=lab.now + 100_000 - number,
        )
        made.append(waiting)
    await suspended(lab, OperatorOnly())
    page = await lab.engine.list_suspended(limit=3)
    first = page.items
    assert [each.execution_id for each in first[1:]] == [
        each.execution_id for each in reversed(made[3:])
    ]
    assert first[1].reason.value == "manual_pause"
    assert [each.timeout_at for each in first] == [None, lab.now + 99_996, lab.now + 99_987]
    await lab.engine.resume_execution(execution_id=first[-1].execution_id)
    rest = (await lab.engine.list_suspended(cursor=page.next_cursor)).items
    assert [each.execution_id for each in rest] == [
        each.execution_id for each in reversed(made[:3])
    ]
    assert [each.suspended_at for each in rest] == [lab.now - 20, lab.now - 30, lab.now - 40]
    assert len((await lab.engine.list_suspended()).items) == 5
