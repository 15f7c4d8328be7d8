"""Every error a caller can meet, as one tree.

```
FlowFabricError
  NotFound               the named thing does not exist (or is not visible to you)
  ValidationError        the request is wrong; nothing was changed; do not retry unchanged
    InvalidInput  InvalidCursor  CursorExpired  InvalidCapabilities  InvalidTagKey
    InvalidBlockingReason  InvalidBudgetScope  BudgetScopeMismatch  InvalidQuotaSpec
    InvalidDependency  ExecutionNotInFlow  InvalidWaitpointKey  InvalidPayload  InvalidToken
    SignalLimitExceeded  CapabilityMismatch  PayloadTooLarge  FenceRequired  PartialFence
    HandleFromOtherBackend  Corruption  RetentionLimitExceeded  PatchDepthExceeded  JournalFull
    InvalidSchedule  UnknownMailbox
    MalformedJson  MalformedRequest  MethodNotAllowed  NotAcceptable  UnsupportedMediaType
    UriTooLong  HeadersTooLarge  RevisionRequired  IdempotencyKeyRequired  NotRemote
  AccessError            the caller may not do this; another token may
    Unauthorized  MissingScope  MissingNamespace  CrossSiteRequest  MisdirectedRequest
  ContentionError        another was first, or the moment is wrong; re-read and retry
    ExecutionNotActive  ExecutionNotLeaseable  ExecutionNotEligible  LeaseConflict
    InvalidClaimGrant  ClaimGrantExpired  UseClaimResumedExecution  NotAResumedExecution
    StaleGraphRevision  StaleSummaryVersion  RevisionMismatch  CountChanged
    RetryExhausted  ResourceExhausted
  BusyError              a server has no room for it now; nothing was changed, try again later
    RateLimited  TooManyWaits  TooManyStreams  Overloaded  Draining
  ConflictError          it contradicts what is already recorded; do not retry
    IdempotencyConflict  LimitConflict  SuspendConflict  RotationConflict  FlowConflict
    WaitpointAlreadyExists  CycleDetected  SelfReferencingEdge  DependencyAlreadyExists
    AlreadyInOtherFlow  ScheduleConflict  UniqueConflict  ClaimIdReused
  StateError             life has moved on; do not retry
    StaleLease  LeaseExpired  LeaseRevoked  ExecutionNotTerminal  MaxReplaysExhausted
    GrantAlreadyExists  LaneClosed  LineNotHeld  PlaceInUse  FlowAlreadyTerminal  DeliveryExpired
    ChildrenNotEnded
    UndosNotRun
    DependencyGroupDecided  DependentNotRunnable  EdgeInForce  EdgeNotInForce
    AlreadySuspended  ExecutionNotSuspended  TargetNotSignalable  WaitpointClosed
    WaitpointNotPending  WaitpointInUse  WaitpointOfOtherAttempt  PendingWaitpointExpired
    WaitCycle  NothingToAsk  AskOver  MailboxEmpty  NoReply
  StoreError             the storage, not the request
    StoreUnavailable       nothing was written; retrying is safe
    OutcomeUnknown         it may have been written; repeat it with the same fence or key
    SchemaMismatch         the database and this program disagree; the text says what to do
    ConfigurationMismatch  the database and the configuration disagree
    StoreReplaced          the file was moved, deleted or replaced under a running program
    StoreCorrupt           the database is damaged; a retry cannot help
    KeyringEmpty           no key is installed that could sign
  ForkedProcess          opened by the parent of this process; open it anew here
  WaitTimeout            the caller stopped waiting; the work itself goes on
```
Inside the kernel a refusal is a value; the engine turns it into one of these at the edge.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar


class FlowFabricError(Exception):
    """Something FlowFabric refused or could not do."""

    code: ClassVar[str] = "error"  # the name of the class in lower case, unless it gives another
    retryable: ClassVar[bool] = False
    status: ClassVar[int] = 500

    def __init_subclass__(cls) -> None:
        if "code" not in cls.__dict__:
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, detail: str = "", **fields: Any) -> None:
        self.detail = detail
        self.fields = fields
        super().__init__(detail)

    @property
    def advice(self) -> str:
        """The advice of the class: the first line of its docstring."""
        return (type(self).__doc__ or "").strip().splitlines()[0]

    def __str__(self) -> str:
        """The code, the problem, and the advice.

        >>> str(InvalidInput("lane_id: expected text, got int"))
        'invalid_input: lane_id: expected text, got int. Correct the named argument; nothing was ...
        """
        if not self.detail:
            return f"{self.code}: {self.advice}"
        stop = "" if self.detail.endswith((".", "?", "!")) else "."
        return f"{self.code}: {self.detail}{stop} {self.advice}"

    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and isinstance(other, FlowFabricError)
            and (self.detail, self.fields) == (other.detail, other.fields)
        )

    def __hash__(self) -> int:
        return hash((type(self), self.detail))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.detail, self.fields))

    def as_dict(self) -> dict[str, Any]:
        """The error as plain data: for `--json` and the HTTP body."""
        body = {"code": self.code, "detail": str(self), "retryable": self.retryable}
        return {**body, **self.fields}


def _rebuild(kind: type[FlowFabricError], detail: str, fields: dict[str, Any]) -> FlowFabricError:
    return kind(detail, **fields)


class NotFound(FlowFabricError):
    """No such thing. Check the id; finished work is removed when its retention ends."""

    status = 404


class ValidationError(FlowFabricError):
    """The request is wrong. Correct the named field; nothing was changed."""

    status = 422


class InvalidInput(ValidationError):
    """Correct the named argument; nothing was changed."""


class InvalidCursor(ValidationError):
    """Hand back a `next_cursor` of this very listing, or none to begin anew."""

    status = 400


class CursorExpired(ValidationError):
    """Events behind this cursor are no longer kept. Begin anew, without a cursor for the oldest."""

    status = 410


class InvalidCapabilities(ValidationError):
    """A capability list is malformed or too large."""


class InvalidTagKey(ValidationError):
    """A tag key must look like `team.name`: lowercase words with at least one dot."""


class InvalidBlockingReason(ValidationError):
    """That is not a reason an execution can be blocked for."""


class ExecutionNotInFlow(ValidationError):
    """Both ends of an edge must be members of the flow. Add the execution first."""


class InvalidBudgetScope(ValidationError):
    """A budget's `scope_id` names what the budget is for; a free budget has none."""


