"""Doubles: functions in the place of steps and tasks, and a record of calls."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from flowfabric.errors import InvalidInput
from flowfabric.model.shown import shown
from flowfabric.sdk.journal.steps import Step
from flowfabric.sdk.task import Task

NOTHING: Final[Any] = object()
Target = Step[..., Any] | Task[..., Any] | Callable[..., Any] | str


@dataclass(frozen=True, slots=True)
class StepRun:
    """One time that the function of a step ran."""

    execution_id: str
    key: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(slots=True)
class Spy:
    """What a step or a task was called with."""

    name: str
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    keywords: list[dict[str, Any]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How often."""
        return len(self.calls)

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """One more call."""
        self.calls.append(args)
        self.keywords.append(kwargs)


@dataclass(frozen=True, slots=True)
class Double:
    """What a stub does."""

    returns: Any = None
    raises: BaseException | type[BaseException] | None = None
    side_effect: Callable[..., Any] | None = None

    async def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """In the place of the function."""
        if self.raises is not None:
            raise self.raises
        if self.side_effect is None:
            return copy.deepcopy(self.returns)
        answer = self.side_effect(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer


def double_of(returns: Any, raises: Any, side_effect: Any) -> Double:
    """Checked: one of the three."""
    given = [each for each in (returns, raises, side_effect) if each is not NOTHING]
    if len(given) != 1:
        detail = "stub: give one of returns=, raises= and side_effect="
        raise InvalidInput(detail, field="returns")
    if returns is not NOTHING:
        return Double(returns=returns)
    if raises is not NOTHING:
        return Double(raises=raises)
    return Double(side_effect=side_effect)


def name_of_target(target: Target) -> str:
    """The name by which doubles are found: that of the step or task."""
    if isinstance(target, str):
        return target
    if isinstance(target, Step):
        return target.plan.name
    if isinstance(target, Task):
        return target.name
    name = getattr(target, "__name__", None)
    if name is None:
        detail = f"target: {shown(target, 80)} is no step, task or name of one"
        raise InvalidInput(detail, field="target")
    return str(name)


def doubled(task: Task[..., Any], double: Double, spy: Callable[..., None]) -> Task[..., Any]:
    """The task with another function."""
    twin = copy.copy(task)
    takes_context = task.signature.takes_context

    async def function(*args: Any, **kwargs: Any) -> Any:
        own = args[1:] if takes_context else args
        spy(own, kwargs)
        return await double.call(own, kwargs)

    twin.function = function
    twin.is_async = True
    return twin


def observed(task: Task[..., Any], spy: Callable[..., None]) -> Task[..., Any]:
    """The task with a record of its calls."""
    twin = copy.copy(task)
    own = 1 if task.signature.takes_context else 0

    if task.is_async:

        async def function(*args: Any, **kwargs: Any) -> Any:
            spy(args[own:], kwargs)
            return await task.function(*args, **kwargs)

        twin.function = function
        return twin

    def plain(*args: Any, **kwargs: Any) -> Any:
        spy(args[own:], kwargs)
        return task.function(*args, **kwargs)

    twin.function = plain
    return twin
