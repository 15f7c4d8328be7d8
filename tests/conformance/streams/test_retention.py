"""Retention: each mode keeps its own, by length and by age."""

from __future__ import annotations

import pytest

from flowfabric.errors import InvalidInput
from flowfabric.limits import LIVE_FRAMES_FLOOR, SUMMARY_FRAMES
from flowfabric.model.results import Claimed
from flowfabric.model.stream import BestEffort
from flowfabric.model.words import StreamMode
from tests.support.lab import Lab, scenario
from tests.support.streams import append, frame, page, payloads, summary


async def kept(lab: Lab, claimed: Claimed, mode: StreamMode) -> int:
    """How many frames of a mode are stored."""
    frames = (await lab.dump())["ff_stream_frame"]
    return sum(each.mode is mode and each.execution_id == claimed.execution_id for each in frames)


@scenario
async def test_other_modes_leave_durable_frames_alone(lab: Lab) -> None:
    claimed = await lab.started()
    await append(lab, claimed, *(frame(str(n).encode()) for n in range(300)))
    await append(lab, claimed, summary(b'{"a":1}'))
    await append(lab, claimed, *(frame(mode="best_effort") for _ in range(200)))
    found = await page(lab, claimed)
    durable = [each.payload for each in found.frames if each.mode is StreamMode.DURABLE]
    assert durable == [str(n).encode() for n in range(300)]
    assert [each.mode for each in found.frames].count(StreamMode.SUMMARY) == 1


@scenario
async def test_durable_frames_are_kept_up_to_the_length_of_the_policy(lab: Lab) -> None:
    claimed = await lab.started(policy={"stream_policy": {"retention_maxlen": 5}})
    counts = [
        (await append(lab, claimed, frame(str(number).encode()))).frame_count
        for number in range(12)
    ]
    assert counts == list(range(1, 13))
    assert await payloads(lab, claimed) == [str(n).encode() for n in range(7, 12)]
    assert await kept(lab, claimed, StreamMode.DURABLE) == 5


@scenario
async def test_one_append_of_more_than_is_kept_keeps_the_newest(lab: Lab) -> None:
    claimed = await lab.started(policy={"stream_policy": {"retention_maxlen": 5}})
    await append(lab, claimed, *(frame(str(n).encode()) for n in range(12)))
    await append(lab, claimed, *(frame(str(n).encode()) for n in range(12, 19)))
    assert await payloads(lab, claimed) == [str(n).encode() for n in range(14, 19)]
    assert await kept(lab, claimed, StreamMode.DURABLE) == 5


@scenario
async def test_frames_expire_by_the_age_of_the_policy(lab: Lab) -> None:
    claimed = await lab.started(policy={"stream_policy": {"retention_ttl_ms": 100}})
    await append(lab, claimed, frame(b"old"))
    lab.clock.advance(60)
    await append(lab, claimed, frame(b"young"))
    lab.clock.advance(40)
    assert await payloads(lab, claimed) == [b"young"]
    assert await kept(lab, claimed, StreamMode.DURABLE) == 2
    await lab.engine.sweep()
    assert await kept(lab, claimed, StreamMode.DURABLE) == 1
    await append(lab, claimed, frame(b"new"))
    assert await payloads(lab, claimed) == [b"young", b"new"]


@scenario
async def test_a_summary_survives_the_trimming_of_its_frames(lab: Lab) -> None:
    claimed = await lab.started()
    for number in range(SUMMARY_FRAMES + 10):
        await append(lab, claimed, summary(f'{{"k{number % 7}":{number}}}'.encode()))
    assert await kept(lab, claimed, StreamMode.SUMMARY) == SUMMARY_FRAMES
    found = await lab.engine.read_summary(execution_id=claimed.execution_id, attempt_index=0)
    assert found is not None
    assert found.version == SUMMARY_FRAMES + 10
    versions = [each.summary_version for each in (await page(lab, claimed)).frames]
    assert versions == list(range(11, SUMMARY_FRAMES + 11))


@scenario
async def test_best_effort_frames_expire_one_by_one(lab: Lab) -> None:
    claimed = await lab.started()
    live = {"mode": "best_effort"}
    await append(lab, claimed, frame(b"short", **live, best_effort=BestEffort(ttl_ms=100)))
    await append(lab, claimed, frame(b"long", **live, best_effort=BestEffort(ttl_ms=1_000)))
    await append(lab, claimed, frame(b"durable"))
    lab.clock.advance(100)
    assert await payloads(lab, claimed) == [b"long", b"durable"]
    assert await kept(lab, claimed, StreamMode.BEST_EFFORT) == 2
    await lab.engine.sweep()
    assert await kept(lab, claimed, StreamMode.BEST_EFFORT) == 1
    lab.clock.advance(900)
    assert await payloads(lab, claimed) == [b"durable"]


@scenario
async def test_as_many_best_effort_frames_are_kept_as_come_lately(lab: Lab) -> None:
    """A slow stream keeps the least, a fast one more, up to its ceiling."""
    settings = BestEffort(ttl_ms=1_000, maxlen_ceiling=200)
    claimed = await lab.started()
    for _ in range(LIVE_FRAMES_FLOOR + 20):
        await append(lab, claimed, frame(mode="best_effort", best_effort=settings))
        lab.clock.advance(100)
    assert await kept(lab, claimed, StreamMode.BEST_EFFORT) == LIVE_FRAMES_FLOOR
    burst = [frame(mode="best_effort", best_effort=settings) for _ in range(300)]
    await append(lab, claimed, *burst)
    assert await kept(lab, claimed, StreamMode.BEST_EFFORT) == 200


@scenario
async def test_sweeping_does_not_confuse_trimming(lab: Lab) -> None:
    """Frames that expired are gone already: live ones must not go in their place."""
    kept_at_most = {"maxlen_floor": 10, "maxlen_ceiling": 10}
    short, long = (BestEffort(ttl_ms=ttl, **kept_at_most) for ttl in (10, 60_000))
    claimed = await lab.started()
    for number in range(10):
        settings = short if number < 8 else long
        await append(
            lab, claimed, frame(str(number).encode(), mode="best_effort", best_effort=settings)
        )
        lab.clock.advance(1_000)
    await lab.engine.sweep()
    for number in range(10, 14):
        await append(
            lab, claimed, frame(str(number).encode(), mode="best_effort", best_effort=long)
        )
        lab.clock.advance(1_000)
    assert await payloads(lab, claimed) == [b"8", b"9", b"10", b"11", b"12", b"13"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"durability_mode": "buffered"}, "durability_mode"),
        ({"retention_maxlen": 0}, "retention_maxlen"),
        ({"retention_ttl_ms": 0}, "retention_ttl_ms"),
        ({"compress": True}, "compress"),
    ],
)
def test_a_stream_policy_is_honoured_or_refused(
    lab: Lab, wrong: dict[str, object], field: str
) -> None:
    async def check() -> None:
        async with lab.refuses(InvalidInput, field):
            await lab.create(policy={"stream_policy": wrong})

    lab.run(check())


@pytest.mark.parametrize(
    "wrong", [{"ttl_ms": 0}, {"maxlen_floor": 0}, {"maxlen_ceiling": 0}, {"ema_alpha": 0.0}]
)
def test_settings_of_best_effort_frames_are_checked(lab: Lab, wrong: dict[str, float]) -> None:
    async def check() -> None:
        claimed = await lab.started()
        settings = BestEffort(**wrong)  # type: ignore[arg-type] # that is the test
        async with lab.refuses(InvalidInput, next(iter(wrong))):
            await append(lab, claimed, frame(mode="best_effort", best_effort=settings))

    lab.run(check())
