"""Bulk operations: one change to every execution that a filter selects, once, as durable work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import limits
from flowfabric.engine import bulk_work
from flowfabric.engine.own_work import OwnWork
from flowfabric.engine.unit import fold
from flowfabric.errors import (
    FlowFabricError,
    IdempotencyConflict,
    InvalidBlockingReason,
    InvalidCursor,
    InvalidInput,
    InvalidTagKey,
    NotFound,
)
from flowfabric.ids import new_uuid7s
from flowfabric.kernel import bulk as rules
from flowfabric.kernel.execution.words import searchable
from flowfabric.kernel.place.tenants import LoopFilter
from flowfabric.model.bulk import BulkCounted, BulkOperation, BulkState
from flowfabric.model.event import OperatorEventType
from flowfabric.model.state import BlockingReason, PublicState
from flowfabric.stores.tables import OPERATIONS
from tests.support.flows import arrows, node, submit
from tests.support.lab import Lab, scenario

PIECE = 3


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few executions are enough for several pieces."""
    monkeypatch.setattr(limits, "OPERATION_PIECE", PIECE)
    monkeypatch.setattr(bulk_work, "_SIZES", (PIECE, 1, 0))


async def begin(lab: Lab, action: str, **asked: Any) -> BulkOperation:
    started = await lab.engine.start_operation(action=action, **asked)
    assert isinstance(started, BulkOperation)
    return started


async def look(lab: Lab, operation: BulkOperation) -> BulkOperation:
    found = await lab.engine.describe_operation(operation_id=operation.operation_id)
    assert found is not None
    return found


async def finish(lab: Lab, operation: BulkOperation) -> BulkOperation:
    """Piece after piece."""
    for _ in range(100):
        if (found := await look(lab, operation)).is_over:
            return found
        await lab.after(limits.OPERATION_PAUSE_MS)
    raise AssertionError("it never ends")


async def run(lab: Lab, action: str, **asked: Any) -> BulkOperation:
    return await finish(lab, await begin(lab, action, **asked))


async def states(lab: Lab, keys: list[str]) -> list[str]:
    return [(await lab.state(key)).value for key in keys]


async def failed(lab: Lab, **fields: Any) -> str:
    claimed = await lab.started(**fields)
    await lab.engine.fail(claimed.handle, reason="broken", failure_class="permanent")
    return claimed.execution_id


@scenario
async def test_each_piece_acts_on_a_few_and_the_outcome_is_counted(lab: Lab) -> None:
    keys = [await lab.create() for _ in range(7)]
    other = await lab.create(lane_id="other")
    operation = await begin(lab, "cancel", lane_id="default", reason="too many", actor="ada")
    assert (operation.matched, operation.handled, operation.is_over) == (7, 0, False)
    for reached in (3, 6):
        await lab.after(limits.OPERATION_PAUSE_MS)
        assert (await look(lab, operation)).done == reached
    assert (await states(lab, keys)).count("cancelled") == 6
    ended = await finish(lab, operation)
    assert (ended.state, ended.done, ended.unchanged) == (BulkState.DONE, 7, 0)
    assert (ended.refused, ended.finished_at) == ({}, lab.now)
    assert await states(lab, [*keys, other]) == ["cancelled"] * 7 + ["waiting"]
    for key in keys:
        (event,) = await lab.operator_events(key)
        assert (event.event_type, event.actor) == (OperatorEventType.CANCELLED, "ada")
        assert event.details == {"reason": "too many", "operation_id": operation.operation_id}
    begun, over = await lab.operator_events(operation.operation_id)
    assert begun.event_type is OperatorEventType.OPERATION_STARTED
    assert over.event_type is OperatorEventType.OPERATION_ENDED
    assert (begun.actor, over.actor) == ("ada", "ada")
    assert over.details == {"action": "cancel", "outcomes": {"done": 7}}
    assert begun.details["matched"] == 7
    async with lab.unchanged():
        await lab.after(limits.OPERATION_PAUSE_MS)