class BudgetScopeMismatch(ValidationError):
    """The budget is for something else; attach one with a scope that fits, or a free one."""


class InvalidQuotaSpec(ValidationError):
    """A quota that cannot work; the detail says which number is wrong."""


class InvalidWaitpointKey(ValidationError):
    """The waitpoint was made under another key; refer to it by that."""


class InvalidDependency(ValidationError):
    """There is no such edge between these two. Check the ids, or stage the edge first."""


class InvalidPayload(ValidationError):
    """The payload is not what its waiter declared; the wait goes on."""


class SignalLimitExceeded(ValidationError):
    """The execution has had as many signals, or bytes of them, as its limit allows."""


class UnknownMailbox(ValidationError):
    """Name a mailbox that the task declares: `@ff.task(mailboxes={…})`, when the run was made."""


class InvalidToken(ValidationError):
    """The token does not open this waitpoint. It says no more on purpose."""

    status = 401


class CapabilityMismatch(ValidationError):
    """This worker lacks capabilities the execution needs; the detail lists them."""


class PayloadTooLarge(ValidationError):
    """The payload is over the limit. Store it elsewhere and pass a reference."""

    status = 413


class RetentionLimitExceeded(ValidationError):
    """A frame, a summary or a log line is over its limit. Send less, or several frames."""

    status = 413


