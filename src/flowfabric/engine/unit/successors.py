"""Successors: what follows the ends of executions, created in the transactions of these ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.flows.graph import Graph
from flowfabric.engine.unit.view import View
from flowfabric.errors import InvalidInput
from flowfabric.ids import derived_uuid, partition_of
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.flow.submit import rows_of, submit_flow
from flowfabric.kernel.hook.ended import create_hook, hooks_due, hooks_of
from flowfabric.kernel.hook.flow_ended import create_flow_hook, flow_hooks_due, life_of
from flowfabric.kernel.hook.undo import UNDO, undo_flow, undo_of, undoes
from flowfabric.model.attempt import Attempt
from flowfabric.model.execution import Execution
from flowfabric.model.flow import FlowRow
from flowfabric.model.journal import EntryRow
from flowfabric.model.route import Route
from flowfabric.model.state import TerminalOutcome
from flowfabric.model.successor import Hook, Role, SuccessorInfo, Undo
from flowfabric.stores.base import Transaction
from flowfabric.stores.tables import JOURNAL, Key

_LOG: Final = logging.getLogger("flowfabric.engine")
Due = tuple[Execution, Role, Hook]  # a hook that an end runs


def successor_id(execution_id: str, life: int, role: Role) -> str:
    """The id of a hook's execution. It follows from the end: that of one life cannot make two."""
    return execution_id[:-36] + derived_uuid(role.value, execution_id, life)


def flow_successor_id(flow: FlowRow, role: Role, partitions: int) -> str:
    """The id of the execution of a flow's hook, by the same rule."""
    number = partition_of(flow.flow_id, partitions)
    return f"{{fp:{number}}}:{derived_uuid(role.value, flow.flow_id, life_of(flow))}"


def undo_flow_id(execution_id: str, life: int, *place: int) -> str:
    """The id of the flow that undoes an execution, by the same rule. `place`: of the entry by which
    its handler asked for it."""
    return derived_uuid(Role.UNDO.value, execution_id, life, *place)


def undo_ids(flow_id: str, count: int, partitions: int) -> list[str]:
    """The ids of its calls."""
    number = partition_of(flow_id, partitions)
    return [f"{{fp:{number}}}:{derived_uuid(flow_id, at)}" for at in range(count)]


def successors_told(execution: Execution) -> tuple[SuccessorInfo, ...]:
    """What follows the end of an execution; once it has ended, only what this end has created."""
    key, life, has_ended = execution.execution_id, execution.replay_count, execution.is_terminal
    told = [
        SuccessorInfo(
            role,
            hook.successor.route.execution_kind,
            successor_id(key, life, role) if has_ended else None,
        )
        for role, hook in (hooks_due(execution) if has_ended else hooks_of(execution.ties.hooks))
    ]
    undos = execution.undos
    if undos is not None and undos.positions and (undoes(execution) or not has_ended):
        flow_id = undo_flow_id(key, life) if has_ended else None
        told.append(SuccessorInfo(Role.UNDO, UNDO, None, flow_id, len(undos.positions)))
    return tuple(told)


def flow_successors_told(flow: FlowRow, partitions: int) -> tuple[SuccessorInfo, ...]:
    """What follows the end of a flow; once it has ended, only what this end has created."""
    has_ended = flow.finished_at is not None
    return tuple(
        SuccessorInfo(
            role,
            hook.successor.route.execution_kind,
            flow_successor_id(flow, role, partitions) if has_ended else None,
        )
        for role, hook in (flow_hooks_due(flow) if has_ended else hooks_of(flow.hooks))
    )


