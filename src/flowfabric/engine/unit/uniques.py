"""The unique keys that one transaction touches.

The execution that has a key is locked before the row of the key: it is looked up first. If another
one has got the key in between, the transaction is run again.
"""

from __future__ import annotations

from collections.abc import Iterable

from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.view import View
from flowfabric.errors import Corruption
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.order.unique import has_key, key_of
from flowfabric.model.execution import Execution
from flowfabric.model.unique import UniqueRow
from flowfabric.stores.base import StoreConflict, Transaction
from flowfabric.stores.tables import UNIQUES, Key


async def owners_of(tx: Transaction, keys: Iterable[Key]) -> set[str]:
    """The executions that have unique keys, as far as that can be read."""
    found, _ = await readable(tx.peek_rows, UNIQUES, sorted(keys))
    return {each.execution_id for each in found.values()}


class Uniques:
    """Unique keys as one transaction sees and changes them."""

    def __init__(self, tx: Transaction, view: View) -> None:
        self._tx = tx
        self._view = view
        self._locked: set[Key] = set()
        self._spoiled: dict[Key, str] = {}

    async def lock(self, keys: Iterable[Key]) -> None:
        """Lock the rows of keys, in the order of the keys."""
        new = sorted({*keys} - self._locked)
        if new:
            self._locked.update(new)
            found, spoiled = await readable(self._tx.rows, UNIQUES, new)
            self._view.rows.take(UNIQUES, found)
            self._spoiled.update(spoiled)

    async def prepare(self, keys: Iterable[Key]) -> None:
        """Lock the rows of the keys that commands name, after the executions that have them."""
        keys = list(keys)
        await self.lock(keys)
        for row in filter(None, (self._view.rows.get(UNIQUES, key) for key in keys)):
            if row.execution_id not in self._view.executions:
                there = await self._tx.get([row.execution_id])
                if row.execution_id in there:
                    raise StoreConflict("a unique key has changed hands", about=[row.execution_id])

    def holder(self, key: Key) -> tuple[UniqueRow, Execution] | Refused | None:
        """The row of a key with the execution that has it; None where none has."""
        if (detail := self._spoiled.get(key)) is not None:
            return Refused(Corruption, detail)
        row = self._view.rows.get(UNIQUES, key)
        if row is None:
            return None
        execution = self._view.executions.get(row.execution_id)
        if execution is not None and not isinstance(execution, Execution):
            return Refused(Corruption, f"execution {row.execution_id}: {execution.detail}")
        unique = None if execution is None else execution.ties.unique
        if execution is None or unique is None or not has_key(execution, unique):
            return None
        return row, execution

    async def follow_up(self, execution_ids: Iterable[str]) -> None:
        """Executions that have ended, or started, give up their keys."""
        moved = [each for each in map(self._view.execution, execution_ids) if each is not None]
        keys = {each.execution_id: key for each in moved if (key := key_of(each)) is not None}
        await self.lock(keys.values())
        for execution_id, key in keys.items():
            row = self._view.rows.get(UNIQUES, key)
            if row is not None and row.execution_id == execution_id:
                self._view.rows.drop(UNIQUES, [key])
