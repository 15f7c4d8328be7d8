"""The engine: every operation over any store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from flowfabric import forks, limits
from flowfabric.api.backend import EngineBackend, LocalWorker
from flowfabric.api.hints import Bell
from flowfabric.api.operation import Request
from flowfabric.api.seeds import supported
from flowfabric.config import VERSION, EngineConfig
from flowfabric.engine import due_work, roll_up
from flowfabric.engine.acts import act_now, act_of, acting
from flowfabric.engine.loop_status import BackgroundLoop, LoopStatus, status_of
from flowfabric.engine.machine import Machine
from flowfabric.engine.meter import EngineMeter
from flowfabric.engine.operations import access as access
from flowfabric.engine.operations import admin as admin
from flowfabric.engine.operations import approvals as approvals
from flowfabric.engine.operations import asks as asks
from flowfabric.engine.operations import audit as audit
from flowfabric.engine.operations import budgets as budgets
from flowfabric.engine.operations import bulk as bulk
from flowfabric.engine.operations import code as code
from flowfabric.engine.operations import control as control
from flowfabric.engine.operations import dead as dead
from flowfabric.engine.operations import events as events
from flowfabric.engine.operations import execution_forks as execution_forks
from flowfabric.engine.operations import execution_lists as execution_lists
from flowfabric.engine.operations import execution_reads as execution_reads
from flowfabric.engine.operations import executions as executions
from flowfabric.engine.operations import failures as failures
from flowfabric.engine.operations import finding as finding
from flowfabric.engine.operations import flow_graphs as flow_graphs
from flowfabric.engine.operations import flow_reads as flow_reads
from flowfabric.engine.operations import flow_retry as flow_retry
from flowfabric.engine.operations import flows as flows
from flowfabric.engine.operations import gauges as gauges
from flowfabric.engine.operations import grants as grants
from flowfabric.engine.operations import groups as groups
from flowfabric.engine.operations import journal as journal
from flowfabric.engine.operations import keys as keys
from flowfabric.engine.operations import lanes as lanes
from flowfabric.engine.operations import leases as leases
from flowfabric.engine.operations import lines as lines
from flowfabric.engine.operations import logs as logs
from flowfabric.engine.operations import mail as mail
from flowfabric.engine.operations import quotas as quotas
from flowfabric.engine.operations import repairs as repairs
from flowfabric.engine.operations import retries as retries
from flowfabric.engine.operations import schedules as schedules
from flowfabric.engine.operations import sessions as sessions
from flowfabric.engine.operations import signals as signals
from flowfabric.engine.operations import spend as spend
from flowfabric.engine.operations import statistics as statistics
from flowfabric.engine.operations import streams as streams
from flowfabric.engine.operations import timeline as timeline
from flowfabric.engine.operations import unmet as unmet
from flowfabric.engine.operations import wait_reads as wait_reads
from flowfabric.engine.operations import waits as waits
from flowfabric.engine.operations import workers as workers
from flowfabric.engine.operations.performing import ANSWERS, COMMANDS, READIED, maker_at_once
from flowfabric.errors import FlowFabricError, InvalidInput
from flowfabric.metrics.registry import Registry
from flowfabric.model.checks import check_list
from flowfabric.model.record import replace
from flowfabric.model.results import BackendCapabilities
from flowfabric.stores.base import Store

R = TypeVar("R")
_DECIDED: Final = object()  # a request that is decided with its batch


def _no_request(request: object) -> InvalidInput:
    return InvalidInput(
        f"requests: expected a request, got {type(request).__name__}", field="requests"
    )


class Engine(EngineBackend, Machine):
    """All operations on executions and flows, the same on every store.

    >>> async with open_engine("memory://") as engine:  # doctest: +SKIP
    ...     await engine.create_execution(execution_kind="brief")
    """

    def __init__(
        self, store: Store, config: EngineConfig, *, loop: Callable[[Any], BackgroundLoop]
    ) -> None:
        super().__init__(store, config)
        self._make_loop = loop

    def again(self) -> Engine:
        """The same store for another event loop, for example in another thread; not started.

        The first engine has compared the configured secret with the stored ones. They may have been
        rotated since, which must not keep this one from starting.
        """
        config = replace(self.config, loops=False, waitpoint_secret=None)
        return Engine(self.store.again(), config, loop=self._make_loop)

    async def start(self, *, migrate: bool = True) -> None:
        """Connect, migrate the schema if asked, and start the loops."""
        await self.store.open(migrate=migrate)
        forks.inherit(self, Engine._after_fork)
        try:
            await keys.ensure_signing_key(self)
        except BaseException:
            await self.store.close()
            raise
        if self.config.loops:
            self.loop = self._make_loop(self)
            self.loop.start()

    async def close(self) -> None:
        """Stop the loops, finish work in flight, close the store."""
        if self.loop is not None:
            await self.loop.stop()
            self.loop = None
        await self.close_machine()
        await self.store.close()
        forks.disinherit(self)

    def _after_fork(self) -> None:
        """In a child process: calls say that the engine is the parent's; closing does nothing."""
        self.loop = None
        self._leave_machine()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- requests ------------------------------------------------------------------------------

    async def call(self, request: Request[R]) -> R:
        """The reply to one request; a refusal is raised."""
        if (act := act_of(request)) is None:
            return await self._answer(request)
        with acting(act):
            reply = await self._answer(request)
        await audit.note_unwritten(self, act)
        return reply

    async def _answer(self, request: Request[R]) -> R:
        make = COMMANDS.get(type(request)) or maker_at_once(request)
        if make is not None:
            reply: R = await self.batches.run_one(make(self, request))
            return reply
        if (ready := READIED.get(type(request))) is not None:
            created: R = await self.batches.run_one(await ready(self, request))
            return created
        if (answer := ANSWERS.get(type(request))) is not None:
            answered: R = await answer(self, request)
            return answered
        raise _no_request(request)

    async def call_many(self, requests: Sequence[Request[R]]) -> list[R | FlowFabricError]:
        """The reply, or the error object, for each request, in as few commits as possible.

        Requests that pass their check are run; each of the others gets its own error.
        """
        answers: list[Any] = []
        commands, acts = [], []
        for request in check_list(requests, field="requests"):
            try:
                make = COMMANDS.get(type(request)) or maker_at_once(request)
                if make is not None:
                    commands.append(make(self, request))
                elif (ready := READIED.get(type(request))) is not None:
                    commands.append(await ready(self, request))
                else:
                    answers.append(await self.call(request))
                    continue
                acts.append(act_of(request) or act_now())
                answers.append(_DECIDED)
            except FlowFabricError as error:
                answers.append(error)
        decided = await self.batches.run(commands, acts)
        for act, reply in zip(acts, decided, strict=True):
            if act is not None and not isinstance(reply, FlowFabricError):
                await audit.note_unwritten(self, act)
        replies = iter(decided)
        return [next(replies) if answer is _DECIDED else answer for answer in answers]

    def listen(self, topics: Iterable[str]) -> AbstractContextManager[Bell]:
        """An event that is set when one of the topics is hinted at."""
        return self.wakeups.listening(topics)

    def follow(self, told: Callable[[Mapping[str, int]], None]) -> Callable[[], None]:
        """Call this with the topics of every hint, until the returned function is called."""
        return self.store.hints.subscribe(told)

    def present(self, worker: LocalWorker) -> AbstractContextManager[None]:
        """The worker is at work in this process while the block runs."""
        return self.workers_here.present(worker)

    def measure(self, registry: Registry) -> None:
        """Count into these metrics what this engine does from now on."""
        self.meter = EngineMeter(registry)
        self.store.measure(self.meter.waited)

    @property
    def home_namespace(self) -> str:
        """The default tenant of calls."""
        return self.config.namespace

    def at_home_in(self, namespace: str) -> Engine:
        """This very engine for calls of another tenant: it shares all parts with this one."""
        twin = copy(self)
        twin.config = replace(self.config, namespace=namespace)
        return twin

    # --- about the store -----------------------------------------------------------------------

    def backend_label(self) -> str:
        """memory, sqlite or postgres."""
        return self.store.family

    def capabilities(self) -> BackendCapabilities:
        """The operations this engine supports; read off the register.

        >>> engine.capabilities().supports["subscribe_completion"]  # doctest: +SKIP
        False
        """
        supports = supported()
        for name in ("create_executions_in", "checkpoint_in"):
            supports[name] = self.store.can_join
        return BackendCapabilities(self.store.family, VERSION, self.store.schema_version, supports)

    def loop_status(self) -> LoopStatus:
        """The status of this process's background work, and the records it could not move.

        >>> open_engine("memory://").loop_status().duties  # doctest: +SKIP
        ()
        """
        return status_of(self.loop, self.aside)

    async def dump(self) -> dict[str, list[Any]]:
        """Everything stored, in a comparable order."""
        return await self.store.dump()

    # --- how it runs: for loops and tests ------------------------------------------------------

    async def move_due(self, *, limit: int = limits.DUE_BATCH) -> int:
        """Move everything that is due, in one transaction; returns how many were moved.

        A record that cannot be moved is set aside, and stops nothing else: see `loop_status`.
        """
        return await due_work.move_due(self, limit)

    async def sweep(self, *, limit: int = limits.DUE_BATCH) -> int:
        """Delete expired idempotency keys and old events."""
        return await due_work.sweep(self, limit)

    async def sweep_workers(self, *, limit: int = limits.DUE_BATCH) -> int:
        """Remove workers without a recent heartbeat from the registry."""
        return await due_work.sweep_workers(self, limit)

    async def roll_up(self, *, limit: int = limits.STATISTIC_BATCH, every_ms: int = 0) -> int:
        """Count a stretch of the logs for the minute statistics, in one transaction.

        Returns how many entries were counted; 0 also where another engine has counted within
        `every_ms`. Call it again while a log had more than `limit`.
        """
        return await roll_up.roll_up(self, limit, every_ms)

    async def next_due(self) -> due_work.DueLook:
        """The store's clock, and the earliest due time."""
        return await self.read(partial(due_work.look, self))

    async def tick(self) -> int:
        """Do once all that moves or deletes records: due work, retention, sweeps.

        Returns how many there were. Statistics, which only count, have a call of their own:
        `roll_up`.
        """
        moved = await self.move_due()
        moved += await self.trim_retention() + await self.sweep()
        return moved + await self.sweep_workers()
