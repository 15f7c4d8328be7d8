"""Tasks: functions that can be submitted."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, Unpack, cast

from flowfabric.api.executions import NewExecution, NewHook, NewUnique
from flowfabric.errors import InvalidInput
from flowfabric.model.bounds import UNBOUNDED
from flowfabric.model.policy import DEFAULT_POLICY, ExecutionPolicy
from flowfabric.model.record import Record, replace
from flowfabric.model.shown import shown
from flowfabric.model.successor import FlowEnded, RunEnded
from flowfabric.model.words import HeadFailure
from flowfabric.sdk import codec
from flowfabric.sdk.home import Home
from flowfabric.sdk.keys import KeyOf
from flowfabric.sdk.mailboxes import read_mailboxes
from flowfabric.sdk.options import (
    HOOK_NAMES,
    NO_OPTIONS,
    SubmitKeywords,
    SubmitOptions,
    TaskOptions,
)
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
        self.mailboxes = read_mailboxes(options.mailboxes)
        self.log_level = options.lowest_level()
        self.undo_stops = options.undo_stops
        key = options.concurrency_key
        self.key_of = KeyOf(key, form) if callable(key) else None
        self.order = options.order()
        serial = options.serial
        self.serial_of = KeyOf(serial, form, "serial") if callable(serial) else None
        fair = options.fair
        self.fair_of = KeyOf(fair, form, "fair") if callable(fair) else None
        unique = options.unique
        self.unique_of = KeyOf(unique, form, "unique") if callable(unique) else None
        retry = self.policy.retry_policy
        self.retry_on = frozenset(retry.retryable_categories if retry else ())
        self.hooks = {name: hook for name in HOOK_NAMES if (hook := getattr(options, name))}
        for name, hook in self.hooks.items():
            check_hook(hook, name)

    def __repr__(self) -> str:
        return f"<task {self.name} on lane {self.lane}>"

    @property
    def has_computed_keys(self) -> bool:
        """Whether any of its keys is computed from its arguments."""
        computed = (self.key_of, self.fair_of, self.serial_of, self.unique_of)
        return any(each is not None for each in computed)

    @cached_property
    def mailbox_schemas(self) -> dict[str, str | None]:
        """The schemas of what comes to its mailboxes, by their names."""
        return {name: each.schema for name, each in self.mailboxes.items()}

    @cached_property
    def usual_request(self) -> NewExecution:
        """The request of calls without options, without its payload: thousands may be submitted at
        once, and differ in nothing else."""
        return Call(self.name, b"", NO_OPTIONS, self).own_request()

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Run[R]]:
        """Record the work durably; a worker runs it. See `Fabric.submit`."""
        return self.fabric.submit_call(self.call(*args, **kwargs))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The task with its arguments, checked and not yet submitted: see `submit_many`."""
        return self.call_with(NO_OPTIONS, args, kwargs)

    def options(self, **options: Unpack[SubmitKeywords]) -> TaskWithOptions[P, R]:
        """The task with submit options: the keyword arguments of `Fabric.submit`."""
        return TaskWithOptions(self, NO_OPTIONS.but(**options))

    @cached_property
    def hook_argument(self) -> str | None:
        """The argument in which it is told, as a hook, how a run ended; None if it has none."""
        return self._argument_for(RunEnded("", "", ""))

    @cached_property
    def flow_hook_argument(self) -> str | None:
        """The same, if it follows a flow."""
        return self._argument_for(FlowEnded("", "", ""))

    def _argument_for(self, told: RunEnded | FlowEnded) -> str | None:
        form = self.signature
        required = [each for each in form.parameters if not form.may_lack(each.name)]
        if len(required) > 1:
            names = ", ".join(each.name for each in required[1:])
            detail = f"{self.name}: a hook gets one argument, a {type(told).__name__}; this task"
            detail = f"{detail} needs {names}"
            raise InvalidInput(f"{detail} too", field=required[1].name)
        if not form.parameters:
            return None
        name = (required or form.parameters)[0].name
        form.encode({name: told})  # refused if it does not fit
        return name

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

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Run[R]]:
        """Record the work durably; a worker runs it. See `Fabric.submit`."""
        return self.task.fabric.submit_call(self.call(*args, **kwargs))

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
        if self.options is NO_OPTIONS and task is not None and not task.has_computed_keys:
            return replace(task.usual_request, input_payload=self.payload)
        return self.own_request()

    def own_request(self) -> NewExecution:
        """The same, from all options of this call and its task."""
        request, hooks = self.hookless_request(), self._hooks()
        if self.task is not None and self.task.undo_stops:
            request = replace(request, undo_stops=True)
        return replace(request, **hooks) if hooks else request

    def hookless_request(self) -> NewExecution:
        """The same, without what follows its end."""
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
            serial_key=(serial := self._serial_key()),
            on_head_failure=HeadFailure.NEXT
            if task is None or serial is None
            else task.order.on_head_failure,
            unique=self._unique(),
            fair_key=self._fair_key(),
            tags={} if options.tags is None else options.tags,
            policy=options.applied_to(task.policy if task else DEFAULT_POLICY),
            delay_until=options.delay_until(),
            delay_ms=options.delay_ms(),
            execution_deadline_at=options.deadline_at(),
            mailboxes={} if task is None else task.mailbox_schemas,
        )

    def _hooks(self) -> dict[str, NewHook]:
        """What follows its end: as this call says, else as its task does."""
        task, options = self.task, self.options
        given: dict[str, Any] = {} if task is None else dict(task.hooks)
        for name in HOOK_NAMES:
            if (hook := getattr(options, name)) is not None:
                given[name] = hook
        tasks = {} if task is None else task.fabric.tasks
        return {name: new_hook(hook, name, tasks) for name, hook in given.items()}

    def _concurrency_key(self) -> str | None:
        task = self.task
        if self.options.concurrency_key is not None or task is None:
            return self.options.concurrency_key
        if task.key_of is not None:
            return task.key_of(self.payload, self.pending)
        return task.bounds.concurrency_key

    def _unique(self) -> NewUnique | None:
        """The unique key and what it means; a key of None is none."""
        task, key = self.task, self.options.unique
        if key is None and task is not None:
            key = task.order.unique
            if task.unique_of is not None:
                key = task.unique_of(self.payload, self.pending)
        if key is None:
            return None
        return NewUnique(key=key) if task is None else task.order.meaning(key)

    def _fair_key(self) -> str | None:
        task = self.task
        if self.options.fair is not None or task is None:
            return self.options.fair
        if task.fair_of is not None:
            return task.fair_of(self.payload, self.pending)
        return task.order.fair

    def _serial_key(self) -> str | None:
        task = self.task
        if self.options.serial is not None or task is None:
            return self.options.serial
        if task.serial_of is not None:
            return task.serial_of(self.payload, self.pending)
        return task.order.serial


