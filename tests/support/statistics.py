"""Words for tests about minute statistics, and the truth that they are compared with."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any, Final

from flowfabric.engine.engine import Engine
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.event import CLAIM_RESUMED, LeaseEventType
from flowfabric.model.execution import Execution
from flowfabric.model.state import TerminalOutcome
from flowfabric.model.statistic import Statistic, Statistics, added_up
from tests.support.lab import Lab

COUNTS: Final = (
    *("created", "started", "resumed", "succeeded", "failed", "cancelled", "expired", "skipped"),
    *("retried", "recovered"),
)
Route = tuple[str, str, str]


async def passed(engine: Engine) -> None:
    """Wait until every transaction that has begun to write has ended; others may share the
    server."""
    front = await engine.store.transact(lambda tx: tx.log_front())

    async def reached() -> bool:
        ends = await engine.read(lambda reader: reader.log_ends())
        return min(ends.values()) >= front

    while not await reached():  # noqa: ASYNC110 - the server does not say when
        await asyncio.sleep(0.005)


async def roll_up(lab: Lab, **fields: Any) -> None:
    """Count everything that has happened."""
    await passed(lab.direct)
    while await lab.direct.roll_up(**fields):
        continue


async def read(lab: Lab, **fields: Any) -> list[Statistic]:
    """All pages as one."""
    fields = {"since": 0, "by": "total", "limit": 7, **fields}
    page: Statistics = await lab.engine.read_statistics(**fields)
    found = list(page.items)
    while page.next_cursor is not None:
        page = await lab.engine.read_statistics(**fields, cursor=page.next_cursor)
        found += page.items
    return added_up(found)


async def total(lab: Lab, **fields: Any) -> dict[str, int]:
    """The counts of all lanes and kinds, without those that are nothing."""
    found = Counter[str]()
    for line in await read(lab, **fields):
        found.update({name: getattr(line, name) for name in COUNTS})
    return {name: count for name, count in found.items() if count}


async def truth(lab: Lab) -> dict[Route, dict[str, int]]:
    """What executions and attempts themselves say; leases that were lost and attempts that went
    on are told by their events alone."""
    stored = await lab.dump()
    found: defaultdict[Route, Counter[str]] = defaultdict(Counter)
    routes: dict[str, Route] = {}
    for each in stored["executions"]:
        assert isinstance(each, Execution)
        route = routes[each.execution_id] = (each.namespace, each.lane_id, each.execution_kind)
        found[route].update(created=1, started=each.total_attempt_count)
    ends = set()
    for event in stored["completion_events"]:
        word = "succeeded" if event.outcome is TerminalOutcome.SUCCESS else event.outcome.value
        found[routes[event.execution_id]][word] += 1
        if word in ("failed", "expired"):
            ends.add((event.execution_id, event.attempt_index, event.occurred_at))
    for attempt in stored["attempts"]:
        place = (attempt.execution_id, attempt.attempt_index, attempt.ended_at)
        if attempt.outcome is AttemptOutcome.ENDED_FAILURE and place not in ends:
            found[routes[attempt.execution_id]]["retried"] += 1
    for event in stored["lease_events"]:
        lost = event.event_type in (LeaseEventType.EXPIRED, LeaseEventType.REVOKED)
        counts = found[routes[event.execution_id]]
        counts.update(recovered=lost, resumed=event.reason == CLAIM_RESUMED)
    return {route: {name: n for name, n in counts.items() if n} for route, counts in found.items()}


async def shown(lab: Lab) -> dict[Route, dict[str, int]]:
    """What statistics say, in the form of the truth."""
    return {
        (line.namespace, line.lane_id, line.execution_kind): {
            name: n for name in COUNTS if (n := getattr(line, name))
        }
        for line in await read(lab)
    }
