"""An operation over many executions that has begun."""

from __future__ import annotations

from flowfabric.limits import OPERATION_PAUSE_MS
from flowfabric.model.bulk import BulkOperation
from tests.support.lab import Lab
from tests.support.living.kind import Living, Notes


class BulkHold(Living):
    """It holds what is on the lane, and is over then; what it held can be released."""

    async def begin(self, lab: Lab) -> Notes:
        ids = [await self.create(lab) for _ in range(2)]
        begun = await lab.engine.start_operation(
            action="hold", lane_id=self.lane, reason="ü", actor="ada"
        )
        assert isinstance(begun, BulkOperation)
        return {"ids": ids, "operation": begun.operation_id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine, name = lab.engine, notes["operation"]
        found = await engine.describe_operation(operation_id=name)
        while found is not None and not found.is_over:
            await lab.after(OPERATION_PAUSE_MS)
            found = await engine.describe_operation(operation_id=name)
        assert found is not None
        assert (found.matched, found.done, found.arguments.reason) == (2, 2, "ü")
        assert (found.actor, found.refused) == ("ada", {})
        for execution_id in notes["ids"]:
            await engine.release_execution(execution_id=execution_id)
            await self.finish(lab, execution_id)
