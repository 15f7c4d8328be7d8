"""Work in the middle of its steps."""

from __future__ import annotations

from flowfabric.api.waits import Fresh, SuspendRequest
from flowfabric.model.journal import EntryKind, EntryState
from flowfabric.model.suspension import ReasonCode, ResumeCause, SignalEffect, Single, Suspended
from tests.support.journal import entry, failed
from tests.support.lab import Lab
from tests.support.living.kind import HOUR_MS, Living, Notes, handle, noted
from tests.support.living.suspended import Wait


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


class WaitInLine(Wait):
    """A wait between two steps: its outcome is found by the entry that refers to it."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        await lab.engine.checkpoint(claimed.handle, entries=(entry(0, "a"),))
        request = SuspendRequest(
            resume_condition=Single("reply", "reply"),
            waitpoints=(Fresh("reply"),),
            reason_code=ReasonCode.WAITING_FOR_SIGNAL,
            timeout_at=lab.now + HOUR_MS,
        )
        wait = entry(1, "wait:reply", kind=EntryKind.WAIT, state=EntryState.OPEN)
        outcome = await lab.engine.suspend(claimed.handle, request, entries=(wait,))
        assert isinstance(outcome, Suspended)
        return {**self.addresses(claimed, outcome.waitpoints), "episode": outcome.suspension_id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        assert await self.send(lab, notes, "reply", "reply") is SignalEffect.RESUMED
        claimed = await self.resume(lab, notes)
        found = await lab.engine.load_journal(claimed.handle)
        assert [each.refers_to for each in found.entries] == [None, notes["episode"]]
        assert found.outcomes[notes["episode"]].cause is ResumeCause.SIGNAL
        await lab.engine.complete(claimed.handle, entries=(entry(2, "b"),))
