"""Work that is followed by others when it ends."""

from __future__ import annotations

from flowfabric.api.executions import NewExecution, NewHook
from flowfabric.model.journal import EntryKind, NewEntry
from flowfabric.model.successor import Role
from tests.support.lab import Lab
from tests.support.living.kind import Living, Notes, handle, noted


class Followed(Living):
    """A run with a hook and an undo: both are created by its end, and run."""

    async def begin(self, lab: Lab) -> Notes:
        hook = NewHook(execution_kind="told", lane_id=self.lane)
        claimed = await self.start(lab, on_failure=hook, undo_stops=True)
        undo = NewExecution(
            execution_kind="back",
            lane_id=self.lane,
            input_payload=b'{"n": 1}',
            payload_encoding="json",
        )
        entry = NewEntry(position=0, key="undo:back", kind=EntryKind.UNDO)
        await lab.engine.register_undo(claimed.handle, [undo], [entry])
        return {"id": claimed.execution_id, "handle": noted(claimed)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        await lab.engine.fail(handle(lab, notes["handle"]), reason="x")
        ended = await lab.describe(notes["id"])
        assert [each.role for each in ended.successors] == [Role.ON_FAILURE, Role.UNDO]
        for _ in ended.successors:
            claimed = await self.claim(lab)
            found = await lab.describe(claimed.execution_id)
            assert found.origin is not None
            assert found.origin.execution_id == notes["id"]
            await lab.engine.complete(claimed.handle)
