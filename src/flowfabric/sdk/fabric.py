"""Fabric: the one object a program holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from itertools import islice
from types import MappingProxyType, TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload

from flowfabric import forks, limits
from flowfabric.api.backend import EngineBackend
from flowfabric.api.events import NOW
from flowfabric.assemble import open_engine
from flowfabric.config import DEFAULT_URL, EngineConfig, config_from, url_from_environment
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_list
from flowfabric.model.feed import Event, EventFilter
from flowfabric.model.record import replace
from flowfabric.model.results import Created, CreateResult
from flowfabric.model.shown import shown
from flowfabric.sdk import codec
from flowfabric.sdk.blocking import SyncFabric
from flowfabric.sdk.decorator import TaskDecorator
from flowfabric.sdk.durations import Duration, Moment
from flowfabric.sdk.errors import InvalidTask
from flowfabric.sdk.events import events_of
from flowfabric.sdk.flow.flow import Flow
from flowfabric.sdk.flow.run import FlowRun
from flowfabric.sdk.journal.steps import StepDecorator
from flowfabric.sdk.limits import LimitMethods
from flowfabric.sdk.listening import TRIES_DEFAULT, Listener, listener
from flowfabric.sdk.options import SubmitOptions
from flowfabric.sdk.run import Run
from flowfabric.sdk.selecting import RunMethods
from flowfabric.sdk.statistics import StatisticMethods
from flowfabric.sdk.task import Call, Task, TaskWithOptions
from flowfabric.sdk.waits import WaitMethods

P = ParamSpec("P")
H = TypeVar("H", bound=Callable[..., Any])
R = TypeVar("R")


class Fabric(LimitMethods, WaitMethods, RunMethods, StatisticMethods):
    """Tasks and a store to keep their executions in.

    The URL is `sqlite:///file.db`, `postgresql://…` or `memory://`; without one the environment's
    FLOWFABRIC_URL counts, else `sqlite:///flowfabric.db`. `pool` is an asyncpg pool of your own to
    that database, which is used but never closed; a forked child makes connections instead. Nothing
    is opened before first use. `actor` is kept with what this program does to the work of
    others: cancels, holds, limits, lanes. A fabric may be a global of a module; it belongs to one
    running event loop at a time.

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
        self._tasks: dict[str, Task[..., Any]] = {}
        self._listeners: dict[str, Listener] = {}
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
                engine = open_engine(self.url, config=self.config, pool=self._pool)
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

    # --- submitting ----------------------------------------------------------------------------

    # Without options the arguments are checked as the task declares them. With options beside them
    # they cannot be: no signature can say "these, and those of the task". So each overload for that
    # requires another option, and a call without any fits the first alone.
    @overload
    async def submit(
        self, task: Task[P, R] | TaskWithOptions[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, key: str | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, priority: int | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, delay: Moment | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, start_at: datetime | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, lane: str | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, tags: Mapping[str, str] | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, deadline: Moment | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, connection: Any, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, budgets: Iterable[str] | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, quota: str | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, concurrency_key: str | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self,
        task: str,
        payload: Any = ...,
        /,
        *,
        key: str | None = None,
        priority: int | None = None,
        delay: Moment | None = None,
        start_at: datetime | None = None,
        lane: str | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Moment | None = None,
        connection: Any = None,
        budgets: Iterable[str] | None = None,
        quota: str | None = None,
        concurrency_key: str | None = None,
        **kwargs: Any,
    ) -> Run[Any]: ...

    async def submit(  # type: ignore[misc]  # no argument of a task has the name of an option
        self,
        task: Task[..., Any] | TaskWithOptions[..., Any] | str,
        /,
        *args: Any,
        key: str | None = None,
        priority: int | None = None,
        delay: Moment | None = None,
        start_at: datetime | None = None,
        lane: str | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Moment | None = None,
        connection: Any = None,
        budgets: Iterable[str] | None = None,
        quota: str | None = None,
        concurrency_key: str | None = None,
        **kwargs: Any,
    ) -> Run[Any]:
        """Record work durably: a task with its arguments, or the name of one with its payload.

        `key` makes a repeated submit answer with the first run. It starts after `delay`, a duration
        from now, or not before `start_at`, an aware datetime; `deadline` may be either of the two.
        `connection` is yours, with an open transaction (asyncpg, psycopg, SQLAlchemy, Django): the
        work then exists exactly if that commits. `budgets`, `quota` and `concurrency_key` bound
        this run instead of the task's own. The names of these options cannot be names of a task's
        arguments. A wrong argument is refused here, by name.

        ```
        await ff.submit(brief, "solar")                            # as brief.submit("solar")
        await ff.submit(brief.options(key="solar-2026"), "solar")  # arguments and options typed
        await ff.submit(brief, "solar", key="solar-2026", delay="10m", tags={"team.name": "a"})
        await ff.submit("brief", {"topic": "solar"})  # a task that is not imported here
        ```
        """
        options = SubmitOptions(
            key=key,
            priority=priority,
            delay=delay,
            start_at=start_at,
            lane=lane,
            tags=tags,
            deadline=deadline,
            connection=connection,
            budgets=budgets,
            quota=quota,
            concurrency_key=concurrency_key,
        )
        return await self.submit_call(self._call(task, options, args, kwargs))

    async def submit_call(self, call: Call[R]) -> Run[R]:
        """Submit a prepared call."""
        connection = call.options.connection
        engine = await self.start()
        request = call.request()
        if connection is not None:
            (answer,) = await engine.create_executions_in(connection, [request])
        else:
            answer = await engine.call(request)
        return self._run(call, answer)

    @overload
    async def submit_many(
        self, task: Task[..., R], items: Iterable[Any], /, *, connection: Any = None
    ) -> list[Run[R]]: ...
    @overload
    async def submit_many(
        self, task: Iterable[Call[R]], /, *, connection: Any = None
    ) -> list[Run[R]]: ...

    async def submit_many(
        self,
        task: Task[..., Any] | Iterable[Call[Any]],
        items: Iterable[Any] = (),
        /,
        *,
        connection: Any = None,
    ) -> list[Run[Any]]:
        """Record much work in one transaction (one per ten thousand); runs come in the same order.

        An item is a tuple of positional arguments, a single argument that is not a tuple, or a
        `Call`. Everything is checked before anything is recorded. `connection`: all of it in your
        own transaction, as in `submit`.

        ```
        await ff.submit_many(resize, [("a.png", 100), ("b.png", 200)])
        await ff.submit_many([brief.call("solar"), brief.options(key="w").call("wind")])
        ```
        """
        calls = calls_of(task, items)
        connection = one_connection(calls, connection)
        engine = await self.start()
        requests = iter([call.request() for call in calls])
        answers: list[CreateResult] = []
        while chunk := list(islice(requests, limits.CREATE_MAX)):
            if connection is not None:
                answers += await engine.create_executions_in(connection, chunk)
            else:
                answers += await engine.create_executions(chunk)
        return [self._run(call, answer) for call, answer in zip(calls, answers, strict=True)]

    # --- flows ---------------------------------------------------------------------------------

    def flow(
        self,
        kind: str,
        *,
        key: str | None = None,
        tags: Mapping[str, str] | None = None,
        retention: Duration | None = None,
    ) -> Flow:
        """A flow to write: executions that depend on each other, submitted together.

        `kind` names what it is, for people. `key` makes a repeated submit of the same graph answer
        with the first one. `retention`: how long the whole flow is kept after its end.

        ```
        with ff.flow("deploy") as f:
            tests = [f.add(test, suite, build=f.add(build)) for suite in SUITES]
            f.add(deploy, after=tests)
        run = await f.submit()
        ```
        """
        return Flow(self, kind, key=key, tags=tags, retention=retention)

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
        twin = Fabric(self.url, config=self.config)
        twin._tasks = self._tasks
        twin._listeners = self._listeners
        return twin

    def _call(
        self,
        task: object,
        options: SubmitOptions,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Call[Any]:
        if isinstance(task, TaskWithOptions):
            options, task = task.chosen.under(options), task.task
        if isinstance(task, Task):
            return task.call_with(options, args, kwargs)
        if not isinstance(task, str):
            detail = f"task: {shown(task, 80)} is not a task; decorate it with @ff.task"
            raise InvalidInput(detail, field="task")
        known = self._tasks.get(task)
        payload = _payload(task, args, kwargs)
        if known is not None:
            known.signature.check(payload)
        return Call(task, payload, options, known)

    def _run(self, call: Call[R], answer: CreateResult) -> Run[R]:
        return Run(self, answer.execution_id, call.task, is_new=isinstance(answer, Created))


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


def calls_of(task: Task[..., Any] | Iterable[Call[Any]], items: Iterable[Any]) -> list[Call[Any]]:
    """The items to submit; a single text is mostly a forgotten pair of brackets."""
    if isinstance(task, Task):
        return [_as_call(task, item) for item in check_list(items, field="items")]
    calls = list(check_list(task, field="calls"))
    for index, call in enumerate(calls):
        if not isinstance(call, Call):
            raise InvalidInput(f"calls[{index}]: expected task.call(…)", field="calls")
    return calls


def one_connection(calls: Iterable[Call[Any]], given: Any) -> Any:
    """The connection of all calls: they are recorded together, so they cannot have several."""
    named = [call.options.connection for call in calls if call.options.connection is not None]
    for connection in named:
        if connection is not (named[0] if given is None else given):
            detail = "connection: calls of one submit_many share one; give it to submit_many"
            raise InvalidInput(detail, field="connection")
    return named[0] if given is None and named else given


def _as_call(task: Task[..., R], item: Any) -> Call[R]:
    if isinstance(item, Call):
        return item
    return task.call(*item) if isinstance(item, tuple) else task.call(item)


def _payload(kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The payload of a task known only by name: one object, or its named arguments."""
    if len(args) > 1 or (args and kwargs):
        detail = f"{kind}: by name, give one payload or named arguments, not both"
        raise InvalidInput(detail, field="payload")
    value = args[0] if args else kwargs
    if isinstance(value, bytes):
        return value
    try:
        return codec.encode(value)
    except codec.EncodeErrors as error:
        raise InvalidInput(f"{kind}: payload: {error}", field="payload") from None


def _origin(task: Task[..., Any] | Listener) -> tuple[str, str]:
    return task.function.__module__, task.function.__qualname__
