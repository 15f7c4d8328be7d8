"""Rules of bulk operations: what one begins with, how far a piece moves it, when it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from flowfabric.errors import IdempotencyConflict, NotFound
from flowfabric.kernel.command import Command, ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused, refuse
from flowfabric.kernel.execution.cancel import Cancel
from flowfabric.kernel.execution.dead import Dismiss, Restore
from flowfabric.kernel.execution.fence import OPERATOR_OVERRIDE
from flowfabric.kernel.execution.operate import ChangePriority, Hold, Release
from flowfabric.kernel.execution.replay import Replay
from flowfabric.kernel.execution.words import searchable
from flowfabric.limits import OPERATION_PAUSE_MS, OPERATION_RETENTION_MS
from flowfabric.model.bulk import (
    DONE,
    UNCHANGED,
    BulkAction,
    BulkArguments,
    BulkFilter,
    BulkOperation,
    BulkState,
    OperationRow,
    shown_operation,
)
from flowfabric.model.dead import DeadRow, Dismissed, Restored
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record, replace, to_plain
from flowfabric.model.state import TERMINAL_STATES, PublicState

_NOT_BEGUN: Final = (
    PublicState.WAITING,
    PublicState.DELAYED,
    PublicState.RATE_LIMITED,
    PublicState.WAITING_CHILDREN,
)
# The states that an action is for, where a filter names none.
MEANT: Final[Mapping[BulkAction, tuple[PublicState, ...]]] = {
    BulkAction.CANCEL: tuple(each for each in PublicState if each not in TERMINAL_STATES),
    BulkAction.RETRY: (PublicState.FAILED, PublicState.EXPIRED),
    BulkAction.HOLD: _NOT_BEGUN,
    BulkAction.RELEASE: (PublicState.WAITING, PublicState.SUSPENDED),
    BulkAction.PRIORITY: _NOT_BEGUN,
    BulkAction.DISMISS: (PublicState.FAILED, PublicState.EXPIRED),
    BulkAction.RESTORE: (PublicState.FAILED, PublicState.EXPIRED),
}


class StartOperation(Command[BulkOperation], frozen=True, kw_only=True):
    """Begin one. Repeated with its id, it is the same one."""

    operation_id: str
    action: BulkAction
    filter: BulkFilter
    arguments: BulkArguments
    matched: int

    def needs(self, need: Needs) -> None:
        """The time, which is read along with the catalog."""
        need.catalog = True


class StopOperation(Command[BulkOperation], frozen=True, kw_only=True):
    """End one before it has met every execution."""

    operation_id: str

    def needs(self, need: Needs) -> None:
        """The time, which is read along with the catalog."""
        need.catalog = True


class Piece(Record, frozen=True):
    """What one transaction did for an operation."""

    outcomes: Mapping[str, int]  # of the executions that were acted on
    place: tuple[int, str] | None  # of the last one that was met; none: no other was left
    put_off: tuple[str, ...]  # those that are to be met again
    is_last: bool  # none is left behind this place


def start(
    known: OperationRow | None, command: StartOperation, at: Moment
) -> Decision[BulkOperation]:
    """A row that is due at once."""
    if known is not None:
        given = (command.action, command.filter, command.arguments)
        if (known.action, known.filter, known.arguments) != given:
            detail = f"operation_id: {command.operation_id} is another operation"
            return refuse(IdempotencyConflict, detail, field="operation_id")
        return Decision(shown_operation(known))
    row = OperationRow(
        operation_id=command.operation_id,
        action=command.action,
        state=BulkState.RUNNING,
        namespace=command.filter.namespace,
        filter=command.filter,
        arguments=command.arguments,
        actor=command.actor,
        matched=command.matched,
        outcomes={},
        place_at=None,
        place_id=None,
        put_off=(),
        created_at=at.now,
        finished_at=None,
        due_at=at.now,
    )
    details = {
        "action": row.action.value,
        "filter": to_plain(row.filter),
        "arguments": to_plain(row.arguments),
        "matched": row.matched,
    }
    event = _event(row, OperatorEventType.OPERATION_STARTED, at, details)
    return Decision(shown_operation(row), saves=(row,), events=(event,))


def stop(row: OperationRow | None, command: StopOperation, at: Moment) -> Decision[BulkOperation]:
    """No execution is acted on from here on; one that is over stays as it ended."""
    if row is None:
        return refuse(NotFound, f"operation {command.operation_id}", entity="operation")
    if row.state is not BulkState.RUNNING:
        return Decision(shown_operation(row))
    stopped = _ended(row, BulkState.STOPPED, at)
    details = {"action": row.action.value, "outcomes": dict(row.outcomes)}
    event = _event(row, OperatorEventType.OPERATION_STOPPED, at, details)
    return Decision(shown_operation(stopped), saves=(stopped,), events=(event,))


def advance(row: OperationRow, piece: Piece, at: Moment) -> Decision[int]:
    """The place moves with what was done; how many executions were acted on."""
    counts = Counter(row.outcomes)
    counts.update(piece.outcomes)
    place_at, place_id = piece.place or (row.place_at, row.place_id)
    moved = replace(
        row,
        outcomes=dict(sorted(counts.items())),
        place_at=place_at,
        place_id=place_id,
        put_off=piece.put_off,
        due_at=at.now + OPERATION_PAUSE_MS,
    )
    number = sum(piece.outcomes.values())
    if not (has_all(moved) or (piece.is_last and not piece.put_off)):
        return Decision(number, saves=(moved,))
    ended = _ended(moved, BulkState.DONE, at)
    details = {"action": row.action.value, "outcomes": dict(ended.outcomes)}
    event = _event(row, OperatorEventType.OPERATION_ENDED, at, details)
    return Decision(number, saves=(ended,), events=(replace(event, actor=row.actor),))


def room_for(row: OperationRow, most: int) -> int:
    """How many executions a piece may act on."""
    limit = row.arguments.limit
    return most if limit is None else min(most, limit - row.handled)


def has_all(row: OperationRow) -> bool:
    """Whether it has acted on as many executions as it may."""
    return room_for(row, 1) <= 0


def is_meant(wanted: BulkFilter, execution: Execution) -> bool:
    """Whether an execution fits the parts of the filter that may have changed since it was found,
    or that no index knows."""
    reason, words = wanted.blocking_reason, wanted.text
    category = wanted.failure_category if wanted.dead_letter is None else None
    return (
        execution.public_state in wanted.states
        and (reason is None or execution.state.blocking_reason is reason)
        and (category is None or execution.failure_category == category)
        and (words is None or words in searchable(execution))
    )


def is_listed(wanted: BulkFilter, execution: Execution) -> bool:
    """Whether an execution fits the parts of the filter by which listings find theirs, where it was
    found otherwise."""
    after, before = wanted.created_after, wanted.created_before
    return (
        wanted.namespace in (None, execution.namespace)
        and wanted.lane_id in (None, execution.lane_id)
        and wanted.execution_kind in (None, execution.execution_kind)
        and (wanted.tag is None or execution.tags.get(wanted.tag[0]) == wanted.tag[1])
        and (after is None or execution.created_at >= after)
        and (before is None or execution.created_at < before)
    )


def is_letter(wanted: BulkFilter, row: DeadRow | None) -> bool:
    """Whether the dead letter of an execution, if it has one, is as the filter says."""
    if wanted.dead_letter is None:
        return True
    if row is None or row.letter is not wanted.dead_letter:
        return False
    return wanted.failure_category in (None, row.category)


def command_for(row: OperationRow, execution_id: str) -> ExecutionCommand[Any]:
    """The command by which one execution is changed, the same as if it were the only one."""
    given, actor = row.arguments, row.actor
    match row.action:
        case BulkAction.CANCEL:
            return Cancel(
                execution_id=execution_id,
                reason=given.reason,
                source=OPERATOR_OVERRIDE,
                actor=actor,
            )
        case BulkAction.RETRY:
            return Replay(
                execution_id=execution_id,
                requested_by=actor,
                reason=given.reason,
                cascade=given.cascade,
                fresh=given.fresh,
                actor=actor,
            )
        case BulkAction.HOLD:
            return Hold(execution_id=execution_id, reason=given.reason, actor=actor)
        case BulkAction.RELEASE:
            return Release(execution_id=execution_id, actor=actor)
        case BulkAction.DISMISS:
            return Dismiss(execution_id=execution_id, reason=given.reason, actor=actor)
        case BulkAction.RESTORE:
            return Restore(execution_id=execution_id, reason=given.reason, actor=actor)
        case BulkAction.PRIORITY:
            return ChangePriority(
                execution_id=execution_id, new_priority=given.new_priority or 0, actor=actor
            )


def outcomes_of(replies: Iterable[tuple[object, bool]]) -> dict[str, int]:
    """How many of each outcome, by replies and whether each execution is another than before."""
    counted: Counter[str] = Counter()
    for reply, has_changed in replies:
        if isinstance(reply, Refused):
            counted[reply.error.code] += 1
        elif isinstance(reply, Dismissed | Restored):  # which leave the execution as it is
            counted[DONE if reply.is_new else UNCHANGED] += 1
        else:
            counted[DONE if has_changed else UNCHANGED] += 1
    return dict(counted)


def _ended(row: OperationRow, state: BulkState, at: Moment) -> OperationRow:
    """It is kept for a while, for those that ask how it ended."""
    forgotten_at = at.now + OPERATION_RETENTION_MS
    return replace(row, state=state, put_off=(), finished_at=at.now, due_at=forgotten_at)


def _event(
    row: OperationRow, kind: OperatorEventType, at: Moment, details: Mapping[str, object]
) -> OperatorEvent:
    return OperatorEvent(row.operation_id, kind, details, row.namespace or "", {}, at.now)
