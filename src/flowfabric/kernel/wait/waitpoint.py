"""Waitpoints: the addresses of signals, handed out before a suspension uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric.errors import KeyringEmpty, NotFound, WaitpointAlreadyExists, WaitpointInUse
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, refuse
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.kernel.wait.episode import closed_waitpoint
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.record import Record, replace
from flowfabric.model.state import AttemptState
from flowfabric.model.suspension import SecretRow, WaitpointRow, WaitpointState

_NEXT_ATTEMPT: Final = (AttemptState.PENDING_RETRY_ATTEMPT, AttemptState.PENDING_FIRST_ATTEMPT)


class Binding(Record, frozen=True):
    """A waitpoint of a suspension: a new one, or one that was handed out before."""

    waitpoint_id: str
    waitpoint_key: str
    is_pending: bool = False
    payload_type: str | None = None
    stays_pending: bool = False  # its signals count for this wait, and it outlives the wait


class CreateWaitpoint(ExecutionCommand[WaitpointRow], frozen=True, kw_only=True):
    """The owner hands out an address before it suspends."""

    fence: Fence
    waitpoint_id: str
    waitpoint_key: str
    expires_in_ms: int
    payload_type: str | None = None
    entries: Checkpoint | None = None  # added to the journal with it, so it outlives its attempt

    def needs(self, need: Needs) -> None:
        """The execution and the waitpoint."""
        need.executions.add(self.execution_id)
        need.waits = True
        need.waitpoints.add((self.waitpoint_id,))
        if self.entries is not None:
            self.entries.needs(need)


class CloseWaitpoint(ExecutionCommand[WaitpointRow], frozen=True, kw_only=True):
    """Signals on a waitpoint are no longer wanted."""

    waitpoint_id: str
    reason: str

    def needs(self, need: Needs) -> None:
        """The execution and the waitpoint."""
        need.executions.add(self.execution_id)
        need.waits = True
        need.waitpoints.add((self.waitpoint_id,))


def new_waitpoint(
    execution: Execution, binding: Binding, key: SecretRow, at: Moment
) -> WaitpointRow:
    """A waitpoint without signals."""
    return WaitpointRow(
        binding.waitpoint_id,
        execution.execution_id,
        execution.attempt_index or 0,
        None,
        binding.waitpoint_key,
        WaitpointState.PENDING,
        key.kid,
        at.now,
        None,
        None,
        None,
        None,
        binding.payload_type,
    )


def create_waitpoint(
    execution: Execution | None,
    known: WaitpointRow | None,
    key: SecretRow | None,
    command: CreateWaitpoint,
    at: Moment,
) -> Decision[WaitpointRow]:
    """An address that buffers signals until the owner suspends on it, or it lapses.

    `key` signs its token.
    """
    if key is None:
        return refuse(KeyringEmpty)
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    if known is not None:
        return refuse(WaitpointAlreadyExists, f"waitpoint {command.waitpoint_id}")
    binding = Binding(command.waitpoint_id, command.waitpoint_key, True, command.payload_type)
    until = at.now + command.expires_in_ms
    is_lasting = int(command.entries is not None)
    made = new_waitpoint(execution, binding, key, at)
    made = replace(made, expires_at=until, due_at=until, is_lasting=is_lasting)
    counted = replace(execution, side_holds=execution.side_holds + 1)
    return Decision(made, counted, saves=(made,))


def close_waitpoint(
    execution: Execution | None, waitpoint: WaitpointRow | None, command: CloseWaitpoint, at: Moment
) -> Decision[WaitpointRow]:
    """A pending waitpoint its maker will not use; one that is waited on cannot be closed."""
    if waitpoint is None or waitpoint.execution_id != command.execution_id:
        return refuse(NotFound, f"waitpoint {command.waitpoint_id}", entity="waitpoint")
    if waitpoint.state is WaitpointState.CLOSED:
        return Decision(waitpoint)
    if waitpoint.state is WaitpointState.ACTIVE:
        return refuse(WaitpointInUse, f"{waitpoint.execution_id} waits on it")
    return _given_up(execution, waitpoint, command.reason, at)


def lapse_waitpoint(
    execution: Execution | None, waitpoint: WaitpointRow | None, at: Moment
) -> Decision[bool]:
    """Close a pending waitpoint that no suspension came to use in time; whether it was."""
    if waitpoint is None or waitpoint.state is not WaitpointState.PENDING:
        return Decision(False)
    if waitpoint.due_at is None or waitpoint.due_at > at.now:
        return Decision(False)
    return _given_up(execution, waitpoint, "never_committed", at).told(True)


def _given_up(
    execution: Execution | None, waitpoint: WaitpointRow, reason: str, at: Moment
) -> Decision[WaitpointRow]:
    gone = closed_waitpoint(waitpoint, reason, at)
    after = None
    if execution is not None:  # written even if it stays as it is: its version guards its waits
        after = replace(execution, side_holds=max(0, execution.side_holds - 1))
    return Decision(gone, after, saves=(gone,))


def abandons_waitpoints(before: Execution, after: Execution) -> bool:
    """Whether an execution may have open waitpoints on which no suspension will come to wait any
    more: the attempt that handed them out is over."""
    if not before.side_holds and before.suspension_id is None:
        return False
    return _ends_attempt(before, after)


def _ends_attempt(before: Execution, after: Execution) -> bool:
    if after.is_terminal or after.attempt_index != before.attempt_index:
        return not before.is_terminal
    state = after.state.attempt_state
    return state in _NEXT_ATTEMPT and state != before.state.attempt_state


def close_abandoned(
    waitpoints: Sequence[WaitpointRow], at: Moment, *, is_over: bool
) -> Decision[None]:
    """Close what an attempt has left open. What its journal knows of is waited on by the next one,
    unless the execution `is_over`."""
    gone = tuple(
        closed_waitpoint(each, "attempt ended", at)
        for each in waitpoints
        if each.state is not WaitpointState.CLOSED and (is_over or not each.is_lasting)
    )
    return Decision(None, saves=gone)
