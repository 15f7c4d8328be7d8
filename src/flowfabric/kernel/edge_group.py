"""Edge groups: when the dependencies of one member let it run, and when they never will."""

from __future__ import annotations

from typing import Final

from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    AllDone,
    AllOf,
    AnyOf,
    EdgePolicy,
    EdgeRow,
    EdgeState,
    GroupState,
    MemberRow,
    OnSatisfied,
    Quorum,
)
from flowfabric.model.record import Record, replace
from flowfabric.model.state import TerminalOutcome

SIBLING_QUORUM: Final = "sibling_quorum"  # who cancels
SIBLING_SATISFIED: Final = "sibling_quorum_satisfied"
SIBLING_IMPOSSIBLE: Final = "sibling_quorum_impossible"

_BUCKET: Final = {
    TerminalOutcome.SUCCESS: "succeeded",
    TerminalOutcome.SKIPPED: "skipped",
    TerminalOutcome.FAILED: "failed",
    TerminalOutcome.CANCELLED: "failed",
    TerminalOutcome.EXPIRED: "failed",
}


class Resolution(Record, frozen=True):
    """What resolving one edge did to it and to its group."""

    edge: EdgeRow
    member: MemberRow
    outcome: str  # satisfied, impossible, pending, already_fired
    fires: GroupState | None = None  # the group was decided by this edge


def judge(policy: EdgePolicy, total: int, succeeded: int, failed: int, skipped: int) -> GroupState:
    """How a group of so many edges stands; satisfied is looked at before impossible."""
    lost = failed + skipped
    met = lacks = False
    match policy:
        case AllOf():
            met, lacks = total > 0 and succeeded == total, lost > 0
        case AllDone():
            met = succeeded + lost == total
        case AnyOf():
            met, lacks = succeeded >= 1, lost >= total
        case Quorum(k=k):
            met, lacks = succeeded >= k, lost > total - k
    if met:
        return GroupState.SATISFIED
    return GroupState.IMPOSSIBLE if lacks else GroupState.PENDING


def resolve(
    member: MemberRow, edge: EdgeRow, outcome: TerminalOutcome, generation: int, now: int
) -> Resolution:
    """Count one upstream's end; the group is decided at most once in each generation."""
    state = EdgeState.SATISFIED if outcome is TerminalOutcome.SUCCESS else EdgeState.IMPOSSIBLE
    resolved = replace(edge, edge_state=state, resolved_at=now, resolved_generation=generation)
    bucket = _BUCKET[outcome]
    counted = replace(member, **{bucket: getattr(member, bucket) + 1})
    if member.group_state is not GroupState.PENDING:
        return Resolution(resolved, counted, "already_fired")
    stands = judged(counted)
    if stands is GroupState.PENDING:
        return Resolution(resolved, counted, "pending")
    decided = replace(counted, group_state=stands, satisfied_at=now)
    return Resolution(resolved, decided, stands.value, stands)


def judged(member: MemberRow) -> GroupState:
    """How a member's group stands by its counters."""
    return judge(member.joins, member.total, member.succeeded, member.failed, member.skipped)


def keeps_back(member: MemberRow) -> bool:
    """Whether a parked parent has to wait on: for its children, or for others to end."""
    undecided = member.total > 0 and member.group_state is GroupState.PENDING
    return undecided or member.open_children > 0


def is_open(edge: EdgeRow, generation: int) -> bool:
    """Whether an upstream's end in this life still counts for the edge."""
    seen = edge.resolved_generation
    return edge.edge_state is EdgeState.APPLIED and (seen is None or seen < generation)


def cancels_siblings(member: MemberRow) -> bool:
    """Whether those who are still at work for a decided group are no longer needed."""
    policy = member.joins
    return (
        isinstance(policy, AnyOf | Quorum)
        and policy.on_satisfied is OnSatisfied.CANCEL_REMAINING
        and member.resolved < member.total
    )


def spares_shared(member: MemberRow) -> bool:
    """Whether siblings that others still wait for are left alone."""
    policy = member.joins
    return isinstance(policy, AnyOf | Quorum) and policy.only_if_unshared


def is_unneeded(execution: Execution) -> bool:
    """Whether it was cancelled because a join was met without it: as planned, not a loss."""
    return (
        execution.cancelled_by == SIBLING_QUORUM
        and execution.cancellation_reason == SIBLING_SATISFIED
    )


def sibling_reason(member: MemberRow) -> str:
    """Why siblings are cancelled."""
    satisfied = member.group_state is GroupState.SATISFIED
    return SIBLING_SATISFIED if satisfied else SIBLING_IMPOSSIBLE


def reopened(member: MemberRow, edges: list[EdgeRow]) -> tuple[MemberRow, list[EdgeRow]]:
    """A skipped member is replayed: what was impossible is open again and counted anew.

    The edges remember which life of their upstream decided them, so that it counts once.
    """
    opened = [
        replace(edge, edge_state=EdgeState.APPLIED, resolved_at=None)
        for edge in edges
        if edge.edge_state is EdgeState.IMPOSSIBLE
    ]
    again = replace(
        member,
        failed=0,
        skipped=0,
        group_state=GroupState.PENDING,
        generation=member.generation + 1,
        satisfied_at=None,
    )
    return again, opened
