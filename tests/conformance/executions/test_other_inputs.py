"""A retry with another input is a new execution; both know each other, and the old one stays."""

from __future__ import annotations

from typing import Any

from flowfabric.errors import (
    ExecutionNotTerminal,
    IdempotencyConflict,
    InvalidCursor,
    InvalidInput,
    LaneClosed,
    NotFound,
)
from flowfabric.model.event import OperatorEventType
from flowfabric.model.retry import Retried
from flowfabric.model.state import PublicState
from tests.support.lab import Lab, scenario

PAYLOAD = b'{"a":1,"b":[2]}'


async def failed(lab: Lab, **more: Any) -> str:
    claimed = await lab.started(input_payload=PAYLOAD, payload_encoding="json", **more)
    await lab.engine.fail(claimed.handle, reason="no", failure_class="permanent")
    return claimed.execution_id


async def again(lab: Lab, key: str, **more: Any) -> Retried:
    more = more or {"arguments": {"a": b"7"}}
    return await lab.engine.retry_with_input(execution_id=key, **more)


@scenario
async def test_another_input_makes_a_new_execution_and_the_old_record_stays(lab: Lab) -> None:
    source = await failed(lab, priority=7, tags={"a.b": "c"}, serial_key="acme")
    before = await lab.record(source)
    retried = await again(lab, source, arguments={"a": b'"x"'}, reason="typo", actor="ada")
    assert (retried.retried_from, retried.is_new) == (source, True)
    assert await lab.record(source) == before
    claimed = await lab.claim("w2")
    assert claimed.execution_id == retried.execution_id
    assert (claimed.payload, claimed.payload_encoding) == (b'{"a":"x","b":[2]}', "json")
    assert (claimed.priority, claimed.tags, claimed.attempt_index) == (7, {"a.b": "c"}, 0)
    found = await lab.describe(retried.execution_id)
    assert (found.retried_from, found.serial_key) == (source, "acme")
    assert (await lab.describe(source)).retried_from is None
    event = (await lab.operator_events(source))[-1]
    assert (event.event_type, event.actor) == (OperatorEventType.RETRIED, "ada")
    assert event.details == {"retry": retried.execution_id, "reason": "typo"}


@scenario
async def test_the_whole_input_may_be_another_one(lab: Lab) -> None:
    source = await failed(lab)
    await again(lab, source, input_payload=b"\x00\xff", payload_encoding="raw")
    claimed = await lab.claim("w2")
    assert (claimed.payload, claimed.payload_encoding) == (b"\x00\xff", "raw")


@scenario
async def test_retries_of_an_execution_are_found_page_by_page(lab: Lab) -> None:
    source, other = await failed(lab), await failed(lab)
    made = []
    for number in range(3):
        made.append((await again(lab, source, input_payload=b"%d" % number)).execution_id)
        await lab.after(1)
    await again(lab, other)
    first = await lab.engine.list_retries(execution_id=source, limit=2)
    rest = await lab.engine.list_retries(execution_id=source, cursor=first.next_cursor)
    found = [*first.items, *rest.items]
    assert ([each.execution_id for each in found], rest.next_cursor) == (made, None)
    assert {each.retried_from for each in found} == {source}
    assert (await lab.engine.list_retries(execution_id=made[0])).items == ()
    async with lab.refuses(InvalidCursor):
        await lab.engine.list_retries(execution_id=source, cursor="x")


@scenario
async def test_a_repeated_key_answers_the_first_retry(lab: Lab) -> None:
    source = await failed(lab)
    first = await again(lab, source, input_payload=b"1", idempotency_key="k")
    await lab.engine.replay_execution(execution_id=source)  # it has not ended any more
    async with lab.unchanged():
        repeated = await again(lab, source, input_payload=b"1", idempotency_key="k")
    assert repeated == Retried(first.execution_id, source, is_new=False)
    async with lab.refuses(IdempotencyConflict, "idempotency_key"):
        await again(lab, source, input_payload=b"2", idempotency_key="k")
    async with lab.refuses(IdempotencyConflict, "idempotency_key"):
        await lab.engine.create_execution(
            execution_kind="work", input_payload=b"1", idempotency_key="k"
        )


@scenario
async def test_what_has_not_ended_cannot_be_retried_with_another_input(lab: Lab) -> None:
    key = await lab.create()
    async with lab.refuses(ExecutionNotTerminal):
        await again(lab, key, input_payload=b"1")
    await lab.cancel(key)
    assert (await again(lab, key, input_payload=b"1")).is_new


@scenario
async def test_a_retry_that_cannot_be_made_is_refused(lab: Lab) -> None:
    source = await failed(lab)
    for wrong in ({"input_payload": b"1", "arguments": {"a": b"1"}}, {"reason": "x"}):
        async with lab.refuses(InvalidInput, "input_payload"):
            await again(lab, source, **wrong)
    async with lab.refuses(InvalidInput, "arguments"):
        await again(lab, source, arguments={"a": b"{"})
    async with lab.refuses(InvalidInput, "idempotency_key"):
        await again(lab, source, input_payload=b"1", idempotency_key="")
    async with lab.refuses(NotFound):
        await again(lab, "{fp:1}:01890000-0000-7000-8000-000000000003")
    await lab.engine.drain_lane(lane_id="default")
    async with lab.refuses(LaneClosed):
        await again(lab, source)


@scenario
async def test_the_way_back_stays_when_the_old_one_was_removed(lab: Lab) -> None:
    source = await failed(lab, policy={"failed_retention_ttl_ms": 1_000})
    retried = await again(lab, source)
    await lab.after(1_001)
    assert await lab.engine.describe_execution(execution_id=source) is None
    assert (await lab.describe(retried.execution_id)).retried_from == source
    assert (await lab.dump())["ff_retry"] == []
    async with lab.refuses(NotFound):
        await again(lab, source)
    assert await lab.state(retried.execution_id) is PublicState.WAITING