class PatchDepthExceeded(ValidationError):
    """A summary nests too deep. Keep it flat."""


class FenceRequired(ValidationError):
    """This change needs the lease's fence, or an explicit operator source."""


class PartialFence(ValidationError):
    """A fence is lease_id, lease_epoch and attempt_id: give all three or none."""

    code = "partial_fence_triple"


class HandleFromOtherBackend(ValidationError):
    """This handle was issued by another kind of store."""


class JournalFull(ValidationError):
    """The journal of this execution is full. Let it go on by `ctx.continue_as_new`."""

    status = 409


class InvalidSchedule(ValidationError):
    """Correct the named part of the schedule; nothing was changed."""


class Corruption(ValidationError):
    """A stored record cannot be read. Run `ff doctor`; other work is not affected."""

    status = 500


class MalformedJson(ValidationError):
    """The body is no JSON in UTF-8. Correct it where the detail says."""

    status = 400


class MalformedRequest(ValidationError):
    """The path, the query or the body is encoded wrongly. Correct what the detail names."""

    status = 400


class MethodNotAllowed(ValidationError):
    """This path takes other methods: those of the `Allow` header."""

    status = 405


class NotAcceptable(ValidationError):
    """None of the media types asked for can be answered. Ask for `application/json`."""

    status = 406


class UnsupportedMediaType(ValidationError):
    """The body has another media type than is read here. Send `application/json`."""

    status = 415


class UriTooLong(ValidationError):
    """The path or the query is over its limit. Send what is long in the body."""

    status = 414


class HeadersTooLarge(ValidationError):
    """The headers are over their limit. Send fewer or shorter ones."""

    status = 431


class RevisionRequired(ValidationError):
    """This change needs the `If-Match` header. Give the `ETag` that the last read answered."""

    code, status = "if_match_required", 428


class IdempotencyKeyRequired(ValidationError):
    """This call needs an idempotency key, so that repeating it is safe. Choose a random one."""

    status = 428


class NotRemote(ValidationError):
    """This works beside the store only. Open it by the URL of the store, not of a server."""


# --- the caller ----------------------------------------------------------------------------------


class AccessError(FlowFabricError):
    """The caller may not do this."""

    code, status = "access", 403


class Unauthorized(AccessError):
    """No valid token was given; `ff token new` makes one. It says no more on purpose."""

    status = 401


class MissingScope(AccessError):
    """The token lacks the named scope. Use one that has it; `ff token new --scope` makes one."""


class MissingNamespace(AccessError):
    """The token is not for this namespace. Name one of its own, or use another token."""


class CrossSiteRequest(AccessError):
    """A change by cookie must come from the dashboard's own pages. Programs use a token."""


class MisdirectedRequest(AccessError):
    """The server is not known by the name in `Host`. Use another, or add it to `allowed_hosts`."""

    status = 421


# --- another call was first --------------------------------------------------------------------


class ContentionError(FlowFabricError):
    """The moment is wrong. Read the state again and retry."""

    code, retryable, status = "contention", True, 409


class ExecutionNotActive(ContentionError):
    """The execution is not running. The fields show its state, so a repeated call can tell."""


class ExecutionNotLeaseable(ContentionError):
    """The execution cannot be leased in its current state."""


class ExecutionNotEligible(ContentionError):
    """The execution is not in a state that allows this; it changed or is not waiting."""


class LeaseConflict(ContentionError):
    """Another worker holds the lease. Pick other work."""


class InvalidClaimGrant(ContentionError):
    """There is no such grant for this worker. Ask for a new one."""


class ClaimGrantExpired(ContentionError):
    """The grant has expired. Ask for a new one."""


class UseClaimResumedExecution(ContentionError):
    """The attempt was interrupted and continues: use claim_resumed_execution."""


class NotAResumedExecution(ContentionError):
    """No interrupted attempt waits here: use claim_execution."""


