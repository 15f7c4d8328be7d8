"""Waits beside each other, in the branches of one handler.

A branch that waits while another one works keeps the lease: it is woken in place. When no branch
can go on, the execution is suspended on the first of all open waits, and its handler ends; called
again, every branch finds what has ended meanwhile, and the others wait again. Places of signals
stay open all the time, so no signal is lost between two of these suspensions.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

from flowfabric import limits
from flowfabric.api.waits import StayPending, SuspendRequest, UsePending
from flowfabric.errors import FlowFabricError, InvalidInput
from flowfabric.ids import new_secret_id
from flowfabric.kernel.wait.condition import met_by
from flowfabric.model.mailbox import place_of
from flowfabric.model.results import Outcome
from flowfabric.model.suspension import (
    AnyOf,
    Contribution,
    ReasonCode,
    ResumeCause,
    ResumeCondition,
    ResumeInfo,
    ResumeSignal,
    Single,
    Suspended,
    TimeoutOnly,
)
from flowfabric.model.watch import ENDED
from flowfabric.model.words import TimeoutBehavior
from flowfabric.sdk.journal.joins import is_stuck

_FIRST_LOOK_S: Final = 0.001
_LAST_LOOK_S: Final = 1.0
_TURNS: Final = 3  # of the loop, after which a branch that was woken has gone on


@dataclass(slots=True, eq=False)
class Waiter:
    """One open wait of a branch: for a time, for signals, for the ends of executions, for the next
    message of a mailbox."""

    until: int | None = None
    condition: ResumeCondition | None = None
    places: Mapping[str, str] = field(default_factory=dict)  # waitpoints by their keys
    reason: ReasonCode = ReasonCode.STEP_BOUNDARY
    ends: frozenset[str] = frozenset()
    mailbox: str | None = None
    began_at: int | None = None  # of a wait that an earlier run began
    task: asyncio.Task[Any] | None = None
    future: asyncio.Future[Any] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What was found at the places of waits, which executions have ended, which mailboxes have
    messages."""

    now: int
    signals: Mapping[str, tuple[ResumeSignal, ...]]
    outcomes: Mapping[str, Outcome]
    unread: frozenset[str] = frozenset()  # mailboxes with messages


