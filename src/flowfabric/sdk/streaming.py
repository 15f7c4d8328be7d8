"""Reading the streams and logs of a run, from the beginning or from a place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.errors import ResourceExhausted
from flowfabric.ids import jitter
from flowfabric.model.log_lines import LogLine, LogPage
from flowfabric.model.stream import Frame, StreamPage, Visibility
from flowfabric.trouble import is_passing

P = TypeVar("P")
_PAGE: Final = 500
_PAUSE_S_FIRST: Final = 0.1
_PAUSE_S_MAX: Final = 5.0


async def frames_of(
    start: Callable[[], Awaitable[EngineBackend]],
    execution_id: str,
    *,
    after: str | None,
    best_effort: bool,
    follow: bool = True,
) -> AsyncIterator[Frame]:
    """Every frame after a place, once, in order; a store that is away is waited for."""
    engine = await start()
    seen = Visibility.ALL if best_effort else Visibility.EXCLUDE_BEST_EFFORT

    async def read(place: str | None) -> StreamPage:
        return await engine.read_execution_stream(
            execution_id=execution_id,
            after=place,
            limit=_PAGE,
            wait_ms=limits.TAIL_MS_MAX if follow else 0,
            visibility=seen,
        )

    while True:
        page = await _patiently(read, after)
        for frame in page.frames:
            yield frame
        if page.closed_at is not None or (not follow and not page.frames):
            return
        after = page.next_cursor


async def lines_of(
    start: Callable[[], Awaitable[EngineBackend]],
    execution_id: str,
    *,
    attempt_index: int | None,
    after: str | None,
    follow: bool,
) -> AsyncIterator[LogLine]:
    """Every line after a place, once, in order; a store that is away is waited for."""
    engine = await start()

    async def read(place: str | None) -> LogPage:
        return await engine.read_logs(
            execution_id=execution_id,
            attempt_index=attempt_index,
            after=place,
            limit=_PAGE,
            wait_ms=limits.TAIL_MS_MAX if follow else 0,
        )

    while True:
        page = await _patiently(read, after)
        for line in page.lines:
            yield line
        if page.closed_at is not None or not (follow or page.lines):
            return
        after = page.next_cursor


async def _patiently(read: Callable[[str | None], Awaitable[P]], place: str | None) -> P:
    failures = 0
    while True:
        try:
            return await read(place)
        except Exception as error:
            if not (is_passing(error) or isinstance(error, ResourceExhausted)):
                raise
            longest = min(_PAUSE_S_MAX, _PAUSE_S_FIRST * 2.0 ** min(failures, 10))
            failures += 1
            await asyncio.sleep(longest * (0.5 + jitter() / 2))