@scenario
async def test_every_action_is_the_call_for_one(lab: Lab) -> None:
    """Two lanes with the same work: one by an operation, the other call by call."""
    made: dict[str, list[str]] = {}
    for lane in ("bulk", "single"):
        place = {"lane_id": lane}
        held, blocked = await lab.create(**place), await lab.create(**place)
        await lab.engine.hold_execution(execution_id=held, reason="look")
        await lab.engine.block_execution_for_admission(
            execution_id=blocked, reason=BlockingReason.WAITING_FOR_QUOTA
        )
        lost, spent = await failed(lab, **place), await failed(lab, **place)
        nodes = [node(name, lane_id=lane) for name in ("a", "b", "c")]
        members = (await submit(lab, nodes, arrows("a>b>c"))).ids.values()
        later = await lab.create(delay_until=lab.now + 1_000_000, **place)
        made[lane] = [held, blocked, lost, spent, *members, later]
    engine = lab.engine
    every = tuple(PublicState)
    calls: list[tuple[dict[str, Any], Any]] = [
        (
            {"action": "priority", "new_priority": 7},
            lambda key: engine.change_priority(execution_id=key, new_priority=7),
        ),
        (
            {"action": "hold", "reason": "x"},
            lambda key: engine.hold_execution(execution_id=key, reason="x"),
        ),
        ({"action": "release"}, lambda key: engine.release_execution(execution_id=key)),
        ({"action": "cancel", "reason": "x"}, lambda key: lab.cancel(key, "x")),
        (
            {"action": "retry", "reason": "x"},
            lambda key: engine.replay_execution(execution_id=key, reason="x"),
        ),
    ]
    for asked, call in calls:
        outcomes: dict[str, int] = {}
        order = await engine.list_executions(lane_id="single")
        for each in order.items:
            before = await lab.record(each.execution_id)
            try:
                await call(each.execution_id)
            except FlowFabricError as error:
                word = error.code
            else:
                after = await lab.record(each.execution_id)
                word = "unchanged" if after == before else "done"
            outcomes[word] = outcomes.get(word, 0) + 1
        ended = await run(lab, lane_id="bulk", states=every, **asked)
        counted = {"done": ended.done, "unchanged": ended.unchanged, **ended.refused}
        assert {word: n for word, n in counted.items() if n} == outcomes, asked
        pairs = zip(made["bulk"], made["single"], strict=True)
        for one, two in pairs:
            first, second = await lab.record(one), await lab.record(two)
            shown = [
                (each.state, each.priority, each.replay_count, each.cancellation_reason)
                for each in (first, second)
            ]
            assert shown[0] == shown[1], asked


@scenario
async def test_the_filter_chooses_by_every_part(lab: Lab) -> None:
    tag = {"team.name": "red"}
    wanted = await lab.create("brief", lane_id="mail", namespace="a", tags=tag)
    start = lab.now
    others = [
        await lab.create("other", lane_id="mail", namespace="a", tags=tag),
        await lab.create("brief", lane_id="else", namespace="a", tags=tag),
        await lab.create("brief", lane_id="mail", namespace="b", tags=tag),
        await lab.create("brief", lane_id="mail", namespace="a"),
    ]
    lab.clock.advance(10)
    others.append(await lab.create("brief", lane_id="mail", namespace="a", tags=tag))
    place = {"namespace": "a", "lane_id": "mail", "execution_kind": "brief"}
    parts: dict[str, Any] = {**place, "tag": ("team.name", "red"), "created_after": start}
    asked: dict[str, Any] = {
        **parts,
        "created_before": start + 5,
        "text": "Name=RED",
        "states": ("waiting",),
    }
    assert await lab.engine.start_operation(action="hold", dry_run=True, **asked) == BulkCounted(1)
    assert (await lab.dump())["ff_operation"] == []
    ended = await run(lab, "hold", **asked)
    assert (ended.matched, ended.done) == (1, 1)
    assert ended.filter.text == "name=red"
    assert (await lab.record(wanted)).state.blocking_reason is BlockingReason.PAUSED_BY_OPERATOR
    for each in others:
        assert (await lab.record(each)).is_waiting
    ended = await run(lab, "release", blocking_reason="paused_by_operator")
    assert (ended.matched, ended.done, ended.refused) == (1, 1, {})
    assert (await lab.record(wanted)).is_waiting
    assert "team.name=red" in searchable(await lab.record(wanted))
    nothing = await run(lab, "cancel", lane_id="nowhere")
    assert (nothing.matched, nothing.done, nothing.state) == (0, 0, BulkState.DONE)


@scenario
async def test_later_executions_and_those_that_live_again_are_left_alone(lab: Lab) -> None:
    keys = [await failed(lab) for _ in range(5)]
    lab.clock.advance(10)
    operation = await begin(lab, "retry")
    lab.clock.advance(10)
    later = await failed(lab)
    await lab.direct.move_due()
    # those that were retried fail again before the operation is over
    again = await lab.claims(limit=10)
    assert len(again) == PIECE
    for claimed in again:
        await lab.engine.fail(claimed.handle, reason="x", failure_class="permanent")
    ended = await finish(lab, operation)
    assert (ended.matched, ended.done, ended.refused) == (5, 5, {})
    assert [(await lab.record(key)).replay_count for key in keys] == [1] * 5
    assert (await lab.record(later)).replay_count == 0


