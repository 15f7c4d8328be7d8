"""The fabric as its tasks, runs and flows see it."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from flowfabric.api.backend import EngineBackend

if TYPE_CHECKING:  # they remember their home
    from flowfabric.sdk.options import SubmitOptions
    from flowfabric.sdk.run import Run
    from flowfabric.sdk.task import Call, Task

R = TypeVar("R")


class Home(Protocol):
    """The methods that a task, a run or a flow needs of the fabric that made it."""

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """Every task by its name."""
        ...

    def add_task(self, task: Task[..., Any]) -> Task[..., Any]:
        """Register a task."""
        ...

    def call_of(
        self, task: object, options: SubmitOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call[Any]:
        """A task, or the name of one, with its arguments."""
        ...

    @property
    def engine_here(self) -> EngineBackend | None:
        """The engine, once it has started."""
        ...

    async def start(self) -> EngineBackend:
        """The running engine."""
        ...

    def submit_call(self, call: Call[R]) -> Coroutine[Any, Any, Run[R]]:
        """Submit a prepared call. In a handler it takes its place in the journal at once."""
        ...
