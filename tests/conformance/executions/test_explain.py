"""Why is this not running?"""

from __future__ import annotations

from typing import Any

from flowfabric.model.policy import ExecutionPolicy, RoutingRequirements
from flowfabric.model.results import Explanation
from flowfabric.model.state import PublicState
from tests.support.builders import policy, retries
from tests.support.lab import TTL_MS, Lab, scenario


async def explain(lab: Lab, execution_id: str) -> Explanation:
    async with lab.unchanged():
        return await lab.engine.explain(execution_id=execution_id)


async def register(lab: Lab, name: str = "w1", **fields: Any) -> None:
    fields = {"lanes": ("default",), "liveness_ttl_ms": 60_000, **fields}
    await lab.engine.register_worker(worker_id=name, worker_instance_id=f"{name}-1", **fields)


@scenario
async def test_missing_capabilities_are_named(lab: Lab) -> None:
    """waiting_for_capable_worker, per worker, with what is missing."""
    needs = RoutingRequirements(required_capabilities=("cuda", "gpu"))
    execution_id = await lab.create(policy=ExecutionPolicy(routing_requirements=needs))
    await register(lab, "w1", capabilities=("gpu",))
    await register(lab, "w2", capabilities=("cuda",), lanes=("other",))
    answer = await explain(lab, execution_id)
    assert answer.waiting_for == "waiting_for_capable_worker"
    assert answer.missing_capabilities == ("cuda",)
    assert [(fit.worker_id, fit.fits) for fit in answer.could_run] == [("w1", False), ("w2", False)]
    assert "cuda" in answer.summary
    await register(lab, "w3", capabilities=("cuda", "gpu"))
    answer = await explain(lab, execution_id)
    assert (answer.waiting_for, answer.missing_capabilities) == ("worker", ())
    assert [fit.worker_id for fit in answer.could_run if fit.fits] == ["w3"]


@scenario
async def test_a_handler_that_no_worker_has_is_named(lab: Lab) -> None:
    execution_id = await lab.create("brief")
    await register(lab, "w1", kinds=("other",))
    answer = await explain(lab, execution_id)
    assert answer.summary == "no live worker has a handler for brief on lane default"
    assert answer.hints == ("start a worker on lane default that handles brief",)
    await register(lab, "w2", kinds=("brief",), lanes=("elsewhere",))
    assert (await explain(lab, execution_id)).summary == answer.summary
    await register(lab, "w3", kinds=("brief",))
    assert (await explain(lab, execution_id)).summary.startswith("a worker that can run it")


@scenario
async def test_two_workers_of_which_each_lacks_something_are_no_whole_one(lab: Lab) -> None:
    needs = ExecutionPolicy(
        routing_requirements=RoutingRequirements(required_capabilities=("gpu",))
    )
    execution_id = await lab.create("brief", policy=needs)
    await register(lab, "w1", kinds=("brief",))
    await register(lab, "w2", kinds=("other",), capabilities=("gpu",))
    answer = await explain(lab, execution_id)
    assert answer.summary == "no live worker can run it: each lacks something"
    assert {fit.lacks for fit in answer.could_run} == {"lacks gpu", "has no handler for brief"}


@scenario
async def test_a_lapsed_worker_could_not_run_it(lab: Lab) -> None:
    execution_id = await lab.create()
    await register(lab, liveness_ttl_ms=1000)
    assert (await explain(lab, execution_id)).could_run[0].fits
    lab.clock.advance(1000)
    answer = await explain(lab, execution_id)
    assert answer.could_run == ()
    assert "no live worker" in answer.summary


@scenario
async def test_every_situation_has_a_cause_and_a_due_time_where_there_is_one(lab: Lab) -> None:
    """Invariant I9."""
    engine = lab.engine
    delayed = await lab.create(delay_until=lab.now + 500)
    answer = await explain(lab, delayed)
    assert (answer.waiting_for, answer.due_at) == ("waiting_for_delay", lab.now + 500)
    assert (answer.public_state, answer.since) == (PublicState.DELAYED, lab.now)

    retrying = await lab.started(policy=policy(retry_policy=retries(1, 700)))
    await engine.fail(retrying.handle, reason="x")
    answer = await explain(lab, retrying.execution_id)
    assert (answer.waiting_for, answer.due_at) == ("waiting_for_retry_backoff", lab.now + 700)

    held = await lab.create()
    await engine.hold_execution(execution_id=held, reason="audit of May")
    answer = await explain(lab, held)
    assert answer.waiting_for == "paused_by_operator"
    assert "audit of May" in answer.summary
    assert answer.hints

    promised = await lab.create()
    await engine.issue_claim_grant(
        execution_id=promised, worker_id="w9", worker_instance_id="w9-1", grant_ttl_ms=100
    )
    answer = await explain(lab, promised)
    assert (answer.waiting_for, answer.due_at) == ("grant", lab.now + 100)

    await lab.create(lane_id="shut")
    shut = await lab.create(lane_id="shut")
    await engine.pause_lane(lane_id="shut")
    assert (await explain(lab, shut)).waiting_for == "lane_state"

    running = await lab.started(lane_id="b")
    answer = await explain(lab, running.execution_id)
    assert (answer.waiting_for, answer.due_at) == ("nothing", lab.now + TTL_MS)
    assert "w1" in answer.summary
    await engine.revoke_lease(execution_id=running.execution_id, reason="suspect")
    answer = await explain(lab, running.execution_id)
    assert answer.waiting_for == "reclaim"
    assert "suspect" in answer.summary

    finished = await lab.started(lane_id="b")
    await engine.fail(finished.handle, reason="ValueError: bad\nTraceback\n  line")
    answer = await explain(lab, finished.execution_id)
    assert answer.waiting_for == "nothing"
    assert "ValueError: bad" in answer.summary
