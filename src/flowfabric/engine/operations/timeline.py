"""The timeline of one execution: its records and events, read together."""

from __future__ import annotations

from typing import Any

from flowfabric.api import events as api
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.performing import answers
from flowfabric.errors import Corruption, NotFound
from flowfabric.kernel.explain.timeline import Traces, timeline
from flowfabric.limits import TIMELINE_MAX
from flowfabric.model.event import LeaseEvent, OperatorEvent, SignalEvent
from flowfabric.model.execution import Execution
from flowfabric.model.feed import Timeline
from flowfabric.stores.base import Corrupt, Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.logs import LOG_OF
from flowfabric.stores.tables import SUSPENSIONS


@answers(api.ReadTimeline)
async def read_timeline(machine: Machine, request: api.ReadTimeline) -> Timeline:
    """Everything that is kept, of each kind the latest."""
    key = machine.check_id(request.execution_id)

    async def work(reader: Reader) -> tuple[Execution, Traces]:
        found = (await reader.get((key,))).get(key)
        if isinstance(found, Corrupt):
            raise Corruption(f"execution {key}: {found.detail}")
        if found is None:
            raise NotFound(f"execution {key}", entity="execution")
        episodes = Search(by_key(SUSPENSIONS), ((key,),), limit=TIMELINE_MAX, skips_corrupt=True)
        traces = Traces(
            await reader.attempts(key),
            await reader.search(episodes),
            await _about(reader, LeaseEvent, key),
            await _about(reader, SignalEvent, key),
            await _about(reader, OperatorEvent, key),
        )
        return found, traces

    execution, traces = await machine.read(work)
    is_whole = max(map(len, (traces.leases, traces.signals, traces.operators))) < TIMELINE_MAX
    return Timeline(key, tuple(timeline(execution, traces)), is_whole)


async def _about(reader: Reader, kind: Any, key: str) -> list[Any]:
    return [event for _, event in await reader.read_about(LOG_OF[kind], key, TIMELINE_MAX)]
