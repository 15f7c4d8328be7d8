"""Submitting work: one task, or many at once."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, ParamSpec, TypeVar, overload

from flowfabric import limits
from flowfabric.api.executions import NewExecution
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_list
from flowfabric.model.results import Created, CreateResult
from flowfabric.model.shown import shown
from flowfabric.sdk import codec
from flowfabric.sdk.durations import Moment
from flowfabric.sdk.home import Home
from flowfabric.sdk.journal.submits import Submit, Submits, handler_here
from flowfabric.sdk.options import HookTask, SubmitOptions
from flowfabric.sdk.run import Run
from flowfabric.sdk.task import Call, Task, TaskWithOptions
from flowfabric.tracing.spans import spans, traced, with_trace

P = ParamSpec("P")
R = TypeVar("R")


class SubmitMethods(Home):
    """The part of a fabric that submits work."""

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
        self, task: Task[..., R], /, *args: Any, fair: str | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, serial: str | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, unique: str | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, on_success: HookTask | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, on_failure: HookTask | None, **more: Any
    ) -> Run[R]: ...
    @overload
    async def submit(
        self, task: Task[..., R], /, *args: Any, on_end: HookTask | None, **more: Any
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
        fair: str | None = None,
        serial: str | None = None,
        unique: str | None = None,
        on_success: HookTask | None = None,
        on_failure: HookTask | None = None,
        on_end: HookTask | None = None,
        **kwargs: Any,
    ) -> Run[Any]: ...

    def submit(  # type: ignore[misc]  # no argument of a task has the name of an option
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
        fair: str | None = None,
        serial: str | None = None,
        unique: str | None = None,
        on_success: HookTask | None = None,
        on_failure: HookTask | None = None,
        on_end: HookTask | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Run[Any]]:
        """Record work durably: a task with its arguments, or the name of one with its payload.

        `key` makes a repeated submit answer with the first run. It starts after `delay`, a duration
        from now, or not before `start_at`, an aware datetime; `deadline` may be either of the two.
        `connection` is yours, with an open transaction (asyncpg, psycopg, SQLAlchemy, Django): the
        work then exists exactly if that commits. `budgets`, `quota` and `concurrency_key` bound
        this run instead of the task's own. `fair`, `serial` and `unique` are its keys, and
        `run.answer` tells what a taken key led to. `on_success`, `on_failure` (it failed or
        expired) and `on_end`: tasks, or their names, of which a run is created in the transaction
        of its end, told of it by a `RunEnded`. In a handler another run of it gets the same run.

        ```
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
            fair=fair,
            serial=serial,
            unique=unique,
            on_success=on_success,
            on_failure=on_failure,
            on_end=on_end,
        )
        return self.submit_call(self.call_of(task, options, args, kwargs))

    def submit_call(self, call: Call[R]) -> Coroutine[Any, Any, Run[R]]:
        """Submit a prepared call. In a handler it takes its place in the journal at once."""
        options = call.options
        if options.connection is None and (handler := handler_here(self.engine_here)) is not None:
            submits = handler.journal.submits
            return self._record_one(submits, submits.place([call.request()], key=options.key), call)
        return self._submit(call)

    async def _record_one(self, submits: Submits, place: Submit, call: Call[R]) -> Run[R]:
        (answer,) = await submits.answers([place])
        return self._run(call, answer)

    async def _submit(self, call: Call[R]) -> Run[R]:
        request = call.request()
        if (found := spans()) is None:
            return self._run(call, await self._create(call, request))
        with found.submit(request.execution_kind, request.lane_id) as span:
            answer = await self._create(call, traced(request))
            found.submitted(span, answer)
        return self._run(call, answer)

    async def _create(self, call: Call[R], request: NewExecution) -> CreateResult:
        connection = call.options.connection
        engine = await self.start()
        if connection is not None:
            (answer,) = await engine.create_executions_in(connection, [request])
            return answer
        made: CreateResult = await engine.call(request)
        return made

    @overload
    async def submit_many(
        self, task: Task[..., R], items: Iterable[Any], /, *, connection: Any = None
    ) -> list[Run[R]]: ...
    @overload
    async def submit_many(
        self, task: Iterable[Call[R]], /, *, connection: Any = None
    ) -> list[Run[R]]: ...

    def submit_many(
        self,
        task: Task[..., Any] | Iterable[Call[Any]],
        items: Iterable[Any] = (),
        /,
        *,
        connection: Any = None,
    ) -> Coroutine[Any, Any, list[Run[Any]]]:
        """Record much work in one transaction (one per ten thousand); runs come in the same order.

        An item is a tuple of positional arguments, a single argument that is not a tuple, or a
        `Call`. Everything is checked before anything is recorded. `connection`: all of it in your
        own transaction, as in `submit`. In a handler it is a journaled call, as `submit` is.

        ```
        await ff.submit_many(resize, [("a.png", 100), ("b.png", 200)])
        await ff.submit_many([brief.call("solar"), brief.options(key="w").call("wind")])
        ```
        """
        calls = calls_of(task, items)
        connection = one_connection(calls, connection)
        if connection is None and (handler := handler_here(self.engine_here)) is not None:
            submits = handler.journal.submits
            requests = [call.request() for call in calls]
            most = limits.CREATE_MAX
            parts = (requests[at : at + most] for at in range(0, len(requests), most))
            places = [submits.place(part) for part in parts]
            return self._record_many(submits, places, calls)
        return self._submit_many(calls, connection)

    async def _record_many(
        self, submits: Submits, places: Sequence[Submit], calls: Sequence[Call[Any]]
    ) -> list[Run[Any]]:
        answers = await submits.answers(places)
        return [self._run(call, answer) for call, answer in zip(calls, answers, strict=True)]

    async def _submit_many(self, calls: Sequence[Call[Any]], connection: Any) -> list[Run[Any]]:
        requests = [call.request() for call in calls]
        if (found := spans()) is None or not requests:
            answers = await self._create_many(requests, connection)
        else:
            kind, lane = requests[0].execution_kind, requests[0].lane_id
            with found.submit(kind, lane, len(requests)):
                answers = await self._create_many(with_trace(requests), connection)
        return [self._run(call, answer) for call, answer in zip(calls, answers, strict=True)]

    async def _create_many(
        self, requests: Sequence[NewExecution], connection: Any
    ) -> list[CreateResult]:
        engine = await self.start()
        left = iter(requests)
        answers: list[CreateResult] = []
        while chunk := list(islice(left, limits.CREATE_MAX)):
            if connection is not None:
                answers += await engine.create_executions_in(connection, chunk)
            else:
                answers += await engine.create_executions(chunk)
        return answers

    def call_of(
        self,
        task: object,
        options: SubmitOptions,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Call[Any]:
        """A task, or the name of one, with its arguments: checked, and not yet submitted."""
        if isinstance(task, TaskWithOptions):
            options, task = task.chosen.under(options), task.task
        if isinstance(task, Task):
            return task.call_with(options, args, kwargs)
        if not isinstance(task, str):
            detail = f"task: {shown(task, 80)} is not a task; decorate it with @ff.task"
            raise InvalidInput(detail, field="task")
        known = self.tasks.get(task)
        payload = _payload(task, args, kwargs)
        if known is not None:
            known.signature.check(payload)
        return Call(task, payload, options, known)

    def _run(self, call: Call[R], answer: CreateResult) -> Run[R]:
        is_new = isinstance(answer, Created)
        return Run(self, answer.execution_id, call.task, is_new=is_new, answer=answer)


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