class StaleGraphRevision(ContentionError):
    """The graph changed since you looked. Read the flow again and use its revision."""

    status = 412


class StaleSummaryVersion(ContentionError):
    """The summary changed since you looked. Read it again and use its version."""


class RevisionMismatch(ContentionError):
    """It was changed since you looked. Read it again and give the `revision` it has now."""

    status = 412


class CountChanged(ContentionError):
    """More or fewer fit now than were counted. Count them again, and confirm that number."""


class ResourceExhausted(ContentionError):
    """Too many calls wait already. Try again after `retry_after_ms`."""

    status = 429


class RetryExhausted(ContentionError):
    """The store stayed too contended for every retry. Nothing was written; try again later."""

    status = 503


# --- no room for it now --------------------------------------------------------------------------


class BusyError(FlowFabricError):
    """The server has no room for this now. Nothing was changed; try again later."""

    code, retryable, status = "busy", True, 503


class RateLimited(BusyError):
    """Too many calls in a short time. Try again after `retry_after_ms`."""

    status = 429


class TooManyWaits(BusyError):
    """Too many calls wait already. Try again after `retry_after_ms`, or ask without a wait."""

    status = 429


class TooManyStreams(BusyError):
    """Too many streams are open already. Close some, or try again after `retry_after_ms`."""

    status = 429


class Overloaded(BusyError):
    """The server has more to do than it can. Try again after `retry_after_ms`."""


class Draining(BusyError):
    """The server is about to stop. Repeat the call; another one answers it."""


# --- contradicts the record --------------------------------------------------------------------


class ConflictError(FlowFabricError):
    """This contradicts what is already recorded."""

    code, status = "conflict", 409


class LimitConflict(ConflictError):
    """The budget or quota exists with other content; change it by an update."""


class WaitpointAlreadyExists(ConflictError):
    """A waitpoint of this id exists. Ask again: each call chooses a new id."""

    retryable = True


class SuspendConflict(ConflictError):
    """The key was used for another suspension. Use another key or the same content."""


class RotationConflict(ConflictError):
    """A signing key of this name has another secret. Choose another name."""


class IdempotencyConflict(ConflictError):
    """The idempotency key was used with other content. Use another key or the same content."""


class UniqueConflict(ConflictError):
    """Another execution has the unique key (`execution_id`). Wait for it, or replace it."""


class FlowConflict(ConflictError):
    """A flow of this id exists with other content. Choose another id."""


class CycleDetected(ConflictError):
    """The edge would let an execution wait for itself. The detail names it."""


class SelfReferencingEdge(ConflictError):
    """An execution cannot depend on itself."""


class DependencyAlreadyExists(ConflictError):
    """An edge of this id exists; the fields tell what it joins. Choose another id."""


class AlreadyInOtherFlow(ConflictError):
    """An execution belongs to one flow for ever, and this one has another."""

    code = "already_member_of_different_flow"


class ScheduleConflict(ConflictError):
    """Another schedule has this name. Choose another name, or update that one."""


class ClaimIdReused(ConflictError):
    """The `claim_id` was used by another worker or for another claim. Choose one for each claim."""


# --- life has moved on -------------------------------------------------------------------------


class StateError(FlowFabricError):
    """The execution has moved on; the same call cannot succeed."""

    code, status = "state_conflict", 409


class ChildrenNotEnded(StateError):
    """Children of this execution have not ended. Gather them first."""


class UndosNotRun(StateError):
    """Undos of this execution are registered. Let them run by `ctx.undo_now`, or end it."""


class StaleLease(StateError):
    """Another lease owns this execution now. Drop the result; do not retry."""


class LeaseExpired(StateError):
    """Your lease ended before this call. Drop the result; the work is run again."""


class LeaseRevoked(StateError):
    """An operator revoked your lease. Stop the work."""


class ExecutionNotTerminal(StateError):
    """The execution has not ended, and this is only for one that has."""


