"""Failures that are alike are one group: counted, found, marked and run again together."""

from __future__ import annotations

from typing import Any, Final

from flowfabric import limits
from flowfabric.errors import InvalidCursor, InvalidInput, NotFound
from flowfabric.model.bulk import BulkCounted, BulkOperation
from flowfabric.model.event import OperatorEventType
from flowfabric.model.failure import FailureCount, FailureGroup, FailureOrigin
from flowfabric.model.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from flowfabric.model.state import PublicState
from flowfabric.model.statistic import HOUR_MS, MINUTE_MS
from tests.support.lab import TTL_MS, Lab, scenario
from tests.support.statistics import roll_up

DAY_MS: Final = 86_400_000
RETRY: Final = RetryPolicy(max_retries=1, backoff=FixedBackoff(delay_ms=0))
TWICE: Final = ExecutionPolicy(retry_policy=RETRY)
CHARGE: Final = FailureOrigin(exception="shop.NoCard", frame="shop:charge", line=7, version="1")
SHIP: Final = FailureOrigin(exception="shop.NoTruck", frame="shop:ship", line=9)


async def fails(lab: Lab, origin: FailureOrigin | None = CHARGE, **more: Any) -> str:
    reason = more.pop("reason", "no card\n  File shop.py, line 7")
    claimed = await lab.started(**more)
    await lab.engine.fail(
        claimed.handle,
        reason=reason,
        failure_class="permanent",
        category="NoCard",
        origin=origin,
    )
    return claimed.execution_id


async def groups(lab: Lab, **more: Any) -> list[FailureGroup]:
    await roll_up(lab)
    return list((await lab.engine.list_failure_groups(**more)).items)


# --- what is counted -----------------------------------------------------------------------------


@scenario
async def test_failures_are_alike_by_category_class_and_frame(lab: Lab) -> None:
    await fails(lab)
    first_at = lab.now
    await lab.after(1_000)
    later = FailureOrigin(exception="shop.NoCard", frame="shop:charge", line=8, version="2")
    await fails(lab, later, kind="refund", reason="card 4")
    last_at = lab.now
    await lab.after(1_000)
    await fails(lab, SHIP)
    ship, charge = await groups(lab)
    assert (ship.exception, ship.failed, ship.versions) == ("shop.NoTruck", 1, ())
    assert (charge.exception, charge.frame, charge.line) == ("shop.NoCard", "shop:charge", 8)
    assert (charge.message, charge.category) == ("card 4", "NoCard")
    assert (charge.failed, charge.retried) == (2, 0)
    assert (charge.execution_kinds, charge.versions) == (("work", "refund"), ("1", "2"))
    assert (charge.first_seen_at, charge.last_seen_at) == (first_at, last_at)


@scenario
async def test_without_an_origin_the_message_tells(lab: Lab) -> None:
    for reason in ("order 7 of 'ada' is lost", "order 19 of 'bob' is lost", "no space"):
        await fails(lab, None, reason=reason)
        await lab.after(1)
    other, orders = await groups(lab)
    assert (other.message, other.failed, orders.failed) == ("no space", 1, 2)
    assert (orders.message, orders.exception, orders.frame) == (
        "order 19 of 'bob' is lost",
        None,
        None,
    )


@scenario
async def test_attempts_that_are_tried_again_and_ends_are_told_apart(lab: Lab) -> None:
    claimed = await lab.started(policy=TWICE)
    for _ in range(2):
        await lab.engine.fail(claimed.handle, reason="no", origin=CHARGE)
        await lab.engine.fail(claimed.handle, reason="no", origin=CHARGE)  # the same call again
        claimed = (await lab.claims() or [claimed])[0]
    (group,) = await groups(lab)
    assert (group.failed, group.retried) == (1, 1)
    lost = await lab.started(execution_deadline_at=lab.now + TTL_MS)
    await lab.after(TTL_MS)
    assert await lab.state(lost.execution_id) is PublicState.EXPIRED
    (expired, _) = await groups(lab)
    assert (expired.failed, expired.category) == (1, "timeout")
    await lab.cancel(await lab.create())
    assert len(await groups(lab)) == 2


