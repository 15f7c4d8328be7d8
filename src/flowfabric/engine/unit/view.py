"""One transaction's evolving picture: commands are folded over it in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from flowfabric.engine.unit.records import Rows
from flowfabric.engine.unit.shifts import Shifts
from flowfabric.errors import Corruption
from flowfabric.kernel.command import Command, ExecutionCommand
from flowfabric.kernel.decision import AnyEvent, Decision, Moment, Refused
from flowfabric.kernel.execution.create import CreateExecution, create
from flowfabric.kernel.execution.dead import is_dead, letter
from flowfabric.kernel.execution.operate import SetTag
from flowfabric.kernel.execution.replay import Replay
from flowfabric.kernel.order.fair import row_of
from flowfabric.kernel.registry import RULES
from flowfabric.kernel.wait.watch import owed
from flowfabric.model.bounds import UNBOUNDED
from flowfabric.model.budget import AttachmentRow, ScopeType
from flowfabric.model.event import OperatorEvent
from flowfabric.model.execution import Execution
from flowfabric.model.failure import FailureEntry
from flowfabric.model.fair import FairRow
from flowfabric.model.flow import FlowRow
from flowfabric.model.mailbox import MailboxRow
from flowfabric.model.record import Record, replace
from flowfabric.model.route import Catalog, Route
from flowfabric.model.statistic import Counted, WorkCount
from flowfabric.model.ties import UNTIED, Ties
from flowfabric.stores.base import Changes, Corrupt
from flowfabric.stores.tables import (
    ATTACHMENTS,
    DEAD,
    FAIR,
    KEYS,
    MAILBOXES,
    TABLE_OF,
    TIMED_TABLES,
    WATCHES,
)

R = TypeVar("R")
K = TypeVar("K", bound=Record)


_CREATED = Counted.CREATED
EVERY_WAITER = 1_000_000  # as many wake-ups as there may be waiters


class InvariantViolated(RuntimeError):
    """A rule decided something that may never be stored. A bug: nothing is written."""


class Effects:
    """Wake-ups to publish after the commit."""

    __slots__ = ("denied", "due_at", "ended", "flows_ended", "grown", "told", "woken")

    def __init__(self) -> None:
        self.woken: dict[str, int] = {}  # lane: how many executions began to wait there
        self.ended: list[str] = []
        self.flows_ended: list[str] = []
        self.grown: set[str] = set()  # executions with a stream that grew or was closed
        self.told: set[str] = set()  # workers that lost a lease, or are asked to end
        self.due_at: int | None = None  # the earliest time something new is due
        self.denied: list[str] = []  # the budgets and quotas that did not admit a start

    def wake_lane(self, lane_id: str) -> None:
        """Every claim that waits for a lane may find something there."""
        self.woken[lane_id] = EVERY_WAITER

    def note_loss(
        self, before: Execution, after: Execution, command: Command[object] | None
    ) -> None:
        """The worker of a lease that is over is told, unless it has ended it, with its fence."""
        worker = before.worker_instance_id
        if worker is None or getattr(command, "fence", None) is not None:
            return
        if before.is_leased and not after.is_leased:
            self.told.add(worker)

    def note_due(self, when: int | None) -> None:
        """Something is due then."""
        if when is not None and (self.due_at is None or when < self.due_at):
            self.due_at = when

    def note(self, before: Execution | None, after: Execution) -> None:
        """Remember what the change from one image to the next may wake."""
        if after.is_terminal:
            if before is None or not before.is_terminal:
                self.ended.append(after.execution_id)
            return
        if after.is_waiting:
            lane = after.route.lane_id
            self.woken[lane] = self.woken.get(lane, 0) + 1
        self.note_due(after.due_at)


class View:
    """The records a batch touches, as they stand after the commands decided so far."""

    def __init__(
        self,
        at: Moment,
        catalog: Catalog | None = None,
        executions: dict[str, Execution | Corrupt] | None = None,
    ) -> None:
        self.at = at
        self.catalog = catalog
        self.executions = {} if executions is None else executions
        self.rows = Rows()
        self.changes = Changes()
        self.stored: dict[str, Execution] = {}  # executions with unwritten changes, as stored
        self.effects = Effects()
        self._keepers: dict[type[Record], Callable[[Any], None]] = {}
        self._bounded: list[tuple[Execution, Execution]] = []
        self._member_moves: list[tuple[Execution, Execution]] = []
        self._tied_moves: list[tuple[Execution | None, Execution]] = []
        self.shifts = Shifts()
        self.flow_ends: list[FlowRow] = []  # of flows with hooks
        self.cascading: set[str] = set()  # members whose replay takes others along
        self.turn: int | None = None  # the number of the command that is decided
        self.told: dict[int, OperatorEvent] = {}  # by the number of the command that it tells of
        self.operation_id = ""  # the bulk operation whose commands are decided

    def decide(self, command: ExecutionCommand[R]) -> R | Refused:
        """The reply to a command about one execution; its changes join the batch."""
        current = self.executions.get(command.execution_id)
        if isinstance(current, Corrupt):
            return Refused(Corruption, f"execution {current.execution_id}: {current.detail}")
        if isinstance(command, CreateExecution):
            decision: Decision[R] = self.preview(command, current)
            self.take_created(command, decision)
            return decision.reply
        decision = RULES[type(command)](current, command, self.at)
        return self.apply(current, decision, command)

    def preview(self, command: CreateExecution, current: Execution | None = None) -> Decision[Any]:
        """What a create would do."""
        if self.catalog is None:
            raise InvariantViolated("a create needs the catalog")
        known = None
        if command.idempotency_key is not None:
            known = self.rows.get(KEYS, (command.route.namespace, command.idempotency_key))
        return create(current, known, self.catalog, command, self.at)

    def take_created(self, command: CreateExecution, decision: Decision[R]) -> None:
        """Take a new execution into the batch."""
        if decision.execution is None or decision.new is None:
            return
        self.changes.created[command.execution_id] = (decision.execution, decision.new.body)
        self.executions[command.execution_id] = decision.execution
        for name, schema in command.mailboxes:
            self.rows.put(MAILBOXES, MailboxRow(command.execution_id, name, schema))
        for budget_id in decision.execution.bounds.budget_ids:
            self.rows.put(ATTACHMENTS, AttachmentRow(budget_id, command.execution_id))
        if decision.execution.ties is not UNTIED:
            self._tied_moves.append((None, decision.execution))
            self.shifts.note(None, decision.execution)
        self.effects.note(None, decision.execution)
        if (known := decision.new.idempotency) is not None:
            self.rows.put(KEYS, known)

    def hand_over(self, execution_id: str, payload: bytes, encoding: str | None) -> None:
        """An execution gets another input."""
        if (new := self.changes.created.get(execution_id)) is None:
            self.changes.payloads[execution_id] = (payload, encoding)
        else:
            body = replace(new[1], payload=payload, payload_encoding=encoding)
            self.changes.created[execution_id] = (new[0], body)

    def apply(
        self,
        before: Execution | None,
        decision: Decision[R],
        command: Command[object] | None = None,
        *,
        ends_wait: bool = False,
    ) -> R | Refused:
        """Take a decision's changes into the batch; returns its reply.

        `command`: what was decided; none for what follows from something else.
        `ends_wait`: the decision's own rows say how the wait went on, nothing need follow it up.
        """
        after = decision.execution
        if after is not None:
            if before is None:
                raise InvariantViolated(f"{_name(command)} changed an absent execution")
            _check(before, after, command)
            self._remember(before, after, command, ends_wait)
        if decision.attempt is not None:
            self.changes.attempts.append(decision.attempt)
            if after is not None and not after.is_terminal:  # else its end wakes readers
                self.effects.grown.add(after.execution_id)
        if decision.drops or decision.saves:
            self._keep(decision.drops, decision.saves)
        for event in decision.events:
            if isinstance(event, OperatorEvent):
                self.note_event(self._signed(event, command))
            else:
                self.changes.log(event)
        if len(decision.events) > 1:
            self._file(decision.events)
        return decision.reply

    def _keep(self, drops: Iterable[Record], saves: Iterable[Record]) -> None:
        for record in drops:  # first: another record may take the key of one that goes
            table = TABLE_OF[type(record)]
            self.rows.drop_unseen(table, table.key_of(record))
        for record in saves:
            keep = self._keepers.get(type(record))
            if keep is None:
                table = TABLE_OF[type(record)]
                self.rows.put_at(table, table.key_of(record), record)
            else:
                keep(record)

    def _file(self, events: Iterable[AnyEvent]) -> None:
        """A dead letter knows which failures are like its own: a failure is told beside its end."""
        for each in events:
            if not isinstance(each, FailureEntry) or not each.is_final:
                continue
            row = self.rows.get(DEAD, (each.execution_id,))
            if row is not None:
                self.rows.put(DEAD, replace(row, fingerprint=each.fingerprint))

    def _signed(self, event: OperatorEvent, command: Command[object] | None) -> OperatorEvent:
        """With its actor, and the bulk operation that it belongs to."""
        if command is not None and command.actor:
            event = replace(event, actor=command.actor)
        if self.operation_id:
            event = replace(event, details={**event.details, "operation_id": self.operation_id})
        return event

    def keep_with(self, kind: type[K], keep: Callable[[K], None]) -> None:
        """What decisions save of this kind goes to the part that keeps it: because it is kept in
        several rows, or because the part must know of it."""
        self._keepers[kind] = keep

    def _remember(
        self, before: Execution, after: Execution, command: Command[object] | None, ends_wait: bool
    ) -> None:
        key = after.execution_id
        self.put(before, after)
        if after.bounds is not before.bounds:
            self.changes.rebound.add(key)
        if after.route is not before.route:
            self.changes.rerouted.add(key)
        if type(command) is SetTag:
            self.changes.retagged.add(key)
        moves_end = before.is_terminal is not after.is_terminal
        if after.flow_id is not None and moves_end:
            self._member_moves.append((before, after))
            if isinstance(command, Replay) and command.cascade:
                self.cascading.add(key)
        if after.ties is not UNTIED:
            self.shifts.note(before, after)
        if moves_end:
            self._note_end(before, after)
        if before.is_watched and (row := owed(before, after, self.at)) is not None:
            self.rows.put(WATCHES, row)
        waits = before.suspension_id is not None and not ends_wait
        if waits or before.side_holds or before.bounds is not UNBOUNDED:
            self._bounded.append((before, after))
        self.effects.note(before, after)
        self.effects.note_loss(before, after, command)

    def _note_end(self, before: Execution, after: Execution) -> None:
        """An end may leave a dead letter, and a replay takes it away."""
        if after.ties is not UNTIED or before.undos is not None:
            self._tied_moves.append((before, after))
        if after.completed_at is not None:
            if is_dead(after):
                self.rows.put(DEAD, letter(after))
        elif is_dead(before):
            self.rows.drop_unseen(DEAD, (before.execution_id,))

    def put(self, before: Execution, after: Execution) -> None:
        """The next image of an execution."""
        key = after.execution_id
        self.executions[key] = after
        self.changes.update(before, after)
        if after.ties is not UNTIED and after.ties.fair is not None:
            self._keep_fair(row_of(before), row_of(after), key)
        if key not in self.changes.created:
            self.stored.setdefault(key, before)

    def _keep_fair(self, before: FairRow | None, after: FairRow | None, key: str) -> None:
        """The row of an execution with a fair key changes with it."""
        if after is None:
            if before is not None:
                self.rows.drop_unseen(FAIR, (key,))
        elif before is None:  # it lives again
            self.rows.put(FAIR, after)
        elif before != after:
            self.rows.put_unseen(FAIR, (key,), after)

    def retie(self, execution_id: str, ties: Ties) -> Execution | None:
        """Other ties of an execution that this batch creates; none where it is written already."""
        new, current = self.changes.created.get(execution_id), self.execution(execution_id)
        if new is None or current is None:
            return None
        self.changes.created[execution_id] = (replace(new[0], ties=ties), new[1])
        changed = self.executions[execution_id] = replace(current, ties=ties)
        if execution_id in self.changes.updated:
            self.changes.updated[execution_id] = changed
        return changed

    @property
    def has_unwritten(self) -> bool:
        """Whether executions were created or changed and are not written yet."""
        return bool(self.changes.created or self.changes.updated)

    def is_unwritten(self, execution_id: str) -> bool:
        """Whether the store has another image of an execution, or none."""
        return execution_id in self.changes.updated or execution_id in self.changes.created

    def unwritten(self) -> Iterator[Execution]:
        """Executions that are created or changed and not written yet, as they stand."""
        yield from self.changes.updated.values()
        for key, (execution, _) in self.changes.created.items():
            if key not in self.changes.updated:
                yield execution

    def take_changes(self) -> Changes:
        """What is to be written now; the view goes on empty-handed."""
        changes, self.changes = self.changes, Changes()
        self.stored = {}
        if changes.created:
            # Statistics count submits by this: one entry for all that begin alike.
            routes = Counter([execution.route for execution, _ in changes.created.values()])
            for (namespace, lane, kind), count in _alike(routes).items():
                changes.log(WorkCount(namespace, lane, kind, _CREATED, count, self.at.now))
        changes.rows = self.rows.changes()
        for table, written in changes.rows.items():
            if table in TIMED_TABLES:
                for record in (*written.inserted, *written.updated):
                    self.effects.note_due(table.due_of(record))
        return changes

    # --- what limits ask of the picture ----------------------------------------------------------

    @property
    def owes(self) -> bool:
        """Whether anything is still to follow from moves: among limits, waits, flows or ties."""
        return bool(self._bounded or self._member_moves) or self.has_tied_moves

    @property
    def has_bounded(self) -> bool:
        """Whether an execution with limits has moved since this was last asked for."""
        return bool(self._bounded)

    def take_bounded(self) -> list[tuple[Execution, Execution]]:
        """Moves of executions with limits, before and after, each told once."""
        moves, self._bounded = self._bounded, []
        return moves

    @property
    def has_member_moves(self) -> bool:
        """Whether members of flows have ended or live again since this was last asked for."""
        return bool(self._member_moves)

    def take_member_moves(self) -> list[tuple[Execution, Execution]]:
        """Members that ended or live again, before and after, each told once."""
        moves, self._member_moves = self._member_moves, []
        return moves

    @property
    def has_tied_moves(self) -> bool:
        """Whether tied executions have moved, or flows with hooks ended, since this was last asked
        for."""
        return bool(self._tied_moves or self.shifts or self.flow_ends)

    def tie(self, before: Execution, after: Execution) -> None:
        """An execution that has just ended was tied by the same command."""
        self._tied_moves.append((before, after))

    def take_tied_moves(self) -> list[tuple[Execution | None, Execution]]:
        """Tied executions that were created, ended or live again: before and after, once."""
        moves, self._tied_moves = self._tied_moves, []
        return moves

    def take_flow_ends(self) -> list[FlowRow]:
        """Flows with hooks as they ended, each end told once."""
        ended, self.flow_ends = self.flow_ends, []
        return ended

    def execution(self, execution_id: str | None) -> Execution | None:
        """An execution of this transaction as it stands, if it is there and can be read."""
        found = self.executions.get(execution_id or "")
        return found if isinstance(found, Execution) else None

    def loaded(self) -> list[Execution]:
        """The readable executions of this transaction, as they stand."""
        return [each for each in self.executions.values() if isinstance(each, Execution)]

    def take(self, execution: Execution) -> Execution:
        """Remember an execution that was found by a search."""
        self.executions[execution.execution_id] = execution
        return execution

    def add_scope(self, scope: ScopeType, scope_id: str, budget_id: str) -> None:
        """A budget applies to what this batch creates on its lane or in its namespace."""
        if self.catalog is not None:
            names = {*self.catalog.scopes.get((scope, scope_id), ()), budget_id}
            scopes = {**self.catalog.scopes, (scope, scope_id): tuple(sorted(names))}
            self.catalog = replace(self.catalog, scopes=scopes)

    def note_event(self, event: OperatorEvent) -> None:
        """Append what an operator did; the first event of a command tells of it."""
        if self.turn is not None:
            self.told.setdefault(self.turn, event)
        self.changes.log(event)


def _alike(routes: Counter[Route]) -> Counter[tuple[str, str, str]]:
    """Routes that differ only in the capabilities they ask for are one to statistics."""
    found: Counter[tuple[str, str, str]] = Counter()
    for route, count in routes.items():
        found[route.namespace, route.lane_id, route.execution_kind] += count
    return found


def _check(before: Execution, after: Execution, command: Command[object] | None) -> None:
    """Postconditions that hold in production too."""
    if after.lease_epoch < before.lease_epoch:
        raise InvariantViolated(f"{_name(command)} lowered the epoch")
    if before.is_terminal and after.state != before.state and type(command) is not Replay:
        raise InvariantViolated(f"{_name(command)} left a terminal state")


def _name(command: Command[object] | None) -> str:
    return "what follows" if command is None else type(command).__name__
