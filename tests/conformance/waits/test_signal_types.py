"""A payload is compared with its type while nothing is held, and only for who may signal."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.api.waits import Fresh
from flowfabric.engine.operations import signals
from flowfabric.errors import InvalidInput, InvalidPayload, InvalidToken, WaitpointClosed
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.wait.schema import payload_problem
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import SignalDuplicate, SignalEffect, Single
from tests.support.lab import Lab, scenario
from tests.support.waits import Waiting, suspended

UNION = {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}
PART = {"type": "object", "properties": {"part": UNION}, "required": ["part"]}
RECURSIVE = json.dumps({**UNION, "$defs": {"A": PART, "B": {**PART, "title": "B"}}})


async def typed(lab: Lab, schema: str) -> Waiting:
    return await suspended(lab, Single("a", "go"), waitpoints=(Fresh("a", schema),))


class Watch:
    """Counts the comparisons, and sees that none is made while a transaction is open."""

    def __init__(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compared = 0
        self.open = 0
        compare, transact = payload_problem, lab.engine.store.transact

        def comparing(payload: bytes | None, declared: str) -> Refused | None:
            assert self.open == 0
            self.compared += 1
            return compare(payload, declared)

        async def opened(work: Callable[[Any], Awaitable[Any]]) -> Any:
            self.open += 1
            try:
                return await transact(work)
            finally:
                self.open -= 1

        monkeypatch.setattr(signals, "payload_problem", comparing)
        monkeypatch.setattr(lab.engine.store, "transact", opened)


@pytest.mark.parametrize("filler", [0, 5_000])
@scenario
async def test_a_payload_is_compared_while_no_transaction_is_open(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, filler: int
) -> None:
    waiting = await typed(lab, '{"type":"object","properties":{"n":{"type":"integer"}}}')
    watch = Watch(lab, monkeypatch)
    more = {"more": "x" * filler}  # a long one is compared in a thread
    async with lab.refuses(InvalidPayload, "payload.n"):
        await waiting.send(payload=json.dumps({"n": "x", **more}).encode())
    answer = await waiting.send(payload=json.dumps({"n": 1, **more}).encode())
    assert answer.effect is SignalEffect.RESUMED
    assert watch.compared == 2


@scenario
async def test_nothing_is_compared_for_who_may_not_signal_or_comes_too_late(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await typed(lab, RECURSIVE)
    free = await typed(lab, "{}")
    watch = Watch(lab, monkeypatch)
    with pytest.raises(InvalidToken):
        await waiting.send(token="k1:" + "0" * 64, payload=b"{}")
    await free.send(payload=b"1", idempotency_key="k")
    assert watch.compared == 1
    again = await free.send(payload=b"1", idempotency_key="k")
    assert isinstance(again, SignalDuplicate)
    with pytest.raises(WaitpointClosed):
        await free.send(payload=b"1")
    assert watch.compared == 1


@scenario
async def test_a_signal_without_a_declared_type_costs_no_second_commit(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await suspended(lab)
    commits = 0
    run = lab.engine.batches._commit

    async def counting(batch: Any) -> None:
        nonlocal commits
        commits += 1
        await run(batch)

    monkeypatch.setattr(lab.engine.batches, "_commit", counting)
    await waiting.send("go", payload=b"{}")
    assert commits == 1


@scenario
async def test_a_small_payload_cannot_stall_a_store(lab: Lab) -> None:
    """Unions inside unions, 60 deep: an exact refusal, and the wait goes on."""
    waiting = await typed(lab, RECURSIVE)
    value: Any = 1
    for _ in range(60):
        value = {"part": value}
    payload = json.dumps(value).encode()
    assert len(payload) < 800
    async with lab.refuses(InvalidPayload, "alternatives"):
        await waiting.send(payload=payload)
    assert await lab.state(waiting.execution_id) is PublicState.SUSPENDED


@scenario
async def test_each_signal_of_a_batch_is_compared_with_its_own_type(lab: Lab) -> None:
    numbers, words = await typed(lab, '{"type":"integer"}'), await typed(lab, '{"type":"string"}')
    free = await suspended(lab)
    answers = await lab.engine.deliver_signals(
        [
            numbers.signal(payload=b'"x"'),
            words.signal(payload=b'"x"'),
            free.signal(payload=b"nonsense"),
            numbers.signal(payload=b"1"),
        ]
    )
    assert isinstance(answers[0], InvalidPayload)
    effects = [getattr(each, "effect", None) for each in answers[1:]]
    assert effects == [SignalEffect.RESUMED] * 3


@scenario
async def test_a_type_that_refers_to_itself_is_refused_at_the_suspend(lab: Lab) -> None:
    endless = '{"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}'
    claimed = await lab.started()
    async with lab.refuses(InvalidInput, "payload_type"):
        await suspended(lab, Single("a", "go"), claimed, waitpoints=(Fresh("a", endless),))
    async with lab.refuses(InvalidInput, "payload_type"):
        await lab.engine.create_waitpoint(
            claimed.handle, waitpoint_key="a", expires_in_ms=1000, payload_type=endless
        )


@scenario
async def test_an_operators_comment_is_compared_too(lab: Lab) -> None:
    waiting = await typed(lab, '{"type":"integer"}')
    approve: dict[str, Any] = {
        "execution_id": waiting.execution_id,
        "waitpoint_id": waiting.at["a"].waitpoint_id,
        "signal_name": "go",
        "idempotency_suffix": "1",
    }
    async with lab.refuses(InvalidPayload, "payload"):
        await lab.engine.deliver_approval_signal(**approve, comment=b'"x"')
    await lab.engine.deliver_approval_signal(**approve, comment=b"1")
    assert await lab.state(waiting.execution_id) is PublicState.WAITING
