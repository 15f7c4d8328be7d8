"""Bulk operations: one change to all runs that a filter selects, as durable work."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.errors import InvalidInput, NotFound, WaitTimeout
from flowfabric.model.bulk import BulkCounted, BulkOperation
from flowfabric.sdk.dead import DeadLetters
from flowfabric.sdk.durations import Duration, to_ms
from flowfabric.sdk.selecting import RunFilter, own_listing

T = TypeVar("T")
Opened = Callable[[], Awaitable[EngineBackend]]

_LOOK_EVERY_S: Final = 0.2


class Operation:
    """The handle of one operation."""

    def __init__(self, opened: Opened, operation_id: str) -> None:
        self._opened = opened
        self.id = operation_id

    def __repr__(self) -> str:
        return f"<Operation {self.id}>"

    async def info(self) -> BulkOperation:
        """How far it is: `state`, `matched`, `done`, `unchanged` and `refused` by error code."""
        engine = await self._opened()
        found = await engine.describe_operation(operation_id=self.id)
        if found is None:
            raise NotFound(f"operation {self.id}", entity="operation")
        return found

    async def stop(self) -> BulkOperation:
        """Change nothing more; what was done stays done."""
        return await (await self._opened()).stop_operation(operation_id=self.id)

    async def wait(self, timeout: Duration | None = None) -> BulkOperation:
        """The outcome once it is over. An engine with loops must run: that of a worker, or this.

        ```
        operation = await ff.operations.start("cancel", RunFilter(kind="crawl"))
        print((await operation.wait("5m")).done)
        ```
        """
        left_ms = None if timeout is None else to_ms(timeout, field="timeout")
        while not (found := await self.info()).is_over:
            if left_ms is not None and left_ms <= 0:
                raise WaitTimeout(f"operation {self.id} goes on: {found.handled} so far")
            pause_s = _LOOK_EVERY_S if left_ms is None else min(_LOOK_EVERY_S, left_ms / 1000)
            await asyncio.sleep(pause_s)
            left_ms = None if left_ms is None else left_ms - max(1, int(pause_s * 1000))
        return found


class Operations:
    """`ff.operations`: start, find and stop changes to many runs.

    ```
    operation = await ff.operations.start("retry", RunFilter(kind=brief, since="1d"))
    async with asyncio.timeout(60):
        outcome = await operation.wait()
    ```
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    async def start(
        self,
        action: str,
        chosen: RunFilter,
        *,
        reason: str = "",
        priority: int | None = None,
        cascade: bool = False,
        fresh: bool = False,
        limit: int | None = None,
    ) -> Operation:
        """Begin to cancel, retry, hold or release all runs that fit, or to give them a priority.

        Without a state in the filter, those that the action is for. It goes on when this program
        ends, acts on each run at most once, and leaves later ones alone. `limit`: so many at most,
        newest first. The rest is as in `cancel_many` and `retry_many`.
        """
        engine = await self._opened()
        begun = await engine.start_operation(
            action=action,
            **await _listing(engine, chosen),
            reason=reason,
            new_priority=priority,
            cascade=cascade,
            fresh=fresh,
            limit=limit,
        )
        assert isinstance(begun, BulkOperation)  # noqa: S101 - what a start that is no dry run answers
        return Operation(self._opened, begun.operation_id)

    async def count(self, action: str, chosen: RunFilter) -> int:
        """How many runs such an operation would be about; nothing is changed."""
        engine = await self._opened()
        asked = await _listing(engine, chosen)
        if action == "priority":
            asked["new_priority"] = 0
        found = await engine.start_operation(action=action, dry_run=True, **asked)
        assert isinstance(found, BulkCounted)  # noqa: S101 - what a dry run answers
        return found.matched

    def get(self, operation_id: str) -> Operation:
        """The handle of an operation by its id."""
        return Operation(self._opened, operation_id)

    async def list(self, *, state: str | None = None) -> list[BulkOperation]:
        """All operations, or those in a state (running, done, stopped), newest first."""
        engine = await self._opened()
        return await every_item(lambda cursor: engine.list_operations(state=state, cursor=cursor))


class BulkMethods:
    """The part of a fabric that changes many runs as durable work."""

    @abstractmethod
    async def start(self) -> EngineBackend:
        """The running engine."""

    @property
    def operations(self) -> Operations:
        """Changes to many runs, as durable work: see `Operations`."""
        return Operations(self.start)

    @property
    def dead(self) -> DeadLetters:
        """Runs that failed or expired, until they are run again or dismissed."""
        return DeadLetters(self.start)


async def _listing(engine: EngineBackend, chosen: object) -> dict[str, Any]:
    if not isinstance(chosen, RunFilter):
        detail = f"chosen: expected a RunFilter, got {type(chosen).__name__}"
        raise InvalidInput(detail, field="chosen")
    return await own_listing(engine, chosen)


# --- without asyncio ------------------------------------------------------------------------------

Waits = Callable[[Coroutine[Any, Any, Any]], Any]


class SyncOperation:
    """The handle of one operation, for code without asyncio."""

    def __init__(self, waits: Waits, operation: Operation) -> None:
        self._waits = waits
        self._operation = operation
        self.id = operation.id

    def info(self) -> BulkOperation:
        """How far it is: see `Operation.info`."""
        found: BulkOperation = self._waits(self._operation.info())
        return found

    def stop(self) -> BulkOperation:
        """Change nothing more: see `Operation.stop`."""
        found: BulkOperation = self._waits(self._operation.stop())
        return found

    def wait(self, timeout: Duration | None = None) -> BulkOperation:
        """The outcome once it is over: see `Operation.wait`."""
        found: BulkOperation = self._waits(self._operation.wait(timeout))
        return found


class SyncOperations:
    """`ff.sync.operations`: the same without asyncio."""

    def __init__(self, waits: Waits, operations: Operations) -> None:
        self._waits = waits
        self._operations = operations

    def start(self, action: str, chosen: RunFilter, **options: Any) -> SyncOperation:
        """Begin one: options as in `Operations.start`."""
        begun = self._waits(self._operations.start(action, chosen, **options))
        return SyncOperation(self._waits, begun)

    def count(self, action: str, chosen: RunFilter) -> int:
        """How many runs it would be about: see `Operations.count`."""
        number: int = self._waits(self._operations.count(action, chosen))
        return number

    def get(self, operation_id: str) -> SyncOperation:
        """The handle of an operation by its id."""
        return SyncOperation(self._waits, self._operations.get(operation_id))

    def list(self, *, state: str | None = None) -> list[BulkOperation]:
        """All operations, newest first: see `Operations.list`."""
        found: list[BulkOperation] = self._waits(self._operations.list(state=state))
        return found
