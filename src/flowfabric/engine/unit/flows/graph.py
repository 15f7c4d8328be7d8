"""The graph of a flow as one transaction sees it: its row is locked, the rest is read under it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from flowfabric.engine.unit.flows.edges import Edges
from flowfabric.engine.unit.flows.locks import Locks
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.view import View
from flowfabric.errors import Corruption
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.flow.cascade import MemberKey
from flowfabric.kernel.flow.flow import Change
from flowfabric.kernel.flow.join import as_met, perhaps_met
from flowfabric.kernel.hook.flow_ended import is_end
from flowfabric.kernel.wait.watch import owed_flow
from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeRow, FlowRow, MemberRow
from flowfabric.model.record import Record, replace
from flowfabric.model.schedule import ID_TAG
from flowfabric.stores.base import Corrupt, Transaction
from flowfabric.stores.indexes import CHILDREN, Search, by_key
from flowfabric.stores.tables import FLOWS, MEMBERS, WATCHES, Key

R = TypeVar("R")
COUNTED: Final = ("succeeded", "failed", "skipped", "group_state", "satisfied_at")


def refuse_corrupt(found: Corrupt) -> Refused:
    """An execution's row cannot be read, so nothing is decided about it."""
    return Refused(Corruption, f"execution {found.execution_id}: {found.detail}")


class Graph:
    """Loads flows, members and edges, and takes their changes into the transaction. All of it is
    touched only under the lock of the flow's row."""

    def __init__(self, tx: Transaction, view: View, overlay: Overlay) -> None:
        self.tx = tx
        self.view = view
        self.overlay = overlay
        self.locks = Locks(tx, view, overlay)
        self.edges = Edges(view, overlay)
        self.loaded: set[MemberKey] = set()  # members whose rows were looked for

    @property
    def at(self) -> Moment:
        """The time of the transaction."""
        return self.view.at

    def flow(self, flow_id: str) -> FlowRow | None:
        """A flow that is locked."""
        return self.view.rows.get(FLOWS, (flow_id,))

    def execution(self, execution_id: str) -> Execution | Refused:
        """An execution that a command names, and so is loaded."""
        found = self.view.executions.get(execution_id)
        if isinstance(found, Corrupt):
            return refuse_corrupt(found)
        return not_found(execution_id) if found is None else found

    # --- members -------------------------------------------------------------------------------

    async def load_members(
        self, keys: Iterable[MemberKey], *, are_open: bool = False
    ) -> dict[MemberKey, MemberRow]:
        """The rows of members. `are_open`: an edge of each is known to be open, so that no group
        among them was met by an edge alone."""
        wanted = set(keys)
        if new := sorted(wanted - self.loaded):
            self.view.rows.settle(MEMBERS)
            self.loaded.update(new)
            found = await self.tx.peek_rows(MEMBERS, new)
            images = found if are_open else await self._as_met(found)
            self.view.rows.take(MEMBERS, found, images)
        rows = self.view.rows
        return {key: row for key in wanted if (row := rows.get(MEMBERS, key)) is not None}

    async def _as_met(self, members: Mapping[Key, MemberRow]) -> Mapping[Key, MemberRow]:
        """Members that were read, as they stand: an edge alone may have met their groups. Flows of
        parents ask this at every end; others only when a graph is changed or replayed."""
        asked = perhaps_met(members.values())
        return as_met(members, await self.edges.satisfied(asked)) if asked else members

    async def load_member(self, flow_id: str, execution_id: str) -> MemberRow | None:
        """The row of one member."""
        key = (flow_id, execution_id)
        return (await self.load_members([key])).get(key)

    def member(self, flow_id: str, execution_id: str) -> MemberRow | None:
        """A member that was loaded."""
        return self.view.rows.get(MEMBERS, (flow_id, execution_id))

    async def children_of(self, parent_id: str) -> list[str]:
        """The ids of what an execution spawned."""
        found = await self.overlay.search_keys(Search(CHILDREN, ((parent_id,),)))
        return [key[1] for key in found]

    async def member_ids(self, flow_id: str) -> list[str]:
        """The ids of all members of a flow."""
        found = await self.overlay.search_keys(Search(by_key(MEMBERS), ((flow_id,),)))
        return [key[1] for key in found]

    # --- changes -------------------------------------------------------------------------------

    def apply(
        self,
        decision: Decision[R],
        before: Execution | None = None,
        command: Command[object] | None = None,
    ) -> R | Refused:
        """Take a decision into the transaction: the graph's rows here, the rest by the view."""
        others: list[Record] = []
        for record in decision.saves:
            match record:
                case FlowRow():
                    self._put_flow(record)
                case MemberRow():
                    self.put_member(record)
                case EdgeRow():
                    self.edges.put(record)
                case _:
                    others.append(record)
        for record in decision.drops:
            if isinstance(record, EdgeRow):
                self.edges.drop(record)
        rest = replace(decision, saves=tuple(others), drops=())
        return self.view.apply(before, rest, command)

    def take_change(self, change: Change) -> None:
        """The next image of a flow, with what is published of it."""
        self._put_flow(change.flow)
        for event in change.events:
            self.view.changes.log(event)

    def _put_flow(self, flow: FlowRow) -> None:
        """The next image of a flow; its end wakes those that wait for it."""
        before = self.flow(flow.flow_id)
        self.view.rows.put(FLOWS, flow)
        if flow.hooks is not None and is_end(before, flow):
            self.view.flow_ends.append(flow)
        if flow.finished_at is not None and (before is None or before.finished_at is None):
            self.view.effects.flows_ended.append(flow.flow_id)
            if ID_TAG in flow.tags:
                self.view.rows.put(WATCHES, owed_flow(flow, self.at))

    def put_member(self, member: MemberRow, fields: tuple[str, ...] | None = None) -> None:
        """The next image of a member, of which only these fields may differ."""
        key = (member.flow_id, member.execution_id)
        if self.view.rows.get(MEMBERS, key) is None:  # new, also if it was looked for before
            self.loaded.add(key)
        self.view.rows.put_at(MEMBERS, key, member, fields)

    def add(self, members: Iterable[MemberRow], edges: Iterable[EdgeRow]) -> None:
        """Many new members and edges, without an image of each."""
        self.view.rows.add(MEMBERS, members)
        self.edges.add(edges)
