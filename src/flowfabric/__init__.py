"""FlowFabric: durable execution. Work is claimed under a lease, retried by policy, never lost."""

from flowfabric.config import EngineConfig
from flowfabric.errors import (
    FlowFabricError,
    IdempotencyConflict,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
    WaitTimeout,
)
from flowfabric.model.policy import ExponentialBackoff, FixedBackoff, RetryPolicy
from flowfabric.model.results import ExecutionSnapshot, Explanation
from flowfabric.model.state import PublicState
from flowfabric.sdk.blocking import SyncFabric, SyncRun
from flowfabric.sdk.context import Context, SyncContext
from flowfabric.sdk.errors import (
    Fatal,
    InvalidTask,
    ResultMismatch,
    Retry,
    RunCancelled,
    RunError,
    RunExpired,
    RunFailed,
)
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.run import Run
from flowfabric.sdk.task import Call, Task
from flowfabric.sdk.worker import Worker

__all__ = [
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
    "IdempotencyConflict",
    "InvalidInput",
    "InvalidTask",
    "NotFound",
    "OutcomeUnknown",
    "PublicState",
    "ResultMismatch",
    "Retry",
    "RetryPolicy",
    "Run",
    "RunCancelled",
    "RunError",
    "RunExpired",
    "RunFailed",
    "StoreUnavailable",
    "SyncContext",
    "SyncFabric",
    "SyncRun",
    "Task",
    "WaitTimeout",
    "Worker",
]
