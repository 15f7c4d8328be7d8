"""What a replay means to a flow: the member waits again for what it lacked."""

from __future__ import annotations

from collections.abc import Iterable

from flowfabric.kernel.execution.replay import Replay
from flowfabric.model.execution import Execution
from flowfabric.model.flow import GroupState, MemberRow, TaskKind
from flowfabric.model.state import TerminalOutcome

# Cancels that were deferred for the life before: they must not reach the new one.
OF_FORMER_LIFE = (TaskKind.CANCEL_MEMBER, TaskKind.CANCEL_CHILDREN)


def waits_again(member: MemberRow) -> bool:
    """Whether a replayed member, which ended before its group was met, waits for that now."""
    return member.total > 0 and member.group_state is not GroupState.SATISFIED


def lacks_input(member: MemberRow, execution: Execution) -> bool:
    """Whether the group was met while the member had ended without a run: nothing was handed to it
    then."""
    is_met = member.total > 0 and member.group_state is GroupState.SATISFIED
    return is_met and not execution.total_attempt_count


def replays_along(upstream: Execution, children: Iterable[Execution]) -> list[Replay]:
    """A replay that cascades replays the children that were skipped, and these theirs."""
    return [
        Replay(
            execution_id=child.execution_id,
            requested_by="flow",
            reason=f"{upstream.execution_id} is replayed",
            cascade=True,
        )
        for child in children
        if child.state.terminal_outcome is TerminalOutcome.SKIPPED
    ]
