"""Start time-outs: what is not started in time expires, with a cause of its own."""

from __future__ import annotations

from typing import Final

from flowfabric.model.state import PublicState
from tests.support.flows import arrows, node, submit
from tests.support.lab import Lab, scenario

WITHIN: Final = {"timeout_policy": {"start_within_ms": 5_000}}


@scenario
async def test_what_is_not_started_in_time_expires(lab: Lab) -> None:
    late = await lab.create(policy=WITHIN)
    delayed = await lab.create(policy=WITHIN, delay_ms=10_000)
    await lab.after(4_999)
    assert await lab.state(late) is PublicState.WAITING
    await lab.after(1)
    snapshot = await lab.describe(late)
    assert snapshot.public_state is PublicState.EXPIRED
    assert snapshot.failure_category == "start_timeout"
    assert snapshot.failure_reason == "start_timeout: not started within 5s"
    await lab.after(9_999)
    assert await lab.state(delayed) is PublicState.WAITING  # its time began with its delay over
    await lab.after(1)
    assert await lab.state(delayed) is PublicState.EXPIRED


@scenario
async def test_what_has_started_may_take_its_time(lab: Lab) -> None:
    fast = {"retry_policy": {"max_retries": 1, "backoff": {"type": "fixed", "delay_ms": 9_000}}}
    claimed = await lab.started(policy={**WITHIN, **fast})
    await lab.engine.fail(claimed.handle, reason="x", failure_class="transient")
    await lab.after(9_000)
    assert await lab.state(claimed.execution_id) is PublicState.WAITING
    await lab.after(9_000)
    again = await lab.claim()
    await lab.engine.complete(again.handle)


@scenario
async def test_a_wait_for_a_turn_counts_and_one_for_dependencies_does_not(lab: Lab) -> None:
    head = await lab.started(serial_key="acme")
    behind = await lab.create(serial_key="acme", policy=WITHIN)
    graph = await submit(lab, [node("a", lane_id="other"), node("b", policy=WITHIN)], arrows("a>b"))
    await lab.after(6_000)
    assert await lab.state(behind) is PublicState.EXPIRED
    assert await lab.state(graph.ids["b"]) is PublicState.WAITING_CHILDREN
    upstream = await lab.claim(lanes=("other",))
    await lab.engine.complete(upstream.handle)
    await lab.after(4_999)
    assert await lab.state(graph.ids["b"]) is PublicState.WAITING
    await lab.after(1)
    assert await lab.state(graph.ids["b"]) is PublicState.EXPIRED
    await lab.engine.complete(head.handle)
    assert (await lab.engine.doctor()).problems == ()
