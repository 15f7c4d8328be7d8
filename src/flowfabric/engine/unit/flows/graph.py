"""The graph of a flow as one transaction sees it: its row is held, the rest is read under it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from flowfabric.engine.unit.view import View
from flowfabric.kernel.decision import Moment
from flowfabric.kernel.flow.flow import Change
from flowfabric.kernel.flow.join import EdgeEnd, as_met, perhaps_met
from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    EdgeAhead,
    EdgeRow,
    EdgeState,
    FlowRow,
    MemberRow,
    TaskKind,
    TaskRow,
)
from flowfabric.model.record import fields_of, replace
from flowfabric.stores.base import Corrupt, StoreConflict, Transaction
from flowfabric.stores.tables import EDGES, EDGES_AHEAD, FLOW_TASKS, FLOWS, MEMBERS, Key, Table

AnyEdge = EdgeRow | EdgeAhead
E = TypeVar("E", EdgeRow, EdgeAhead)
_CHANGING = ("edge_state", "resolved_at", "resolved_generation", "is_sole")


class FlowRows:
    """Loads flows, members, edges and what is owed, and takes their changes into the batch.

    Nobody touches a graph without its flow's row, and whoever has that waits for no execution any
    more: those are taken only if they are free. So there is one order of locks.
    """

    def __init__(self, tx: Transaction, view: View) -> None:
        self.tx = tx
        self.view = view
        self._held: set[str] = set()
        self.later: set[str] = set()  # to be held together with the first one that is needed
        self._members: set[tuple[str, str]] = set()  # whose rows were looked for
        self._is_unsaved = False  # whether searches would miss what this batch added
        self._is_unseen = False  # whether even a look by key would
        self._resolved: dict[Key, EdgeEnd] = {}  # edges this batch resolved, which have no image
        self._has_resolved = False  # whether searches would miss that too
        self._owed: dict[Key, TaskRow] = {}  # not yet compared with what was owed before

    @property
    def at(self) -> Moment:
        """The time of the transaction."""
        return self.view.at

    # --- loading -------------------------------------------------------------------------------

    async def hold(self, flow_ids: Iterable[str]) -> None:
        """Lock flows, in one order."""
        new = sorted((self.later | set(flow_ids)) - self._held)
        if new:
            if self.later:
                self.later = set()
                await self.save()
            self._held.update(new)
            self.view.rows.take(FLOWS, await self.tx.rows(FLOWS, [(each,) for each in new]))

    def flow(self, flow_id: str) -> FlowRow | None:
        """A flow that is held."""
        return self.view.rows.get(FLOWS, (flow_id,))

    async def members(self, keys: Iterable[tuple[str, str]], *, are_open: bool = False) -> None:
        """The rows of members, by flow and execution; `are_open`: an edge of each is open, so that
        none is met by it."""
        new = sorted(set(keys) - self._members)
        if new:
            await self._see_graph()
            self._members.update(new)
            found = await self.tx.peek_rows(MEMBERS, new)
            images = found if are_open else await self._as_met(found)
            self.view.rows.take(MEMBERS, found, images)

    async def _as_met(self, members: Mapping[Key, MemberRow]) -> Mapping[Key, MemberRow]:
        """Members that were read, with what their sole edges know. Flows of parents ask this at
        every end; others only when a graph is changed or replayed."""
        asked, column = perhaps_met(members.values()), "downstream_execution_id"
        if not asked:
            return members
        met = await self._edges(EDGES_AHEAD, column, asked, EdgeState.SATISFIED, None)
        return as_met(members, met)

    def is_seen(self, flow_id: str, execution_id: str) -> bool:
        """Whether a member was looked for in this batch."""
        return (flow_id, execution_id) in self._members

    def member(self, flow_id: str, execution_id: str) -> MemberRow | None:
        """A member that was looked for."""
        return self.view.rows.get(MEMBERS, (flow_id, execution_id))

    async def children_of(self, parent_id: str) -> list[str]:
        """Those an execution spawned."""
        await self.flush()
        found = await self.tx.rows_by(MEMBERS, "parent_id", [parent_id])
        return [each.execution_id for each in found]

    async def out_edges(
        self,
        ids: Sequence[str],
        state: EdgeState | None = EdgeState.APPLIED,
        limit: int | None = None,
    ) -> list[EdgeAhead]:
        """Edges that leave executions, in this state."""
        return await self._edges(EDGES_AHEAD, "upstream_execution_id", ids, state, limit)

    async def in_edges(self, ids: Sequence[str], state: EdgeState | None = None) -> list[EdgeRow]:
        """Edges that lead to executions."""
        return await self._edges(EDGES, "downstream_execution_id", ids, state, None)

    async def _edges(
        self,
        table: Table[E],
        column: str,
        ids: Sequence[str],
        state: EdgeState | None,
        limit: int | None,
    ) -> list[E]:
        if state in (EdgeState.SATISFIED, EdgeState.IMPOSSIBLE) and self._has_resolved:
            self._is_unsaved = True
        await self.flush()
        only = None if state is None else ("edge_state", state.value)
        found = await self.tx.rows_by(table, column, ids, only=only, limit=limit)
        if self._resolved or self.view.rows.has(EDGES):
            found = list(map(self._as_it_stands, found))
        return [each for each in found if state is None or each.edge_state is state]

    async def edge(self, flow_id: str, edge_id: str) -> EdgeRow | None:
        """One edge by its id."""
        key = (flow_id, edge_id)
        if (image := self.view.rows.get(EDGES, key)) is not None:
            return image
        await self._see_graph()
        found = await self.tx.peek_rows(EDGES, [key])
        return self._as_it_stands(found[key]) if found else None

    def _as_it_stands(self, edge: E) -> E:
        """An edge that was read, after what this batch has done to it."""
        key = (edge.flow_id, edge.edge_id)
        if (image := self.view.rows.get(EDGES, key)) is not None:
            return replace(edge, **{name: getattr(image, name) for name in _CHANGING})
        end = self._resolved.get(key)
        return edge if end is None else replace(edge, **fields_of(end))

    async def free(self, ids: Iterable[str]) -> dict[str, Execution | None]:
        """Executions that nobody else holds, as they stand; none for one that cannot be read."""
        wanted = sorted(set(ids))
        here = self.view.executions
        missing = [key for key in wanted if key not in here]
        if missing:
            here.update(await self.tx.load_free(missing))
        return {
            key: None if isinstance(here[key], Corrupt) else here[key]  # type: ignore[misc]
            for key in wanted
            if key in here
        }

    async def need(self, ids: Iterable[str]) -> None:
        """Executions without which it cannot go on. Their flow is held already, so nobody is waited
        for: if one is taken, everything is tried again."""
        wanted = set(ids) - self.view.executions.keys()
        held = sorted(wanted - (await self.free(wanted)).keys()) if wanted else []
        if held and await self.tx.bodies(held):  # what is not there is not held
            raise StoreConflict(f"execution {held[0]} is held")

    # --- changing ------------------------------------------------------------------------------

    def put_flow(self, flow: FlowRow) -> None:
        """The next image of a flow."""
        self._held.add(flow.flow_id)
        self.view.rows.put(FLOWS, flow)

    def take_change(self, change: Change) -> FlowRow:
        """A flow's next image with its events; whoever waits for its end is woken."""
        before = self.flow(change.flow.flow_id)
        self.put_flow(change.flow)
        self.view.changes.flow_events.extend(change.events)
        ended = change.flow.finished_at is not None
        if ended and (before is None or before.finished_at is None):
            self.view.effects.flows_ended.append(change.flow.flow_id)
        return change.flow

    def put_member(self, member: MemberRow, fields: tuple[str, ...] | None = None) -> None:
        """The next image of a member, of which only these fields may differ."""
        key = (member.flow_id, member.execution_id)
        if self.view.rows.get(MEMBERS, key) is None:  # new, also if it was looked for before
            self._members.add(key)
            self._is_unsaved = True
        self.view.rows.put_at(MEMBERS, key, member, fields)

    def add_edge(self, edge: EdgeRow) -> None:
        """A new edge."""
        self.view.rows.put_at(EDGES, (edge.flow_id, edge.edge_id), edge)
        self._is_unsaved = True

    def add_graph(self, members: Iterable[MemberRow], edges: Iterable[EdgeRow]) -> None:
        """Members and edges that nobody knows yet."""
        self.view.rows.add(MEMBERS, members)
        self.view.rows.add(EDGES, edges)
        self._is_unsaved = self._is_unseen = True

    def put_edge(self, edge: EdgeRow) -> None:
        """The next image of an edge."""
        key, rows = (edge.flow_id, edge.edge_id), self.view.rows
        if rows.get(EDGES, key) is None:  # it was read
            rows.take(EDGES, {key: edge})
        rows.put_at(EDGES, key, edge, (*_CHANGING, "applied_at"))
        if edge.edge_state is EdgeState.APPLIED:
            self._is_unsaved = True
        else:
            self._has_resolved = True

    def drop_edge(self, edge: EdgeRow) -> None:
        """An edge is gone, also for later commands of this batch."""
        key, rows = (edge.flow_id, edge.edge_id), self.view.rows
        if rows.get(EDGES, key) is None:  # it was read
            rows.take(EDGES, {key: edge})
        rows.drop(EDGES, [key])
        self._is_unsaved = self._is_unseen = True

    def end_edges(self, edges: Sequence[AnyEdge], ends: Mapping[str, EdgeEnd]) -> None:
        """Their upstreams have ended so. Edges are resolved by the thousand: most are written
        together, without an image each."""
        rows = self.view.rows
        has_images = rows.has(EDGES)
        alike: defaultdict[EdgeEnd, list[Key]] = defaultdict(list)
        for edge in edges:
            key, end = (edge.flow_id, edge.edge_id), ends[edge.upstream_execution_id]
            if has_images and (image := rows.get(EDGES, key)) is not None:
                self.put_edge(replace(image, **fields_of(end)))
            else:
                alike[end].append(key)
                self._resolved[key] = end
        for end, keys in alike.items():
            rows.set_alike(EDGES, keys, end)
        self._has_resolved = True

    def owe(
        self,
        flow_id: str,
        kind: TaskKind,
        execution_id: str,
        reason: str = "",
        *,
        after_ms: int = 0,
        tries: int = 0,
    ) -> None:
        """Leave something to be done by whoever looks next."""
        task = TaskRow(flow_id, kind, execution_id, reason, tries, self.at.now + after_ms)
        self._owed[FLOW_TASKS.key_of(task)] = task

    async def note_owed(self) -> None:
        """Take what is owed into the batch. The same may have been owed before: then its row is
        there, and what is asked now counts."""
        if not self._owed:
            return
        owed, self._owed = self._owed, {}
        rows = self.view.rows
        missing = [key for key in sorted(owed) if rows.get(FLOW_TASKS, key) is None]
        if missing:
            rows.take(FLOW_TASKS, await self.tx.rows(FLOW_TASKS, missing))
        for task in owed.values():
            rows.put(FLOW_TASKS, task)

    async def forget_tasks(self, keys: Sequence[Key]) -> list[Key]:
        """Whatever of these was owed is owed no more; what that was."""
        rows = self.view.rows
        rows.take(FLOW_TASKS, await self.tx.rows(FLOW_TASKS, sorted(keys)))
        owed = [key for key in keys if rows.get(FLOW_TASKS, key) is not None]
        rows.drop(FLOW_TASKS, owed)
        return owed

    async def _see_graph(self) -> None:
        if self._is_unseen:
            await self.flush()

    async def flush(self) -> None:
        """Write what searches must see."""
        if self._is_unsaved:
            await self.save()

    async def save(self) -> None:
        """Write what was decided so far."""
        self._is_unsaved = self._is_unseen = self._has_resolved = False
        if changes := self.view.take_changes():
            await self.tx.save(changes)
