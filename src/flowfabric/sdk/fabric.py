"""Fabric: the one object a program holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload

from flowfabric import forks
from flowfabric.api.backend import EngineBackend
from flowfabric.api.events import NOW
from flowfabric.assemble import open_backend
from flowfabric.config import DEFAULT_URL, EngineConfig, config_from, url_from_environment
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_list
from flowfabric.model.feed import Event, EventFilter
from flowfabric.model.record import replace
from flowfabric.model.shown import shown
from flowfabric.sdk.asks import AskMethods
from flowfabric.sdk.blocking import SyncFabric
from flowfabric.sdk.decorator import TaskDecorator
from flowfabric.sdk.durations import Duration
from flowfabric.sdk.errors import InvalidTask
from flowfabric.sdk.events import events_of
from flowfabric.sdk.flow.flow import Flow
from flowfabric.sdk.flow.run import FlowRun
from flowfabric.sdk.journal.steps import StepDecorator
from flowfabric.sdk.limits import LimitMethods
from flowfabric.sdk.listening import TRIES_DEFAULT, Listener, listener
from flowfabric.sdk.operations import BulkMethods
from flowfabric.sdk.options import HookTask
from flowfabric.sdk.run import Run
from flowfabric.sdk.schedules import Declaration, ScheduleMethods
from flowfabric.sdk.selecting import RunMethods
from flowfabric.sdk.statistics import StatisticMethods
from flowfabric.sdk.submitting import SubmitMethods
from flowfabric.sdk.task import Task
from flowfabric.sdk.waits import WaitMethods

P = ParamSpec("P")
H = TypeVar("H", bound=Callable[..., Any])
R = TypeVar("R")


class Fabric(
    LimitMethods,
    AskMethods,
    WaitMethods,
    RunMethods,
    StatisticMethods,
    BulkMethods,
    SubmitMethods,
    ScheduleMethods,
):
    """Tasks and a store to keep their executions in.

    The URL is `sqlite:///file.db`, `postgresql://…`, `memory://`, or that of a server,
    `https://host:9090`; without one the environment's FLOWFABRIC_URL counts, else
    `sqlite:///flowfabric.db`. `token` is for a server; without one FLOWFABRIC_TOKEN counts. `pool`
    is an asyncpg pool of your own to that database, which is used but never closed; a forked child
    makes connections instead. Nothing is opened before first use. `actor` is kept with what this
    program does to the work of others: cancels, holds, limits, lanes. A fabric may be a global of a
    module; it belongs to one running event loop at a time.

    ```
    ff = Fabric()

    @ff.task(retries=3, timeout="10m")
    async def brief(ctx: Context, topic: str) -> str: ...

    async def main() -> None:
        async with ff:
            run = await brief.options(key="solar-2026", priority=10).submit("solar")
            print(await run.result())
    ```
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        actor: str | None = None,
        config: EngineConfig | None = None,
        pool: Any = None,
        token: str | None = None,
    ) -> None:
        if url is None or url == "":
            url = url_from_environment() or DEFAULT_URL
        self.url = url
        self.config = config_from(config)
        if namespace is not None:
            self.config = replace(self.config, namespace=namespace)
        if actor is not None:
            self.config = replace(self.config, actor=actor)
        self._pool = pool
        self._token = token
        self._tasks: dict[str, Task[..., Any]] = {}
        self._listeners: dict[str, Listener] = {}
        self._declarations: dict[str, Declaration] = {}
        self._engine: EngineBackend | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = asyncio.Lock()
        forks.inherit(self, Fabric._after_fork)

    def __repr__(self) -> str:
        return f"<Fabric with {len(self._tasks)} tasks>"  # the URL may hold a password

    # --- tasks ---------------------------------------------------------------------------------

    @property
    def task(self) -> TaskDecorator:
        """Decorates functions: `@ff.task` or `@ff.task(lane=…, retries=…)`."""
        return TaskDecorator(self)

    @property
    def step(self) -> StepDecorator:
        """Decorates functions whose calls in a handler are recorded: `@ff.step`, or with options
        `@ff.step(retries=3, timeout="30s")`.

        ```
        @ff.step(retries=5)
        async def charge(amount: int) -> str: ...

        @ff.task
        async def order(amount: int) -> str:
            return await charge(amount)  # once, however often the handler is run
        ```
        """
        return StepDecorator()

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """Every task by its name."""
        return MappingProxyType(self._tasks)

    def add_task(self, task: Task[..., Any]) -> Task[..., Any]:
        """Register a task; its name must be free, or belong to the same function reloaded."""
        known = self._tasks.get(task.name)
        if known is not None and _origin(known) != _origin(task):
            detail = f"{task.name}: the name is taken by {shown(known.function, 80)}; give name=…"
            raise InvalidTask(detail, field="name")
        self._tasks[task.name] = task
        return task

    def on(
        self,
        what: str,
        *,
        kind: str | None = None,
        lane: str | None = None,
        tag: tuple[str, str] | None = None,
        namespace: str | None = None,
        flow_id: str | None = None,
        group: str | None = None,
        after: str | None = NOW,
        tries: int = TRIES_DEFAULT,
    ) -> Callable[[H], H]:
        """Decorates a function that a worker calls with each event of a kind: at least once, and
        those about one execution in their order, however many workers run.

        `what`: completed, failed, cancelled, expired, skipped, or ended for all of these; or a kind
        of events, as `ff.events` takes it. `group`: the name under which workers share the events,
        that of the function unless given. `after`: where a new group begins. `tries`: how often an
        event is handed to a function that fails with it.

        ```python
        @ff.on("completed", kind="brief")
        async def announce(event: Event) -> None:
            print(event.subject, "is done")
        ```
        """
        wanted = EventFilter(
            namespace=namespace, tag=tag, lane_id=lane, execution_kind=kind, flow_id=flow_id
        )

        def listen(function: H) -> H:
            heard = listener(function, what, wanted, group=group, after=after, tries=tries)
            known = self._listeners.get(heard.group)
            if known is not None and _origin(known) != _origin(heard):
                detail = f"{heard.group}: the name is taken by {shown(known.function, 80)}"
                raise InvalidTask(f"{detail}; give group=…", field="group")
            self._listeners[heard.group] = heard
            return function

        return listen

    @property
    def listeners(self) -> Mapping[str, Listener]:
        """Every handler of events by its group."""
        return MappingProxyType(self._listeners)

    # --- the engine ----------------------------------------------------------------------------

    @property
    def engine_here(self) -> EngineBackend | None:
        """The engine, once it has started."""
        return self._engine

    async def start(self) -> EngineBackend:
        """The running engine of this event loop, started on first use."""
        loop = asyncio.get_running_loop()
        if self._engine is not None and self._loop is loop:
            return self._engine
        if self._loop is not None and self._loop is not loop and self._loop.is_running():
            detail = "fabric: it is in use on another running event loop; make one Fabric for each"
            raise InvalidInput(detail, field="fabric")
        if self._loop is not loop:
            # The former loop is closed and its engine with it: nothing of it can be closed here.
            self._engine, self._loop, self._starting = None, loop, asyncio.Lock()
        async with self._starting:
            if self._engine is None:
                engine = open_backend(
                    self.url, token=self._token, config=self.config, pool=self._pool
                )
                await engine.start(migrate=True)
                self._engine = engine
        return self._engine

    def _after_fork(self) -> None:
        """In a child process: the engine, its event loop and the program's pool are the parent's;
        the next call opens anew, with connections of its own."""
        forks.leave_alone((self._loop, self._pool))
        self._engine, self._loop, self._starting = None, None, asyncio.Lock()
        self._pool = None
        forks.inherit(self, Fabric._after_fork)

    @property
    def is_started(self) -> bool:
        """Whether the engine runs on the current event loop."""
        return self._engine is not None and self._loop is asyncio.get_running_loop()

    async def close(self) -> None:
        """Release the store. The fabric can be used again afterwards."""
        if not self.is_started:
            return
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @cached_property
    def sync(self) -> SyncFabric:
        """The same fabric for code without asyncio: its calls block."""
        return SyncFabric(self)

    # --- flows ---------------------------------------------------------------------------------

    def flow(
        self,
        kind: str,
        *,
        key: str | None = None,
        tags: Mapping[str, str] | None = None,
        retention: Duration | None = None,
        on_success: HookTask | None = None,
        on_failure: HookTask | None = None,
        on_end: HookTask | None = None,
    ) -> Flow:
        """A flow to write: executions that depend on each other, submitted together.

        `kind` names what it is, for people. `key` makes a repeated submit of the same graph answer
        with the first one. `retention`: how long the whole flow is kept after its end.
        `on_success`, `on_failure` and `on_end`: tasks, or names of tasks, that follow its end,
        created in the same transaction; each is told how, as a `FlowEnded`.

        ```
        with ff.flow("deploy") as f:
            tests = [f.add(test, suite, build=f.add(build)) for suite in SUITES]
            f.add(deploy, after=tests)
        run = await f.submit()
        ```
        """
        return Flow(
            self,
            kind,
            key=key,
            tags=tags,
            retention=retention,
            on_success=on_success,
            on_failure=on_failure,
            on_end=on_end,
        )

    def flow_run(self, flow_id: str) -> FlowRun:
        """The handle of a flow."""
        return FlowRun(self, flow_id)

    # --- finding again -------------------------------------------------------------------------

    @overload
    def run(self, execution_id: str, task: Task[..., R]) -> Run[R]: ...
    @overload
    def run(self, execution_id: str, task: None = None) -> Run[Any]: ...

    def run(self, execution_id: str, task: Task[..., Any] | None = None) -> Run[Any]:
        """The handle of an execution; with its task the result is typed."""
        return Run(self, execution_id, task)

    def events(
        self,
        *kinds: str,
        namespace: str | None = None,
        tag: tuple[str, str] | None = None,
        lane: str | None = None,
        kind: str | None = None,
        execution_id: str | None = None,
        flow_id: str | None = None,
        event_types: Sequence[str] = (),
        after: str | None = NOW,
        follow: bool = True,
    ) -> AsyncIterator[Event]:
        """Events as they come, each once and in order; an outage of the store is waited out.

        `kinds`: completion, lease, signal, operator, flow, budget, worker; none: all of them.
        `after`: the `cursor` of the last event that was handled, `"now"`, or None for the oldest
        that is kept.
        Without `follow` the iterator ends where the feed does now.

        ```python
        async for event in ff.events("completion", lane="mail"):
            print(event.subject, event.event_type)
        ```
        """
        wanted = EventFilter(
            namespace=namespace,
            tag=tag,
            lane_id=lane,
            execution_kind=kind,
            execution_id=execution_id,
            flow_id=flow_id,
            event_types=check_list(event_types, field="event_types"),
        )
        return events_of(self.start, kinds, wanted, after, follow=follow)

    def sibling(self) -> Fabric:
        """The same tasks and store for another event loop."""
        twin = Fabric(self.url, config=self.config, token=self._token)
        twin._tasks = self._tasks
        twin._listeners = self._listeners
        twin._declarations = self._declarations
        return twin


@contextmanager
def answered_by(fabric: Fabric, engine: EngineBackend) -> Iterator[None]:
    """Calls of the fabric on the current event loop go to this engine while the block runs: a test
    has the tasks of a program without its store."""
    before, loop = (fabric._engine, fabric._loop), asyncio.get_running_loop()
    fabric._engine, fabric._loop = engine, loop
    try:
        yield
    finally:
        if fabric._loop is loop:
            fabric._engine, fabric._loop = before


def _origin(task: Task[..., Any] | Listener) -> tuple[str, str]:
    return task.function.__module__, task.function.__qualname__
