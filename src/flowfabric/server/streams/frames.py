"""The frames of one execution for one client, until the execution has ended."""

from __future__ import annotations

from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.streams import ReadExecutionStream
from flowfabric.model.record import replace
from flowfabric.model.stream import StreamPage
from flowfabric.server.streams.reader import Reader, block_of, ending_of

_WAIT_MS: Final = 30_000


class Frames:
    """What one client reads of one execution."""

    def __init__(self, engine: EngineBackend, wanted: ReadExecutionStream) -> None:
        self._engine = engine
        self._wanted = replace(wanted, wait_ms=_WAIT_MS)

    async def follow(self, reader: Reader) -> None:
        """Frames as they come, no faster than the client takes them."""
        while reader.last is None:
            await reader.room.wait()
            page = await self._engine.call(replace(self._wanted, after=reader.cursor))
            self.put(reader, page)

    def put(self, reader: Reader, page: StreamPage) -> None:
        """A page of frames; with the end, if this was the last."""
        part = b"".join(block_of(each, each.cursor) for each in page.frames)
        reader.put(part, len(page.frames), page.next_cursor)
        if page.closed_at is not None:
            reason = page.closed_reason
            closed = {"closed_at": page.closed_at, "closed_reason": reason and reason.value}
            reader.end(ending_of("closed", **closed))
