"""One transaction's evolving picture: commands are folded over it in order."""

from __future__ import annotations

from typing import Any

from flowfabric.errors import Corruption
from flowfabric.kernel.create import CreateExecution, create
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.operate import SetTag
from flowfabric.kernel.replay import Replay
from flowfabric.kernel.rules import RULES
from flowfabric.model.event import CompletionEvent, LeaseEvent
from flowfabric.model.execution import Execution, IdempotencyRecord
from flowfabric.model.route import Catalog
from flowfabric.stores.base import Changes, Corrupt, cold_of
from flowfabric.stores.indexes import due_at


class InvariantViolated(RuntimeError):
    """A rule decided something that may never be stored. A bug: nothing is written."""


class Effects:
    """What committed, as far as somebody may be waiting for it."""

    __slots__ = ("due_at", "ended", "woken")

    def __init__(self) -> None:
        self.woken: dict[str, int] = {}  # lane: how many executions began to wait there
        self.ended: list[str] = []
        self.due_at: int | None = None  # the earliest time something new is due

    def note(self, before: Execution | None, after: Execution) -> None:
        """Remember what the change from one image to the next may wake."""
        if after.is_terminal:
            if before is None or not before.is_terminal:
                self.ended.append(after.execution_id)
            return
        if after.is_waiting:
            lane = after.route.lane_id
            self.woken[lane] = self.woken.get(lane, 0) + 1
        when = due_at(after)
        if when is not None and (self.due_at is None or when < self.due_at):
            self.due_at = when


class View:
    """The records a batch touches, as they stand after the commands decided so far."""

    def __init__(self, at: Moment, catalog: Catalog | None = None) -> None:
        self.at = at
        self.catalog = catalog
        self.executions: dict[str, Execution | Corrupt] = {}
        self.keys: dict[tuple[str, str], IdempotencyRecord] = {}
        self.changes = Changes()
        self.effects = Effects()

    def decide(self, command: Any) -> Any:
        """The reply to a command about one execution; its changes join the batch."""
        current = self.executions.get(command.execution_id)
        if isinstance(current, Corrupt):
            return Refused(Corruption, f"execution {current.execution_id}: {current.detail}")
        if type(command) is CreateExecution:
            return self._create(current, command)
        return self.apply(current, command, RULES[type(command)](current, command, self.at))

    def _create(self, current: Execution | None, command: CreateExecution) -> Any:
        key = None
        if command.idempotency_key is not None:
            key = (command.route.namespace, command.idempotency_key)
        known = None if key is None else self.keys.get(key)
        if self.catalog is None:
            raise InvariantViolated("a create needs the catalog")
        lane_state = self.catalog.lane_state(command.route.lane_id)
        decision = create(current, known, lane_state, command, self.at)
        if decision.execution is None or decision.body is None:
            return decision.reply
        self.changes.created[command.execution_id] = (decision.execution, decision.body)
        self.executions[command.execution_id] = decision.execution
        self.effects.note(None, decision.execution)
        if decision.idempotency is not None and key is not None:
            self.changes.idempotency.append((decision.idempotency, known is not None))
            self.keys[key] = decision.idempotency
        return decision.reply

    def apply(self, before: Execution | None, command: Any, decision: Decision) -> Any:
        """Take a decision's changes into the batch; returns its reply."""
        after = decision.execution
        if after is not None:
            if before is None:
                raise InvariantViolated(f"{type(command).__name__} changed an absent execution")
            _check(before, after, command)
            self._remember(before, after, command)
        if decision.attempt is not None:
            self.changes.attempts.append(decision.attempt)
        for event in decision.events:
            if isinstance(event, LeaseEvent):
                self.changes.lease_events.append(event)
            elif isinstance(event, CompletionEvent):
                self.changes.completion_events.append(event)
            else:
                self.changes.operator_events.append(event)
        return decision.reply

    def _remember(self, before: Execution, after: Execution, command: Any) -> None:
        key = after.execution_id
        self.executions[key] = after
        self.changes.updated[key] = after
        if cold_of(before) != cold_of(after):
            self.changes.cold.add(key)
        if type(command) is SetTag:
            self.changes.retagged.add(key)
        self.effects.note(before, after)

    def take_changes(self) -> Changes:
        """What is to be written now; the view goes on empty-handed."""
        changes, self.changes = self.changes, Changes()
        return changes


def _check(before: Execution, after: Execution, command: Any) -> None:
    """Postconditions that hold in production too."""
    if after.lease_epoch < before.lease_epoch:
        raise InvariantViolated(f"{type(command).__name__} lowered the epoch")
    if before.is_terminal and after.state != before.state and type(command) is not Replay:
        raise InvariantViolated(f"{type(command).__name__} left a terminal state")
