"""Reading gauges: one bounded look at the work that has not ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flowfabric import limits
from flowfabric.api import gauges as api
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.workers import live_workers
from flowfabric.engine.roll_up import NAME
from flowfabric.model.gauges import Gauges, LaneGauge
from flowfabric.model.state import EligibilityState, LifecyclePhase, OwnershipState
from flowfabric.model.worker import Worker
from flowfabric.stores.base import Reader, Standing
from flowfabric.stores.indexes import DUE, Search
from flowfabric.stores.tables import ROLL_UP

_OVERDUE_MAX = 1_000


@answers(api.ReadGauges)
async def read_gauges(machine: Machine, _request: api.ReadGauges) -> Gauges:
    """Of every tenant."""
    return await machine.read(_look)


async def _look(reader: Reader) -> Gauges:
    await reader.catalog()  # with the clock
    now = reader.now
    standing = await reader.standing(limits.STANDING_MAX)
    overdue = await reader.search_keys(Search(DUE, until=now, limit=_OVERDUE_MAX))
    counted = (await reader.peek_rows(ROLL_UP, [(NAME,)])).get((NAME,))
    workers = await live_workers(reader, None)
    served = Counter(lane for worker in workers for lane in set(worker.lanes))
    return Gauges(
        at=now,
        lanes=tuple(_by_lane(standing)),
        workers=served,
        unroutable=_unroutable(standing, workers),
        overdue=len(overdue),
        counted_until=0 if counted is None else counted.complete_until,
    )


def _by_lane(standing: Iterable[Standing]) -> Iterable[LaneGauge]:
    counts: dict[str, Counter[str]] = {}
    since: dict[str, int] = {}
    for each in standing:
        lane, word = each.route.lane_id, _word(each)
        if word is None:
            continue
        counts.setdefault(lane, Counter())[word] += each.count
        if word == "ready":
            since[lane] = min(each.since, since.get(lane, each.since))
    for lane in sorted(counts):
        yield LaneGauge(lane_id=lane, ready_since=since.get(lane), **counts[lane])


def _word(standing: Standing) -> str | None:
    """The number of a lane in which executions of this state are counted."""
    state = standing.state
    if state.eligibility_state is EligibilityState.ELIGIBLE_NOW:
        return "ready"
    if state.ownership_state is OwnershipState.LEASED:
        return "running"
    return "suspended" if state.lifecycle_phase is LifecyclePhase.SUSPENDED else None


def _unroutable(standing: Iterable[Standing], workers: Iterable[Worker]) -> Counter[str]:
    """What waiting work needs, and no live worker of its tenant and lane offers."""
    several = list(workers)
    found = Counter[str]()
    for each in standing:
        state, route = each.state, each.route
        waits = state.eligibility_state in (
            EligibilityState.ELIGIBLE_NOW,
            EligibilityState.BLOCKED_BY_ROUTE,
        )
        if not waits or not route.required_capabilities:
            continue
        near = [
            set(worker.capabilities)
            for worker in several
            if worker.namespace == route.namespace and route.lane_id in worker.lanes
        ]
        needed = set(route.required_capabilities)
        if any(needed <= offered for offered in near):
            continue
        offered = set[str]().union(*near)
        for capability in (needed - offered) or needed:
            found[capability] += each.count
    return found
