"""One engine on one store with a clock that stands still, and short words for long calls."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import asyncpg
import pytest

from flowfabric.assemble import open_engine
from flowfabric.clock import ManualClock
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from flowfabric.model.event import BudgetEvent, CompletionEvent, LeaseEvent, OperatorEvent
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed, Created, ExecutionSnapshot
from flowfabric.model.state import PublicState
from tests.support.databases import config_for
from tests.support.kept import dumped
from tests.support.loopback import Loopback
from tests.support.runner import StepRunner
from tests.support.socketed import THROUGH_HTTP, Socketed

P = ParamSpec("P")

T = TypeVar("T")

STORES = ("memory", "sqlite", "postgres")
DURABLE_STORES = ("sqlite", "postgres")
LANE = "default"
TTL_MS = 30_000


def scenario(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a plain test of an async one: it runs to its end in the lab's own event loop."""

    @wraps(test)
    def plain(*args: P.args, **kwargs: P.kwargs) -> None:
        lab = kwargs["lab"] if "lab" in kwargs else kwargs["quick"]
        assert isinstance(lab, Lab)
        lab.run(test(*args, **kwargs))

    return plain


class Lab:
    """What a conformance test holds: the engine under test, its clock, and what is stored."""

    def __init__(
        self, url: str, *, runner: StepRunner | None = None, through_http: bool = THROUGH_HTTP
    ) -> None:
        self.url = url
        self._through_http = through_http
        self.clock = ManualClock()
        self.config = config_for(url)
        self.engine = self._opened()
        self._runner = runner or StepRunner()
        self._is_runner_shared = runner is not None
        self._watch: sqlite3.Connection | None = None

    @property
    def direct(self) -> Engine:
        """The engine itself, for what only a caller in its process can do."""
        return self.engine.engine if isinstance(self.engine, Loopback) else self.engine

    # --- opening and closing -------------------------------------------------------------------

    def _opened(self) -> Engine:
        """An engine; the one in memory is asked through bytes, so that nothing is asked or answered
        that could not cross a wire."""
        engine = open_engine(self.url, config=self.config, clock=self.clock)
        if self._through_http:
            engine = cast("Engine", Socketed(engine))
        elif self.url.startswith("memory:"):
            engine = cast("Engine", Loopback(engine))
        self._outermost = engine  # a test may go on with what is inside
        return engine

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run one coroutine to its end."""
        return self._runner.run(coroutine)

    def open(self) -> None:
        """Connect."""
        self.run(self.engine.start(migrate=True))

    def close(self) -> None:
        """Disconnect and leave nothing running."""
        if self._watch is not None:
            self._watch.close()
        self.run(self._outermost.close())
        if not self._is_runner_shared:
            self._runner.close()

    async def configure(self, **settings: Any) -> None:
        """Open the engine again with other settings (a memory store starts anew)."""
        await self._outermost.close()
        self.config = replace(self.config, **settings)
        self.engine = self._opened()
        await self.engine.start(migrate=True)

    @property
    def now(self) -> int:
        """The store's present."""
        return self.clock.now_ms()

    async def after(self, milliseconds: int) -> int:
        """Let time pass and everything happen that is due then."""
        self.clock.advance(milliseconds)
        return await self.engine.tick()

    # --- short words ---------------------------------------------------------------------------

    async def create(self, kind: str = "work", **fields: Any) -> str:
        """A new execution's id."""
        created = await self.engine.create_execution(execution_kind=kind, **fields)
        assert isinstance(created, Created)
        return created.execution_id

    async def claims(self, worker: str = "w1", **fields: Any) -> list[Claimed]:
        """Whatever a worker gets."""
        fields = {"lanes": (LANE,), "worker_instance_id": f"{worker}-1", **fields}
        fields.setdefault("lease_ttl_ms", TTL_MS)
        return await self.engine.claim(worker_id=worker, **fields)

    async def claim(self, worker: str = "w1", **fields: Any) -> Claimed:
        """The one execution a worker gets."""
        claimed = await self.claims(worker, **fields)
        assert len(claimed) == 1, f"{worker} was given {len(claimed)} executions"
        return claimed[0]

    async def started(self, worker: str = "w1", **fields: Any) -> Claimed:
        """A new execution that runs."""
        execution_id = await self.create(**fields)
        claimed = await self.claim(worker, lanes=(fields.get("lane_id", LANE),))
        assert claimed.execution_id == execution_id
        return claimed

    async def lapsed(self, **fields: Any) -> Claimed:
        """A claim whose lease has run out and was marked so, but not yet requeued."""
        claimed = await self.started(**fields)
        self.clock.set(claimed.lease_expires_at)
        await self.engine.mark_lease_expired_if_due(execution_id=claimed.execution_id)
        return claimed

    async def completed(self, result: bytes | None = b"done", **fields: Any) -> str:
        """A new execution that succeeded."""
        claimed = await self.started(**fields)
        await self.engine.complete(claimed.handle, result=result)
        return claimed.execution_id

    async def cancel(self, execution_id: str, reason: str = "not needed") -> Any:
        """Cancel as an operator."""
        return await self.engine.cancel_execution(
            execution_id=execution_id, reason=reason, source="operator_override"
        )

    async def describe(self, execution_id: str) -> ExecutionSnapshot:
        """The snapshot of an execution that must exist."""
        snapshot = await self.engine.describe_execution(execution_id=execution_id)
        assert snapshot is not None
        return snapshot

    async def state(self, execution_id: str) -> PublicState:
        """The one word."""
        return (await self.describe(execution_id)).public_state

    # --- what is stored ------------------------------------------------------------------------

    async def dump(self) -> dict[str, list[Any]]:
        """Everything stored."""
        return await dumped(self.engine.store)

    async def record(self, execution_id: str) -> Execution:
        """The stored image itself, secrets included."""
        for execution in (await self.dump())["executions"]:
            if isinstance(execution, Execution) and execution.execution_id == execution_id:
                return execution
        raise AssertionError(f"{execution_id} is not stored")

    async def completions(self, execution_id: str) -> list[CompletionEvent]:
        """The completion events of one execution."""
        events: list[CompletionEvent] = (await self.dump())["completion_events"]
        return [event for event in events if event.execution_id == execution_id]

    async def lease_events(self, execution_id: str) -> list[LeaseEvent]:
        """The lease events of one execution, in order."""
        events: list[LeaseEvent] = (await self.dump())["lease_events"]
        return [event for event in events if event.execution_id == execution_id]

    async def budget_events(self, budget_id: str) -> list[BudgetEvent]:
        """What happened to a budget, in order."""
        events: list[BudgetEvent] = (await self.dump())["budget_events"]
        return [event for event in events if event.budget_id == budget_id]

    async def operator_events(self, subject: str) -> list[OperatorEvent]:
        """What operators did to one execution or lane, in order."""
        events: list[OperatorEvent] = (await self.dump())["operator_events"]
        return [event for event in events if event.subject == subject]

    @asynccontextmanager
    async def unchanged(self, *besides: str) -> AsyncIterator[None]:
        """Nothing that is stored may differ afterwards, besides these tables."""
        if self._through_http:  # what operators ask for is written down, also if it changes nothing
            besides = (*besides, "ff_audit")
        before, mark = await self.dump(), await self._mark()
        yield
        if mark is not None and await self._mark() == mark:
            return
        after = await self.dump()
        for table, rows in before.items():
            assert table in besides or after[table] == rows, f"{table} changed"

    async def _mark(self) -> Any:
        """Another after each commit of a change; a dump reads every table to see that none was."""
        if self.url.startswith("sqlite"):
            if self._watch is None:
                self._watch = sqlite3.connect(self.url.removeprefix("sqlite:///"))
            return self._watch.execute("PRAGMA data_version").fetchone()
        if self.url.startswith("postgres"):
            store: Any = self.engine.store
            # No change is committed without a transaction number, and these count on.
            sql = "SELECT pg_current_snapshot()::text"
            return await store.read(lambda view: view.query(sql))
        return None

    @asynccontextmanager
    async def refuses(
        self, error: type[FlowFabricError], field: str | None = None
    ) -> AsyncIterator[None]:
        """The call inside must fail with this error, name the field, and change nothing."""
        async with self.unchanged():
            with pytest.raises(error, match=None if field is None else re.escape(field)):
                yield

    async def sql(self, statement: str) -> None:
        """Change a durable store behind the engine's back."""
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection:
                connection.execute(statement)
                connection.commit()
            return
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
