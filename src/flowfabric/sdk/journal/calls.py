"""One call of a step: answered from the journal, or made and recorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

import msgspec

from flowfabric.clock import monotonic
from flowfabric.kernel.journal.lookup import Asked
from flowfabric.limits import JSON_DEPTH_MAX
from flowfabric.model.journal import EntryError, EntryKind, EntryState, JournalEntry
from flowfabric.model.nesting import is_too_deep
from flowfabric.sdk import codec
from flowfabric.sdk.durations import span, to_datetime
from flowfabric.sdk.errors import JournalMismatch, Parked
from flowfabric.sdk.journal import once
from flowfabric.sdk.journal.failures import (
    TimedOut,
    Unrecordable,
    pause_ms,
    raised,
    recorded,
)
from flowfabric.sdk.journal.journal import Failure, Journal
from flowfabric.sdk.journal.plan import Plan, settled
from flowfabric.sdk.journal.scopes import PLACE, Scope, StepInfo

_LOGGER = logging.getLogger("flowfabric.task")
_IN_PLACE_MS: Final = 5_000  # a longer pause between two tries frees the worker
_DUE: Final[msgspec.json.Decoder[int]] = msgspec.json.Decoder(int)
T = TypeVar("T")


class Bodies(Protocol):
    """Where plain functions run."""

    async def run(self, function: Callable[[], Any]) -> Any:
        """The result of a function that may block."""
        ...


class InThreads:
    """In threads of the worker: an async handler must not be blocked, and a try that takes too long
    is left to itself."""

    def __init__(self, journal: Journal) -> None:
        self._threads = journal.owner.bodies

    async def run(self, function: Callable[[], Any]) -> Any:
        """In any of them."""
        return await _elsewhere(self._threads.run, function)


class InThisThread:
    """In the thread of a sync handler, which waits for work while the loop decides."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    async def run(self, function: Callable[[], Any]) -> Any:
        """In the thread that serves."""
        return await _elsewhere(self._jobs.put, function)

    def serve(self, operation: Any, loop: asyncio.AbstractEventLoop) -> Any:
        """Run a coroutine on the loop, and here what it wants to be run here."""
        future = asyncio.run_coroutine_threadsafe(operation, loop)
        future.add_done_callback(lambda _: self._jobs.put(None))
        while (job := self._jobs.get()) is not None:
            job()
        return future.result()


