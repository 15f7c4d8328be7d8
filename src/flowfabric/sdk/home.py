"""The fabric as its tasks, runs and flows know it: where they belong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from flowfabric.api.backend import EngineBackend

if TYPE_CHECKING:  # they remember their home
    from flowfabric.sdk.run import Run
    from flowfabric.sdk.task import Call, Task

R = TypeVar("R")


class Home(Protocol):
    """What a task, a run or a flow asks of the fabric that made it."""

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """Every task by its name."""
        ...

    def add_task(self, task: Task[..., Any]) -> Task[..., Any]:
        """Make a task known."""
        ...

    async def start(self) -> EngineBackend:
        """The running engine."""
        ...

    async def submit_call(self, call: Call[R]) -> Run[R]:
        """Submit a prepared call."""
        ...
