"""Unique keys: one live execution of a kind for each; submits that settle, and that gather."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import pytest

from flowfabric.api.executions import NewExecution, NewUnique
from flowfabric.errors import IdempotencyConflict, InvalidInput, UniqueConflict
from flowfabric.model.results import Batched, Created, Debounced, Duplicate, Existing
from flowfabric.model.state import PublicState
from tests.support.flows import node, submit
from tests.support.lab import Lab, scenario

RIVALS: Final = 8


UNIQUE: Final = frozenset(NewUnique.__struct_fields__)


async def new(lab: Lab, value: object = 1, **fields: Any) -> Any:
    """Submit under the key; the answer."""
    unique = {"key": "k"} | {name: fields.pop(name) for name in UNIQUE & fields.keys()}
    return await lab.engine.create_execution(
        input_payload=json.dumps({"rows": value}).encode(),
        payload_encoding="json",
        unique=NewUnique(**unique),
        **{"execution_kind": "work", **fields},
    )


async def rows(lab: Lab, execution_id: str) -> Any:
    """The argument of an execution."""
    context = await lab.engine.read_execution_context(execution_id=execution_id)
    return json.loads(context.input_payload)["rows"]


async def free(lab: Lab) -> bool:
    """Whether no key is taken, and doctor has nothing to say."""
    assert (await lab.engine.doctor()).problems == ()
    return not (await lab.dump())["ff_unique"]


@pytest.mark.parametrize("way", ["unique", "debounce", "batch"])
@scenario
async def test_scenario_46_eight_rivals_make_one_execution(lab: Lab, way: str) -> None:
    fields = {
        "unique": {},
        "debounce": {"debounce_ms": 5_000},
        "batch": {"batch_items": 100, "batch_ms": 2_000},
    }[way]
    answers = await asyncio.gather(
        *(new(lab, [at] if way == "batch" else at, **fields) for at in range(RIVALS))
    )
    assert len({each.execution_id for each in answers}) == 1
    only = answers[0].execution_id
    assert sum(isinstance(each, Created) for each in answers) == 1
    if way == "debounce":
        last = await new(lab, "last", **fields)
        assert last == Debounced(only, lab.now + 5_000)
        assert await rows(lab, only) == "last"
    if way == "batch":
        assert sorted(each.batch_index for each in answers) == list(range(RIVALS))
        stored = await rows(lab, only)
        assert [stored[each.batch_index] for each in answers] == list(range(RIVALS))
    await lab.after(5_000)
    claimed = await lab.claim()
    assert claimed.execution_id == only
    await lab.engine.complete(claimed.handle)
    assert await free(lab)
    assert isinstance(await new(lab, [1], **fields), Created)


@scenario
async def test_a_key_is_taken_until_the_end(lab: Lab) -> None:
    first = await new(lab)
    assert await new(lab) == Existing(first.execution_id)
    assert isinstance(await new(lab, execution_kind="other"), Created)
    assert isinstance(await new(lab, namespace="other"), Created)
    claimed = await lab.claim(kinds=("work",))
    assert await new(lab) == Existing(first.execution_id)
    async with lab.refuses(UniqueConflict, "unique"):
        await new(lab, on_conflict="refuse")
    again, _ = await asyncio.gather(lab.engine.complete(claimed.handle), new(lab))
    assert again is not None
    for each in (await lab.dump())["ff_unique"]:
        await lab.cancel(each.execution_id)
    assert await free(lab)


@scenario
async def test_a_key_may_be_taken_until_the_start_alone(lab: Lab) -> None:
    first = await new(lab, while_="waiting")
    assert await new(lab, while_="waiting") == Existing(first.execution_id)
    running = await lab.claim()
    second = await new(lab, while_="waiting")
    assert isinstance(second, Created)
    await lab.engine.complete(running.handle)  # which gives up no key of another
    assert await new(lab, while_="waiting") == Existing(second.execution_id)


@scenario
async def test_a_submit_may_replace_a_running_one(lab: Lab) -> None:
    first = await new(lab)
    await lab.claim()
    second = await new(lab, on_conflict="replace")
    assert second.replaced_id == first.execution_id
    assert await lab.state(first.execution_id) is PublicState.CANCELLED
    third = await new(lab, on_conflict="replace", serial_key="s")
    fourth = await new(lab, on_conflict="replace", serial_key="s")
    assert fourth.replaced_id == third.execution_id
    claimed = await lab.claim()  # the turn of the one that was replaced
    assert claimed.execution_id == fourth.execution_id
    await lab.engine.complete(claimed.handle)
    assert await free(lab)


@scenario
async def test_an_idempotency_key_is_looked_at_first(lab: Lab) -> None:
    first = await new(lab, idempotency_key="a")
    assert await new(lab, idempotency_key="a") == Duplicate(first.execution_id)
    assert await new(lab, idempotency_key="b") == Existing(first.execution_id)
    assert await new(lab, idempotency_key="b") == Duplicate(first.execution_id)
    async with lab.refuses(IdempotencyConflict):
        await new(lab, 2, idempotency_key="b")
    claimed = await lab.claim()
    await lab.engine.complete(claimed.handle)
    assert await new(lab, idempotency_key="b") == Duplicate(first.execution_id)
    fields: dict[str, Any] = {"batch_items": 3, "batch_ms": 2_000, "key": "batch"}
    begun = await new(lab, [1, 2], idempotency_key="c", **fields)
    joined = await new(lab, [3], idempotency_key="d", **fields)
    assert joined == Batched(begun.execution_id, 2)
    assert await new(lab, [3], idempotency_key="d", **fields) == Duplicate(begun.execution_id, 2)
    assert await rows(lab, begun.execution_id) == [1, 2, 3]


@scenario
async def test_a_start_moves_up_to_its_maximum(lab: Lab) -> None:
    fields: dict[str, Any] = {"debounce_ms": 5_000, "debounce_max_ms": 12_000}
    begun_at, first = lab.now, await new(lab, **fields)
    for passed in (4_000, 4_000, 3_000):
        await lab.after(passed)
        moved = await new(lab, passed, **fields)
        assert moved.starts_at == min(lab.now + 5_000, begun_at + 12_000)
    assert await lab.claims() == []
    await lab.after(1_000)
    assert await new(lab, "late", **fields) == Debounced(first.execution_id, begun_at + 12_000)
    claimed = await lab.claim()
    assert await rows(lab, claimed.execution_id) == "late"
    assert isinstance(await new(lab, **fields), Created)  # the one that runs is left alone


@scenario
async def test_a_batch_takes_no_more_when_it_is_full_or_due(lab: Lab) -> None:
    fields: dict[str, Any] = {"batch_items": 3, "batch_ms": 2_000}
    first = await new(lab, [1, 2], **fields)
    second = await new(lab, [3, 4], **fields)  # does not fit
    assert isinstance(second, Created)
    assert await lab.state(first.execution_id) is PublicState.WAITING
    assert await new(lab, [5], **fields) == Batched(second.execution_id, 2)
    assert await lab.state(second.execution_id) is PublicState.WAITING
    third = await new(lab, [6], **fields)
    await lab.after(2_000)
    fourth = await new(lab, [7], **fields)
    assert isinstance(fourth, Created)
    given = [await rows(lab, each.execution_id) for each in await lab.claims(limit=9)]
    assert sorted(given) == [[1, 2], [3, 4, 5], [6]]
    assert third.batch_index == fourth.batch_index == 0
    await lab.cancel(fourth.execution_id)
    assert await free(lab)


@scenario
async def test_a_replay_needs_its_key(lab: Lab) -> None:
    first = await new(lab)
    await lab.engine.complete((await lab.claim()).handle)
    await lab.engine.replay_execution(execution_id=first.execution_id)
    assert await new(lab) == Existing(first.execution_id)
    await lab.cancel(first.execution_id)
    await new(lab)
    async with lab.refuses(UniqueConflict, "unique"):
        await lab.engine.replay_execution(execution_id=first.execution_id)


@scenario
async def test_many_of_one_transaction_meet_each_other(lab: Lab) -> None:
    requests = [
        NewExecution(
            execution_kind="work",
            unique=NewUnique(key=f"k{at % 2}", batch_items=100, batch_ms=1_000),
            input_payload=b'{"rows":[%d]}' % at,
        )
        for at in range(10)
    ]
    answers = await lab.engine.create_executions(requests)
    assert len({each.execution_id for each in answers}) == 2
    assert await rows(lab, answers[0].execution_id) == [0, 2, 4, 6, 8]
    assert [getattr(each, "batch_index", None) for each in answers] == [at // 2 for at in range(10)]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"key": ""}, "unique.key"),
        ({"while_": "running"}, "while_"),
        ({"on_conflict": "stop"}, "on_conflict"),
        ({"debounce_ms": 0}, "debounce_ms"),
        ({"debounce_ms": 9, "debounce_max_ms": 8}, "debounce_max_ms"),
        ({"debounce_max_ms": 8}, "debounce_max_ms"),
        ({"debounce_ms": 9, "while_": "unfinished"}, "while_"),
        ({"debounce_ms": 9, "on_conflict": "replace"}, "on_conflict"),
        ({"debounce_ms": 9, "delay_ms": 9}, "delay_ms"),
        ({"debounce_ms": 9, "batch_items": 1, "batch_ms": 1}, "batch_items"),
        ({"batch_items": 5}, "batch_ms"),
        ({"batch_ms": 5}, "batch_items"),
        ({"batch_items": 5, "batch_ms": 5}, "input_payload"),
    ],
)
@scenario
async def test_what_contradicts_is_refused_by_name(
    lab: Lab, fields: dict[str, Any], field: str
) -> None:
    async with lab.refuses(InvalidInput, field):
        await new(lab, **fields)


@scenario
async def test_members_of_graphs_are_refused(lab: Lab) -> None:
    with pytest.raises(InvalidInput, match="unique"):
        await submit(lab, [node("a", unique=NewUnique(key="k"))])
    parent = await lab.started()
    async with lab.refuses(InvalidInput, "unique"):
        request = NewExecution(execution_kind="work", unique=NewUnique(key="k"))
        await lab.engine.spawn_children(parent.handle, children=[request])
