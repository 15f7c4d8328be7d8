"""Repin: an execution belongs to another version of its task."""

from __future__ import annotations

from flowfabric.errors import ExecutionNotEligible
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, refuse
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.execution.routing import route_key
from flowfabric.kernel.execution.transition import operator_event
from flowfabric.model.code import Repinned, pinned_version, repinned
from flowfabric.model.event import OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.state import LifecyclePhase

_ABLE = (LifecyclePhase.RUNNABLE, LifecyclePhase.SUSPENDED)


class Repin(ExecutionCommand[Repinned], frozen=True, kw_only=True):
    """An operator moves it from one version to another."""

    expected: str
    version: str

    def needs(self, need: Needs) -> None:
        """The execution, and the numbers of routes."""
        need.executions.add(self.execution_id)
        need.catalog = True


def repin(execution: Execution | None, command: Repin, at: Moment) -> Decision[Repinned]:
    """Only the version in its route changes: workers that have the new one may claim it."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    reply = Repinned(execution.execution_id, command.version)
    pinned = pinned_version(execution.route)
    if pinned == command.version and not execution.is_terminal:
        return Decision(reply)
    if pinned != command.expected:
        belongs = "to no version" if pinned is None else f"to version {pinned}"
        return refuse(ExecutionNotEligible, f"execution belongs {belongs}")
    if execution.state.lifecycle_phase not in _ABLE:
        return refuse(ExecutionNotEligible, f"execution is {execution.public_state.value}")
    route = repinned(execution.route, command.version)
    moved = replace(execution, route=route, grant=None, last_mutation_at=at.now)
    if execution.blocked_on == route_key(execution.route):
        moved = replace(moved, blocked_on=route_key(route))
    audit = operator_event(
        execution,
        OperatorEventType.REPINNED,
        at.now,
        old_version=command.expected,
        new_version=command.version,
    )
    return Decision(reply, moved, None, (audit,))
