"""Where a test takes place: a store, its workers and time, moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final

from flowfabric import limits
from flowfabric.api.executions import WaitForOutcome, WaitForResult
from flowfabric.api.flows import WaitForFlow
from flowfabric.api.mail import WaitForReply
from flowfabric.api.operation import Request
from flowfabric.assemble import open_engine, scratch_database
from flowfabric.clock import paced_by
from flowfabric.config import EngineConfig, test_url_from_environment
from flowfabric.errors import InvalidInput
from flowfabric.ids import new_name
from flowfabric.model.record import replace
from flowfabric.model.state import TERMINAL_STATES, PublicState
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.journal.journal import Around
from flowfabric.sdk.journal.scopes import RUNNING
from flowfabric.testing.clock import LoopClock
from flowfabric.testing.errors import Stuck
from flowfabric.testing.faults import Faults
from flowfabric.testing.hands import Hand
from flowfabric.testing.line import Line
from flowfabric.testing.loop import VirtualLoop
from flowfabric.testing.tape import replayed_here

_WAITS: Final = (WaitForOutcome, WaitForResult, WaitForFlow, WaitForReply)
_UNENDED: Final = tuple(
    sorted(state.value for state in PublicState if state not in TERMINAL_STATES)
)
_SHOWN: Final = 10


class Front(Line):
    """The line of the test itself: waiting for an end lets everything happen that can."""

    settle: Callable[[], Any]

    async def call(self, request: Request[Any]) -> Any:
        """There and back; a test does not wait for what only time would bring. What a replayed
        handler calls has no effect."""
        if (replayed := replayed_here()) is not None:
            return await replayed.tape.refuse(request)
        if isinstance(request, _WAITS) and RUNNING.get() is None:
            await self.settle()
            request = replace(request, wait_ms=0)
            if isinstance(request, WaitForOutcome):
                request = replace(request, look_after_ms=0)
        return await super().call(request)


class Stage:
    """One store, its workers and time."""

    def __init__(
        self,
        fabric: Fabric,
        loop: VirtualLoop,
        *,
        url: str,
        config: EngineConfig,
        start_ms: int,
        faults: Callable[[VirtualLoop], Faults],
        around: Callable[[Hand], Around],
        lease_ttl: str,
    ) -> None:
        self._fabric = fabric
        self.loop = loop
        self.clock = LoopClock(loop, start_ms)
        self.engine = open_engine(url, config=config, clock=self.clock)
        self.front = Front(self.engine, loop, None)
        self.front.settle = self.settle
        self.faults = faults(loop)
        self._around = around
        self._lease_ttl = lease_ttl
        self._has_slow_hints = not url.startswith("memory:")
        self._numbers = count(1)
        self.hands: list[Hand] = []
        self._open = ExitStack()
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Open the store, and bring in a worker."""
        with self.loop.in_store():
            await self.engine.start(migrate=True)
        self._open.enter_context(paced_by(self.loop.time))

    async def close(self) -> None:
        """Leave nothing running."""
        left = [each for hand in self.hands for each in hand.close()]
        self.hands.clear()
        if left:
            await self.loop.idle()
        self._open.close()
        with self.loop.in_store():
            await self.engine.close()

    # --- workers ---------------------------------------------------------------------------------

    async def staff(self) -> None:
        """There is a worker that claims, unless there is nothing it could run."""
        for hand in self.hands:
            if hand.paused_until is not None and hand.paused_until <= self.loop.time():
                hand.unpause()
            if not hand.is_dead:
                hand.raise_error()
        if any(hand.is_usable for hand in self.hands):
            return
        if not (self._fabric.tasks or self._fabric.listeners):
            return
        line = Line(self.engine, self.loop, self.faults)
        hand = Hand(
            self._fabric,
            line,
            self._around,
            name=f"test-{next(self._numbers)}",
            lease_ttl=self._lease_ttl,
            now_ms=self.clock.now_ms(),
        )
        self.faults.hands[line] = hand
        self.hands.append(hand)

    def dismiss(self) -> None:
        """The worker leaves between two handlers: the next one knows tasks that came since."""
        for hand in [each for each in self.hands if each.is_usable and not each.shift.running]:
            hand.close()
            self.hands.remove(hand)

    @property
    def hand(self) -> Hand:
        """The worker that claims."""
        return next(hand for hand in self.hands if hand.is_usable)

    # --- moving ----------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Let everything happen that can without time."""
        async with self._lock:
            is_moving = True
            while is_moving:
                await self.staff()
                before = self._claims()
                if self.faults.has_news:
                    self._tell_news()
                await self.loop.idle()
                has_moved = self._claims() != before or self.faults.has_news
                is_moving = has_moved or await self._turn()

    def _tell_news(self) -> None:
        """Let workers look for work and events that may have come."""
        self.faults.has_news = False
        for hand in self.hands:
            hand.line.rung.set()
            if self._has_slow_hints:
                hand.shift.look()

    def _claims(self) -> int:
        return sum(hand.shift.claims for hand in self.hands)

    async def _turn(self) -> bool:
        """One thing that is due now; False if there is none."""
        if sum(hand.shift.renew() for hand in self.hands if hand.is_usable):
            return True
        if not all(hand.is_usable for hand in self.hands) and await self._is_understaffed():
            return True
        if self.faults.is_down:
            return False
        with self.loop.in_store():
            look = await self.engine.next_due()
            if look.due_at is None or look.due_at > look.now:
                return False
            # Most due work is moved at once; retention and sweeps take transactions of their own.
            moved = await self.engine.move_due() or await self.engine.tick()
            self.faults.has_news = self.faults.has_news or moved > 0
            return moved > 0

    async def _is_understaffed(self) -> bool:
        before = len(self.hands), [hand.paused_until for hand in self.hands]
        await self.staff()
        return before != (len(self.hands), [hand.paused_until for hand in self.hands])

    async def next_event(self) -> float | None:
        """When, by the loop's time, something will be due."""
        with self.loop.in_store():
            look = await self.engine.next_due()
        times = [self.loop.next_timer, self.faults.down_until]
        if look.due_at is not None:
            # What is due and could not be moved is tried again when something else has happened.
            times.append(self.clock.when(look.due_at) if look.due_at > look.now else None)
        for hand in self.hands:
            times.append(hand.paused_until if not hand.is_dead else None)
            if hand.is_usable:
                times.append(hand.shift.next_renewal)
        return min((each for each in times if each is not None), default=None)

    async def advance_to(self, until: float) -> None:
        """Let time pass; everything that becomes due happens at its time."""
        await self.settle()
        while (when := await self.next_event()) is not None and when <= until:
            self.loop.move_to(when)
            await self.settle()
        self.loop.move_to(until)
        await self.settle()

    async def skip(self) -> None:
        """Go from due time to due time until all runs have ended."""
        await self.settle()
        while unended := await self.unended():
            when = await self.next_event()
            if when is None:
                why = await self.why(unended)
                text = f"nothing is due, and not all runs have ended. {why}"
                raise Stuck(text, is_explained=True)
            self.loop.move_to(when)
            await self.settle()

    # --- looking ---------------------------------------------------------------------------------

    async def unended(self) -> list[str]:
        """The runs that have not ended, some of them."""
        page = await self.front.list_executions(states=_UNENDED, limit=_SHOWN)
        return [each.execution_id for each in page.items]

    async def why(self, execution_ids: list[str]) -> str:
        """What each waits for, as `ff why` explains it."""
        for hand in self.hands:
            if hand.is_usable:
                await hand.shift.sign_on(self.clock.now_ms())
        lines = []
        for execution_id in execution_ids:
            told = await self.front.explain(execution_id=execution_id)
            found = await self.front.describe_execution(execution_id=execution_id)
            kind = "?" if found is None else found.execution_kind
            step = f", in step {told.step}" if told.step else ""
            lines.append(
                f"{kind} {execution_id} is {told.public_state.value}: {told.summary}{step}"
            )
        return "; ".join(lines)


