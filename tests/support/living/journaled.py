"""Work in the middle of its steps."""

from __future__ import annotations

from flowfabric.api.leases import Renew
from flowfabric.api.waits import Fresh, SuspendRequest
from flowfabric.model.attempt import AttemptType
from flowfabric.model.journal import EntryKind, EntryState
from flowfabric.model.suspension import ReasonCode, ResumeCause, SignalEffect, Single, Suspended
from tests.support.journal import entry, failed, published
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


class LaterChapter(Living):
    """A journal in its third chapter: of those that ended the last one is there."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        for number in (1, 2):
            await lab.engine.continue_execution(
                claimed.handle, arguments=b"{}", version="2", entries=(entry(number - 1, "a"),)
            )
            claimed = await self.claim(lab)
        assert claimed.attempt_type is AttemptType.CONTINUED
        await lab.engine.checkpoint(claimed.handle, entries=(entry(1, "b"),))
        return {"id": claimed.execution_id, "handle": noted(claimed)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine, owner = lab.engine, handle(lab, notes["handle"])
        found = await engine.load_journal(owner)
        assert (found.chapter_index, [each.key for each in found.entries]) == (2, ["chapter", "b"])
        reply = await engine.continue_execution(owner, arguments=b"[1]", entries=(entry(2, "c"),))
        assert reply.chapter_index == 3
        for chapter, number in enumerate((0, 0, 3, 1)):
            page = await engine.read_journal(execution_id=notes["id"], chapter_index=chapter)
            assert len(page.entries) == number
        await self.finish(lab, notes["id"])


class Publishing(Living):
    """A run that has published something: its owner publishes something else."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        entries = (entry(0, "a"), published(1, b'{"done":1}'))
        await lab.engine.checkpoint(claimed.handle, entries=entries)
        return {"id": claimed.execution_id, "handle": noted(claimed)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        owner = handle(lab, notes["handle"])
        found = await lab.engine.read_published(execution_id=notes["id"])
        assert found is not None
        assert found.value == b'{"done":1}'
        await lab.engine.complete(owner, entries=(published(1, b"2"),))
        found = await lab.engine.read_published(execution_id=notes["id"])
        assert found is not None
        assert found.value == b"2"


class LongStep(Living):
    """A run whose step has outlasted a renewal, which told of it: another renewal tells more."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        await lab.engine.call(Renew(handle=claimed.handle, next_key="charge", next_key_ms=5_000))
        return {"id": claimed.execution_id, "handle": noted(claimed)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine, owner = lab.engine, handle(lab, notes["handle"])
        assert (await engine.explain(execution_id=notes["id"])).step == "charge"
        await engine.call(Renew(handle=owner, next_key="mail"))
        assert (await engine.explain(execution_id=notes["id"])).step == "mail"
        await engine.complete(owner, entries=(entry(0, "mail"),))


class ForkedRun(Living):
    """A fork that waits for its first worker, with what it was given of another journal."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        await lab.engine.checkpoint(claimed.handle, entries=(entry(0, "a"), entry(1, "b")))
        forked = await lab.engine.fork_execution(
            execution_id=claimed.execution_id, before="b", results={"a": b"7"}
        )
        await lab.engine.complete(claimed.handle)
        return {"id": forked.execution_id, "from": claimed.execution_id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        claimed = await self.claim(lab)
        assert (claimed.execution_id, claimed.forked_from) == (notes["id"], notes["from"])
        (first,) = (await lab.engine.load_journal(claimed.handle)).entries
        assert (first.key, first.value) == ("a", b"7")
        again = await lab.engine.fork_execution(execution_id=notes["from"], before="b")
        await lab.engine.complete(claimed.handle, entries=(entry(1, "b"),))
        await self.finish(lab, again.execution_id)
