"""Places: lanes that are closed or have settings, workers that live or are gone, and the logs."""

from __future__ import annotations

from typing import Final

import pytest

from flowfabric.errors import LaneClosed
from flowfabric.model.bounds import Bounds
from flowfabric.model.results import NotRegistered, Refreshed
from flowfabric.model.route import LaneState
from flowfabric.model.worker import WorkerEventType
from tests.support.lab import Lab
from tests.support.living.kind import HOUR_MS, SHORT_MS, Living, Notes


class PausedLane(Living):
    """A paused lane with settings keeps its work, a draining one takes none in, and a disabled one
    does neither."""

    DRAINED: Final = "drained_lane"
    DISABLED: Final = "disabled_lane"

    async def begin(self, lab: Lab) -> Notes:
        engine = lab.engine
        await engine.create_budget(
            budget_id="of-lane", dimensions=("tokens",), hard_limits=(9,), soft_limits=(0,)
        )
        await engine.create_quota_policy(quota_policy_id="of-lane", max_concurrent=5)
        await engine.configure_lane(
            lane_id=self.lane,
            weight=3,
            aging_ms=60_000,
            budget_ids=("of-lane",),
            quota_policy_id="of-lane",
        )
        old = await self.create(lab, priority=1)
        lab.clock.advance(1_000)
        new = await self.create(lab, priority=1)
        await engine.pause_lane(lane_id=self.lane, reason="deploy", actor="olga")
        left = await lab.create(lane_id=self.DRAINED)
        await engine.drain_lane(lane_id=self.DRAINED, reason="closing")
        shut = await lab.create(lane_id=self.DISABLED)
        await engine.set_lane_state(lane_id=self.DISABLED, lane_state=LaneState.DISABLED)
        return {"old": old, "new": new, "left": left, "shut": shut}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine = lab.engine
        lanes = {each.lane_id: each for each in (await engine.list_lanes()).items}
        mine = lanes[self.lane]
        assert (mine.lane_state, mine.reason) == (LaneState.PAUSED, "deploy")
        assert (mine.weight, mine.aging_ms) == (3, 60_000)
        assert mine.bounds == Bounds(budget_ids=("of-lane",), quota_policy_id="of-lane")
        assert mine.counts == {"waiting": 2}
        assert await self.claims(lab) == []
        for closed in (self.DRAINED, self.DISABLED):
            with pytest.raises(LaneClosed):
                await lab.create(lane_id=closed)
        closed_lanes = (self.DRAINED, self.DISABLED)
        assert (await lab.claim(lanes=closed_lanes)).execution_id == notes["left"]
        await engine.resume_lane(lane_id=self.DISABLED)
        assert (await lab.claim(lanes=closed_lanes)).execution_id == notes["shut"]
        await lab.after(HOUR_MS)
        urgent = await self.create(lab, priority=50)  # an hour outweighs sixty steps of priority
        await engine.resume_lane(lane_id=self.lane)
        assert await self.claims(lab) == [notes["old"], notes["new"], urgent]


class Crew(Living):
    """Registered workers: one lives and is found able, one is gone and is swept."""

    async def begin(self, lab: Lab) -> Notes:
        engine = lab.engine
        await engine.register_worker(
            worker_id="crew",
            worker_instance_id="crew-1",
            lanes=(self.lane, "other"),
            capabilities=("gpu", "llm"),
            kinds=("work", "play"),
            liveness_ttl_ms=HOUR_MS,
            namespace="acme",
        )
        for name, ttl_ms in (("gone-1", SHORT_MS), ("dead-1", HOUR_MS)):
            await engine.register_worker(
                worker_id="crew",
                worker_instance_id=name,
                lanes=(self.lane,),
                liveness_ttl_ms=ttl_ms,
                namespace="acme",
            )
        await engine.mark_worker_dead(
            worker_instance_id="dead-1", reason="it burns", namespace="acme"
        )
        return {"id": await self.create(lab, namespace="acme")}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine = lab.engine
        (worker,) = (await engine.list_workers(namespace="acme")).items
        assert (worker.worker_instance_id, worker.lanes) == ("crew-1", (self.lane, "other"))
        assert (worker.capabilities, worker.kinds) == (("gpu", "llm"), ("play", "work"))
        why = await engine.explain(execution_id=notes["id"])
        (able,) = why.could_run
        assert (able.worker_instance_id, able.fits) == ("crew-1", True)
        beat = engine.heartbeat_worker
        alive = await beat(worker_instance_id="crew-1", namespace="acme")
        assert alive == Refreshed(lab.now + HOUR_MS)
        assert await beat(worker_instance_id="gone-1", namespace="acme") == NotRegistered()
        await engine.tick()
        events = [
            (each.worker_instance_id, each.event_type)
            for each in (await lab.dump())["worker_events"]
            if each.namespace == "acme"
        ]
        assert events == [
            ("crew-1", WorkerEventType.REGISTERED),
            ("gone-1", WorkerEventType.REGISTERED),
            ("dead-1", WorkerEventType.REGISTERED),
            ("dead-1", WorkerEventType.MARKED_DEAD),
            ("gone-1", WorkerEventType.TTL_SWEPT),
        ]
        claimed = await self.claim(lab, namespace="acme")
        await engine.complete(claimed.handle)
        assert (await engine.count_executions(namespace="acme"))[self.lane] == {"completed": 1}


class NamedClaim(Living):
    """A claim whose answer may be lost: repeated by its id it is answered the same lease."""

    async def begin(self, lab: Lab) -> Notes:
        execution_id = await self.create(lab)
        named = await self.claim(lab, "named", claim_id="the one")
        return {"id": execution_id, "epoch": named.lease_epoch}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        again = await self.claim(lab, "named", claim_id="the one")
        assert (again.execution_id, again.lease_epoch) == (notes["id"], notes["epoch"])
        await lab.engine.complete(again.handle, result=b"done at last")


class Drained(Living):
    """A worker that an operator wants to end: its next heartbeat says so."""

    async def begin(self, lab: Lab) -> Notes:
        await lab.engine.register_worker(
            worker_id="drained",
            worker_instance_id="drained-1",
            lanes=(self.lane,),
            liveness_ttl_ms=HOUR_MS,
            host="box",
            version="1.0",
            concurrency=4,
        )
        await lab.engine.heartbeat_worker(worker_instance_id="drained-1", busy=2)
        await lab.engine.drain_worker(worker_instance_id="drained-1", reason="deploy")
        return {"id": await self.create(lab)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        found = (await lab.engine.list_workers(namespace="default")).items
        (worker,) = (each for each in found if each.worker_instance_id == "drained-1")
        assert (worker.host, worker.version, worker.concurrency) == ("box", "1.0", 4)
        assert (worker.busy, worker.draining) == (2, 1)
        alive = await lab.engine.heartbeat_worker(worker_instance_id="drained-1")
        assert alive == Refreshed(lab.now + HOUR_MS, is_draining=True)
        await lab.engine.leave_worker(worker_instance_id="drained-1")
        await self.finish(lab, notes["id"])
