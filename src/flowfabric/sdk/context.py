"""What a handler may know about its execution, and ask of it.

An async task gets a `Context`, a sync task a `SyncContext` whose methods block its thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from flowfabric.model.handle import HandleKind
from flowfabric.model.results import Claimed
from flowfabric.sdk.durations import Duration, Moment, to_datetime, to_ms
from flowfabric.sdk.errors import Parked, Stopped

_LOGGER = logging.getLogger("flowfabric.task")


class Owner(Protocol):
    """What a context needs of the worker that runs it."""

    @property
    def claimed(self) -> Claimed:
        """The execution and its lease."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether the execution was taken away."""
        ...

    async def report_progress(self, percent: int | None, message: str | None) -> None:
        """Record how far the work is."""
        ...

    async def is_past(self, until: datetime) -> bool:
        """Whether the store's clock has reached an instant."""
        ...

    def wait_stopped(self, timeout_s: float | None) -> bool:
        """Block a thread until the execution is taken away or the time is over."""
        ...

    def wait_for(self, operation: Any) -> Any:
        """Run a coroutine on the worker's loop and block this thread for its answer."""
        ...


class ExecutionFacts:
    """The facts every handler may read."""

    __slots__ = ("_claimed", "_owner")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._claimed = owner.claimed

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
    def tags(self) -> Mapping[str, str]:
        """The labels given at submit."""
        return self._claimed.tags

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
        """Whether this attempt was interrupted and goes on, again from the top.

        It parked itself with `delay`, or its worker was drained while it ran.
        """
        return self._claimed.handle.kind is HandleKind.RESUMED

    @property
    def cancelled(self) -> bool:
        """Whether the work was cancelled or taken away: what it still does will not count."""
        return self._owner.is_stopped

    def raise_if_cancelled(self) -> None:
        """End the handler if its work no longer counts. Call it between steps."""
        if self._owner.is_stopped:
            raise Stopped(self.execution_id)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the kind, the execution id and the attempt to every line."""
        return _TaskLogger(_LOGGER, {"execution_id": self.execution_id, "attempt": self.attempt})


class Context(ExecutionFacts):
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
        """Show how far the work is. What is left out stays as it was."""
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


class SyncContext(ExecutionFacts):
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
        """Show how far the work is. What is left out stays as it was."""
        self._owner.wait_for(self._owner.report_progress(percent, message))

    def delay(self, until: Moment) -> None:
        """Free the worker and go on later: see `Context.delay`."""
        if not (isinstance(until, datetime) and self._owner.wait_for(self._owner.is_past(until))):
            raise Parked(_checked(until))

    def wait_cancelled(self, timeout: Duration | None = None) -> bool:
        """Sleep, but wake up when the work is taken away; tells whether it was."""
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