class Store:
    """A fresh store for one test."""

    def __init__(self, store: str, config: EngineConfig) -> None:
        self._folder: str | None = None
        self._server: str | None = None
        # Ends are looked at after months have passed; what tasks say of themselves holds.
        forever = limits.DURATION_MS_MAX
        self.config = replace(config, loops=False, retention_ms=forever, event_retention_ms=forever)
        self.url = store if "://" in store else self._named(store)
        if self.url.startswith("postgres"):
            # A tenant of its own: making a database takes longer than most tests.
            self.config = replace(self.config, namespace=new_name("test"), pool_size=2)

    def _named(self, store: str) -> str:
        if store == "memory":
            return "memory://"
        if store == "sqlite":
            self._folder = mkdtemp(prefix="flowfabric-test-")
            self.config = replace(self.config, synchronous="normal")
            return f"sqlite:///{Path(self._folder) / 'test.db'}"
        if store == "postgresql":
            if (url := test_url_from_environment()) is None:
                detail = "store: set FLOWFABRIC_TEST_URL to a PostgreSQL database for tests"
                raise InvalidInput(detail, field="store")
            self._server = url
            return url
        detail = "store: memory, sqlite, postgresql or a URL"
        raise InvalidInput(detail, field="store")

    async def prepare(self) -> str:
        """The URL of the store. Processes that test at the same time share no database: each has
        its own time."""
        if self._server is not None:
            self.url = await scratch_database(self._server)
        return self.url

    def remove(self) -> None:
        """Leave nothing on the disk."""
        if self._folder is not None:
            rmtree(self._folder, ignore_errors=True)
            self._folder = None
