"""A handler's view of its execution, and its calls.

An async task gets a `Context`, a sync task a `SyncContext` with methods that block its thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from flowfabric.api.budgets import Usage
from flowfabric.model.budget import UsageOutcome
from flowfabric.model.handle import HandleKind
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import ResumeCause
from flowfabric.sdk.context.children import Family, Parent, Spawning, SyncSpawning
from flowfabric.sdk.context.conditions import ANYTHING, Waitable
from flowfabric.sdk.context.emitting import Emitter, Emitting, SyncEmitting
from flowfabric.sdk.context.journaling import Journaling, SyncJournaling
from flowfabric.sdk.context.later import SyncRacing
from flowfabric.sdk.context.mail import Receiving, SyncReceiving
from flowfabric.sdk.context.received import Ended, ReceivedSignal, Waitpoint
from flowfabric.sdk.context.spending import HOLD_FOR, Spend, SyncSpend, report_usage
from flowfabric.sdk.context.suspending import EXPIRES, Suspend, Suspender, begin, new_waitpoint
from flowfabric.sdk.context.undoing import SyncUndoing, Undoing
from flowfabric.sdk.context.waiting import SyncWaiting, Waiting
from flowfabric.sdk.durations import Duration, Moment, to_datetime, to_ms
from flowfabric.sdk.errors import Parked, Stopped, Suspension
from flowfabric.sdk.journal.journal import Owner as JournalOwner
from flowfabric.sdk.scheduled import ScheduledTick, tick_of

_LOGGER = logging.getLogger("flowfabric.task")


class Owner(Suspender, Parent, Emitter, JournalOwner, Protocol):
    """The methods a context needs of the worker that runs it."""

    @property
    def ended_wait(self) -> Ended | None:
        """How the last wait of this attempt ended, if there was one."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether the lease is lost."""
        ...

    @property
    def is_suspended(self) -> bool:
        """Whether the handler itself has let go of the lease, to wait."""
        ...

    async def report_progress(self, percent: int | None, message: str | None) -> None:
        """Record progress."""
        ...

    async def is_past(self, until: datetime) -> bool:
        """Whether the store's clock has reached an instant."""
        ...

    def wait_stopped(self, timeout_s: float | None) -> bool:
        """Block a thread until the lease is lost or the time is over."""
        ...


