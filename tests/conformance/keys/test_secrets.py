"""Lease ids are secrets: whoever holds one is the owner, so nobody else ever sees it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from flowfabric.errors import FlowFabricError
from flowfabric.kernel.execution.claim import NewIds
from flowfabric.kernel.execution.complete import Complete
from flowfabric.model.record import replace, to_json
from tests.support.builders import fence_of, leased
from tests.support.lab import TTL_MS, Lab, scenario


def test_the_values_that_hold_a_secret_do_not_show_it() -> None:
    """Reprs end in tracebacks and logs."""
    execution = leased()
    secret = execution.lease_id
    assert secret
    fence = fence_of(execution)
    shown: list[Any] = [
        execution,
        fence,
        Complete(execution_id=execution.execution_id, fence=fence, source="lease_holder"),
        NewIds(secret, "attempt"),
        [execution],
        {"x": fence},
    ]
    for value in shown:
        assert secret not in repr(value), type(value).__name__
        assert secret not in str(value), type(value).__name__


@scenario
async def test_no_answer_but_the_owners_own_carries_the_secret(lab: Lab) -> None:
    """Not in listings, explanations, histories, events or counts."""
    claimed = await lab.started(tags={"a.b": "c"})
    secret, execution_id = claimed.lease_id, claimed.execution_id
    engine = lab.engine
    await engine.register_worker(
        worker_id="w1", worker_instance_id="w1-1", lanes=("default",), liveness_ttl_ms=60_000
    )
    names = ("lease_id", "lease_epoch", "grant", "current_lease_id")
    fields = await engine.read_exec_core_fields(execution_id=execution_id, names=names)
    assert fields["lease_id"] is None
    assert fields["lease_epoch"] == str(claimed.lease_epoch)
    public = [
        claimed,
        claimed.handle,
        await engine.describe_execution(execution_id=execution_id),
        await engine.explain(execution_id=execution_id),
        (await engine.list_attempts(execution_id=execution_id)).items,
        await engine.list_executions(),
        await engine.list_lanes(),
        await engine.list_workers(),
        await engine.list_expired_leases(as_of=lab.now + TTL_MS),
        await engine.renew(claimed.handle),
        await engine.doctor(),
        fields,
    ]
    for answer in public:
        assert secret not in repr(answer), type(answer).__name__
        if answer is not claimed and answer is not claimed.handle:
            assert secret.encode() not in to_json(answer), type(answer).__name__
    events = await lab.lease_events(execution_id)
    assert secret.encode() not in to_json(events)


@scenario
async def test_no_error_tells_the_secret(lab: Lab) -> None:
    """Neither the right one nor the one that was tried."""
    claimed = await lab.started()
    secret = claimed.lease_id
    guess = "99999999-9999-4999-8999-999999999999"
    handles = [
        replace(claimed.handle, lease_id=guess),
        replace(claimed.handle, lease_epoch=77),
        replace(claimed.handle, backend="other"),
        replace(claimed.handle, attempt_id=guess),
    ]
    lab.clock.advance(TTL_MS)
    errors: list[FlowFabricError] = []
    for handle in (*handles, claimed.handle):
        with pytest.raises(FlowFabricError) as refusal:
            await lab.engine.complete(handle)
        errors.append(refusal.value)
    await lab.engine.tick()
    with pytest.raises(FlowFabricError) as refusal:
        await lab.engine.renew(claimed.handle)
    errors.append(refusal.value)
    for error in errors:
        text = f"{error} {error!r} {error.as_dict()} {error.fields}"
        assert secret not in text
        assert guess not in text


@scenario
async def test_no_log_line_tells_a_secret_or_a_payload(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """A canary through a whole life, at the most talkative level."""
    caplog.set_level(logging.DEBUG)
    canary = b"canary-payload-7f3a"
    claimed = await lab.started(input_payload=canary)
    await lab.engine.progress(claimed.handle, percent=1)
    with pytest.raises(FlowFabricError):
        await lab.engine.complete(replace(claimed.handle, lease_epoch=9))
    await lab.after(TTL_MS)
    again = await lab.claim("w2")
    await lab.engine.complete(again.handle, result=canary)
    for secret in (claimed.lease_id, again.lease_id, canary.decode()):
        assert secret not in caplog.text


@scenario
async def test_secrets_are_never_handed_out_twice(lab: Lab) -> None:
    for _ in range(50):
        await lab.create()
    claimed = await lab.claims(limit=50)
    assert len({each.lease_id for each in claimed}) == 50
    assert len({each.attempt_id for each in claimed}) == 50
