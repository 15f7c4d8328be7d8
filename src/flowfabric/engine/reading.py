"""Pages of waits."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api.executions import ListExecutions
from flowfabric.engine.operations.execution_lists import list_executions
from flowfabric.engine.wait_reading import WaitInfo, WaitPage, WaitReading
from flowfabric.model.state import PublicState
from flowfabric.api.waits import DescribeWaits, WaitPage
from flowfabric.engine.core import EngineCore
from flowfabric.engine.operations.wait_reads import describe_waits, look_at_wait


class Reading(EngineCore):
    """Reads are not part of any transaction; each answers with committed state."""

    async def list_waits(
        self,
        *,
        namespace: str | None = None,
        lane_id: str | None = None,
        execution_kind: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> WaitPage:
        """Suspended executions and what they wait for, newest first."""
        suspended = ListExecutions(
            namespace=namespace,
            states=(PublicState.SUSPENDED.value,),
            lane_id=lane_id,
            execution_kind=execution_kind,
            cursor=cursor,
            limit=limit,
        )
        page = await list_executions(self, suspended)
        shown = [each.execution_id for each in page.executions]
        found = await describe_waits(self, DescribeWaits(execution_ids=shown))
        waits = tuple(found[each] for each in shown if each in found)
        return WaitPage(waits, page.next_cursor)
