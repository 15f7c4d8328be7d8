"""Lines: executions of one serial key run one at a time, in the order in which they came.

An execution joins the line when nothing of its flow keeps it back any more: at its creation, or
when its dependencies have ended. So no member waits in a line for another that waits for it. It
leaves the line at its end; retries, delays and suspensions keep the turn.
"""

from __future__ import annotations

from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.transition import without_block
from flowfabric.model.execution import Execution
from flowfabric.model.line import LineRow, PlaceRow
from flowfabric.model.record import replace
from flowfabric.model.state import BlockingReason, EligibilityState, TerminalOutcome, blocked

RETRY_MS = 50  # when to look again at a next one that another transaction has locked
RETRY_SPOILED_MS = 60_000  # likewise, at one that cannot be read

_FREE_TO_WAIT = (EligibilityState.ELIGIBLE_NOW, EligibilityState.NOT_ELIGIBLE_UNTIL_TIME)
_FAILURES = (TerminalOutcome.FAILED, TerminalOutcome.EXPIRED)


def line_key(execution: Execution) -> tuple[str, str] | None:
    """The line it belongs to."""
    key = execution.ties.serial_key
    return None if key is None else (execution.namespace, key)


def place_key(line: LineRow, number: int) -> tuple[str, str, int]:
    """The row of a place."""
    return (line.namespace, line.serial_key, number)


def changes_place(before: Execution | None, after: Execution) -> bool:
    """Whether a change may let an execution join its line, or makes it leave."""
    if before is None or before.is_terminal is not after.is_terminal:
        return True
    return before.has_open_group and not after.has_open_group


def join(line: LineRow | None, execution: Execution, at: Moment) -> Decision[None]:
    """An execution that may run as far as its flow is concerned takes its place in the line."""
    if execution.has_open_group or execution.is_behind or execution.is_terminal:
        return Decision(None)
    if line is None:
        namespace, key = line_key(execution) or ("", "")
        return Decision(None, saves=(LineRow(namespace, key, execution.execution_id, 1, 1),))
    if line.head_id == execution.execution_id:
        if line.held_at is None:
            return Decision(None)  # it has the turn, and waited for its children
        return Decision(None, saves=(replace(line, held_at=None),))  # it failed, and is replayed
    number = line.last_number + 1
    place = PlaceRow(line.namespace, line.serial_key, number, execution.execution_id)
    longer = replace(line, last_number=number, waiting=line.waiting + 1)
    behind = replace(execution, line_place=number, last_mutation_at=at.now)
    if execution.state.eligibility_state in _FREE_TO_WAIT:
        state = blocked(BlockingReason.WAITING_FOR_TURN, execution.state.attempt_state)
        detail = "waiting for its turn"
        behind = replace(behind, state=state, blocking_detail=detail, grant=None)
    return Decision(None, behind, saves=(longer, place))


def leave(line: LineRow, execution: Execution, at: Moment) -> Decision[bool]:
    """An execution that has ended leaves its line; whether that gives the turn to the next one.

    A place behind the head closes. A head that failed may hold up the others. A head that ended
    before it was told of its turn still says that it is behind: its place has closed already.
    """
    out = replace(execution, line_place=0) if execution.is_behind else None
    if line.head_id == execution.execution_id:
        outcome = execution.state.terminal_outcome
        if execution.ties.holds_line and outcome in _FAILURES:
            return Decision(False, out, saves=(replace(line, held_at=at.now, due_at=None),))
        return Decision(True, out)
    if out is None:
        return Decision(False)  # it never joined
    gone = PlaceRow(line.namespace, line.serial_key, execution.line_place, execution.execution_id)
    shorter = replace(line, waiting=max(0, line.waiting - 1))
    return Decision(False, out, saves=(shorter,), drops=(gone,))


def advance(line: LineRow, following: PlaceRow | None) -> Decision[None]:
    """The turn passes to the next place; a line without one is over."""
    if following is None:
        return Decision(None, drops=(line,))
    moved = replace(
        line,
        head_id=following.execution_id,
        head_number=following.number,
        waiting=max(0, line.waiting - 1),
        held_at=None,
        due_at=None,
    )
    return Decision(None, saves=(moved,), drops=(following,))


def take_turn(execution: Execution, at: Moment) -> Decision[None]:
    """Nothing of its line is ahead of it: it waits for a worker, or for what else keeps it back."""
    free = replace(execution, line_place=0, last_mutation_at=at.now)
    if execution.state.blocking_reason is not BlockingReason.WAITING_FOR_TURN:
        return Decision(None, free)
    state, detail = without_block(free, at.now)
    waits = replace(free, state=state, blocking_detail=detail, last_transition_at=at.now)
    return Decision(None, waits)


def put_off(line: LineRow, pause_ms: int, at: Moment) -> Decision[None]:
    """The head could not be told that it has the turn: the loop comes again."""
    return Decision(None, saves=(replace(line, due_at=at.now + pause_ms),))


def settled(line: LineRow) -> Decision[None]:
    """The head knows that it has the turn."""
    return Decision(None, saves=(replace(line, due_at=None),))
