"""Appending: fenced like every write, with ids that only rise, once for each number of a writer."""

from __future__ import annotations

import pytest

from flowfabric.api.streams import AppendFrame
from flowfabric.errors import (
    ExecutionNotActive,
    FlowFabricError,
    InvalidInput,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    RetentionLimitExceeded,
    StaleLease,
)
from flowfabric.ids import new_execution_id
from flowfabric.limits import FRAME_BYTES, FRAMES_MAX
from flowfabric.model.record import replace
from flowfabric.model.stream import FrameKind, frame_id_from
from flowfabric.model.words import StreamMode
from tests.support.lab import TTL_MS, Lab, scenario
from tests.support.streams import append, frame, page, payloads, summary


@scenario
async def test_each_append_counts_on(lab: Lab) -> None:
    claimed = await lab.started()
    for count in (1, 2, 3):
        assert (await append(lab, claimed, frame())).frame_count == count


@scenario
async def test_a_frame_comes_back_as_it_was_given(lab: Lab) -> None:
    """Bytes stay bytes, whatever they are."""
    claimed = await lab.started()
    blob = bytes(range(256))
    await append(
        lab,
        claimed,
        frame(blob, kind="blob", correlation_id="c1"),
        frame(b"line", kind="stdout"),
        frame(b"{}", frame_type="usage", encoding="json"),
    )
    first, second, third = (await page(lab, claimed)).frames
    assert (first.payload, first.encoding, first.frame_type) == (blob, "binary", "blob")
    assert (first.correlation_id, first.mode, first.source) == ("c1", "durable", "worker")
    assert (second.kind, second.encoding) == (FrameKind.STDOUT, "utf8")
    assert (third.kind, third.frame_type, third.encoding) == (FrameKind.EVENT, "usage", "json")
    assert {each.appended_at for each in (first, second, third)} == {lab.now}


@scenario
async def test_ids_rise_within_a_millisecond_and_when_the_clock_goes_back(lab: Lab) -> None:
    claimed = await lab.started()
    first = await append(lab, claimed, frame(), frame())
    assert first.frame_ids == (f"{lab.now}-0", f"{lab.now}-1")
    if not lab.url.startswith("sqlite"):  # its clock never goes back
        lab.clock.set(lab.now - 500)
    second = await append(lab, claimed, frame())
    lab.clock.advance(1_000)
    third = await append(lab, claimed, frame())
    ids = [*first.frame_ids, *second.frame_ids, *third.frame_ids]
    places = [frame_id_from(each, field="id") for each in ids]
    assert places == sorted(set(places))
    assert [each.id for each in (await page(lab, claimed)).frames] == ids


@scenario
async def test_a_frame_of_64_kib_is_taken_and_one_byte_more_is_not(lab: Lab) -> None:
    claimed = await lab.started()
    await append(lab, claimed, frame(bytes(FRAME_BYTES)))
    async with lab.refuses(RetentionLimitExceeded, "frame.payload"):
        await append(lab, claimed, frame(b"good"), frame(bytes(FRAME_BYTES + 1)))


@scenario
async def test_an_append_after_the_end_is_refused(lab: Lab) -> None:
    claimed = await lab.started()
    await append(lab, claimed, frame())
    await lab.engine.complete(claimed.handle)
    async with lab.refuses(ExecutionNotActive):
        await append(lab, claimed, frame())


@scenario
async def test_an_owner_that_lost_its_lease_appends_nothing(lab: Lab) -> None:
    """The old owner gets the error of every other write."""
    claimed = await lab.started()
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="suspicious")
    async with lab.refuses(LeaseRevoked):
        await append(lab, claimed, frame())
    await lab.after(1)
    again = await lab.claim("w2")
    async with lab.refuses(StaleLease):
        await append(lab, claimed, frame())
    await append(lab, again, frame(b"of the second attempt"))
    assert await payloads(lab, again) == [b"of the second attempt"]
    assert await payloads(lab, claimed) == []


@scenario
async def test_a_lapsed_lease_appends_nothing(lab: Lab) -> None:
    claimed = await lab.started()
    lab.clock.advance(TTL_MS)
    async with lab.refuses(LeaseExpired):
        await append(lab, claimed, frame())


@scenario
async def test_an_append_to_a_missing_execution_says_so(lab: Lab) -> None:
    claimed = await lab.started()
    other = new_execution_id()
    async with lab.refuses(NotFound):
        await lab.engine.append_frame(replace(claimed.handle, execution_id=other), frame=frame())


@scenario
async def test_a_handle_with_another_attempt_is_stale(lab: Lab) -> None:
    claimed = await lab.started()
    async with lab.refuses(StaleLease):
        await lab.engine.append_frame(replace(claimed.handle, attempt_index=7), frame=frame())


@scenario
async def test_a_repeated_append_writes_nothing_and_answers_the_same(lab: Lab) -> None:
    claimed = await lab.started()
    both = (frame(b"a", seq=1), frame(b"b", seq=2))
    first = await append(lab, claimed, *both)
    lab.clock.advance(10)
    async with lab.unchanged():
        assert await append(lab, claimed, *both) == first
    more = await append(lab, claimed, *both, frame(b"c", seq=3))
    assert more.frame_ids[:2] == first.frame_ids
    assert await payloads(lab, claimed) == [b"a", b"b", b"c"]


