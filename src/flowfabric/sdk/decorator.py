"""`@ff.task`: makes a task of a function. It can still be called as the function it was."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, Unpack, overload

from flowfabric.model.shown import shown
from flowfabric.sdk.context.context import Context, SyncContext
from flowfabric.sdk.errors import InvalidTask
from flowfabric.sdk.home import Home
from flowfabric.sdk.options import TASK_OPTION_NAMES, TaskKeywords, TaskOptions
from flowfabric.sdk.signature import Signature
from flowfabric.sdk.task import Task

P = ParamSpec("P")
R = TypeVar("R")

_CONTEXTS: Final = {Context.__name__: Context, SyncContext.__name__: SyncContext}


class AsyncTask(Task[P, R]):
    """A task made of an async function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function itself, here and now."""
        result: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return result


class AsyncContextTask(Task[P, R]):
    """A task made of an async function that takes a context."""

    def __call__(
        self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Call the function itself, here and now."""
        result: Coroutine[Any, Any, R] = self.function(ctx, *args, **kwargs)
        return result


class SyncTask(Task[P, R]):
    """A task made of a plain function: a worker runs it in a thread."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, here and now."""
        result: R = self.function(*args, **kwargs)
        return result


class SyncContextTask(Task[P, R]):
    """A task made of a plain function that takes a context: a worker runs it in a thread."""

    def __call__(self, ctx: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, here and now."""
        result: R = self.function(ctx, *args, **kwargs)
        return result


_CLASSES: dict[tuple[bool, bool], type[Task[..., Any]]] = {
    (True, False): AsyncTask,
    (True, True): AsyncContextTask,
    (False, False): SyncTask,
    (False, True): SyncContextTask,
}


class TaskDecorator:
    """`@ff.task` and `@ff.task(lane=…, retries=…)`.

    `name`: the kind of the executions, the function's name unless given. `lane`: the queue.
    `needs`: capabilities a worker must offer. `retries`: how many attempts may follow a failed
    one, or a `RetryPolicy`. `retry_on`: only these exceptions (classes or names, subclasses
    included) are retried. `backoff`: the pause between attempts, a duration or a policy.
    `timeout`: for one attempt. `deadline`: for the whole execution. `priority`: larger first.
    `recoveries`: how many lost workers are forgiven. `retention`: how long it is kept when done;
    `failed_retention`: when it failed or expired, if not for the same time.
    `budgets`: what it spends from; it starts only while each has room. `quota`: how many may start
    per window and run at once, for each `concurrency_key` by itself: a text, or a function of some
    per window and run at once, for each `concurrency_key` by itself: a text, or a function of some
    of the task's arguments, such as `lambda customer: customer`. `fair`: executions of one key,
    given likewise, share the lane with those of others, however many wait. `serial`: those of one
    key run one at a time in order of submission; with `on_head_failure="hold"` a failed one holds
    up those behind it. `log_level`: from which level on
    what it logs is kept with the run, `info` unless given; None keeps nothing. `version`: of its
    code, recorded with what it does; with `pin` only workers that have it run what was submitted
    with it, or list it in `accepts`. `on_mismatch`: `fail` fails a run that the code does not fit,
    which is held otherwise. `on_success`, `on_failure` (it failed or expired) and `on_end`: tasks,
    or names of tasks, of which a run is created in the transaction in which one of this task ends;
    each is told how, as a `RunEnded`. `undo_stops`: an undo that does not succeed stops those that
    were to follow it.
    """

    def __init__(self, fabric: Home, options: TaskOptions | None = None) -> None:
        self._fabric = fabric
        self._options = options or TaskOptions()

    # A coroutine function is also a function that returns something, so mypy sees an overlap. The
    # first matching overload is the right one.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncContextTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[SyncContext, P], R], /
    ) -> SyncContextTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def __call__(
        self, function: None = None, /, **options: Unpack[TaskKeywords]
    ) -> TaskDecorator: ...

    def __call__(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a task of a function, or a decorator with these options."""
        for name in options.keys() - TASK_OPTION_NAMES:
            known = ", ".join(sorted(TASK_OPTION_NAMES))
            raise InvalidTask(f"task: has no option {name!r}; options are {known}", field=name)
        chosen = TaskOptions(**options) if options else self._options
        if function is None:
            return TaskDecorator(self._fabric, chosen)
        return self._fabric.add_task(make_task(self._fabric, function, chosen))


def make_task(fabric: Home, function: Callable[..., Any], options: TaskOptions) -> Task[..., Any]:
    """A task of the class that fits the function."""
    if not inspect.isroutine(function):
        raise InvalidTask(f"{shown(function, 80)} is not a function", field="function")
    options.check()
    name = options.name or function.__name__
    form = Signature(function, task=name, takes_context=_takes_context(function, name))
    form.resolve()
    fitting = _CLASSES[inspect.iscoroutinefunction(function), form.takes_context]
    return fitting(fabric, function, options, form)


def _takes_context(function: Callable[..., Any], task: str) -> bool:
    """Whether the first parameter is to be injected; the wrong kind of context is refused."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None:
        return False
    annotation = first.annotation
    wanted = SyncContext if not inspect.iscoroutinefunction(function) else Context
    if isinstance(annotation, str):  # annotations may be unevaluated text
        annotation = _CONTEXTS.get(annotation.rpartition(".")[2], annotation)
    if annotation in (Context, SyncContext):
        if annotation is not wanted:
            how = "is not async: annotate" if wanted is SyncContext else "is async: annotate"
            detail = f"{task}: the function {how} {first.name}: {wanted.__name__}"
            raise InvalidTask(detail, field=first.name)
        return True
    return first.name == "ctx" and annotation in (inspect.Parameter.empty, Any)