class MaxReplaysExhausted(StateError):
    """The execution was replayed as often as its policy allows."""


class FlowAlreadyTerminal(StateError):
    """The flow has ended and takes nothing more; `reopen=True` adds to one that finished."""


class DependencyGroupDecided(StateError):
    """What the execution waits for has been decided; no more upstreams can be added."""


class DependentNotRunnable(StateError):
    """The execution that would wait runs or has ended already."""


class EdgeInForce(StateError):
    """The edge was applied; only a staged one can be withdrawn."""


class EdgeNotInForce(StateError):
    """The edge was staged and never applied. Apply it first."""


class AlreadySuspended(StateError):
    """The execution waits already; resume it or let it be signalled first."""


class ExecutionNotSuspended(StateError):
    """The execution does not wait for anything that could be ended."""


class WaitpointClosed(StateError):
    """The waitpoint accepts no more signals: its wait has ended."""


class WaitpointNotPending(StateError):
    """The waitpoint is closed, or waited on already. Make a new one to wait on."""


class NothingToAsk(StateError):
    """The budget has room for it, asks nothing, or its answer is being told. Reserve again."""


class AskOver(StateError):
    """The budget's question was answered in another way, or needs no answer any more."""


class WaitCycle(StateError):
    """Executions would wait for each other, for ever. Let one of them not wait."""


class WaitpointInUse(StateError):
    """An execution waits on this waitpoint. Resume or cancel the execution instead."""


class WaitpointOfOtherAttempt(StateError):
    """An earlier attempt made this waitpoint. Make a new one to wait on."""


class PendingWaitpointExpired(StateError):
    """The waitpoint expired before it was waited on. Make a new one."""


class TargetNotSignalable(StateError):
    """The execution has ended; a signal comes too late."""


class MailboxEmpty(StateError):
    """No message is unread. Listen, wait for the signal, and receive again."""


class NoReply(StateError):
    """The run has ended without an answer to this message; there will be none."""


class GrantAlreadyExists(StateError):
    """A live grant for this execution exists already."""


class LineNotHeld(StateError):
    """No failed head holds up the line. There is nothing to release."""


class LaneClosed(StateError):
    """The lane is closed for this. Use another, or resume it.

    A paused or disabled one hands out no work, a draining or disabled one accepts none.
    """


class DeliveryExpired(StateError):
    """It was not acknowledged in time, or was acknowledged before. Read the group again."""


class PlaceInUse(StateError):
    """The execution runs in this slot. Cancel it or revoke its lease, which frees the slot."""


# --- the storage -------------------------------------------------------------------------------


class StoreError(FlowFabricError):
    """The store failed."""

    status = 500


class KeyringEmpty(StoreError):
    """No signing key is installed. Start an engine once, or seed one."""

    status = 503


class StoreUnavailable(StoreError):
    """The store cannot be reached. Nothing was written; retrying is safe."""

    retryable, status = True, 503


class OutcomeUnknown(StoreError):
    """The connection broke during the commit. Repeat the same call with the same fence or key."""

    retryable, status = True, 503


class SchemaMismatch(StoreError):
    """The database schema and this version of FlowFabric disagree."""


class ConfigurationMismatch(StoreError):
    """The database was made with another setting. Correct the one that the detail names."""


class StoreReplaced(StoreError):
    """The database file was moved, deleted or replaced. Put it back, or start everything again."""

    status = 503


class StoreCorrupt(StoreError):
    """The database is damaged. Stop every process that uses it and restore a backup."""

    status = 500


class ForkedProcess(FlowFabricError):
    """It was opened before this process was forked. Open another here; a Fabric does so itself."""


class WaitTimeout(FlowFabricError):
    """The wait is over but the execution is not. Ask again later."""

    code, retryable, status = "timeout", True, 202

    @property
    def explanation(self) -> str:
        """Why it has not ended, as `ff why` says it; empty when that is not known."""
        return str(self.fields.get("explanation", ""))