@scenario
async def test_a_repeated_change_of_a_summary_is_applied_once(lab: Lab) -> None:
    claimed = await lab.started()
    change = summary(b'[{"path":"/t","value":"x"}]', patch_kind="append", seq=1)
    first = await append(lab, claimed, change)
    assert await append(lab, claimed, change) == first
    found = await lab.engine.read_summary(execution_id=claimed.execution_id)
    assert found is not None
    assert (found.document, found.version) == (b'{"t":"x"}', 1)


@scenario
async def test_one_append_is_all_or_nothing(lab: Lab) -> None:
    claimed = await lab.started()
    async with lab.refuses(InvalidInput, "payload"):
        await append(lab, claimed, frame(b"good"), summary(b"no json"))


@scenario
async def test_commands_of_one_batch_append_in_order(lab: Lab) -> None:
    """Each sees what the one before it has written."""
    claimed = await lab.started()
    asked = [
        AppendFrame(handle=claimed.handle, frame=frame(str(n).encode(), seq=n)) for n in (1, 2, 2)
    ]
    replies = await lab.engine.call_many(asked)
    ids = [each.frame_ids for each in replies if not isinstance(each, FlowFabricError)]
    assert ids[1] == ids[2] != ids[0]
    assert await payloads(lab, claimed) == [b"1", b"2"]


@scenario
async def test_a_stream_goes_on_after_a_suspension(lab: Lab) -> None:
    """It is the same attempt, and no append comes in between."""
    claimed = await lab.started()
    await append(lab, claimed, frame(b"before", seq=1))
    await lab.engine.delay(claimed.handle, delay_until=lab.now + 50)
    async with lab.refuses(ExecutionNotActive):
        await append(lab, claimed, frame(b"while it waits"))
    assert (await page(lab, claimed)).closed_at is None
    await lab.after(50)
    again = await lab.claim()
    assert again.attempt_index == claimed.attempt_index
    await append(lab, again, frame(b"after", seq=2))
    assert await payloads(lab, again) == [b"before", b"after"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"payload": "text"}, "payload"),
        ({"kind": "song"}, "kind"),
        ({"mode": "for ever"}, "mode"),
        ({"frame_type": "x" * 257}, "frame_type"),
        ({"encoding": ""}, "encoding"),
        ({"correlation_id": "\x00"}, "correlation_id"),
        ({"seq": 0}, "seq"),
        ({"patch_kind": "xml"}, "patch_kind"),
        ({"expected_version": -1}, "expected_version"),
    ],
)
def test_a_malformed_frame_is_refused(lab: Lab, wrong: dict[str, object], field: str) -> None:
    async def check() -> None:
        claimed = await lab.started()
        async with lab.refuses(InvalidInput, field):
            await append(lab, claimed, replace(frame(), **wrong))

    lab.run(check())


@scenario
async def test_no_frames_and_too_many_are_refused(lab: Lab) -> None:
    claimed = await lab.started()
    for count in (0, FRAMES_MAX + 1):
        async with lab.refuses(InvalidInput, "frames"):
            await append(lab, claimed, *([frame()] * count))


@scenario
async def test_frames_ride_on_the_end(lab: Lab) -> None:
    """They are written before it, in the same transaction, and once."""
    claimed = await lab.started()
    frames = (frame(b"last words", seq=1),)
    done = await lab.engine.complete(claimed.handle, result=b"r", frames=frames)
    async with lab.unchanged():
        assert await lab.engine.complete(claimed.handle, result=b"r", frames=frames) == done
    found = await page(lab, claimed)
    assert [each.payload for each in found.frames] == [b"last words"]
    assert found.closed_at == done.completed_at


@scenario
async def test_frames_ride_on_a_failure_that_is_retried(lab: Lab) -> None:
    policy = {"retry_policy": {"max_retries": 1, "backoff": {"type": "fixed", "delay_ms": 10}}}
    claimed = await lab.started(policy=policy)
    frames = (frame(b"why", seq=1),)
    first = await lab.engine.fail(claimed.handle, reason="broke", frames=frames)
    assert await lab.engine.fail(claimed.handle, reason="broke", frames=frames) == first
    assert await payloads(lab, claimed) == [b"why"]


@scenario
async def test_a_wrong_frame_keeps_the_end_from_happening(lab: Lab) -> None:
    claimed = await lab.started()
    async with lab.refuses(InvalidInput, "payload"):
        await lab.engine.complete(claimed.handle, frames=(summary(b"[]"),))
    await lab.engine.complete(claimed.handle)


@scenario
async def test_frames_of_a_stale_owner_do_not_ride_along(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="suspicious")
    async with lab.refuses(LeaseRevoked):
        await lab.engine.complete(claimed.handle, frames=(frame(),))


@scenario
async def test_the_policy_names_the_mode_of_frames_without_one(lab: Lab) -> None:
    claimed = await lab.started(policy={"stream_policy": {"durability_mode": "best_effort"}})
    await append(lab, claimed, frame(), frame(mode="durable"))
    modes = [each.mode for each in (await page(lab, claimed)).frames]
    assert modes == [StreamMode.BEST_EFFORT, StreamMode.DURABLE]