class Room:
    """The open waits of one handler, and the task that ends them."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._waiters: dict[Waiter, None] = {}
        self._driver: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._places: set[str] = set()  # keys at which branches wait, or are about to
        self._jobs = 0  # of a sync handler: how many run in threads
        self._counting = threading.Lock()
        self._joins: set[asyncio.Task[Any]] = set()  # of a sync handler: threads wait for them

    # --- for branches ----------------------------------------------------------------------------

    async def wait(self, waiter: Waiter) -> Any:
        """How a wait ended: a `ResumeInfo`; for ends the outcomes by execution; for a mailbox True,
        if it seems to have a message."""
        loop = asyncio.get_running_loop()
        waiter.task, waiter.future = asyncio.current_task(), loop.create_future()
        self._waiters[waiter] = None
        if self._driver is None:
            self._driver = loop.create_task(self._drive())
        self.wake()
        try:
            return await waiter.future
        finally:
            self._waiters.pop(waiter, None)
            self._places -= waiter.places.keys()
            self.wake()

    def wake(self) -> None:
        """Something has changed: look whether any branch can go on."""
        self._changed.set()

    def begin_job(self) -> None:
        """A thread of a sync handler begins. Any thread may say it."""
        with self._counting:
            self._jobs += 1

    def end_job(self) -> None:
        """It ends. Any thread may say it."""
        with self._counting:
            self._jobs -= 1
        with suppress(RuntimeError):  # the loop is closed with the worker
            self._owner.loop.call_soon_threadsafe(self.wake)

    @contextmanager
    def joining(self) -> Iterator[None]:
        """The current task joins branches, and a thread of a sync handler waits for it."""
        if (task := asyncio.current_task()) is not None:
            self._joins.add(task)
        try:
            yield
        finally:
            self._joins.discard(cast("asyncio.Task[Any]", task))
            self.wake()

    def reserve(self, wait: str, places: Sequence[str]) -> None:
        """A wait is about to open these places. Two waits at one would share its signals."""
        for key in places:
            if key in self._places:
                detail = f"{wait}: another branch waits at {key!r} already; use another key"
                raise InvalidInput(detail, field="wait")
        if len(self._places) + len(places) >= limits.WAITPOINTS_MAX:
            most = limits.WAITPOINTS_MAX - 1  # one is for ends
            detail = f"{wait}: branches wait at more than {most} places at once"
            raise InvalidInput(detail, field="wait")
        self._places.update(places)

    # --- the task that ends waits ----------------------------------------------------------------

    async def _drive(self) -> None:
        pause = _FIRST_LOOK_S
        try:
            while self._waiters:
                if self._changed.is_set():
                    self._changed.clear()
                    pause = _FIRST_LOOK_S
                found = await self._look()
                if self._settle(found):
                    await _turns()
                elif await self._stays_stuck():
                    await self._suspend(found)
                else:
                    await self._pause(pause)
                    pause = min(2 * pause, _LAST_LOOK_S)
        except BaseException as error:  # noqa: BLE001 - it belongs to the handler
            self._fail(error)
        finally:
            self._driver = None

    async def _pause(self, pause: float) -> None:
        """Until something changes, the next time is due, or it is worth another look."""
        now = self._owner.now_ms()
        due = min((each.until for each in self._waiters if each.until is not None), default=None)
        if due is not None:
            pause = min(pause, max(0, due - now) / 1000)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._changed.wait()

    async def _look(self) -> Found:
        """One read of the store for all waits, or none where all wait for a time."""
        owner = self._owner
        places = [each for waiter in self._waiters for each in waiter.places.values()]
        ends = sorted({each for waiter in self._waiters for each in waiter.ends})
        handle = owner.claimed.handle
        signals: Mapping[str, tuple[ResumeSignal, ...]] = {}
        outcomes: Mapping[str, Outcome] = {}
        if places:
            signals = await owner.ask(lambda e: e.read_signals(handle, waitpoint_ids=places))
        if ends:
            outcomes = await owner.ask(lambda e: e.read_outcomes(execution_ids=ends))
        unread: frozenset[str] = frozenset()
        if any(waiter.mailbox is not None for waiter in self._waiters):
            key = owner.claimed.execution_id
            boxes = await owner.ask(lambda e: e.list_mailboxes(execution_id=key))
            unread = frozenset(each.mailbox for each in boxes if each.unread)
        return Found(owner.now_ms(), signals, outcomes, unread)

    def _settle(self, found: Found) -> bool:
        """End every wait that is over; whether any is."""
        ended = False
        for waiter in list(self._waiters):
            answer = self._answer(waiter, found)
            if answer is not None and waiter.future is not None and not waiter.future.done():
                waiter.future.set_result(answer)
                self._waiters.pop(waiter, None)
                ended = True
        return ended

    def _answer(self, waiter: Waiter, found: Found) -> Any:
        if waiter.ends:
            if all(each in found.outcomes for each in waiter.ends):
                return {each: found.outcomes[each] for each in waiter.ends}
        elif waiter.mailbox is not None and waiter.mailbox in found.unread:
            return True
        elif waiter.condition is not None:
            several = [
                signal for each in waiter.places.values() for signal in found.signals.get(each, ())
            ]
            if (met := _met(waiter.condition, several)) is not None:
                return met
        if waiter.until is not None and waiter.until <= found.now:
            return ResumeInfo(ResumeCause.TIMEOUT, "system", (), None)
        return self._by_operator(waiter)

    def _by_operator(self, waiter: Waiter) -> ResumeInfo | None:
        """An operator has ended the last suspension, and with it all waits it stood for."""
        last = self._owner.ended_wait
        if last is None or last.cause is not ResumeCause.OPERATOR or waiter.began_at is None:
            return None
        if waiter.began_at > last.ended_at:
            return None
        return ResumeInfo(ResumeCause.OPERATOR, last.actor, (), None)

    # --- suspending ------------------------------------------------------------------------------

    def _is_stuck(self) -> bool:
        """Whether no branch can go on."""
        owner = self._owner
        home = owner.home
        open_waits = [each for each in self._waiters if each.future and not each.future.done()]
        waiting = {each.task for each in open_waits}
        if not isinstance(home, asyncio.Task):
            # Each thread waits by itself, or for branches.
            alone = sum(each.task not in owner.journal.branches for each in open_waits)
            joined = sum(is_stuck(each, waiting.__contains__) for each in self._joins)
            return alone + joined >= max(1, self._jobs)
        tasks = [home, *owner.journal.branches]
        return all(is_stuck(each, waiting.__contains__) for each in tasks if not each.done())

    async def _stays_stuck(self) -> bool:
        """The same, after every task had its turn and all that is recorded is durable: one that has
        just failed or ended may yet move others."""
        if not self._is_stuck():
            return False
        await self._owner.settle()
        await _turns()
        return self._is_stuck()

    async def _suspend(self, found: Found) -> None:
        """Wait without a worker for the first of all open waits; unless one is over already. A wait
        for several ends goes on after the first: only those that are missing are watched."""
        owner, waiters = self._owner, list(self._waiters)
        ends = sorted({each for waiter in waiters for each in waiter.ends - found.outcomes.keys()})
        watched: str | None = None
        if ends:
            watched = await self._watch(waiters, ends)
            if watched is None or not self._is_stuck():
                return
        mailboxes = sorted({each.mailbox for each in waiters if each.mailbox is not None})
        listening: Mapping[str, str] = {}
        if mailboxes:
            handle = owner.claimed.handle
            told = await owner.ask(lambda e: e.listen_mailboxes(handle, mailboxes=mailboxes))
            listening = told.places
            if not listening or not self._is_stuck():
                return
        answer = await owner.suspend(_request(waiters, watched, listening), stays=True)
        if isinstance(answer, Suspended):
            await owner.park()  # raises where the handler is not kept: it ends here
            await owner.load_wait()
            for waiter in waiters:
                waiter.began_at = waiter.began_at or 0  # before the suspension that has ended

    async def _watch(self, waiters: Sequence[Waiter], ends: Sequence[str]) -> str | None:
        """Where the engine tells of ends; None where some came meanwhile. A refusal goes to the
        branches that it concerns."""
        owner = self._owner
        handle, alone = owner.claimed.handle, sum(bool(each.ends) for each in waiters) == 1
        try:
            found = await owner.ask(
                lambda e: e.watch_executions(handle, execution_ids=ends, needs_all=alone)
            )
        except FlowFabricError as error:
            for waiter in waiters:
                if waiter.ends and waiter.future is not None and not waiter.future.done():
                    waiter.future.set_exception(error)
                    self._waiters.pop(waiter, None)
            await _turns()
            return None
        place: str | None = found.waitpoint_id
        return place

    def _fail(self, error: BaseException) -> None:
        for waiter in list(self._waiters):
            if waiter.future is not None and not waiter.future.done():
                waiter.future.set_exception(error)
        self._waiters.clear()


def _request(
    waiters: Iterable[Waiter], watched: str | None, listening: Mapping[str, str]
) -> SuspendRequest:
    """One suspension for all of them."""
    several = list(waiters)
    conditions: list[ResumeCondition] = [
        each.condition for each in several if each.condition is not None
    ]
    places: list[StayPending | UsePending] = [
        StayPending(place, key) for each in several for key, place in each.places.items()
    ]
    if watched is not None:
        conditions.append(Single(ENDED))
        places.append(UsePending(watched, ENDED))
    for mailbox, place in listening.items():
        conditions.append(Single(place_of(mailbox)))
        places.append(UsePending(place, place_of(mailbox)))
    condition: ResumeCondition = TimeoutOnly()
    if conditions:
        condition = conditions[0] if len(conditions) == 1 else AnyOf(tuple(conditions))
    reasons = [each.reason for each in several if each.reason is not ReasonCode.STEP_BOUNDARY]
    if watched is not None or listening:
        reasons.append(ReasonCode.WAITING_FOR_SIGNAL)
    return SuspendRequest(
        resume_condition=condition,
        waitpoints=tuple(places),
        reason_code=reasons[0] if reasons else ReasonCode.STEP_BOUNDARY,
        timeout_at=min((each.until for each in several if each.until is not None), default=None),
        timeout_behavior=TimeoutBehavior.AUTO_RESUME,
        idempotency_key=f"wait:{new_secret_id()}",
    )


def _met(condition: ResumeCondition, signals: Sequence[ResumeSignal]) -> ResumeInfo | None:
    """How signals end a wait, if they do."""
    ordered = sorted(signals, key=lambda each: each.accepted_at)
    by_id = {each.signal_id: each for each in ordered}
    said = [
        Contribution(
            each.waitpoint_key,
            each.signal_id,
            each.signal_name,
            each.source_type,
            each.source_identity,
        )
        for each in ordered
    ]
    if (found := met_by(condition, said)) is None:
        return None
    actor = f"{found[-1].source_type}:{found[-1].source_identity}"
    met = tuple(by_id[each.signal_id] for each in found)
    return ResumeInfo(ResumeCause.SIGNAL, actor, met, None)


async def _turns() -> None:
    """Let branches that were woken go on."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
