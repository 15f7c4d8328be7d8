"""The edges of graphs as one transaction sees and changes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from flowfabric.engine.unit.flows.unsaved import Look, Unsaved
from flowfabric.engine.unit.view import View
from flowfabric.kernel.flow.cascade import AnyEdge
from flowfabric.kernel.flow.join import EdgeEnd
from flowfabric.model.flow import EdgeAhead, EdgeRow, EdgeState
from flowfabric.model.record import fields_of, replace
from flowfabric.stores.base import Transaction
from flowfabric.stores.tables import EDGES, EDGES_AHEAD, Key, Table

E = TypeVar("E", EdgeRow, EdgeAhead)
_CHANGING: Final = ("edge_state", "resolved_at", "resolved_generation", "is_sole")


class Edges:
    """Searches edges, and takes their changes into the transaction."""

    def __init__(self, tx: Transaction, view: View, unsaved: Unsaved) -> None:
        self._tx = tx
        self._rows = view.rows
        self._unsaved = unsaved
        self._ends: dict[Key, EdgeEnd] = {}  # of edges resolved here that have no image

    async def get(self, flow_id: str, edge_id: str) -> EdgeRow | None:
        """One edge by its id."""
        key = (flow_id, edge_id)
        if (image := self._rows.get(EDGES, key)) is not None:
            return image
        await self._unsaved.save_before(Look.BY_KEY)
        found = await self._tx.peek_rows(EDGES, [key])
        return self._as_it_stands(found[key]) if found else None

    async def leaving(
        self,
        ids: Sequence[str],
        state: EdgeState | None = EdgeState.APPLIED,
        limit: int | None = None,
    ) -> list[EdgeAhead]:
        """Edges that leave executions, in this state."""
        return await self._search(EDGES_AHEAD, "upstream_execution_id", ids, state, limit)

    async def leading_to(self, ids: Sequence[str], state: EdgeState | None = None) -> list[EdgeRow]:
        """Edges that lead to executions."""
        return await self._search(EDGES, "downstream_execution_id", ids, state)

    async def satisfied(self, ids: Sequence[str]) -> list[EdgeAhead]:
        """Edges that lead to executions and were satisfied."""
        column, state = "downstream_execution_id", EdgeState.SATISFIED
        return await self._search(EDGES_AHEAD, column, ids, state)

    async def _search(
        self,
        table: Table[E],
        column: str,
        ids: Sequence[str],
        state: EdgeState | None,
        limit: int | None = None,
    ) -> list[E]:
        is_resolved = state in (EdgeState.SATISFIED, EdgeState.IMPOSSIBLE)
        await self._unsaved.save_before(Look.SEARCH_RESOLVED if is_resolved else Look.SEARCH)
        only = None if state is None else ("edge_state", state.value)
        found = await self._tx.rows_by(table, column, ids, only=only, limit=limit)
        if self._ends or self._rows.has(EDGES):
            found = list(map(self._as_it_stands, found))
        return [each for each in found if state is None or each.edge_state is state]

    def _as_it_stands(self, edge: E) -> E:
        """An edge that was read, after what this transaction has done to it."""
        key = (edge.flow_id, edge.edge_id)
        if (image := self._rows.get(EDGES, key)) is not None:
            return replace(edge, **{name: getattr(image, name) for name in _CHANGING})
        end = self._ends.get(key)
        return edge if end is None else replace(edge, **fields_of(end))

    def add(self, edges: Iterable[EdgeRow]) -> None:
        """Many new edges, without an image of each."""
        self._rows.add(EDGES, edges)
        self._unsaved.note(Look.BY_KEY)

    def put(self, edge: EdgeRow) -> None:
        """The next image of an edge. One that is staged is new: no rule leads back to that."""
        key = (edge.flow_id, edge.edge_id)
        if edge.edge_state is EdgeState.PENDING:
            self._rows.put_at(EDGES, key, edge)
            self._unsaved.note(Look.SEARCH)
            return
        self._remember(key, edge)
        self._rows.put_at(EDGES, key, edge, (*_CHANGING, "applied_at"))
        is_applied = edge.edge_state is EdgeState.APPLIED
        self._unsaved.note(Look.SEARCH if is_applied else Look.SEARCH_RESOLVED)

    def drop(self, edge: EdgeRow) -> None:
        """An edge is gone, also for later commands of this transaction."""
        key = (edge.flow_id, edge.edge_id)
        self._remember(key, edge)
        self._rows.drop(EDGES, [key])
        self._unsaved.note(Look.BY_KEY)

    def _remember(self, key: Key, edge: EdgeRow) -> None:
        """An edge without an image was read, so its row is stored."""
        if self._rows.get(EDGES, key) is None:
            self._rows.take(EDGES, {key: edge})

    def end(self, edges: Sequence[AnyEdge], ends: Mapping[str, EdgeEnd]) -> None:
        """Resolve edges by the ends of their upstreams. There may be thousands: those without an
        image get none, and those with the same end are written together."""
        has_images = self._rows.has(EDGES)
        alike: defaultdict[EdgeEnd, list[Key]] = defaultdict(list)
        for edge in edges:
            key, end = (edge.flow_id, edge.edge_id), ends[edge.upstream_execution_id]
            if has_images and (image := self._rows.get(EDGES, key)) is not None:
                self.put(replace(image, **fields_of(end)))
            else:
                alike[end].append(key)
                self._ends[key] = end
        for end, keys in alike.items():
            self._rows.set_alike(EDGES, keys, end)
        self._unsaved.note(Look.SEARCH_RESOLVED)
