"""Executions that depend on each other; see docs/guides/flows.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric import limits
from flowfabric.api.executions import NewExecution, NewHook
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.api.refusals import BY_HANDLE, NEW_EDGE, NEW_WORK, OPEN_FLOW
from flowfabric.api.words import CancellationPolicyGiven, FlowStatusGiven
from flowfabric.errors import (
    AlreadyInOtherFlow,
    CycleDetected,
    DependencyGroupDecided,
    DependentNotRunnable,
    EdgeInForce,
    EdgeNotInForce,
    ExecutionNotInFlow,
    ExecutionNotTerminal,
    FlowAlreadyTerminal,
    FlowConflict,
    InvalidCursor,
    InvalidDependency,
    InvalidTagKey,
    JournalFull,
    LaneClosed,
    MaxReplaysExhausted,
    NotFound,
    SelfReferencingEdge,
    StaleGraphRevision,
    UniqueConflict,
    WaitCycle,
    WaitTimeout,
)
from flowfabric.model.flow import (
    FLOW_CANCELLED,
    SUCCESS_ONLY,
    CancellationPolicy,
    EdgePolicy,
)
from flowfabric.model.flow_results import (
    Added,
    AlreadyMember,
    AlreadyTerminal,
    AlreadyWithdrawn,
    Applied,
    CancellationScheduled,
    CascadeOutcome,
    ChildrenAwaited,
    DependencyAlreadyApplied,
    DependencyResolved,
    EdgeSnapshot,
    EligibilityStatus,
    FlowAlreadySatisfied,
    FlowCancelled,
    FlowCreated,
    FlowDuplicate,
    FlowListing,
    FlowRetried,
    FlowSnapshot,
    FlowSubmitted,
    FlowSummary,
    MemberInfo,
    PartiallyCancelled,
    PolicyAlreadySet,
    PolicySet,
    Spawned,
    Staged,
    Withdrawn,
)
from flowfabric.model.handle import Handle
from flowfabric.model.journal import NewEntry
from flowfabric.model.record import Record
from flowfabric.model.successor import FlowHooks

# --- whole graphs --------------------------------------------------------------------------------


class FlowNode(Record, frozen=True, kw_only=True):
    """One execution of a graph, under a name of its own.

    >>> FlowNode(name="build", execution=NewExecution(execution_kind="build")).join is None
    True
    """

    name: str
    execution: NewExecution
    join: EdgePolicy | None = None  # none: all of its upstreams must succeed


class FlowEdge(Record, frozen=True, kw_only=True):
    """`downstream` waits for `upstream`; with `passes_result` it is handed its result."""

    upstream: str
    downstream: str
    passes_result: bool = False
    input_name: str | None = None  # under which name the result arrives


class NewFlow(Record, frozen=True, kw_only=True):
    """What belongs to the flow as a whole."""

    flow_id: str
    flow_kind: str
    namespace: str
    tags: dict[str, str] = {}
    retention_ms: int | None = None
    idempotency_key: str | None = None
    dedup_window_ms: int = limits.DEDUP_WINDOW_MS_DEFAULT
    is_named: bool = False  # whether the caller chose its id
    hooks: FlowHooks | None = None


@operation(
    "submit_flow",
    Kind.WRITE,
    Scope.SUBMIT,
    errors=(*BY_HANDLE, *NEW_WORK, JournalFull, FlowConflict, CycleDetected, SelfReferencingEdge),
)
class SubmitFlow(Request[FlowSubmitted | FlowDuplicate], frozen=True, kw_only=True):
    """Record a whole graph in one transaction: all of it, or nothing and the culprit is named.

    `on_success` follows its end if it completed, `on_failure` if it failed, `on_end` every end,
    when its last member has ended. Each is told how, as a `FlowEnded`.

    `connection`: in the caller's own open Postgres transaction, as `create_executions_in`. It
    cannot cross a wire: only an engine in this process takes one.

    `handle`, `entries`: of the execution that submits it, as for `create_executions`.

    >>> await engine.submit_flow(  # doctest: +SKIP
    ...     nodes=[FlowNode(name="a", execution=NewExecution(execution_kind="a")), …],
    ...     edges=[FlowEdge(upstream="a", downstream="b", passes_result=True)],
    ... )
    """

    nodes: Sequence[FlowNode]
    edges: Sequence[FlowEdge] = ()
    flow_kind: str = "dag"
    namespace: str | None = None
    tags: dict[str, str] | None = None
    retention_ms: int | None = None
    idempotency_key: str | None = None
    dedup_window_ms: int = limits.DEDUP_WINDOW_MS_DEFAULT
    flow_id: str | None = None
    connection: Any = None
    on_success: NewHook | None = None
    on_failure: NewHook | None = None
    on_end: NewHook | None = None
    handle: Handle | None = None
    entries: Sequence[NewEntry] = ()


# --- one by one ----------------------------------------------------------------------------------


@operation("create_flow", Kind.WRITE, Scope.SUBMIT, errors=(NotFound, FlowConflict, InvalidTagKey))
class CreateFlow(Request[FlowCreated | FlowAlreadySatisfied], frozen=True, kw_only=True):
    """An empty flow to add executions to.

    The same again is FlowAlreadySatisfied, another under the same id a FlowConflict. Its hooks
    are those of `submit_flow`: they follow each end of the flow, which comes when all members
    that it has by then have ended.

    >>> await engine.create_flow(  # doctest: +SKIP
    ...     flow_kind="import", on_end=NewHook(execution_kind="report")
    ... )
    """

    flow_kind: str = "dag"
    namespace: str | None = None
    flow_id: str | None = None
    tags: dict[str, str] | None = None
    retention_ms: int | None = None
    on_success: NewHook | None = None
    on_failure: NewHook | None = None
    on_end: NewHook | None = None


@operation(
    "add_execution_to_flow", Kind.WRITE, Scope.SUBMIT, errors=(*OPEN_FLOW, AlreadyInOtherFlow)
)
class AddExecutionToFlow(Request[Added | AlreadyMember], frozen=True, kw_only=True):
    """An execution joins a flow, for ever. `reopen`: also one that has finished."""

    flow_id: str
    execution_id: str
    node_name: str = ""
    reopen: bool = False


@operation(
    "stage_dependency_edge", Kind.WRITE, Scope.SUBMIT, errors=(*NEW_EDGE, StaleGraphRevision)
)
class StageDependencyEdge(Request[Staged], frozen=True, kw_only=True):
    """Announce an edge; it takes effect by `apply_dependency_to_child`.

    By itself it holds no child back. A child that waits for another edge waits for this one
    too, until it is applied and its upstream ends, or `withdraw_dependency_edge` takes it back.
    """

    flow_id: str
    upstream_execution_id: str
    downstream_execution_id: str
    edge_id: str | None = None
    dependency_kind: str = SUCCESS_ONLY
    data_passing_ref: str | None = None
    input_name: str | None = None
    expected_graph_revision: int | None = None


@operation(
    "apply_dependency_to_child",
    Kind.WRITE,
    Scope.SUBMIT,
    errors=(*OPEN_FLOW, InvalidDependency, DependentNotRunnable, DependencyGroupDecided),
)
class ApplyDependencyToChild(
    Request[Applied | DependencyAlreadyApplied], frozen=True, kw_only=True
):
    """The child waits from now on; an upstream that has ended counts at once."""

    flow_id: str
    edge_id: str
    upstream_execution_id: str
    downstream_execution_id: str


@operation(
    "withdraw_dependency_edge",
    Kind.WRITE,
    Scope.SUBMIT,
    errors=(*OPEN_FLOW, ExecutionNotInFlow, InvalidDependency, EdgeInForce),
)
class WithdrawDependencyEdge(Request[Withdrawn | AlreadyWithdrawn], frozen=True, kw_only=True):
    """Take a staged edge back: its group no longer waits for it, and may be met at once.

    An edge that was applied is refused.
    """

    flow_id: str
    edge_id: str
    upstream_execution_id: str
    downstream_execution_id: str


@operation("add_dependency", Kind.WRITE, Scope.SUBMIT, errors=(*NEW_EDGE, DependentNotRunnable))
class AddDependency(Request[Applied | DependencyAlreadyApplied], frozen=True, kw_only=True):
    """Stage and apply an edge in one transaction."""

    flow_id: str
    upstream_execution_id: str
    downstream_execution_id: str
    data_passing_ref: str | None = None
    input_name: str | None = None


@operation(
    "set_edge_group_policy", Kind.WRITE, Scope.SUBMIT, errors=(*OPEN_FLOW, ExecutionNotInFlow)
)
class SetEdgeGroupPolicy(Request[PolicySet | PolicyAlreadySet], frozen=True, kw_only=True):
    """How the inbound edges of a member join; to be said before the first of them."""

    flow_id: str
    downstream_execution_id: str
    policy: EdgePolicy


@operation("set_flow_tag", Kind.WRITE, Scope.OPERATE, errors=(NotFound, InvalidTagKey))
class SetFlowTag(UnsafeRequest[None], frozen=True, kw_only=True):
    """Set or overwrite one tag."""

    flow_id: str
    key: str
    value: str


@operation("set_flow_tags", Kind.WRITE, Scope.OPERATE, errors=(NotFound, InvalidTagKey))
class SetFlowTags(UnsafeRequest[None], frozen=True, kw_only=True):
    """Set or overwrite several tags, or none if one is malformed."""

    flow_id: str
    tags: dict[str, str]


# --- what the cascade does by itself -------------------------------------------------------------


@operation(
    "resolve_dependency",
    Kind.WRITE,
    Scope.OPERATE,
    errors=(NotFound, InvalidDependency, EdgeNotInForce, ExecutionNotTerminal),
)
class ResolveDependency(Request[DependencyResolved], frozen=True, kw_only=True):
    """Count an upstream's end for one edge; its outcome is read from its record."""

    flow_id: str
    edge_id: str
    upstream_execution_id: str
    downstream_execution_id: str