NOT_FOR_HOOKS: Final = ("key", "tags", "start_at", "deadline", "connection", *HOOK_NAMES)


def check_hook(given: object, field: str) -> None:
    """Refuse anything that is no task and no name of one."""
    if not isinstance(given, Task | TaskWithOptions | str) or given == "":
        detail = f"{field}: {shown(given, 80)} is no task and no name of one"
        raise InvalidInput(detail, field=field)


def new_hook(
    given: Any, field: str, tasks: Mapping[str, Task[..., Any]], *, of_flow: bool = False
) -> NewHook:
    """A task as what follows the end of a run or a flow, with its own lane, priority, retries and
    limits.

    `tasks`: those that are known by name. One that is not is told it as `ended`.
    """
    check_hook(given, field)
    options = NO_OPTIONS
    if isinstance(given, TaskWithOptions):
        given, options = given.task, given.chosen
    for name in NOT_FOR_HOOKS:
        if getattr(options, name) is not None:
            raise InvalidInput(f"{field}: {name}= is not for hooks", field=name)
    task = tasks.get(given) if isinstance(given, str) else given
    if task is None:
        return NewHook(execution_kind=given)
    try:
        argument = task.flow_hook_argument if of_flow else task.hook_argument
    except InvalidInput as error:
        error.detail = f"{field}: {error.detail}"
        raise
    if task.key_of is not None and options.concurrency_key is None:
        detail = f"{field}: the concurrency_key of {task.name} is made of arguments, which a hook"
        raise InvalidInput(f"{detail} has none of; give one by its options", field=field)
    if (options.serial or task.order.serial or task.serial_of) is not None:
        raise InvalidInput(f"{field}: {task.name} is serial, and a hook joins no line", field=field)
    if (options.fair or task.order.fair or task.fair_of) is not None:
        raise InvalidInput(f"{field}: {task.name} is fair, and a hook has no fair key", field=field)
    if (options.unique or task.order.unique or task.unique_of) is not None:
        raise InvalidInput(f"{field}: {task.name} is unique, and each end has a hook", field=field)
    made = Call(task.name, b"", options, task).hookless_request()
    policy = cast("ExecutionPolicy", made.policy or DEFAULT_POLICY)
    delay_ms = options.delay_ms()
    return NewHook(
        execution_kind=made.execution_kind,
        argument=argument,
        lane_id=made.lane_id,
        priority=made.priority,
        budget_ids=made.budget_ids,
        quota_policy_id=made.quota_policy_id,
        concurrency_key=made.concurrency_key,
        policy=policy if delay_ms is None else replace(policy, delay_ms=delay_ms),
        mailboxes=made.mailboxes,
    )
