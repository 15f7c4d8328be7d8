"""Checkpoints: entries are added by the owner of a lease, once, in their order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.api.journal import Checkpoint
from flowfabric.api.leases import Complete
from flowfabric.errors import (
    Corruption,
    ExecutionNotActive,
    InvalidInput,
    JournalFull,
    LeaseExpired,
    LeaseRevoked,
    PayloadTooLarge,
    StaleLease,
)
from flowfabric.limits import CHECKPOINT_BYTES_MAX, ENTRIES_MAX, JOURNAL_ENTRIES_MAX
from flowfabric.model.journal import (
    Checkpointed,
    CodeMark,
    EntryError,
    EntryKind,
    EntryState,
)
from flowfabric.model.record import replace
from flowfabric.model.results import Completed
from tests.support.journal import entry, journal, keys, record
from tests.support.lab import TTL_MS, Lab, scenario

ONE_RETRY = {"retry_policy": {"max_retries": 1, "backoff": {"type": "fixed", "delay_ms": 10}}}
FAILED = EntryError("Declined", "no\nfunds", ("Declined", "Exception"), '["x"]', True)


@scenario
async def test_an_entry_comes_back_as_it_was_given(lab: Lab) -> None:
    claimed = await lab.started()
    given = entry(
        0,
        "left/mail[user 7]",
        b'{"a":"\xc3\xbc"}',
        kind=EntryKind.VALUE,
        state=EntryState.FAILED,
        digest=bytes(range(8)),
        error=FAILED,
        tries=3,
        began_at=17,
        took_ms=40,
        code=CodeMark(version="3"),
    )
    assert await record(lab, claimed, given, next_key="charge") == 0
    (found,) = await journal(lab, claimed.execution_id, values=True)
    assert (found.key, found.kind, found.state) == (given.key, given.kind, given.state)
    assert (found.value, found.digest, found.error) == (given.value, given.digest, FAILED)
    assert (found.tries, found.began_at, found.took_ms, found.asked) == (3, 17, 40, 0)
    assert (found.code, found.next_key) == (CodeMark(version="3"), "charge")
    assert (found.recorded_at, found.attempt_index) == (lab.now, 0)


@scenario
async def test_a_checkpoint_does_not_write_its_execution(lab: Lab) -> None:
    claimed = await lab.started()
    before = await lab.record(claimed.execution_id)
    await record(lab, claimed, entry(0), entry(1))
    assert await lab.record(claimed.execution_id) == before


@scenario
async def test_many_checkpoints_share_a_commit_and_each_has_its_answer(lab: Lab) -> None:
    claims = [await lab.started() for _ in range(3)]
    await lab.engine.complete(claims[1].handle)
    requests = [Checkpoint(handle=each.handle, entries=(entry(0), entry(1))) for each in claims]
    first, second, third = await lab.engine.checkpoint_many(requests)
    assert (first, third) == (Checkpointed(1), Checkpointed(1))
    assert isinstance(second, ExecutionNotActive)
    assert await keys(lab, claims[1].execution_id) == []
    assert await keys(lab, claims[2].execution_id) == ["step#1", "step#2"]


@scenario
async def test_a_repeated_checkpoint_is_recorded_once(lab: Lab) -> None:
    claimed = await lab.started()
    entries = (entry(0), entry(1))
    for _ in range(3):
        assert await record(lab, claimed, *entries) == 1
    assert await record(lab, claimed, entry(1), entry(2)) == 2  # half of it is there
    assert len(await journal(lab, claimed.execution_id)) == 3


@scenario
async def test_two_equal_checkpoints_at_once_are_recorded_once(lab: Lab) -> None:
    claimed, other = await lab.started(), await lab.started()
    calls = [record(lab, claimed, entry(0)) for _ in range(4)]
    replies = await asyncio.gather(*calls, record(lab, other, entry(0)))
    assert replies == [0] * 5
    assert len(await journal(lab, claimed.execution_id)) == 1


@scenario
async def test_another_entry_at_a_taken_position_is_refused(lab: Lab) -> None:
    """And disturbs no other execution of its batch."""
    claimed, other = await lab.started(), await lab.started()
    await record(lab, claimed, entry(0, "charge"))
    for different in (entry(0, "refund"), entry(0, "charge", digest=b"x")):
        requests = [
            Checkpoint(handle=claimed.handle, entries=(different,)),
            Checkpoint(handle=other.handle, entries=(entry(0),)),
        ]
        refused, fine = await lab.engine.checkpoint_many(requests)
        assert isinstance(refused, Corruption)
        assert fine == Checkpointed(0)
    assert await keys(lab, claimed.execution_id) == ["charge"]


@scenario
async def test_only_the_live_owner_adds(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="suspicious")
    async with lab.refuses(LeaseRevoked):
        await record(lab, claimed, entry(0))
    await lab.after(1)
    again = await lab.claim("w2")
    async with lab.refuses(StaleLease):
        await record(lab, claimed, entry(0))
    await record(lab, again, entry(0))
    lab.clock.advance(TTL_MS)
    async with lab.refuses(LeaseExpired):
        await record(lab, again, entry(1))
    assert len(await journal(lab, claimed.execution_id)) == 1


@scenario
async def test_the_entries_of_a_completion_come_with_it(lab: Lab) -> None:
    claimed = await lab.started()
    await record(lab, claimed, entry(0))
    request = Complete(handle=claimed.handle, result=b"7", entries=(entry(1), entry(2)))
    first = await lab.engine.call(request)
    assert isinstance(first, Completed)
    assert await lab.engine.call(request) == first  # repeated, nothing is written twice
    assert [each.position for each in await journal(lab, claimed.execution_id)] == [0, 1, 2]


@scenario
async def test_the_entries_of_a_failure_and_of_a_pause_come_with_them(lab: Lab) -> None:
    claimed = await lab.started(policy=ONE_RETRY)
    reopened = entry(0, "charge", None, state=EntryState.REOPENED, error=FAILED)
    await lab.engine.fail(claimed.handle, reason="no", entries=[reopened])
    await lab.after(10)
    again = await lab.claim("w2")
    await lab.engine.delay(again.handle, delay_until=lab.now + 5, entries=[entry(1)])
    found = await journal(lab, claimed.execution_id)
    assert [(each.state, each.attempt_index) for each in found] == [
        (EntryState.REOPENED, 0),
        (EntryState.OK, 1),
    ]


@scenario
async def test_a_journal_is_loaded_by_its_owner_alone_secrets_included(lab: Lab) -> None:
    claimed = await lab.started()
    await record(lab, claimed, entry(0, value=b'"x"', is_secret=True), entry(1))
    page = await lab.engine.load_journal(claimed.handle)
    assert [each.value for each in page.entries] == [b'"x"', b"1"]
    (shown, plain) = await journal(lab, claimed.execution_id, values=True)
    assert (shown.value, shown.size, shown.is_secret, plain.value) == (None, 3, True, b"1")
    assert (await lab.engine.load_journal(claimed.handle, after=0)).entries == page.entries[1:]
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="x")
    async with lab.refuses(LeaseRevoked):
        await lab.engine.load_journal(claimed.handle)


@scenario
async def test_a_journal_is_read_in_pages(lab: Lab) -> None:
    claimed = await lab.started()
    await record(lab, claimed, *map(entry, range(5)))
    read = lab.engine.read_journal
    page = await read(execution_id=claimed.execution_id, limit=2)
    assert ([each.position for each in page.entries], page.has_more) == ([0, 1], True)
    page = await read(execution_id=claimed.execution_id, limit=3, after=1)
    assert ([each.position for each in page.entries], page.has_more) == ([2, 3, 4], False)
    assert (await read(execution_id=claimed.execution_id, journal_index=1)).entries == ()
    assert (await read(execution_id=claimed.execution_id, chapter_index=1)).entries == ()


@scenario
async def test_a_replay_goes_on_by_the_journal_and_a_fresh_one_begins_the_next(lab: Lab) -> None:
    claimed = await lab.started()
    await record(lab, claimed, entry(0))
    await lab.engine.complete(claimed.handle)
    await lab.engine.replay_execution(execution_id=claimed.execution_id)
    again = await lab.claim("w2")
    page = await lab.engine.load_journal(again.handle)
    assert (page.journal_index, len(page.entries)) == (0, 1)
    await lab.engine.complete(again.handle)
    await lab.engine.replay_execution(execution_id=claimed.execution_id, fresh=True)
    last = await lab.claim("w3")
    page = await lab.engine.load_journal(last.handle)
    assert (page.journal_index, len(page.entries)) == (1, 0)
    assert len(await journal(lab, claimed.execution_id, journal_index=0)) == 1


@scenario
async def test_a_replay_without_a_journal_begins_anew(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.engine.complete(claimed.handle)
    await lab.engine.replay_execution(execution_id=claimed.execution_id)
    again = await lab.claim("w2")
    assert (await lab.engine.load_journal(again.handle)).journal_index == 1


@scenario
async def test_a_journal_goes_with_its_execution(lab: Lab) -> None:
    claimed = await lab.started(policy={"retention_ttl_ms": 1_000})
    await record(lab, claimed, entry(0))
    await lab.engine.complete(claimed.handle)
    await lab.after(2_000)
    assert (await lab.dump())["ff_journal"] == []


@scenario
async def test_a_journal_that_is_full_takes_no_more(lab: Lab) -> None:
    claimed = await lab.started()
    async with lab.refuses(JournalFull):
        await record(lab, claimed, entry(JOURNAL_ENTRIES_MAX))


WRONG: dict[str, tuple[Any, str]] = {
    "no entries": ([], "entries"),
    "too many": (list(map(entry, range(ENTRIES_MAX + 1))), "entries"),
    "no list": (entry(0), "entries"),
    "no entry": ([7], "entries"),
    "a gap": ([entry(0), entry(2)], "entry.position"),
    "below zero": ([entry(-1)], "entry.position"),
    "no key": ([replace(entry(0), key="")], "entry.key"),
    "a long key": ([replace(entry(0), key="x" * 513)], "entry.key"),
    "a key of bytes": ([replace(entry(0), key=b"x")], "entry.key"),
    "an unknown kind": ([replace(entry(0), kind="dance")], "entry.kind"),
    "an unknown state": ([replace(entry(0), state="tired")], "entry.state"),
    "text": ([replace(entry(0), value="1")], "entry.value"),
    "deep": ([replace(entry(0), value=b"[" * 200 + b"]" * 200)], "entry.value"),
    "a long digest": ([replace(entry(0), digest=b"123456789")], "entry.digest"),
    "a digest of text": ([replace(entry(0), digest="1")], "entry.digest"),
    "no error": ([replace(entry(0), error="boom")], "entry.error"),
    "an error without text": ([replace(entry(0), error=EntryError("x", 5))], "entry.error.reason"),  # type: ignore[arg-type]
    "tries below zero": ([replace(entry(0), tries=-1)], "entry.tries"),
    "a flag that is none": ([replace(entry(0), is_secret=1)], "entry.is_secret"),
    "no mark": ([replace(entry(0), code="3")], "entry.code"),
}


@pytest.mark.parametrize("case", WRONG)
@scenario
async def test_bad_entries_are_refused_by_name(lab: Lab, case: str) -> None:
    claimed = await lab.started()
    entries, field = WRONG[case]
    async with lab.refuses(InvalidInput, field.removeprefix("entry.")):
        await lab.engine.checkpoint(claimed.handle, entries=entries)


@scenario
async def test_too_much_at_once_is_refused(lab: Lab) -> None:
    claimed = await lab.started()
    large = b'"' + b"x" * (CHECKPOINT_BYTES_MAX // 8) + b'"'
    for entries in ([entry(0, value=b'"' + b"x" * (1 << 20) + b'"')],):
        async with lab.refuses(PayloadTooLarge):
            await lab.engine.checkpoint(claimed.handle, entries=entries)
    many = [entry(at, value=large[:900_000] + b'"') for at in range(10)]
    async with lab.refuses(PayloadTooLarge):
        await lab.engine.checkpoint(claimed.handle, entries=many)


@scenario
async def test_arguments_are_shown_to_people_with_values_alone(lab: Lab) -> None:
    claimed = await lab.started()
    await record(lab, claimed, entry(0, "a", arguments=b"[[1],{}]"), entry(1, "b"))
    key = claimed.execution_id
    for values, shown in ((True, b"[[1],{}]"), (False, None)):
        page = await lab.engine.read_journal(execution_id=key, values=values)
        assert [each.arguments for each in page.entries] == [shown, None]
    loaded = await lab.engine.load_journal(claimed.handle)
    assert [each.arguments for each in loaded.entries] == [None, None]
    for wrong in (
        entry(2, "c", arguments=b"x" * 1_025),
        entry(2, "c", arguments=b"[]", is_secret=True),
        entry(2, "c", arguments="text"),
    ):
        with pytest.raises(InvalidInput, match="arguments"):
            await record(lab, claimed, wrong)
