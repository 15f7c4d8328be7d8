"""One kind of living work: it begins under one release and goes on under another.

The rows that `begin` makes are stored in a fixture. Between `begin` and `go_on` lie the end of a
process, a migration, and perhaps years: `go_on` knows only the notes, which are plain JSON, and
calls only public operations.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from typing import Any, ClassVar

from flowfabric.model.handle import Handle
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from tests.support.lab import Lab

Notes = dict[str, Any]

BYTES = bytes(range(256))  # an input or a result that no text codec survives
HOUR_MS = 3_600_000  # a lease this long is alive when the fixture is stored
SHORT_MS = 1_000  # and one this long has lapsed unnoticed
PAUSE_MS = 30_000  # the time between the last `begin` and the storing


class Living(ABC):
    """One kind of living work, on a lane of its own.

    No kind ticks while it begins: due work stays due, for the code that opens the database.
    """

    lane: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.lane = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    @abstractmethod
    async def begin(self, lab: Lab) -> Notes:
        """Make the work; the notes are all that `go_on` will know of it."""

    @abstractmethod
    async def go_on(self, lab: Lab, notes: Notes) -> None:
        """Lead the work to its end, and check each step of it."""

    # --- short words ---------------------------------------------------------------------------

    async def create(self, lab: Lab, **fields: Any) -> str:
        """A new execution on the lane."""
        return await lab.create(lane_id=self.lane, **fields)

    async def claim(self, lab: Lab, worker: str = "w1", **fields: Any) -> Claimed:
        """The one execution of the lane that a worker gets."""
        return await lab.claim(worker, **{"lanes": (self.lane,), "lease_ttl_ms": HOUR_MS, **fields})

    async def claims(self, lab: Lab, worker: str = "w1", **fields: Any) -> list[str]:
        """The ids a worker gets from the lane, best first."""
        fields = {"lanes": (self.lane,), "lease_ttl_ms": HOUR_MS, "limit": 100, **fields}
        return [each.execution_id for each in await lab.claims(worker, **fields)]

    async def start(self, lab: Lab, *, ttl_ms: int = HOUR_MS, **fields: Any) -> Claimed:
        """A new execution that runs."""
        execution_id = await self.create(lab, **fields)
        kinds = (fields.get("kind", "work"),)
        claimed = await self.claim(lab, lease_ttl_ms=ttl_ms, kinds=kinds)
        assert claimed.execution_id == execution_id
        return claimed

    async def finish(self, lab: Lab, execution_id: str, **fields: Any) -> Claimed:
        """Claim this one, which must be the first of the lane or of its kinds, and complete it."""
        claimed = await self.claim(lab, "w2", **fields)
        assert claimed.execution_id == execution_id
        await lab.engine.complete(claimed.handle, result=b"done at last")
        await ended(lab, execution_id, PublicState.COMPLETED)
        assert await lab.engine.get_execution_result(execution_id=execution_id) == b"done at last"
        return claimed


async def ended(lab: Lab, execution_id: str, state: PublicState) -> None:
    """An execution must be in a state, and have ended once."""
    assert await lab.state(execution_id) is state
    snapshot = await lab.describe(execution_id)
    assert snapshot.completed_at is not None
    assert len(await lab.completions(execution_id)) == 1 + snapshot.replay_count


def packed(data: bytes) -> str:
    """Bytes as the notes have them."""
    return b64encode(data).decode()


def unpacked(text: str) -> bytes:
    """The inverse of `packed`."""
    return b64decode(text)


def noted(claimed: Claimed) -> str:
    """The handle of a claim, as a worker would keep it. Both stores share their notes, so the name
    of the store is left out."""
    return packed(replace(claimed.handle, backend="").encode())


def handle(lab: Lab, text: str) -> Handle:
    """The inverse of `noted`."""
    return replace(Handle.decode(unpacked(text)), backend=lab.engine.backend_label())
