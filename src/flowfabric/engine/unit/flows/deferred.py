"""Work on flows that is left for later: the rows of `ff_flow_task`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.view import View
from flowfabric.kernel.flow.deferred import defer, put_off
from flowfabric.model.flow import TaskKind, TaskRow
from flowfabric.stores.base import Transaction
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import FLOW_TASKS, Key


class Deferred:
    """What this transaction defers, and the deferred work it looks at."""

    def __init__(self, tx: Transaction, view: View, overlay: Overlay) -> None:
        self._tx = tx
        self._view = view
        self._overlay = overlay
        self._new: dict[Key, TaskRow] = {}  # not yet compared with what was deferred before

    def add(
        self,
        flow_id: str,
        kind: TaskKind,
        execution_id: str,
        reason: str = "",
        *,
        after_ms: int = 0,
        tries: int = 0,
    ) -> None:
        """Defer a piece of work."""
        at = self._view.at
        task = defer(flow_id, kind, execution_id, reason, at, after_ms=after_ms, tries=tries)
        self._new[FLOW_TASKS.key_of(task)] = task

    async def record(self) -> None:
        """Take what was deferred into the transaction. The same work may have been deferred before:
        then its row is there, and is overwritten."""
        if not self._new:
            return
        new, self._new = self._new, {}
        rows = self._view.rows
        missing = [key for key in sorted(new) if rows.get(FLOW_TASKS, key) is None]
        if missing:
            rows.take(FLOW_TASKS, await self._tx.rows(FLOW_TASKS, missing))
        for task in new.values():
            rows.put(FLOW_TASKS, task)

    async def due(self, keys: Sequence[Key]) -> list[TaskRow]:
        """Those of these pieces that are due now, in the same order."""
        if not keys:
            return []
        rows, now = self._view.rows, self._view.at.now
        rows.take(FLOW_TASKS, await self._tx.rows(FLOW_TASKS, sorted(keys)))
        found = (rows.get(FLOW_TASKS, key) for key in keys)  # also what this batch deferred
        return [each for each in found if each is not None and each.due_at <= now]

    async def find(self, flow_id: str, kind: TaskKind, execution_id: str) -> TaskRow | None:
        """A piece of work that was deferred, whether it is due or not."""
        key = (flow_id, kind, execution_id)
        self._view.rows.take(FLOW_TASKS, await self._tx.rows(FLOW_TASKS, [key]))
        return self._view.rows.get(FLOW_TASKS, key)

    async def cancels_of(self, flow_id: str) -> list[TaskRow]:
        """The deferred cancels of a flow's members, this transaction's included."""
        rows = self._view.rows
        rows.take(FLOW_TASKS, await self._tx.peek_rows(FLOW_TASKS, [(flow_id,)]))
        return rows.group(FLOW_TASKS, (flow_id, TaskKind.CANCEL_MEMBER))

    def done(self, task: TaskRow) -> None:
        """A piece of work is finished."""
        self._view.rows.drop(FLOW_TASKS, [FLOW_TASKS.key_of(task)])

    def put_off(self, task: TaskRow, *, is_locked: bool) -> None:
        """A piece of work is not finished: a row was locked, or it was too much at once."""
        self._view.rows.put(FLOW_TASKS, put_off(task, self._view.at, is_locked=is_locked))

    async def forget(self, keys: Iterable[Key]) -> list[Key]:
        """Drop those of these pieces that were deferred; which they were."""
        rows, wanted = self._view.rows, sorted(keys)
        rows.take(FLOW_TASKS, await self._tx.rows(FLOW_TASKS, wanted))
        known = [key for key in wanted if rows.get(FLOW_TASKS, key) is not None]
        rows.drop(FLOW_TASKS, known)
        return known

    async def forget_flow(self, flow_id: str) -> None:
        """The flow is gone, and so is all that was deferred for it."""
        found = await self._overlay.search(Search(by_key(FLOW_TASKS), ((flow_id,),)))
        keyed = {FLOW_TASKS.key_of(each): each for each in found}
        self._view.rows.take(FLOW_TASKS, keyed)
        self._view.rows.drop(FLOW_TASKS, keyed)
