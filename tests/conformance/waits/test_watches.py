"""Watches: an execution is told of the ends of others, its children or any, once and in time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.waits import StayPending, SuspendRequest, UsePending
from flowfabric.errors import (
    ExecutionNotActive,
    InvalidInput,
    NotFound,
    WaitCycle,
    WaitpointNotPending,
)
from flowfabric.model.journal import EntryKind
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import AlreadyMet, AnyOf, Single, Suspended, WaitpointState
from flowfabric.model.watch import Watching
from tests.property.budget import budget
from tests.support.journal import entry, journal
from tests.support.lab import TTL_MS, Lab, scenario

HOUR_MS = 3_600_000
RACES = budget("FF_WATCH_RACES", 20)


async def watch(lab: Lab, watcher: Claimed, *others: Claimed, needs_all: bool = True) -> Watching:
    """Register."""
    ids = [each.execution_id for each in others]
    return await lab.engine.watch_executions(watcher.handle, execution_ids=ids, needs_all=needs_all)


async def wait_for_ends(lab: Lab, watcher: Claimed, *others: Claimed, **how: Any) -> None:
    """Register and suspend."""
    found = await watch(lab, watcher, *others, **how)
    assert found.waitpoint_id is not None
    request = SuspendRequest(
        resume_condition=Single("__ended"),
        waitpoints=(UsePending(found.waitpoint_id, "__ended"),),
    )
    assert isinstance(await lab.engine.suspend(watcher.handle, request), Suspended)


async def end(lab: Lab, *claimed: Claimed) -> None:
    """Complete, and let the loop tell of it."""
    for each in claimed:
        await lab.engine.complete(each.handle)
    await lab.direct.move_due()


@scenario
async def test_a_watcher_goes_on_when_the_other_has_ended(lab: Lab) -> None:
    other, watcher = await lab.started(), await lab.started("w2")
    await wait_for_ends(lab, watcher, other)
    assert await lab.state(watcher.execution_id) is PublicState.SUSPENDED
    await end(lab, other)
    assert await lab.state(watcher.execution_id) is PublicState.WAITING
    assert (await lab.dump())["ff_watch"] == []


@pytest.mark.parametrize("how", ["fail", "cancel"])
@scenario
async def test_every_end_counts(lab: Lab, how: str) -> None:
    other, watcher = await lab.started(), await lab.started("w2")
    await wait_for_ends(lab, watcher, other)
    if how == "fail":
        await lab.engine.fail(other.handle, reason="no", failure_class="permanent")
    else:
        await lab.cancel(other.execution_id)
    await lab.direct.move_due()
    assert await lab.state(watcher.execution_id) is PublicState.WAITING


@scenario
async def test_of_two_the_last_one_counts_where_all_are_needed(lab: Lab) -> None:
    one, two, watcher = await lab.started(), await lab.started("w2"), await lab.started("w3")
    await wait_for_ends(lab, watcher, one, two)
    await end(lab, one)
    assert await lab.state(watcher.execution_id) is PublicState.SUSPENDED
    await end(lab, two)
    assert await lab.state(watcher.execution_id) is PublicState.WAITING
    assert (await lab.dump())["ff_watch"] == []


@scenario
async def test_of_two_the_first_one_counts_where_one_is_enough(lab: Lab) -> None:
    one, two, watcher = await lab.started(), await lab.started("w2"), await lab.started("w3")
    await wait_for_ends(lab, watcher, one, two, needs_all=False)
    await end(lab, two)
    assert await lab.state(watcher.execution_id) is PublicState.WAITING
    await end(lab, one)  # the wait is over: nothing follows, and nothing is left
    assert (await lab.dump())["ff_watch"] == []


@scenario
async def test_what_has_ended_before_is_not_waited_for(lab: Lab) -> None:
    one, two, watcher = await lab.started(), await lab.started("w2"), await lab.started("w3")
    await end(lab, one)
    assert await watch(lab, watcher, one) == Watching(())
    assert await watch(lab, watcher, one, two, needs_all=False) == Watching((two.execution_id,))
    found = await watch(lab, watcher, one, two)
    assert found.open_ids == (two.execution_id,)
    assert found.waitpoint_id is not None


@scenario
async def test_an_end_between_the_watch_and_the_wait_is_kept(lab: Lab) -> None:
    other, watcher = await lab.started(), await lab.started("w2")
    found = await watch(lab, watcher, other)
    await end(lab, other)
    request = SuspendRequest(
        resume_condition=Single("__ended"),
        waitpoints=(UsePending(found.waitpoint_id or "", "__ended"),),
    )
    assert isinstance(await lab.engine.suspend(watcher.handle, request), AlreadyMet)


@scenario
async def test_many_watchers_are_told_of_one_end(lab: Lab) -> None:
    other = await lab.started()
    watchers = [await lab.started(f"w{at}") for at in range(130)]
    for each in watchers:
        await wait_for_ends(lab, each, other)
    await lab.engine.complete(other.handle)
    for _ in range(3):  # a bounded number at a time
        await lab.direct.move_due()
        lab.clock.advance(100)
    states = {await lab.state(each.execution_id) for each in watchers}
    assert states == {PublicState.WAITING}
    assert (await lab.dump())["ff_watch"] == []


@scenario
async def test_registering_against_the_end_loses_nothing(lab: Lab) -> None:
    """7.1.37: the end comes before, while, or after the watch is registered."""
    rng = random.Random(RACES)

    async def later(call: Coroutine[Any, Any, Any]) -> Any:
        for _ in range(rng.choice((0, 0, 1, 2, 5, 10, 20))):
            await asyncio.sleep(0)
        return await call

    for _ in range(RACES):
        other, watcher = await lab.started(), await lab.started("w2")
        calls = [watch(lab, watcher, other), lab.engine.complete(other.handle)]
        found, *_ = await asyncio.gather(*map(later, [*calls, lab.direct.move_due()]))
        await lab.direct.move_due()
        if found.waitpoint_id is not None:
            (signals,) = (
                await lab.engine.read_signals(watcher.handle, waitpoint_ids=[found.waitpoint_id])
            ).values()
            assert [each.source_identity for each in signals] == [other.execution_id]
        await lab.engine.complete(watcher.handle)


@scenario
async def test_a_cycle_of_waits_is_refused_and_named(lab: Lab) -> None:
    one, two, three = await lab.started(), await lab.started("w2"), await lab.started("w3")
    await wait_for_ends(lab, one, two)
    await wait_for_ends(lab, two, three)
    with pytest.raises(WaitCycle) as refused:
        await watch(lab, three, one)
    ids = [each.execution_id for each in (three, one, two, three)]
    assert refused.value.fields["path"] == ids
    with pytest.raises(WaitCycle):
        await watch(lab, three, three)
    assert (await lab.engine.list_pending_waitpoints(execution_id=three.execution_id)).items == ()


@scenario
async def test_a_child_may_not_wait_for_a_parent_that_waits_for_it(lab: Lab) -> None:
    parent = await lab.started()
    await lab.engine.spawn_children(parent.handle, [NewExecution(execution_kind="child")])
    child = await lab.claim("w2", kinds=("child",))
    await lab.engine.wait_children(parent.handle)
    with pytest.raises(WaitCycle):
        await watch(lab, child, parent)


@scenario
async def test_a_parent_may_not_wait_for_a_child_that_waits_for_it(lab: Lab) -> None:
    parent = await lab.started()
    await lab.engine.spawn_children(parent.handle, [NewExecution(execution_kind="child")])
    child = await lab.claim("w2", kinds=("child",))
    await wait_for_ends(lab, child, parent)
    with pytest.raises(WaitCycle):
        await lab.engine.wait_children(parent.handle)
    await end(lab, parent)  # its children live on, and are told
    assert await lab.state(child.execution_id) is PublicState.WAITING


@scenario
async def test_bad_watches_change_nothing(lab: Lab) -> None:
    other, watcher = await lab.started(), await lab.started("w2")
    before = await lab.dump()
    unknown = other.execution_id[:-4] + "0000"
    with pytest.raises(NotFound) as missing:
        await lab.engine.watch_executions(watcher.handle, execution_ids=[unknown])
    assert missing.value.fields["entity"] == "watched"
    with pytest.raises(InvalidInput):
        await lab.engine.watch_executions(watcher.handle, execution_ids=[])
    assert await lab.dump() == before
    lab.clock.advance(TTL_MS + 1)
    await lab.direct.move_due()
    with pytest.raises(ExecutionNotActive):
        await watch(lab, watcher, other)


@scenario
async def test_another_tenants_execution_is_not_there(lab: Lab) -> None:
    theirs = await lab.create(namespace="theirs")
    watcher = await lab.started()
    with pytest.raises(NotFound):
        await lab.engine.watch_executions(watcher.handle, execution_ids=[theirs])


@scenario
async def test_a_replayed_execution_is_watched_anew(lab: Lab) -> None:
    other, watcher = await lab.started(), await lab.started("w2")
    await wait_for_ends(lab, watcher, other)
    await lab.engine.fail(other.handle, reason="no", failure_class="permanent")
    await lab.engine.replay_execution(execution_id=other.execution_id)
    await lab.direct.move_due()
    assert await lab.state(watcher.execution_id) is PublicState.WAITING  # it had ended
    again = await lab.claim(kinds=("work",), lanes=("default",), limit=1)
    other = again if again.execution_id == other.execution_id else await lab.claim("w3")
    await end(lab, other)
    assert (await lab.dump())["ff_watch"] == []


# --- waitpoints that stay pending ----------------------------------------------------------------


async def place(lab: Lab, claimed: Claimed, key: str, *, at: int | None = None) -> str:
    """A pending waitpoint; recorded in the journal at this position."""
    entries = () if at is None else (entry(at, key, None, kind=EntryKind.WAITPOINT),)
    made = await lab.engine.create_waitpoint(
        claimed.handle, waitpoint_key=key, expires_in_ms=HOUR_MS, entries=entries
    )
    return made.waitpoint_id


async def send(lab: Lab, claimed: Claimed, waitpoint_id: str, by: str = "ada") -> None:
    """A signal of an operator."""
    await lab.engine.deliver_approval_signal(
        execution_id=claimed.execution_id,
        waitpoint_id=waitpoint_id,
        signal_name="go",
        idempotency_suffix=by,
        actor=by,
    )


async def suspend_on(lab: Lab, claimed: Claimed, **places: str) -> Suspended | AlreadyMet:
    """Wait for one signal at any of these."""
    return await lab.engine.suspend(
        claimed.handle,
        SuspendRequest(
            resume_condition=AnyOf(tuple(Single(key) for key in places)),
            waitpoints=tuple(StayPending(each, key) for key, each in places.items()),
        ),
    )


@scenario
async def test_a_waitpoint_that_stays_pending_wakes_and_lives_on(lab: Lab) -> None:
    claimed = await lab.started()
    left, right = await place(lab, claimed, "left"), await place(lab, claimed, "right")
    assert isinstance(await suspend_on(lab, claimed, left=left, right=right), Suspended)
    await send(lab, claimed, left)
    again = await lab.claim()
    found = await lab.engine.find_waitpoint(
        execution_id=claimed.execution_id, waitpoint_key="right"
    )
    assert found is not None
    assert (found.waitpoint_id, found.state) == (right, WaitpointState.PENDING)
    await send(lab, claimed, right)  # while it runs
    signals = await lab.engine.read_signals(again.handle, waitpoint_ids=[left, right])
    assert [len(each) for each in signals.values()] == [1, 1]
    assert isinstance(await suspend_on(lab, again, right=right), AlreadyMet)


@scenario
async def test_a_signal_elsewhere_does_not_count(lab: Lab) -> None:
    claimed = await lab.started()
    left, other = await place(lab, claimed, "left"), await place(lab, claimed, "other")
    await suspend_on(lab, claimed, left=left)
    await send(lab, claimed, other)
    assert await lab.state(claimed.execution_id) is PublicState.SUSPENDED
    await send(lab, claimed, left)
    assert await lab.state(claimed.execution_id) is PublicState.WAITING


@scenario
async def test_a_recorded_waitpoint_outlives_its_attempt(lab: Lab) -> None:
    policy = {"retry_policy": {"max_retries": 1, "backoff": {"type": "fixed", "delay_ms": 10}}}
    claimed = await lab.started(policy=policy)
    kept, lost = await place(lab, claimed, "kept", at=0), await place(lab, claimed, "lost")
    (found,) = await journal(lab, claimed.execution_id)
    assert (found.kind, found.refers_to) == (EntryKind.WAITPOINT, kept)
    await lab.engine.fail(claimed.handle, reason="again")
    await send(lab, claimed, kept)
    lab.clock.advance(20)
    await lab.direct.move_due()
    again = await lab.claim()
    assert again.attempt_index == 1
    assert isinstance(await suspend_on(lab, again, kept=kept), AlreadyMet)
    with pytest.raises(WaitpointNotPending):
        await suspend_on(lab, again, lost=lost)
    await lab.engine.complete(again.handle)
    closed = await lab.engine.find_waitpoint(
        execution_id=claimed.execution_id, waitpoint_key="kept"
    )
    assert closed is not None
    assert closed.state is WaitpointState.CLOSED


# --- children and their entries ------------------------------------------------------------------


@scenario
async def test_spawned_children_are_recorded_with_their_ids(lab: Lab) -> None:
    parent = await lab.started()
    children = [NewExecution(execution_kind=kind) for kind in ("a", "b", "c")]
    entries = (
        entry(0, "first"),
        entry(1, "spawn:a", b"2", kind=EntryKind.SPAWN),
        entry(2, "spawn:c", b"1", kind=EntryKind.SPAWN),
    )
    spawned = await lab.engine.spawn_children(parent.handle, children, entries=entries)
    found = await journal(lab, parent.execution_id, values=True)
    one, two, three = spawned.execution_ids
    assert found[1].value == f'["{one}","{two}"]'.encode()
    assert found[2].value == f'["{three}"]'.encode()


@scenario
async def test_children_without_an_entry_are_refused_where_others_have_one(lab: Lab) -> None:
    parent = await lab.started()
    before = await lab.dump()
    children = [NewExecution(execution_kind=kind) for kind in ("a", "b")]
    for value in (b"1", b"3", b"null", b'"x"'):
        with pytest.raises(InvalidInput, match="about"):
            await lab.engine.spawn_children(
                parent.handle, children, entries=(entry(0, "s", value, kind=EntryKind.SPAWN),)
            )
    assert await lab.dump() == before


@scenario
async def test_a_repeated_spawn_is_recorded_once(lab: Lab) -> None:
    parent = await lab.started()
    child = NewExecution(execution_kind="a", idempotency_key="k")
    entries = (entry(0, "spawn:a", b"1", kind=EntryKind.SPAWN),)
    first = await lab.engine.spawn_children(parent.handle, [child], entries=entries)
    again = await lab.engine.spawn_children(parent.handle, [child], entries=entries)
    assert again.execution_ids == first.execution_ids
    assert len(await journal(lab, parent.execution_id)) == 1