class Successors:
    """Creates what follows ends, in the transaction that decides them.

    Nothing that stands in the way of a successor may prevent the end: it is then left out, and the
    log says so.
    """

    def __init__(self, tx: Transaction, view: View, graph: Callable[[], Graph]) -> None:
        self._tx = tx
        self._view = view
        self._graph = graph
        self._routes: frozenset[Route] = frozenset()

    async def follow(self, moves: Iterable[tuple[Execution | None, Execution]]) -> None:
        """Create the successors of executions that ended, told before and after."""
        ended = {
            (after.execution_id, after.replay_count): after
            for before, after in moves
            if before is not None and after.is_terminal
        }
        due = [(each, role, hook) for each in ended.values() for role, hook in hooks_due(each)]
        lost = [each for each in ended.values() if undoes(each)]
        if due or lost:
            await self.look_up_routes()
        attempts = await self._successes(due) if due else {}
        for each, role, hook in due:
            new_id = successor_id(each.execution_id, each.replay_count, role)
            attempt = attempts.get(each.execution_id)
            self._create(create_hook(each, role, hook, new_id, attempt), each)
        for each in lost:
            flow_id = undo_flow_id(each.execution_id, each.replay_count)
            positions = () if each.undos is None else each.undos.positions
            entries = await self.entries(each, positions)
            self.undo(each, self.readable(each, entries), flow_id)

    async def follow_flows(self, ended: Iterable[FlowRow]) -> None:
        """Create the successors of flows with hooks that ended."""
        await self.look_up_routes()
        for flow in ended:
            for role, hook in flow_hooks_due(flow):
                new_id = flow_successor_id(flow, role, self._view.at.partitions)
                self._create(create_flow_hook(flow, role, hook, new_id), f"flow {flow.flow_id}")

    def _create(self, command: CreateExecution, ended: object) -> None:
        if command.route in self._routes:
            self._view.take_created(command, self._view.preview(command))
        else:  # routes are never deleted by us
            _LOG.error("%s is not followed by %s: no such route", ended, command.route)

    # --- undos -----------------------------------------------------------------------------------

    async def entries(self, execution: Execution, positions: Sequence[int]) -> list[EntryRow]:
        """The entries at these positions of the present chapter, as far as they can be read."""
        journal = (execution.execution_id, execution.journal_index, execution.chapter_index)
        keys: list[Key] = [(*journal, position) for position in positions]
        rows = self._view.rows
        found = {key: row for key in keys if (row := rows.get(JOURNAL, key)) is not None}
        missing = [key for key in keys if key not in found]
        stored, spoiled = await readable(self._tx.peek_rows, JOURNAL, missing)
        for key in missing:
            if key not in stored:
                detail = spoiled.get(key, "it is gone")
                _LOG.error("%s: entry %d undoes nothing: %s", execution, key[-1], detail)
        found.update(stored)
        return [found[key] for key in keys if key in found]

    def readable(self, execution: Execution, entries: Sequence[EntryRow]) -> list[Undo]:
        """The calls that entries register, last registered first, as far as they can be made."""
        undos = []
        for entry in reversed(entries):
            try:
                undo = undo_of(entry)
            except InvalidInput as error:
                _LOG.error("%s: entry %d undoes nothing: %s", execution, entry.position, error)
                continue
            if undo.successor.route in self._routes:
                undos.append(undo)
            else:
                _LOG.error("%s is not undone by %s: no such route", execution, undo.successor.route)
        return undos

    def undo(self, execution: Execution, undos: Sequence[Undo], flow_id: str) -> None:
        """Create the calls that undo an execution."""
        if not undos:
            return
        view, graph = self._view, self._graph()
        ids = undo_ids(flow_id, len(undos), view.at.partitions)
        command = undo_flow(execution, undos, flow_id, ids)
        created = [view.preview(node.create) for node in command.nodes]
        graph.apply(submit_flow(None, created, command, view.at))
        for node, decision in zip(command.nodes, created, strict=True):
            view.take_created(node.create, decision)
        graph.add(*rows_of(command, view.at))

    # --- what it needs ---------------------------------------------------------------------------

    async def look_up_routes(self) -> None:
        """All routes as they stand: that of a successor was recorded before."""
        view = self._view
        if view.catalog is None:
            view.catalog = await self._tx.catalog()
        self._routes = self._routes or frozenset(view.catalog.routes)

    async def _successes(self, due: Sequence[Due]) -> dict[str, Attempt]:
        """The attempts by which executions succeeded: in this transaction, or written before."""
        wanted = {
            ended.execution_id
            for ended, _, _ in due
            if ended.state.terminal_outcome is TerminalOutcome.SUCCESS
        }
        here = {
            each.execution_id: each
            for each in self._view.changes.attempts
            if each.execution_id in wanted
        }
        missing = sorted(wanted - here.keys())
        return {**(await self._tx.results(missing) if missing else {}), **here}
