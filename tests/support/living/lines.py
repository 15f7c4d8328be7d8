"""Executions in lines of serial keys."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.api.executions import NewUnique
from flowfabric.model.results import Batched, Duplicate
from flowfabric.model.state import BlockingReason, PublicState
from tests.support.lab import Lab
from tests.support.living.kind import Living, Notes, ended, handle, noted


class Serial(Living):
    """One has the turn and runs; two are behind it, one of them delayed."""

    async def begin(self, lab: Lab) -> Notes:
        head = await self.start(lab, serial_key="acme")
        behind = await self.create(lab, serial_key="acme")
        late = await self.create(lab, serial_key="acme", delay_ms=90_000)
        return {"head": noted(head), "behind": behind, "late": late}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        snapshot = await lab.describe(notes["behind"])
        assert snapshot.blocking_reason is BlockingReason.WAITING_FOR_TURN
        assert await self.claims(lab) == []
        await lab.engine.complete(handle(lab, notes["head"]))
        await self.finish(lab, notes["behind"])
        assert await lab.state(notes["late"]) is PublicState.DELAYED
        await lab.after(90_000)
        await self.finish(lab, notes["late"])


class Fair(Living):
    """Two keys share a lane: one has three waiting, and runs one."""

    async def begin(self, lab: Lab) -> Notes:
        await lab.engine.configure_lane(lane_id=self.lane, fair_weights={"few": 2})
        many = [await self.create(lab, fair_key="many") for _ in range(4)]
        assert (await self.claim(lab)).execution_id == many[0]
        return {"many": many, "few": await self.create(lab, fair_key="few")}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        newcomer = await self.create(lab, fair_key="new")
        order = await self.claims(lab)
        assert set(order[:2]) == {notes["few"], newcomer}
        assert order[2:] == notes["many"][1:]
        assert (await lab.describe(newcomer)).fair_key == "new"


class HeldLine(Living):
    """A failed head holds up the one behind it."""

    async def begin(self, lab: Lab) -> Notes:
        head = await self.start(lab, serial_key="held", on_head_failure="hold")
        behind = await self.create(lab, serial_key="held")
        await lab.engine.fail(head.handle, reason="no", failure_class="permanent")
        return {"head": head.execution_id, "behind": behind}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        await ended(lab, notes["head"], PublicState.FAILED)
        assert await self.claims(lab) == []
        released = await lab.engine.release_line(serial_key="held")
        assert released.next_id == notes["behind"]
        await self.finish(lab, notes["behind"])


class Gathering(Living):
    """A batch that another submit may join; the places of its items are kept by their keys."""

    BATCH: Final = NewUnique(key="rows", batch_items=3, batch_ms=90_000)

    async def begin(self, lab: Lab) -> Notes:
        first = await self.submit(lab, b'{"rows":[1]}', "one")
        await self.submit(lab, b'{"rows":[2]}', "two")
        return {"id": first.execution_id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        assert await self.submit(lab, b'{"rows":[2]}', "two") == Duplicate(notes["id"], 1)
        assert await self.submit(lab, b'{"rows":[3]}', None) == Batched(notes["id"], 2)
        claimed = await self.finish(lab, notes["id"])
        assert claimed.payload == b'{"rows":[1,2,3]}'

    async def submit(self, lab: Lab, payload: bytes, key: str | None) -> Any:
        return await lab.engine.create_execution(
            execution_kind="work",
            lane_id=self.lane,
            input_payload=payload,
            idempotency_key=key if key is None else f"{self.lane}-{key}",
            payload_encoding="json",
            unique=self.BATCH,
        )
