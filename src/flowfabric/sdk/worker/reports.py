"""Outcomes of handlers, reported to the engine in batches.

There is no timer: while one batch is being committed the next gathers. A report is repeated with
the same fence until the engine replies, so an outage or a lost reply costs time, not results. One
that fails for a reason that may not pass is repeated until its lease has surely expired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.api.leases import Complete, Fail
from flowfabric.clock import monotonic
from flowfabric.errors import FlowFabricError, ValidationError
from flowfabric.ids import jitter
from flowfabric.model.attempt import FailureClass
from flowfabric.model.journal import NewEntry
from flowfabric.model.log_lines import LogBatch
from flowfabric.model.results import RetryScheduled
from flowfabric.model.stream import NewFrame
from flowfabric.sdk.codec import JSON
from flowfabric.sdk.durations import Moment, instant_ms, to_ms
from flowfabric.sdk.errors import Stopped
from flowfabric.sdk.outage import Outage, Patience
from flowfabric.sdk.worker import telling
from flowfabric.sdk.worker.held import Held
from flowfabric.sdk.worker.origins import origin_of
from flowfabric.trouble import Trouble, trouble

_BATCH: Final = limits.BATCH_MAX
_AGAIN_S: Final = 0.5


class Succeeded:
    """The handler returned."""

    __slots__ = ("held", "result")

    def __init__(self, held: Held, result: bytes) -> None:
        self.held = held
        self.result = result


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The handler raised."""

    held: Held
    reason: str
    error: BaseException | None = None  # what ended the handler
    failure_class: FailureClass = FailureClass.TRANSIENT
    category: str | None = None
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Postponed:
    """The handler asks to go on later, or this worker stops and gives the work back."""

    held: Held
    until: Moment | None  # None: at once


Report = Succeeded | Failed | Postponed


