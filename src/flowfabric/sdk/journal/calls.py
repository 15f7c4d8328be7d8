"""One call of a step: answered from the journal, or made and recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Generic, NoReturn, TypeVar

import msgspec

from flowfabric.clock import monotonic
from flowfabric.errors import InvalidInput
from flowfabric.kernel.journal.lookup import Asked
from flowfabric.model.budget import HardBreach, Reserved
from flowfabric.model.journal import (
    EntryError,
    EntryKind,
    EntryState,
    JournalEntry,
    NewEntry,
    Settlement,
)
from flowfabric.sdk import codec
from flowfabric.sdk.durations import span, to_datetime
from flowfabric.sdk.errors import BudgetExceeded, JournalMismatch, Parked
from flowfabric.sdk.journal import asking, once
from flowfabric.sdk.journal.bodies import Bodies, InThisThread, InThreads
from flowfabric.sdk.journal.failures import (
    UNAFFORDABLE,
    Failure,
    TimedOut,
    Unrecordable,
    pause_ms,
    raised,
    recorded,
    refused,
    unaffordable,
)
from flowfabric.sdk.journal.paying import Bill, Reserving, Unaffordable
from flowfabric.sdk.journal.plan import Plan
from flowfabric.sdk.journal.results import encoded
from flowfabric.sdk.journal.room import Waiter
from flowfabric.sdk.journal.scopes import PLACE, Scope, StepInfo
from flowfabric.sdk.journal.transactions import Session

_LOGGER = logging.getLogger("flowfabric.task")
_IN_PLACE_MS: Final = 5_000  # a longer pause between two tries frees the worker
_DUE: Final[msgspec.json.Decoder[int]] = msgspec.json.Decoder(int)
T = TypeVar("T")


class StepCall(Generic[T]):
    """A call of a step that has its key, and runs when it is awaited."""

    __slots__ = (
        "_is_used",
        "args",
        "arguments",
        "asked",
        "digest",
        "journal",
        "key",
        "kwargs",
        "plan",
        "scope",
    )

    def __init__(
        self, scope: Scope, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._is_used = True  # until it is complete
        self.scope = scope
        self.journal = scope.journal
        self.plan = plan
        self.args = args
        self.kwargs = kwargs
        key = scope.key(plan.name, plan.key, plan.was)
        self.key = key.now
        self.digest, self.arguments = plan.compared(args, kwargs)
        if plan.asks:  # a recorded step needs its answer no more
            self.journal.pass_over(once.question_of(self.journal, self.key))
        if plan.spend:
            asking.pass_over(self.journal, self.key)
        try:
            self.asked: Asked = self.journal.ask(
                scope,
                key.now,
                kind=plan.kind,
                digest=self.digest,
                formerly=key.formerly,
                is_aside=plan.key is not None and not scope.is_here,
            )
        except JournalMismatch as error:
            error.given = self.arguments
            raise
        self._is_used = False

    def __await__(self) -> Generator[Any, None, T]:
        self._use()
        if (answer := self.asked.answer) is not None:
            return self.replayed(answer)  # without a turn of the event loop
        return (yield from perform(self, InThreads(self.journal)).__await__())

    def blocking(self) -> T:
        """The same in a thread: the function runs in it."""
        self._use()
        if (answer := self.asked.answer) is not None:
            return self.replayed(answer)
        bodies = InThisThread()
        result: T = bodies.serve(perform(self, bodies), self.journal.owner.loop)
        return result

    def replayed(self, answer: JournalEntry) -> T:
        """The recorded end of the call."""
        if answer.error is not None:
            self.raise_failure(answer.error, answer.tries)
        try:
            value: T = self.plan.decoder.decode(answer.value or b"null")
        except codec.DecodeErrors as error:
            said = f"the call {self.key!r} is recorded with a result not of the annotated type"
            raise self.journal.mismatch(f"{said}: {error}", answer) from None
        return value

    def raise_failure(
        self, error: EntryError, tries: int, cause: Exception | None = None
    ) -> NoReturn:
        """The failure as the handler gets it, in every run."""
        exception = raised(self.plan, self.key, error)
        if not self.plan.is_once or error.category == UNAFFORDABLE:  # it began: it stays failed
            number = self.asked.number
            failure = Failure(self.key, number, self.digest, error, tries, exception)
            self.journal.failed(failure)
        raise exception from cause

    def drop(self) -> None:
        """It is not made after all."""
        self._is_used = True

    def _use(self) -> None:
        if self._is_used:
            raise RuntimeError(f"the call {self.key} was awaited before; make another call")
        self._is_used = True

    def __del__(self) -> None:
        if not self._is_used:
            _LOGGER.warning("%s: the call was never awaited, so the step did not run", self.key)


async def perform(call: StepCall[T], bodies: Bodies) -> T:
    """Make a call that has no answer yet, and record how it ended."""
    journal = call.journal
    journal.performing += 1
    journal.running[call.key] = monotonic()
    try:
        return await _begin(call, bodies)
    finally:
        journal.performing -= 1
        journal.running.pop(call.key, None)


async def _begin(call: StepCall[T], bodies: Bodies) -> T:
    """What must be so before the function begins."""
    journal, plan = call.journal, call.plan
    if plan.is_once and once.is_begun(call.asked):
        return await _told(call)
    if plan.has_effects and not plan.is_once:
        await journal.barrier(call.key)
    tries = await _tries_before(call)
    bill = await _reserved(call) if plan.spend else None
    if plan.is_once:
        once.note_start(journal, call.key, call.asked, call.digest)
        await journal.barrier(call.key)
    try:
        return await _perform(call, bodies, tries, bill)
    except (asyncio.CancelledError, InvalidInput):
        if bill is not None:
            await bill.release()
        raise


async def _reserved(call: StepCall[Any]) -> Bill:
    """What the step is about to spend."""
    bill = Bill(call.journal.owner, call.plan)
    try:
        await bill.reserve(partial(_ask_people, call))
    except Unaffordable as error:
        _unaffordable(call, unaffordable(call.key, error))
    except BudgetExceeded as error:  # people said no
        _unaffordable(call, refused(call.key, error), error)
    return bill


def _unaffordable(
    call: StepCall[Any], kept: EntryError, cause: BudgetExceeded | None = None
) -> NoReturn:
    number, digest = call.asked.number, call.digest
    call.journal.add(call.key, number, state=EntryState.FAILED, digest=digest, error=kept)
    call.raise_failure(kept, 1, cause)


async def _ask_people(
    call: StepCall[Any], budget: str, amounts: Mapping[str, int], reserve: Reserving
) -> Reserved | HardBreach:
    """A budget asks before this step may begin. Calls that are under way end first: what they have
    reserved goes back when the handler waits."""
    journal = call.journal
    questions = asking.Questions(journal.owner, call.scope, call.key)
    journal.performing -= 1
    try:
        await asking.alone(journal)
        return await questions.room(budget, amounts, reserve)
    finally:
        journal.performing += 1


async def _told(call: StepCall[T]) -> T:
    """An earlier run began it: how it ended, as far as that can be known."""
    number, digest = call.asked.number, call.digest
    answer = await once.outcome(call.journal, call.scope, call.key, call.plan)
    if isinstance(answer, EntryError):
        state = EntryState.FAILED
        call.journal.add(call.key, number, state=state, digest=digest, error=answer)
        call.raise_failure(answer, 1)
    is_secret = call.plan.is_secret
    call.journal.add(call.key, number, value=answer, digest=digest, is_secret=is_secret)
    value: T = call.plan.decoder.decode(answer)
    return value


class _Try:
    """One try of a call, as far as its success is recorded. Implements
    `transactions.Recording`."""

    def __init__(self, call: StepCall[Any], tries: int, began: float, bill: Bill | None) -> None:
        self._call = call
        self._tries = tries
        self._began = began
        self._bill = bill
        self._settles: tuple[Settlement, ...] = ()
        self.journal = call.journal
        self.key = call.key
        self.digest = call.digest

    def encoded(self, value: Any) -> tuple[Any, bytes]:
        """A result as later runs see it, and how it is recorded."""
        call = self._call
        most = call.journal.owner.payload_bytes_max
        value, data = encoded(call.plan, call.key, value, most)
        self._charge(value)
        return value, data

    def decoded(self, data: bytes) -> Any:
        """A result that is recorded already."""
        value = self._call.plan.decoder.decode(data)
        self._charge(value)
        return value

    def _charge(self, value: Any) -> None:
        if self._bill is None:
            return
        try:
            self._settles = self._bill.spent(value)
        except Exception as error:
            raise Unrecordable(f"actual: {type(error).__name__}: {error}") from error

    def entry(self, value: Any, data: bytes) -> NewEntry:
        """The entry of a success."""
        call = self._call
        return call.journal.entry(
            call.key,
            call.asked.number,
            kind=call.plan.kind,
            value=data,
            digest=call.digest,
            arguments=call.arguments,
            tries=self._tries,
            began=self._began,
            is_secret=call.plan.is_secret,
            settles=self._settles,
        )


async def _perform(call: StepCall[T], bodies: Bodies, tries: int, bill: Bill | None) -> T:
    """Try the function as often as it may. `tries`: how often it was tried by an earlier run."""
    journal, plan = call.journal, call.plan
    began = monotonic()
    while True:
        tries += 1
        if plan.has_effects:  # other branches may have gone on since the first barrier
            await journal.barrier(call.key)
        else:
            journal.check_lease()
        made = _Try(call, tries, began, bill)
        session = None if plan.pool is None else Session(plan.pool, made)
        try:
            value, data = await _tried(call, bodies, tries, made, session)
        except Exception as error:
            if session is not None and session.is_committed:
                value, data = session.value, session.data  # it ended before its time did
            elif session is not None and error is session.refusal:
                raise
            else:
                if (pause := pause_ms(plan, error, tries)) is None:
                    _fail(call, tries, began, bill, error)
                await _pause(call, tries, pause, error)
                continue
        if session is None or not session.is_recorded:
            journal.put(made.entry(value, data))
            await journal.outbox.room()
        return value


def _fail(
    call: StepCall[Any], tries: int, began: float, bill: Bill | None, error: Exception
) -> NoReturn:
    """The last try failed."""
    kept = recorded(call.plan, error)
    call.journal.add(
        call.key,
        call.asked.number,
        kind=call.plan.kind,
        state=EntryState.FAILED,
        digest=call.digest,
        arguments=call.arguments,
        error=kept,
        tries=tries,
        began=began,
        settles=() if bill is None else bill.unspent(),
    )
    call.raise_failure(kept, tries, error)


async def _tried(
    call: StepCall[T], bodies: Bodies, tries: int, made: _Try, session: Session | None
) -> tuple[T, bytes]:
    """One try: the result, and how it is recorded."""
    plan = call.plan
    info = StepInfo(call.journal, call.key, tries)
    if plan.timeout_s is None:
        value = await _body(call, bodies, info, session)
    else:
        limit = asyncio.timeout(plan.timeout_s)
        try:
            async with limit:
                value = await _body(call, InThreads(call.journal), info, session)
        except TimeoutError as error:
            if not limit.expired():
                raise
            if not plan.is_async:
                _LOGGER.warning("%s: its thread goes on, its result is dropped", call.key)
            after = span(round(plan.timeout_s * 1000))
            raise TimedOut(f"the step took longer than {after}") from error
    if session is not None and session.is_committed:
        return session.value, session.data
    return made.encoded(value)


async def _body(
    call: StepCall[Any], bodies: Bodies, info: StepInfo, session: Session | None
) -> Any:
    """The function itself, or what a test has in its place."""

    async def run() -> Any:
        if session is None:
            return await _call(call, bodies, info)
        if call.plan.is_async:
            return await session.run(lambda connection: _call(call, bodies, info, connection))
        return await session.run_blocking(_in_place(call, info), bodies.run)

    around = call.journal.owner.around
    return await run() if around is None else await around(call, info, run)


async def _call(call: StepCall[Any], bodies: Bodies, info: StepInfo, *first: Any) -> Any:
    """Call the function; journaled calls inside of it are refused. `first`: what comes before its
    arguments."""
    plan, args, kwargs = call.plan, call.args, call.kwargs
    if not plan.is_async and not (plan.is_inline and isinstance(bodies, InThreads)):
        function = _in_place(call, info)
        return await bodies.run(lambda: function(*first))
    token = PLACE.set(info)
    try:
        result = plan.function(*first, *args, **kwargs)
        return await result if plan.is_async else result
    finally:
        PLACE.reset(token)


def _in_place(call: StepCall[Any], info: StepInfo) -> Callable[..., Any]:
    """The plain function, in a thread that knows which step it is."""
    context, function = copy_context(), call.plan.function
    context.run(PLACE.set, info)
    return lambda *first: context.run(function, *first, *call.args, **call.kwargs)


async def _tries_before(call: StepCall[Any]) -> int:
    """How many tries are recorded; waits until the next one is due."""
    entry = call.asked.entry
    if entry is None or entry.kind is not EntryKind.RETRYING or entry.state is not EntryState.OPEN:
        return 0
    left = _DUE.decode(entry.value or b"0") - call.journal.owner.now_ms()
    if left > 0:
        await _wait(call, left)
    return entry.tries


async def _pause(call: StepCall[Any], tries: int, pause: int, error: Exception) -> None:
    """Between two tries. A long pause is recorded, and frees the worker."""
    _LOGGER.info("%s: try %d failed, the next one follows in %s", call.key, tries, span(pause))
    if pause <= _IN_PLACE_MS:
        await asyncio.sleep(pause / 1000)
        return
    journal = call.journal
    due = journal.owner.now_ms() + pause
    journal.add(
        call.key,
        call.asked.number,
        kind=EntryKind.RETRYING,
        state=EntryState.OPEN,
        value=str(due).encode(),
        digest=call.digest,
        error=recorded(call.plan, error),
        tries=tries,
    )
    await _wait(call, pause)


async def _wait(call: StepCall[Any], left_ms: int) -> None:
    """Without the worker, unless something else of the handler goes on in it."""
    journal = call.journal
    if left_ms <= _IN_PLACE_MS:
        await asyncio.sleep(left_ms / 1000)
        return
    if journal.branches or journal.performing > 1:
        await journal.room.wait(Waiter(journal.owner.now_ms() + left_ms))
        return
    raise Parked(to_datetime(journal.owner.now_ms() + left_ms))
