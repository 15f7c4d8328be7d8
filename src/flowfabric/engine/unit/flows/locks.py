"""The order of locks: executions that commands name, then flows by their ids, then only executions
that are unlocked."""

from __future__ import annotations

from collections.abc import Iterable

from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.view import View
from flowfabric.model.execution import Execution
from flowfabric.stores.base import Corrupt, StoreConflict, Transaction
from flowfabric.stores.tables import FLOWS


class Locks:
    """Locks flows and executions. A transaction that has locked a flow never waits for an
    execution, so there is no cycle of waits."""

    def __init__(self, tx: Transaction, view: View, overlay: Overlay) -> None:
        self._tx = tx
        self._view = view
        self._overlay = overlay
        self._flows: set[str] = set()  # that are locked, or were looked for and are not there
        self._later: set[str] = set()

    async def lock(self, flow_ids: Iterable[str]) -> None:
        """Lock flows, in one order, together with those that were left for later."""
        rows = self._view.rows
        new = self._later.union(flow_ids) - self._flows
        if new := {each for each in new if rows.get(FLOWS, (each,)) is None}:
            if self._later:
                self._later = set()
                await self._overlay.save()
            self._flows |= new
            rows.take(FLOWS, await self._tx.rows(FLOWS, [(each,) for each in sorted(new)]))

    def lock_later(self, flow_ids: Iterable[str]) -> None:
        """Lock these with the first flow that is needed, after what is decided until then was
        written: other transactions go on with the graph meanwhile."""
        self._later = set(flow_ids)

    async def load_unlocked(self, ids: Iterable[str]) -> dict[str, Execution | None]:
        """Those executions that no other transaction has locked, as they stand; None for one that
        cannot be read."""
        wanted = sorted(set(ids))
        here = self._view.executions
        missing = [key for key in wanted if key not in here]
        if missing:
            here.update(await self._tx.load_free(missing))
        found: dict[str, Execution | None] = {}
        for key in wanted:
            if (each := here.get(key)) is not None:
                found[key] = None if isinstance(each, Corrupt) else each
        return found

    async def require(self, ids: Iterable[str]) -> list[Execution]:
        """Lock these executions without waiting; raises StoreConflict if one is locked. Those that
        are gone or cannot be read are left out."""
        wanted = sorted(set(ids))
        missing = [key for key in wanted if key not in self._view.executions]
        if missing:
            found = await self.load_unlocked(missing)
            locked = [key for key in missing if key not in found]
            if locked and await self._tx.bodies(locked):  # what is gone is not locked
                raise StoreConflict("executions are locked", about=locked)
        images = (self._view.executions.get(key) for key in wanted)
        return [each for each in images if isinstance(each, Execution)]