class Reporter:
    """The queue of reports and the one task that sends them."""

    def __init__(
        self,
        engine: EngineBackend,
        outage: Outage,
        answered: Callable[[Held], None],
        store_now_ms: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._answered = answered
        self._store_now_ms = store_now_ms
        self._patience = Patience(outage)
        self._waiting: list[Report] = []
        self._later = 0  # how many are to be sent again after a pause
        self._awake = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, report: Report) -> None:
        """Add a report. Call it on the loop's own thread."""
        self._waiting.append(report)
        self._awake.set()
        self._empty.clear()

    async def flushed(self) -> None:
        """Return when every report has a reply."""
        await self._empty.wait()

    async def run(self) -> None:
        """Send gathered reports, again and again, until cancelled."""
        while True:
            await self._awake.wait()
            self._awake.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
                await self._send(batch)
            if not self._later:
                self._empty.set()

    async def _send(self, several: list[Report]) -> None:
        batch = [
            each for each in several if each.held.entries is None or await self._has_room(each)
        ]
        if not batch:
            return
        completed = [each for each in batch if isinstance(each, Succeeded)]
        failed = [each for each in batch if isinstance(each, Failed)]
        postponed = [each for each in batch if isinstance(each, Postponed)]
        if not failed and not postponed:  # the common case needs no tasks of its own
            troubled = await self._ask(completed, self._complete)
        else:  # called together, they share a commit
            parts = await asyncio.gather(
                self._ask(completed, self._complete),
                self._ask(failed, self._fail),
                self._ask(postponed, self._postpone),
            )
            troubled = [each for part in parts for each in part]
        if len(troubled) < len(batch):
            self._patience.reset()
            for report, _ in troubled:
                self._put_later(report)
        else:  # no report got a reply: the store has to come back first
            for report, _ in troubled:
                self.put(report)
            await self._patience.pause(troubled[0][1])

    async def _has_room(self, report: Report) -> bool:
        """Send the entries of a journal for which a report has no room. What is refused here
        concerns this report alone, not the others of its batch."""
        held = report.held
        try:
            await _entries(held)
        except Stopped as error:  # the lease is gone
            if isinstance(error.__cause__, Exception):
                telling.refused(held, error.__cause__, is_ours=False)
            self._answered(held)
        except Exception as error:  # noqa: BLE001 - judged as a reply to the report would be
            if _is_sent_again(held, error):
                self._put_later(report)
            else:
                self._refused(report, error)
        else:
            return True
        return False

    async def _ask(
        self, reports: list[Any], ask: Callable[[list[Any]], Awaitable[Sequence[Any]]]
    ) -> list[tuple[Report, Exception]]:
        """Send one kind of report; returns those to be sent again, and why."""
        if not reports:
            return []
        answers: Sequence[Any]
        try:
            answers = await ask(reports)
        except Exception as error:  # noqa: BLE001 - judged for each report below
            answers = [error] * len(reports)
        troubled = []
        tells_all = telling.tells_all()  # read once: most reports are successes, and few are logged
        for report, answer in zip(reports, answers, strict=True):
            if not isinstance(answer, Exception):
                if tells_all or type(report) is not Succeeded:
                    self._tell(report, answer)
                self._answered(report.held)
            elif _is_sent_again(report.held, answer):
                troubled.append((report, answer))
            else:
                self._refused(report, answer)
        return troubled

    def _put_later(self, report: Report) -> None:
        """Other reports got replies, so only this one waits; it must not delay them."""

        def put() -> None:
            self._later -= 1
            self.put(report)

        self._later += 1
        asyncio.get_running_loop().call_later(_AGAIN_S * (0.5 + jitter()), put)

    def _refused(self, report: Report, error: Exception) -> None:
        """A result that cannot be stored fails its execution; other refusals drop the report."""
        if isinstance(report, Succeeded) and isinstance(error, ValidationError):
            self.put(
                Failed(
                    held=report.held,
                    reason=f"the result was refused: {error}",
                    failure_class=FailureClass.PERMANENT,
                    category=type(error).__name__,
                )
            )
            return
        telling.refused(report.held, error, is_ours=not isinstance(error, FlowFabricError))
        self._answered(report.held)

    def _tell(self, report: Report, answer: Any) -> None:
        """One line for each recorded end."""
        held = report.held
        match report:
            case Succeeded():
                telling.completed(held)
            case Failed() if isinstance(answer, RetryScheduled):
                telling.retrying(held, report.reason, self._from_now_ms(answer.delay_until))
            case Failed():
                telling.failed(held, report.reason)
            case Postponed(until=None):
                telling.given_back(held)
            case Postponed():
                telling.parked(held, self._from_now_ms(answer.delay_until))

    def _from_now_ms(self, instant: int) -> int:
        return max(0, instant - self._store_now_ms())

    async def _complete(self, reports: list[Succeeded]) -> Sequence[Any]:
        return await self._engine.complete_many(
            [
                Complete(handle=each.held.claimed.handle, result=each.result, result_encoding=JSON)
                if each.held.has_nothing_left
                else Complete(
                    handle=each.held.claimed.handle,
                    result=each.result,
                    result_encoding=JSON,
                    frames=await _frames(each.held),
                    logs=await _lines(each.held),
                    entries=await _entries(each.held),
                )
                for each in reports
            ]
        )

    async def _fail(self, reports: list[Failed]) -> Sequence[Any]:
        return await self._engine.fail_many(
            [
                Fail(
                    handle=each.held.claimed.handle,
                    reason=each.reason,
                    failure_class=each.failure_class,
                    category=each.category,
                    retry_after_ms=each.retry_after_ms,
                    origin=origin_of(each.error, each.held.code_version),
                    frames=await _frames(each.held),
                    logs=await _lines(each.held),
                    entries=await _entries(each.held),
                )
                for each in reports
            ]
        )

    async def _postpone(self, reports: list[Postponed]) -> Sequence[Any]:
        now = await self._engine.server_time_ms()
        return await asyncio.gather(
            *(self._delay(each, _instant(each.until, now)) for each in reports),
            return_exceptions=True,
        )

    async def _delay(self, report: Postponed, until: int) -> Any:
        """Frames and lines first: a delay carries none."""
        held = report.held
        handle = held.claimed.handle
        if frames := await _frames(held):
            await self._engine.append_frames(handle, frames=frames)
        if (lines := await _lines(held)) is not None:
            await self._engine.append_logs(handle, logs=lines)
        entries = await _entries(held)
        return await self._engine.delay(handle, delay_until=until, entries=entries)


async def _frames(held: Held) -> tuple[NewFrame, ...]:
    """The frames that go with the end of an attempt."""
    return () if held.outbox is None else await held.outbox.rest()


async def _lines(held: Held) -> LogBatch | None:
    """The log lines that do."""
    return None if held.book is None else await held.book.rest()


async def _entries(held: Held) -> tuple[NewEntry, ...]:
    """The entries of the journal that do."""
    return () if held.entries is None else await held.entries.outbox.rest()


def _is_sent_again(held: Held, error: Exception) -> bool:
    """Passing errors are waited out. Any other error of the store or our own may pass too, or not:
    the lease is renewed no more, and when it has surely expired the work is run again."""
    kind = trouble(error)
    if kind in (Trouble.PASSING, Trouble.REFUSED):
        return kind is Trouble.PASSING
    held.renew_at = float("inf")
    return monotonic() < held.lapse_at


def _instant(until: Moment | None, now: int) -> int:
    if until is None:
        return now
    if isinstance(until, datetime):
        return instant_ms(until, field="until")
    return now + to_ms(until, field="until")
