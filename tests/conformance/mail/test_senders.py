"""Senders against a run that ends, or that begins another chapter: what was accepted is received
once and in order, or is still there; what came too late is refused."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from flowfabric.assemble import open_engine
from flowfabric.errors import MailboxEmpty, TargetNotSignalable
from flowfabric.model.mailbox import Sent
from flowfabric.model.results import Claimed
from tests.support.lab import Lab, scenario
from tests.support.mail import box_of, open_run, send, take

RACES = 4
SENDERS = 3
EACH = 6


@pytest.mark.parametrize("ends", ["complete", "cancel", "continue"])
@scenario
async def test_senders_race_with_the_end_of_a_run_or_a_chapter(lab: Lab, ends: str) -> None:
    other = lab.engine
    if not lab.url.startswith("memory"):
        other = open_engine(lab.url, config=lab.config, clock=lab.clock)
        await other.start()
    chance = random.Random(47)
    for _ in range(RACES):
        race = Race(lab, other, ends, chance)
        await race.run()
        await race.judge()
    if other is not lab.engine:
        await other.close()
    assert (await lab.engine.doctor()).problems == ()


class Race:
    """One run, and those that send to it."""

    def __init__(self, lab: Lab, other: Any, ends: str, chance: random.Random) -> None:
        self.lab, self.other, self.ends, self.chance = lab, other, ends, chance
        self.key = ""
        self.accepted: dict[int, int] = {}  # what was sent, by the number it got
        self.refused: list[int] = []
        self.received: list[int] = []

    async def run(self) -> None:
        """All at once."""
        claimed = await open_run(self.lab)
        self.key = claimed.execution_id
        senders = [self.send(each) for each in range(SENDERS)]
        await asyncio.gather(*senders, self.receive(claimed))

    async def send(self, sender: int) -> None:
        engine = self.other if sender % 2 else self.lab.engine
        for at in range(EACH):
            word = sender * EACH + at
            try:
                sent: Sent = await engine.send_message(
                    execution_id=self.key, mailbox="any", payload=b"%d" % word
                )
            except TargetNotSignalable:
                self.refused.append(word)
            else:
                assert sent.number not in self.accepted
                self.accepted[sent.number] = word

    async def receive(self, claimed: Claimed) -> None:
        """Take a few, and end meanwhile."""
        for _ in range(self.chance.randrange(2 * EACH)):
            try:
                message = await take(self.lab, claimed, len(self.received), "any")
            except MailboxEmpty:
                await asyncio.sleep(0)
            else:
                self.received.append(int(message.payload))
        if self.ends == "complete":
            await self.lab.engine.complete(claimed.handle)
        elif self.ends == "cancel":
            await self.other.cancel_execution(
                execution_id=self.key, reason="x", source="operator_override"
            )
        else:
            await self.lab.engine.continue_execution(claimed.handle, arguments=b"{}")

    async def judge(self) -> None:
        """Every message has one fate."""
        order = [self.accepted[number] for number in sorted(self.accepted)]
        assert sorted(self.accepted) == list(range(len(order)))  # no number is lost
        assert sorted([*order, *self.refused]) == list(range(SENDERS * EACH))
        for sender in range(SENDERS):  # each sender's own come in its order
            own = [word for word in order if word // EACH == sender]
            assert own == sorted(own)
        assert self.received == order[: len(self.received)]
        box = await box_of(self.lab, self.key, "any")
        left = len(order) - len(self.received)
        assert (box.received, box.unread) == (len(self.received), left)
        if self.ends == "continue":
            assert self.refused == []
            again = await self.lab.claim()  # its journal begins with the chapter
            rest = [await take(self.lab, again, at + 1, "any") for at in range(left)]
            assert [*self.received, *(int(each.payload) for each in rest)] == order
            await self.lab.engine.complete(again.handle)
        with pytest.raises(TargetNotSignalable):
            await send(self.lab, self.key, 1, box="any")
