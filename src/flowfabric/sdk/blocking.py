"""The fabric for code without asyncio: an event loop in a thread of its own, and calls that wait.

It may be used in any thread, but not where an event loop runs: the call would block that loop, so
it is refused with the call to write instead. It opens an engine of its own; with `memory://` that
is a memory of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, overload

from flowfabric import forks
from flowfabric.api.waits import WaitInfo
from flowfabric.callers import blocking_driver
from flowfabric.errors import InvalidInput
from flowfabric.model.ask import AskAnswered, BudgetAsk
from flowfabric.model.budget import BudgetStatus, UsageOutcome
from flowfabric.model.quota import QuotaPolicy, QuotaStatus
from flowfabric.model.record import replace
from flowfabric.model.results import LaneConfigured
from flowfabric.model.shown import shown
from flowfabric.model.statistic import SpendingPage, Statistics
from flowfabric.sdk.dead import SyncDeadLetters
from flowfabric.sdk.durations import Duration, Moment
from flowfabric.sdk.errors import EventLoopRunning
from flowfabric.sdk.flow.run import FlowRun
from flowfabric.sdk.flow.sync import SyncFlow, SyncFlowRun
from flowfabric.sdk.journal.submits import handler_here
from flowfabric.sdk.operations import SyncOperations
from flowfabric.sdk.options import HookTask
from flowfabric.sdk.run import Run
from flowfabric.sdk.schedules import SyncSchedules
from flowfabric.sdk.selecting import ManyChanged, RunFilter
from flowfabric.sdk.sync_run import SyncRun
from flowfabric.sdk.task import Call, Task, TaskWithOptions
from flowfabric.sdk.waits import Delivered, HasId

if TYPE_CHECKING:  # the fabric makes its own blocking twin
    from flowfabric.sdk.fabric import Fabric

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
# The call to write instead of a blocking one, where its coroutine has another name.
_INSTEAD: Final = {
    "Graph._submit": "await flow.submit(…)",
    "_next": "async for … in run.watch()",
    "_next_of_stream": "async for … in run.stream()",
    "_next_of_logs": "async for … in run.logs()",
}


class SyncFabric:
    """`ff.sync`: submit and wait without asyncio.

    ```
    run = ff.sync.submit(brief, "solar")
    print(run.result(timeout="5m"))
    ```
    """

    def __init__(self, fabric: Fabric) -> None:
        self.twin = fabric  # on the loop of the worker, where handlers run
        self._fabric = fabric.sibling()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        forks.inherit(self, SyncFabric._after_fork)

    def handler_here(self) -> Any:
        """The sync handler in whose thread this is, if what it submits is recorded in its journal:
        it is submitted on the loop of its worker."""
        handler = handler_here(self.twin.engine_here)
        return handler if handler is not None and handler.journal.is_blocking else None

    def _own(self, run: Run[R]) -> Run[R]:
        """A run that was submitted on another loop."""
        return Run(self._fabric, run.id, run.task, is_new=run.is_new, answer=run.answer)

    # As `Fabric.submit`: without options the arguments are checked.
    @overload
    def submit(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, key: str | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, priority: int | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, delay: Moment | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, start_at: datetime | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, lane: str | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, tags: Mapping[str, str] | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, deadline: Moment | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, connection: Any, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, budgets: Iterable[str] | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, quota: str | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, concurrency_key: str | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, fair: str | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, serial: str | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, unique: str | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, on_success: HookTask | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, on_failure: HookTask | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(
        self, task: Task[..., R], /, *args: Any, on_end: HookTask | None, **more: Any
    ) -> SyncRun[R]: ...
    @overload
    def submit(self, task: str, /, *args: Any, **kwargs: Any) -> SyncRun[Any]: ...

    def submit(self, task: Any, /, *args: Any, **kwargs: Any) -> SyncRun[Any]:
        """Record work durably: arguments and options as in `Fabric.submit`."""
        given = kwargs.get("connection")
        if given is None and isinstance(task, TaskWithOptions):
            given = task.chosen.connection
        if given is not None:
            kwargs["connection"] = blocking_driver(given)
        if given is None and (handler := self.handler_here()) is not None:
            made: Run[Any] = handler.wait_for(self.twin.submit(task, *args, **kwargs))
            return SyncRun(self, self._own(made))
        run: Run[Any] = self.wait(self._fabric.submit(task, *args, **kwargs))
        return SyncRun(self, run)

    @overload
    def submit_many(
        self, task: Task[..., R], items: Iterable[Any], /, *, connection: Any = None
    ) -> list[SyncRun[R]]: ...
    @overload
    def submit_many(
        self, task: Iterable[Call[R]], /, *, connection: Any = None
    ) -> list[SyncRun[R]]: ...

    def submit_many(
        self, task: Any, items: Iterable[Any] = (), /, *, connection: Any = None
    ) -> list[SyncRun[Any]]:
        """Record much work in one transaction: see `Fabric.submit_many`."""
        from flowfabric.sdk.submitting import (  # it makes this blocking twin
            calls_of,
            one_connection,
        )

        calls = calls_of(task, items)
        given = one_connection(calls, connection)
        if given is None and (handler := self.handler_here()) is not None:
            made: list[Run[Any]] = handler.wait_for(self.twin.submit_many(calls))
            return [SyncRun(self, self._own(run)) for run in made]
        own = None if given is None else blocking_driver(given)
        if own is not None:  # the same connection, adapted to this thread
            calls = [replace(each, options=each.options.but(connection=own)) for each in calls]
        runs: list[Run[Any]] = self.wait(self._fabric.submit_many(calls, connection=own))
        return [SyncRun(self, run) for run in runs]

    @overload
    def run(self, execution_id: str, task: Task[..., R]) -> SyncRun[R]: ...
    @overload
    def run(self, execution_id: str, task: None = None) -> SyncRun[Any]: ...

    def run(self, execution_id: str, task: Task[..., Any] | None = None) -> SyncRun[Any]:
        """The handle of an execution; with its task the result is typed."""
        return SyncRun(self, Run(self._fabric, execution_id, task))

    def result(self, run: Run[R] | SyncRun[R], timeout: Duration | None = None) -> R:
        """Wait for the result of a run, whichever fabric submitted it."""
        _check_run(run)
        return self.wait(Run(self._fabric, run.id, run.task).result(timeout))

    # --- many runs -----------------------------------------------------------------------------

    @overload
    def runs(self, *, kind: Task[..., R], **parts: Any) -> Iterator[SyncRun[R]]: ...
    @overload
    def runs(self, *, kind: str | None = None, **parts: Any) -> Iterator[SyncRun[Any]]: ...

    def runs(self, *, kind: Any = None, **parts: Any) -> Iterator[SyncRun[Any]]:
        """The runs that fit, newest first: see `Fabric.runs`."""
        found = self._fabric.runs(kind=kind, **parts)

        async def following() -> Run[Any] | None:
            return await anext(found, None)

        return (SyncRun(self, run) for run in iter(lambda: self.wait(following()), None))

    def cancel_many(self, chosen: RunFilter, *, reason: str = "") -> ManyChanged:
        """Cancel all that fit: see `Fabric.cancel_many`."""
        return self.wait(self._fabric.cancel_many(chosen, reason=reason))

    def retry_many(
        self, chosen: RunFilter, *, reason: str = "", cascade: bool = False, fresh: bool = False
    ) -> ManyChanged:
        """Run all that fit again: see `Fabric.retry_many`."""
        asked = self._fabric.retry_many(chosen, reason=reason, cascade=cascade, fresh=fresh)
        return self.wait(asked)

    @property
    def operations(self) -> SyncOperations:
        """Changes to many runs, as durable work: see `Fabric.operations`."""
        return SyncOperations(self.wait, self._fabric.operations)

    @property
    def dead(self) -> SyncDeadLetters:
        """Runs that failed or expired, until they are run again or dismissed."""
        return SyncDeadLetters(self.wait, self._fabric.dead)

    # --- flows ---------------------------------------------------------------------------------

    def flow(self, kind: str, **options: Any) -> SyncFlow:
        """A flow to write: options as in `Fabric.flow`."""
        return SyncFlow(self, self._fabric, kind, **options)

    def flow_run(self, flow_id: str) -> SyncFlowRun:
        """The handle of a flow."""
        return SyncFlowRun(self, FlowRun(self._fabric, flow_id))

    # --- limits --------------------------------------------------------------------------------

    def create_budget(self, name: str, **options: Any) -> BudgetStatus:
        """Put a budget in force: options as in `Fabric.create_budget`."""
        return self.wait(self._fabric.create_budget(name, **options))

    def update_budget(self, name: str, **options: Any) -> BudgetStatus:
        """Change limits and their effects: options as in `Fabric.update_budget`."""
        return self.wait(self._fabric.update_budget(name, **options))

    def raise_budget(self, name: str, /, **hard: int) -> BudgetStatus:
        """New, higher hard limits."""
        return self.wait(self._fabric.raise_budget(name, **hard))

    def reset_budget(self, name: str) -> BudgetStatus:
        """Start counting from zero."""
        return self.wait(self._fabric.reset_budget(name))

    def budget(self, name: str) -> BudgetStatus:
        """Limits, usage and counts of one budget."""
        return self.wait(self._fabric.budget(name))

    def budgets(self) -> list[BudgetStatus]:
        """Every budget, by name."""
        return self.wait(self._fabric.budgets())

    def statistics(self, **options: Any) -> Statistics:
        """Counts and times by lane and kind."""
        return self.wait(self._fabric.statistics(**options))

    def spending(self, **options: Any) -> SpendingPage:
        """What budgets spent, by dimension."""
        return self.wait(self._fabric.spending(**options))

    def report_usage(
        self, budget: str, /, *, dedup_key: str | None = None, **amounts: int
    ) -> UsageOutcome:
        """Usage from outside any execution."""
        return self.wait(self._fabric.report_usage(budget, dedup_key=dedup_key, **amounts))

    def budget_asks(self, budget: str | None = None, **options: Any) -> list[BudgetAsk]:
        """The questions of budgets without an answer: options as in `Fabric.budget_asks`."""
        return self.wait(self._fabric.budget_asks(budget, **options))

    def approve_ask(self, budget: str, dimension: str, **options: Any) -> AskAnswered:
        """Say yes to a budget's question: options as in `Fabric.approve_ask`."""
        return self.wait(self._fabric.approve_ask(budget, dimension, **options))

    def reject_ask(self, budget: str, dimension: str, **options: Any) -> AskAnswered:
        """Say no to a budget's question: options as in `Fabric.reject_ask`."""
        return self.wait(self._fabric.reject_ask(budget, dimension, **options))

    def create_quota(self, name: str, **options: Any) -> QuotaStatus:
        """Limit starts and slots: options as in `Fabric.create_quota`."""
        return self.wait(self._fabric.create_quota(name, **options))

    def update_quota(self, name: str, **options: Any) -> QuotaStatus:
        """Change a quota: options as in `Fabric.update_quota`."""
        return self.wait(self._fabric.update_quota(name, **options))

    def quota(self, name: str) -> QuotaStatus:
        """Limits of a quota, and how much of them each key uses."""
        return self.wait(self._fabric.quota(name))

    def quotas(self) -> list[QuotaPolicy]:
        """Every quota, by name."""
        return self.wait(self._fabric.quotas())

    def configure_lane(self, lane: str, **options: Any) -> LaneConfigured:
        """How a lane shares, ages and bounds its work: see `Fabric.configure_lane`."""
        return self.wait(self._fabric.configure_lane(lane, **options))

    # --- waits ---------------------------------------------------------------------------------

    def signal(self, target: Any, word: str | None = None, *args: Any, **options: Any) -> Delivered:
        """Deliver a signal: arguments and options as in `Fabric.signal`."""
        return self.wait(self._fabric.signal(target, word, *args, **options))

    def approve(self, run: HasId | str, key: str, *, by: str, **options: Any) -> Delivered:
        """Approve in a person's name: options as in `Fabric.approve`."""
        return self.wait(self._fabric.approve(run, key, by=by, **options))

    def reject(self, run: HasId | str, key: str, *, by: str, **options: Any) -> Delivered:
        """Reject in a person's name: options as in `Fabric.reject`."""
        return self.wait(self._fabric.reject(run, key, by=by, **options))

    def resume(self, run: HasId | str, *, by: str | None = None) -> None:
        """End a wait whatever its condition says."""
        self.wait(self._fabric.resume(run, by=by))

    def link(self, run: HasId | str, key: str, *, to: str | None = None) -> str:
        """The link of a wait. It is a credential."""
        return self.wait(self._fabric.link(run, key, to=to))

    def waits(self, **options: Any) -> list[WaitInfo]:
        """The open waits of suspended executions: options as in `Fabric.waits`."""
        return self.wait(self._fabric.waits(**options))

    def close(self) -> None:
        """Release the store and end the thread. The next call starts anew."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._fabric.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _after_fork(self) -> None:
        """In a child process: the thread does not exist there; the next call starts another."""
        if self._loop is not None:
            forks.leave_alone(self._loop)
        self._loop, self._thread, self._lock = None, None, threading.Lock()
        forks.inherit(self, SyncFabric._after_fork)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def schedules(self) -> SyncSchedules:
        """Schedules by calls: see `Fabric.schedules`."""
        return SyncSchedules(self._fabric.schedules, self.wait)

    def wait(self, operation: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the thread's loop and wait for its result."""
        _refuse_in_a_loop(operation)
        try:
            loop = self._running_loop()
        except BaseException:
            operation.close()  # on Ctrl-C it has not begun
            raise
        future = asyncio.run_coroutine_threadsafe(operation, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # on Ctrl-C the operation is not left behind
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop, self._thread = _loop_in_a_thread()
            return self._loop


def _check_run(run: object) -> None:
    if not isinstance(run, Run | SyncRun):
        detail = f"run: expected a run, got {shown(run)}; that of an id is ff.sync.run(id)"
        raise InvalidInput(detail, field="run")


def _loop_in_a_thread() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """A running event loop. It is made in its thread: Ctrl-C interrupts the main thread at any
    instruction, and half an event loop complains when it goes."""
    made: SimpleQueue[asyncio.AbstractEventLoop] = SimpleQueue()

    def work() -> None:
        loop = asyncio.new_event_loop()
        made.put(loop)
        loop.run_forever()

    thread = threading.Thread(target=work, name="flowfabric-sync", daemon=True)
    thread.start()
    return made.get(), thread


def _refuse_in_a_loop(operation: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine that has not begun."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    operation.close()
    called = str(getattr(operation, "__qualname__", ""))
    holder, _, name = called.rpartition(".")
    usual = f"await {'run' if holder.endswith('Run') else 'ff'}.{name.lstrip('_')}(…)"
    detail = (
        f"ff.sync would block the event loop that runs here: write {_INSTEAD.get(called, usual)}"
    )
    raise EventLoopRunning(detail)