@scenario
async def test_counts_by_minute_and_hour_and_no_longer_than_a_day(lab: Lab) -> None:
    lab.clock.set(lab.now - lab.now % HOUR_MS + HOUR_MS)
    hour = lab.now
    await fails(lab)
    await lab.after(2 * MINUTE_MS)
    await fails(lab)
    (found,) = await groups(lab, by="minute", last_ms=HOUR_MS)
    assert found.counts == (FailureCount(hour, 1, 0), FailureCount(hour + 2 * MINUTE_MS, 1, 0))
    await lab.after(HOUR_MS)
    await fails(lab)
    (found,) = await groups(lab)
    assert found.counts == (FailureCount(hour, 2, 0), FailureCount(hour + HOUR_MS, 1, 0))
    (found,) = await groups(lab, by="total", last_ms=MINUTE_MS)
    assert (found.counts, found.failed) == ((), 1)
    await lab.after(DAY_MS + MINUTE_MS)
    assert await groups(lab) == []
    await lab.after(HOUR_MS)
    assert (await lab.dump())["ff_failure_hour"] == []
    alone = await lab.engine.describe_failure_group(fingerprint=found.fingerprint)
    assert alone is not None
    assert (alone.failed, alone.first_seen_at) == (0, hour)
    await lab.after(limits.STATISTIC_RETENTION_MS)
    assert (await lab.dump())["ff_failure_group"] == []


@scenario
async def test_each_failure_is_counted_once_whichever_loop_counts_it(lab: Lab) -> None:
    for _ in range(5):
        await fails(lab)
    await roll_up(lab, limit=2)
    await roll_up(lab)
    (group,) = await groups(lab)
    assert group.failed == 5


@scenario
async def test_groups_of_a_tenant_are_listed_page_by_page(lab: Lab) -> None:
    for number in range(3):
        await fails(lab, FailureOrigin(exception=f"E{'abc'[number]}"), kind=f"k{number}")
        await lab.after(1)
    whole = await groups(lab)
    assert [each.exception for each in whole] == ["Ec", "Eb", "Ea"]
    first = await lab.engine.list_failure_groups(limit=2)
    rest = await lab.engine.list_failure_groups(limit=2, cursor=first.next_cursor)
    assert [*first.items, *rest.items] == whole
    assert [each.exception for each in await groups(lab, execution_kind="k1")] == ["Eb"]
    assert await groups(lab, namespace="other") == []
    async with lab.refuses(InvalidCursor):
        await lab.engine.list_failure_groups(cursor="x")
    for wrong in ({"last_ms": DAY_MS + 1}, {"last_ms": 3 * HOUR_MS, "by": "minute"}):
        async with lab.refuses(InvalidInput, "last_ms"):
            await lab.engine.list_failure_groups(**wrong)


# --- one of them ---------------------------------------------------------------------------------


@scenario
async def test_an_execution_tells_how_many_others_failed_alike(lab: Lab) -> None:
    ids = [await fails(lab) for _ in range(3)]
    await fails(lab, SHIP)
    told = await lab.engine.describe_failure(execution_id=ids[0])
    assert told is not None
    assert told.group is None  # not counted yet
    await roll_up(lab)
    told = await lab.engine.describe_failure(execution_id=ids[0])
    assert told is not None
    assert told.group is not None
    assert (told.group.failed, told.group.frame) == (3, "shop:charge")
    page = await lab.engine.list_dead(fingerprint=told.fingerprint)
    assert {each.execution_id for each in page.items} == set(ids)
    assert {each.fingerprint for each in page.items} == {told.fingerprint}
    running = await lab.started(policy=TWICE)
    assert await lab.engine.describe_failure(execution_id=running.execution_id) is None
    await lab.engine.fail(running.handle, reason="x", origin=SHIP)
    tried = await lab.engine.describe_failure(execution_id=running.execution_id)
    assert tried is not None
    assert tried.fingerprint != told.fingerprint