@operation("cascade_completion", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class CascadeCompletion(Request[CascadeOutcome], frozen=True, kw_only=True):
    """Resolve what follows from an execution's end, as far as it has not been."""

    execution_id: str


# --- cancelling ----------------------------------------------------------------------------------


@operation("cancel_flow", Kind.WAIT, Scope.OPERATE, errors=OPEN_FLOW)
class CancelFlow(
    UnsafeRequest[FlowCancelled | CancellationScheduled | PartiallyCancelled],
    frozen=True,
    kw_only=True,
):
    """Cancel a flow and the members its policy names; none of them starts after this returns.

    Members of a large flow are cancelled shortly afterwards; `wait_ms` waits for that, and
    PartiallyCancelled names those that were not cancelled in time.
    """

    flow_id: str
    policy: CancellationPolicyGiven = CancellationPolicy.CANCEL_ALL
    reason: str = FLOW_CANCELLED
    wait_ms: int | None = 0


@operation("cancel_flow_header", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class CancelFlowHeader(UnsafeRequest[FlowCancelled | AlreadyTerminal], frozen=True, kw_only=True):
    """Cancel the flow alone, for a caller that cancels its members and acknowledges each.

    None of them starts any more; what is left after the grace is cancelled by itself.
    """

    flow_id: str
    policy: CancellationPolicyGiven = CancellationPolicy.CANCEL_ALL
    reason: str = FLOW_CANCELLED
    grace_ms: int = limits.CANCEL_GRACE_MS_DEFAULT


@operation("ack_cancel_member", Kind.WRITE, Scope.OPERATE)
class AckCancelMember(Request[None], frozen=True, kw_only=True):
    """A member of a cancelled flow was cancelled by its caller, so the engine need not.

    The cancel of one that has not ended stays deferred until the grace is over.
    """

    flow_id: str
    execution_id: str


@operation(
    "retry_flow",
    Kind.WRITE,
    Scope.OPERATE,
    errors=(NotFound, ExecutionNotTerminal, MaxReplaysExhausted, LaneClosed, UniqueConflict),
)
class RetryFlow(UnsafeRequest[FlowRetried], frozen=True, kw_only=True):
    """Run failed, expired and cancelled members again, and those skipped because of them.

    Members that succeeded are left alone, and so are those that a join did without. At most
    `limits.RETRIED_AT_ONCE` are replayed, all or none; call again while some are left.
    """

    flow_id: str
    reason: str = ""


# --- children ------------------------------------------------------------------------------------


@operation(
    "spawn_children",
    Kind.WRITE,
    Scope.WORKER,
    positional=("handle", "children"),
    errors=(*BY_HANDLE, *NEW_WORK, JournalFull, FlowAlreadyTerminal),
)
class SpawnChildren(Request[Spawned], frozen=True, kw_only=True):
    """Record executions as children of the one the handle owns, in its flow.

    A child with an idempotency key that the parent used before is the one it spawned then.
    `entries`: added to the journal in the same transaction. The value of one of kind `spawn`
    says how many of the children, in order, it is about; their ids are recorded.
    """

    handle: Handle
    children: Sequence[NewExecution]
    entries: Sequence[NewEntry] = ()


@operation("wait_children", Kind.WRITE, Scope.WORKER, errors=(*BY_HANDLE, WaitCycle))
class WaitChildren(Request[ChildrenAwaited], frozen=True, kw_only=True):
    """Let go of the lease until every child has ended; without any it goes on at once."""

    handle: Handle


# --- reads ---------------------------------------------------------------------------------------


@operation("describe_flow", Kind.READ, Scope.READ)
class DescribeFlow(Request[FlowSnapshot | None], frozen=True, kw_only=True):
    """A flow with its counts and the groups of its members, or nothing."""

    flow_id: str


@operation("project_flow_summary", Kind.READ, Scope.READ, errors=(NotFound,))
class ProjectFlowSummary(Request[FlowSummary], frozen=True, kw_only=True):
    """Exact numbers of members by state."""

    flow_id: str


@operation("list_flows", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListFlows(Request[Page[FlowListing]], frozen=True, kw_only=True):
    """Flows by id, which is by creation.

    One whose row cannot be read is left out, as in `list_executions`; `doctor` names it.
    """

    namespace: str | None = None
    status: FlowStatusGiven | None = None
    newest_first: bool = False
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("list_flow_members", Kind.READ, Scope.READ, errors=(NotFound,))
class ListFlowMembers(Request[tuple[MemberInfo, ...]], frozen=True, kw_only=True):
    """Every member with its state, in the order of the graph.

    All at once: a flow has at most `limits.FLOW_MEMBERS_MAX`, and their order is not that of
    their ids.
    """

    flow_id: str


@operation("list_edges", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListEdges(Request[Page[EdgeSnapshot]], frozen=True, kw_only=True):
    """The edges that leave one member, or lead to one; without either, all of the flow; by id.

    One whose row cannot be read is left out, as in `list_executions`; `doctor` names it.
    """

    flow_id: str
    from_node: str | None = None
    to_node: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("describe_edge", Kind.READ, Scope.READ)
class DescribeEdge(Request[EdgeSnapshot | None], frozen=True, kw_only=True):
    """One edge with its live state, or nothing."""

    flow_id: str
    edge_id: str


@operation("resolve_execution_flow_id", Kind.READ, Scope.READ)
class ResolveExecutionFlowId(Request[str | None], frozen=True, kw_only=True):
    """The flow an execution belongs to, if any."""

    execution_id: str


@operation("get_flow_tag", Kind.READ, Scope.READ, errors=(InvalidTagKey,))
class GetFlowTag(Request[str | None], frozen=True, kw_only=True):
    """One tag, or nothing."""

    flow_id: str
    key: str


@operation("evaluate_flow_eligibility", Kind.READ, Scope.READ)
class EvaluateFlowEligibility(Request[EligibilityStatus], frozen=True, kw_only=True):
    """Whether its dependencies let an execution run, judged by its group."""

    execution_id: str


@operation("wait_for_flow", Kind.WAIT, Scope.READ, errors=(NotFound, WaitTimeout))
class WaitForFlow(Request[FlowSnapshot], frozen=True, kw_only=True):
    """The flow once all its members have ended; WaitTimeout when that takes too long."""

    flow_id: str
    wait_ms: int | None = None
