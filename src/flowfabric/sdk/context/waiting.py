"""Waits in the middle of a handler: recorded, so that another run of it goes on behind them.

While it waits an execution has no worker: its handler ends, and is called again when the wait is
over. It is answered from its journal up to the wait, which then returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar, overload

import msgspec

from flowfabric.api.waits import Fresh, SuspendRequest
from flowfabric.errors import InvalidInput
from flowfabric.ids import new_secret_id
from flowfabric.model.checks import check_integer
from flowfabric.model.condition_checks import COUNT_MAX
from flowfabric.model.journal import (
    EntryError,
    EntryKind,
    EntryState,
    JournalEntry,
    NewEntry,
    copied_outcome,
    outcome_value,
)
from flowfabric.model.record import replace
from flowfabric.model.suspension import (
    AlreadyMet,
    ReasonCode,
    ResumeCause,
    ResumeInfo,
    TimeoutOnly,
)
from flowfabric.model.words import TimeoutBehavior
from flowfabric.sdk.context.conditions import ANYTHING, APPROVED, Place, Wait, Waitable, as_wait
from flowfabric.sdk.context.conditions import approval as approval_of
from flowfabric.sdk.context.conditions import signal as signal_at
from flowfabric.sdk.context.places import OpenPlace, close_places, open_place, recorded_place
from flowfabric.sdk.context.received import ReceivedSignal, Waitpoint, received
from flowfabric.sdk.context.suspending import Suspend
from flowfabric.sdk.durations import Duration, Moment, instant_ms, to_ms
from flowfabric.sdk.errors import Suspension, WaitTimedOut
from flowfabric.sdk.journal.failures import Failure
from flowfabric.sdk.journal.interruption import interruptible
from flowfabric.sdk.journal.journal import Journal
from flowfabric.sdk.journal.room import Waiter
from flowfabric.sdk.journal.scopes import Scope, name_with, own_scope

T = TypeVar("T")
HOLD_UNDER_MS: Final = 1_000  # a shorter sleep keeps the worker
_UNTIL: Final[msgspec.json.Decoder[int]] = msgspec.json.Decoder(int)


class Missing:
    """No default was given."""

    def __repr__(self) -> str:
        return "none"


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True)
class Approval:
    """How people decided. It is true if they approved.

    `by`: their names, in the order they spoke. `answers`: each with the form that was filled in.
    """

    ok: bool
    by: tuple[str, ...]
    answers: tuple[tuple[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[str]:
        return iter(self.by)


class WaitCall:
    """One wait of a handler, as it stands in the journal."""

    def __init__(self, owner: Any, scope: Scope, name: str) -> None:
        self._owner = owner
        self._journal: Journal = owner.journal
        self._scope = scope
        self.key = self._scope.key(name).now
        self._asked = self._journal.ask(self._scope, self.key, kind=EntryKind.WAIT)
        answer = self._asked.answer
        if answer is not None and answer.state is EntryState.FAILED and answer.error is not None:
            raise InvalidInput(answer.error.reason, field="wait")

    def _reserve(self, wait: Wait) -> None:
        """Take the places of a wait; a refusal is recorded, since another run might not meet it."""
        try:
            self._journal.room.reserve(self.key, [key for key, _ in wait.places])
        except InvalidInput as error:
            kept = EntryError(InvalidInput.__name__, error.detail)
            number, failed = self._asked.number, EntryState.FAILED
            self._journal.add(self.key, number, kind=EntryKind.WAIT, state=failed, error=kept)
            raise

    @property
    def number(self) -> int:
        """Its number in its scope."""
        number: int = self._asked.number
        return number

    @property
    def outcome(self) -> ResumeInfo | None:
        """How it ended in an earlier run, if it did."""
        entry = self._asked.answer
        if entry is None:
            return None
        return self._journal.outcomes.get(entry.refers_to or "") or copied_outcome(entry)

    @property
    def has_passed(self) -> bool:
        """Whether it was a sleep that is over."""
        entry = self._asked.answer
        return entry is not None and entry.refers_to is None and entry.value is None

    @property
    def until(self) -> int | None:
        """When it was to end, as an earlier run recorded it: that counts, whatever the code says
        now."""
        entry = self._began
        return None if entry is None or not entry.value else _UNTIL.decode(entry.value)

    @property
    def _began(self) -> JournalEntry | None:
        """The entry of a wait that an earlier run began and did not end."""
        entry = self._asked.entry
        return None if entry is None or entry.state is not EntryState.OPEN else entry

    @property
    def is_beside_others(self) -> bool:
        """Whether other parts of the handler may run meanwhile, or did when it began."""
        if self._scope.owner != self._journal.root.owner or self._journal.branches:
            return True
        return self._began is not None and self._began.refers_to is None

    def pass_by(self) -> None:
        """A sleep is over."""
        self._journal.add(self.key, self._asked.number, kind=EntryKind.WAIT)

    async def wait_beside(
        self,
        until: int | None,
        *,
        request: SuspendRequest | None = None,
        wait: Wait | None = None,
    ) -> ResumeInfo:
        """Wait while other branches may go on; without a worker where none can."""
        began = self._began
        if began is None:
            self._journal.add(
                self.key,
                self._asked.number,
                kind=EntryKind.WAIT,
                state=EntryState.OPEN,
                value=None if until is None else str(until).encode(),
            )
        waiter = Waiter(until, began_at=None if began is None else began.recorded_at)
        opened: list[OpenPlace] = []
        if wait is not None and request is not None:
            self._reserve(wait)
            waiter.condition = request.resume_condition
            waiter.reason = ReasonCode(request.reason_code)
            opened = await self._places(wait, request)
            given = {key: each.id for key, each in wait.places if isinstance(each, Waitpoint)}
            waiter.places = {**given, **{each.key: each.id for each in opened}}
        try:
            outcome: ResumeInfo = await interruptible(self._owner, self._journal.room.wait(waiter))
        except asyncio.CancelledError:
            if self._journal.is_withdrawn(asyncio.current_task()):
                await close_places(self._owner, opened)
            raise
        value = None if request is None else outcome_value(outcome)
        self._journal.add(self.key, self._asked.number, kind=EntryKind.WAIT, value=value)
        await close_places(self._owner, opened)
        return outcome

    async def _places(self, wait: Wait, request: SuspendRequest) -> list[OpenPlace]:
        """Open the places that the wait names by a key; they stay open until it is over."""
        types = {each.waitpoint_key: each for each in request.waitpoints}
        opened = []
        for key, target in wait.places:
            if not isinstance(target, Waitpoint):
                place, schema = recorded_place(self._owner, self._scope, key), types[key]
                if place.id is not None:
                    opened.append(OpenPlace(place.id, key))
                else:
                    kind = schema.payload_type if isinstance(schema, Fresh) else None
                    opened.append(await open_place(self._owner, place, kind))
        return opened

    async def suspend(self, request: SuspendRequest) -> ResumeInfo:
        """Wait without a worker: the handler ends here, unless early signals meet the condition."""
        until = request.timeout_at
        entry = NewEntry(
            position=0,
            key=self.key,
            kind=EntryKind.WAIT,
            state=EntryState.OPEN,
            asked=self._asked.number,
            value=None if until is None else str(until).encode(),
            began_at=max(0, self._owner.now_ms()),
        )
        answer = await interruptible(self._owner, self._owner.suspend(request, entry, stays=True))
        if isinstance(answer, AlreadyMet):
            return ResumeInfo(ResumeCause.SIGNAL, "early signals", answer.signals, None)
        await self._owner.park()  # raises where the handler is not kept: it ends here
        handle = self._owner.claimed.handle
        ended: ResumeInfo | None = await self._owner.ask(lambda e: e.resume_info(handle))
        if ended is None:
            raise Suspension(self._owner.claimed.execution_id)
        return ended

    def timed_out(self, detail: str) -> WaitTimedOut:
        """The exception of a wait that ended without what it was for; the next attempt waits again
        if it ends this one."""
        error = WaitTimedOut(f"{self.key}: {detail}", key=self.key)
        kept = EntryError(WaitTimedOut.__name__, error.detail)
        number = self._asked.number
        self._journal.failed(Failure(self.key, number, None, kept, 1, error, EntryKind.WAIT))
        return error


async def sleep_until(owner: Any, scope: Scope, until: Moment) -> None:
    """Until an instant, or for a time from now on."""
    length = None if isinstance(until, datetime) else to_ms(until, field="sleep")
    at = instant_ms(until, field="sleep_until") if isinstance(until, datetime) else None
    call = WaitCall(owner, scope, "sleep")
    if call.outcome is not None or call.has_passed:
        return
    due = call.until
    if due is None:
        due = owner.now_ms() + length if length is not None else at or 0
    left = due - owner.now_ms()
    if left <= HOLD_UNDER_MS:
        if left > 0:
            await interruptible(owner, asyncio.sleep(left / 1000))
        call.pass_by()
        return
    if call.is_beside_others:
        await call.wait_beside(due)
        return
    await call.suspend(
        SuspendRequest(
            resume_condition=TimeoutOnly(),
            reason_code=ReasonCode.STEP_BOUNDARY,
            timeout_at=due,
            timeout_behavior=TimeoutBehavior.AUTO_RESUME,
            idempotency_key=f"wait:{new_secret_id()}",
        )
    )


async def wait_on(
    owner: Any,
    scope: Scope,
    name: str,
    wait: Waitable,
    timeout: Moment | None,
    expect: Any = ANYTHING,
) -> tuple[WaitCall, ResumeInfo]:
    """How a wait for signals ended."""
    chosen: Wait = as_wait(wait)
    asked = Suspend(
        wait=chosen,
        reason=None,
        timeout=timeout,
        on_timeout=None if timeout is None else "resume",
        expect=expect,
        continuation=None,
        key=None,
    )
    request = asked.request()  # refused here, where the traceback helps
    call = WaitCall(owner, scope, name)
    if (outcome := call.outcome) is not None:
        return call, outcome
    due = call.until
    if due is None and timeout is not None:
        due = await asked.timeout_at(owner)
    if call.is_beside_others:
        return call, await call.wait_beside(due, request=request, wait=chosen)
    return call, await call.suspend(replace(request, timeout_at=due))


async def wait_for(
    owner: Any, scope: Scope, place: Place, kind: Any, timeout: Moment | None, default: Any
) -> Any:
    """The payload of the next signal at a place."""
    wait = signal_at(place, expect=_declared(place, kind))
    call, outcome = await wait_on(owner, scope, name_with("wait", _key_of(place)), wait, timeout)
    if not outcome.signals:
        if not isinstance(default, Missing):
            return default
        raise call.timed_out(_why_not(outcome))
    came = received(outcome.signals)[-1]
    return came.payload if kind is ANYTHING else came.payload_as(kind)


async def wait_signals(
    owner: Any, scope: Scope, wait: Waitable, timeout: Moment | None
) -> tuple[ReceivedSignal, ...]:
    """The signals that met a condition."""
    name = name_with("wait", "+".join(key for key, _ in as_wait(wait).places) or "signals")
    call, outcome = await wait_on(owner, scope, name, wait, timeout)
    if outcome.cause is not ResumeCause.SIGNAL:
        raise call.timed_out(_why_not(outcome))
    return received(outcome.signals)


async def wait_approval(
    owner: Any, scope: Scope, place: Place, of: int, form: Any, timeout: Moment | None
) -> Approval:
    """How people decided."""
    check_integer(of, field="of", least=1, most=COUNT_MAX)
    wait = approval_of(place, of, expect=_declared(place, form))
    call, outcome = await wait_on(
        owner, scope, name_with("approval", _key_of(place)), wait, timeout
    )
    if outcome.cause is not ResumeCause.SIGNAL:
        raise call.timed_out(_why_not(outcome))
    came = received(outcome.signals)
    answers = tuple(
        (each.source, each.payload if form is ANYTHING else each.payload_as(form))
        for each in came
        if each.raw is not None
    )
    return Approval(came[-1].name == APPROVED, tuple(each.source for each in came), answers)


def _declared(place: Place, kind: Any) -> Any:
    """The type that a place is opened with; a waitpoint has its own already."""
    return ANYTHING if isinstance(place, Waitpoint) else kind


def _key_of(place: Any) -> str:
    return place if isinstance(place, str) else str(getattr(place, "key", "waitpoint"))


def _why_not(outcome: ResumeInfo) -> str:
    if outcome.cause is ResumeCause.OPERATOR:
        return f"{outcome.actor or 'an operator'} ended the wait before a signal did"
    return "its time is over"


class Waits:
    """What the waits of every handler need."""

    __slots__ = ()
    _owner: Any

    def _here(self) -> Scope:
        return own_scope("wait", self._owner.journal)


class Waiting(Waits):
    """The waits of an async handler."""

    __slots__ = ()

    async def sleep(self, duration: Duration) -> None:
        """Sleep, for seconds or for months: no worker is held, and no restart disturbs it.

            await ctx.sleep("3d")

        An operator may end it early with `ff waits resume`. Less than a second is waited in place.
        """
        await sleep_until(self._owner, self._here(), duration)

    async def sleep_until(self, instant: datetime) -> None:
        """Sleep until an instant, by the store's clock."""
        await sleep_until(self._owner, self._here(), checked_instant(instant))

    @overload
    async def wait_for(
        self, place: Place, kind: type[T], *, timeout: Moment | None = None, default: T = ...
    ) -> T: ...
    @overload
    async def wait_for(
        self, place: Place, *, timeout: Moment | None = None, default: Any = ...
    ) -> Any: ...

    async def wait_for(
        self,
        place: Place,
        kind: Any = ANYTHING,
        *,
        timeout: Moment | None = None,
        default: Any = MISSING,
    ) -> Any:
        """The payload of the next signal that is sent to this key, or to a waitpoint.

            reply = await ctx.wait_for("reply", Reply, timeout="1d")

        One that is not of this type is refused when it is sent. When its time is over it gives
        `default`, or raises `WaitTimedOut`.
        """
        return await wait_for(self._owner, self._here(), place, kind, timeout, default)

    async def wait(
        self, condition: Waitable, *, timeout: Moment | None = None
    ) -> tuple[ReceivedSignal, ...]:
        """The signals that meet a condition: `all_of`, `any_of`, `count`, `signal`, `approval`."""
        return await wait_signals(self._owner, self._here(), condition, timeout)

    async def approval(
        self, place: Place, *, of: int = 1, form: Any = ANYTHING, timeout: Moment | None = None
    ) -> Approval:
        """Wait until `of` different people approve, or one rejects.

        if await ctx.approval("publish", of=2, timeout="2d"):
            await publish(text)
        """
        return await wait_approval(self._owner, self._here(), place, of, form, timeout)


