"""Serial keys: executions of one key run one at a time, in the order of their submission."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Final
from unittest.mock import patch

from flowfabric.api.executions import NewExecution
from flowfabric.errors import InvalidInput, LineNotHeld, NotFound, WaitCycle
from flowfabric.model.results import Claimed, RetryScheduled
from flowfabric.model.state import BlockingReason, PublicState
from flowfabric.stores.memory import MemoryView
from flowfabric.stores.postgres.view import PostgresView
from flowfabric.stores.sqlite.view import SqliteView
from tests.support.flows import arrows, node, submit
from tests.support.lab import Lab, scenario

KEYS: Final = 10
SUBMITS: Final = 1_000
ONE_RETRY: Final = {"retry_policy": {"max_retries": 1, "backoff": {"type": "fixed", "delay_ms": 0}}}


async def line(lab: Lab, count: int, key: str = "acme", **fields: Any) -> list[str]:
    """Several in one line, in their order."""
    return [await lab.create(serial_key=key, **fields) for _ in range(count)]


async def reason(lab: Lab, execution_id: str) -> BlockingReason:
    """Why it waits."""
    return (await lab.describe(execution_id)).blocking_reason


async def places(lab: Lab, key: str = "acme") -> list[str]:
    """The line as it is listed."""
    page = await lab.engine.list_line(serial_key=key)
    return [each.execution_id for each in page.items]


async def complete(lab: Lab, expected: str) -> None:
    """The one that may be claimed, which must be this one, to its end."""
    claimed = await lab.claim()
    assert claimed.execution_id == expected
    await lab.engine.complete(claimed.handle)


async def sound(lab: Lab) -> bool:
    """Whether doctor has nothing to say, and no row of a line is left."""
    assert (await lab.engine.doctor()).problems == ()
    found = await lab.dump()
    return not found["ff_serial"] and not found["ff_serial_line"]


@contextmanager
def locked_by_others() -> Iterator[None]:
    """Nothing that is loaded only if it is free is free."""

    async def none(self: Any, ids: Sequence[str]) -> dict[str, Any]:
        return {}

    with ExitStack() as stack:
        for view in (MemoryView, SqliteView, PostgresView):
            stack.enter_context(patch.object(view, "load_free", none))
        yield


@scenario
async def test_scenario_45_a_thousand_over_ten_keys_keep_their_order(lab: Lab) -> None:
    random, order = Random(45), defaultdict(list)
    keys = [f"k{random.randrange(KEYS)}" for _ in range(SUBMITS)]
    requests = [
        NewExecution(execution_kind="work", serial_key=key, policy=ONE_RETRY) for key in keys
    ]
    made = [
        each
        for start in range(0, SUBMITS, 100)
        for each in await lab.engine.create_executions(requests[start : start + 100])
    ]
    for key, each in zip(keys, made, strict=True):
        order[key].append(each.execution_id)
    key_of = {each: key for key, ids in order.items() for each in ids}
    at_work: dict[str, Claimed] = {}
    begun: dict[str, list[str]] = defaultdict(list)
    left = SUBMITS
    while left:
        crews = await asyncio.gather(*(lab.claims(f"w{at}", limit=5) for at in range(2)))
        for claimed in [each for crew in crews for each in crew]:
            key = key_of[claimed.execution_id]
            assert key not in at_work, "two of one key at once"
            at_work[key] = claimed
            if begun[key][-1:] != [claimed.execution_id]:
                begun[key].append(claimed.execution_id)
        calls: list[Coroutine[Any, Any, Any]] = []
        for key in random.sample(sorted(at_work), k=max(1, len(at_work) * 3 // 4)):
            handle = at_work.pop(key).handle
            if random.random() < 0.25:
                calls.append(lab.engine.fail(handle, reason="x", failure_class="transient"))
            else:
                calls.append(lab.engine.complete(handle))
        replies = await asyncio.gather(*calls)
        left -= sum(not isinstance(each, RetryScheduled) for each in replies)
    assert begun == order
    assert await sound(lab)


@scenario
async def test_one_behind_another_waits_for_its_turn(lab: Lab) -> None:
    first, second, third = await line(lab, 3)
    (other,) = await line(lab, 1, key="beta")
    claimed = await lab.claims(limit=10)
    assert {each.execution_id for each in claimed} == {first, other}
    assert await lab.state(second) is PublicState.WAITING
    assert await reason(lab, second) is BlockingReason.WAITING_FOR_TURN
    assert await places(lab) == [first, second, third]
    lab.clock.advance(20_000)
    told = await lab.engine.explain(execution_id=third)
    assert told.summary == f"third in line for acme; ahead: {first}, running 20s"
    assert (told.line_position, told.line_head) == (3, first)
    for each in claimed:
        await lab.engine.complete(each.handle)
    assert await reason(lab, second) is BlockingReason.WAITING_FOR_WORKER
    await complete(lab, second)
    await complete(lab, third)
    assert await sound(lab)


@scenario
async def test_retries_and_delays_keep_the_turn(lab: Lab) -> None:
    first, second = await line(lab, 2, policy=ONE_RETRY)
    claimed = await lab.claim()
    await lab.engine.fail(claimed.handle, reason="x", failure_class="transient")
    claimed = await lab.claim()
    assert claimed.execution_id == first
    await lab.engine.fail(claimed.handle, reason="x", failure_class="transient")
    await complete(lab, second)
    late = await lab.create(serial_key="acme", delay_ms=60_000)
    soon = await lab.create(serial_key="acme")
    assert await lab.claims() == []
    await lab.after(60_000)
    await complete(lab, late)
    await complete(lab, soon)
    assert await sound(lab)


@scenario
async def test_an_own_delay_goes_on_while_others_are_ahead(lab: Lab) -> None:
    first = await lab.create(serial_key="acme")
    second = await lab.create(serial_key="acme", delay_ms=60_000)
    lab.clock.advance(10_000)
    await complete(lab, first)
    assert await lab.state(second) is PublicState.DELAYED
    await lab.after(50_000)
    await complete(lab, second)


@scenario
async def test_a_place_that_is_cancelled_or_expires_closes(lab: Lab) -> None:
    first, second, third = await line(lab, 3)
    late = await lab.create(serial_key="acme", execution_deadline_at=lab.now + 5_000)
    last = await lab.create(serial_key="acme")
    await lab.cancel(second)
    await lab.after(5_000)
    assert await lab.state(late) is PublicState.EXPIRED
    assert await places(lab) == [first, third, last]
    for each in (first, third, last):
        await complete(lab, each)
    assert await sound(lab)


@scenario
async def test_a_cancelled_head_lets_the_next_one_go_on(lab: Lab) -> None:
    first, second, third = await line(lab, 3)
    claimed = await lab.claim()
    assert claimed.execution_id == first
    await lab.cancel(first)
    await lab.cancel(second)
    await complete(lab, third)
    assert await sound(lab)


@scenario
async def test_a_head_that_ends_before_it_is_told_passes_the_turn_on(lab: Lab) -> None:
    first, second, third = await line(lab, 3)
    claimed = await lab.claim()
    assert claimed.execution_id == first
    with locked_by_others():
        await lab.engine.complete(claimed.handle)
        await lab.cancel(second)
    await lab.after(1_000)
    await complete(lab, third)
    assert await sound(lab)


@scenario
async def test_a_hold_is_lifted_back_into_the_line(lab: Lab) -> None:
    first, second, third = await line(lab, 3)
    await lab.engine.hold_execution(execution_id=second)
    await lab.engine.release_execution(execution_id=second)
    assert await reason(lab, second) is BlockingReason.WAITING_FOR_TURN
    await lab.engine.hold_execution(execution_id=second)
    await complete(lab, first)
    assert await reason(lab, second) is BlockingReason.PAUSED_BY_OPERATOR
    assert await lab.claims() == []  # it has the turn, and is held
    await lab.engine.release_execution(execution_id=second)
    await complete(lab, second)
    await complete(lab, third)


@scenario
async def test_a_failed_head_may_hold_up_its_line(lab: Lab) -> None:
    first, second, third = await line(lab, 3, on_head_failure="hold")
    claimed = await lab.claim()
    async with lab.refuses(LineNotHeld):
        await lab.engine.release_line(serial_key="acme")
    await lab.engine.fail(claimed.handle, reason="no", failure_class="permanent")
    assert await lab.claims() == []
    told = await lab.engine.explain(execution_id=third)
    assert told.summary.startswith(f"third in line for acme; ahead: {first}, failed")
    assert any("ff line release acme" in each for each in told.hints)
    (shown,) = (await lab.engine.list_lines()).items
    assert (shown.head_id, shown.waiting, shown.held_at) == (first, 2, lab.now)
    await lab.engine.replay_execution(execution_id=first)  # it keeps the turn
    claimed = await lab.claim()
    assert claimed.execution_id == first
    await lab.engine.fail(claimed.handle, reason="no", failure_class="permanent")
    released = await lab.engine.release_line(serial_key="acme", actor="olga")
    assert (released.passed_id, released.next_id) == (first, second)
    (event,) = [
        each for each in await lab.operator_events(first) if each.event_type == "line_released"
    ]
    assert event.actor == "olga"
    await complete(lab, second)
    await complete(lab, third)
    assert await sound(lab)


@scenario
async def test_a_replay_joins_the_end_of_the_line(lab: Lab) -> None:
    first, second = await line(lab, 2)
    await complete(lab, first)
    await lab.engine.replay_execution(execution_id=first)
    assert await reason(lab, first) is BlockingReason.WAITING_FOR_TURN
    assert await places(lab) == [second, first]
    await complete(lab, second)
    await complete(lab, first)
    assert await sound(lab)


@scenario
async def test_a_member_joins_when_its_dependencies_have_ended(lab: Lab) -> None:
    """So it never waits in a line for another one that waits for it."""
    nodes = [node("late", serial_key="acme"), node("early", serial_key="acme"), node("free")]
    flow = await submit(lab, nodes, arrows("early>late"))
    late, early = flow.ids["late"], flow.ids["early"]
    between = await lab.create(serial_key="acme")
    assert await places(lab) == [early, between]
    claimed = {each.execution_id: each for each in await lab.claims(limit=10)}
    assert claimed.keys() == {early, flow.ids["free"]}
    await lab.engine.complete(claimed[early].handle)
    assert await places(lab) == [between, late]
    await complete(lab, between)
    await complete(lab, late)
    await lab.engine.complete(claimed[flow.ids["free"]].handle)
    assert await sound(lab)


@scenario
async def test_a_parent_cannot_wait_for_a_child_behind_it(lab: Lab) -> None:
    parent = await lab.started(serial_key="acme")
    request = NewExecution(execution_kind="work", serial_key="acme")
    spawned = await lab.engine.spawn_children(parent.handle, children=[request])
    async with lab.refuses(WaitCycle):
        await lab.engine.wait_children(parent.handle)
    async with lab.refuses(WaitCycle):
        await lab.engine.watch_executions(parent.handle, execution_ids=list(spawned.execution_ids))
    await lab.engine.complete(parent.handle)


@scenario
async def test_a_batch_is_as_its_commands_one_by_one(lab: Lab) -> None:
    """Ends, cancels and submits of one line in one commit."""
    first, second, third = await line(lab, 3)
    claimed = await lab.claim()
    made, *_ = await asyncio.gather(
        lab.create(serial_key="acme"),
        lab.engine.complete(claimed.handle),
        lab.cancel(second),
    )
    assert claimed.execution_id == first
    assert await places(lab) == [third, made]
    await complete(lab, third)
    await complete(lab, made)
    assert await sound(lab)


@scenario
async def test_lines_are_listed_by_pages_and_by_tenant(lab: Lab) -> None:
    ids = await line(lab, 5)
    await line(lab, 1, key="beta")
    await lab.create(serial_key="acme", namespace="other")
    page = await lab.engine.list_lines(limit=1)
    assert [each.serial_key for each in page.items] == ["acme"]
    page = await lab.engine.list_lines(limit=1, cursor=page.next_cursor)
    assert [each.serial_key for each in page.items] == ["beta"]
    assert page.next_cursor is None
    (other,) = (await lab.engine.list_lines(namespace="other")).items
    assert other.waiting == 0
    seen, cursor = [], None
    while True:
        part = await lab.engine.list_line(serial_key="acme", limit=2, cursor=cursor)
        seen += [each.execution_id for each in part.items]
        if (cursor := part.next_cursor) is None:
            break
    assert seen == ids
    async with lab.refuses(NotFound):
        await lab.engine.list_line(serial_key="gamma")
    async with lab.refuses(NotFound):
        await lab.engine.release_line(serial_key="gamma")


@scenario
async def test_bad_keys_are_refused_by_name(lab: Lab) -> None:
    for fields, field in (
        ({"serial_key": ""}, "serial_key"),
        ({"serial_key": "x" * 513}, "serial_key"),
        ({"serial_key": "a", "on_head_failure": "stop"}, "on_head_failure"),
        ({"on_head_failure": "hold"}, "on_head_failure"),
    ):
        async with lab.refuses(InvalidInput, field):
            await lab.create(**fields)


@scenario
async def test_a_wrong_line_is_named_and_set_right(lab: Lab) -> None:
    if lab.url.startswith("memory"):
        return  # there is no back door
    first, second, third = await line(lab, 3)
    await lab.sql("UPDATE ff_serial SET waiting = 7")
    await lab.sql(f"UPDATE ff_serial_line SET execution_id = '{first}' WHERE number = 2")
    found = (await lab.engine.doctor()).problems
    assert {each.code for each in found} == {"lines"}
    assert any(second in each.subject for each in found)
    done = await lab.engine.reconcile_lines()
    assert {each.counter for each in done.corrections} == {"place 2", "waiting"}
    assert (await lab.engine.reconcile_lines()).corrections == ()
    await complete(lab, first)
    await complete(lab, third)
