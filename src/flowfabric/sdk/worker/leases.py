"""Every lease of this worker, and the one loop that keeps them alive.

Renewal runs on the event loop. When user code blocks that, `watchdog` renews in its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.api.hints import end_topic
from flowfabric.clock import SystemClock, monotonic
from flowfabric.model.results import Claimed, LeaseRenewal
from flowfabric.sdk.outage import Outage, Patience
from flowfabric.sdk.task import Task
from flowfabric.sdk.worker import telling
from flowfabric.sdk.worker.held import LOST, Desk, Held

_LOGGER = logging.getLogger("flowfabric.worker")
_TICK_S_MAX: Final = 1.0
_RENEWALS_PER_LEASE: Final = 3
_HELD_UP_S: Final = 1.0  # how long the consequences of a standstill may last
END_PREFIX: Final = end_topic("")


class Leases:
    """The leased executions."""

    def __init__(
        self,
        engine: EngineBackend,
        ttl_ms: int,
        outage: Outage,
        payload_bytes_max: int = limits.PAYLOAD_BYTES_DEFAULT,
    ) -> None:
        self._engine = engine
        self.desk = Desk(
            engine,
            lost=self.lose,
            let_go=self._let_go,
            now_ms=self.store_now_ms,
            outage=outage,
            payload_bytes_max=payload_bytes_max,
        )
        self.scribe = self.desk.scribe
        self._ttl_s = ttl_ms / 1000
        self._usual_pause_s = self._ttl_s / _RENEWALS_PER_LEASE
        self.tick_s = min(_TICK_S_MAX, self._ttl_s / 12)
        # a later tick means a blocked loop; half the time between renewals
        self.late_s = self._ttl_s / 6
        self.beat_at = monotonic()  # of the last tick: other threads judge the event loop by it
        self._held: dict[str, Held] = {}
        self._patience = Patience(outage)
        self._wake = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self._held_up_at = float("-inf")
        self.set_store_clock(SystemClock().now_ms())  # until the store's clock was read

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.copy().values())  # in one step: another thread may be reading

    def take(self, claimed: Claimed, task: Task[..., Any], asked_at: float) -> Held:
        """Begin to keep a lease alive that was claimed at this time."""
        former = self._held.get(claimed.execution_id)
        if former is not None:
            self.lose(former, "its lease was lost and won again")
        renew_at = asked_at + self._pause_s(claimed.lease_expires_at, asked_at)
        held = Held(claimed, task, self.desk, renew_at, self._lapse_at(claimed, asked_at))
        self._held[claimed.execution_id] = held
        return held

    def take_again(self, held: Held, claimed: Claimed, asked_at: float) -> None:
        """Keep a lease alive with which a handler goes on that had waited."""
        renew_at = asked_at + self._pause_s(claimed.lease_expires_at, asked_at)
        held.go_on(claimed, renew_at, self._lapse_at(claimed, asked_at))
        self._held[claimed.execution_id] = held

    def close(self) -> None:
        """No handler runs any more."""
        self.desk.bodies.close()

    def drop(self, held: Held) -> None:
        """The lease is over, for whatever reason."""
        execution_id = held.claimed.execution_id
        if self._held.get(execution_id) is held:  # an old handler may end after a new claim
            del self._held[execution_id]

    def lose(self, held: Held, why: str) -> None:
        """The lease is gone: anything its handler still does will not count."""
        if held.is_finished or held.is_stopped:
            return  # a finished handler's report gets its own reply
        telling.lost(held, why)
        held.stop()

    def _let_go(self, held: Held, for_children: bool) -> None:
        """The handler itself has released the lease, to wait."""
        if held.is_continued:
            telling.continued(held)
        else:
            (telling.waits_for_children if for_children else telling.suspended)(held)
        self.drop(held)

    def _hinted(self, topics: Mapping[str, int]) -> None:
        """Executions ended; one with a running handler was ended from outside: check it now."""
        for topic in topics:
            self.check(topic.removeprefix(END_PREFIX))

    def check(self, execution_id: str, lease_epoch: int | None = None) -> None:
        """Renew at once what may be lost, if a handler runs under it: the reply says it all."""
        held = self._held.get(execution_id)
        if held is None or held.is_finished or held.is_stopped:
            return
        if lease_epoch in (None, held.claimed.lease_epoch):
            held.renew_at = 0.0
            self._wake.set()

    def set_store_clock(self, now_ms: int) -> None:
        """Take over the store's clock. It is kept against the monotonic clock: a step of this
        machine's clock must not make leases look expired."""
        self._store_ahead_ms = now_ms - int(monotonic() * 1000)

    def store_now_ms(self) -> int:
        """The store's clock, as far as this worker knows it."""
        return int(monotonic() * 1000) + self._store_ahead_ms

    async def run(self) -> None:
        """Tick until cancelled."""
        forget = self._engine.follow(self._hinted)
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.tick_s):
                        await self._wake.wait()
                self._wake.clear()
                self.tick()
        finally:
            forget()

    def tick(self) -> None:
        """Give up leases that surely expired, and renew those that are due, in one call for all."""
        now = monotonic()
        if now - self.beat_at > self.tick_s + self.late_s:
            self._held_up_at = now
        self.beat_at = now
        for held in self:
            if held.lapse_at <= now:
                self.lose(held, "the lease ran out before it could be renewed")
        due = self.due(now)
        if due and self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(due))
            self._renewing.add_done_callback(self._renewed)

    def due(self, now: float) -> list[Held]:
        """The leases to be renewed by now. Any thread may ask."""
        return [held for held in self if held.renew_at <= now and not held.is_stopped]

    def extend(self, held: Held, renewal: LeaseRenewal, asked_at: float) -> None:
        """A lease was renewed. Any thread may call it: each attribute is written in one step."""
        held.renew_at = asked_at + self._pause_s(renewal.expires_at_ms, asked_at)
        held.lapse_at = max(held.lapse_at, asked_at + self._ttl_s)

    def give_up(self, held: Held, error: Exception) -> None:
        """The reply to a renewal was that the lease is gone."""
        held.renew_at = float("inf")
        if not held.is_suspending:  # the reply to its own call says whether it ended the lease
            self.lose(held, str(error))

    async def catch_up(self) -> bool:
        """After a standstill, renew first; returns whether there was one."""
        now = monotonic()
        is_late = now - self.beat_at > self.tick_s + self.late_s
        if not is_late and now - self._held_up_at > _HELD_UP_S:
            return False
        self.tick()
        if self._renewing is not None:
            await asyncio.wait([self._renewing])
        return True

    async def _renew(self, due: list[Held]) -> None:
        asked_at = monotonic()
        answers: Sequence[LeaseRenewal | Exception]
        try:
            answers = await self._engine.renew_many([held.renewal() for held in due])
        except Exception as error:  # noqa: BLE001 - a lease is worth another try, always
            answers = [error] * len(due)
        failure = next(filter(None, map(_failure, answers)), None)
        pause_s = 0.0
        if failure is None:
            self._patience.reset()
        else:
            pause_s = min(self._patience.next_pause_s(failure), self._ttl_s / 12)
        for held, answer in zip(due, answers, strict=True):
            if isinstance(answer, LeaseRenewal):
                self.extend(held, answer, asked_at)
            elif isinstance(answer, LOST):
                self.give_up(held, answer)
            else:
                held.renew_at = monotonic() + pause_s

    def _renewed(self, renewal: asyncio.Task[None]) -> None:
        self._renewing = None
        if not renewal.cancelled() and (error := renewal.exception()) is not None:
            _LOGGER.error("renewal failed", exc_info=error)

    def _lapse_at(self, claimed: Claimed, asked_at: float) -> float:
        """When a new lease has surely lapsed. A claim may have waited for longer than a lease lasts
        before it got one: then the store's clock tells."""
        told = (claimed.lease_expires_at - self._store_ahead_ms) / 1000
        return max(asked_at + self._ttl_s, min(told, monotonic() + self._ttl_s))

    def _pause_s(self, expires_at: int, asked_at: float) -> float:
        """A third of the lease; sooner when a deadline or a timeout has cut it short."""
        remaining_s = (expires_at - self._store_ahead_ms) / 1000 - asked_at
        return min(self._usual_pause_s, max(remaining_s, _TICK_S_MAX / 20))


def _failure(answer: object) -> Exception | None:
    """Neither renewed nor lost: the call itself failed."""
    return answer if isinstance(answer, Exception) and not isinstance(answer, LOST) else None
