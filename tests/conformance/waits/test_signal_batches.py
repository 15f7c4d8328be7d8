"""Calls that meet in one batch of one engine: the same answers as one after another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.api.waits import SuspendRequest, UsePending
from flowfabric.errors import InvalidInput, TargetNotSignalable, WaitpointClosed
from flowfabric.model.handle import HandleKind
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import (
    AllOf,
    AlreadyMet,
    Count,
    CountKind,
    SignalDuplicate,
    SignalEffect,
    Single,
    Suspended,
)
from tests.support.lab import Lab
from tests.support.waits import pending, signal_to, signals, suspended, told


async def together(*calls: Any) -> list[Any]:
    """The answers of calls made at one moment."""
    return await asyncio.gather(*calls, return_exceptions=True)


@told
async def test_a_suspend_and_a_signal_in_one_batch(lab: Lab) -> None:
    """The signal counts whichever is decided first."""
    for number in range(6):
        claimed = await lab.started()
        details = await pending(lab, claimed)
        request = SuspendRequest(
            resume_condition=Single("a", "go"),
            waitpoints=(UsePending(details.waitpoint_id, "a"),),
        )
        suspend = lab.engine.suspend(claimed.handle, request)
        send = lab.engine.deliver_signal(signal_to(claimed.execution_id, details))
        if number % 2:
            outcome, answer = await together(suspend, send)
        else:
            answer, outcome = await together(send, suspend)
        if answer.effect is SignalEffect.RESUMED:
            assert isinstance(outcome, Suspended)
            claimed = await lab.claim()
            assert claimed.handle.kind is HandleKind.RESUMED
        else:
            assert answer.effect is SignalEffect.BUFFERED
            assert isinstance(outcome, AlreadyMet)
        (seen,) = await lab.engine.observe_signals(claimed.handle)
        assert seen.signal_id == answer.signal_id
        await lab.engine.complete(claimed.handle)


@told
async def test_signals_in_one_batch_are_each_judged(lab: Lab) -> None:
    waiting = await suspended(lab, Count(3, CountKind.DISTINCT_SOURCES, ("a",)))
    done = await together(*(waiting.send(by=by) for by in ("x", "y", "x", "z", "u")))
    effects = [getattr(each, "effect", type(each)) for each in done]
    assert effects == [
        SignalEffect.APPENDED,
        SignalEffect.APPENDED,
        SignalEffect.DUPLICATE,
        SignalEffect.RESUMED,
        WaitpointClosed,
    ]
    assert len(await signals(lab, waiting.execution_id)) == 4


@told
async def test_one_key_in_one_batch_is_one_signal(lab: Lab) -> None:
    waiting = await suspended(lab, Count(2, CountKind.DISTINCT_SIGNALS, ("a",)))
    done = await together(*(waiting.send(idempotency_key="k") for _ in range(5)))
    assert [type(each) for each in done[1:]] == [SignalDuplicate] * 4
    assert {each.existing_signal_id for each in done[1:]} == {done[0].signal_id}
    assert await lab.state(waiting.execution_id) is PublicState.SUSPENDED


@told
async def test_a_signal_a_claim_and_a_second_suspension_in_a_row(lab: Lab) -> None:
    """What one batch resumes the same batch may claim."""
    waiting = [await suspended(lab) for _ in range(5)]
    sent, found = await together(
        lab.engine.deliver_signals([each.signal() for each in waiting]), lab.claims(limit=5)
    )
    assert {each.effect for each in sent} == {SignalEffect.RESUMED}
    found += await lab.claims(limit=5)
    assert len(found) == 5
    assert {each.handle.kind for each in found} == {HandleKind.RESUMED}


@told
async def test_a_signal_after_a_cancel_in_one_batch_is_late(lab: Lab) -> None:
    waiting = await suspended(lab, AllOf((Single("a"), Single("b"))))
    done = await together(
        waiting.send(at="a"), lab.cancel(waiting.execution_id), waiting.send(at="b")
    )
    assert done[0].effect is SignalEffect.APPENDED
    assert isinstance(done[2], TargetNotSignalable)


@told
async def test_many_signals_in_few_commits(lab: Lab) -> None:
    """`deliver_signals` beyond one batch: every one is answered, the sum is right."""
    waiting = [await suspended(lab, Count(300, CountKind.DISTINCT_SIGNALS, ("a",)))]
    waiting.append(await suspended(lab, Count(301, CountKind.DISTINCT_SIGNALS, ("a",))))
    batch = [each.signal() for _ in range(300) for each in waiting]
    answers = await lab.engine.deliver_signals(batch)
    effects = [getattr(each, "effect", None) for each in answers]
    assert effects.count(SignalEffect.RESUMED) == 1
    assert effects.count(SignalEffect.APPENDED) == 599
    assert effects[-2] is SignalEffect.RESUMED
    again = await lab.claim()
    assert len(await lab.engine.observe_signals(again.handle)) == 300
    with pytest.raises(InvalidInput, match="signals"):
        await lab.engine.deliver_signals(None)  # type: ignore[arg-type]


@told
async def test_a_suspended_execution_explains_itself(lab: Lab) -> None:
    """Whoever asks why it does not run is told what it waits for."""
    waiting = await suspended(lab, reason_code="waiting_for_approval")
    said = repr(await lab.engine.explain(execution_id=waiting.execution_id))
    assert "suspend" in said.lower() or "approval" in said.lower()
    await waiting.send(resume_delay_ms=5000)
    said = repr(await lab.engine.explain(execution_id=waiting.execution_id))
    assert "delay" in said.lower()
