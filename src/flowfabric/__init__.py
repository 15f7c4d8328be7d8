"""FlowFabric: durable execution. Work is claimed under a lease, retried by policy, never lost."""

from flowfabric.config import EngineConfig
from flowfabric.engine.wait_reading import WaitInfo
from flowfabric.errors import (
    FlowFabricError,
    IdempotencyConflict,
    InvalidInput,
    InvalidPayload,
    InvalidToken,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
    TargetNotSignalable,
    WaitpointClosed,
    WaitTimeout,
)
from flowfabric.model.budget import AlreadyApplied, BudgetStatus, HardBreach, Ok, SoftBreach
from flowfabric.model.policy import ExponentialBackoff, FixedBackoff, RetryPolicy
from flowfabric.model.quota import QuotaPolicy, QuotaStatus
from flowfabric.model.results import ExecutionSnapshot, Explanation
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import (
    ResumeCause,
    SignalAccepted,
    SignalDuplicate,
    SignalEffect,
    Token,
)
from flowfabric.sdk.blocking import SyncFabric, SyncRun
from flowfabric.sdk.conditions import Wait, all_of, any_of, approval, count, signal
from flowfabric.sdk.context import Context, SyncContext
from flowfabric.sdk.errors import (
    BudgetExceeded,
    Fatal,
    InvalidLink,
    InvalidTask,
    ResultMismatch,
    Retry,
    RunCancelled,
    RunError,
    RunExpired,
    RunFailed,
)
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.received import ReceivedSignal, Waitpoint
from flowfabric.sdk.run import Run
from flowfabric.sdk.spending import Spend, SyncSpend
from flowfabric.sdk.task import Call, Task
from flowfabric.sdk.worker import Worker

__all__ = [
    "AlreadyApplied",
    "BudgetExceeded",
    "BudgetStatus",
    "Call",
    "Context",
    "EngineConfig",
    "ExecutionSnapshot",
    "Explanation",
    "ExponentialBackoff",
    "Fabric",
    "Fatal",
    "FixedBackoff",
    "FlowFabricError",
    "HardBreach",
    "IdempotencyConflict",
    "InvalidInput",
    "InvalidLink",
    "InvalidPayload",
    "InvalidTask",
    "InvalidToken",
    "NotFound",
    "Ok",
    "OutcomeUnknown",
    "PublicState",
    "QuotaPolicy",
    "QuotaStatus",
    "ReceivedSignal",
    "ResultMismatch",
    "ResumeCause",
    "Retry",
    "RetryPolicy",
    "Run",
    "RunCancelled",
    "RunError",
    "RunExpired",
    "RunFailed",
    "SignalAccepted",
    "SignalDuplicate",
    "SignalEffect",
    "SoftBreach",
    "Spend",
    "StoreUnavailable",
    "SyncContext",
    "SyncFabric",
    "SyncRun",
    "SyncSpend",
    "TargetNotSignalable",
    "Task",
    "Token",
    "Wait",
    "WaitInfo",
    "WaitTimeout",
    "Waitpoint",
    "WaitpointClosed",
    "Worker",
    "all_of",
    "any_of",
    "approval",
    "count",
    "signal",
]
