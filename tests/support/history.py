"""A history with work in every state there is and a row in every table."""

from __future__ import annotations

from typing import Any

from flowfabric.model.flow import AllSucceeded, AnySucceeded, OnSatisfied
from flowfabric.model.journal import CodeMark
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import Count, CountKind
from tests.support.budgets import make_budget, report, reserve, spend
from tests.support.flows import arrows, node, submit
from tests.support.gates import quota
from tests.support.journal import entry, failed, record
from tests.support.lab import Lab
from tests.support.logs import log
from tests.support.statistics import roll_up
from tests.support.streams import append, frame, summary
from tests.support.waits import suspended


async def history(lab: Lab, name: str) -> None:
    """Work in every state there is, with a row in every table, on a lane of its own."""
    engine = lab.engine
    here: dict[str, Any] = {"lane_id": name}
    await make_budget(lab, name, {"tokens": 100}, {"tokens": 2}, scope_type="lane", scope_id=name)
    await quota(lab, name, rate=50, cap=4)
    await engine.configure_lane(lane_id=name, weight=2, quota_policy_id=name)
    await engine.register_worker(
        worker_id=name,
        worker_instance_id=name,
        lanes=(name,),
        kinds=("work",),
        liveness_ttl_ms=60_000,
    )
    await lab.completed(tags={"a.b": name}, idempotency_key=f"{name}-done", **here)
    late = await lab.started(**here)
    await engine.delay(late.handle, delay_until=lab.now + 600_000)
    running = await lab.started(
        tags={"a.b": name}, idempotency_key=name, execution_deadline_at=lab.now + 900_000, **here
    )
    await engine.progress(running.handle, percent=10, message="so far")
    await append(lab, running, frame(), frame(mode="best_effort"), summary(b'{"a":1}'))
    await log(lab, running, "so far", first=1)
    await record(lab, running, entry(0, digest=b"d", code=CodeMark()), failed(1), next_key="next")
    await reserve(lab, running, {"tokens": 2}, budget_id=name)
    await spend(lab, running.execution_id, {"tokens": 3}, budget_id=name, idempotency_key=name)
    await report(lab, {"tokens": 1}, budget_id=name, dedup_key=name)
    await wait(lab, name)
    await watch(lab, name, running)
    await flows(lab, name)
    await lab.create(delay_until=lab.now + 700_000, **here)
    held = await lab.create(**here)
    await engine.hold_execution(execution_id=held, reason="later")
    granted = await lab.create(**here)
    await engine.issue_claim_grant(
        execution_id=granted, worker_id=name, worker_instance_id=name, grant_ttl_ms=60_000
    )
    await lab.create(**here)
    await lab.cancel(await lab.create(**here))
    await engine.create_consumer_group(group_id=name, after=None)
    await engine.read_group(group_id=name, consumer=name, limit=1, wait_ms=0)
    await roll_up(lab)


async def wait(lab: Lab, name: str) -> None:
    """A wait that is half over."""
    twice = Count(2, CountKind.DISTINCT_SIGNALS, ("a",), "go")
    waiting = await suspended(
        lab,
        twice,
        created={"lane_id": name},
        idempotency_key=name,
        timeout_at=lab.now + 800_000,
    )
    await waiting.send(idempotency_key=name, payload=b"{}")


async def watch(lab: Lab, name: str, running: Claimed) -> None:
    """A wait for the end of another execution, and an end that others have yet to be told of."""
    watcher, over = await lab.started(lane_id=name), await lab.started(lane_id=name)
    ids = [running.execution_id, over.execution_id]
    await lab.engine.watch_executions(watcher.handle, execution_ids=ids)
    await lab.engine.complete(over.handle)
    await lab.engine.complete(watcher.handle)


async def flows(lab: Lab, name: str) -> None:
    """One that is over, a join that is half met, one that is met and owes others their cancel."""
    over = await submit(lab, [node("a", lane_id=name)])
    await lab.cancel(over.ids["a"])
    for join in (AllSucceeded(), AnySucceeded(OnSatisfied.CANCEL_REMAINING)):
        nodes = [node("a", lane_id=name), node("b", lane_id=name), node("c", join, lane_id=name)]
        graph = await submit(lab, nodes, arrows("a>c", "b>c"))
        claimed = await lab.claim(lanes=(name,))
        assert claimed.execution_id in graph.ids.values()
        await lab.engine.complete(claimed.handle, result=b"1")
        await lab.claim(lanes=(name,))
