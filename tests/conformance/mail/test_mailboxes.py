"""Mailboxes: messages come in order, are taken once, wake their receiver, and are answered once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flowfabric import limits
from flowfabric.api.executions import NewExecution, NewHook
from flowfabric.api.mail import SendMessage
from flowfabric.api.waits import SuspendRequest, UsePending
from flowfabric.errors import (
    FlowFabricError,
    InvalidInput,
    InvalidPayload,
    LeaseRevoked,
    MailboxEmpty,
    NoReply,
    NotFound,
    PayloadTooLarge,
    SignalLimitExceeded,
    StaleLease,
    TargetNotSignalable,
    UnknownMailbox,
    WaitTimeout,
)
from flowfabric.model.journal import EntryKind
from flowfabric.model.mailbox import Message, Reply, Sent, place_of, recorded_message
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import AlreadyMet, Single, Suspended
from tests.support.flows import empty
from tests.support.journal import entry, journal, keys, record
from tests.support.lab import Lab, scenario
from tests.support.mail import BOXES, box_of, open_run, received, send, take, wait

UNKNOWN = "{fp:1}:01890000-0000-7000-8000-000000000001"


async def refused(awaitable: Any) -> FlowFabricError:
    with pytest.raises(FlowFabricError) as error:
        await awaitable
    return error.value


@scenario
async def test_messages_are_taken_once_in_the_order_in_which_they_came(lab: Lab) -> None:
    waiting = await lab.create(mailboxes=BOXES)
    assert await send(lab, waiting, 1) == Sent(
        "orders", 0, (await unread(lab, waiting))[0].message_id
    )
    claimed = await lab.claim()
    for number in (2, 3):
        await send(lab, claimed, number, sender="ada")
    assert [each.number for each in await unread(lab, waiting)] == [0, 1, 2]
    first = await take(lab, claimed, 0)
    assert (first.number, first.payload, first.sender) == (0, b'{"n":1}', "")
    again = await take(lab, claimed, 0)  # the same call once more
    assert again == first
    await record(lab, claimed, entry(1, "a"))
    second = await take(lab, claimed, 2)
    assert (second.number, second.sender, second.wants_reply) == (1, "ada", False)
    found = await journal(lab, waiting, values=True)
    assert [each.key for each in found] == ["receive:0", "a", "receive:2"]
    assert recorded_message(found[2].value or b"") == second
    assert msgspec.json.decode(found[0].value or b"")["payload"] == {"n": 1}
    box = await box_of(lab, waiting)
    assert (box.unread, box.received, box.unread_bytes) == (1, 2, len(b'{"n":3}'))
    await take(lab, claimed, 3)
    assert await take(lab, claimed, 3) == (await take(lab, claimed, 3))
    assert type(await refused(take(lab, claimed, 4))) is MailboxEmpty
    assert len(await keys(lab, waiting)) == 4
    await lab.engine.complete(claimed.handle)


async def unread(lab: Lab, execution_id: str, box: str = "orders", **more: Any) -> list[Message]:
    page = await lab.engine.read_messages(execution_id=execution_id, mailbox=box, **more)
    return list(page.messages)


@scenario
async def test_a_message_wakes_its_receiver_however_they_meet(lab: Lab) -> None:
    claimed = await open_run(lab)
    key = claimed.execution_id
    assert isinstance(await wait(lab, claimed), Suspended)
    why = await lab.engine.explain(execution_id=key)
    assert "a message in orders" in why.summary
    assert f"ff send {key} orders" in why.hints
    await send(lab, key, 1, box="any")  # no receiver waits there
    assert await lab.state(key) is PublicState.SUSPENDED
    await send(lab, key, 1)
    await send(lab, key, 2)
    assert await lab.state(key) is PublicState.WAITING
    claimed = await lab.claim("w2")
    assert (await take(lab, claimed, 0)).number == 0
    assert await wait(lab, claimed) is None  # one is there
    assert (await take(lab, claimed, 1)).number == 1
    listening = await lab.engine.listen_mailboxes(claimed.handle, mailboxes=["any", "orders"])
    assert listening.places == {}
    assert (await take(lab, claimed, 2, "any")).number == 0
    once = await lab.engine.listen_mailboxes(claimed.handle, mailboxes=["orders"])
    twice = await lab.engine.listen_mailboxes(claimed.handle, mailboxes=["orders"])
    assert once == twice  # a place that no wait came to use serves again
    await send(lab, key, 3)  # between the look and the wait
    assert await wait(lab, claimed) is None
    assert (await take(lab, claimed, 3)).number == 2
    info = await lab.engine.describe_execution(execution_id=key)
    assert info is not None
    await lab.engine.complete(claimed.handle)


@scenario
async def test_a_signal_between_listening_and_suspending_is_met_at_once(lab: Lab) -> None:
    claimed = await open_run(lab)
    listening = await lab.engine.listen_mailboxes(claimed.handle, mailboxes=["orders"])
    await send(lab, claimed)
    place = UsePending(listening.places["orders"], place_of("orders"))
    request = SuspendRequest(resume_condition=Single(place_of("orders")), waitpoints=(place,))
    assert isinstance(await lab.engine.suspend(claimed.handle, request), AlreadyMet)
    assert (await take(lab, claimed, 0)).number == 0


@scenario
async def test_keys_count_once_also_after_the_end_until_they_lapse(lab: Lab) -> None:
    claimed = await open_run(lab)
    first = await send(lab, claimed, 1, idempotency_key="k", dedup_ttl_ms=60_000)
    again = await send(lab, claimed, 9, idempotency_key="k")
    assert (again.number, again.message_id, again.is_new) == (0, first.message_id, False)
    lab.clock.advance(60_000)
    later = await send(lab, claimed, 2, idempotency_key="k")
    assert (later.number, later.is_new) == (1, True)
    await lab.cancel(claimed.execution_id)
    assert (await send(lab, claimed, 2, idempotency_key="k")).number == 1
    error = await refused(send(lab, claimed, 2))
    assert type(error) is TargetNotSignalable
    await lab.after(2 * 86_400_000)  # swept and purged
    assert type(await refused(send(lab, claimed, 2, idempotency_key="k"))) is NotFound


@scenario
async def test_an_answer_reaches_its_sender_once(lab: Lab) -> None:
    claimed = await open_run(lab)
    key = claimed.execution_id
    sent = await send(lab, claimed, 1, wants_reply=True)
    plain = await send(lab, claimed, 2)
    answer: dict[str, Any] = {"mailbox": "orders", "number": 0, "message_id": sent.message_id}
    asked = {"execution_id": key, **answer}
    assert type(await refused(lab.engine.wait_for_reply(**asked, wait_ms=0))) is WaitTimeout
    early = lab.engine.reply_message(claimed.handle, **answer, payload=b"1")
    assert type(await refused(early)) is InvalidInput
    message = await take(lab, claimed, 0)
    assert message.wants_reply
    entries = (entry(1, "reply"),)
    for _ in range(2):  # the same call once more
        told = await lab.engine.reply_message(
            claimed.handle, **answer, payload=b'"yes"', entries=entries
        )
        assert told.is_wanted
    other = lab.engine.reply_message(claimed.handle, **answer, payload=b"2", entries=(entry(2),))
    assert type(await refused(other)) is InvalidInput
    foreign = {**answer, "message_id": "of the run that this one was forked from"}
    told = await lab.engine.reply_message(
        claimed.handle, **foreign, payload=b"1", entries=(entry(2, "b"),)
    )
    assert not told.is_wanted
    assert await lab.engine.wait_for_reply(**asked) == Reply(b'"yes"', lab.now)
    assert await keys(lab, key) == ["receive:0", "reply", "b"]
    await take(lab, claimed, 3)
    gone = {**asked, "number": 1, "message_id": plain.message_id}
    assert type(await refused(lab.engine.wait_for_reply(**gone))) is NotFound
    await lab.engine.complete(claimed.handle)
    assert await lab.engine.wait_for_reply(**asked) == Reply(b'"yes"', lab.now)
    await lab.after(limits.REPLY_TTL_MS - 1)


@scenario
async def test_the_end_of_a_run_answers_all_that_wait(lab: Lab) -> None:
    for end in ("complete", "cancel", "expire"):
        claimed = await open_run(lab, execution_deadline_at=lab.now + 5_000)
        key = claimed.execution_id
        asked: list[dict[str, Any]] = []
        for number in range(2):
            sent = await send(lab, claimed, number, wants_reply=True)
            names = {"number": sent.number, "message_id": sent.message_id}
            asked.append({"execution_id": key, "mailbox": "orders", **names})
        await take(lab, claimed, 0)
        if end == "complete":
            await lab.engine.complete(claimed.handle)
        elif end == "cancel":
            await lab.cancel(key)
        else:
            await lab.after(5_000)
        for each in asked:
            error = await refused(lab.engine.wait_for_reply(**each))
            assert type(error) is NoReply
        assert (await box_of(lab, key)).unread == 1


@scenario
async def test_unread_messages_outlive_chapters_retries_and_lives(lab: Lab) -> None:
    claimed = await open_run(lab)
    key = claimed.execution_id
    for number in range(5):
        await send(lab, claimed, number)
    await take(lab, claimed, 0)
    await lab.engine.continue_execution(claimed.handle, arguments=b"{}")
    claimed = await lab.claim()
    assert (await take(lab, claimed, 1)).number == 1
    await lab.engine.fail(claimed.handle, reason="x")
    assert type(await refused(send(lab, key))) is TargetNotSignalable
    await lab.engine.replay_execution(execution_id=key)
    claimed = await lab.claim()
    assert len((await lab.engine.load_journal(claimed.handle)).entries) == 2
    assert (await take(lab, claimed, 2)).number == 2
    await lab.engine.fail(claimed.handle, reason="x")
    await lab.engine.replay_execution(execution_id=key, fresh=True)
    claimed = await lab.claim()
    assert (await take(lab, claimed, 0)).number == 3  # what was received stays with the old life
    forked = await lab.engine.fork_execution(execution_id=key, before="receive:0")
    boxes = await lab.engine.list_mailboxes(execution_id=forked.execution_id)
    assert [(each.mailbox, each.unread) for each in boxes] == [("any", 0), ("orders", 0)]
    await send(lab, forked.execution_id, 7)
    assert (await box_of(lab, key)).unread == 1


@scenario
async def test_what_follows_an_end_has_the_mailboxes_of_its_task(lab: Lab) -> None:
    """A hook of a run, one of a flow, and an undo: open from the transaction that creates them."""
    hook = NewHook(execution_kind="over", mailboxes=BOXES)
    claimed = await lab.started(on_end=hook)
    key = claimed.execution_id
    given: dict[str, Any] = {"input_payload": b"{}", "payload_encoding": "json"}
    undo = NewExecution(execution_kind="refund", mailboxes=BOXES, **given)
    registered = (entry(0, "undo:refund", None, kind=EntryKind.UNDO),)
    await lab.engine.register_undo(claimed.handle, [undo], registered)
    await lab.engine.fail(claimed.handle, reason="x", failure_class="permanent")
    graph = await empty(lab, "a", on_end=hook)
    await lab.cancel(graph.ids["a"])
    told = [*(await lab.describe(key)).successors, *(await graph.snapshot()).successors]
    ids = [each.execution_id for each in told if each.execution_id is not None]
    flows = [each.flow_id for each in told if each.flow_id is not None]
    ids += [
        each.execution_id
        for flow_id in flows
        for each in await lab.engine.list_flow_members(flow_id=flow_id)
    ]
    assert len(ids) == 3
    for each in ids:
        assert (await send(lab, each, 1)).number == 0
        assert (await box_of(lab, each)).unread == 1
        assert type(await refused(send(lab, each, payload=b'{"n":"x"}'))) is InvalidPayload
    wrong = NewHook(execution_kind="over", mailboxes={"": None})
    async with lab.refuses(InvalidInput, "on_end: mailboxes"):
        await lab.create(on_end=wrong)


@scenario
async def test_what_is_wrong_changes_nothing(lab: Lab) -> None:
    policy = ExecutionPolicy(max_signals_per_execution=2)
    claimed = await open_run(lab, policy=policy)
    none = await lab.started()
    huge = b'{"n":1,"x":"' + b"x" * limits.SIGNAL_PAYLOAD_BYTES + b'"}'
    wrong: list[tuple[Any, type[FlowFabricError]]] = [
        (send(lab, claimed, payload=b'{"n":"x"}'), InvalidPayload),
        (send(lab, claimed, payload=b"{"), InvalidPayload),
        (send(lab, claimed, box="any", payload=b"nan"), InvalidPayload),
        (send(lab, claimed, payload=huge), PayloadTooLarge),
        (send(lab, claimed, box="bills"), UnknownMailbox),
        (send(lab, none), UnknownMailbox),
        (send(lab, UNKNOWN), NotFound),
        (send(lab, claimed, box="x" * 65), InvalidInput),
        (send(lab, claimed, payload="text"), InvalidInput),
        (take(lab, none, 0), UnknownMailbox),
        (take(lab, claimed, 0), MailboxEmpty),
        (take(lab, claimed, 0, "bills"), UnknownMailbox),
        (lab.engine.listen_mailboxes(claimed.handle, mailboxes=["bills"]), UnknownMailbox),
        (lab.engine.listen_mailboxes(claimed.handle, mailboxes=[]), InvalidInput),
        (
            lab.engine.receive_message(
                claimed.handle, mailbox="orders", entries=(received(0), entry(1))
            ),
            InvalidInput,
        ),
        (lab.create(mailboxes={"": None}), InvalidInput),
        (lab.create(mailboxes={"a": "no schema"}), InvalidInput),
        (lab.create(mailboxes={str(each): None for each in range(17)}), InvalidInput),
        (lab.create(mailboxes=["a"]), InvalidInput),
        (lab.engine.read_messages(execution_id=none.execution_id, mailbox="a"), UnknownMailbox),
    ]
    for awaitable, kind in wrong:
        assert type(await refused(awaitable)) is kind
    for number in range(2):
        await send(lab, claimed, number)
    error = await refused(send(lab, claimed))
    assert (type(error), error.fields["limit"]) == (SignalLimitExceeded, 2)
    await take(lab, claimed, 0)
    await send(lab, claimed)  # what was received no longer counts
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="test")
    assert type(await refused(take(lab, claimed, 1))) in (StaleLease, LeaseRevoked)
    assert (await box_of(lab, claimed.execution_id)).received == 1


@scenario
async def test_many_messages_of_one_batch_keep_their_order(lab: Lab) -> None:
    claimed = await open_run(lab)
    assert isinstance(await wait(lab, claimed, "any"), Suspended)
    sends = [
        SendMessage(execution_id=claimed.execution_id, mailbox="any", payload=b"%d" % each)
        for each in range(30)
    ]
    replies = await lab.engine.call_many(sends)
    assert [each.number for each in replies if isinstance(each, Sent)] == list(range(30))
    claimed = await lab.claim("w2")
    for number in range(30):
        message = await take(lab, claimed, number, "any")
        assert message.payload == b"%d" % number
    page = await lab.engine.read_messages(execution_id=claimed.execution_id, mailbox="any")
    assert page.messages == ()
