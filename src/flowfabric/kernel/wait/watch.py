"""Watch: an execution learns of the ends of others by a signal at a waitpoint of its own.

A watch is registered under the locks of both executions, so no end comes between the look at the
other one and the wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from flowfabric import limits
from flowfabric.errors import NotFound, WaitCycle
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.kernel.wait.signal import SYSTEM, DeliverSignal
from flowfabric.kernel.wait.waitpoint import CreateWaitpoint, create_waitpoint
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.flow import FlowRow
from flowfabric.model.record import Record, replace
from flowfabric.model.suspension import SecretRow, WaitpointRow
from flowfabric.model.watch import ENDED, Watching, WatchRow

RETRY_MS: Final = 50  # when to look again at a watcher that another transaction has locked


class WatchExecutions(ExecutionCommand[Watching], frozen=True, kw_only=True):
    """The owner wants a signal when others have ended, at a waitpoint that is made for it."""

    fence: Fence
    waitpoint_id: str
    watched_ids: tuple[str, ...]
    needs_all: bool

    def needs(self, need: Needs) -> None:
        """All executions, and what a new waitpoint needs. The flow of the owner orders watches that
        together would close a cycle."""
        need.executions.add(self.execution_id)
        need.executions.update(self.watched_ids)
        need.waits = True
        need.catalog = True
        need.flows_of.add(self.execution_id)


class Watch(Record, frozen=True):
    """What a watch adds: its waitpoint, its rows, and the marks on the executions it watches."""

    made: Decision[WaitpointRow]
    rows: tuple[WatchRow, ...]
    marked: tuple[tuple[Execution, Execution], ...]  # before and after


def watch(
    execution: Execution | None,
    others: Mapping[str, Execution | None],
    key: SecretRow | None,
    command: WatchExecutions,
    at: Moment,
) -> Watch | Watching | Refused:
    """Register with every execution that has not ended; where enough of them have, with none."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None or execution is None:
        return refusal or not_found(command.execution_id)
    if refusal := _refuse(execution, others):
        return refusal
    living = [each for each in others.values() if each is not None and not each.is_terminal]
    if not living or (len(living) < len(others) and not command.needs_all):
        return Watching(tuple(each.execution_id for each in living))
    create = CreateWaitpoint(
        execution_id=command.execution_id,
        fence=command.fence,
        waitpoint_id=command.waitpoint_id,
        waitpoint_key=ENDED,
        expires_in_ms=limits.DURATION_MS_MAX,
    )
    made = create_waitpoint(execution, None, key, create, at)
    if isinstance(made.reply, Refused):
        return made.reply
    needs_all = int(command.needs_all)
    rows = [
        WatchRow(each.execution_id, command.execution_id, command.waitpoint_id, needs_all)
        for each in living
    ]
    marked = [(each, replace(each, is_watched=1)) for each in living if not each.is_watched]
    return Watch(made, tuple(rows), tuple(marked))


def _refuse(execution: Execution, others: Mapping[str, Execution | None]) -> Refused | None:
    own = execution.execution_id
    if own in others:
        return refuse_wait_cycle([own, own])
    for key, other in others.items():
        if other is None or other.namespace != execution.namespace:
            return Refused(NotFound, f"execution {key}", {"entity": "watched", "id": key})
    return None


def refuse_wait_cycle(path: Sequence[str]) -> Refused:
    """Each of these would wait for the next one, for ever."""
    return Refused(WaitCycle, " waits for ".join(path), {"path": list(path)})


def path_to(
    start: Iterable[str], goal: str, waits_for: Mapping[str, Sequence[str]]
) -> list[str] | None:
    """How one of some executions waits, in the end, for another one.

    >>> path_to(["b"], "a", {"b": ["c"], "c": ["d", "a"]})
    ['b', 'c', 'a']
    """
    came_from: dict[str, str | None] = dict.fromkeys(start)
    waiting = list(came_from)
    for each in waiting:  # grows
        for following in waits_for.get(each, ()):
            if following == goal:
                path: list[str] = [goal]
                step: str | None = each
                while step is not None:
                    path.append(step)
                    step = came_from[step]
                return path[::-1]
            if following not in came_from:
                came_from[following] = each
                waiting.append(following)
    return None


def owed(before: Execution, after: Execution, at: Moment) -> WatchRow | None:
    """What an end leaves to the loop: one row, however many wait for it."""
    if not before.is_watched or before.is_terminal or not after.is_terminal:
        return None
    return WatchRow(after.execution_id, str(after.lease_epoch), due_at=at.now)


def owed_flow(flow: FlowRow, at: Moment) -> WatchRow:
    """The same of a flow that a schedule has started."""
    return WatchRow(flow.flow_id, f"{flow.graph_revision}.{at.now}", due_at=at.now)


def notice(row: WatchRow, signal_id: str) -> DeliverSignal:
    """The signal that tells a watcher."""
    return DeliverSignal(
        execution_id=row.watcher_id,
        waitpoint_id=row.waitpoint_id,
        presented=None,
        signal_id=signal_id,
        signal_name=ENDED,
        signal_category=ENDED,
        source_type=SYSTEM,
        source_identity=row.execution_id,
        correlation_id="",
        payload=None,
        payload_encoding="json",
        created_at=None,
        idempotency_key=None,
        dedup_ttl_ms=0,
        resume_delay_ms=0,
    )


def put_off(row: WatchRow, at: Moment) -> WatchRow:
    """Some watchers could not be told: the loop comes again."""
    return replace(row, due_at=at.now + RETRY_MS)
