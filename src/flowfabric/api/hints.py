"""Hints that something may have happened: they shorten a wait, and may all be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from flowfabric.model.record import Record


def lane_topic(lane_id: str) -> str:
    """Work began to wait on a lane."""
    return f"lane:{lane_id}"


def end_topic(execution_id: str) -> str:
    """An execution ended."""
    return f"done:{execution_id}"


def flow_topic(flow_id: str) -> str:
    """All members of a flow have ended."""
    return f"flow:{flow_id}"


def stream_topic(execution_id: str) -> str:
    """A stream of an execution grew, or was closed."""
    return f"stream:{execution_id}"


def worker_topic(worker_instance_id: str) -> str:
    """A worker has lost a lease, or is asked to end."""
    return f"worker:{worker_instance_id}"


def group_topic(group_id: str) -> str:
    """A delivery of a consumer group was acknowledged."""
    return f"group:{group_id}"


ACCESS_TOPIC: Final = "access"  # an access token was made or revoked, or a session ended


class Bell(asyncio.Event):
    """Rings for one wait, which may be told at once what there is to see."""

    told: Any = None


async def wait_event(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether the event came within the time."""
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True


# --- over a wire --------------------------------------------------------------------------------


class HintsAsked(Record, frozen=True, kw_only=True):
    """Which topics a client wants to hear of. `after`: the `number` of the last answer."""

    topics: Sequence[str]
    after: int | None = None
    origin: str | None = None  # of the last answer
    wait_ms: int = 20_000


class HintsHeard(Record, frozen=True, kw_only=True):
    """The topics that rang; `origin` and `number` are handed back next time."""

    topics: tuple[str, ...]
    origin: str
    number: int