@scenario
async def test_a_stopped_operation_acts_on_nothing_more(lab: Lab) -> None:
    keys = [await lab.create() for _ in range(5)]
    operation = await begin(lab, "cancel")
    await lab.direct.move_due()
    stopped = await lab.engine.stop_operation(operation_id=operation.operation_id, actor="bob")
    assert (stopped.state, stopped.done, stopped.finished_at) == (BulkState.STOPPED, PIECE, lab.now)
    await lab.after(limits.OPERATION_PAUSE_MS)
    assert (await states(lab, keys)).count("cancelled") == PIECE
    async with lab.unchanged():
        again = await lab.engine.stop_operation(operation_id=operation.operation_id)
    assert again == stopped == await look(lab, operation)
    _, event = await lab.operator_events(operation.operation_id)
    assert (event.event_type, event.actor) == (OperatorEventType.OPERATION_STOPPED, "bob")
    assert event.details == {"action": "cancel", "outcomes": {"done": PIECE}}
    async with lab.refuses(NotFound):
        await lab.engine.stop_operation(operation_id=new_uuid7s(1)[0])
    await lab.after(limits.OPERATION_RETENTION_MS)
    assert await lab.engine.describe_operation(operation_id=operation.operation_id) is None
    assert (await lab.dump())["ff_operation"] == []


@scenario
async def test_a_limit_takes_the_newest(lab: Lab) -> None:
    keys = []
    for _ in range(6):
        keys.append(await lab.create())
        lab.clock.advance(1)
    counted = await lab.engine.start_operation(action="cancel", limit=4, dry_run=True)
    assert counted == BulkCounted(4)
    ended = await run(lab, "cancel", limit=4)
    assert (ended.matched, ended.done, ended.state) == (6, 4, BulkState.DONE)
    assert await states(lab, keys) == ["waiting"] * 2 + ["cancelled"] * 4


@scenario
async def test_a_repeated_start_is_the_same_operation(lab: Lab) -> None:
    await lab.create()
    name = new_uuid7s(1)[0]
    first = await begin(lab, "cancel", operation_id=name)
    async with lab.unchanged():
        assert await begin(lab, "cancel", operation_id=name) == first
    async with lab.refuses(IdempotencyConflict, "operation_id"):
        await begin(lab, "hold", operation_id=name)
    ended = await finish(lab, first)
    async with lab.unchanged():
        assert await begin(lab, "cancel", operation_id=name) == ended


@scenario
async def test_listings_are_newest_first_and_page(lab: Lab) -> None:
    started = []
    for namespace in ("a", None, "a", "b"):
        lab.clock.advance(1)
        started.append(await begin(lab, "cancel", namespace=namespace))
    names = [each.operation_id for each in reversed(started)]
    first = await lab.engine.list_operations(limit=3)
    rest = await lab.engine.list_operations(limit=3, cursor=first.next_cursor)
    assert [each.operation_id for each in (*first.items, *rest.items)] == names
    assert (len(first.items), rest.next_cursor) == (3, None)
    of_a = await lab.engine.list_operations(namespace="a")
    assert [each.operation_id for each in of_a.items] == [names[1], names[3]]
    await lab.engine.stop_operation(operation_id=names[0])
    over = await lab.engine.list_operations(state="stopped")
    assert [each.operation_id for each in over.items] == names[:1]
    assert (await lab.engine.list_operations(limit=0)).items == ()
    with pytest.raises(InvalidCursor):
        await lab.engine.list_operations(cursor="x")


WRONG: list[tuple[dict[str, Any], type[FlowFabricError], str]] = [
    ({"action": "burn"}, InvalidInput, "action"),
    ({"action": "cancel", "states": ("odd",)}, InvalidInput, "states"),
    ({"action": "cancel", "states": "failed"}, InvalidInput, "states"),
    ({"action": "cancel", "namespace": ""}, InvalidInput, "namespace"),
    ({"action": "cancel", "lane_id": "\n"}, InvalidInput, "lane_id"),
    ({"action": "cancel", "execution_kind": 5}, InvalidInput, "execution_kind"),
    ({"action": "cancel", "tag": ("Odd", "x")}, InvalidTagKey, "tag"),
    ({"action": "cancel", "created_after": -1}, InvalidInput, "created_after"),
    ({"action": "cancel", "created_before": "now"}, InvalidInput, "created_before"),
    ({"action": "cancel", "text": ""}, InvalidInput, "text"),
    ({"action": "cancel", "blocking_reason": "odd"}, InvalidBlockingReason, "blocking_reason"),
    ({"action": "cancel", "cascade": True}, InvalidInput, "cascade"),
    ({"action": "cancel", "fresh": True}, InvalidInput, "fresh"),
    ({"action": "retry", "fresh": 1}, InvalidInput, "fresh"),
    ({"action": "release", "reason": "x"}, InvalidInput, "reason"),
    ({"action": "hold", "new_priority": 5}, InvalidInput, "new_priority"),
    ({"action": "priority"}, InvalidInput, "new_priority"),
    ({"action": "priority", "new_priority": "high"}, InvalidInput, "new_priority"),
    ({"action": "cancel", "limit": 0}, InvalidInput, "limit"),
    ({"action": "cancel", "dry_run": "yes"}, InvalidInput, "dry_run"),
    ({"action": "cancel", "operation_id": "x"}, InvalidInput, "operation_id"),
    ({"action": "cancel", "actor": ""}, InvalidInput, "actor"),
]


