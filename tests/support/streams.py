"""Short words for streams."""

from __future__ import annotations

from typing import Any

from flowfabric.model.results import Claimed
from flowfabric.model.stream import Appended, NewFrame, StreamPage
from flowfabric.model.words import StreamMode
from tests.support.lab import Lab


def frame(payload: bytes = b"x", **fields: Any) -> NewFrame:
    """A frame to append."""
    return NewFrame(payload=payload, **fields)


def summary(patch: bytes, **fields: Any) -> NewFrame:
    """A change of the summary."""
    return NewFrame(payload=patch, mode=StreamMode.SUMMARY, **fields)


async def append(lab: Lab, claimed: Claimed, *frames: NewFrame) -> Appended:
    """Append as the owner."""
    return await lab.engine.append_frames(claimed.handle, frames=frames)


async def page(lab: Lab, claimed: Claimed, **fields: Any) -> StreamPage:
    """Frames of the claimed attempt."""
    fields.setdefault("count_limit", 1_000)
    return await lab.engine.read_stream(
        execution_id=claimed.execution_id, attempt_index=claimed.attempt_index, **fields
    )


async def tail(lab: Lab, claimed: Claimed, **fields: Any) -> StreamPage:
    """What comes."""
    return await lab.engine.tail_stream(
        execution_id=claimed.execution_id, attempt_index=claimed.attempt_index, **fields
    )


async def payloads(lab: Lab, claimed: Claimed, **fields: Any) -> list[bytes]:
    """What the frames of the claimed attempt say."""
    return [each.payload for each in (await page(lab, claimed, **fields)).frames]
