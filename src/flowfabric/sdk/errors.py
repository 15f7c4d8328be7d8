"""What a program that submits or runs tasks can meet, besides the engine's own errors.

```
FlowFabricError
  RunError               the run ended without a result; `.reason` says why
    RunFailed  RunCancelled  RunExpired
    ChildFailed          raised inside a handler by `ctx.gather`: a child ended without a result
  FlowFailed             the flow ended without all the results it was for; `.failures` says why
  ResultMismatch         the run succeeded, but its result is not of the annotated type
  InvalidTask            the function cannot be a task; the detail says what to change
  InvalidLink            the text is not a complete link of a waitpoint
  EventLoopRunning       `ff.sync` was called where an event loop runs; await what the detail says
  BudgetExceeded         raised inside a handler: the budget has no room for what it wants to spend

Exception
  Retry  Fatal           raised by a handler to say what its failure means

BaseException            so that a handler's `except Exception` does not swallow them
  Parked                 raised by `ctx.delay`: the attempt goes on later
  Suspension             raised by `ctx.suspend` and `ctx.gather`: the attempt goes on when its wait
                         has ended
  JournalMismatch        the code does not fit what is recorded: the worker holds the execution
    SpawnMismatch        it spawned something else than the last time
  Stopped                raised by `ctx.raise_if_cancelled`: the work is no longer this handler's
```
"""

from __future__ import annotations

from traceback import format_exception_only
from typing import Any, ClassVar, Final

from flowfabric.errors import FlowFabricError, InvalidInput
from flowfabric.limits import RETRY_DELAY_MS_MAX
from flowfabric.model.journal import JournalEntry
from flowfabric.model.shown import shown, shown_length
from flowfabric.model.state import PublicState
from flowfabric.sdk.durations import Duration, Moment, to_ms

_REASON_LENGTH: Final = 1_000  # of a reason that is no text


class RunError(FlowFabricError):
    """The run ended without a result."""

    code, status = "run_error", 409

    @property
    def execution_id(self) -> str:
        """Which run it was."""
        return str(self.fields.get("execution_id", ""))

    @property
    def reason(self) -> str:
        """Why it ended: the first line for people, a traceback below it where there is one."""
        return str(self.fields.get("reason", ""))

    @property
    def category(self) -> str | None:
        """The kind of failure: mostly the name of the exception's class."""
        category = self.fields.get("category")
        return None if category is None else str(category)


class RunFailed(RunError):
    """Every attempt the policy allows has failed. `reason` holds the last failure."""

    code = "run_failed"


class RunCancelled(RunError):
    """The run was cancelled. `reason` is the text given with the cancel."""

    code = "run_cancelled"


class RunExpired(RunError):
    """The run reached its deadline, or its last attempt ran out of time."""

    code = "run_expired"


class ChildFailed(RunError):
    """A child ended without a result. Catch it, or let it fail the parent.

    Raised in a handler by `ctx.gather`. Uncaught it fails the run without a retry unless `retry_on`
    names it: the handler would find the same child again.
    """

    code = "child_failed"

    @property
    def state(self) -> PublicState:
        """How the child ended."""
        return PublicState(self.fields.get("state", PublicState.FAILED))


class FlowFailed(FlowFabricError):
    """The flow ended without the results it was for. `failures` names the nodes and why.

    A node that failed or was cancelled is not among them if an `any_of` or a `quorum` did without
    it.
    """

    code, status = "flow_failed", 409

    @property
    def flow_id(self) -> str:
        """Which flow it was."""
        return str(self.fields.get("flow_id", ""))

    @property
    def failures(self) -> dict[str, str]:
        """The nodes that ended without a result, with state and reason; causes come first."""
        return dict(self.fields.get("failures", {}))


class StepFailed(FlowFabricError):
    """A step of this run failed for good. Catch it, or let it fail the attempt.

    Raised in a handler, in its first run and in every later one alike. One that ends the attempt is
    tried again by the next attempt; one that the handler catches is history. `except` clauses match
    this class, and those a step names in `raises=`; `is_a` asks for the original one.
    """

    code, status = "step_failed", 409

    @property
    def step(self) -> str:
        """The key of the step."""
        return str(self.fields.get("step", ""))

    @property
    def category(self) -> str:
        """The name of the exception's class; `timeout` for a try that took too long."""
        return str(self.fields.get("category", ""))

    @property
    def reason(self) -> str:
        """The exception in a line, and below it where it was raised."""
        return str(self.fields.get("reason", ""))

    @property
    def names(self) -> tuple[str, ...]:
        """The class of the exception and its ancestors, by name."""
        return tuple(self.fields.get("names", ()))

    @property
    def is_permanent(self) -> bool:
        """Whether another attempt would fail in the same way."""
        return bool(self.fields.get("is_permanent", False))

    def is_a(self, kind: type[BaseException]) -> bool:
        """Whether the original exception was of this class."""
        return kind.__name__ in self.names


class ResultTooLarge(StepFailed):
    """The result of a step is too large. Store it elsewhere and return its address."""

    code = "result_too_large"


class StepInterrupted(StepFailed):
    """A step that may run once was begun, and how it ended is not known. Find out, and decide.

    Raised in a handler by a step with `once=True`, in this run and in every later one. The effect
    of the step may or may not be there. `on_interrupted="ask"` asks people instead.
    """

    code = "step_interrupted"


