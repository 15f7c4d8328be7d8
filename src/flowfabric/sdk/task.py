"""Tasks: functions that can be submitted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast

from flowfabric.api.executions import NewExecution
from flowfabric.model.bounds import UNBOUNDED
from flowfabric.model.policy import DEFAULT_POLICY
from flowfabric.model.record import Record, replace
from flowfabric.sdk import codec
from flowfabric.sdk.home import Home
from flowfabric.sdk.keys import KeyOf
from flowfabric.sdk.options import NO_OPTIONS, SubmitKeywords, SubmitOptions, TaskOptions
from flowfabric.sdk.signature import Signature

if TYPE_CHECKING:  # a run remembers its task
    from flowfabric.sdk.run import Run

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A named, typed piece of work. Made by `@ff.task`.

    ```
    run = await brief.submit("solar")                        # arguments checked by your editor
    run = await brief.options(key="solar-2026").submit("solar")
    run = await ff.submit(brief, "solar", key="solar-2026")  # the same, arguments unchecked
    ```
    """

    __name__: str

    def __init__(
        self, fabric: Home, function: Callable[..., Any], options: TaskOptions, form: Signature
    ) -> None:
        update_wrapper(cast("Callable[..., Any]", self), function)
        self.fabric = fabric
        self.function = function
        self.signature = form
        self.name = form.task
        self.lane = options.lane
        self.priority = options.priority
        self.is_async = inspect.iscoroutinefunction(function)
        self.policy = options.policy(form.task)
        self.code = options.code(form.task)
        self.on_mismatch = options.on_mismatch
        self.bounds = options.bounds()
        self.log_level = options.lowest_level()
        key = options.concurrency_key
        self.key_of = KeyOf(key, form) if callable(key) else None
        retry = self.policy.retry_policy
        self.retry_on = frozenset(retry.retryable_categories if retry else ())

    def __repr__(self) -> str:
        return f"<task {self.name} on lane {self.lane}>"

    @cached_property
    def usual_request(self) -> NewExecution:
        """The request of calls without options, without its payload: thousands may be submitted at
        once, and differ in nothing else."""
        return Call(self.name, b"", NO_OPTIONS, self).own_request()

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Record the work durably; a worker runs it."""
        return await self.fabric.submit_call(self.call(*args, **kwargs))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The task with its arguments, checked and not yet submitted: see `submit_many`."""
        return self.call_with(NO_OPTIONS, args, kwargs)

    def options(self, **options: Unpack[SubmitKeywords]) -> TaskWithOptions[P, R]:
        """The task with submit options: the keyword arguments of `Fabric.submit`."""
        return TaskWithOptions(self, NO_OPTIONS.but(**options))

    def call_with(
        self, options: SubmitOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call[R]:
        """Bind and check the arguments."""
        payload = self.signature.encode(self.signature.bind(args, kwargs))
        return Call(self.name, payload, options, self)


@dataclass(frozen=True, slots=True)
class TaskWithOptions(Generic[P, R]):
    """A task and the options of its submission."""

    task: Task[P, R]
    chosen: SubmitOptions

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Record the work durably; a worker runs it."""
        return await self.task.fabric.submit_call(self.call(*args, **kwargs))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The task with its arguments and options, not yet submitted: see `submit_many`."""
        return self.task.call_with(self.chosen, args, kwargs)


class Call(Record, Generic[R], frozen=True):
    """One piece of work, ready to be submitted."""

    kind: str
    payload: bytes
    options: SubmitOptions = NO_OPTIONS
    task: Task[..., R] | None = None
    pending: frozenset[str] = frozenset()  # arguments that other nodes of a flow will give

    def request(self) -> NewExecution:
        """The request of the engine."""
        task = self.task
        if self.options is NO_OPTIONS and task is not None and task.key_of is None:
            return replace(task.usual_request, input_payload=self.payload)
        return self.own_request()

    def own_request(self) -> NewExecution:
        """The same, from all options of this call and its task."""
        options, task = self.options, self.task
        bounds = task.bounds if task else UNBOUNDED
        budgets = bounds.budget_ids if options.budgets is None else tuple(options.budgets)
        lane = options.lane
        if lane is None:
            lane = task.lane if task else "default"
        priority = options.priority
        if priority is None and task is not None:
            priority = task.priority
        return NewExecution(
            lane_id=lane,
            execution_kind=self.kind,
            input_payload=self.payload,
            payload_encoding=codec.JSON,
            priority=priority,
            idempotency_key=options.key,
            budget_ids=budgets,
            quota_policy_id=bounds.quota_policy_id if options.quota is None else options.quota,
            concurrency_key=self._concurrency_key(),
            tags={} if options.tags is None else options.tags,
            policy=options.applied_to(task.policy if task else DEFAULT_POLICY),
            delay_until=options.delay_until(),
            delay_ms=options.delay_ms(),
            execution_deadline_at=options.deadline_at(),
        )

    def _concurrency_key(self) -> str | None:
        task = self.task
        if self.options.concurrency_key is not None or task is None:
            return self.options.concurrency_key
        if task.key_of is not None:
            return task.key_of(self.payload, self.pending)
        return task.bounds.concurrency_key