class ExecutionFacts:
    """The facts every handler may read."""

    __slots__ = ("_claimed", "_ended", "_family", "_owner")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._family = Family(owner)
        self._claimed: Claimed = owner.claimed
        self._ended = owner.ended_wait

    @property
    def execution_id(self) -> str:
        """The id of the run."""
        return self._claimed.execution_id

    @property
    def kind(self) -> str:
        """The name of the task."""
        return self._claimed.execution_kind

    @property
    def lane(self) -> str:
        """The lane it waited on."""
        return self._claimed.lane_id

    @property
    def namespace(self) -> str:
        """The tenant it belongs to."""
        return self._claimed.namespace

    @property
    def tags(self) -> Mapping[str, str]:
        """The labels given at submit."""
        return self._claimed.tags

    @property
    def schedule(self) -> ScheduledTick | None:
        """The tick of the schedule that has started this run; none if no schedule did. Work for its
        `tick`, not for the present time: the run may be late, caught up or backfilled."""
        return tick_of(self._claimed.tags)

    @property
    def key(self) -> str | None:
        """The idempotency key given at submit."""
        return self._claimed.idempotency_key

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._claimed.attempt_index + 1

    @property
    def attempt_index(self) -> int:
        """Which attempt this is, from 0, as the engine counts."""
        return self._claimed.attempt_index

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt: hand it to services that must act once per execution."""
        return self._claimed.execution_id

    @property
    def attempt_key(self) -> str:
        """Another one on each attempt: for effects that must happen again on a retry."""
        return f"{self._claimed.execution_id}/{self._claimed.attempt_index}"

    @property
    def created_at(self) -> datetime:
        """When it was submitted."""
        return to_datetime(self._claimed.created_at)

    @property
    def deadline(self) -> datetime | None:
        """When it expires, finished or not."""
        deadline_at = self._claimed.deadline_at
        return None if deadline_at is None else to_datetime(deadline_at)

    @property
    def is_resumed(self) -> bool:
        """Whether this attempt was interrupted and continues, again from the top.

        It paused itself with `delay`, suspended itself, or its worker was drained while it ran.
        """
        return self._claimed.handle.kind is HandleKind.RESUMED

    @property
    def resumed(self) -> bool:
        """Whether a wait of this attempt has ended: `signals` holds its signals."""
        return self._ended is not None

    @property
    def signals(self) -> tuple[ReceivedSignal, ...]:
        """The signals that ended the last wait of this attempt, in the order they came."""
        return () if self._ended is None else self._ended.signals

    @property
    def resume_cause(self) -> ResumeCause | None:
        """The cause of the last wait's end: a signal, an operator, or its timeout."""
        return None if self._ended is None else self._ended.cause

    @property
    def resumed_by(self) -> str | None:
        """The person or program that ended the last wait."""
        return None if self._ended is None else self._ended.actor

    @property
    def continuation(self) -> str | None:
        """The text given to the last `suspend`: where to continue, after one of several waits."""
        return None if self._ended is None else self._ended.continuation

    @property
    def cancelled(self) -> bool:
        """Whether the execution was cancelled or its lease lost: anything the handler still does
        will not count."""
        return self._owner.is_stopped

    @property
    def is_leaving(self) -> bool:
        """Whether the handler ends because it waits, in a `finally` block or a context manager:
        what is made again when it is called again need not be undone."""
        return self._owner.is_suspended

    def raise_if_cancelled(self) -> None:
        """End the handler if its work no longer counts. Call it between steps."""
        if self._owner.is_stopped:
            raise Stopped(self.execution_id)

    def _go_on(self, ended: Ended | None) -> tuple[ReceivedSignal, ...]:
        """Leave the handler, unless early signals have ended the wait already."""
        if ended is None:
            raise Suspension(self.execution_id)
        self._ended = ended
        return ended.signals

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the kind, the execution id and the attempt to every line."""
        return _TaskLogger(_LOGGER, {"execution_id": self.execution_id, "attempt": self.attempt})


class Context(ExecutionFacts, Journaling, Waiting, Receiving, Spawning, Emitting, Undoing):
    """An async task's view of its execution.

    ```
    @ff.task(retries=3)
    async def brief(ctx: Context, topic: str) -> str:
        await ctx.progress(10, "reading")
        ...
    ```
    """

    __slots__ = ()

    async def progress(self, percent: int | None = None, message: str | None = None) -> None:
        """Show progress. Fields left out keep their values."""
        await self._owner.report_progress(percent, message)

    async def delay(self, until: Moment) -> None:
        """Free the worker and go on later: the handler is run again from the top.

        With a datetime it returns once that instant has passed, so the call needs no guard:

            await ctx.delay(ctx.created_at + timedelta(hours=1))

        With a duration it parks each time it is reached; guard it with `is_resumed` or, better,
        with what the first part has left behind.
        """
        if not (isinstance(until, datetime) and await self._owner.is_past(until)):
            raise Parked(_checked(until))

    async def waitpoint(
        self, key: str, *, expires: Duration = EXPIRES, expect: Any = ANYTHING
    ) -> Waitpoint:
        """An address for signals before the suspension, to be handed out.

            reply = await ctx.waitpoint("reply", expires="1h", expect=Reply)
            await ask_elsewhere(callback=reply.link())
            await ctx.suspend(reply, timeout="1h")

        Signals that come before the suspension are kept. Asked for again by the same attempt, it is
        the same waitpoint. An unused one is closed when it `expires`.
        """
        return await new_waitpoint(self._owner, key, expires, expect)

    async def suspend(
        self,
        wait: Waitable | None = None,
        *,
        reason: str | None = None,
        timeout: Moment | None = None,
        on_timeout: str | None = None,
        expect: Any = ANYTHING,
        continuation: str | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[ReceivedSignal, ...]:
        """Free the worker and wait for signals: the handler ends here, and is called again from
        the top when the wait has ended, as the same attempt, with `ctx.signals`.

            if not ctx.resumed:
                await ctx.suspend(approval("publish", of=2), timeout="2d", on_timeout="cancel")
            verdict = ctx.signals[-1].name

        `wait` is a key, a waitpoint, or made by `signal`, `approval`, `count`, `all_of`, `any_of`;
        without it only the timeout or an operator ends it. `on_timeout` is `fail` (the default),
        `cancel`, `expire`, `resume`, `resume_with_signal` or `escalate`. `expect` is the type of
        payloads: one that does not fit is refused when it is sent. If early signals meet the
        condition already, nothing is suspended: they are returned and the handler goes on.
        """
        asked = Suspend(
            wait=wait,
            reason=reason,
            timeout=timeout,
            on_timeout=on_timeout,
            expect=expect,
            continuation=continuation,
            key=idempotency_key,
        )
        return self._go_on(await begin(self._owner, asked))

    async def report_usage(
        self,
        budget: str,
        /,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        wall_ms: int = 0,
        dedup_key: str | None = None,
        **custom: int,
    ) -> UsageOutcome:
        """Report usage after the fact: each part counts under its own name.

        The reply is `Ok`, `SoftBreach` (it counts, a soft limit is exceeded) or `HardBreach`
        (nothing counts). A repeated `dedup_key` gets the first reply and counts once; keys are the
        budget's, so put `ctx.attempt_key` in them.
        """
        usage = Usage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            wall_ms=wall_ms,
            custom=custom,
            dedup_key=dedup_key,
        )
        return await report_usage(self._owner, budget, usage)

    def spend(
        self,
        budget: str,
        /,
        *,
        hold_for: Duration = HOLD_FOR,
        answer_in: Duration | None = None,
        **amounts: int,
    ) -> Spend:
        """Reserve amounts before they are spent, settle them when the block ends.

            async with ctx.spend("gpt", tokens=1000, cost_micros=500) as spend:
                answer = await ask_the_model()
                spend.actual(tokens=answer.tokens, cost_micros=answer.cost)

        Without room it raises `BudgetExceeded` and nothing is reserved. Without `actual` what was
        reserved is charged. A block left by an exception charges nothing, unless `actual` was
        called before. A worker that dies, a retry and a lost lease return the reservation; so does
        `hold_for`, if the block takes longer.

        A budget that asks suspends the handler here until people have answered, for `answer_in` at
        most; it raises `BudgetExceeded` where they say no.
        """
        return Spend(self._owner, budget, amounts, hold_for, answer_in)


class SyncContext(
    ExecutionFacts,
    SyncJournaling,
    SyncRacing,
    SyncWaiting,
    SyncReceiving,
    SyncSpawning,
    SyncEmitting,
    SyncUndoing,
):
    """A sync task's view of its execution. Its methods block the task's own thread.

    ```
    @ff.task(timeout="10m")
    def convert(ctx: SyncContext, path: str) -> int:
        ctx.progress(50, "half way")
        ...
    ```
    """

    __slots__ = ()

    def progress(self, percent: int | None = None, message: str | None = None) -> None:
        """Show progress. Fields left out keep their values."""
        self._owner.wait_for(self._owner.report_progress(percent, message))

    def delay(self, until: Moment) -> None:
        """Free the worker and go on later: see `Context.delay`."""
        if not (isinstance(until, datetime) and self._owner.wait_for(self._owner.is_past(until))):
            raise Parked(_checked(until))

    def waitpoint(
        self, key: str, *, expires: Duration = EXPIRES, expect: Any = ANYTHING
    ) -> Waitpoint:
        """An address for signals before the suspension: see `Context.waitpoint`."""
        made: Waitpoint = self._owner.wait_for(new_waitpoint(self._owner, key, expires, expect))
        return made

    def suspend(
        self,
        wait: Waitable | None = None,
        *,
        reason: str | None = None,
        timeout: Moment | None = None,
        on_timeout: str | None = None,
        expect: Any = ANYTHING,
        continuation: str | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[ReceivedSignal, ...]:
        """End here and be called again when the wait has ended: see `Context.suspend`."""
        asked = Suspend(
            wait=wait,
            reason=reason,
            timeout=timeout,
            on_timeout=on_timeout,
            expect=expect,
            continuation=continuation,
            key=idempotency_key,
        )
        return self._go_on(self._owner.wait_for(begin(self._owner, asked)))

    def report_usage(
        self,
        budget: str,
        /,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        wall_ms: int = 0,
        dedup_key: str | None = None,
        **custom: int,
    ) -> UsageOutcome:
        """Report usage after the fact: see `Context.report_usage`."""
        usage = Usage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            wall_ms=wall_ms,
            custom=custom,
            dedup_key=dedup_key,
        )
        outcome: UsageOutcome = self._owner.wait_for(report_usage(self._owner, budget, usage))
        return outcome

    def spend(
        self,
        budget: str,
        /,
        *,
        hold_for: Duration = HOLD_FOR,
        answer_in: Duration | None = None,
        **amounts: int,
    ) -> SyncSpend:
        """Reserve before spending, for `with`: see `Context.spend`."""
        return SyncSpend(self._owner, budget, amounts, hold_for, answer_in)

    def wait_cancelled(self, timeout: Duration | None = None) -> bool:
        """Sleep, but wake up when the lease is lost; returns whether it was."""
        seconds = None if timeout is None else to_ms(timeout, field="timeout") / 1000
        return self._owner.wait_stopped(seconds)


def _checked(until: Moment) -> Moment:
    """Refuse a malformed duration in the handler, where its traceback helps."""
    if not isinstance(until, datetime):
        to_ms(until, field="until")
    return until


class _TaskLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        facts = self.extra or {}
        kwargs["extra"] = {**facts, **(kwargs.get("extra") or {})}
        return f"[{facts['execution_id']} #{facts['attempt']}] {msg}", kwargs
