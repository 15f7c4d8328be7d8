"""Flows for code without asyncio: their calls block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flowfabric.callers import blocking_driver
from flowfabric.model.flow import CancellationPolicy, FlowState
from flowfabric.model.flow_results import FlowSnapshot
from flowfabric.sdk.durations import Duration
from flowfabric.sdk.flow.flow import Graph
from flowfabric.sdk.flow.run import FlowRun, NodeChange
from flowfabric.sdk.spend import Spend

if TYPE_CHECKING:  # the blocking fabric makes these
    from flowfabric.sdk.blocking import SyncFabric
    from flowfabric.sdk.fabric import Fabric
    from flowfabric.sdk.sync_run import SyncRun


class SyncFlow(Graph):
    """A `Flow` with a `submit` that blocks. Made by `ff.sync.flow`.

    ```
    with ff.sync.flow("report") as f:
        f.add(total, parts=f.map(count_words, pages))
    print(f.submit().result()["total"])
    ```
    """

    def __init__(self, sync: SyncFabric, fabric: Fabric, kind: str, **options: Any) -> None:
        super().__init__(fabric, kind, **options)
        self._sync = sync
        self._run: SyncFlowRun | None = None
        self._by: object = None  # the handler that submitted it

    def submit(self, *, connection: Any = None) -> SyncFlowRun:
        """Record the whole flow durably, or nothing of it: see `Flow.submit`."""
        handler = self._sync.handler_here() if connection is None else None
        run = self._run if connection is None and self._by is handler else None
        if run is None:
            if handler is not None:
                request, submits = self.request(), handler.journal.submits
                recording = submits.answer(submits.place_flow(request), request)
                made = self._run_of(self._fabric, handler.wait_for(recording))
            else:
                own = None if connection is None else blocking_driver(connection)
                made = self._sync.wait(self.record(self._fabric, own))
            run = SyncFlowRun(self._sync, made)
        if connection is None:
            self._run, self._by = run, handler
        self._is_closed = True
        return run


class SyncFlowRun:
    """A `FlowRun` with methods that block."""

    __slots__ = ("_run", "_sync")

    def __init__(self, sync: SyncFabric, run: FlowRun) -> None:
        self._sync = sync
        self._run = run

    def __repr__(self) -> str:
        return f"SyncFlowRun({self.flow_id!r})"

    @property
    def flow_id(self) -> str:
        """The id of the flow."""
        return self._run.flow_id

    @property
    def is_new(self) -> bool:
        """False when the key found an earlier submission."""
        return self._run.is_new

    def result(self, timeout: Duration | None = None) -> dict[str, Any]:
        """Wait for the end and give the results by node name: see `FlowRun.result`."""
        return self._sync.wait(self._run.result(timeout))

    def nodes(self) -> dict[str, SyncRun[Any]]:
        """The run of each node, by its name."""
        from flowfabric.sdk.sync_run import SyncRun

        found = self._sync.wait(self._run.nodes())
        return {name: SyncRun(self._sync, run) for name, run in found.items()}

    def spend(self) -> Spend:
        """What its members have spent so far: see `FlowRun.spend`."""
        return self._sync.wait(self._run.spend())

    def state(self) -> FlowState:
        """Its state, in one word."""
        return self._sync.wait(self._run.state())

    def info(self) -> FlowSnapshot:
        """Everything known about it."""
        return self._sync.wait(self._run.info())

    def cancel(
        self,
        reason: str = "",
        *,
        policy: str | CancellationPolicy = "all",
        wait: Duration | None = None,
    ) -> None:
        """Cancel the flow: see `FlowRun.cancel`."""
        self._sync.wait(self._run.cancel(reason, policy=policy, wait=wait))

    def retry(self, reason: str = "") -> list[str]:
        """Run lost nodes again: see `FlowRun.retry`."""
        return self._sync.wait(self._run.retry(reason))

    def watch(self) -> Iterator[NodeChange]:
        """Each node's state, then each change, until the flow has ended."""
        changes = self._run.watch()
        change = self._sync.wait(_next(changes))
        try:
            while change is not None:
                yield change
                change = self._sync.wait(_next(changes))
        finally:
            self._sync.wait(_close(changes))


async def _next(changes: Any) -> NodeChange | None:
    change: NodeChange | None = await anext(changes, None)
    return change


async def _close(changes: Any) -> None:
    await changes.aclose()
