"""Flows inside one transaction: the parts, and what the unit of work asks of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

from flowfabric.engine.unit.due import Due
from flowfabric.engine.unit.flows.cascade import Cascade
from flowfabric.engine.unit.flows.catch_up import CatchUp
from flowfabric.engine.unit.flows.deferred import Deferred
from flowfabric.engine.unit.flows.graph import Graph
from flowfabric.engine.unit.flows.joins import Joins
from flowfabric.engine.unit.flows.purge import Purge
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.view import View
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.execution.complete import Complete
from flowfabric.kernel.execution.fail import Fail
from flowfabric.kernel.flow.children import family_of
from flowfabric.model.execution import Execution
from flowfabric.model.flow import MemberRow, TaskRow
from flowfabric.stores.base import Corrupt, Transaction
from flowfabric.stores.tables import FLOW_TASKS, FLOWS, MEMBERS

_REPORTING: Final = frozenset((Complete, Fail))  # decided without a look at their flows
HELD_LATER_FROM: Final = 50  # so many commands at once


async def members_of(tx: Transaction, flow_ids: Iterable[str]) -> set[str]:
    """The members of flows that are to be cancelled: they are locked before their flow."""
    keys = sorted((each,) for each in flow_ids)
    return {key[1] for key in await tx.peek_rows(MEMBERS, keys)}


def flows_named(need: Needs, executions: Mapping[str, Execution | Corrupt]) -> set[str]:
    """The flows that commands are about: named by them, or by the executions they name."""
    wanted = set(need.flows)
    for key in need.flows_of:
        execution = executions.get(key)
        if isinstance(execution, Execution):
            if execution.flow_id is not None:
                wanted.add(execution.flow_id)
            elif key in need.families:
                wanted.add(family_of(execution))
    return wanted


class Flows:
    """Flows as one transaction sees and changes them."""

    def __init__(self, tx: Transaction, view: View, overlay: Overlay) -> None:
        self._view = view
        self.graph = Graph(tx, view, overlay)
        self.deferred = Deferred(tx, view, overlay)
        self.joins = Joins(self.graph, self.deferred)
        self.cascade = Cascade(self.graph, self.deferred, self.joins)

    @cached_property
    def _catch_up(self) -> CatchUp:
        return CatchUp(self.graph, self.deferred, self.joins, self.cascade)

    async def prepare(self, flow_ids: set[str], commands: Sequence[Command[object]]) -> None:
        """Lock the flows that the commands are about, in one order."""
        if _are_many_ends(commands):
            self.graph.locks.lock_later(flow_ids)
        else:
            await self.graph.locks.lock(flow_ids)

    async def follow_up(self) -> None:
        """Everything that follows from members that ended or live again."""
        await self.cascade.follow_up()

    async def hold_due(self, executions: Iterable[Execution], due: Due) -> None:
        """Lock every flow this look at what is due may touch, at once and so in one order."""
        members = {each.flow_id for each in executions if each.flow_id is not None}
        theirs = {key[0] for key in (*due.of(FLOW_TASKS), *due.of(FLOWS))}
        await self.graph.locks.lock(members | theirs)

    async def perform(self, task: TaskRow) -> list[str]:
        """Do one piece of deferred work now; the executions that it cancelled."""
        await self._catch_up.work_off([task])
        return self._catch_up.cancelled

    async def siblings_of(self, member: MemberRow) -> list[str]:
        """The upstreams that a decided group of this member would cancel."""
        return await self._catch_up.siblings_of(member)

    async def move_due(self, due: Due) -> int:
        """Do what is due for flows that are locked; how much was done."""
        tasks = await self.deferred.due(due.of(FLOW_TASKS))
        if tasks:
            await self._catch_up.work_off(tasks)
        done = len(tasks)
        for (flow_id,) in due.of(FLOWS):
            flow = self.graph.flow(flow_id)
            if flow is not None and flow.due_at is not None and flow.due_at <= self._view.at.now:
                done += await Purge(self.graph, self.deferred).purge(flow)
        return done


def _are_many_ends(commands: Sequence[Command[object]]) -> bool:
    """Whether so many ends are reported at once that they are written before their flows are
    locked: deciding them needs no flow, and other transactions go on with the graph meanwhile."""
    return len(commands) >= HELD_LATER_FROM and all(type(each) in _REPORTING for each in commands)
