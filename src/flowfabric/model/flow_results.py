"""Replies of operations on flows."""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric.model.flow import (
    CancellationPolicy,
    EdgePolicy,
    EdgeState,
    FlowState,
    FlowStatus,
    GroupState,
)
from flowfabric.model.record import Record
from flowfabric.model.state import PublicState
from flowfabric.model.successor import SuccessorInfo


class FlowCreated(Record, frozen=True, tag=True):
    """A new flow."""

    flow_id: str


class FlowAlreadySatisfied(Record, frozen=True, tag=True):
    """The same flow was there already."""

    flow_id: str


class FlowSubmitted(Record, frozen=True, tag=True):
    """A whole graph was recorded; nodes by name."""

    flow_id: str
    execution_ids: Mapping[str, str]


class FlowDuplicate(Record, frozen=True, tag=True):
    """The same graph was recorded under this key before."""

    flow_id: str


class Added(Record, frozen=True, tag=True):
    """A new member."""

    execution_id: str
    new_node_count: int


class AlreadyMember(Record, frozen=True, tag=True):
    """It was a member already."""

    execution_id: str
    node_count: int


class Staged(Record, frozen=True):
    """An edge was staged: it does not block its child yet, but its group waits for it."""

    edge_id: str
    new_graph_revision: int


class Applied(Record, frozen=True, tag=True):
    """The number of upstreams the child waits for, those of staged edges included."""

    unsatisfied_count: int


class DependencyAlreadyApplied(Record, frozen=True, tag=True):
    """The edge was applied before."""


class Withdrawn(Record, frozen=True, tag=True):
    """The edge is removed; the decision of its group without it."""

    edge_id: str
    new_graph_revision: int
    group_state: GroupState


class AlreadyWithdrawn(Record, frozen=True, tag=True):
    """There is no such edge: it was withdrawn before, or never staged."""


class PolicySet(Record, frozen=True, tag=True):
    """The group has this policy."""


class PolicyAlreadySet(Record, frozen=True, tag=True):
    """The group had this policy already."""


class DependencyResolved(Record, frozen=True):
    """The outcome of resolving one edge: satisfied, impossible, pending, already_fired or
    already_resolved; and what happened to the child."""

    outcome: str
    data_injected: bool = False
    child_skipped: bool = False


class CascadeOutcome(Record, frozen=True):
    """How many edges were resolved, how many children changed, and whether all work is done."""

    resolved: int
    cascaded_children: int
    synchronous: bool


class FlowCancelled(Record, frozen=True, tag=True):
    """The flow is cancelled, and so is every member its policy covers."""

    cancellation_policy: CancellationPolicy
    member_execution_ids: tuple[str, ...]


class CancellationScheduled(Record, frozen=True, tag=True):
    """The flow is cancelled; none of these members can start, and each is cancelled shortly."""

    cancellation_policy: CancellationPolicy
    member_count: int
    member_execution_ids: tuple[str, ...]


class PartiallyCancelled(Record, frozen=True, tag=True):
    """The flow is cancelled; the cancel of these members is deferred."""

    cancellation_policy: CancellationPolicy
    member_execution_ids: tuple[str, ...]
    failed_member_execution_ids: tuple[str, ...]


class AlreadyTerminal(Record, frozen=True, tag=True):
    """The flow had ended before; nothing was changed."""

    stored_cancellation_policy: CancellationPolicy | None
    stored_cancel_reason: str | None
    member_execution_ids: tuple[str, ...]


class EligibilityStatus(Record, frozen=True):
    """Whether dependencies let an execution run."""

    status: str


class ChildrenAwaited(Record, frozen=True, tag=True):
    """The lease was released. `waiting` says whether any child is still open."""

    public_state: PublicState
    open_children: int


class Spawned(Record, frozen=True):
    """Children of an execution, in the order of the request."""

    flow_id: str
    execution_ids: tuple[str, ...]


class EdgeGroupSnapshot(Record, frozen=True):
    """The state of one member's inbound edges together."""

    downstream_execution_id: str
    node_name: str
    policy: EdgePolicy
    total_deps: int
    satisfied_count: int
    failed_count: int
    skipped_count: int
    running_count: int
    staged_count: int  # of the total: staged, not applied yet
    group_state: GroupState
    satisfied_at: int | None


class FlowSummary(Record, frozen=True):
    """Exact numbers of members by public state."""

    flow_id: str
    public_flow_state: FlowState
    total_members: int
    members: Mapping[PublicState, int]


class FlowSnapshot(Record, frozen=True):
    """The current state of a flow."""

    flow_id: str
    flow_kind: str
    namespace: str
    public_flow_state: FlowState
    graph_revision: int
    node_count: int
    edge_count: int
    created_at: int
    last_mutation_at: int
    finished_at: int | None
    cancelled_at: int | None
    cancel_reason: str | None
    cancellation_policy: CancellationPolicy | None
    tags: Mapping[str, str]
    members: Mapping[PublicState, int]
    edge_groups: tuple[EdgeGroupSnapshot, ...]
    successors: tuple[SuccessorInfo, ...] = ()


class FlowListing(Record, frozen=True):
    """One line of a listing."""

    flow_id: str
    flow_kind: str
    namespace: str
    created_at: int
    status: FlowStatus
    node_count: int
    ended_count: int


class MemberInfo(Record, frozen=True):
    """One member, as shown to people and to programs that follow a flow."""

    execution_id: str
    node_name: str
    execution_kind: str
    public_state: PublicState
    rank: int
    parent_id: str | None
    attempt_count: int
    reason: str  # why it failed, was cancelled or waits


class FlowRetried(Record, frozen=True):
    """The members that run again, as they were; `left`: how many are still to be retried."""

    flow_id: str
    replayed: tuple[MemberInfo, ...]
    left: int


class EdgeSnapshot(Record, frozen=True):
    """One edge with its live state."""

    edge_id: str
    flow_id: str
    upstream_execution_id: str
    downstream_execution_id: str
    dependency_kind: str
    satisfaction_condition: str  # of its group: all_required, all_done, any_of or quorum:K
    data_passing_ref: str | None
    input_name: str | None
    edge_state: EdgeState
    created_at: int
    resolved_at: int | None
    created_by: str = "engine"
