"""The edges of graphs as one transaction sees and changes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.view import View
from flowfabric.kernel.flow.cascade import AnyEdge
from flowfabric.kernel.flow.join import EdgeEnd
from flowfabric.model.flow import EdgeAhead, EdgeRow, EdgeState
from flowfabric.model.record import fields_of, replace
from flowfabric.stores.indexes import (
    EDGES_AHEAD_FROM,
    EDGES_AHEAD_TO,
    EDGES_TO,
    Index,
    Search,
)
from flowfabric.stores.tables import EDGES, Key

E = TypeVar("E", EdgeRow, EdgeAhead)
_CHANGING: Final = ("edge_state", "resolved_at", "resolved_generation", "is_sole", "applied_at")


class Edges:
    """Searches edges, and takes their changes into the transaction."""

    def __init__(self, view: View, overlay: Overlay) -> None:
        self._rows = view.rows
        self._overlay = overlay

    async def get(self, flow_id: str, edge_id: str) -> EdgeRow | None:
        """One edge by its id."""
        return await self._overlay.row(EDGES, (flow_id, edge_id))

    async def leaving(
        self,
        ids: Sequence[str],
        state: EdgeState | None = EdgeState.APPLIED,
        limit: int | None = None,
    ) -> list[EdgeAhead]:
        """Edges that leave executions, in this state."""
        return await self._search(EDGES_AHEAD_FROM, ids, state, limit)

    async def leading_to(self, ids: Sequence[str], state: EdgeState | None = None) -> list[EdgeRow]:
        """Edges that lead to executions."""
        return await self._search(EDGES_TO, ids, state)

    async def satisfied(self, ids: Sequence[str]) -> list[EdgeAhead]:
        """Edges that lead to executions and were satisfied."""
        return await self._search(EDGES_AHEAD_TO, ids, EdgeState.SATISFIED)

    async def _search(
        self, index: Index[E], ids: Sequence[str], state: EdgeState | None, limit: int | None = None
    ) -> list[E]:
        only = () if state is None else (("edge_state", state.value),)
        wanted = tuple((each,) for each in ids)
        return await self._overlay.search(Search(index, wanted, only=only, limit=limit))

    def add(self, edges: Iterable[EdgeRow]) -> None:
        """Many new edges, without an image of each."""
        self._rows.add(EDGES, edges)

    def put(self, edge: EdgeRow) -> None:
        """The next image of an edge. One that is staged is new: no rule leads back to that."""
        key = (edge.flow_id, edge.edge_id)
        if edge.edge_state is EdgeState.PENDING:
            self._rows.put_at(EDGES, key, edge)
            return
        self._remember(key, edge)
        self._rows.put_at(EDGES, key, edge, _CHANGING)

    def drop(self, edge: EdgeRow) -> None:
        """An edge is gone, also for later commands of this transaction."""
        key = (edge.flow_id, edge.edge_id)
        self._remember(key, edge)
        self._rows.drop(EDGES, [key])

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
        for end, keys in alike.items():
            self._rows.set_alike(EDGES, keys, end)
