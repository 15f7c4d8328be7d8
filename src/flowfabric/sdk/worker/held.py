"""One execution that this worker runs."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.api.leases import Renew
from flowfabric.api.waits import SuspendRequest
from flowfabric.clock import monotonic
from flowfabric.errors import (
    Corruption,
    ExecutionNotActive,
    ForkedProcess,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    StaleLease,
)
from flowfabric.ids import new_secret_id
from flowfabric.model.checks import clip_text
from flowfabric.model.handle import Handle, HandleKind
from flowfabric.model.journal import FORMAT, Continued, JournalEntry, JournalPage, NewEntry
from flowfabric.model.log_lines import LogBatch, NewLine
from flowfabric.model.results import Claimed
from flowfabric.model.stream import NewFrame
from flowfabric.model.suspension import (
    AlreadyMet,
    OperatorOnly,
    ReasonCode,
    ResumeInfo,
    Suspended,
)
from flowfabric.sdk.context.ends import Wanted, result_of
from flowfabric.sdk.context.received import Ended, ended
from flowfabric.sdk.durations import instant_ms
from flowfabric.sdk.errors import JournalMismatch, Stopped, Suspension
from flowfabric.sdk.journal.differences import difference
from flowfabric.sdk.journal.interruption import refuse_timeouts, to_its_end
from flowfabric.sdk.journal.journal import Around, Journal
from flowfabric.sdk.journal.scopes import RUNNING, here, is_in_scope
from flowfabric.sdk.journal.sending import recorded
from flowfabric.sdk.outage import Outage, Patience
from flowfabric.sdk.task import Task
from flowfabric.sdk.threads import Threads
from flowfabric.sdk.worker.log_book import LogBook, Scribe
from flowfabric.sdk.worker.outbox import Outbox
from flowfabric.sdk.worker.warm import Warm
from flowfabric.trouble import is_passing, may_pass

_LOGGER = logging.getLogger("flowfabric.worker")
LOST = (StaleLease, LeaseExpired, LeaseRevoked, ExecutionNotActive, NotFound)
_UNCLEAR_TRIES: Final = 5  # of a call that fails for a reason that may not pass
_BODIES: Final = 256  # threads for plain functions that are steps of async handlers
T = TypeVar("T")
# Two threads of a handler may log its first line. A signal handler or a finalizer may, too.
_FIRST_LINE: Final = threading.RLock()


def is_lost(error: BaseException) -> bool:
    """Whether a reply says that the lease is gone. A budget may be missing without that."""
    if isinstance(error, NotFound):
        return bool(error.fields.get("entity", "execution") == "execution")
    return isinstance(error, LOST)


class Desk:
    """The parts that all executions of one worker share."""

    __slots__ = (
        "around",
        "bodies",
        "engine",
        "let_go",
        "loop",
        "lost",
        "now_ms",
        "outage",
        "payload_bytes_max",
        "process_id",
        "scribe",
        "warm",
    )

    def __init__(
        self,
        engine: EngineBackend,
        *,
        lost: Callable[[Held, str], None],
        let_go: Callable[[Held, bool], None],
        now_ms: Callable[[], int],
        outage: Outage,
        payload_bytes_max: int,
    ) -> None:
        self.engine = engine
        self.lost = lost
        self.let_go = let_go
        self.now_ms = now_ms
        self.outage = outage
        self.payload_bytes_max = payload_bytes_max
        self.around: Around | None = None
        self.warm: Warm | None = None  # where handlers that wait are kept
        self.bodies = Threads(_BODIES)
        self.scribe = Scribe(engine)
        self.loop = asyncio.get_running_loop()
        self.process_id = os.getpid()


class Held:
    """An execution, its task and the state of its handler. Implements `context.Owner`."""

    # The execution of the current handler: tasks and threads that a handler makes inherit it.
    current: ClassVar[ContextVar[Held | None]] = RUNNING
    journal_type: ClassVar[type[Journal]] = Journal

    __slots__ = (
        "_journal",
        "_waker",
        "began_at",
        "book",
        "claimed",
        "desk",
        "ended_at",
        "ended_wait",
        "handler",
        "home",
        "is_continued",
        "is_drained",
        "is_finished",
        "is_started",
        "is_stopped",
        "is_suspended",
        "is_suspending",
        "journal_index",
        "lapse_at",
        "outbox",
        "renew_at",
        "task",
    )

    def __init__(
        self, claimed: Claimed, task: Task[..., Any], desk: Desk, renew_at: float, lapse_at: float
    ) -> None:
        self.claimed = claimed
        self.task = task
        self.desk = desk
        self.renew_at = renew_at  # when to renew the lease, on the monotonic clock
        self.lapse_at = lapse_at  # when the lease is surely gone unless it was renewed
        self.handler: asyncio.Task[None] | None = None
        self.home: object = None  # the task or the thread in which the handler runs
        self.began_at: float | None = None  # of the handler, on the monotonic clock
        self.ended_at: float | None = None
        self.is_started = False
        self.is_finished = False  # the handler has ended; its report may still be on its way
        self.is_stopped = False  # nothing the handler still does will count
        self.is_drained = False  # stopped by our own drain: the execution is given back
        self.is_suspending = False  # requested; the reply is on its way
        self.is_suspended = False  # by its own handler, which has nothing more to report
        self.is_continued = False  # likewise: it goes on in another chapter
        self.ended_wait: Ended | None = None
        self.outbox: Outbox | None = None  # once the handler has emitted a frame
        self.book: LogBook | None = None  # once it has logged a line
        self._journal: Journal | None = None  # once it was loaded or asked for
        self.journal_index = 0  # a first attempt has the first one
        self._waker: threading.Event | None = None

    def begin(self) -> None:
        """The handler is about to be called, here."""
        self.is_started = True
        self.home = here()
        self.began_at = monotonic()

    def stop(self) -> None:
        """Tell the handler that its work no longer counts; an async one is also interrupted."""
        self.is_stopped = True
        if self._waker is not None:
            self._waker.set()
        # A task cancelled before its first step would never run its own clean-up.
        if self.handler is not None and self.is_started and not self.is_finished:
            self.handler.cancel()

    async def report_progress(self, percent: int | None, message: str | None) -> None:
        """Progress is optional: an error of the store neither fails nor delays the work, a lost
        lease ends it."""
        if self.is_stopped:
            raise Stopped(self.claimed.execution_id)
        if self.is_replaying:
            return  # it was reported when this place was first reached
        try:
            await self.desk.engine.progress(self.claimed.handle, percent=percent, message=message)
        except LOST as error:
            self.desk.lost(self, str(error))
            raise Stopped(self.claimed.execution_id) from error
        except Exception as error:
            if not may_pass(error):
                raise

    async def emit(self, frame: NewFrame) -> None:
        """Put a frame on its way to the stream; what a replay shows was shown before."""
        if not self.is_replaying:
            await self._frames().emit(frame)

    async def change_summary(self, frame: NewFrame) -> int:
        """Change the summary; the version it has then."""
        return await self._uninterrupted(self._frames().change(frame))

    def _frames(self) -> Outbox:
        if self.outbox is None:
            self.outbox = Outbox(self)
        return self.outbox

    @property
    def may_log(self) -> bool:
        """Whether lines of the handler can still be kept."""
        return not self.is_finished and self.desk.scribe.is_here and not self.is_replaying

    def log(self, line: NewLine) -> None:
        """Put a line on its way to the log. Any thread may call it."""
        if self.book is None:
            with _FIRST_LINE:
                if self.book is None:
                    self.book = LogBook(self.claimed.handle, self.desk.scribe.wake)
        self.book.add(line)

    async def flush(self) -> None:
        """Return when every emitted frame and every line is stored."""
        if self.outbox is not None:
            await self.outbox.flush()
        if self.book is not None:
            await self.book.flush(self._append_lines)

    async def _append_lines(self, batch: LogBatch) -> None:
        handle = self.claimed.handle
        await self.ask(lambda engine: engine.append_logs(handle, logs=batch))

    async def ask(self, operation: Callable[[EngineBackend], Awaitable[T]]) -> T:
        """An engine call that matters to the handler; errors of the store are waited out as long as
        the lease lives. Every call made this way can be repeated."""
        patience: Patience | None = None
        unclear = 0
        try:
            while True:
                if self.is_stopped and not self.is_drained:
                    raise Stopped(self.claimed.execution_id)
                try:
                    return await operation(self.desk.engine)
                except Exception as error:
                    if is_lost(error):
                        self.desk.lost(self, str(error))
                        raise Stopped(self.claimed.execution_id) from error
                    unclear += not is_passing(error)
                    if not may_pass(error) or unclear >= _UNCLEAR_TRIES:
                        raise
                    patience = patience or Patience(self.desk.outage)
                    await patience.pause(error)
        finally:
            if patience is not None:
                patience.reset()

    # --- the journal ---------------------------------------------------------------------------

    @property
    def journal(self) -> Journal:
        """What the handler has done and does. Most handlers never ask for it."""
        if self._journal is None:
            with _FIRST_LINE:
                self._journal = self._journal or self.journal_type(self)
        return self._journal

    @property
    def entries(self) -> Journal | None:
        """The journal, if the handler has one."""
        return self._journal

    @property
    def is_replaying(self) -> bool:
        """Whether the handler is answered from what an earlier run recorded."""
        return self._journal is not None and self._journal.is_replaying

    @property
    def has_nothing_left(self) -> bool:
        """Whether nothing but the outcome is to be reported: most handlers show and log nothing."""
        return self.outbox is None and self.book is None and self._journal is None

    def renewal(self) -> Renew:
        """The renewal of its lease, with the step that has run longest. Any thread may ask."""
        handle, journal = self.claimed.handle, self._journal
        running = None if journal is None else next(iter(journal.running.copy().items()), None)
        if running is None:
            return Renew(handle=handle)
        key, since = running
        return Renew(
            handle=handle, next_key=key, next_key_ms=max(0, int((monotonic() - since) * 1000))
        )

    @property
    def may_have_journal(self) -> bool:
        """Whether an earlier run may have recorded something."""
        claimed = self.claimed
        return (
            claimed.attempt_index > 0
            or claimed.handle.kind is not HandleKind.FRESH
            or claimed.forked_from is not None
        )

    async def load_journal(self) -> None:
        """What earlier runs recorded, before the handler is called."""
        handle = self.claimed.handle
        entries: list[JournalEntry] = []
        outcomes: dict[str, ResumeInfo] = {}
        after: int | None = None
        while True:
            try:
                page = await self.ask(partial(_load, handle, after))
            except Corruption as error:
                raise unreadable(self.claimed, error.detail) from None
            entries += page.entries
            outcomes.update(page.outcomes)
            if not page.has_more:
                break
            after = page.entries[-1].position
        self.journal_index = page.journal_index
        if entries and (code := entries[0].code) is not None and code.format > FORMAT:
            said = f"its format {code.format} is newer than {FORMAT}, which this program knows"
            raise unreadable(self.claimed, said)
        if entries or page.chapter_index:
            self._journal = self.journal_type(
                self, entries, chapter_index=page.chapter_index, outcomes=outcomes
            )

    async def explained(self, mismatch: JournalMismatch) -> str:
        """What does not fit, and of a call with other arguments what differs in these."""
        entry, given = mismatch.recorded, mismatch.given
        if entry is None or given is None or self.is_stopped:
            return mismatch.detail
        try:
            recorded = await self.recorded_arguments(entry)
        except Exception:  # noqa: BLE001 - they explain more, and nothing depends on them
            return mismatch.detail
        found = None if recorded is None else difference(recorded, given)
        return mismatch.detail if found is None else f"{mismatch.detail}; {found}"

    async def recorded_arguments(self, entry: JournalEntry) -> bytes | None:
        """The arguments of a recorded call, where they were kept. No run of a handler needs them,
        so they are not loaded with its journal."""
        execution_id, at = self.claimed.execution_id, entry.position
        page = await self.ask(
            lambda e: e.read_journal(
                execution_id=execution_id, after=at - 1 if at else None, limit=1, values=True
            )
        )
        return next((each.arguments for each in page.entries if each.position == at), None)

    async def hold(self, why: str) -> None:
        """Wait until an operator lets it go on, as any other wait."""
        text = clip_text(why, limits.REASON_BYTES, field="reason")
        request = SuspendRequest(
            resume_condition=OperatorOnly(),
            reason_code=ReasonCode.PAUSED_BY_POLICY,
            continuation_metadata_pointer=text,
            idempotency_key=f"hold:{new_secret_id()}",
        )
        await self.suspend(request)

    @property
    def arguments(self) -> bytes | None:
        """Those of the present chapter, if another one began it."""
        return None if self._journal is None else self._journal.arguments

    @property
    def chapter_index(self) -> int:
        """Which part of its journal this is."""
        return 0 if self._journal is None else self._journal.chapter_index

    async def continue_as_new(self, arguments: bytes) -> None:
        """End the chapter. The lease is gone then, as after a suspension."""
        await self._uninterrupted(self._continue(arguments))

    async def _continue(self, arguments: bytes) -> None:
        await self.flush()
        self.is_suspending = True
        try:
            await self.journal.outbox.carry((), partial(self._ask_continue, arguments))
        finally:
            self.is_suspending = False
        self.is_continued = True
        self._has_let_go(for_children=False)

    async def _ask_continue(self, arguments: bytes, entries: tuple[NewEntry, ...]) -> Continued:
        handle, version = self.claimed.handle, self.code_version
        return await self.ask(
            lambda engine: engine.continue_execution(
                handle, arguments=arguments, version=version, entries=entries
            )
        )

    def close_journal(self, error: BaseException | None, *, has_succeeded: bool = False) -> None:
        """The handler has ended, by this exception if by any: nothing more is recorded, and what is
        not durable yet goes with its report."""
        journal = self._journal
        if journal is None:
            return
        journal.outbox.close()
        journal.root.owner = None
        if journal.branches:
            names = ", ".join(sorted(task.get_name() for task in journal.branches))
            _LOGGER.warning("%s ended while branches of it ran: %s", self.claimed, names)
            journal.end(journal.branches)
        if error is not None:
            journal.reopen(error)
        elif has_succeeded:
            journal.note_unused()

    async def settle(self) -> None:
        """Return when everything recorded so far is durable: what follows may depend on it."""
        if self._journal is not None:
            await self._journal.outbox.flush()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the worker."""
        return self.desk.loop

    @property
    def bodies(self) -> Threads:
        """Threads for plain functions that are steps."""
        return self.desk.bodies

    @property
    def payload_bytes_max(self) -> int:
        """How large a value may be."""
        return self.desk.payload_bytes_max

    @property
    def around(self) -> Around | None:
        """What is called in the place of each function, in tests."""
        return self.desk.around

    @property
    def code_version(self) -> str | None:
        """The version of the handler."""
        return self.task.code.version

    def now_ms(self) -> int:
        """The store's clock, as far as this worker knows it."""
        return self.desk.now_ms()

    # --- waiting -------------------------------------------------------------------------------

    @property
    def may_have_waited(self) -> bool:
        """Whether the attempt continues an earlier run; only then can a wait have ended."""
        return self.claimed.handle.kind is HandleKind.RESUMED

    async def load_wait(self) -> None:
        """How the last wait of a resumed attempt ended, before its handler is called."""
        handle = self.claimed.handle
        self.ended_wait = ended(await self.ask(lambda engine: engine.resume_info(handle)))

    async def suspend(
        self, request: SuspendRequest, entry: NewEntry | None = None, *, stays: bool = False
    ) -> Suspended | AlreadyMet:
        """Begin to wait. Once suspended the lease is gone, whatever becomes of the handler.
        `entry`: of the journal, which becomes durable with the suspension. `stays`: the handler
        waits here, by `park`."""
        if stays:
            self._refuse_timeouts()
        return await self._uninterrupted(self._suspend(request, entry, stays=stays))

    async def wait_children(self) -> None:
        """Release the lease until every child has ended. It is gone then, as after a suspension."""
        self._refuse_timeouts()
        await self._uninterrupted(self._wait_children())

    def _refuse_timeouts(self) -> None:
        branches = () if self._journal is None else self._journal.branches
        refuse_timeouts([self.home, *branches])

    def is_served_by(self, engine: EngineBackend) -> bool:
        """Whether the handler still runs, and this is the engine of its own execution."""
        return not self.is_finished and self.desk.engine.is_same_as(engine)

    def may_wait_for(self, engine: EngineBackend) -> bool:
        """Whether a wait for an execution of this engine, made here, can be recorded."""
        return self.is_served_by(engine) and is_in_scope(self.journal)

    async def result_of(self, run: Wanted, timeout_ms: int | None) -> Any:
        """The result of another execution, waited for without a worker."""
        return await result_of(self, run, timeout_ms)

    async def recorded(
        self, name: str, send: Callable[[str | None], Awaitable[Any]], key: str | None
    ) -> Any:
        """What a call of the handler to another run gave, recorded as a step."""
        return await recorded(self.journal, name, send, key)

    async def park(self) -> None:
        """The wait has begun, and the lease is gone. Return when it is over and this worker has
        claimed the execution again; where that is not to be waited for, raise `Suspension`."""
        if self.desk.warm is None or not isinstance(self.home, asyncio.Task):
            raise Suspension(self.claimed.execution_id)
        await self.desk.warm.keep(self)

    def go_on(self, claimed: Claimed, renew_at: float, lapse_at: float) -> None:
        """The handler that waited has a new lease."""
        self.claimed = claimed
        self.renew_at, self.lapse_at = renew_at, lapse_at
        self.is_stopped = self.is_suspended = False
        self.outbox = self.book = None  # all was stored when the wait began

    async def _uninterrupted(self, operation: Coroutine[Any, Any, T]) -> T:
        return await to_its_end(operation)

    async def _suspend(
        self, request: SuspendRequest, entry: NewEntry | None, *, stays: bool
    ) -> Suspended | AlreadyMet:
        await self.flush()
        self.is_suspending = True
        try:
            if entry is not None:
                answer = await self.journal.outbox.carry([entry], partial(self._ask, request))
            else:
                await self.settle()
                answer = await self._ask(request, ())
        finally:
            self.is_suspending = False
        if isinstance(answer, Suspended):
            self._has_let_go(for_children=False, stays=stays)
        return answer

    async def _ask(
        self, request: SuspendRequest, entries: tuple[NewEntry, ...]
    ) -> Suspended | AlreadyMet:
        handle = self.claimed.handle
        return await self.ask(lambda engine: engine.suspend(handle, request, entries=entries))

    async def _wait_children(self) -> None:
        handle = self.claimed.handle
        await self.settle()
        await self.flush()
        self.is_suspending = True
        try:
            await self.ask(lambda engine: engine.wait_children(handle))
        finally:
            self.is_suspending = False
        self._has_let_go(for_children=True, stays=True)

    def _has_let_go(self, *, for_children: bool, stays: bool = False) -> None:
        self.is_suspended = self.is_stopped = True
        if stays and self.desk.warm is not None and isinstance(self.home, asyncio.Task):
            self.desk.warm.expect(self)
        if self._waker is not None:
            self._waker.set()
        self.desk.let_go(self, for_children)

    async def is_past(self, until: datetime) -> bool:
        """Whether the store's clock has reached an instant."""
        instant = instant_ms(until, field="until")  # refused before any call
        return await self.ask(lambda engine: engine.server_time_ms()) >= instant

    def wait_stopped(self, timeout_s: float | None) -> bool:
        """Block a thread until the lease is lost or the time is over."""
        if self._waker is None:
            self._waker = threading.Event()
        if self.is_stopped:  # it may have been stopped before the event was there to be set
            return True
        return self._waker.wait(timeout_s)

    def wait_for(self, operation: Any) -> Any:
        """Run a coroutine on the worker's loop and block this thread for its result."""
        if self.is_stopped:  # the loop may be closed with the worker
            operation.close()
            raise Stopped(self.claimed.execution_id)
        if os.getpid() != self.desk.process_id:
            operation.close()
            raise ForkedProcess("the context of a handler works only in the worker's own process")
        return asyncio.run_coroutine_threadsafe(operation, self.desk.loop).result()


def unreadable(claimed: Claimed, why: str) -> JournalMismatch:
    """No run can go on by a journal that it cannot read: an operator decides."""
    return JournalMismatch(
        f"the journal of {claimed.execution_kind} cannot be read; it is damaged, or written by a "
        f"newer version of FlowFabric: {why}"
    )


def _load(handle: Handle, after: int | None, engine: EngineBackend) -> Awaitable[JournalPage]:
    return engine.load_journal(handle, after=after)
