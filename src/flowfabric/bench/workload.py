"""The measured work: an execution for the engine's own calls, a task for the SDK, and the part of a
worker process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.api.executions import NewExecution
from flowfabric.clock import monotonic
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.task import Task

KIND = "bench"
LANE = "default"
WORKER = "bench-worker"
PAYLOAD = b'{"bench":"' + b"x" * 88 + b'"}'  # 100 bytes
RESULT = b'{"answer":"xxxxxxx"}'  # 20 bytes
TOPIC = "x" * 80  # with its name and quotes about 100 bytes of payload


def new_execution() -> NewExecution:
    """The unit of every scenario: 100 bytes in."""
    return NewExecution(
        execution_kind=KIND, input_payload=PAYLOAD, payload_encoding="json", lane_id=LANE
    )


class Tally:
    """Counts the handlers that ran."""

    def __init__(self) -> None:
        self.handled = 0


def no_op_task(fabric: Fabric, tally: Tally) -> Task[..., str]:
    """A handler that does nothing but return."""

    @fabric.task(name="bench")
    async def no_op(topic: str) -> str:
        tally.handled += 1
        return "done"

    return no_op


class Stopwatch:
    """The times of the first claim call and of the last completion's reply.

    It looks at whole calls, so it costs nothing per execution.
    """

    def __init__(self, engine: EngineBackend) -> None:
        self.first_claim_at: float | None = None
        self.last_completion_at: float | None = None
        self.completed = 0
        self.on_completion: Callable[[], None] = lambda: None
        for name, watched in (
            ("claim", self._claim(engine.claim)),
            ("complete_many", self._complete(engine.complete_many)),
        ):
            setattr(engine, name, watched)

    @property
    def seconds(self) -> float:
        """From the first claim that found work to the last completion."""
        return (self.last_completion_at or 0.0) - (self.first_claim_at or 0.0)

    def _claim(self, claim: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watched(**offer: Any) -> Any:
            asked_at = monotonic()
            claimed = await claim(**offer)
            if claimed and self.first_claim_at is None:
                self.first_claim_at = asked_at
            return claimed

        return watched

    def _complete(self, complete: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watched(requests: Any) -> Any:
            replies = await complete(requests)
            self.last_completion_at = monotonic()
            self.completed += sum(not isinstance(reply, Exception) for reply in replies)
            self.on_completion()
            return replies

        return watched
