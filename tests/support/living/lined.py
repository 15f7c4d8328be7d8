"""Work that logs while it runs."""

from __future__ import annotations

from tests.support.lab import Lab
from tests.support.living.kind import Living, Notes, handle, noted
from tests.support.logs import batch


class Logging(Living):
    """A log with lines: its owner goes on writing, a reader goes on reading."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        await lab.engine.append_logs(claimed.handle, logs=batch("one", "two\n\ttab ü", first=1))
        return {"id": claimed.execution_id, "handle": noted(claimed)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine, execution_id, owner = lab.engine, notes["id"], handle(lab, notes["handle"])
        again = batch("one", "two\n\ttab ü", "three", first=1)
        assert (await engine.append_logs(owner, logs=again)).line_count == 3
        await engine.complete(owner, logs=batch("four", first=4, dropped=2))
        found = await engine.read_logs(execution_id=execution_id, after="0:1")
        assert [each.message for each in found.lines][:3] == ["two\n\ttab ü", "three", "four"]
        assert (found.dropped_count, found.closed_at) == (2, lab.now)
