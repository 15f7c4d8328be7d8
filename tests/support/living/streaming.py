"""Work that shows frames while it runs, and consumers of events."""

from __future__ import annotations

from flowfabric.model.feed import EventFilter
from tests.support.lab import Lab
from tests.support.living.kind import BYTES, HOUR_MS, Living, Notes, handle, noted
from tests.support.streams import frame, summary


class Streaming(Living):
    """A stream with frames of every mode: its owner goes on writing, a reader goes on reading."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        appended = await lab.engine.append_frames(
            claimed.handle,
            frames=(
                frame(BYTES, seq=1, correlation_id="c", kind="blob"),
                summary(b'{"a":{"b":1}}', seq=2),
                frame(b"live", seq=3, mode="best_effort"),
            ),
        )
        ids = list(appended.frame_ids)
        return {"id": claimed.execution_id, "handle": noted(claimed), "ids": ids}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine, execution_id, owner = lab.engine, notes["id"], handle(lab, notes["handle"])
        again = await engine.append_frames(
            owner, frames=(frame(BYTES, seq=1, kind="blob"), summary(b'{"a":{"c":2}}', seq=4))
        )
        assert again.frame_ids[0] == notes["ids"][0]
        page = await engine.tail_stream(
            execution_id=execution_id, attempt_index=0, visibility="exclude_best_effort"
        )
        assert [each.id for each in page.frames] == [*notes["ids"][:2], again.frame_ids[1]]
        assert (page.frames[0].payload, page.frames[0].correlation_id) == (BYTES, "c")
        document = await engine.read_summary(execution_id=execution_id)
        assert document is not None
        assert (document.document, document.version) == (b'{"a":{"b":1,"c":2}}', 2)
        await engine.complete(owner, frames=(frame(b"last", seq=5),))
        rest = await engine.tail_stream(
            execution_id=execution_id, attempt_index=0, after=page.next_cursor
        )
        assert [each.payload for each in rest.frames] == [b"last"]
        assert rest.closed_at == lab.now


class Sharing(Living):
    """A group with a delivery that is not acknowledged, and events behind it."""

    async def begin(self, lab: Lab) -> Notes:
        wanted = EventFilter(lane_id=self.lane)
        await lab.engine.create_consumer_group(
            group_id=self.lane, kinds=("completion",), filter=wanted, redeliver_ms=HOUR_MS
        )
        ids = []
        for _ in range(3):
            claimed = await self.start(lab)
            await lab.engine.complete(claimed.handle)
            ids.append(claimed.execution_id)
        taken = await lab.engine.read_group(group_id=self.lane, consumer="old", limit=2, wait_ms=0)
        return {"ids": ids, "delivery": taken.delivery, "cursor": taken.events[0].cursor}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine, ids = lab.engine, notes["ids"]
        kept = await engine.ack_group(
            group_id=self.lane, consumer="old", delivery=notes["delivery"], up_to=notes["cursor"]
        )
        assert kept.outstanding == 1
        rest = await engine.read_group(group_id=self.lane, consumer="new", wait_ms=0)
        assert [event.subject for event in rest.events] == ids[2:]
        await engine.ack_group(group_id=self.lane, consumer="old", delivery=notes["delivery"])
        assert (
            await engine.ack_group(group_id=self.lane, consumer="new", delivery=rest.delivery)
        ).outstanding == 0
