"""The engine: every operation over any store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from flowfabric import forks
from flowfabric.api.backend import EngineBackend, LocalWorker
from flowfabric.api.hints import Bell
from flowfabric.api.operation import Request
from flowfabric.config import EngineConfig
from flowfabric.engine.creating import Creating
from flowfabric.engine.doctor import DoctorReport, examine
from flowfabric.engine.finding import Finding
from flowfabric.engine.flow_reading import FlowReading
from flowfabric.engine.flowing import Flowing
from flowfabric.engine.loop_status import DutyStatus, LoopStatus
from flowfabric.engine.operations import control as control
from flowfabric.engine.operations import grants as grants
from flowfabric.engine.operations import lanes as lanes
from flowfabric.engine.operations import budgets as budgets
from flowfabric.engine.operations import keys as keys
from flowfabric.engine.operations import leases as leases
from flowfabric.engine.operations import quotas as quotas
from flowfabric.engine.operations import workers as workers
from flowfabric.engine.operations.performing import ANSWERS, COMMANDS
from flowfabric.engine.reading import Reading
from flowfabric.engine.signalling import Signalling
from flowfabric.engine.supported import supported
from flowfabric.engine.suspending import Suspending
from flowfabric.errors import FlowFabricError, InvalidInput, WaitTimeout
from flowfabric.model.checks import check_flag, check_integer, check_list
from flowfabric.model.record import replace
from flowfabric.model.results import BackendCapabilities, Prepared
from flowfabric.stores.base import Reader, Store

VERSION = "0.1.0"


R = TypeVar("R")
_DECIDED: Final = object()  # a request that is decided with its batch


def _no_request(request: object) -> InvalidInput:
    return InvalidInput(
        f"requests: expected a request, got {type(request).__name__}", field="requests"
    )


class BackgroundLoop(Protocol):
    """What happens by itself while the engine is open."""

    def start(self) -> None:
        """Begin in the running event loop."""
        ...

    async def stop(self) -> None:
        """End; what is under way may finish within a grace."""
        ...

    def status(self) -> tuple[DutyStatus, ...]:
        """How each kind of work fares."""
        ...


class Engine(
    EngineBackend,
    Creating,
    Reading,
    Finding,
    Flowing,
    FlowReading,
    Suspending,
    Signalling,
):
    """All operations on executions and flows, the same on every store.

    >>> async with open_engine("memory://") as engine:  # doctest: +SKIP
    ...     await engine.create_execution(execution_kind="brief")
    """

    def __init__(
        self, store: Store, config: EngineConfig, *, loop: Callable[[Any], BackgroundLoop]
    ) -> None:
        super().__init__(store, config)
        self._make_loop = loop
        self._loop: BackgroundLoop | None = None

    def again(self) -> Engine:
        """The same store for another event loop, for example in another thread; not started.

        The first engine has compared the configured secret with the stored ones. They may have been
        rotated since, which must not keep this one from starting.
        """
        config = replace(self.config, loops=False, waitpoint_secret=None)
        return Engine(self.store.again(), config, loop=self._make_loop)

    async def start(self, *, migrate: bool = True) -> None:
        """Connect, bring the schema up to date if asked, and start the loops."""
        await self.store.open(migrate=migrate)
        forks.inherit(self, Engine._after_fork)
        try:
            await keys.ensure_signing_key(self)
        except BaseException:
            await self.store.close()
            raise
        if self.config.loops:
            self._loop = self._make_loop(self)
            self._loop.start()

    async def close(self) -> None:
        """Stop the loops, finish what is in flight, let go of the store."""
        if self._loop is not None:
            await self._loop.stop()
            self._loop = None
        await self.close_core()
        await self.store.close()
        forks.disinherit(self)

    def _after_fork(self) -> None:
        """In a child: every call says that this engine is the parent's; closing it does nothing."""
        self._loop = None
        self._leave_core()

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

    # --- what is asked for ---------------------------------------------------------------------

    async def call(self, request: Request[R]) -> R:
        """The answer to one request; a refusal is raised."""
        kind = type(request)
        if (make := COMMANDS.get(kind)) is not None:
            reply: R = await self.execute(make(self, request))
            return reply
        if (answer := ANSWERS.get(kind)) is not None:
            answered: R = await answer(self, request)
            return answered
        raise _no_request(request)

    async def call_many(self, requests: Sequence[Request[R]]) -> list[R | FlowFabricError]:
        """The answer, or the error object, for each request, in as few commits as can be.

        What passes its check is run; what does not is answered with its error, alone.
        """
        answers: list[Any] = []
        commands = []
        for request in check_list(requests, field="requests"):
            try:
                make = COMMANDS.get(type(request))
                if make is None:
                    answers.append(await self.call(request))
                else:
                    commands.append(make(self, request))
                    answers.append(_DECIDED)
            except FlowFabricError as error:
                answers.append(error)
        replies = iter(await self.batches.run(commands))
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

    @property
    def home_namespace(self) -> str:
        """The tenant of calls that name none."""
        return self.config.namespace

    # --- about the store -----------------------------------------------------------------------

    def backend_label(self) -> str:
        """memory, sqlite or postgres."""
        return self.store.family

    def capabilities(self) -> BackendCapabilities:
        """Which operations this engine supports; derived from the implementation.

        >>> engine.capabilities().supports["read_stream"]  # doctest: +SKIP
        False
        """
        supports = supported(type(self))
        supports["create_executions_in"] = hasattr(self.store, "join")
        return BackendCapabilities(self.store.family, VERSION, self.store.schema_version, supports)

    async def ping(self) -> None:
        """Answers when the store does."""
        await self.server_time_ms()

    async def server_time_ms(self) -> int:
        """The store's clock."""

        async def work(reader: Reader) -> int:
            await reader.catalog()
            return reader.now

        return await self.read(work)

    async def prepare(self) -> Prepared:
        """Bring the schema up to date."""
        return Prepared(tuple(await self.store.migrate()))

    async def shutdown_prepare(self, *, grace_ms: int) -> None:
        """Wait until nothing is in flight; WaitTimeout when that takes longer than the grace."""
        check_integer(grace_ms, field="grace_ms", least=0, most=3_600_000)
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await self.batches.idle()
        except TimeoutError:
            raise WaitTimeout(f"commits still in flight after {grace_ms} ms") from None

    def loop_status(self) -> LoopStatus:
        """How the background work of this process fares, and what it could not move.

        >>> open_engine("memory://").loop_status().duties  # doctest: +SKIP
        ()
        """
        duties = () if self._loop is None else self._loop.status()
        return LoopStatus(duties, tuple(self.aside))

    async def doctor(self, *, quick: bool = False) -> DoctorReport:
        """Check store, schema, indexes and records; see `ff doctor`.

        `quick`: leave out the checks that read every row, which take long on a large store.
        """
        check_flag(quick, field="quick")
        return await examine(self, self.loop_status(), quick=quick)

    async def dump(self) -> dict[str, list[Any]]:
        """Everything stored, in a comparable order."""
        return await self.store.dump()
