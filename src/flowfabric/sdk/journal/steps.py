"""`@ff.step` and `ctx.step`: functions whose results are recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import update_wrapper
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from flowfabric.sdk.errors import OutsideScope
from flowfabric.sdk.journal.calls import StepCall
from flowfabric.sdk.journal.journal import Journal
from flowfabric.sdk.journal.plan import (
    NO_STEP_OPTIONS,
    EveryKeyword,
    Plan,
    StepKeywords,
    StepOptions,
    plan_of,
    plan_of_call,
)
from flowfabric.sdk.journal.scopes import own_scope, scope_here
from flowfabric.sdk.journal.transactions import plainly

P = ParamSpec("P")
R = TypeVar("R")


class Step(Generic[P, R]):
    """A function whose calls in a handler are recorded. Made by `@ff.step`.

    Outside of a handler it is the function it was.
    """

    __name__: str

    def __init__(self, function: Callable[P, R], options: StepOptions) -> None:
        update_wrapper(cast("Callable[..., Any]", self), function)
        self._options = options
        self.function = function
        self.plan = plan_of(function, options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it: the recorded result, or the function itself, whose result is recorded.

        In an async handler, await it; in a sync one it blocks, and an async function runs on the
        loop of the worker.
        """
        return cast("R", called(self.plan, args, kwargs))

    def later(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[Any]:
        """A call that has its key and is not made yet, for `ctx.gather`."""
        scope = scope_here(self.plan.name, has_key=self.plan.key is not None)
        if scope is None:
            detail = f"{self.plan.name}: `later` is for handlers; call the function itself"
            raise OutsideScope(detail)
        return StepCall(scope, self.plan, args, kwargs)

    def options(self, **options: Unpack[StepKeywords]) -> Step[P, R]:
        """The step with other options: `charge.options(key="user-7")(7)`."""
        return Step(self.function, self._options.but(**options))

    def __repr__(self) -> str:
        return f"<step {self.plan.name}>"


class TransactionDecorator(Protocol):
    """`@ff.step(transaction=pool)`: the first argument of the function is a connection, which
    callers do not give."""

    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> Step[P, R]:
        """Make a step of a function."""
        ...


class StepDecorator:
    """`@ff.step` and `@ff.step(retries=3, timeout="30s")`; `StepOptions` says what each means."""

    def __init__(self, options: StepOptions = NO_STEP_OPTIONS) -> None:
        self._options = options

    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def __call__(
        self, function: None = None, /, *, transaction: Any, **options: Unpack[StepKeywords]
    ) -> TransactionDecorator: ...
    @overload
    def __call__(
        self, function: None = None, /, **options: Unpack[StepKeywords]
    ) -> StepDecorator: ...

    def __call__(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a step of a function, or a decorator with these options."""
        chosen = self._options.but(**options) if options else self._options
        return StepDecorator(chosen) if function is None else Step(function, chosen)


def called(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that may be made anywhere: outside of handlers it is one of the plain function."""
    scope = scope_here(plan.name, has_key=plan.key is not None)
    if scope is None and plan.pool is not None:
        return plainly(plan.pool, plan.function, plan.is_async)(*args, **kwargs)
    if scope is None:
        return plan.function(*args, **kwargs)
    call: StepCall[Any] = StepCall(scope, plan, args, kwargs)
    return call.blocking() if scope.journal.is_blocking else call


def prepared(
    journal: Journal, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> StepCall[Any]:
    """A call by the context of a handler, not made yet."""
    return StepCall(own_scope(plan.name, journal, has_key=plan.key is not None), plan, args, kwargs)


class Stepper:
    """`ctx.step` of an async handler: runs a function once and records what it returned."""

    __slots__ = ("_journal", "_options")

    def __init__(self, journal: Journal, options: StepOptions = NO_STEP_OPTIONS) -> None:
        self._journal = journal
        self._options = options

    @overload
    def __call__(
        self,
        name: str,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Awaitable[R]: ...
    @overload
    def __call__(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[R]: ...

    def __call__(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Awaitable[Any]:
        """The call, to be awaited. All keyword arguments are the function's."""
        return prepared(self._journal, plan_of_call(name, function, self._options), args, kwargs)

    def options(self, **options: Unpack[EveryKeyword]) -> Stepper:
        """With options: `await ctx.step.options(retries=3)("fetch", fetch, url)`."""
        return Stepper(self._journal, self._options.but(**options))


class SyncStepper:
    """`ctx.step` of a sync handler: the same, blocking its thread."""

    __slots__ = ("_journal", "_options")

    def __init__(self, journal: Journal, options: StepOptions = NO_STEP_OPTIONS) -> None:
        self._journal = journal
        self._options = options

    @overload
    def __call__(
        self,
        name: str,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    def __call__(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    def __call__(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """The result. All keyword arguments are the function's."""
        call = prepared(self._journal, plan_of_call(name, function, self._options), args, kwargs)
        return call.blocking()

    def later(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Awaitable[Any]:
        """A call that is not made yet, for `ctx.gather`."""
        return prepared(self._journal, plan_of_call(name, function, self._options), args, kwargs)

    def options(self, **options: Unpack[EveryKeyword]) -> SyncStepper:
        """With options: see `Stepper.options`."""
        return SyncStepper(self._journal, self._options.but(**options))
