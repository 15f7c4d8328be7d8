"""The worker registry: when an entry goes."""

from __future__ import annotations

from flowfabric.kernel.decision import Moment
from flowfabric.kernel.place.workers import sweep_worker
from flowfabric.model.worker import Worker, WorkerEvent, WorkerEventType

WORKER = Worker("default", "i1", "w1", ("default",), (), None, 1_000, 500, 1_000)


def test_a_worker_is_swept_when_its_time_is_over() -> None:
    decision = sweep_worker(WORKER, Moment(1_500))
    assert (decision.reply, decision.drops) == (True, (WORKER,))
    kind = WorkerEventType.TTL_SWEPT
    assert decision.events == (WorkerEvent("default", "i1", kind, "not heard from", 1_500),)


def test_a_worker_that_was_heard_from_since_it_was_found_stays() -> None:
    decision = sweep_worker(WORKER, Moment(1_499))
    assert (decision.reply, decision.drops, decision.events) == (False, (), ())