@scenario
async def test_a_known_group_is_left_out_until_its_time_is_over(lab: Lab) -> None:
    await fails(lab)
    (group,) = await groups(lab)
    key = group.fingerprint
    until = lab.now + HOUR_MS
    await lab.engine.mark_failure_group(
        fingerprint=key, known_until=until, reason="bank is down", actor="ada"
    )
    await fails(lab)
    assert await groups(lab) == []
    (marked,) = await groups(lab, with_known=True)
    assert (marked.failed, marked.known_until, marked.known_by) == (2, until, "ada")
    event = (await lab.operator_events(key))[-1]
    assert (event.event_type, event.actor) == (OperatorEventType.FAILURES_MARKED, "ada")
    assert event.details == {"known_until": until, "reason": "bank is down"}
    await lab.after(HOUR_MS)
    (again,) = await groups(lab)
    assert (again.known_until, again.known_by, again.known_reason) == (None, "", "")
    await lab.engine.mark_failure_group(fingerprint=key, known_until=lab.now + HOUR_MS)
    await lab.engine.mark_failure_group(fingerprint=key)
    assert len(await groups(lab)) == 1
    async with lab.refuses(NotFound):
        await lab.engine.mark_failure_group(fingerprint="f" * 16)
    async with lab.refuses(InvalidInput, "known_until"):
        await lab.engine.mark_failure_group(fingerprint=key, known_until=lab.now + 91 * DAY_MS)


# --- all of them ---------------------------------------------------------------------------------


async def ended(lab: Lab, begun: BulkOperation | BulkCounted) -> BulkOperation:
    assert isinstance(begun, BulkOperation)
    for _ in range(10):
        await lab.after(limits.OPERATION_PAUSE_MS)
    found = await lab.engine.describe_operation(operation_id=begun.operation_id)
    assert found is not None
    assert found.is_over
    return found


@scenario
async def test_all_of_a_group_are_run_again_by_one_operation(lab: Lab) -> None:
    ids = [await fails(lab, kind="a" if number else "b") for number in range(4)]
    other = await fails(lab, SHIP)
    dismissed = await fails(lab)
    await lab.engine.dismiss_dead(execution_id=dismissed)
    told = await lab.engine.describe_failure(execution_id=ids[0])
    assert told is not None
    chosen: dict[str, Any] = {"action": "retry", "fingerprint": told.fingerprint}
    assert await lab.engine.start_operation(**chosen, dry_run=True) == BulkCounted(4)
    only = await lab.engine.start_operation(**chosen, execution_kind="b", dry_run=True)
    assert only == BulkCounted(1)
    done = await ended(lab, await lab.engine.start_operation(**chosen))
    assert (done.matched, done.done, done.refused) == (4, 4, {})
    for key in ids:
        assert await lab.state(key) is PublicState.WAITING
    for key in (other, dismissed):
        assert await lab.state(key) is PublicState.FAILED
    assert (await lab.engine.list_dead(fingerprint=told.fingerprint)).items == ()


@scenario
async def test_what_fails_after_the_beginning_is_not_met(lab: Lab) -> None:
    ids = [await fails(lab) for _ in range(3)]
    told = await lab.engine.describe_failure(execution_id=ids[0])
    assert told is not None
    begun = await lab.engine.start_operation(action="retry", fingerprint=told.fingerprint)
    lab.clock.advance(1)
    late = await fails(lab)
    await lab.after(limits.OPERATION_PAUSE_MS)
    for claimed in await lab.claims(limit=9):
        await lab.engine.fail(
            claimed.handle,
            reason="again",
            failure_class="permanent",
            category="NoCard",
            origin=CHARGE,
        )
    done = await ended(lab, begun)
    assert (done.done, done.handled) == (3, 3)
    for key in ids:
        assert (await lab.describe(key)).replay_count == 1
    assert (await lab.describe(late)).replay_count == 0


@scenario
async def test_a_group_is_dismissed_and_nothing_else_has_a_use_for_one(lab: Lab) -> None:
    key = await fails(lab)
    told = await lab.engine.describe_failure(execution_id=key)
    assert told is not None
    begun = await lab.engine.start_operation(action="dismiss", fingerprint=told.fingerprint)
    assert (await ended(lab, begun)).done == 1
    async with lab.refuses(InvalidInput, "fingerprint"):
        await lab.engine.start_operation(action="cancel", fingerprint=told.fingerprint)
    async with lab.refuses(InvalidInput, "fingerprint"):
        await lab.engine.start_operation(
            action="retry", fingerprint=told.fingerprint, dead_letter="dismissed"
        )


@scenario
async def test_a_line_that_no_file_has_is_refused(lab: Lab) -> None:
    claimed = await lab.started()
    odd: Any = FailureOrigin(exception="x", line=-1)
    async with lab.refuses(InvalidInput, "origin.line"):
        await lab.engine.fail(claimed.handle, reason="x", origin=odd)
