"""Mailboxes in tests: runs that have one, messages, and a receiver's calls."""

from __future__ import annotations

from typing import Any

from flowfabric.api.waits import SuspendRequest, UsePending
from flowfabric.model.journal import EntryKind, NewEntry
from flowfabric.model.mailbox import MailboxInfo, Message, Sent, place_of
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import AlreadyMet, Single, Suspended
from tests.support.journal import entry
from tests.support.lab import Lab

ORDERS = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
BOXES: dict[str, str | None] = {"orders": ORDERS, "any": None}


async def open_run(lab: Lab, **fields: Any) -> Claimed:
    """A run with two mailboxes that has started."""
    return await lab.started(mailboxes=BOXES, **fields)


async def send(
    lab: Lab, run: Claimed | str, number: int = 1, box: str = "orders", **more: Any
) -> Sent:
    """A message."""
    key = run if isinstance(run, str) else run.execution_id
    payload = more.pop("payload", b'{"n":%d}' % number)
    return await lab.engine.send_message(execution_id=key, mailbox=box, payload=payload, **more)


def received(position: int, key: str = "") -> NewEntry:
    """The entry that will have the message."""
    return entry(position, key or f"receive:{position}", None, kind=EntryKind.MESSAGE)


async def take(lab: Lab, claimed: Claimed, position: int, box: str = "orders") -> Message:
    """The next message, recorded at a position."""
    return await lab.engine.receive_message(
        claimed.handle, mailbox=box, entries=(received(position),)
    )


async def box_of(lab: Lab, execution_id: str, box: str = "orders") -> MailboxInfo:
    """A mailbox as people see it."""
    boxes = await lab.engine.list_mailboxes(execution_id=execution_id)
    return next(each for each in boxes if each.mailbox == box)


async def wait(lab: Lab, claimed: Claimed, box: str = "orders") -> Suspended | AlreadyMet | None:
    """Listen and suspend; None where a message is there."""
    listening = await lab.engine.listen_mailboxes(claimed.handle, mailboxes=[box])
    if not listening.places:
        return None
    key = place_of(box)
    request = SuspendRequest(
        resume_condition=Single(key), waitpoints=(UsePending(listening.places[box], key),)
    )
    return await lab.engine.suspend(claimed.handle, request)