class SyncWaiting(Waits):
    """The waits of a sync handler: the same. While it waits it has no thread."""

    __slots__ = ()

    def sleep(self, duration: Duration) -> None:
        """Sleep without a worker: see `Context.sleep`."""
        self._blocking(sleep_until(self._owner, self._here(), duration))

    def sleep_until(self, instant: datetime) -> None:
        """Sleep until an instant, by the store's clock."""
        self._blocking(sleep_until(self._owner, self._here(), checked_instant(instant)))

    @overload
    def wait_for(
        self, place: Place, kind: type[T], *, timeout: Moment | None = None, default: T = ...
    ) -> T: ...
    @overload
    def wait_for(
        self, place: Place, *, timeout: Moment | None = None, default: Any = ...
    ) -> Any: ...

    def wait_for(
        self,
        place: Place,
        kind: Any = ANYTHING,
        *,
        timeout: Moment | None = None,
        default: Any = MISSING,
    ) -> Any:
        """The payload of the next signal at a place: see `Context.wait_for`."""
        return self._blocking(wait_for(self._owner, self._here(), place, kind, timeout, default))

    def wait(
        self, condition: Waitable, *, timeout: Moment | None = None
    ) -> tuple[ReceivedSignal, ...]:
        """The signals that meet a condition: see `Context.wait`."""
        found: tuple[ReceivedSignal, ...] = self._blocking(
            wait_signals(self._owner, self._here(), condition, timeout)
        )
        return found

    def approval(
        self, place: Place, *, of: int = 1, form: Any = ANYTHING, timeout: Moment | None = None
    ) -> Approval:
        """How people decide: see `Context.approval`."""
        decided: Approval = self._blocking(
            wait_approval(self._owner, self._here(), place, of, form, timeout)
        )
        return decided

    def _blocking(self, operation: Any) -> Any:
        return self._owner.wait_for(operation)


def checked_instant(instant: object) -> datetime:
    """What `sleep_until` takes."""
    if not isinstance(instant, datetime):
        detail = f"sleep_until: expected a datetime, got {type(instant).__name__}"
        raise InvalidInput(detail, field="sleep_until")
    return instant
