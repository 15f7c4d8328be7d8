"""What all requests of a server share: the engine, the settings, the guards and the counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.api.executions import CreateExecutions, NewExecution
from flowfabric.api.flows import SubmitFlow
from flowfabric.api.leases import Claim
from flowfabric.api.operation import Request
from flowfabric.clock import monotonic
from flowfabric.errors import (
    Draining,
    FlowFabricError,
    Overloaded,
    StoreUnavailable,
    TooManyStreams,
    TooManyWaits,
    Unauthorized,
)
from flowfabric.ids import new_name
from flowfabric.metrics.pulse import Pulse
from flowfabric.server.access.border import Border
from flowfabric.server.access.caller import Caller
from flowfabric.server.access.guard import Guard, TokenGuard
from flowfabric.server.access.once import OnceLinks
from flowfabric.server.access.origin import SAFE, refuse_other_sites
from flowfabric.server.access.rates import Rates
from flowfabric.server.access.refusals import RefusalLog
from flowfabric.server.access.sessions import require_own_page
from flowfabric.server.exchange import Call
from flowfabric.server.hints import HintLog
from flowfabric.server.metering import Metering
from flowfabric.server.oidc.client import provider_of
from flowfabric.server.patience import Endings, Patience
from flowfabric.server.places import Place
from flowfabric.server.routes.route import Route, Size
from flowfabric.server.settings import ServerSettings
from flowfabric.server.streams.beats import Beats
from flowfabric.server.streams.feeds import Feeds
from flowfabric.server.streams.watches import Watches

_LATER_MS: Final = 1_000
_STORE_S: Final = 1.0  # for the store to answer a probe
_LAG_S: Final = 5.0  # a loop that lags more answers nobody in time
_BUSY_S: Final = 0.25  # a loop that lags more takes no new work
_SUBMITS: Final = (NewExecution, CreateExecutions, SubmitFlow)
_SEARCHES: Final = ("list_executions", "count_listed")
_HOMES_MAX: Final = 1_000
_TIME_S: Final = 5.0  # how old a look at the store's clock may be
_SIGNAL_BODY: Final = 163_840  # a payload of a signal in Base64, and the words around it


def _leave(call: Call) -> None:
    """Without a socket there is nothing to end."""


def _is_expensive(call: Call, route: Route) -> bool:
    """Whether it may read much of the store: by its nature, or because it looks for words."""
    if route.reads_much is not None:
        return route.reads_much(call)
    return route.is_expensive or (
        route.operation in _SEARCHES and any(word == "text" for word, _ in call.query)
    )


class Service:
    """One server as its handlers see it."""

    def __init__(
        self, engine: EngineBackend, settings: ServerSettings, guard: Guard | None = None
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.rates = Rates(settings)
        self.guard: Guard = guard or TokenGuard(engine, self.rates, settings)
        self.once = OnceLinks()
        self.provider = provider_of(settings)
        self.border = Border(engine)
        self.refusals = RefusalLog(engine)
        self.hints = HintLog(engine, new_name("server"))
        self.waits = 0  # requests that wait for something to happen
        self._waits_of: Counter[str | None] = Counter()  # by the token
        self.streams = 0  # answers that go on and on
        self.in_flight = 0  # requests that are being answered
        self.is_open = True  # the store is there: operations are answered
        self.is_leaving = False  # the server stops soon: no new caller should come
        self.stopping = asyncio.Event()  # the server drains: what waits ends
        self.patience = Patience(self.stopping)
        self.endings = Endings(engine)
        self.pulse = Pulse()
        self.metering = Metering(engine) if settings.metrics else None
        self.beats = Beats(self.stopping)
        self.feeds = Feeds(engine)
        self.watches = Watches(engine)
        self.places: tuple[Place, ...] = ()  # of the dashboard, as its navigation has them
        self.cut: Callable[[Call], None] = _leave  # end a connection that takes nothing
        self._idle = asyncio.Event()
        self._homes: dict[str, EngineBackend] = {}
        self._looked_at, self._store_ms = -_TIME_S, 0  # at the store's clock

    def limits(self) -> dict[str, int]:
        """The bounds that a caller should know."""
        return {
            "commands_max": limits.COMMANDS_MAX,
            "page_max": limits.PAGE_MAX,
            "wait_max_ms": self.settings.wait_max_ms,
            "body_max": self.settings.body_max,
            "batch_body_max": self.settings.batch_body_max,
        }

    def body_limit(self, size: Size) -> int:
        """How many bytes a body of a class of routes may have."""
        match size:
            case Size.BATCH:
                return self.settings.batch_body_max
            case Size.PAYLOAD:
                return self.settings.payload_body_max
            case Size.SIGNAL:
                return max(_SIGNAL_BODY, self.settings.body_max)
            case _:
                return self.settings.body_max

    def scrape(self) -> bytes | None:
        """The metrics as text; None where none are served."""
        if self.metering is None:
            return None
        return self.metering.text(
            in_flight=self.in_flight,
            waits=self.waits,
            streams=self.streams,
            lag_s=self.pulse.lag_s(),
        )

    async def readiness(self) -> dict[str, bool]:
        """What it needs to answer for the store, and whether it has it."""
        return {
            "store": self.is_open and await self._answers(),
            "loop": self.pulse.lag_s() < _LAG_S,
            "serving": not (self.is_leaving or self.stopping.is_set()),
        }

    async def _answers(self) -> bool:
        """Whether the store answers, soon."""
        try:
            async with asyncio.timeout(_STORE_S):
                await self.engine.ping()
        except (TimeoutError, FlowFabricError):
            return False
        return True

    async def time_ms(self) -> int:
        """The store's clock, as far as one look in a few seconds tells."""
        if monotonic() >= self._looked_at + _TIME_S:
            told = await self.engine.server_time_ms()
            self._looked_at, self._store_ms = monotonic(), told
        return self._store_ms + round((monotonic() - self._looked_at) * 1_000)

    def require_open(self) -> None:
        """Refuse while the store is waited for."""
        if not self.is_open:
            raise StoreUnavailable("the server waits for its store", retry_after_ms=_LATER_MS)

    def require_room(self, request: Request[Any]) -> None:
        """While too much is under way, refuse what brings more: first claims, then submits. What
        ends work, such as a report or a renewal, is always answered."""
        crowd = self.in_flight - self.waits - self.streams  # those cost nothing while they rest
        most = self.settings.commands_in_flight
        is_submit = isinstance(request, _SUBMITS)
        if not (is_submit or isinstance(request, Claim)):
            return
        if crowd > (2 * most if is_submit else most) or self.pulse.lag_now_s() > _BUSY_S:
            raise Overloaded("the server has too much to do", retry_after_ms=_LATER_MS)

    async def admit(self, call: Call, route: Route) -> None:
        """Tell who calls, and refuse whoever may not, or asks too often."""
        if not route.is_open:
            refuse_other_sites(call.method, call.headers)
            call.caller = await self.guard.caller_of(call)
        if call.caller.is_known or await self.guard.has_tokens():
            self.rates.count(call.caller, call.address)
            self.count_expensive(call, route)
        if call.caller.session is not None and call.method not in SAFE:
            await require_own_page(self.settings, call, self.body_limit(route.size))
        route.check(call.caller)

    def count_expensive(self, call: Call, route: Route) -> None:
        """Refuse a caller that asks too often for what reads much."""
        if _is_expensive(call, route):
            self.rates.count_expensive(call.caller, call.address)

    def note_refusal(self, call: Call, error: FlowFabricError, action: str | None = None) -> None:
        """Enter a call that its caller may not make into the audit trail; `action`: the operation,
        where it is not that of the route. A browser that has shown nothing yet is sent to sign in.
        """
        route = call.route
        has_shown_none = not call.caller.is_known and isinstance(error, Unauthorized)
        if route is None or (route.is_page and call.method in SAFE and has_shown_none):
            return
        self.refusals.note(call.origin, action or route.operation or route.name, error)

    def at_home_in(self, namespace: str | None) -> EngineBackend:
        """The engine for a caller of a namespace."""
        if namespace is None or namespace == self.engine.home_namespace:
            return self.engine
        home = self._homes.get(namespace)
        if home is None:
            if len(self._homes) >= _HOMES_MAX:
                self._homes.clear()
            home = self._homes[namespace] = self.engine.at_home_in(namespace)
        return home

    @contextmanager
    def answering(self) -> Iterator[None]:
        """A request is counted while it is answered."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()

    async def idle(self) -> None:
        """Return when no request is in flight."""
        while self.in_flight:
            self._idle.clear()
            await self._idle.wait()

    @contextmanager
    def waiting(self, caller: Caller) -> Iterator[None]:
        """A request that waits for something to happen is counted, and refused over the limit."""
        if self.stopping.is_set():
            raise Draining("this server stops", retry_after_ms=0)
        actor, own = caller.actor, self._waits_of[caller.actor]
        if self.waits >= self.settings.waits_max:
            raise TooManyWaits(f"{self.waits} requests wait already", retry_after_ms=_LATER_MS)
        if actor is not None and own >= self.settings.waits_per_token:
            detail = f"{own} requests of this token wait already"
            raise TooManyWaits(detail, retry_after_ms=_LATER_MS)
        self.waits += 1
        self._waits_of[actor] += 1
        try:
            yield
        finally:
            self.waits -= 1
            self._waits_of[actor] -= 1
            if not self._waits_of[actor]:
                del self._waits_of[actor]

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """An answer that goes on is counted, and refused over the limit."""
        if self.stopping.is_set():
            raise Draining("this server stops", retry_after_ms=0)
        if self.streams >= self.settings.streams_max:
            detail = f"{self.streams} streams are open already"
            raise TooManyStreams(detail, retry_after_ms=_LATER_MS)
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1
