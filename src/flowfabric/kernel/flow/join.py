"""Edge groups: when the dependencies of one member let it run, and when they never will."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    SIBLING_SATISFIED,
    AllDone,
    AllSucceeded,
    AnySucceeded,
    EdgeAhead,
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

K = TypeVar("K", bound=Hashable)
_PENDING: Final = GroupState.PENDING
_SUCCESS: Final = TerminalOutcome.SUCCESS

SIBLING_QUORUM: Final = "sibling_quorum"  # the source of such a cancel
SIBLING_IMPOSSIBLE: Final = "sibling_quorum_impossible"


class EdgeEnd(Record, frozen=True):
    """What its upstream's end makes of an edge."""

    edge_state: EdgeState
    resolved_at: int
    resolved_generation: int  # the upstream's life that counted


class Counted(NamedTuple):
    """A group after some of its upstreams have ended."""

    member: MemberRow
    fires: GroupState | None = None  # how these ends decided the group, if they did
    decisive: int = 0  # index of the end that decided the group


def satisfaction_of(policy: EdgePolicy) -> str:
    """What an edge's group asks of its edges, in one word as the seeds store it."""
    match policy:
        case AllSucceeded():
            return "all_required"
        case AllDone():
            return "all_done"
        case AnySucceeded():
            return "any_of"
        case Quorum():
            return f"quorum:{policy.k}"


def judge(policy: EdgePolicy, total: int, succeeded: int, failed: int, skipped: int) -> GroupState:
    """How a group of so many edges stands; satisfied is looked at before impossible."""
    lost = failed + skipped
    met = lacks = False
    match policy:
        case AllSucceeded():
            met, lacks = total > 0 and succeeded == total, lost > 0
        case AllDone():
            met = succeeded + lost == total
        case AnySucceeded():
            met, lacks = succeeded >= 1, lost >= total
        case Quorum(k=k):
            met, lacks = succeeded >= k, lost > total - k
    if met:
        return GroupState.SATISFIED
    return GroupState.IMPOSSIBLE if lacks else GroupState.PENDING


def edge_end(upstream: Execution, now: int) -> EdgeEnd:
    """How the edges that leave an ended execution are resolved."""
    success = upstream.state.terminal_outcome is TerminalOutcome.SUCCESS
    state = EdgeState.SATISFIED if success else EdgeState.IMPOSSIBLE
    return EdgeEnd(state, now, upstream.replay_count)


def count_ends(member: MemberRow, outcomes: Sequence[TerminalOutcome], now: int) -> Counted:
    """Count how upstreams ended, one after the other. A group is decided at most once in each
    generation; an end after that is only counted."""
    succeeded, skipped = outcomes.count(_SUCCESS), outcomes.count(TerminalOutcome.SKIPPED)
    counted = replace(
        member,
        succeeded=member.succeeded + succeeded,
        failed=member.failed + len(outcomes) - succeeded - skipped,
        skipped=member.skipped + skipped,
    )
    # A decision stays: if the group is still open now, none of these ends has decided it.
    if member.group_state is not _PENDING or judged(counted) is _PENDING:
        return Counted(counted)
    fires, decisive = _first_decision(member, outcomes)
    return Counted(replace(counted, group_state=fires, satisfied_at=now), fires, decisive)


def _first_decision(
    member: MemberRow, outcomes: Sequence[TerminalOutcome]
) -> tuple[GroupState, int]:
    """How a group is decided by these ends, and the index of the end that decides it."""
    succeeded, failed, skipped = member.succeeded, member.failed, member.skipped
    stands, at = _PENDING, -1
    while stands is _PENDING:
        at += 1
        succeeded += outcomes[at] is _SUCCESS
        skipped += outcomes[at] is TerminalOutcome.SKIPPED
        failed += outcomes[at] not in (_SUCCESS, TerminalOutcome.SKIPPED)
        stands = judge(member.joins, member.size, succeeded, failed, skipped)
    return stands, at


def perhaps_met(members: Iterable[MemberRow]) -> list[str]:
    """Ids of members whose group may have been met by an edge alone, without a change of their
    row."""
    return [each.execution_id for each in members if _may_be_met(each)]


def as_met(
    members: Mapping[K, MemberRow], edges: Iterable[EdgeRow | EdgeAhead]
) -> dict[K, MemberRow]:
    """Members as they stand, given the edges that lead to them. Most members wait for one success
    alone: when it comes, only that edge is written, and the group's state follows from it. The
    result is derived, not stored: if you change it, write every field."""
    met_at = {
        edge.downstream_execution_id: edge.resolved_at
        for edge in edges
        if edge.decides_alone and edge.edge_state is EdgeState.SATISFIED
    }
    return {
        key: replace(
            each,
            succeeded=1,
            group_state=GroupState.SATISFIED,
            satisfied_at=met_at[each.execution_id],
        )
        if each.execution_id in met_at and _may_be_met(each)
        else each
        for key, each in members.items()
    }


def _may_be_met(member: MemberRow) -> bool:
    return member.total == 1 and member.group_state is GroupState.PENDING


def judged(member: MemberRow) -> GroupState:
    """How a member's group stands by its counters."""
    return judge(member.joins, member.size, member.succeeded, member.failed, member.skipped)


def decided(member: MemberRow, now: int) -> MemberRow | None:
    """A group that its counters decide though nothing has ended just now: edges were opened again,
    or a staged one was withdrawn. None while the group stays as it is.

    Only ends decide a group: while no edge of it is resolved, it stays open."""
    stands = judged(member)
    if member.group_state is not _PENDING or stands is _PENDING or not member.resolved:
        return None
    return replace(member, group_state=stands, satisfied_at=now)


def keeps_back(member: MemberRow) -> bool:
    """Whether a parked parent has to wait on: for its children, or for others to end."""
    undecided = member.total > 0 and member.group_state is GroupState.PENDING
    return undecided or member.open_children > 0


def is_open(edge: EdgeRow | EdgeAhead, generation: int) -> bool:
    """Whether an upstream's end in this life still counts for the edge."""
    seen = edge.resolved_generation
    return edge.edge_state is EdgeState.APPLIED and (seen is None or seen < generation)


def meets_alone(edge: EdgeRow | EdgeAhead, outcome: TerminalOutcome) -> bool:
    """Whether an upstream's end meets its downstream's group by itself: nothing need be counted."""
    return edge.decides_alone and outcome is _SUCCESS


def cancels_siblings(member: MemberRow) -> bool:
    """Whether upstreams that still run for a decided group are cancelled."""
    policy = member.joins
    return (
        isinstance(policy, AnySucceeded | Quorum)
        and policy.on_satisfied is OnSatisfied.CANCEL_REMAINING
        and member.resolved < member.total
    )


def spares_shared(member: MemberRow) -> bool:
    """Whether siblings that another open group waits for are left alone."""
    policy = member.joins
    return isinstance(policy, AnySucceeded | Quorum) and policy.only_if_unshared


def siblings_to_cancel(
    ids: Sequence[str],
    edges: Iterable[EdgeAhead],
    members: Mapping[tuple[str, str], MemberRow],
) -> list[str]:
    """Those siblings that no open group waits for. `edges`: the open ones that leave the siblings,
    `members`: where these lead."""
    shared = {
        edge.upstream_execution_id
        for edge in edges
        if (row := members.get((edge.flow_id, edge.downstream_execution_id))) is not None
        and row.group_state is _PENDING
    }
    return [key for key in ids if key not in shared]


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
