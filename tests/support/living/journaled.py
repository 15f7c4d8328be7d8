"""Work in the middle of its steps."""

from __future__ import annotations

from tests.support.journal import entry, failed
from tests.support.lab import Lab
from tests.support.living.kind import Living, Notes, handle, noted


class Journaled(Living):
    """A journal with entries: its owner goes on adding, its next run finds them."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        await lab.engine.checkpoint(claimed.handle, entries=(entry(0, "a"), failed(1, "b")))
        return {"id": claimed.execution_id, "handle": noted(claimed)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine, owner = lab.engine, handle(lab, notes["handle"])
        again = (entry(0, "a"), failed(1, "b"), entry(2, "c"))
        assert (await engine.checkpoint(owner, entries=again)).position == 2
        found = await engine.load_journal(owner)
        assert [each.key for each in found.entries] == ["a", "b", "c"]
        await engine.complete(owner, entries=(entry(3, "d"),))
        assert len((await engine.read_journal(execution_id=notes["id"])).entries) == 4