async def _elsewhere(start: Callable[[Callable[[], None]], None], function: Any) -> Any:
    """The result of a function that another thread runs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(outcome: Any, error: BaseException | None) -> None:
        if done.done():
            return  # nothing waits for it any more
        if error is None:
            done.set_result(outcome)
        else:
            done.set_exception(error)

    def job() -> None:
        outcome, error = None, None
        try:
            outcome = function()
        except BaseException as problem:  # noqa: BLE001 - it belongs to the one that waits
            error = problem
            if isinstance(problem, StopIteration):  # no future takes it
                error = RuntimeError("the step raised StopIteration")
        try:
            loop.call_soon_threadsafe(settle, outcome, error)
        except RuntimeError:  # the loop is closed: this thread outlived its worker
            return

    start(job)
    return await done


class StepCall(Generic[T]):
    """A call of a step that has its key, and runs when it is awaited."""

    __slots__ = (
        "_is_used",
        "args",
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
        self.digest = plan.digest(args, kwargs)
        if plan.asks:  # a recorded step needs its answer no more
            self.journal.pass_over(once.question_of(self.journal, self.key))
        self.asked: Asked = self.journal.ask(
            scope,
            key.now,
            kind=plan.kind,
            digest=self.digest,
            formerly=key.formerly,
            is_aside=plan.key is not None and not scope.is_here,
        )
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
            detail = f"{self.key}: what is recorded is not of the annotated type: {error}"
            raise JournalMismatch(detail) from None
        return value

    def raise_failure(
        self, error: EntryError, tries: int, cause: Exception | None = None
    ) -> NoReturn:
        """The failure as the handler gets it, in every run."""
        exception = raised(self.plan, self.key, error)
        if not self.plan.is_once:  # which is not tried again: it stays failed
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
    call.journal.performing += 1
    try:
        if call.plan.is_once:
            if once.is_begun(call.asked):
                return await _told(call)
            once.note_start(call.journal, call.key, call.asked, call.digest)
        if call.plan.has_effects:
            await call.journal.barrier(call.key)
        return await _perform(call, bodies)
    finally:
        call.journal.performing -= 1


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


async def _perform(call: StepCall[T], bodies: Bodies) -> T:
    """Try the function as often as it may."""
    journal, plan, number = call.journal, call.plan, call.asked.number
    began = monotonic()
    tries = await _tries_before(call)
    while True:
        tries += 1
        journal.check_lease()
        try:
            value, data = await _tried(call, bodies, tries)
        except Exception as error:  # noqa: BLE001 - whatever a step raises is recorded
            pause = pause_ms(plan, error, tries)
            if pause is not None:
                await _pause(call, tries, pause, error)
                continue
            kept = recorded(plan, error)
            journal.add(
                call.key,
                number,
                kind=plan.kind,
                state=EntryState.FAILED,
                digest=call.digest,
                error=kept,
                tries=tries,
                began=began,
            )
            call.raise_failure(kept, tries, error)
        journal.add(
            call.key,
            number,
            kind=plan.kind,
            value=data,
            digest=call.digest,
            tries=tries,
            began=began,
            is_secret=plan.is_secret,
        )
        await journal.outbox.room()
        return value


async def _tried(call: StepCall[T], bodies: Bodies, tries: int) -> tuple[T, bytes]:
    """One try: the result, and how it is recorded."""
    plan = call.plan
    info = StepInfo(call.journal, call.key, tries)
    if plan.timeout_s is None:
        value = await _body(call, bodies, info)
    else:
        limit = asyncio.timeout(plan.timeout_s)
        try:
            async with limit:
                value = await _body(call, InThreads(call.journal), info)
        except TimeoutError as error:
            if not limit.expired():
                raise
            if not plan.is_async:
                _LOGGER.warning("%s: its thread goes on, its result is dropped", call.key)
            after = span(round(plan.timeout_s * 1000))
            raise TimedOut(f"the step took longer than {after}") from error
    try:
        data = codec.encode(value)
    except codec.EncodeErrors as error:
        detail = f"the result of {call.key} cannot be written as JSON: {error}"
        raise Unrecordable(detail) from error
    if len(data) > (most := call.journal.owner.payload_bytes_max):
        detail = f"the result of {call.key} has {len(data)} bytes, which is over the limit {most}"
        raise Unrecordable(detail, size=len(data), limit=most)
    if is_too_deep(data):
        raise Unrecordable(f"the result of {call.key} nests deeper than {JSON_DEPTH_MAX} levels")
    try:
        return settled(plan, value, data), data
    except codec.DecodeErrors as error:
        detail = f"the result of {call.key} is not of the annotated type: {error}"
        raise Unrecordable(detail) from error


async def _body(call: StepCall[Any], bodies: Bodies, info: StepInfo) -> Any:
    """The function itself, or what a test has in its place."""
    around = call.journal.owner.around
    if around is not None:
        return await around(call, info, lambda: _call(call, bodies, info))
    return await _call(call, bodies, info)


async def _call(call: StepCall[Any], bodies: Bodies, info: StepInfo) -> Any:
    """Call the function; journaled calls inside of it are refused."""
    plan, args, kwargs = call.plan, call.args, call.kwargs
    function = plan.function
    if not plan.is_async and not (plan.is_inline and isinstance(bodies, InThreads)):
        context = copy_context()
        context.run(PLACE.set, info)
        return await bodies.run(lambda: context.run(function, *args, **kwargs))
    token = PLACE.set(info)
    try:
        result = function(*args, **kwargs)
        return await result if plan.is_async else result
    finally:
        PLACE.reset(token)


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
    if left_ms <= _IN_PLACE_MS or journal.branches or journal.performing > 1:
        await asyncio.sleep(left_ms / 1000)
        return
    raise Parked(to_datetime(journal.owner.now_ms() + left_ms))