@scenario
async def test_a_wrong_argument_is_named_and_nothing_begins(lab: Lab) -> None:
    async with lab.unchanged():
        for asked, error, field in WRONG:
            with pytest.raises(error, match=field):
                await lab.direct.start_operation(**asked)


@scenario
async def test_a_restricted_loop_moves_operations_over_its_own_work_alone(lab: Lab) -> None:
    keys = [await lab.create(namespace=each) for each in ("a", "b")]
    of_a, of_b, of_all = [await begin(lab, "hold", namespace=each) for each in ("a", "b", None)]
    lab.direct.own_work = OwnWork(LoopFilter(("a",)))
    for _ in range(3):
        await lab.direct.move_due()
        lab.clock.advance(limits.OPERATION_PAUSE_MS)
    assert [(await look(lab, each)).is_over for each in (of_a, of_b, of_all)] == [1, 0, 0]
    assert [(await lab.record(key)).is_waiting for key in keys] == [False, True]


@scenario
async def test_one_that_cannot_be_moved_is_set_aside_and_stops_no_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an execution that cannot be changed is stepped over, and counted."""
    keys = [await lab.create() for _ in range(5)]
    bad = keys[2]
    decide = fold.fold

    async def fails(unit: Any, commands: Any) -> Any:
        if any(each.execution_id == bad for each in commands):
            raise LookupError("a bug")
        return await decide(unit, commands)

    monkeypatch.setattr(fold, "fold", fails)
    ended = await run(lab, "cancel")
    assert (ended.done, ended.refused) == (4, {"store_error": 1})
    assert (await states(lab, keys)).count("waiting") == 1
    monkeypatch.undo()
    broken, sound = await begin(lab, "hold"), await begin(lab, "hold")
    move = rules.advance

    def stuck(row: Any, *more: Any) -> Any:
        if row.operation_id == broken.operation_id:
            raise LookupError("a bug")
        return move(row, *more)

    monkeypatch.setattr(rules, "advance", stuck)
    assert (await finish(lab, sound)).done == 1
    (aside,) = lab.direct.loop_status().set_aside
    assert aside.thing == ("ff_operation", (broken.operation_id,))
    monkeypatch.undo()
    lab.clock.advance(limits.ASIDE_MS_MAX)
    assert (await finish(lab, broken)).unchanged == 1
    assert lab.direct.loop_status().set_aside == ()


@scenario
async def test_executions_that_are_locked_elsewhere_come_again(lab: Lab) -> None:
    """Two processes at once, and a transaction that holds some of the executions."""
    if not lab.url.startswith("postgresql"):
        return  # the others have one writer at a time
    keys = [await lab.create() for _ in range(4)]
    operation = await begin(lab, "cancel")
    has_locked, may_go = asyncio.Event(), asyncio.Event()

    async def hold(tx: Any) -> None:
        await tx.catalog()
        await tx.load(sorted([keys[0], keys[3]]))
        has_locked.set()
        await may_go.wait()

    holder = asyncio.create_task(lab.direct.store.transact(hold))
    await has_locked.wait()
    other = await begin(lab, "priority", new_priority=3, lane_id="nowhere")
    for _ in range(4):
        await asyncio.gather(lab.direct.move_due(), lab.direct.move_due())
        lab.clock.advance(limits.OPERATION_PAUSE_MS)
        await asyncio.sleep(limits.OPERATION_PAUSE_MS / 1000)
    found = await look(lab, operation)
    assert (found.done, found.is_over) == (2, False)
    assert (await look(lab, other)).is_over
    may_go.set()
    await holder
    ended = await finish(lab, operation)
    assert (ended.done, ended.unchanged, ended.refused) == (4, 0, {})
    for key in keys:
        assert len(await lab.completions(key)) == 1


@scenario
async def test_a_held_row_keeps_another_process_from_the_operation(lab: Lab) -> None:
    if not lab.url.startswith("postgresql"):
        return
    await lab.create()
    operation = await begin(lab, "cancel")

    async def work(tx: Any) -> int:
        await tx.catalog()
        await tx.rows(OPERATIONS, [(operation.operation_id,)])
        return await bulk_work.move_operation(lab.direct, operation.operation_id)

    assert await lab.direct.store.transact(work) == 0
    assert (await finish(lab, operation)).done == 1