class WaitTimedOut(FlowFabricError):
    """A wait ended without what it was for. Catch it, or give the wait a `default`.

    Raised in a handler by `ctx.wait_for`, `ctx.wait` and `ctx.approval`. One that ends the attempt
    is waited for again by the next attempt; one that the handler catches is history.
    """

    code, status = "wait_timed_out", 409

    @property
    def key(self) -> str:
        """The key of the wait in the journal."""
        return str(self.fields.get("key", ""))


class JournaledCallError(FlowFabricError):
    """The call cannot be recorded as it is written. Correct the code of the handler."""

    code, status = "journaled_call_error", 500


class UnrecordedTimeout(JournaledCallError):
    """The handler itself cut a wait off. Give the wait a timeout of its own, which is recorded."""

    code = "unrecorded_timeout"


class OutsideScope(JournaledCallError):
    """The call is made where its order depends on chance. Give it a scope or a key of its own."""

    code = "outside_scope"


class NestedStep(JournaledCallError):
    """A step cannot call another one: record the two one after the other, from the handler."""

    code = "nested_step"


class DuplicateStepKey(JournaledCallError):
    """Two calls of one scope have the same key. Give each its own."""

    code = "duplicate_step_key"


class OpenBranches(JournaledCallError):
    """Branches of the handler still run. Gather them before it continues as new."""

    code = "open_branches"


class ResultMismatch(FlowFabricError):
    """The result is not of the type the task is annotated with. Correct one of the two."""

    code, status = "result_mismatch", 500


class InvalidTask(InvalidInput):
    """The function cannot be a task as it stands."""

    code = "invalid_task"


class InvalidLink(InvalidInput):
    """That is not a link of a waitpoint. Copy it whole; it says no more on purpose."""

    code = "invalid_link"


class EventLoopRunning(FlowFabricError):
    """`ff.sync` would block the event loop that runs here. Await the fabric's own method."""

    code, status = "event_loop_running", 409


class BudgetExceeded(FlowFabricError):
    """The budget has no room for this. Spend less, or let it fail the run.

    Raised in a handler by `ctx.spend`; nothing is reserved then. Uncaught it fails the run with the
    category `budget_exceeded`, without a retry unless `retry_on` names it.
    """

    code, status = "budget_exceeded", 409

    @property
    def budget(self) -> str:
        """Which budget it was."""
        return str(self.fields.get("budget", ""))

    @property
    def dimension(self) -> str:
        """The first dimension by name that would be over its limit."""
        return str(self.fields.get("dimension", ""))

    @property
    def current_usage(self) -> int:
        """The amount used and reserved of it before."""
        return int(self.fields.get("current_usage", 0))

    @property
    def hard_limit(self) -> int:
        """The limit."""
        return int(self.fields.get("hard_limit", 0))


class Retry(Exception):
    """Raise in a handler: this attempt failed, another one may succeed.

    `after` replaces the policy's pause before the next attempt, up to a week. The retries that the
    task allows still bound how often. `reason` may be the exception that was caught.

    >>> raise Retry(after="30s", reason="rate limited")
    Traceback (most recent call last):
    flowfabric.sdk.errors.Retry: rate limited
    """

    def __init__(self, *, after: Duration | None = None, reason: str | BaseException = "") -> None:
        self.reason = _text(reason)
        super().__init__(self.reason or "retry")
        self.after_ms = None if after is None else to_ms(after, field="after")
        if self.after_ms is not None and self.after_ms > RETRY_DELAY_MS_MAX:
            most = shown_length(RETRY_DELAY_MS_MAX)
            raise InvalidInput(f"after: {shown(after)} is above {most}", field="after")


class Fatal(Exception):
    """Raise in a handler: no further attempt can succeed, whatever the policy allows.

    The reason may be the exception that was caught.

    >>> raise Fatal("the account is closed")
    Traceback (most recent call last):
    flowfabric.sdk.errors.Fatal: the account is closed
    """

    def __init__(self, reason: str | BaseException = "") -> None:
        self.reason = _text(reason)
        super().__init__(self.reason or "fatal")


def _text(reason: object) -> str:
    """The reason a handler gave. Whatever its type, the failure must still be reported."""
    if isinstance(reason, str):
        return reason
    if isinstance(reason, BaseException):
        return "".join(format_exception_only(reason)).strip()
    return "" if reason is None else shown(reason, _REASON_LENGTH)


class Parked(BaseException):
    """The handler asked to go on later. Let it pass: the worker catches it."""

    def __init__(self, until: Moment) -> None:
        super().__init__(until)
        self.until = until


class Suspension(BaseException):
    """The execution waits. Let it pass: the handler is called again when the wait has ended."""


class JournalMismatch(BaseException):
    """The code does not fit what is recorded. Let it pass: the worker holds the execution, and an
    operator decides."""

    code: ClassVar[str] = "journal_mismatch"  # the category of a run that fails by it

    def __init__(self, detail: str, **fields: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fields = fields
        # Of a call with other arguments: its entry, and the arguments now, as far as they are short
        # and no secret.
        self.recorded: JournalEntry | None = None
        self.given: bytes | None = None


class SpawnMismatch(JournalMismatch):
    """The handler spawned something else than the last time it came here.

    A handler that spawns is called again from the top and must then spawn the same in the same
    order. Decide by its arguments and by results of children, not by time or chance.
    """

    code: ClassVar[str] = "spawn_mismatch"


class Stopped(BaseException):
    """The execution is no longer this handler's. Let it pass: the worker catches it."""
