"""FlowFabric: durable execution. Work is claimed under a lease, retried by policy, never lost."""

from flowfabric.api.waits import WaitInfo
from flowfabric.config import EngineConfig
from flowfabric.errors import (
    FlowFabricError,
    IdempotencyConflict,
    InvalidInput,
    InvalidPayload,
    InvalidToken,
    JournalFull,
    NoReply,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
    TargetNotSignalable,
    UnknownMailbox,
    WaitpointClosed,
    WaitTimeout,
)
from flowfabric.model.budget import AlreadyApplied, BudgetStatus, HardBreach, Ok, SoftBreach
from flowfabric.model.feed import Event
from flowfabric.model.flow import CancellationPolicy, FlowState
from flowfabric.model.flow_results import FlowSnapshot
from flowfabric.model.journal import EntryKind, EntryState, JournalEntry
from flowfabric.model.log_lines import LogLine
from flowfabric.model.policy import ExponentialBackoff, FixedBackoff, RetryPolicy
from flowfabric.model.quota import QuotaPolicy, QuotaStatus
from flowfabric.model.results import ExecutionSnapshot, Explanation
from flowfabric.model.state import PublicState
from flowfabric.model.statistic import Histogram, Spending, SpendingPage, Statistic, Statistics
from flowfabric.model.stream import Frame
from flowfabric.model.successor import FlowEnded, RunEnded
from flowfabric.model.suspension import (
    ResumeCause,
    SignalAccepted,
    SignalDuplicate,
    SignalEffect,
    Token,
)
from flowfabric.sdk.blocking import SyncFabric
from flowfabric.sdk.context.children import Child
from flowfabric.sdk.context.conditions import Wait, all_of, any_of, approval, count, signal
from flowfabric.sdk.context.context import Context, SyncContext
from flowfabric.sdk.context.mail import Message, SyncMessage
from flowfabric.sdk.context.received import ReceivedSignal, Waitpoint
from flowfabric.sdk.context.spending import Spend, SyncSpend
from flowfabric.sdk.context.waiting import Approval
from flowfabric.sdk.errors import (
    BudgetExceeded,
    ChildFailed,
    DuplicateStepKey,
    EventLoopRunning,
    Fatal,
    FlowFailed,
    InvalidLink,
    InvalidTask,
    JournaledCallError,
    JournalMismatch,
    NestedStep,
    OpenBranches,
    OutsideScope,
    ResultMismatch,
    ResultTooLarge,
    Retry,
    RunCancelled,
    RunError,
    RunExpired,
    RunFailed,
    SpawnMismatch,
    StepFailed,
    StepInterrupted,
    UnrecordedTimeout,
    WaitTimedOut,
)
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.flow.flow import Flow
from flowfabric.sdk.flow.joins import Join, Node, all_done, quorum
from flowfabric.sdk.flow.run import FlowRun, NodeChange
from flowfabric.sdk.flow.sync import SyncFlow, SyncFlowRun
from flowfabric.sdk.journal.branches import Completed
from flowfabric.sdk.journal.scopes import StepInfo, current_step
from flowfabric.sdk.journal.steps import Step
from flowfabric.sdk.run import Run
from flowfabric.sdk.selecting import ManyChanged, RunFilter
from flowfabric.sdk.sync_run import SyncRun
from flowfabric.sdk.task import Call, Task
from flowfabric.sdk.worker import Worker

__all__ = [
    "AlreadyApplied",
    "Approval",
    "BudgetExceeded",
    "BudgetStatus",
    "Call",
    "CancellationPolicy",
    "Child",
    "ChildFailed",
    "Completed",
    "Context",
    "DuplicateStepKey",
    "EngineConfig",
    "EntryKind",
    "EntryState",
    "Event",
    "EventLoopRunning",
    "ExecutionSnapshot",
    "Explanation",
    "ExponentialBackoff",
    "Fabric",
    "Fatal",
    "FixedBackoff",
    "Flow",
    "FlowEnded",
    "FlowFabricError",
    "FlowFailed",
    "FlowRun",
    "FlowSnapshot",
    "FlowState",
    "Frame",
    "HardBreach",
    "Histogram",
    "IdempotencyConflict",
    "InvalidInput",
    "InvalidLink",
    "InvalidPayload",
    "InvalidTask",
    "InvalidToken",
    "Join",
    "JournalEntry",
    "JournalFull",
    "JournalMismatch",
    "JournaledCallError",
    "LogLine",
    "ManyChanged",
    "Message",
    "NestedStep",
    "NoReply",
    "Node",
    "NodeChange",
    "NotFound",
    "Ok",
    "OpenBranches",
    "OutcomeUnknown",
    "OutsideScope",
    "PublicState",
    "QuotaPolicy",
    "QuotaStatus",
    "ReceivedSignal",
    "ResultMismatch",
    "ResultTooLarge",
    "ResumeCause",
    "Retry",
    "RetryPolicy",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunError",
    "RunExpired",
    "RunFailed",
    "RunFilter",
    "SignalAccepted",
    "SignalDuplicate",
    "SignalEffect",
    "SoftBreach",
    "SpawnMismatch",
    "Spend",
    "Spending",
    "SpendingPage",
    "Statistic",
    "Statistics",
    "Step",
    "StepFailed",
    "StepInfo",
    "StepInterrupted",
    "StoreUnavailable",
    "SyncContext",
    "SyncFabric",
    "SyncFlow",
    "SyncFlowRun",
    "SyncMessage",
    "SyncRun",
    "SyncSpend",
    "TargetNotSignalable",
    "Task",
    "Token",
    "UnknownMailbox",
    "UnrecordedTimeout",
    "Wait",
    "WaitInfo",
    "WaitTimedOut",
    "WaitTimeout",
    "Waitpoint",
    "WaitpointClosed",
    "Worker",
    "all_done",
    "all_of",
    "any_of",
    "approval",
    "count",
    "current_step",
    "quorum",
    "signal",
]
