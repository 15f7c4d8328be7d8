"""Tags of executions with a fair key, given in the transaction that creates them."""

from __future__ import annotations

from collections.abc import Iterable

from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.view import View
from flowfabric.kernel.order.fair import Queue, clock_of, queue_of, row_of, started
from flowfabric.model.execution import Execution
from flowfabric.model.fair import FairPhase, FairRow
from flowfabric.model.record import replace
from flowfabric.stores.indexes import FAIR_KEYS, FAIR_TAGS, Search
from flowfabric.stores.tables import FAIR


class Fairs:
    """The queues of fair keys that one transaction adds to.

    Nothing is locked: two transactions may give two executions of a key the same tag, which costs
    the others a place at most. For the same reason each clock is read once.
    """

    def __init__(self, view: View, overlay: Overlay) -> None:
        self._view = view
        self._overlay = overlay
        self._clocks: dict[Queue, int] = {}
        self._last: dict[tuple[Queue, str], int | None] = {}

    async def follow(self, moves: Iterable[tuple[Execution | None, Execution]]) -> None:
        """Give new executions their tags: searches for the clock of each queue, and one for each
        key."""
        for before, after in moves:
            if before is None and after.ties.fair is not None and not after.ties.fair.tag:
                await self._tag(after, after.ties.fair.key)

    async def _tag(self, new: Execution, key: str) -> None:
        view, queue = self._view, queue_of(new)
        if queue not in self._clocks:
            self._clocks[queue] = await self._clock(queue)
        whose = (queue, key)
        if whose not in self._last:
            found = await self._greatest(Search(FAIR_KEYS, ((*queue, key),), limit=1))
            self._last[whose] = None if found is None else found.finish
        weight = 1 if view.catalog is None else view.catalog.fair_weight(new.lane_id, key)
        tagged = started(key, self._clocks[queue], self._last[whose], weight)
        changed = view.retie(new.execution_id, replace(new.ties, fair=tagged))
        if changed is not None and (row := row_of(changed)) is not None:
            self._last[whose] = tagged.finish
            view.rows.put(FAIR, row)

    async def _clock(self, queue: Queue) -> int:
        """The clock of a queue, as far as it can be read."""
        running = await self._greatest(Search(FAIR_TAGS, ((*queue, FairPhase.RUNNING),), limit=1))
        ready = None
        if running is None:
            search = Search(FAIR_TAGS, ((*queue, FairPhase.READY),), limit=1, skips_corrupt=True)
            ready = next(iter(await self._overlay.search(search)), None)
        return clock_of(running, ready, self._view.at.now)

    async def _greatest(self, search: Search[FairRow]) -> FairRow | None:
        """The last by its index; one that cannot be read is passed over."""
        found = await self._overlay.search(replace(search, is_backwards=True, skips_corrupt=True))
        return found[0] if found else None
