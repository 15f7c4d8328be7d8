"""What a run publishes travels with the entries before it, and is read in any state of the run."""

from __future__ import annotations

import pytest

from flowfabric import limits
from flowfabric.api.waits import Fresh, SuspendRequest
from flowfabric.errors import InvalidInput, LeaseRevoked, NotFound, PayloadTooLarge, StaleLease
from flowfabric.model.journal import NewEntry, Published
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import Single, Suspended
from tests.support.journal import entry, keys, record
from tests.support.journal import published as state
from tests.support.lab import Lab, scenario

NOWHERE = "{fp:1}:01890000-0000-7000-8000-000000000001"


async def published(lab: Lab, execution_id: str) -> bytes | None:
    found: Published | None = await lab.engine.read_published(execution_id=execution_id)
    return None if found is None else found.value


@scenario
async def test_it_travels_with_every_command_that_takes_entries(lab: Lab) -> None:
    claimed = await lab.started()
    key, handle = claimed.execution_id, claimed.handle
    assert await published(lab, key) is None
    assert await record(lab, claimed, entry(0, "a"), state(1, b'{"at":0}')) == 0
    lab.clock.advance(10)
    assert await record(lab, claimed, state(1, b'{"at":1}')) == 0  # it took no position
    found = await lab.engine.read_published(execution_id=key)
    assert found == Published(b'{"at":1}', lab.now, 0)
    await record(lab, claimed, entry(1, "b"))
    assert await published(lab, key) == b'{"at":1}'
    await lab.engine.create_waitpoint(
        handle, waitpoint_key="w", expires_in_ms=1_000, entries=(entry(2, "w"), state(3, b"2"))
    )
    assert await published(lab, key) == b"2"
    request = SuspendRequest(
        resume_condition=Single("go", "go"), waitpoints=(Fresh("go"),), idempotency_key="s"
    )
    answer = await lab.engine.suspend(handle, request, entries=(entry(3, "wait"), state(4, b"3")))
    assert isinstance(answer, Suspended)
    assert await published(lab, key) == b"3"
    await lab.engine.resume_execution(execution_id=key)
    again = await lab.claim("w2")
    await lab.engine.continue_execution(
        again.handle, arguments=b"{}", entries=(entry(4, "c"), state(5, b"4"))
    )
    assert await published(lab, key) == b"4"
    assert await keys(lab, key, chapter_index=0) == ["a", "b", "w", "wait", "c"]
    last = await lab.claim()
    await lab.engine.complete(last.handle, result=b"1", entries=(state(1, b"5"),))
    assert await published(lab, key) == b"5"
    assert await keys(lab, key) == ["chapter"]


@scenario
async def test_a_failure_and_a_delay_take_it_too(lab: Lab) -> None:
    late, lost = await lab.started(), await lab.started()
    await lab.engine.delay(late.handle, delay_until=lab.now + 60_000, entries=(state(0, b"7"),))
    await lab.engine.fail(lost.handle, reason="no", entries=(state(0, b"8"),))
    assert await published(lab, late.execution_id) == b"7"
    assert await published(lab, lost.execution_id) == b"8"


async def refused(lab: Lab, claimed: Claimed, *entries: NewEntry) -> Exception:
    with pytest.raises((InvalidInput, PayloadTooLarge, StaleLease)) as error:
        await record(lab, claimed, *entries)
    return error.value


@scenario
async def test_what_is_wrong_changes_nothing(lab: Lab) -> None:
    claimed = await lab.started()
    huge = b'"' + b"x" * limits.PUBLISHED_BYTES + b'"'
    for entries, kind in (
        ((state(0), entry(1)), InvalidInput),
        ((state(0), state(1)), InvalidInput),
        ((entry(0), state(0)), InvalidInput),
        ((state(0, huge),), PayloadTooLarge),
        ((state(0, b"[" * 100 + b"]" * 100),), InvalidInput),
    ):
        assert type(await refused(lab, claimed, *entries)) is kind
    with pytest.raises(NotFound):
        await lab.engine.read_published(execution_id=NOWHERE)
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="test")
    with pytest.raises((StaleLease, LeaseRevoked)):
        await record(lab, claimed, state(0))
    assert await published(lab, claimed.execution_id) is None


@scenario
async def test_a_repeated_command_publishes_once_and_many_share_a_commit(lab: Lab) -> None:
    several = [await lab.started() for _ in range(12)]
    for each in several:
        await record(lab, each, entry(0, "a"), state(1, b"1"))
        await record(lab, each, state(1, b"2"))
        assert await record(lab, each, entry(0, "a"), state(1, b"1")) == 0
        assert await published(lab, each.execution_id) == b"2"
        await lab.engine.complete(each.handle)
