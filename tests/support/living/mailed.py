"""Runs with mailboxes: one waits for a message, another one has some."""

from __future__ import annotations

from flowfabric.model.mailbox import Reply
from flowfabric.model.state import PublicState
from tests.support.lab import Lab
from tests.support.living.kind import Living, Notes, handle, noted
from tests.support.mail import BOXES, box_of, send, take, wait


class Listening(Living):
    """It waits at an empty mailbox: a message wakes it."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab, mailboxes=BOXES)
        await wait(lab, claimed)
        return {"id": claimed.execution_id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        assert await lab.state(notes["id"]) is PublicState.SUSPENDED
        await send(lab, notes["id"], 4)
        claimed = await self.claim(lab)
        assert (await take(lab, claimed, 0)).payload == b'{"n":4}'
        await lab.engine.complete(claimed.handle)


class Asked(Living):
    """It has received a message whose sender waits, and another one is unread."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab, mailboxes=BOXES)
        asked = await send(lab, claimed, 1, wants_reply=True, idempotency_key="k")
        await send(lab, claimed, 2)
        await take(lab, claimed, 0)
        return {
            "id": claimed.execution_id,
            "handle": noted(claimed),
            "message": asked.message_id,
        }

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        owner, message = handle(lab, notes["handle"]), notes["message"]
        assert (await send(lab, notes["id"], 1, idempotency_key="k")).message_id == message
        await lab.engine.reply_message(
            owner, mailbox="orders", number=0, message_id=message, payload=b"7"
        )
        answer = await lab.engine.wait_for_reply(
            execution_id=notes["id"], mailbox="orders", number=0, message_id=message
        )
        assert answer == Reply(b"7", lab.now)
        assert (await box_of(lab, notes["id"])).unread == 1
        await lab.engine.complete(owner)
