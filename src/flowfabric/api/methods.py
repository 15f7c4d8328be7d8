"""One typed method per operation, written by tools/backend_methods.py from requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from flowfabric import limits
from flowfabric.api.access import (
    Authenticate,
    CreateAccessToken,
    FindNamespaces,
    ListAccessTokens,
    RevokeAccessToken,
)
from flowfabric.api.admin import (
    Doctor,
    DoctorReport,
    ExpireExecution,
    MarkLeaseExpiredIfDue,
    Ping,
    Prepare,
    PromoteDelayed,
    ReconcileExecutionIndex,
    ServerTimeMs,
    ShutdownPrepare,
    TrimRetention,
)
from flowfabric.api.approvals import CountWaits, ListApprovals, ShowWait
from flowfabric.api.asks import AnswerBudgetAsk, AskBudget, ListBudgetAsks
from flowfabric.api.audit import ListAudit, RecordRefusals
from flowfabric.api.budgets import (
    CreateBudget,
    GetBudgetStatus,
    ListBudgets,
    ListExecutionSpend,
    ListFlowSpend,
    ListSpend,
    ReadBudgetUsageAndLimits,
    RecordSpend,
    ReleaseBudget,
    ReleaseHold,
    ReportUsage,
    ReportUsageAdmin,
    ReserveBudget,
    ResetBudget,
    SettleBudget,
    UpdateBudget,
    Usage,
)
from flowfabric.api.bulk import DescribeOperation, ListOperations, StartOperation, StopOperation
from flowfabric.api.code import ListCode, RepinExecution
from flowfabric.api.control import (
    BlockExecutionForAdmission,
    BlockRoute,
    CancelExecution,
    ChangePriority,
    HoldExecution,
    ReleaseExecution,
    ReplayExecution,
    RevokeLease,
    SetExecutionTag,
    UnblockExecution,
)
from flowfabric.api.dead import CountDead, DismissDead, ListDead, RestoreDead
from flowfabric.api.events import (
    EVERYTHING,
    NOW,
    ReadEvents,
    ReadTimeline,
    SubscribeCompletion,
    SubscribeEvents,
    SubscribeInstanceTags,
    SubscribeLeaseHistory,
    SubscribeSignalDelivery,
)
from flowfabric.api.executions import (
    CountExecutions,
    CountListed,
    CreateExecutions,
    CreateExecutionsIn,
    DescribeExecution,
    Explain,
    FindExecutions,
    FindFlows,
    GetExecutionNamespace,
    GetExecutionResult,
    GetExecutionTag,
    ListAttempts,
    ListExecutions,
    ListExpiredLeases,
    ListKinds,
    NewExecution,
    NewHook,
    NewUnique,
    ReadCurrentAttemptIndex,
    ReadExecCoreFields,
    ReadExecutionContext,
    ReadExecutionInfo,
    ReadExecutionState,
    ReadOutcomes,
    ReadResult,
    ReadTotalAttemptCount,
    WaitForOutcome,
    WaitForResult,
)
from flowfabric.api.failures import (
    DescribeFailure,
    DescribeFailureGroup,
    ListFailureGroups,
    MarkFailureGroup,
)
from flowfabric.api.flow_graphs import (
    DETAIL_DEFAULT,
    DescribeFlowGraph,
    DescribeFlowMember,
    ListGraphMembers,
)
from flowfabric.api.flows import (
    AckCancelMember,
    AddDependency,
    AddExecutionToFlow,
    ApplyDependencyToChild,
    CancelFlow,
    CancelFlowHeader,
    CascadeCompletion,
    CreateFlow,
    DescribeEdge,
    DescribeFlow,
    EvaluateFlowEligibility,
    FlowEdge,
    FlowNode,
    GetFlowTag,
    ListEdges,
    ListFlowMembers,
    ListFlows,
    ProjectFlowSummary,
    ResolveDependency,
    ResolveExecutionFlowId,
    RetryFlow,
    SetEdgeGroupPolicy,
    SetFlowTag,
    SetFlowTags,
    SpawnChildren,
    StageDependencyEdge,
    SubmitFlow,
    WaitChildren,
    WaitForFlow,
    WithdrawDependencyEdge,
)
from flowfabric.api.gauges import ReadGauges
from flowfabric.api.grants import (
    ClaimExecution,
    ClaimForWorker,
    ClaimFromResumeGrant,
    ClaimResumedExecution,
    IssueClaimGrant,
    IssueGrantAndClaim,
    IssueReclaimGrant,
    ReclaimExecution,
    ScanEligibleExecutions,
)
from flowfabric.api.groups import (
    AckGroup,
    CreateConsumerGroup,
    DeleteConsumerGroup,
    ListConsumerGroups,
    ReadGroup,
)
from flowfabric.api.journal import (
    Checkpoint,
    CheckpointIn,
    ContinueExecution,
    ForkExecution,
    LoadJournal,
    ReadJournal,
    ReadPublished,
    RegisterUndo,
    RunUndo,
    SharesDatabase,
)
from flowfabric.api.keys import (
    ListWaitpointHmacKids,
    RotateWaitpointHmacSecretAll,
    SeedWaitpointHmacSecret,
)
from flowfabric.api.lanes import (
    ConfigureLane,
    DrainLane,
    ListLanes,
    PauseLane,
    ResumeLane,
    SetLaneState,
)
from flowfabric.api.leases import (
    Cancel,
    Claim,
    Complete,
    CompleteExecution,
    Delay,
    Fail,
    FailExecution,
    GiveBackClaim,
    Progress,
    Renew,
    RenewLease,
)
from flowfabric.api.lines import ListLine, ListLines, ReconcileLines, ReleaseLine
from flowfabric.api.logs import AppendLogs, ReadLogs
from flowfabric.api.mail import (
    ListenMailboxes,
    ListMailboxes,
    ReadMessages,
    ReceiveMessage,
    ReplyMessage,
    SendMessage,
    WaitForReply,
)
from flowfabric.api.operation import Request
from flowfabric.api.page import Page
from flowfabric.api.quotas import (
    CheckAdmission,
    CreateQuotaPolicy,
    GetQuotaStatus,
    ListQuotaPolicies,
    ReadQuotaPolicyLimits,
    ReleaseAdmission,
    UpdateQuotaPolicy,
)
from flowfabric.api.repairs import (
    DrainSiblingCancelGroup,
    ReconcileBudgetCounters,
    ReconcileFlowCounters,
    ReconcileQuotaCounters,
    ReconcileSiblingCancelGroup,
)
from flowfabric.api.retries import ListRetries, RetryWithInput
from flowfabric.api.schedules import (
    BackfillSchedule,
    CreateSchedule,
    DeclaredSchedule,
    DeclareSchedules,
    DeleteSchedule,
    DescribeSchedule,
    ListSchedules,
    PauseSchedule,
    PreviewSchedule,
    PruneSchedules,
    ReadScheduleStart,
    ReadTicks,
    ResumeSchedule,
    ScheduledStart,
    TriggerSchedule,
    UpdateSchedule,
)
from flowfabric.api.sessions import EndSession, OpenSession, ReadSession
from flowfabric.api.statistics import ReadSpending, ReadStatistics
from flowfabric.api.streams import (
    AppendFrame,
    AppendFrames,
    ReadExecutionStream,
    ReadStream,
    ReadSummary,
    TailStream,
)
from flowfabric.api.waits import (
    CloseWaitpoint,
    CreateWaitpoint,
    DeliverApprovalSignal,
    DeliverSignal,
    DeliverSignals,
    DeliverTrustedSignal,
    DescribeWaits,
    ExpireSuspension,
    FindWaitpoint,
    ListPendingWaitpoints,
    ListSuspended,
    ListSuspensions,
    ListWaits,
    ObserveSignals,
    ReadResumeInfo,
    ReadSignals,
    ReadWaitpointToken,
    ResumeExecution,
    ShowWaitpoint,
    Signal,
    Suspend,
    SuspendByTriple,
    SuspendRequest,
    WaitInfo,
    WatchExecutions,
)
from flowfabric.api.words import (
    BlockingReasonGiven,
    BulkActionGiven,
    BulkStateGiven,
    CancellationPolicyGiven,
    EnforcementModeGiven,
    EventKindGiven,
    FailureClassGiven,
    FlowStatusGiven,
    HardActionGiven,
    HeadFailureGiven,
    LaneStateGiven,
    LetterGiven,
    LimitKindGiven,
    PolicyGiven,
    ScopeTypeGiven,
    SoftActionGiven,
    StepGiven,
    TokenGiven,
    VisibilityGiven,
)
from flowfabric.api.workers import (
    DrainWorker,
    HeartbeatWorker,
    LeaveWorker,
    ListUnmet,
    ListWorkers,
    MarkWorkerDead,
    RegisterWorker,
    WaitForStops,
)
from flowfabric.errors import FlowFabricError
from flowfabric.model.access import AccessToken, AccessTokenCreated, AccessTokenRevoked, Namespaces
from flowfabric.model.approvals import ApprovalGiven, WaitShown
from flowfabric.model.ask import AskAnswered, Asked, BudgetAsk, LimitKind
from flowfabric.model.attempt import Attempt, FailureClass
from flowfabric.model.audit import AuditEntry, Refusals
from flowfabric.model.budget import (
    AskFirst,
    BudgetAlreadySatisfied,
    BudgetCreated,
    BudgetReset,
    BudgetStatus,
    BudgetUpdated,
    EnforcementMode,
    HardAction,
    HardBreach,
    HoldReleased,
    KindSpent,
    Reserved,
    ScopeType,
    SoftAction,
    Spent,
    UsageAndLimits,
    UsageOutcome,
)
from flowfabric.model.bulk import BulkCounted, BulkOperation
from flowfabric.model.code import CodeUse, Repinned
from flowfabric.model.dead import DeadCount, DeadLetter, Dismissed, Restored
from flowfabric.model.execution import Fence
from flowfabric.model.failure import FailureGroup, FailureMarked, FailureOrigin, FailureTold
from flowfabric.model.feed import EventFilter, EventPage, Timeline
from flowfabric.model.flow import FLOW_CANCELLED, SUCCESS_ONLY, CancellationPolicy, EdgePolicy
from flowfabric.model.flow_graph import RANKS_MAX, FlowGraph, FlowMember, GraphNode
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
from flowfabric.model.gauges import Gauges
from flowfabric.model.group import Acknowledged, ConsumerGroup, Delivery, GroupCreated, GroupDeleted
from flowfabric.model.handle import Handle
from flowfabric.model.journal import (
    Checkpointed,
    Continued,
    Forked,
    JournalPage,
    NewEntry,
    Published,
)
from flowfabric.model.keys import AlreadySeeded, NothingToRotate, Rotated, Seeded
from flowfabric.model.line import InLine, Line, LineReleased
from flowfabric.model.log_lines import LogBatch, LogPage, LogsAppended
from flowfabric.model.mailbox import (
    Listening,
    MailboxInfo,
    Message,
    MessagePage,
    Replied,
    Reply,
    Sent,
)
from flowfabric.model.quota import (
    AdmissionOutcome,
    AdmissionReleased,
    QuotaAlreadySatisfied,
    QuotaCreated,
    QuotaPolicy,
    QuotaStatus,
    QuotaUpdated,
)
from flowfabric.model.repair import Repaired, SiblingsDrained, SiblingsReconciled
from flowfabric.model.results import (
    AlreadySatisfied,
    AttemptInfo,
    Blocked,
    Cancelled,
    Claimed,
    Completed,
    CreateResult,
    Delayed,
    DrainAsked,
    ExecutionContext,
    ExecutionSnapshot,
    ExpiredLease,
    Explanation,
    GivenBack,
    GrantIssued,
    LaneChanged,
    LaneConfigured,
    LaneSummary,
    LeaseRenewal,
    Marked,
    Moved,
    NotRegistered,
    NoWork,
    Outcome,
    Prepared,
    PriorityChanged,
    Progressed,
    ReclaimGrantResult,
    ReclaimResult,
    Reconciled,
    Refreshed,
    Registered,
    Rejected,
    Replayed,
    RetryScheduled,
    Revoked,
    TerminalFailed,
    Unblocked,
    Undone,
)
from flowfabric.model.retry import Retried
from flowfabric.model.schedule import (
    USUAL_POLICY,
    Backfilled,
    Overlap,
    ScheduleChanged,
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePolicy,
    SchedulesDeclared,
    ScheduleSnapshot,
    SchedulesPruned,
    TickAhead,
    TickInfo,
    Timing,
    Triggered,
)
from flowfabric.model.session import Session, SessionEnded, SessionOpened
from flowfabric.model.state import BlockingReason, PublicState
from flowfabric.model.statistic import HOUR_MS, SpendingPage, Statistics, Step
from flowfabric.model.stream import Appended, NewFrame, StreamPage, Summary, Visibility
from flowfabric.model.suspension import (
    AlreadyMet,
    KeyInfo,
    Resumed,
    ResumeInfo,
    ResumeSignal,
    SignalAccepted,
    SignalDuplicate,
    Suspended,
    SuspendedInfo,
    SuspensionInfo,
    Token,
    WaitpointDetails,
    WaitpointInfo,
    WaitpointRow,
    WaitpointShown,
)
from flowfabric.model.watch import Watching
from flowfabric.model.words import HeadFailure
from flowfabric.model.worker import HeldLease, StopsHeard, Unmet, Worker

R = TypeVar("R")


class Methods(ABC):
    """Every operation under its name: each method makes a request and asks for it."""

    @abstractmethod
    async def call(self, request: Request[R]) -> R:
        """The answer to one request; a refusal is raised."""

    # --- executions -----------------------------------------------------------------------------

    async def create_execution(
        self,
        *,
        execution_kind: str,
        input_payload: bytes = b"",
        payload_encoding: str | None = None,
        lane_id: str = "default",
        namespace: str | None = None,
        priority: int | None = None,
        creator_identity: str = "",
        idempotency_key: str | None = None,
        budget_ids: tuple[str, ...] = (),
        quota_policy_id: str | None = None,
        concurrency_key: str | None = None,
        serial_key: str | None = None,
        on_head_failure: HeadFailureGiven = HeadFailure.NEXT,
        unique: NewUnique | None = None,
        fair_key: str | None = None,
        tags: Mapping[str, str] = {},
        policy: PolicyGiven | None = None,
        delay_until: int | None = None,
        delay_ms: int | None = None,
        execution_deadline_at: int | None = None,
        colocate_with: str | None = None,
        on_success: NewHook | None = None,
        on_failure: NewHook | None = None,
        on_end: NewHook | None = None,
        undo_stops: bool = False,
        mailboxes: Mapping[str, str | None] = {},
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> CreateResult:
        """Record one execution.

        >>> await engine.create_execution(execution_kind="brief")  # doctest: +SKIP

        A repeated idempotency key answers `Duplicate`; other content is an `IdempotencyConflict`.
        """
        return await self.call(
            NewExecution(
                execution_kind=execution_kind,
                input_payload=input_payload,
                payload_encoding=payload_encoding,
                lane_id=lane_id,
                namespace=namespace,
                priority=priority,
                creator_identity=creator_identity,
                idempotency_key=idempotency_key,
                budget_ids=budget_ids,
                quota_policy_id=quota_policy_id,
                concurrency_key=concurrency_key,
                serial_key=serial_key,
                on_head_failure=on_head_failure,
                unique=unique,
                fair_key=fair_key,
                tags=tags,
                policy=policy,
                delay_until=delay_until,
                delay_ms=delay_ms,
                execution_deadline_at=execution_deadline_at,
                colocate_with=colocate_with,
                on_success=on_success,
                on_failure=on_failure,
                on_end=on_end,
                undo_stops=undo_stops,
                mailboxes=mailboxes,
                traceparent=traceparent,
                tracestate=tracestate,
            )
        )

    async def create_executions(
        self,
        requests: Sequence[NewExecution],
        *,
        handle: Handle | None = None,
        entries: Sequence[NewEntry] = (),
    ) -> list[CreateResult]:
        """Record thousands in one transaction: all of them or, if one is refused, none.

        `handle`: of the execution that submits them, which they are no children of; only its live
        owner may. `entries`: for its journal, in the same transaction. The value of one of kind
        `submit` says how many of the requests, in order, it is about; what became of these is
        recorded. The same entries sent again are answered as the first time, and create nothing.
        """
        return await self.call(CreateExecutions(requests=requests, handle=handle, entries=entries))

    async def create_executions_in(
        self, connection: Any, requests: Sequence[NewExecution]
    ) -> list[CreateResult]:
        """Record executions inside the caller's own open Postgres transaction.

        They exist when, and only if, the caller commits, and waiting workers are told then. The
        connection is one of asyncpg, psycopg 3, SQLAlchemy 2 or Django. A refusal leaves the
        transaction as it was.
        """
        return await self.call(CreateExecutionsIn(connection=connection, requests=requests))

    async def describe_execution(self, *, execution_id: str) -> ExecutionSnapshot | None:
        """Everything about one execution but its secrets and payloads."""
        return await self.call(DescribeExecution(execution_id=execution_id))

    async def read_execution_info(self, *, execution_id: str) -> ExecutionSnapshot | None:
        """The seeds' name for `describe_execution`."""
        return await self.call(ReadExecutionInfo(execution_id=execution_id))

    async def read_execution_state(self, *, execution_id: str) -> PublicState | None:
        """The public state."""
        return await self.call(ReadExecutionState(execution_id=execution_id))

    async def read_execution_context(self, *, execution_id: str) -> ExecutionContext:
        """The input and its labels."""
        return await self.call(ReadExecutionContext(execution_id=execution_id))

    async def read_current_attempt_index(self, *, execution_id: str) -> int:
        """The index of the attempt that holds or last held the lease; 0 before the first."""
        return await self.call(ReadCurrentAttemptIndex(execution_id=execution_id))

    async def read_total_attempt_count(self, *, execution_id: str) -> int:
        """How many attempts were ever started: the index the next one gets."""
        return await self.call(ReadTotalAttemptCount(execution_id=execution_id))

    async def get_execution_tag(self, *, execution_id: str, key: str) -> str | None:
        """One tag, or None."""
        return await self.call(GetExecutionTag(execution_id=execution_id, key=key))

    async def get_execution_namespace(self, *, execution_id: str) -> str | None:
        """The tenant, or None."""
        return await self.call(GetExecutionNamespace(execution_id=execution_id))

    async def read_exec_core_fields(
        self, *, execution_id: str, names: Sequence[str]
    ) -> dict[str, str | None]:
        """Named fields as text, as the seeds name them; None for what is unknown, secret or unset,
        and for every field of an execution that does not exist.
        """
        return await self.call(ReadExecCoreFields(execution_id=execution_id, names=names))

    async def list_attempts(
        self, *, execution_id: str, cursor: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> Page[AttemptInfo]:
        """The attempts of an execution, oldest first; the live one is last."""
        return await self.call(ListAttempts(execution_id=execution_id, cursor=cursor, limit=limit))

    async def explain(self, *, execution_id: str) -> Explanation:
        """Why is it not running? State, since when, waiting for what, able workers, when due."""
        return await self.call(Explain(execution_id=execution_id))

    async def get_execution_result(self, *, execution_id: str) -> bytes | None:
        """The result of a success; None when there is none (yet)."""
        return await self.call(GetExecutionResult(execution_id=execution_id))

    async def read_result(self, *, execution_id: str) -> Attempt | None:
        """The successful attempt with its result and encoding."""
        return await self.call(ReadResult(execution_id=execution_id))

    async def read_outcomes(self, *, execution_ids: Sequence[str]) -> dict[str, Outcome]:
        """How executions ended, with the results of successes; those that have not are left out."""
        return await self.call(ReadOutcomes(execution_ids=execution_ids))

    async def wait_for_result(
        self, *, execution_id: str, wait_ms: int | None = None
    ) -> ExecutionSnapshot:
        """The snapshot once the execution has ended; WaitTimeout when that takes too long."""
        return await self.call(WaitForResult(execution_id=execution_id, wait_ms=wait_ms))

    async def wait_for_outcome(
        self, *, execution_id: str, wait_ms: int | None = None, look_after_ms: int = 0
    ) -> Outcome:
        """As `wait_for_result`, with the result of a success read in the same look.

        `look_after_ms`: how long to wait for a hint before the first look, for a caller that knows
        that the execution has hardly begun.
        """
        return await self.call(
            WaitForOutcome(execution_id=execution_id, wait_ms=wait_ms, look_after_ms=look_after_ms)
        )

    async def list_executions(
        self,
        *,
        namespace: str | None = None,
        states: Sequence[str] = (),
        lane_id: str | None = None,
        execution_kind: str | None = None,
        tag: tuple[str, str] | None = None,
        created_after: int | None = None,
        created_before: int | None = None,
        text: str | None = None,
        partition: int | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[ExecutionSnapshot]:
        """Executions, newest first.

        `text` looks for words in the kind, id, tags and reasons. A page of a text search may be
        short or empty although a next cursor is given: it bounds how many rows one call looks at.
        """
        return await self.call(
            ListExecutions(
                namespace=namespace,
                states=states,
                lane_id=lane_id,
                execution_kind=execution_kind,
                tag=tag,
                created_after=created_after,
                created_before=created_before,
                text=text,
                partition=partition,
                cursor=cursor,
                limit=limit,
            )
        )

    async def count_listed(
        self,
        *,
        namespace: str | None = None,
        states: Sequence[str] = (),
        lane_id: str | None = None,
        execution_kind: str | None = None,
        tag: tuple[str, str] | None = None,
        created_after: int | None = None,
        created_before: int | None = None,
        at_most: int | None = None,
    ) -> int:
        """How many executions a listing with these filters has.

        `at_most`: it counts no further, which bounds what it costs.
        """
        return await self.call(
            CountListed(
                namespace=namespace,
                states=states,
                lane_id=lane_id,
                execution_kind=execution_kind,
                tag=tag,
                created_after=created_after,
                created_before=created_before,
                at_most=at_most,
            )
        )

    async def count_executions(self, *, namespace: str | None = None) -> dict[str, dict[str, int]]:
        """How many executions each lane has in each state."""
        return await self.call(CountExecutions(namespace=namespace))

    async def list_expired_leases(
        self,
        *,
        as_of: int | None = None,
        namespace: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[ExpiredLease]:
        """Leases past their time that are not dealt with yet, earliest first."""
        return await self.call(
            ListExpiredLeases(as_of=as_of, namespace=namespace, cursor=cursor, limit=limit)
        )

    async def find_executions(self, *, part: str, limit: int = 10) -> tuple[str, ...]:
        """Ids of executions whose UUID begins or ends with these digits, newest first.

        All that begin so are found; of those that end so, the ones among the newest
        `limits.FIND_AMONG`. Dashes do not matter.
        """
        return await self.call(FindExecutions(part=part, limit=limit))

    async def find_flows(self, *, part: str, limit: int = 10) -> tuple[str, ...]:
        """Ids of flows that begin or end with these digits, newest first: see `find_executions`."""
        return await self.call(FindFlows(part=part, limit=limit))

    async def list_kinds(
        self,
        *,
        namespace: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[str]:
        """Every kind of execution that was ever created, by name."""
        return await self.call(ListKinds(namespace=namespace, cursor=cursor, limit=limit))

    # --- control --------------------------------------------------------------------------------

    async def cancel_execution(
        self,
        *,
        execution_id: str,
        reason: str,
        source: str,
        fence: Fence | None = None,
        actor: str | None = None,
    ) -> Cancelled:
        """Stop an execution in whatever phase; `source="operator_override"` needs no fence."""
        return await self.call(
            CancelExecution(
                execution_id=execution_id, reason=reason, source=source, fence=fence, actor=actor
            )
        )

    async def change_priority(
        self, *, execution_id: str, new_priority: int, actor: str | None = None
    ) -> PriorityChanged:
        """Move work that does not run up or down; clamped to 0..9000."""
        return await self.call(
            ChangePriority(execution_id=execution_id, new_priority=new_priority, actor=actor)
        )

    async def replay_execution(
        self,
        *,
        execution_id: str,
        requested_by: str = "",
        reason: str = "",
        deadline_at: int | None = None,
        cascade: bool = False,
        fresh: bool = False,
        actor: str | None = None,
    ) -> Replayed:
        """Run a finished execution again as a new attempt; its history stays.

        `cascade`: members of its flow that were skipped because of it live again too. One with
        a journal goes on by it: steps that are recorded are not run again. `fresh`: it starts
        from the top with an empty journal.
        """
        return await self.call(
            ReplayExecution(
                execution_id=execution_id,
                requested_by=requested_by,
                reason=reason,
                deadline_at=deadline_at,
                cascade=cascade,
                fresh=fresh,
                actor=actor,
            )
        )

    async def revoke_lease(
        self,
        *,
        execution_id: str,
        reason: str,
        expected_lease_id: str = "",
        worker_instance_id: str = "",
        actor: str | None = None,
    ) -> Revoked | AlreadySatisfied:
        """Take a lease away from its worker; the work is run again."""
        return await self.call(
            RevokeLease(
                execution_id=execution_id,
                reason=reason,
                expected_lease_id=expected_lease_id,
                worker_instance_id=worker_instance_id,
                actor=actor,
            )
        )

    async def hold_execution(
        self, *, execution_id: str, reason: str = "", actor: str | None = None
    ) -> Blocked:
        """Keep runnable work from being claimed until it is released."""
        return await self.call(HoldExecution(execution_id=execution_id, reason=reason, actor=actor))

    async def release_execution(self, *, execution_id: str, actor: str | None = None) -> Unblocked:
        """End a hold."""
        return await self.call(ReleaseExecution(execution_id=execution_id, actor=actor))

    async def block_execution_for_admission(
        self,
        *,
        execution_id: str,
        reason: BlockingReasonGiven,
        reason_detail: str = "",
        actor: str | None = None,
    ) -> Blocked | Rejected:
        """Keep waiting work from being claimed because admission said no."""
        return await self.call(
            BlockExecutionForAdmission(
                execution_id=execution_id, reason=reason, reason_detail=reason_detail, actor=actor
            )
        )

    async def unblock_execution(
        self,
        *,
        execution_id: str,
        expected_reason: BlockingReasonGiven | None = None,
        actor: str | None = None,
    ) -> Unblocked:
        """Lift a block; `expected_reason` guards against lifting another one."""
        return await self.call(
            UnblockExecution(
                execution_id=execution_id, expected_reason=expected_reason, actor=actor
            )
        )

    async def block_route(
        self,
        *,
        execution_id: str,
        lane_id: str | None = None,
        reason_code: BlockingReasonGiven = BlockingReason.WAITING_FOR_CAPABLE_WORKER,
        reason_detail: str = "",
        actor: str | None = None,
    ) -> Blocked | Rejected:
        """Keep waiting work from being claimed because no worker can run it, as a scheduler finds.

        It goes on when a worker registers that can run it, or with `unblock_execution`. Rejected
        while such a worker is alive, or on a lane other than `lane_id`.
        `reason_code`: only `waiting_for_capable_worker`.
        """
        return await self.call(
            BlockRoute(
                execution_id=execution_id,
                lane_id=lane_id,
                reason_code=reason_code,
                reason_detail=reason_detail,
                actor=actor,
            )
        )

    async def set_execution_tag(
        self, *, execution_id: str, key: str, value: str, actor: str | None = None
    ) -> None:
        """Set or overwrite one tag."""
        return await self.call(
            SetExecutionTag(execution_id=execution_id, key=key, value=value, actor=actor)
        )

    # --- retries --------------------------------------------------------------------------------

    async def retry_with_input(
        self,
        *,
        execution_id: str,
        input_payload: bytes | None = None,
        payload_encoding: str | None = None,
        arguments: Mapping[str, bytes] = {},
        reason: str = "",
        idempotency_key: str | None = None,
        actor: str | None = None,
    ) -> Retried:
        """A new execution of the same work as one that has ended, with another input.

        The old one stays as it is; the new one says `retried_from`. `input_payload`: the whole
        input, with the encoding of the old one unless `payload_encoding` says another; or
        `arguments`: JSON by the names of arguments that differ. It begins without a journal, in
        no flow, at once. A repeated `idempotency_key` answers the first one.
        """
        return await self.call(
            RetryWithInput(
                execution_id=execution_id,
                input_payload=input_payload,
                payload_encoding=payload_encoding,
                arguments=arguments,
                reason=reason,
                idempotency_key=idempotency_key,
                actor=actor,
            )
        )

    async def list_retries(
        self, *, execution_id: str, cursor: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> Page[ExecutionSnapshot]:
        """The retries of an execution with another input that are still there, oldest first."""
        return await self.call(ListRetries(execution_id=execution_id, cursor=cursor, limit=limit))

    # --- bulk -----------------------------------------------------------------------------------

    async def start_operation(
        self,
        *,
        action: BulkActionGiven,
        namespace: str | None = None,
        states: Sequence[str] = (),
        lane_id: str | None = None,
        execution_kind: str | None = None,
        tag: tuple[str, str] | None = None,
        created_after: int | None = None,
        created_before: int | None = None,
        text: str | None = None,
        blocking_reason: BlockingReasonGiven | None = None,
        failure_category: str | None = None,
        dead_letter: LetterGiven | None = None,
        fingerprint: str | None = None,
        reason: str = "",
        new_priority: int | None = None,
        cascade: bool = False,
        fresh: bool = False,
        limit: int | None = None,
        dry_run: bool = False,
        operation_id: str | None = None,
        actor: str | None = None,
    ) -> BulkOperation | BulkCounted:
        """Cancel, retry, hold, release, dismiss, restore or reprioritise all executions that fit.

        >>> await engine.start_operation(action="cancel", lane_id="mail")  # doctest: +SKIP
        BulkOperation(operation_id='…', action=<BulkAction.CANCEL: 'cancel'>, …)

        The parts of the filter are those of `list_executions`, `blocking_reason`: what they wait
        for, `failure_category`, `dead_letter`: open or dismissed, and `fingerprint`: open dead
        letters of one group of failures, for retry and dismiss. Without `states`, those that the
        action is for; restore is for dismissed letters. Later executions are left alone.
        `reason` goes with all but release and priority, `new_priority` with priority, `cascade` and
        `fresh` with retry. `limit`: act on so many at most, newest first. `dry_run` only counts.
        `operation_id`: a UUID of the caller's own; a start repeated with it finds the first one.
        """
        return await self.call(
            StartOperation(
                action=action,
                namespace=namespace,
                states=states,
                lane_id=lane_id,
                execution_kind=execution_kind,
                tag=tag,
                created_after=created_after,
                created_before=created_before,
                text=text,
                blocking_reason=blocking_reason,
                failure_category=failure_category,
                dead_letter=dead_letter,
                fingerprint=fingerprint,
                reason=reason,
                new_priority=new_priority,
                cascade=cascade,
                fresh=fresh,
                limit=limit,
                dry_run=dry_run,
                operation_id=operation_id,
                actor=actor,
            )
        )

    async def describe_operation(self, *, operation_id: str) -> BulkOperation | None:
        """How far an operation is; None if it is unknown, or ended long ago."""
        return await self.call(DescribeOperation(operation_id=operation_id))

    async def list_operations(
        self,
        *,
        namespace: str | None = None,
        state: BulkStateGiven | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[BulkOperation]:
        """Operations, newest first; `namespace`: those over this tenant alone."""
        return await self.call(
            ListOperations(namespace=namespace, state=state, cursor=cursor, limit=limit)
        )

    async def stop_operation(self, *, operation_id: str, actor: str | None = None) -> BulkOperation:
        """Act on nothing more. What was done stays done; one that is over stays as it ended."""
        return await self.call(StopOperation(operation_id=operation_id, actor=actor))

    # --- dead -----------------------------------------------------------------------------------

    async def list_dead(
        self,
        *,
        namespace: str | None = None,
        execution_kind: str | None = None,
        category: str | None = None,
        fingerprint: str | None = None,
        is_dismissed: bool = False,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[DeadLetter]:
        """Dead letters of a tenant, the latest end first.

        `category`: that of the failure, such as `timeout`, or a word of the handler's own.
        `fingerprint`: those of one group of failures that are alike. `is_dismissed`: those that
        were dismissed, the latest submit first; a page of them may be short although another
        follows.
        """
        return await self.call(
            ListDead(
                namespace=namespace,
                execution_kind=execution_kind,
                category=category,
                fingerprint=fingerprint,
                is_dismissed=is_dismissed,
                cursor=cursor,
                limit=limit,
            )
        )

    async def count_dead(
        self,
        *,
        namespace: str | None = None,
        execution_kind: str | None = None,
        category: str | None = None,
    ) -> tuple[DeadCount, ...]:
        """How many dead letters a tenant has of each kind and category, the most first."""
        return await self.call(
            CountDead(namespace=namespace, execution_kind=execution_kind, category=category)
        )

    async def dismiss_dead(
        self, *, execution_id: str, reason: str = "", actor: str | None = None
    ) -> Dismissed:
        """Take a dead letter out of the listing. The execution stays as long as any that failed."""
        return await self.call(DismissDead(execution_id=execution_id, reason=reason, actor=actor))

    async def restore_dead(
        self, *, execution_id: str, reason: str = "", actor: str | None = None
    ) -> Restored:
        """Take a dead letter that was dismissed into the listing again."""
        return await self.call(RestoreDead(execution_id=execution_id, reason=reason, actor=actor))

    # --- failures -------------------------------------------------------------------------------

    async def list_failure_groups(
        self,
        *,
        namespace: str | None = None,
        last_ms: int = limits.FAILURE_WINDOW_MS,
        by: StepGiven = Step.HOUR,
        execution_kind: str | None = None,
        with_known: bool = False,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[FailureGroup]:
        """Groups of a tenant with a failure in the last `last_ms`, a day at most, the latest first.

        `by`: how their counts are told, by hour or in one; by minute for two hours at most.
        `execution_kind`: those that were seen with it; a page of them may be short although another
        follows. `with_known`: also those that a person has marked as known. `limit`: 500 at most.
        """
        return await self.call(
            ListFailureGroups(
                namespace=namespace,
                last_ms=last_ms,
                by=by,
                execution_kind=execution_kind,
                with_known=with_known,
                cursor=cursor,
                limit=limit,
            )
        )

    async def describe_failure_group(
        self,
        *,
        fingerprint: str,
        namespace: str | None = None,
        last_ms: int = limits.FAILURE_WINDOW_MS,
        by: StepGiven = Step.HOUR,
    ) -> FailureGroup | None:
        """One group, with what happened in the last `last_ms`; None after 30 days without any."""
        return await self.call(
            DescribeFailureGroup(
                fingerprint=fingerprint, namespace=namespace, last_ms=last_ms, by=by
            )
        )

    async def describe_failure(self, *, execution_id: str) -> FailureTold | None:
        """The latest failure of an execution, with its group: how many others have failed alike.

        None where it has not failed, or so long ago that nothing tells of it any more.
        """
        return await self.call(DescribeFailure(execution_id=execution_id))

    async def mark_failure_group(
        self,
        *,
        fingerprint: str,
        known_until: int | None = None,
        namespace: str | None = None,
        reason: str = "",
        actor: str | None = None,
    ) -> FailureMarked:
        """Say until when a group is known and left out of listings; None: it is not known.

        The instant is 90 days away at most. What fails meanwhile is counted as before.
        """
        return await self.call(
            MarkFailureGroup(
                fingerprint=fingerprint,
                known_until=known_until,
                namespace=namespace,
                reason=reason,
                actor=actor,
            )
        )

    # --- leases ---------------------------------------------------------------------------------

    async def claim(
        self,
        *,
        lanes: Sequence[str],
        worker_id: str,
        worker_instance_id: str,
        capabilities: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
        limit: int = 1,
        lease_ttl_ms: int | None = None,
        namespace: str | None = None,
        namespaces: Sequence[str] | None = None,
        wait_ms: int = 0,
        claim_id: str | None = None,
    ) -> list[Claimed]:
        """Up to `limit` executions over several lanes in one transaction, best first.

        Waits up to `wait_ms` when there is none, and then answers an empty list. Only work that
        this worker can run is looked at. Lanes get their parts by weight, and the tenants of
        `namespaces` equal parts of each lane.

        `claim_id`: for callers whose answers may be lost. A claim that is repeated with its id is
        answered what is left of the same leases; after an empty answer it is like new.
        """
        return await self.call(
            Claim(
                lanes=lanes,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                capabilities=capabilities,
                kinds=kinds,
                limit=limit,
                lease_ttl_ms=lease_ttl_ms,
                namespace=namespace,
                namespaces=namespaces,
                wait_ms=wait_ms,
                claim_id=claim_id,
            )
        )

    async def give_back_claim(self, *, worker_instance_id: str, claim_id: str) -> GivenBack:
        """Nobody got the answer to a claim with an id: its leases go back, and nothing is counted.

        Once the claim was repeated its worker has the leases, and none goes back.
        """
        return await self.call(
            GiveBackClaim(worker_instance_id=worker_instance_id, claim_id=claim_id)
        )

    async def renew(
        self, handle: Handle, *, next_key: str | None = None, next_key_ms: int = 0
    ) -> LeaseRenewal:
        """Extend the lease by its own length.

        `next_key`: of the step that runs, and `next_key_ms` for how long; people see it in
        explanations.
        """
        return await self.call(Renew(handle=handle, next_key=next_key, next_key_ms=next_key_ms))

    async def renew_lease(
        self, *, execution_id: str, fence: Fence | None, lease_ttl_ms: int
    ) -> LeaseRenewal:
        """Extend a lease named by its fence."""
        return await self.call(
            RenewLease(execution_id=execution_id, fence=fence, lease_ttl_ms=lease_ttl_ms)
        )

    async def progress(
        self, handle: Handle, *, percent: int | None = None, message: str | None = None
    ) -> Progressed:
        """How far the work is: 0 to 100, and a line of text; what is absent stays."""
        return await self.call(Progress(handle=handle, percent=percent, message=message))

    async def delay(
        self, handle: Handle, *, delay_until: int, entries: Sequence[NewEntry] = ()
    ) -> Delayed:
        """Park the attempt until an instant; the same attempt is claimed again then.

        `entries`: added to the journal in the same transaction, as by `checkpoint`.
        """
        return await self.call(Delay(handle=handle, delay_until=delay_until, entries=entries))

    async def complete(
        self,
        handle: Handle,
        *,
        result: bytes | None = None,
        result_encoding: str | None = None,
        frames: Sequence[NewFrame] = (),
        logs: LogBatch | None = None,
        entries: Sequence[NewEntry] = (),
    ) -> Completed:
        """The work succeeded. Repeating the call with the same handle answers the same.

        `frames`, `logs` and `entries`: appended to the stream and the log of the attempt and to the
        journal before its end, in the same transaction.
        """
        return await self.call(
            Complete(
                handle=handle,
                result=result,
                result_encoding=result_encoding,
                frames=frames,
                logs=logs,
                entries=entries,
            )
        )

    async def complete_execution(
        self,
        *,
        execution_id: str,
        source: str,
        fence: Fence | None = None,
        result_payload: bytes | None = None,
        result_encoding: str | None = None,
        actor: str | None = None,
    ) -> Completed:
        """Complete by fence, or without one as `source="operator_override"`."""
        return await self.call(
            CompleteExecution(
                execution_id=execution_id,
                source=source,
                fence=fence,
                result_payload=result_payload,
                result_encoding=result_encoding,
                actor=actor,
            )
        )

    async def fail(
        self,
        handle: Handle,
        *,
        reason: str,
        failure_class: FailureClassGiven = FailureClass.TRANSIENT,
        category: str | None = None,
        retry_after_ms: int | None = None,
        origin: FailureOrigin | None = None,
        frames: Sequence[NewFrame] = (),
        logs: LogBatch | None = None,
        entries: Sequence[NewEntry] = (),
    ) -> RetryScheduled | TerminalFailed:
        """The attempt failed; the policy decides whether another follows.

        `frames`, `logs` and `entries`: as in `complete`. `origin`: the class and the innermost own
        function, by which failures are alike; without it the shape of `reason` says so.
        """
        return await self.call(
            Fail(
                handle=handle,
                reason=reason,
                failure_class=failure_class,
                category=category,
                retry_after_ms=retry_after_ms,
                origin=origin,
                frames=frames,
                logs=logs,
                entries=entries,
            )
        )

    async def fail_execution(
        self,
        *,
        execution_id: str,
        source: str,
        failure_reason: str,
        fence: Fence | None = None,
        failure_class: FailureClassGiven = FailureClass.TRANSIENT,
        failure_category: str | None = None,
        retry_after_ms: int | None = None,
        actor: str | None = None,
    ) -> RetryScheduled | TerminalFailed:
        """Fail by fence, or without one as `source="operator_override"`."""
        return await self.call(
            FailExecution(
                execution_id=execution_id,
                source=source,
                failure_reason=failure_reason,
                fence=fence,
                failure_class=failure_class,
                failure_category=failure_category,
                retry_after_ms=retry_after_ms,
                actor=actor,
            )
        )

    async def cancel(self, handle: Handle, *, reason: str) -> Cancelled:
        """The owner gives up for good."""
        return await self.call(Cancel(handle=handle, reason=reason))

    # --- journal --------------------------------------------------------------------------------

    async def checkpoint(
        self, handle: Handle, *, entries: Sequence[NewEntry], next_key: str | None = None
    ) -> Checkpointed:
        """Add entries to the journal of the execution, in one transaction.

        Positions count on from those that are there. A repeated call finds its entries and
        answers as the first. `next_key`: what the handler asked for next; people see it as what
        runs. A last entry of the kind `state` is no row: its value is what the run publishes from
        now on, wherever entries are taken; it takes no position.
        """
        return await self.call(Checkpoint(handle=handle, entries=entries, next_key=next_key))

    async def continue_execution(
        self,
        handle: Handle,
        *,
        arguments: bytes,
        version: str | None = None,
        frames: Sequence[NewFrame] = (),
        logs: LogBatch | None = None,
        entries: Sequence[NewEntry] = (),
    ) -> Continued:
        """End the chapter of the journal: the handler is called anew with other arguments.

        The lease is let go and the execution waits for a worker as a new one does, under the
        same id. Its journal begins the next chapter, whose first entry has `arguments` (JSON);
        of the chapters that have ended the last one is kept. `version`: of the code. `frames`,
        `logs` and `entries`: as in `complete`; they belong to the chapter that ends.
        """
        return await self.call(
            ContinueExecution(
                handle=handle,
                arguments=arguments,
                version=version,
                frames=frames,
                logs=logs,
                entries=entries,
            )
        )

    async def register_undo(
        self, handle: Handle, undos: Sequence[NewExecution], entries: Sequence[NewEntry]
    ) -> Checkpointed:
        """Have calls made if the execution ends otherwise than by success, however that comes.

        They are kept in its journal: `entries` has an entry of kind `undo` for each, in order.
        The end creates them in its transaction as a flow, last registered first, once for each
        life; each waits for the end of the one before, or for its success where the execution
        was created with `undo_stops`. At most 100 are registered at once.
        """
        return await self.call(RegisterUndo(handle=handle, undos=undos, entries=entries))

    async def run_undo(self, handle: Handle, entries: Sequence[NewEntry]) -> Undone:
        """Create now what is registered to be undone, as an end would; nothing is left for the end.

        The last of `entries` is of kind `undone` and gets the ids of the calls. No attempt and no
        life that follows goes on by this journal, which tells of effects that were undone.
        """
        return await self.call(RunUndo(handle=handle, entries=entries))

    async def fork_execution(
        self,
        *,
        execution_id: str,
        before: str,
        results: Mapping[str, bytes] = {},
        arguments: Mapping[str, bytes] = {},
        actor: str | None = None,
    ) -> Forked:
        """A new execution of the same kind that goes on from a copy of a journal.

        It begins with all entries of the present chapter before the first one with the key
        `before`; how waits ended comes with them. `results`: other results of steps and values
        among them, by their keys. `arguments`: other arguments of the handler, by their names.
        All are JSON. The execution itself may be in any state and stays as it is.
        """
        return await self.call(
            ForkExecution(
                execution_id=execution_id,
                before=before,
                results=results,
                arguments=arguments,
                actor=actor,
            )
        )

    async def checkpoint_in(
        self, handle: Handle, connection: Any, *, entries: Sequence[NewEntry]
    ) -> Checkpointed:
        """Add entries to the journal inside the caller's own open Postgres transaction.

        The execution is held from here to the end of the transaction, and the fence is checked:
        rows of the caller and entries are durable together, or neither. The connection is one of
        those that `create_executions_in` takes. Entries that are there are refused with
        `IdempotencyConflict`: they were committed before, with the rows that belong to them.
        """
        return await self.call(CheckpointIn(handle=handle, connection=connection, entries=entries))

    async def shares_database(self, connection: Any) -> bool:
        """Whether a connection with an open transaction leads to the tables of this engine.

        Then `checkpoint_in` can be used with it.
        """
        return await self.call(SharesDatabase(connection=connection))

    async def load_journal(self, handle: Handle, *, after: int | None = None) -> JournalPage:
        """The entries by which the owner of a lease goes on, after a position; with all values."""
        return await self.call(LoadJournal(handle=handle, after=after))

    async def read_journal(
        self,
        *,
        execution_id: str,
        journal_index: int | None = None,
        chapter_index: int | None = None,
        after: int | None = None,
        limit: int = limits.PAGE_DEFAULT,
        values: bool = False,
    ) -> JournalPage:
        """Entries of an execution after a position, by default of its present journal and chapter.

        `values`: with what steps returned, except for secrets, and how waits ended.
        """
        return await self.call(
            ReadJournal(
                execution_id=execution_id,
                journal_index=journal_index,
                chapter_index=chapter_index,
                after=after,
                limit=limit,
                values=values,
            )
        )

    async def read_published(self, *, execution_id: str) -> Published | None:
        """What a run has published last, whatever its state is; None before it did."""
        return await self.call(ReadPublished(execution_id=execution_id))

    # --- code -----------------------------------------------------------------------------------

    async def list_code(
        self,
        *,
        namespace: str | None = None,
        execution_kind: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[CodeUse]:
        """The code of executions that have not ended, newest first.

        `execution_kind`: of this kind alone. Their journals are looked through for markers, so
        pages are short: at most 200 executions.
        """
        return await self.call(
            ListCode(namespace=namespace, execution_kind=execution_kind, cursor=cursor, limit=limit)
        )

    async def repin_execution(
        self, *, execution_id: str, expected: str, version: str, actor: str | None = None
    ) -> Repinned:
        """Let an execution that does not run belong to another version of its task.

        `expected`: the version it is pinned to; refused if it is another one, or none.
        """
        return await self.call(
            RepinExecution(
                execution_id=execution_id, expected=expected, version=version, actor=actor
            )
        )

    # --- streams --------------------------------------------------------------------------------

    async def append_frame(self, handle: Handle, *, frame: NewFrame) -> Appended:
        """Add one frame to the stream of the attempt."""
        return await self.call(AppendFrame(handle=handle, frame=frame))

    async def append_frames(self, handle: Handle, *, frames: Sequence[NewFrame]) -> Appended:
        """Add frames to the stream of the attempt, all or none, in one transaction.

        Frames with a `seq` of their writer are written once, however often the call is repeated.
        """
        return await self.call(AppendFrames(handle=handle, frames=frames))

    async def read_stream(
        self,
        *,
        execution_id: str,
        attempt_index: int,
        from_cursor: str = "start",
        to_cursor: str = "end",
        count_limit: int = limits.READ_FRAMES_DEFAULT,
        visibility: VisibilityGiven = Visibility.ALL,
    ) -> StreamPage:
        """Frames of one attempt from one place to another, both included, in order.

        A place is `<ms>-<seq>`, the id of a frame, or `<ms>`, `start` or `end`. To read on, ask
        with `tail_stream` after `next_cursor`.
        """
        return await self.call(
            ReadStream(
                execution_id=execution_id,
                attempt_index=attempt_index,
                from_cursor=from_cursor,
                to_cursor=to_cursor,
                count_limit=count_limit,
                visibility=visibility,
            )
        )

    async def tail_stream(
        self,
        *,
        execution_id: str,
        attempt_index: int,
        after: str = "0-0",
        wait_ms: int = 0,
        count_limit: int = limits.READ_FRAMES_DEFAULT,
        visibility: VisibilityGiven = Visibility.ALL,
    ) -> StreamPage:
        """Frames of one attempt after a place; `0-0` is the beginning.

        Waits up to `wait_ms`, at most 30 seconds, while there are none and the stream is open, and
        then answers an empty page. A page with `closed_at` is the last one.
        """
        return await self.call(
            TailStream(
                execution_id=execution_id,
                attempt_index=attempt_index,
                after=after,
                wait_ms=wait_ms,
                count_limit=count_limit,
                visibility=visibility,
            )
        )

    async def read_execution_stream(
        self,
        *,
        execution_id: str,
        after: str | None = None,
        limit: int = limits.READ_FRAMES_DEFAULT,
        wait_ms: int = 0,
        visibility: VisibilityGiven = Visibility.ALL,
    ) -> StreamPage:
        """Frames of all attempts of an execution after a place, attempt by attempt.

        A place is `<attempt>:<ms>-<seq>`, as `next_cursor` has it; none is the beginning. Waits
        like `tail_stream`. A page with `closed_at` is the last one: the execution has ended.
        """
        return await self.call(
            ReadExecutionStream(
                execution_id=execution_id,
                after=after,
                limit=limit,
                wait_ms=wait_ms,
                visibility=visibility,
            )
        )

    async def read_summary(
        self, *, execution_id: str, attempt_index: int | None = None
    ) -> Summary | None:
        """The rolling document of an attempt, or None before its first change. No attempt: of the
        current one.
        """
        return await self.call(ReadSummary(execution_id=execution_id, attempt_index=attempt_index))

    # --- logs -----------------------------------------------------------------------------------

    async def append_logs(self, handle: Handle, *, logs: LogBatch) -> LogsAppended:
        """Add lines to the log of the attempt, in one transaction.

        A log that is full ends with a line that says so; what follows is counted and not kept.
        Lines with numbers of their writer are written once, however often the call is repeated.
        """
        return await self.call(AppendLogs(handle=handle, logs=logs))

    async def read_logs(
        self,
        *,
        execution_id: str,
        attempt_index: int | None = None,
        after: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
        wait_ms: int = 0,
    ) -> LogPage:
        """Lines of one attempt, or of all attempts one after the other, after a place.

        A place is `<attempt>:<line>`, as `next_cursor` has it; none is the beginning. Waits up to
        `wait_ms`, at most 30 seconds, while there are none and more may come, and then answers an
        empty page. A page with `closed_at` is the last one.
        """
        return await self.call(
            ReadLogs(
                execution_id=execution_id,
                attempt_index=attempt_index,
                after=after,
                limit=limit,
                wait_ms=wait_ms,
            )
        )

    # --- grants ---------------------------------------------------------------------------------

    async def scan_eligible_executions(
        self, *, lane_id: str, limit: int = 100, namespace: str | None = None
    ) -> list[str]:
        """Ids of waiting executions of a lane, best first; nothing changes."""
        return await self.call(
            ScanEligibleExecutions(lane_id=lane_id, limit=limit, namespace=namespace)
        )

    async def issue_claim_grant(
        self,
        *,
        execution_id: str,
        worker_id: str,
        worker_instance_id: str,
        worker_capabilities: Sequence[str] = (),
        grant_ttl_ms: int = limits.GRANT_TTL_MS_DEFAULT,
    ) -> GrantIssued:
        """Promise a waiting execution to a worker for a short time."""
        return await self.call(
            IssueClaimGrant(
                execution_id=execution_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                worker_capabilities=worker_capabilities,
                grant_ttl_ms=grant_ttl_ms,
            )
        )

    async def claim_for_worker(
        self,
        *,
        lane_id: str,
        worker_id: str,
        worker_instance_id: str,
        worker_capabilities: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
        grant_ttl_ms: int = limits.GRANT_TTL_MS_DEFAULT,
        namespace: str | None = None,
    ) -> GrantIssued | NoWork:
        """Choose the best execution for a worker and promise it, in one transaction.

        `kinds`: those the worker has handlers for; without it any kind is promised.
        """
        return await self.call(
            ClaimForWorker(
                lane_id=lane_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                worker_capabilities=worker_capabilities,
                kinds=kinds,
                grant_ttl_ms=grant_ttl_ms,
                namespace=namespace,
            )
        )

    async def claim_execution(
        self,
        *,
        execution_id: str,
        worker_id: str,
        worker_instance_id: str,
        lease_ttl_ms: int | None = None,
    ) -> Claimed:
        """Redeem a grant with a new attempt."""
        return await self.call(
            ClaimExecution(
                execution_id=execution_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                lease_ttl_ms=lease_ttl_ms,
            )
        )

    async def claim_resumed_execution(
        self,
        *,
        execution_id: str,
        worker_id: str,
        worker_instance_id: str,
        lease_ttl_ms: int | None = None,
    ) -> Claimed:
        """Redeem a grant and go on with the interrupted attempt."""
        return await self.call(
            ClaimResumedExecution(
                execution_id=execution_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                lease_ttl_ms=lease_ttl_ms,
            )
        )

    async def claim_from_resume_grant(
        self,
        *,
        grant: GrantIssued,
        worker_id: str,
        worker_instance_id: str,
        lease_ttl_ms: int | None = None,
    ) -> Claimed:
        """Redeem the grant `claim_for_worker` gave for an interrupted attempt."""
        return await self.call(
            ClaimFromResumeGrant(
                grant=grant,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                lease_ttl_ms=lease_ttl_ms,
            )
        )

    async def issue_grant_and_claim(
        self, *, execution_id: str, lane_id: str, lease_duration_ms: int, actor: str | None = None
    ) -> Claimed:
        """An operator takes one named waiting execution, in one atomic step."""
        return await self.call(
            IssueGrantAndClaim(
                execution_id=execution_id,
                lane_id=lane_id,
                lease_duration_ms=lease_duration_ms,
                actor=actor,
            )
        )

    async def issue_reclaim_grant(
        self,
        *,
        execution_id: str,
        worker_id: str,
        worker_instance_id: str,
        worker_capabilities: Sequence[str] = (),
        grant_ttl_ms: int = limits.GRANT_TTL_MS_DEFAULT,
    ) -> ReclaimGrantResult:
        """Choose the worker that takes over work whose lease was lost."""
        return await self.call(
            IssueReclaimGrant(
                execution_id=execution_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                worker_capabilities=worker_capabilities,
                grant_ttl_ms=grant_ttl_ms,
            )
        )

    async def reclaim_execution(
        self,
        *,
        execution_id: str,
        worker_id: str,
        worker_instance_id: str,
        lease_ttl_ms: int | None = None,
        max_reclaim_count: int | None = None,
    ) -> ReclaimResult:
        """Take over with a new attempt, by grant."""
        return await self.call(
            ReclaimExecution(
                execution_id=execution_id,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                lease_ttl_ms=lease_ttl_ms,
                max_reclaim_count=max_reclaim_count,
            )
        )

    # --- waits ----------------------------------------------------------------------------------

    async def suspend(
        self, handle: Handle, request: SuspendRequest, *, entries: Sequence[NewEntry] = ()
    ) -> Suspended | AlreadyMet:
        """Release the lease and wait for signals.

        AlreadyMet when signals that came early meet the condition: the lease stays. `entries`:
        added to the journal in the same transaction; the last one refers to the suspension.
        """
        return await self.call(Suspend(handle=handle, request=request, entries=entries))

    async def suspend_by_triple(
        self, *, execution_id: str, fence: Fence, request: SuspendRequest
    ) -> Suspended | AlreadyMet:
        """As `suspend`, by the lease's fence."""
        return await self.call(
            SuspendByTriple(execution_id=execution_id, fence=fence, request=request)
        )

    async def create_waitpoint(
        self,
        handle: Handle,
        *,
        waitpoint_key: str,
        expires_in_ms: int,
        payload_type: str | None = None,
        entries: Sequence[NewEntry] = (),
    ) -> WaitpointDetails:
        """An address with its token, before the suspension: early signals are kept for it.

        `entries`: added to the journal in the same transaction; the last one refers to the
        waitpoint, which then outlives its attempt: the next one finds it.
        """
        return await self.call(
            CreateWaitpoint(
                handle=handle,
                waitpoint_key=waitpoint_key,
                expires_in_ms=expires_in_ms,
                payload_type=payload_type,
                entries=entries,
            )
        )

    async def watch_executions(
        self, handle: Handle, *, execution_ids: Sequence[str], needs_all: bool = True
    ) -> Watching:
        """Have a signal when one of some executions has ended, or all have.

        The reply names those that have not ended, and a pending waitpoint to wait on. It names no
        waitpoint where all have ended, or without `needs_all` one has: that is to be looked at
        first. An execution watches for one wait at a time.
        """
        return await self.call(
            WatchExecutions(handle=handle, execution_ids=execution_ids, needs_all=needs_all)
        )

    async def resume_execution(
        self, *, execution_id: str, resume_delay_ms: int = 0, actor: str | None = None
    ) -> Resumed:
        """End the wait whatever its condition says."""
        return await self.call(
            ResumeExecution(execution_id=execution_id, resume_delay_ms=resume_delay_ms, actor=actor)
        )

    async def expire_suspension(self, *, execution_id: str) -> Moved:
        """Apply the suspension's timeout, if it is due."""
        return await self.call(ExpireSuspension(execution_id=execution_id))

    async def close_waitpoint(
        self, *, execution_id: str, waitpoint_id: str, reason: str = "proactive_close"
    ) -> WaitpointInfo:
        """Take no more signals on a waitpoint that is not waited on yet; twice is harmless."""
        return await self.call(
            CloseWaitpoint(execution_id=execution_id, waitpoint_id=waitpoint_id, reason=reason)
        )

    async def deliver_signal(self, signal: Signal) -> SignalAccepted | SignalDuplicate:
        """Deliver one signal; a repeated idempotency key answers what the first one did."""
        return await self.call(DeliverSignal(signal=signal))

    async def deliver_trusted_signal(self, signal: Signal) -> SignalAccepted | SignalDuplicate:
        """The same for a program of this installation, which may signal without a token: keys may
        have been rotated since the wait began.
        """
        return await self.call(DeliverTrustedSignal(signal=signal))

    async def deliver_signals(
        self, signals: Sequence[Signal]
    ) -> list[SignalAccepted | SignalDuplicate | FlowFabricError]:
        """Many signals in few commits; each is answered with its outcome or its error."""
        return await self.call(DeliverSignals(signals=signals))

    async def deliver_approval_signal(
        self,
        *,
        execution_id: str,
        waitpoint_id: str,
        signal_name: str,
        idempotency_suffix: str,
        lane_id: str | None = None,
        actor: str = "operator",
        comment: bytes | None = None,
        signal_dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT,
        source_type: str | None = None,
    ) -> SignalAccepted | SignalDuplicate:
        """An operator of this installation signals without ever seeing the token.

        `source_type`: the kind of name that `actor` is, where it is not an operator's.
        """
        return await self.call(
            DeliverApprovalSignal(
                execution_id=execution_id,
                waitpoint_id=waitpoint_id,
                signal_name=signal_name,
                idempotency_suffix=idempotency_suffix,
                lane_id=lane_id,
                actor=actor,
                comment=comment,
                signal_dedup_ttl_ms=signal_dedup_ttl_ms,
                source_type=source_type,
            )
        )

    async def observe_signals(self, handle: Handle) -> tuple[ResumeSignal, ...]:
        """The signals that ended the last wait of this attempt; none for a fresh one."""
        return await self.call(ObserveSignals(handle=handle))

    async def resume_info(self, handle: Handle) -> ResumeInfo | None:
        """What ended the last wait of this attempt; nothing for a fresh one."""
        return await self.call(ReadResumeInfo(handle=handle))

    async def read_signals(
        self, handle: Handle, *, waitpoint_ids: Sequence[str]
    ) -> dict[str, tuple[ResumeSignal, ...]]:
        """The signals at waitpoints of this execution, by waitpoint, in the order they came."""
        return await self.call(ReadSignals(handle=handle, waitpoint_ids=waitpoint_ids))

    async def list_pending_waitpoints(
        self, *, execution_id: str, cursor: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> Page[WaitpointInfo]:
        """Waitpoints of an execution that may still be signalled, by id; no tokens."""
        return await self.call(
            ListPendingWaitpoints(execution_id=execution_id, cursor=cursor, limit=limit)
        )

    async def list_suspensions(
        self, *, execution_id: str, cursor: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> Page[SuspensionInfo]:
        """Every episode of an execution, oldest first."""
        return await self.call(
            ListSuspensions(execution_id=execution_id, cursor=cursor, limit=limit)
        )

    async def read_waitpoint_token(
        self,
        *,
        execution_id: str,
        waitpoint_id: str,
        recipient: str | None = None,
        actor: str | None = None,
    ) -> Token | None:
        """A waitpoint's token, for an operator; none when it is closed or unknown.

        It is signed with the current key. After a rotation it is another one than that which was
        handed out first; both are good, each as long as its key. Each read is in the audit trail.
        `recipient`: a personal token, with which only signals of this source can be sent.
        """
        return await self.call(
            ReadWaitpointToken(
                execution_id=execution_id,
                waitpoint_id=waitpoint_id,
                recipient=recipient,
                actor=actor,
            )
        )

    async def show_waitpoint(
        self, *, execution_id: str, waitpoint_id: str, token: TokenGiven
    ) -> WaitpointShown:
        """What the holder of a waitpoint's token may see of it; nothing is changed."""
        return await self.call(
            ShowWaitpoint(execution_id=execution_id, waitpoint_id=waitpoint_id, token=token)
        )

    async def list_suspended(
        self, *, cursor: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> Page[SuspendedInfo]:
        """Suspended executions, newest first."""
        return await self.call(ListSuspended(cursor=cursor, limit=limit))

    async def describe_waits(self, *, execution_ids: Sequence[str]) -> dict[str, WaitInfo]:
        """The open waits of those that are suspended."""
        return await self.call(DescribeWaits(execution_ids=execution_ids))

    async def list_waits(
        self,
        *,
        namespace: str | None = None,
        lane_id: str | None = None,
        execution_kind: str | None = None,
        reason: BlockingReasonGiven | None = None,
        oldest_first: bool = False,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[WaitInfo]:
        """Suspended executions and what they wait for, newest first unless `oldest_first`.

        `reason`: only those that wait for this, as `waiting_for_approval`.
        """
        return await self.call(
            ListWaits(
                namespace=namespace,
                lane_id=lane_id,
                execution_kind=execution_kind,
                reason=reason,
                oldest_first=oldest_first,
                cursor=cursor,
                limit=limit,
            )
        )

    async def find_waitpoint(self, *, execution_id: str, waitpoint_key: str) -> WaitpointRow | None:
        """The waitpoint a key stands for: one that is waited on, a pending one, else the last."""
        return await self.call(
            FindWaitpoint(execution_id=execution_id, waitpoint_key=waitpoint_key)
        )

    # --- approvals ------------------------------------------------------------------------------

    async def show_wait(self, *, execution_id: str, waitpoint_key: str) -> WaitShown | None:
        """One wait as a person needs it to decide: what it asks for, who has answered, what it is
        about.

        The waitpoint is the one that `find_waitpoint` finds by the key; it may be closed by now.
        """
        return await self.call(ShowWait(execution_id=execution_id, waitpoint_key=waitpoint_key))

    async def count_waits(
        self,
        *,
        namespace: str | None = None,
        reason: BlockingReasonGiven | None = None,
        at_most: int = limits.PAGE_DEFAULT,
    ) -> int:
        """How many executions are suspended, of one `reason` if it is named.

        It counts no further than `at_most`.
        """
        return await self.call(CountWaits(namespace=namespace, reason=reason, at_most=at_most))

    async def list_approvals(
        self,
        *,
        namespace: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[ApprovalGiven]:
        """Signals that approved or rejected something, newest first.

        They are found as long as events are kept. A page looks through so many events at most: it
        may hold few items and still have a next one.
        """
        return await self.call(ListApprovals(namespace=namespace, cursor=cursor, limit=limit))

    # --- mail -----------------------------------------------------------------------------------

    async def send_message(
        self,
        *,
        execution_id: str,
        mailbox: str,
        payload: bytes,
        sender: str = "",
        wants_reply: bool = False,
        idempotency_key: str | None = None,
        dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT,
    ) -> Sent:
        """Put a message (JSON) into a mailbox of an execution that has not ended.

        It must fit the schema that the mailbox was made with. A repeated `idempotency_key` answers
        as the first call, for `dedup_ttl_ms`. `wants_reply`: its answer is kept, see
        `wait_for_reply`.
        """
        return await self.call(
            SendMessage(
                execution_id=execution_id,
                mailbox=mailbox,
                payload=payload,
                sender=sender,
                wants_reply=wants_reply,
                idempotency_key=idempotency_key,
                dedup_ttl_ms=dedup_ttl_ms,
            )
        )

    async def receive_message(
        self, handle: Handle, *, mailbox: str, entries: Sequence[NewEntry]
    ) -> Message:
        """Take the next unread message, and record it, in one transaction.

        `entries`: added to the journal; the last one is of the kind `message`, and its value
        becomes the message. A repeated call finds its entry and answers as the first.
        `MailboxEmpty` adds nothing.
        """
        return await self.call(ReceiveMessage(handle=handle, mailbox=mailbox, entries=entries))

    async def listen_mailboxes(self, handle: Handle, *, mailboxes: Sequence[str]) -> Listening:
        """Have a signal when a message comes to one of some mailboxes.

        The reply names a pending waitpoint of each to wait on; or none, where a message is unread
        already: that is to be received first.
        """
        return await self.call(ListenMailboxes(handle=handle, mailboxes=mailboxes))

    async def reply_message(
        self,
        handle: Handle,
        *,
        mailbox: str,
        number: int,
        message_id: str,
        payload: bytes,
        entries: Sequence[NewEntry] = (),
    ) -> Replied:
        """Answer a message that was received, once, with JSON; `entries` are added with it."""
        return await self.call(
            ReplyMessage(
                handle=handle,
                mailbox=mailbox,
                number=number,
                message_id=message_id,
                payload=payload,
                entries=entries,
            )
        )

    async def wait_for_reply(
        self,
        *,
        execution_id: str,
        mailbox: str,
        number: int,
        message_id: str,
        wait_ms: int | None = None,
    ) -> Reply:
        """The answer to a message, once there is one.

        `NoReply` when the execution has ended without; `WaitTimeout` when that takes too long.
        Answers are kept for a day.
        """
        return await self.call(
            WaitForReply(
                execution_id=execution_id,
                mailbox=mailbox,
                number=number,
                message_id=message_id,
                wait_ms=wait_ms,
            )
        )

    async def list_mailboxes(self, *, execution_id: str) -> tuple[MailboxInfo, ...]:
        """The mailboxes of an execution by name, with how many messages wait in each.

        All of them: it has at most `limits.MAILBOXES_MAX`.
        """
        return await self.call(ListMailboxes(execution_id=execution_id))

    async def read_messages(
        self,
        *,
        execution_id: str,
        mailbox: str,
        after: int | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> MessagePage:
        """Unread messages of a mailbox in their order, after a number."""
        return await self.call(
            ReadMessages(execution_id=execution_id, mailbox=mailbox, after=after, limit=limit)
        )

    # --- flows ----------------------------------------------------------------------------------

    async def submit_flow(
        self,
        *,
        nodes: Sequence[FlowNode],
        edges: Sequence[FlowEdge] = (),
        flow_kind: str = "dag",
        namespace: str | None = None,
        tags: dict[str, str] | None = None,
        retention_ms: int | None = None,
        idempotency_key: str | None = None,
        dedup_window_ms: int = limits.DEDUP_WINDOW_MS_DEFAULT,
        flow_id: str | None = None,
        connection: Any = None,
        on_success: NewHook | None = None,
        on_failure: NewHook | None = None,
        on_end: NewHook | None = None,
        handle: Handle | None = None,
        entries: Sequence[NewEntry] = (),
    ) -> FlowSubmitted | FlowDuplicate:
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
        return await self.call(
            SubmitFlow(
                nodes=nodes,
                edges=edges,
                flow_kind=flow_kind,
                namespace=namespace,
                tags=tags,
                retention_ms=retention_ms,
                idempotency_key=idempotency_key,
                dedup_window_ms=dedup_window_ms,
                flow_id=flow_id,
                connection=connection,
                on_success=on_success,
                on_failure=on_failure,
                on_end=on_end,
                handle=handle,
                entries=entries,
            )
        )

    async def create_flow(
        self,
        *,
        flow_kind: str = "dag",
        namespace: str | None = None,
        flow_id: str | None = None,
        tags: dict[str, str] | None = None,
        retention_ms: int | None = None,
        on_success: NewHook | None = None,
        on_failure: NewHook | None = None,
        on_end: NewHook | None = None,
    ) -> FlowCreated | FlowAlreadySatisfied:
        """An empty flow to add executions to.

        The same again is FlowAlreadySatisfied, another under the same id a FlowConflict. Its hooks
        are those of `submit_flow`: they follow each end of the flow, which comes when all members
        that it has by then have ended.

        >>> await engine.create_flow(  # doctest: +SKIP
        ...     flow_kind="import", on_end=NewHook(execution_kind="report")
        ... )
        """
        return await self.call(
            CreateFlow(
                flow_kind=flow_kind,
                namespace=namespace,
                flow_id=flow_id,
                tags=tags,
                retention_ms=retention_ms,
                on_success=on_success,
                on_failure=on_failure,
                on_end=on_end,
            )
        )

    async def add_execution_to_flow(
        self, *, flow_id: str, execution_id: str, node_name: str = "", reopen: bool = False
    ) -> Added | AlreadyMember:
        """An execution joins a flow, for ever. `reopen`: also one that has finished."""
        return await self.call(
            AddExecutionToFlow(
                flow_id=flow_id, execution_id=execution_id, node_name=node_name, reopen=reopen
            )
        )

    async def stage_dependency_edge(
        self,
        *,
        flow_id: str,
        upstream_execution_id: str,
        downstream_execution_id: str,
        edge_id: str | None = None,
        dependency_kind: str = SUCCESS_ONLY,
        data_passing_ref: str | None = None,
        input_name: str | None = None,
        expected_graph_revision: int | None = None,
    ) -> Staged:
        """Announce an edge; it takes effect by `apply_dependency_to_child`.

        By itself it holds no child back. A child that waits for another edge waits for this one
        too, until it is applied and its upstream ends, or `withdraw_dependency_edge` takes it back.
        """
        return await self.call(
            StageDependencyEdge(
                flow_id=flow_id,
                upstream_execution_id=upstream_execution_id,
                downstream_execution_id=downstream_execution_id,
                edge_id=edge_id,
                dependency_kind=dependency_kind,
                data_passing_ref=data_passing_ref,
                input_name=input_name,
                expected_graph_revision=expected_graph_revision,
            )
        )

    async def apply_dependency_to_child(
        self,
        *,
        flow_id: str,
        edge_id: str,
        upstream_execution_id: str,
        downstream_execution_id: str,
    ) -> Applied | DependencyAlreadyApplied:
        """The child waits from now on; an upstream that has ended counts at once."""
        return await self.call(
            ApplyDependencyToChild(
                flow_id=flow_id,
                edge_id=edge_id,
                upstream_execution_id=upstream_execution_id,
                downstream_execution_id=downstream_execution_id,
            )
        )

    async def withdraw_dependency_edge(
        self,
        *,
        flow_id: str,
        edge_id: str,
        upstream_execution_id: str,
        downstream_execution_id: str,
    ) -> Withdrawn | AlreadyWithdrawn:
        """Take a staged edge back: its group no longer waits for it, and may be met at once.

        An edge that was applied is refused.
        """
        return await self.call(
            WithdrawDependencyEdge(
                flow_id=flow_id,
                edge_id=edge_id,
                upstream_execution_id=upstream_execution_id,
                downstream_execution_id=downstream_execution_id,
            )
        )

    async def add_dependency(
        self,
        *,
        flow_id: str,
        upstream_execution_id: str,
        downstream_execution_id: str,
        data_passing_ref: str | None = None,
        input_name: str | None = None,
    ) -> Applied | DependencyAlreadyApplied:
        """Stage and apply an edge in one transaction."""
        return await self.call(
            AddDependency(
                flow_id=flow_id,
                upstream_execution_id=upstream_execution_id,
                downstream_execution_id=downstream_execution_id,
                data_passing_ref=data_passing_ref,
                input_name=input_name,
            )
        )

    async def set_edge_group_policy(
        self, *, flow_id: str, downstream_execution_id: str, policy: EdgePolicy
    ) -> PolicySet | PolicyAlreadySet:
        """How the inbound edges of a member join; to be said before the first of them."""
        return await self.call(
            SetEdgeGroupPolicy(
                flow_id=flow_id, downstream_execution_id=downstream_execution_id, policy=policy
            )
        )

    async def set_flow_tag(
        self, *, flow_id: str, key: str, value: str, actor: str | None = None
    ) -> None:
        """Set or overwrite one tag."""
        return await self.call(SetFlowTag(flow_id=flow_id, key=key, value=value, actor=actor))

    async def set_flow_tags(
        self, *, flow_id: str, tags: dict[str, str], actor: str | None = None
    ) -> None:
        """Set or overwrite several tags, or none if one is malformed."""
        return await self.call(SetFlowTags(flow_id=flow_id, tags=tags, actor=actor))

    async def resolve_dependency(
        self,
        *,
        flow_id: str,
        edge_id: str,
        upstream_execution_id: str,
        downstream_execution_id: str,
    ) -> DependencyResolved:
        """Count an upstream's end for one edge; its outcome is read from its record."""
        return await self.call(
            ResolveDependency(
                flow_id=flow_id,
                edge_id=edge_id,
                upstream_execution_id=upstream_execution_id,
                downstream_execution_id=downstream_execution_id,
            )
        )

    async def cascade_completion(self, *, execution_id: str) -> CascadeOutcome:
        """Resolve what follows from an execution's end, as far as it has not been."""
        return await self.call(CascadeCompletion(execution_id=execution_id))

    async def cancel_flow(
        self,
        *,
        flow_id: str,
        policy: CancellationPolicyGiven = CancellationPolicy.CANCEL_ALL,
        reason: str = FLOW_CANCELLED,
        wait_ms: int | None = 0,
        actor: str | None = None,
    ) -> FlowCancelled | CancellationScheduled | PartiallyCancelled:
        """Cancel a flow and the members its policy names; none of them starts after this returns.

        Members of a large flow are cancelled shortly afterwards; `wait_ms` waits for that, and
        PartiallyCancelled names those that were not cancelled in time.
        """
        return await self.call(
            CancelFlow(flow_id=flow_id, policy=policy, reason=reason, wait_ms=wait_ms, actor=actor)
        )

    async def cancel_flow_header(
        self,
        *,
        flow_id: str,
        policy: CancellationPolicyGiven = CancellationPolicy.CANCEL_ALL,
        reason: str = FLOW_CANCELLED,
        grace_ms: int = limits.CANCEL_GRACE_MS_DEFAULT,
        actor: str | None = None,
    ) -> FlowCancelled | AlreadyTerminal:
        """Cancel the flow alone, for a caller that cancels its members and acknowledges each.

        None of them starts any more; what is left after the grace is cancelled by itself.
        """
        return await self.call(
            CancelFlowHeader(
                flow_id=flow_id, policy=policy, reason=reason, grace_ms=grace_ms, actor=actor
            )
        )

    async def ack_cancel_member(self, *, flow_id: str, execution_id: str) -> None:
        """A member of a cancelled flow was cancelled by its caller, so the engine need not.

        The cancel of one that has not ended stays deferred until the grace is over.
        """
        return await self.call(AckCancelMember(flow_id=flow_id, execution_id=execution_id))

    async def retry_flow(
        self, *, flow_id: str, reason: str = "", actor: str | None = None
    ) -> FlowRetried:
        """Run failed, expired and cancelled members again, and those skipped because of them.

        Members that succeeded are left alone, and so are those that a join did without. At most
        `limits.RETRIED_AT_ONCE` are replayed, all or none; call again while some are left.
        """
        return await self.call(RetryFlow(flow_id=flow_id, reason=reason, actor=actor))

    async def spawn_children(
        self, handle: Handle, children: Sequence[NewExecution], *, entries: Sequence[NewEntry] = ()
    ) -> Spawned:
        """Record executions as children of the one the handle owns, in its flow.

        A child with an idempotency key that the parent used before is the one it spawned then.
        `entries`: added to the journal in the same transaction. The value of one of kind `spawn`
        says how many of the children, in order, it is about; their ids are recorded.
        """
        return await self.call(SpawnChildren(handle=handle, children=children, entries=entries))

    async def wait_children(self, handle: Handle) -> ChildrenAwaited:
        """Let go of the lease until every child has ended; without any it goes on at once."""
        return await self.call(WaitChildren(handle=handle))

    async def describe_flow(self, *, flow_id: str) -> FlowSnapshot | None:
        """A flow with its counts and the groups of its members, or nothing."""
        return await self.call(DescribeFlow(flow_id=flow_id))

    async def project_flow_summary(self, *, flow_id: str) -> FlowSummary:
        """Exact numbers of members by state."""
        return await self.call(ProjectFlowSummary(flow_id=flow_id))

    async def list_flows(
        self,
        *,
        namespace: str | None = None,
        status: FlowStatusGiven | None = None,
        newest_first: bool = False,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[FlowListing]:
        """Flows by id, which is by creation.

        One whose row cannot be read is left out, as in `list_executions`; `doctor` names it.
        """
        return await self.call(
            ListFlows(
                namespace=namespace,
                status=status,
                newest_first=newest_first,
                cursor=cursor,
                limit=limit,
            )
        )

    async def list_flow_members(self, *, flow_id: str) -> tuple[MemberInfo, ...]:
        """Every member with its state, in the order of the graph.

        All at once: a flow has at most `limits.FLOW_MEMBERS_MAX`, and their order is not that of
        their ids.
        """
        return await self.call(ListFlowMembers(flow_id=flow_id))

    async def list_edges(
        self,
        *,
        flow_id: str,
        from_node: str | None = None,
        to_node: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[EdgeSnapshot]:
        """The edges that leave one member, or lead to one; without either, all of the flow; by id.

        One whose row cannot be read is left out, as in `list_executions`; `doctor` names it.
        """
        return await self.call(
            ListEdges(
                flow_id=flow_id, from_node=from_node, to_node=to_node, cursor=cursor, limit=limit
            )
        )

    async def describe_edge(self, *, flow_id: str, edge_id: str) -> EdgeSnapshot | None:
        """One edge with its live state, or nothing."""
        return await self.call(DescribeEdge(flow_id=flow_id, edge_id=edge_id))

    async def resolve_execution_flow_id(self, *, execution_id: str) -> str | None:
        """The flow an execution belongs to, if any."""
        return await self.call(ResolveExecutionFlowId(execution_id=execution_id))

    async def get_flow_tag(self, *, flow_id: str, key: str) -> str | None:
        """One tag, or nothing."""
        return await self.call(GetFlowTag(flow_id=flow_id, key=key))

    async def evaluate_flow_eligibility(self, *, execution_id: str) -> EligibilityStatus:
        """Whether its dependencies let an execution run, judged by its group."""
        return await self.call(EvaluateFlowEligibility(execution_id=execution_id))

    async def wait_for_flow(self, *, flow_id: str, wait_ms: int | None = None) -> FlowSnapshot:
        """The flow once all its members have ended; WaitTimeout when that takes too long."""
        return await self.call(WaitForFlow(flow_id=flow_id, wait_ms=wait_ms))

    # --- flow_graphs ----------------------------------------------------------------------------

    async def describe_flow_graph(
        self, *, flow_id: str, detail: int = DETAIL_DEFAULT, known_revision: int | None = None
    ) -> FlowGraph:
        """A flow as a drawing needs it: its nodes and edges, or how many are alike.

        With more than `detail` members, or more than `limits.GRAPH_ROWS_MAX` edges, both are folded
        by level, task and state; they are counted in the store, so a large flow costs no more rows
        than a small one. `known_revision`: the caller has the edges of this revision of the graph
        already, and they are left out if it is the current one.

        >>> graph = await engine.describe_flow_graph(flow_id=flow_id)  # doctest: +SKIP
        >>> [(each.execution_kind, each.count) for each in graph.groups]  # doctest: +SKIP
        """
        return await self.call(
            DescribeFlowGraph(flow_id=flow_id, detail=detail, known_revision=known_revision)
        )

    async def list_graph_members(
        self,
        *,
        flow_id: str,
        first_rank: int = 0,
        last_rank: int = RANKS_MAX,
        execution_kind: str | None = None,
        states: Sequence[str] = (),
        is_free: bool = False,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[GraphNode]:
        """Members of a flow that fit every part given, by id.

        `first_rank`, `last_rank`: of a level of the drawing, where children stand one rank behind
        the execution that spawned them. `is_free`: no other member keeps them back.
        """
        return await self.call(
            ListGraphMembers(
                flow_id=flow_id,
                first_rank=first_rank,
                last_rank=last_rank,
                execution_kind=execution_kind,
                states=states,
                is_free=is_free,
                cursor=cursor,
                limit=limit,
            )
        )

    async def describe_flow_member(self, *, flow_id: str, execution_id: str) -> FlowMember | None:
        """One member with the members it waits for and those that wait for it, or nothing.

        At most `limits.GRAPH_NEXT_MAX` of each are named.
        """
        return await self.call(DescribeFlowMember(flow_id=flow_id, execution_id=execution_id))

    # --- schedules ------------------------------------------------------------------------------

    async def create_schedule(
        self,
        *,
        schedule_id: str,
        timing: Timing,
        start: ScheduledStart,
        policy: SchedulePolicy = USUAL_POLICY,
        namespace: str | None = None,
        actor: str | None = None,
    ) -> ScheduleCreated:
        """Start work by the calendar, from the next tick on.

        The same again answers the schedule there is; another one of its name is a ScheduleConflict.

        >>> await engine.create_schedule(  # doctest: +SKIP
        ...     schedule_id="report",
        ...     timing=Timing(cron=("0 9 * * 1-5",), tz="Europe/Berlin"),
        ...     start=ScheduledStart(execution=NewExecution(execution_kind="report")),
        ... )
        """
        return await self.call(
            CreateSchedule(
                schedule_id=schedule_id,
                timing=timing,
                start=start,
                policy=policy,
                namespace=namespace,
                actor=actor,
            )
        )

    async def update_schedule(
        self,
        *,
        schedule_id: str,
        timing: Timing | None = None,
        start: ScheduledStart | None = None,
        policy: SchedulePolicy | None = None,
        namespace: str | None = None,
        expected_version: int | None = None,
        actor: str | None = None,
    ) -> ScheduleChanged:
        """Change what is named; the rest stays, also a pause.

        With another timing or policy, what was due is done first. `expected_version`: refuse the
        change if there was another one before.
        """
        return await self.call(
            UpdateSchedule(
                schedule_id=schedule_id,
                timing=timing,
                start=start,
                policy=policy,
                namespace=namespace,
                expected_version=expected_version,
                actor=actor,
            )
        )

    async def pause_schedule(
        self,
        *,
        schedule_id: str,
        reason: str = "",
        namespace: str | None = None,
        actor: str | None = None,
    ) -> ScheduleChanged:
        """Start nothing. Its ticks are missed until it is resumed, whatever code declares."""
        return await self.call(
            PauseSchedule(schedule_id=schedule_id, reason=reason, namespace=namespace, actor=actor)
        )

    async def resume_schedule(
        self, *, schedule_id: str, namespace: str | None = None, actor: str | None = None
    ) -> ScheduleChanged:
        """Start work again, from the next tick on; missed ones are for a backfill."""
        return await self.call(
            ResumeSchedule(schedule_id=schedule_id, namespace=namespace, actor=actor)
        )

    async def delete_schedule(
        self, *, schedule_id: str, namespace: str | None = None, actor: str | None = None
    ) -> ScheduleDeleted:
        """Remove a schedule; its runs go on. One that is declared in code comes back when a
        worker starts.
        """
        return await self.call(
            DeleteSchedule(schedule_id=schedule_id, namespace=namespace, actor=actor)
        )

    async def prune_schedules(
        self, *, namespace: str | None = None, dry_run: bool = False, actor: str | None = None
    ) -> SchedulesPruned:
        """Delete the schedules that their program declares no more."""
        return await self.call(PruneSchedules(namespace=namespace, dry_run=dry_run, actor=actor))

    async def trigger_schedule(
        self, *, schedule_id: str, namespace: str | None = None, actor: str | None = None
    ) -> Triggered:
        """Start one run now, whatever the calendar and other runs say. No tick is used up."""
        return await self.call(
            TriggerSchedule(schedule_id=schedule_id, namespace=namespace, actor=actor)
        )

    async def backfill_schedule(
        self,
        *,
        schedule_id: str,
        begin: int,
        end: int,
        overlap: Overlap = Overlap.ALLOW,
        dry_run: bool = False,
        again: bool = False,
        namespace: str | None = None,
        actor: str | None = None,
    ) -> Backfilled:
        """Start runs for ticks of a range, both ends included, that have none.

        Each call is one transaction and starts up to 500; go on from `next_begin`. A repeated call
        finds what the first one has started. `again`: also ticks that are older than runs are
        remembered, although they may have run. `overlap`: `allow`, or `skip` while another run that
        was backfilled has not ended.
        """
        return await self.call(
            BackfillSchedule(
                schedule_id=schedule_id,
                begin=begin,
                end=end,
                overlap=overlap,
                dry_run=dry_run,
                again=again,
                namespace=namespace,
                actor=actor,
            )
        )

    async def declare_schedules(
        self,
        *,
        schedules: Sequence[DeclaredSchedule],
        origins: Sequence[str],
        namespace: str | None = None,
        actor: str | None = None,
    ) -> SchedulesDeclared:
        """All that a program declares, told by each worker when it starts.

        Only what changed since is written. Pauses stay. Earlier declarations of these origins that
        are missing are marked as undeclared; they go on until they are pruned.
        """
        return await self.call(
            DeclareSchedules(schedules=schedules, origins=origins, namespace=namespace, actor=actor)
        )

    async def describe_schedule(
        self, *, schedule_id: str, namespace: str | None = None
    ) -> ScheduleSnapshot | None:
        """A schedule as it stands, with what may keep its runs back."""
        return await self.call(DescribeSchedule(schedule_id=schedule_id, namespace=namespace))

    async def read_schedule_start(
        self, *, schedule_id: str, namespace: str | None = None
    ) -> ScheduledStart:
        """What each tick starts, its payload included."""
        return await self.call(ReadScheduleStart(schedule_id=schedule_id, namespace=namespace))

    async def list_schedules(
        self,
        *,
        namespace: str | None = None,
        is_paused: bool | None = None,
        is_undeclared: bool | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[ScheduleSnapshot]:
        """Schedules by name. A page of a filtered listing may be short although another follows."""
        return await self.call(
            ListSchedules(
                namespace=namespace,
                is_paused=is_paused,
                is_undeclared=is_undeclared,
                cursor=cursor,
                limit=limit,
            )
        )

    async def read_ticks(
        self,
        *,
        schedule_id: str,
        after: int | None = None,
        limit: int = limits.PAGE_DEFAULT,
        namespace: str | None = None,
    ) -> tuple[TickInfo, ...]:
        """What became of ticks after an instant, oldest first; or the last ones, newest first."""
        return await self.call(
            ReadTicks(schedule_id=schedule_id, after=after, limit=limit, namespace=namespace)
        )

    async def preview_schedule(
        self,
        *,
        schedule_id: str | None = None,
        timing: Timing | None = None,
        after: int | None = None,
        limit: int = 5,
        namespace: str | None = None,
    ) -> tuple[TickAhead, ...]:
        """The next ticks of a schedule, or of a timing before it is used."""
        return await self.call(
            PreviewSchedule(
                schedule_id=schedule_id,
                timing=timing,
                after=after,
                limit=limit,
                namespace=namespace,
            )
        )

    # --- budgets --------------------------------------------------------------------------------

    async def create_budget(
        self,
        *,
        budget_id: str,
        namespace: str | None = None,
        dimensions: Sequence[str] = (),
        hard_limits: Sequence[int] = (),
        soft_limits: Sequence[int] = (),
        scope_type: ScopeTypeGiven = ScopeType.FREE,
        scope_id: str = "",
        enforcement_mode: EnforcementModeGiven = EnforcementMode.STRICT,
        on_hard_limit: HardActionGiven = HardAction.BLOCK,
        on_soft_limit: SoftActionGiven = SoftAction.WARN,
        reset_interval_ms: int = 0,
        actor: str | None = None,
    ) -> BudgetCreated | BudgetAlreadySatisfied:
        """Put a policy in force; the three lists stand side by side, 0 is no limit.

        The same again is BudgetAlreadySatisfied, other content under the same id a LimitConflict.
        `namespace`: whose it is, which is who may see and change it over a server; None: of all.
        """
        return await self.call(
            CreateBudget(
                budget_id=budget_id,
                namespace=namespace,
                dimensions=dimensions,
                hard_limits=hard_limits,
                soft_limits=soft_limits,
                scope_type=scope_type,
                scope_id=scope_id,
                enforcement_mode=enforcement_mode,
                on_hard_limit=on_hard_limit,
                on_soft_limit=on_soft_limit,
                reset_interval_ms=reset_interval_ms,
                actor=actor,
            )
        )

    async def update_budget(
        self,
        *,
        budget_id: str,
        hard_limits: Mapping[str, int] | None = None,
        soft_limits: Mapping[str, int] | None = None,
        enforcement_mode: EnforcementModeGiven | None = None,
        on_hard_limit: HardActionGiven | None = None,
        on_soft_limit: SoftActionGiven | None = None,
        reset_interval_ms: int | None = None,
        expected_revision: int | None = None,
        actor: str | None = None,
    ) -> BudgetUpdated:
        """Raise or lower limits and change what they do; what is not named stays.

        `expected_revision`: of the budget as it was read; another one by now is a RevisionMismatch.
        """
        return await self.call(
            UpdateBudget(
                budget_id=budget_id,
                hard_limits=hard_limits,
                soft_limits=soft_limits,
                enforcement_mode=enforcement_mode,
                on_hard_limit=on_hard_limit,
                on_soft_limit=on_soft_limit,
                reset_interval_ms=reset_interval_ms,
                expected_revision=expected_revision,
                actor=actor,
            )
        )

    async def reset_budget(self, *, budget_id: str, actor: str | None = None) -> BudgetReset:
        """Usage to zero; breach counts are lifetime totals and stay."""
        return await self.call(ResetBudget(budget_id=budget_id, actor=actor))

    async def report_usage(
        self,
        handle: Handle,
        *,
        budget_id: str,
        usage: Usage,
        dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT,
        must_exist: bool = False,
    ) -> UsageOutcome:
        """What the owner of a lease used. Repeating a key returns the first outcome.

        Usage of a budget without a policy counts, and a policy made later sees it; with
        `must_exist` it is refused with NotFound.
        """
        return await self.call(
            ReportUsage(
                handle=handle,
                budget_id=budget_id,
                usage=usage,
                dedup_ttl_ms=dedup_ttl_ms,
                must_exist=must_exist,
            )
        )

    async def report_usage_admin(
        self,
        *,
        budget_id: str,
        dimensions: Sequence[str],
        deltas: Sequence[int],
        dedup_key: str | None = None,
        dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT,
        must_exist: bool = False,
        actor: str | None = None,
    ) -> UsageOutcome:
        """A report from outside any execution; `must_exist` as in `report_usage`."""
        return await self.call(
            ReportUsageAdmin(
                budget_id=budget_id,
                dimensions=dimensions,
                deltas=deltas,
                dedup_key=dedup_key,
                dedup_ttl_ms=dedup_ttl_ms,
                must_exist=must_exist,
                actor=actor,
            )
        )

    async def record_spend(
        self,
        *,
        budget_id: str,
        execution_id: str,
        deltas: Mapping[str, int],
        idempotency_key: str | None = None,
        dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT,
    ) -> UsageOutcome:
        """A spend that `release_budget` can give back; a repeated key is AlreadyApplied."""
        return await self.call(
            RecordSpend(
                budget_id=budget_id,
                execution_id=execution_id,
                deltas=deltas,
                idempotency_key=idempotency_key,
                dedup_ttl_ms=dedup_ttl_ms,
            )
        )

    async def release_budget(self, *, budget_id: str, execution_id: str) -> None:
        """Give back exactly what an execution spent, once."""
        return await self.call(ReleaseBudget(budget_id=budget_id, execution_id=execution_id))

    async def reserve_budget(
        self,
        handle: Handle,
        *,
        budget_id: str,
        amounts: Mapping[str, int],
        hold_id: str | None = None,
        ttl_ms: int = limits.HOLD_TTL_MS_DEFAULT,
    ) -> Reserved | HardBreach | AskFirst:
        """Hold amounts against the hard limits before they are spent.

        AskFirst of a budget that asks: nothing is held; go on with `ask_budget`.

        The hold comes back by itself when it is settled, released, when its time is over, and when
        the lease ends for whatever reason. Asking twice with one `hold_id` holds once. NotFound for
        a budget that does not exist.
        """
        return await self.call(
            ReserveBudget(
                handle=handle, budget_id=budget_id, amounts=amounts, hold_id=hold_id, ttl_ms=ttl_ms
            )
        )

    async def settle_budget(
        self, handle: Handle, *, budget_id: str, hold_id: str, amounts: Mapping[str, int]
    ) -> UsageOutcome:
        """Replace a hold by what was really spent; it joins the execution's ledger."""
        return await self.call(
            SettleBudget(handle=handle, budget_id=budget_id, hold_id=hold_id, amounts=amounts)
        )

    async def release_hold(self, handle: Handle, *, budget_id: str, hold_id: str) -> HoldReleased:
        """Give a hold back unspent."""
        return await self.call(ReleaseHold(handle=handle, budget_id=budget_id, hold_id=hold_id))

    async def get_budget_status(self, *, budget_id: str) -> BudgetStatus:
        """Policy, usage and counters of one budget, all of one instant."""
        return await self.call(GetBudgetStatus(budget_id=budget_id))

    async def list_budgets(
        self, *, cursor: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> Page[BudgetStatus]:
        """Budgets by id; usage without a policy is not listed.

        One whose rows cannot be read is left out; `doctor` names it.
        """
        return await self.call(ListBudgets(cursor=cursor, limit=limit))

    async def read_budget_usage_and_limits(self, *, budget_id: str) -> UsageAndLimits:
        """Limits and usage; empty where nothing is known."""
        return await self.call(ReadBudgetUsageAndLimits(budget_id=budget_id))

    async def list_spend(
        self,
        *,
        namespace: str | None = None,
        execution_kind: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[KindSpent]:
        """What all executions of a tenant have spent, by kind, budget and dimension.

        Those that are purged by now are included. `execution_kind`: only this one.
        """
        return await self.call(
            ListSpend(
                namespace=namespace, execution_kind=execution_kind, cursor=cursor, limit=limit
            )
        )

    async def list_execution_spend(
        self, *, execution_id: str, cursor: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> Page[Spent]:
        """What one execution has spent, by budget and dimension, in all periods of the budgets.

        That is what its workers reported and settled, and what was recorded for it. What is
        reserved is not spent yet.
        """
        return await self.call(
            ListExecutionSpend(execution_id=execution_id, cursor=cursor, limit=limit)
        )

    async def list_flow_spend(
        self, *, flow_id: str, cursor: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> Page[Spent]:
        """What the members of a flow have spent, by budget and dimension.

        A member that had spent before it joined brings that along when it spends again.
        """
        return await self.call(ListFlowSpend(flow_id=flow_id, cursor=cursor, limit=limit))

    # --- asks -----------------------------------------------------------------------------------

    async def ask_budget(
        self,
        handle: Handle,
        *,
        budget_id: str,
        amounts: Mapping[str, int],
        entries: Sequence[NewEntry] = (),
    ) -> Asked:
        """Ask people for room, after `reserve_budget` has answered AskFirst to these amounts.

        All spenders that reach a limit share its question. The reply names a pending waitpoint
        to suspend on; its only signal is the answer, after which it is to be reserved again.
        NothingToAsk where there is room by now. `entries`: added to the journal in the same
        transaction; the last one refers to the waitpoint, which then outlives its attempt.
        """
        return await self.call(
            AskBudget(handle=handle, budget_id=budget_id, amounts=amounts, entries=entries)
        )

    async def answer_budget_ask(
        self,
        *,
        budget_id: str,
        dimension: str,
        approve: bool,
        raise_by: int = 0,
        once: bool = False,
        limit_kind: LimitKindGiven = LimitKind.HARD,
        number: int | None = None,
        execution_id: str | None = None,
        comment: str = "",
        actor: str | None = None,
    ) -> AskAnswered:
        """Answer a question. An approval raises the limit by `raise_by`, or gives every spender
        that waits an allowance for what it asked for, `once`.

        A rejection raises BudgetExceeded in their handlers. With an `execution_id` only this
        spender gets the answer, which cannot raise the limit then. A `number` guards against
        answering a later question. The same answer again changes nothing; another one is AskOver.
        """
        return await self.call(
            AnswerBudgetAsk(
                budget_id=budget_id,
                dimension=dimension,
                approve=approve,
                raise_by=raise_by,
                once=once,
                limit_kind=limit_kind,
                number=number,
                execution_id=execution_id,
                comment=comment,
                actor=actor,
            )
        )

    async def list_budget_asks(
        self,
        *,
        budget_id: str | None = None,
        execution_id: str | None = None,
        only_open: bool = True,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[BudgetAsk]:
        """Questions without an answer, oldest first; of one budget or one execution by name.

        Without `only_open` also the last question about each limit that was answered, by budget and
        dimension.
        """
        return await self.call(
            ListBudgetAsks(
                budget_id=budget_id,
                execution_id=execution_id,
                only_open=only_open,
                cursor=cursor,
                limit=limit,
            )
        )

    # --- quotas ---------------------------------------------------------------------------------

    async def create_quota_policy(
        self,
        *,
        quota_policy_id: str,
        namespace: str | None = None,
        window_seconds: int = 60,
        max_requests_per_window: int = 0,
        max_concurrent: int = 0,
        jitter_ms: int = 0,
        actor: str | None = None,
    ) -> QuotaCreated | QuotaAlreadySatisfied:
        """Put a policy in force; 0 is no limit. Each concurrency key is counted by itself.

        `namespace`: whose it is, which is who may see and change it over a server; None: of all.
        """
        return await self.call(
            CreateQuotaPolicy(
                quota_policy_id=quota_policy_id,
                namespace=namespace,
                window_seconds=window_seconds,
                max_requests_per_window=max_requests_per_window,
                max_concurrent=max_concurrent,
                jitter_ms=jitter_ms,
                actor=actor,
            )
        )

    async def update_quota_policy(
        self,
        *,
        quota_policy_id: str,
        window_seconds: int | None = None,
        max_requests_per_window: int | None = None,
        max_concurrent: int | None = None,
        jitter_ms: int | None = None,
        expected_revision: int | None = None,
        actor: str | None = None,
    ) -> QuotaUpdated:
        """Change limits; what is not named stays. What waits for room is looked at at once.

        `expected_revision`: of the policy as it was read; another one by now is a RevisionMismatch.
        """
        return await self.call(
            UpdateQuotaPolicy(
                quota_policy_id=quota_policy_id,
                window_seconds=window_seconds,
                max_requests_per_window=max_requests_per_window,
                max_concurrent=max_concurrent,
                jitter_ms=jitter_ms,
                expected_revision=expected_revision,
                actor=actor,
            )
        )

    async def check_admission(
        self,
        *,
        quota_policy_id: str,
        execution_id: str,
        dimension: str = "",
        reservation_ms: int | None = None,
    ) -> AdmissionOutcome:
        """Ask for a place for an execution, as an external scheduler does before it grants.

        The place is reserved until the execution runs, is released, or `reservation_ms` are over
        (default: the policy's window). Once it runs, its end frees the place.
        """
        return await self.call(
            CheckAdmission(
                quota_policy_id=quota_policy_id,
                execution_id=execution_id,
                dimension=dimension,
                reservation_ms=reservation_ms,
            )
        )

    async def release_admission(
        self, *, quota_policy_id: str, execution_id: str, dimension: str = ""
    ) -> AdmissionReleased:
        """Give back the place reserved for an execution; its start stays counted in the window.

        Twice is harmless. PlaceInUse when the execution runs: its lease's end frees the place.
        """
        return await self.call(
            ReleaseAdmission(
                quota_policy_id=quota_policy_id, execution_id=execution_id, dimension=dimension
            )
        )

    async def read_quota_policy_limits(self, *, quota_policy_id: str) -> QuotaPolicy | None:
        """The policy, or none."""
        return await self.call(ReadQuotaPolicyLimits(quota_policy_id=quota_policy_id))

    async def get_quota_status(self, *, quota_policy_id: str) -> QuotaStatus:
        """The policy and how much of it each key uses."""
        return await self.call(GetQuotaStatus(quota_policy_id=quota_policy_id))

    async def list_quota_policies(
        self, *, cursor: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> Page[QuotaPolicy]:
        """Policies by id; one that cannot be read is left out."""
        return await self.call(ListQuotaPolicies(cursor=cursor, limit=limit))

    # --- lines ----------------------------------------------------------------------------------

    async def list_lines(
        self,
        *,
        namespace: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[Line]:
        """The lines of a namespace by their serial keys: those with an execution that has not
        ended, and those that a failed head holds up.
        """
        return await self.call(ListLines(namespace=namespace, cursor=cursor, limit=limit))

    async def list_line(
        self,
        *,
        serial_key: str,
        namespace: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[InLine]:
        """The executions of one line in their order; the first one has the turn, or failed and
        holds up the others. Executions whose dependencies have not ended are in no line yet.
        """
        return await self.call(
            ListLine(serial_key=serial_key, namespace=namespace, cursor=cursor, limit=limit)
        )

    async def release_line(
        self, *, serial_key: str, namespace: str | None = None, actor: str | None = None
    ) -> LineReleased:
        """Let a line go on past a failed head that holds it up (`on_head_failure="hold"`). To run
        the head again instead, replay it: it keeps the turn.
        """
        return await self.call(ReleaseLine(serial_key=serial_key, namespace=namespace, actor=actor))

    async def reconcile_lines(
        self,
        *,
        serial_key: str | None = None,
        namespace: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
        actor: str | None = None,
    ) -> Repaired:
        """Close places of executions that no longer wait there, count those behind each head, and
        pass the turns of heads that are gone. With `serial_key`, only that line.
        """
        return await self.call(
            ReconcileLines(
                serial_key=serial_key, namespace=namespace, cursor=cursor, limit=limit, actor=actor
            )
        )

    # --- lanes ----------------------------------------------------------------------------------

    async def set_lane_state(
        self,
        *,
        lane_id: str,
        lane_state: LaneStateGiven,
        reason: str = "",
        actor: str | None = None,
    ) -> LaneChanged:
        """Switch a lane: active, paused (no claims), draining (no creates), disabled (neither)."""
        return await self.call(
            SetLaneState(lane_id=lane_id, lane_state=lane_state, reason=reason, actor=actor)
        )

    async def pause_lane(
        self, *, lane_id: str, reason: str = "", actor: str | None = None
    ) -> LaneChanged:
        """Hand no work out; work is still taken in."""
        return await self.call(PauseLane(lane_id=lane_id, reason=reason, actor=actor))

    async def resume_lane(
        self, *, lane_id: str, reason: str = "", actor: str | None = None
    ) -> LaneChanged:
        """Open the lane again."""
        return await self.call(ResumeLane(lane_id=lane_id, reason=reason, actor=actor))

    async def drain_lane(
        self, *, lane_id: str, reason: str = "", actor: str | None = None
    ) -> LaneChanged:
        """Take no work in; what is there is still handed out."""
        return await self.call(DrainLane(lane_id=lane_id, reason=reason, actor=actor))

    async def configure_lane(
        self,
        *,
        lane_id: str,
        weight: int | None = None,
        aging_ms: int | None = None,
        budget_ids: Sequence[str] | None = None,
        quota_policy_id: str | None = None,
        tenant_weights: Mapping[str, int] | None = None,
        fair_weights: Mapping[str, int] | None = None,
        actor: str | None = None,
    ) -> LaneConfigured:
        """How a lane shares a worker with others, lets work age and bounds what is created on it.

        What is not named stays; an empty list and an empty text take defaults away. Executions
        that exist keep what they were created with. `tenant_weights`: by namespace, the shares of
        tenants beside the others of the lane; 1 is what all have. `fair_weights`: the same of fair
        keys, for what is created from then on.
        """
        return await self.call(
            ConfigureLane(
                lane_id=lane_id,
                weight=weight,
                aging_ms=aging_ms,
                budget_ids=budget_ids,
                quota_policy_id=quota_policy_id,
                tenant_weights=tenant_weights,
                fair_weights=fair_weights,
                actor=actor,
            )
        )

    async def list_lanes(
        self,
        *,
        with_counts: bool = True,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[LaneSummary]:
        """Lanes by name, with their switch and counts per state.

        Counting reads a row for each execution; without counts only the catalog is read.
        """
        return await self.call(ListLanes(with_counts=with_counts, cursor=cursor, limit=limit))

    # --- workers --------------------------------------------------------------------------------

    async def register_worker(
        self,
        *,
        worker_id: str,
        worker_instance_id: str,
        lanes: Sequence[str],
        liveness_ttl_ms: int,
        capabilities: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
        namespace: str | None = None,
        host: str | None = None,
        version: str | None = None,
        concurrency: int | None = None,
    ) -> Registered | Refreshed:
        """Say that a worker is there, and what it can do."""
        return await self.call(
            RegisterWorker(
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                lanes=lanes,
                liveness_ttl_ms=liveness_ttl_ms,
                capabilities=capabilities,
                kinds=kinds,
                namespace=namespace,
                host=host,
                version=version,
                concurrency=concurrency,
            )
        )

    async def heartbeat_worker(
        self, *, worker_instance_id: str, namespace: str | None = None, busy: int | None = None
    ) -> Refreshed | NotRegistered:
        """Still there, and so many handlers run. `NotRegistered` asks to register again."""
        return await self.call(
            HeartbeatWorker(worker_instance_id=worker_instance_id, namespace=namespace, busy=busy)
        )

    async def leave_worker(
        self, *, worker_instance_id: str, namespace: str | None = None
    ) -> Marked | NotRegistered:
        """The worker ends: it is taken off the registry."""
        return await self.call(
            LeaveWorker(worker_instance_id=worker_instance_id, namespace=namespace)
        )

    async def drain_worker(
        self, *, worker_instance_id: str, reason: str = "", namespace: str | None = None
    ) -> DrainAsked | NotRegistered:
        """Ask a worker to claim no more, to finish what it runs, and to end."""
        return await self.call(
            DrainWorker(worker_instance_id=worker_instance_id, reason=reason, namespace=namespace)
        )

    async def wait_for_stops(
        self,
        *,
        worker_instance_id: str,
        held: Sequence[HeldLease] = (),
        namespace: str | None = None,
        wait_ms: int = 0,
    ) -> StopsHeard:
        """Which of the leases that a worker holds it has lost: by a cancel, a revocation, another
        worker. Waits up to `wait_ms` for the first of them.
        """
        return await self.call(
            WaitForStops(
                worker_instance_id=worker_instance_id,
                held=held,
                namespace=namespace,
                wait_ms=wait_ms,
            )
        )

    async def mark_worker_dead(
        self,
        *,
        worker_instance_id: str,
        reason: str,
        namespace: str | None = None,
        revoke_leases: bool = False,
    ) -> Marked | NotRegistered:
        """Take a worker off the registry; with `revoke_leases` its work is run again at once."""
        return await self.call(
            MarkWorkerDead(
                worker_instance_id=worker_instance_id,
                reason=reason,
                namespace=namespace,
                revoke_leases=revoke_leases,
            )
        )

    async def list_unmet(
        self,
        *,
        namespace: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[Unmet]:
        """Waiting work of a tenant that no live worker can run, by lane and kind: what it wants.

        A line for each lane, kind and set of capabilities, and no count: it costs a look for each,
        at most `limits.UNMET_LOOKS` for a page. A page may be short although another follows.
        """
        return await self.call(ListUnmet(namespace=namespace, cursor=cursor, limit=limit))

    async def list_workers(
        self,
        *,
        namespace: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[Worker]:
        """Live workers by namespace and instance; every namespace when none is named."""
        return await self.call(ListWorkers(namespace=namespace, cursor=cursor, limit=limit))

    # --- keys -----------------------------------------------------------------------------------

    async def seed_waitpoint_hmac_secret(
        self, *, kid: str, secret_hex: str, actor: str | None = None
    ) -> Seeded | AlreadySeeded:
        """Install the first key; never replaces one that was chosen or has signed.

        The random key of a first start gives way while no waitpoint exists.
        """
        return await self.call(SeedWaitpointHmacSecret(kid=kid, secret_hex=secret_hex, actor=actor))

    async def rotate_waitpoint_hmac_secret_all(
        self,
        *,
        new_kid: str,
        new_secret_hex: str | None = None,
        grace_ms: int | None = None,
        actor: str | None = None,
    ) -> Rotated | NothingToRotate:
        """Sign with a new key (random unless given); the old one verifies for `grace_ms` more."""
        return await self.call(
            RotateWaitpointHmacSecretAll(
                new_kid=new_kid, new_secret_hex=new_secret_hex, grace_ms=grace_ms, actor=actor
            )
        )

    async def list_waitpoint_hmac_kids(self) -> tuple[KeyInfo, ...]:
        """The keys that verify tokens, without their secrets; all of them, for a
        rotation keeps few.
        """
        return await self.call(ListWaitpointHmacKids())

    # --- access ---------------------------------------------------------------------------------

    async def create_access_token(
        self,
        *,
        name: str,
        scopes: Sequence[str],
        namespaces: Sequence[str] | None = None,
        expires_in_ms: int = limits.TOKEN_LIFE_MS_DEFAULT,
        speaks_for: bool = False,
        actor: str | None = None,
    ) -> AccessTokenCreated:
        """Make a token; its text is in the answer, and nowhere else ever again.

        `namespaces`: those it is for; None is all of them. `speaks_for`: it may approve and signal
        in the name of others.
        """
        return await self.call(
            CreateAccessToken(
                name=name,
                scopes=scopes,
                namespaces=namespaces,
                expires_in_ms=expires_in_ms,
                speaks_for=speaks_for,
                actor=actor,
            )
        )

    async def list_access_tokens(
        self,
        *,
        namespaces: Sequence[str] | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[AccessToken]:
        """Tokens by id, those that have ended among them.

        `namespaces`: only those that are for some of these, and for no other.
        """
        return await self.call(ListAccessTokens(namespaces=namespaces, cursor=cursor, limit=limit))

    async def revoke_access_token(
        self, *, token_id: str, actor: str | None = None
    ) -> AccessTokenRevoked:
        """End a token: servers refuse it at once where hints reach them, else within 30 seconds."""
        return await self.call(RevokeAccessToken(token_id=token_id, actor=actor))

    async def authenticate(self, *, token: Token) -> AccessToken:
        """The token of this text, if it is good; its use is noted now and then."""
        return await self.call(Authenticate(token=token))

    async def find_namespaces(
        self,
        *,
        execution_ids: Sequence[str] = (),
        flow_ids: Sequence[str] = (),
        operation_ids: Sequence[str] = (),
        group_ids: Sequence[str] = (),
        budget_ids: Sequence[str] = (),
        quota_policy_ids: Sequence[str] = (),
    ) -> Namespaces:
        """Which namespaces things belong to. An id that means nothing has none."""
        return await self.call(
            FindNamespaces(
                execution_ids=execution_ids,
                flow_ids=flow_ids,
                operation_ids=operation_ids,
                group_ids=group_ids,
                budget_ids=budget_ids,
                quota_policy_ids=quota_policy_ids,
            )
        )

    # --- sessions -------------------------------------------------------------------------------

    async def open_session(
        self,
        *,
        way: str,
        token: Token | None = None,
        subject: str = "",
        roles: Sequence[str] = (),
        idle_ms: int = limits.SESSION_IDLE_MS_DEFAULT,
        life_ms: int = limits.SESSION_LIFE_MS_DEFAULT,
        replaces: Token | None = None,
    ) -> SessionOpened:
        """Begin a session; its text is in the answer, and nowhere else ever again.

        `way`: token, link, oidc or proxy. `token`: the access token that is shown; the session ends
        with it. Of the other ways `subject` is the name of the person, and `roles` are its groups.
        `replaces`: the text of a session that ends with this.
        """
        return await self.call(
            OpenSession(
                way=way,
                token=token,
                subject=subject,
                roles=roles,
                idle_ms=idle_ms,
                life_ms=life_ms,
                replaces=replaces,
            )
        )

    async def read_session(self, *, text: Token) -> Session:
        """The session of this text, if it is open; its use is noted now and then."""
        return await self.call(ReadSession(text=text))

    async def end_session(self, *, text: Token) -> SessionEnded:
        """End a session: servers refuse it where hints reach them, elsewhere within 30 seconds."""
        return await self.call(EndSession(text=text))

    # --- audit ----------------------------------------------------------------------------------

    async def list_audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        since: int | None = None,
        until: int | None = None,
        namespaces: Sequence[str] | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Page[AuditEntry]:
        """The audit trail, newest first.

        `since` and `until`: instants, the second one is not a part of it. `namespaces`: only what
        belongs to one of these.
        """
        return await self.call(
            ListAudit(
                actor=actor,
                action=action,
                subject=subject,
                since=since,
                until=until,
                namespaces=namespaces,
                cursor=cursor,
                limit=limit,
            )
        )

    async def record_refusals(self, *, refusals: Sequence[Refusals]) -> int:
        """Add calls that were refused to the audit trail; answers how many entries they are."""
        return await self.call(RecordRefusals(refusals=refusals))

    # --- events ---------------------------------------------------------------------------------

    async def read_events(
        self,
        *,
        kinds: Sequence[EventKindGiven] = (),
        filter: EventFilter = EVERYTHING,
        after: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
        until: str | None = None,
    ) -> EventPage:
        """A page of the feed, oldest first; without kinds, all of them.

        Events of one execution come in the order in which they happened. `until`: a cursor; nothing
        that comes behind it is shown, and a page that has come there is the end.
        """
        return await self.call(
            ReadEvents(kinds=kinds, filter=filter, after=after, limit=limit, until=until)
        )

    async def subscribe_events(
        self,
        *,
        kinds: Sequence[EventKindGiven] = (),
        filter: EventFilter = EVERYTHING,
        after: str | None = NOW,
        limit: int = limits.PAGE_DEFAULT,
        wait_ms: int = limits.SUBSCRIBE_WAIT_MS,
    ) -> EventPage:
        """As `read_events`, but waits up to `wait_ms` for an event.

        Ask again with the cursor of the answer, for as long as you like.
        """
        return await self.call(
            SubscribeEvents(kinds=kinds, filter=filter, after=after, limit=limit, wait_ms=wait_ms)
        )

    async def subscribe_completion(
        self,
        *,
        filter: EventFilter = EVERYTHING,
        after: str | None = NOW,
        limit: int = limits.PAGE_DEFAULT,
        wait_ms: int = limits.SUBSCRIBE_WAIT_MS,
    ) -> EventPage:
        """Ends of executions: one event for each end."""
        return await self.call(
            SubscribeCompletion(filter=filter, after=after, limit=limit, wait_ms=wait_ms)
        )

    async def subscribe_lease_history(
        self,
        *,
        filter: EventFilter = EVERYTHING,
        after: str | None = NOW,
        limit: int = limits.PAGE_DEFAULT,
        wait_ms: int = limits.SUBSCRIBE_WAIT_MS,
    ) -> EventPage:
        """Leases that were acquired, expired, reclaimed, revoked or released.

        A lease that ends with its execution is told by the completion. Renewals change no owner and
        are not told, unless an execution's policy has `renewal_events`.
        """
        return await self.call(
            SubscribeLeaseHistory(filter=filter, after=after, limit=limit, wait_ms=wait_ms)
        )

    async def subscribe_signal_delivery(
        self,
        *,
        filter: EventFilter = EVERYTHING,
        after: str | None = NOW,
        limit: int = limits.PAGE_DEFAULT,
        wait_ms: int = limits.SUBSCRIBE_WAIT_MS,
    ) -> EventPage:
        """Signals that were delivered, each with its effect."""
        return await self.call(
            SubscribeSignalDelivery(filter=filter, after=after, limit=limit, wait_ms=wait_ms)
        )

    async def subscribe_instance_tags(
        self,
        *,
        filter: EventFilter = EVERYTHING,
        after: str | None = NOW,
        limit: int = limits.PAGE_DEFAULT,
        wait_ms: int = limits.SUBSCRIBE_WAIT_MS,
    ) -> EventPage:
        """Tags that were set on executions and flows after their creation."""
        return await self.call(
            SubscribeInstanceTags(filter=filter, after=after, limit=limit, wait_ms=wait_ms)
        )

    async def read_timeline(self, *, execution_id: str) -> Timeline:
        """Everything that is known to have happened to one execution, in order."""
        return await self.call(ReadTimeline(execution_id=execution_id))

    # --- groups ---------------------------------------------------------------------------------

    async def create_consumer_group(
        self,
        *,
        group_id: str,
        kinds: Sequence[EventKindGiven] = (),
        filter: EventFilter = EVERYTHING,
        after: str | None = NOW,
        redeliver_ms: int = limits.REDELIVER_MS_DEFAULT,
        reset: bool = False,
        actor: str | None = None,
    ) -> GroupCreated:
        """A group that reads these events, from `after` on.

        One that exists keeps its position, unless `reset` moves it to `after`. Other kinds or
        another filter apply from the position on; what is not acknowledged is handed out again.
        """
        return await self.call(
            CreateConsumerGroup(
                group_id=group_id,
                kinds=kinds,
                filter=filter,
                after=after,
                redeliver_ms=redeliver_ms,
                reset=reset,
                actor=actor,
            )
        )

    async def list_consumer_groups(
        self, *, cursor: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> Page[ConsumerGroup]:
        """Groups by name, each with its position and how far it lags behind."""
        return await self.call(ListConsumerGroups(cursor=cursor, limit=limit))

    async def delete_consumer_group(
        self, *, group_id: str, actor: str | None = None
    ) -> GroupDeleted:
        """Forget a group and its position."""
        return await self.call(DeleteConsumerGroup(group_id=group_id, actor=actor))

    async def read_group(
        self,
        *,
        group_id: str,
        consumer: str,
        limit: int = limits.PAGE_DEFAULT,
        wait_ms: int = limits.SUBSCRIBE_WAIT_MS,
    ) -> Delivery:
        """The next events for one consumer, waiting up to `wait_ms` for some.

        What it has, it has for the group's `redeliver_ms`; after that another consumer gets it.
        """
        return await self.call(
            ReadGroup(group_id=group_id, consumer=consumer, limit=limit, wait_ms=wait_ms)
        )

    async def ack_group(
        self,
        *,
        group_id: str,
        consumer: str,
        delivery: str,
        up_to: str | None = None,
        dropped: int = 0,
    ) -> Acknowledged:
        """A delivery was handled: all of it, or up to the event with the cursor `up_to`.

        The rest is kept for another `redeliver_ms`; `up_to=""` says that none was handled yet.
        `dropped`: how many of the handled ones were given up.
        """
        return await self.call(
            AckGroup(
                group_id=group_id,
                consumer=consumer,
                delivery=delivery,
                up_to=up_to,
                dropped=dropped,
            )
        )

    # --- statistics -----------------------------------------------------------------------------

    async def read_statistics(
        self,
        *,
        since: int | None = None,
        last_ms: int = HOUR_MS,
        until: int | None = None,
        namespace: str | None = None,
        lane_id: str | None = None,
        execution_kind: str | None = None,
        by: StepGiven = Step.MINUTE,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> Statistics:
        """Statistics by time, namespace, lane and kind; without `since` of the last `last_ms`.

        They begin with the minute of `since` and end before `until`. `by`: a line for each minute,
        each hour, or one for all of it. `limit`: of how many minutes of a lane and kind a page is
        made; a line that the next page goes on with is added up by the caller.
        """
        return await self.call(
            ReadStatistics(
                since=since,
                last_ms=last_ms,
                until=until,
                namespace=namespace,
                lane_id=lane_id,
                execution_kind=execution_kind,
                by=by,
                cursor=cursor,
                limit=limit,
            )
        )

    async def read_spending(
        self,
        *,
        since: int | None = None,
        last_ms: int = HOUR_MS,
        until: int | None = None,
        budget_id: str | None = None,
        by: StepGiven = Step.MINUTE,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> SpendingPage:
        """What budgets spent, by time, budget and dimension; without `since` in the last `last_ms`.

        An amount is told in the minute in which the loop noticed it. `by` and `limit` as in
        `read_statistics`.
        """
        return await self.call(
            ReadSpending(
                since=since,
                last_ms=last_ms,
                until=until,
                budget_id=budget_id,
                by=by,
                cursor=cursor,
                limit=limit,
            )
        )

    # --- gauges ---------------------------------------------------------------------------------

    async def read_gauges(self) -> Gauges:
        """Ready, running and suspended work by lane, live workers, and what no worker can run.

        It costs a bounded look into indexes, however much has ended. A server shows the same
        numbers as metrics, which it reads once in ten seconds.
        """
        return await self.call(ReadGauges())

    # --- repairs --------------------------------------------------------------------------------

    async def reconcile_budget_counters(
        self,
        *,
        budget_id: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
        actor: str | None = None,
    ) -> Repaired:
        """Set what budgets hold to the sum of their reservations, and their lists right.

        What was used cannot be counted again: reports leave no rows. It is reported where the
        ledger proves it too low. With `budget_id`, only that budget; executions that are missing in
        its list are found without one only.
        """
        return await self.call(
            ReconcileBudgetCounters(budget_id=budget_id, cursor=cursor, limit=limit, actor=actor)
        )

    async def reconcile_quota_counters(
        self,
        *,
        quota_policy_id: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
        actor: str | None = None,
    ) -> Repaired:
        """Free slots of executions that do not run; count slots and starts of each key again."""
        return await self.call(
            ReconcileQuotaCounters(
                quota_policy_id=quota_policy_id, cursor=cursor, limit=limit, actor=actor
            )
        )

    async def reconcile_flow_counters(
        self,
        *,
        flow_id: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
        actor: str | None = None,
    ) -> Repaired:
        """Count members, edges, groups and children of flows; defer what no task would do."""
        return await self.call(
            ReconcileFlowCounters(flow_id=flow_id, cursor=cursor, limit=limit, actor=actor)
        )

    async def drain_sibling_cancel_group(
        self, *, flow_id: str, downstream_execution_id: str, actor: str | None = None
    ) -> SiblingsDrained:
        """Perform the deferred cancels of a decided group now: of what still runs for it."""
        return await self.call(
            DrainSiblingCancelGroup(
                flow_id=flow_id, downstream_execution_id=downstream_execution_id, actor=actor
            )
        )

    async def reconcile_sibling_cancel_group(
        self, *, flow_id: str, downstream_execution_id: str, actor: str | None = None
    ) -> SiblingsReconciled:
        """Restore the deferred cancels of a decided group if they are missing; drop stale ones."""
        return await self.call(
            ReconcileSiblingCancelGroup(
                flow_id=flow_id, downstream_execution_id=downstream_execution_id, actor=actor
            )
        )

    # --- admin ----------------------------------------------------------------------------------

    async def ping(self) -> None:
        """Answers when the store does."""
        return await self.call(Ping())

    async def server_time_ms(self) -> int:
        """The store's clock."""
        return await self.call(ServerTimeMs())

    async def prepare(self) -> Prepared:
        """Bring the schema up to date."""
        return await self.call(Prepare())

    async def shutdown_prepare(self, *, wait_ms: int) -> None:
        """Wait until nothing is in flight; WaitTimeout when that takes too long."""
        return await self.call(ShutdownPrepare(wait_ms=wait_ms))

    async def doctor(self, *, quick: bool = False) -> DoctorReport:
        """Check store, schema, indexes and records; see `ff doctor`.

        `quick`: leave out the checks that read every row, which take long on a large store.
        """
        return await self.call(Doctor(quick=quick))

    async def reconcile_execution_index(self) -> Reconciled:
        """Compare every index with the records; report what differs."""
        return await self.call(ReconcileExecutionIndex())

    async def mark_lease_expired_if_due(self, *, execution_id: str) -> Moved:
        """Mark a lapsed lease; nothing when it has not lapsed."""
        return await self.call(MarkLeaseExpiredIfDue(execution_id=execution_id))

    async def promote_delayed(self, *, execution_id: str) -> Moved:
        """Make delayed work wait when its time has come."""
        return await self.call(PromoteDelayed(execution_id=execution_id))

    async def expire_execution(self, *, execution_id: str, phase: str) -> Moved:
        """Apply the attempt timeout or the execution deadline, if due."""
        return await self.call(ExpireExecution(execution_id=execution_id, phase=phase))

    async def trim_retention(self, *, limit: int = limits.DUE_BATCH) -> int:
        """Delete executions past their retention, with everything that belongs to them."""
        return await self.call(TrimRetention(limit=limit))
