"""What ties lead to: in the transaction of an execution's creation, and in that of its end.

Locks are taken in one order: executions, then flows, then rows of ties, then limits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from flowfabric.engine.unit.fair import Fairs
from flowfabric.engine.unit.flows.graph import Graph
from flowfabric.engine.unit.lines import Lines
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.successors import Successors
from flowfabric.engine.unit.uniques import Uniques
from flowfabric.engine.unit.view import View
from flowfabric.stores.base import Transaction


class Tied:
    """Ties as one transaction sees and changes them."""

    def __init__(
        self, tx: Transaction, view: View, overlay: Overlay, graph: Callable[[], Graph]
    ) -> None:
        self._tx = tx
        self._view = view
        self._overlay = overlay
        self.successors = Successors(tx, view, graph)

    @cached_property
    def lines(self) -> Lines:
        """The lines of serial keys."""
        return Lines(self._tx, self._view, self._overlay)

    @cached_property
    def fairs(self) -> Fairs:
        """The tags of fair keys."""
        return Fairs(self._view, self._overlay)

    @cached_property
    def uniques(self) -> Uniques:
        """Unique keys."""
        return Uniques(self._tx, self._view)

    async def follow_up(self) -> None:
        """Everything that follows from tied executions that were created, ended or live again, and
        from ends of flows with hooks."""
        moves = self._view.take_tied_moves()
        await self.fairs.follow(moves)
        await self.successors.follow(moves)
        if ended := self._view.take_flow_ends():
            await self.successors.follow_flows(ended)
        if freed := self._view.shifts.take_keys():
            await self.uniques.follow_up(freed)
        if moved := self._view.shifts.take_lines():
            await self.lines.follow_up(moved)
