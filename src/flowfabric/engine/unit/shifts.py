"""Executions that may take or leave places in lines, or give up their keys."""

from __future__ import annotations

from flowfabric.kernel.order.line import changes_place
from flowfabric.kernel.order.unique import gives_up_key
from flowfabric.model.execution import Execution
from flowfabric.model.ties import UNTIED


class Shifts:
    """What is still to follow from moves of executions that have a serial or a unique key."""

    __slots__ = ("_keys", "_lines")

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}
        self._keys: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._lines or self._keys)

    def note(self, before: Execution | None, after: Execution) -> None:
        """An execution was created, or has changed."""
        if after.ties is UNTIED:
            return
        if after.ties.serial_key is not None and changes_place(before, after):
            self._lines[after.execution_id] = None
        if before is not None and gives_up_key(before, after):
            self._keys[after.execution_id] = None

    def take_lines(self) -> list[str]:
        """Executions with a serial key that may join or leave their line, each told once."""
        moves, self._lines = self._lines, {}
        return list(moves)

    def take_keys(self) -> list[str]:
        """Executions that give up their unique keys, each told once."""
        moves, self._keys = self._keys, {}
        return list(moves)
