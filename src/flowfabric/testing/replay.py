"""Runs a handler by a journal, without a store and without effects, and compares.

From each prefix of the journal the handler must ask for the next recorded call, call no function of
a step, and in the end return what the run returned. It needs a loop that tells when nothing moves
(`loop.VirtualLoop`): the handler then waits for an answer that this journal does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from flowfabric.api.admin import ServerTimeMs
from flowfabric.api.backend import EngineBackend
from flowfabric.api.hints import Bell
from flowfabric.api.journal import LoadJournal
from flowfabric.api.operation import Request
from flowfabric.config import watched_environment
from flowfabric.errors import FlowFabricError
from flowfabric.limits import PAYLOAD_BYTES_DEFAULT
from flowfabric.model.attempt import AttemptType
from flowfabric.model.handle import Handle, HandleKind
from flowfabric.model.journal import EntryKind, EntryState, JournalEntry, JournalPage
from flowfabric.model.results import BackendCapabilities, Claimed
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import ResumeInfo
from flowfabric.sdk.journal.scopes import StepInfo
from flowfabric.sdk.outage import Outage
from flowfabric.sdk.task import Task
from flowfabric.sdk.threads import Threads
from flowfabric.sdk.worker.handlers import run_async, run_sync
from flowfabric.sdk.worker.held import Desk, Held
from flowfabric.sdk.worker.reports import Failed, Report, Succeeded
from flowfabric.testing.errors import ReplayMismatch
from flowfabric.testing.faults import name_of
from flowfabric.testing.history import History
from flowfabric.testing.loop import VirtualLoop, hurrying, virtual_loop

R = TypeVar("R")
T = TypeVar("T")
PREFIXES: Final = 50  # of a long journal, so many are tried
_LATER_MS: Final = 400 * 86_400_000  # every pause between tries is over
_STEPS: Final = (EntryKind.STEP, EntryKind.STARTED, EntryKind.RETRYING)
_FOR_EVER: Final = float("inf")


class _Reached(BaseException):
    """A handler in a thread has come to the end of its journal."""


class _Tape(EngineBackend):
    """In the place of a store: it has a journal, and notes what it cannot answer."""

    def __init__(self, page: JournalPage, now_ms: int, *, raises: bool) -> None:
        self._page = page
        self._now_ms = now_ms
        self._raises = raises
        self.asked: list[str] = []

    async def call(self, request: Request[R]) -> R:
        """What a journal answers; anything else ends the replay."""
        if isinstance(request, LoadJournal):
            return self._page  # type: ignore[return-value]
        if isinstance(request, ServerTimeMs):
            return self._now_ms  # type: ignore[return-value]
        self.asked.append(type(request).__name__)
        return await self.end()

    async def end(self) -> NoReturn:
        """Never return to the handler."""
        if self._raises:
            raise _Reached
        await asyncio.get_running_loop().create_future()
        raise _Reached

    async def call_many(self, requests: Sequence[Request[R]]) -> list[R | FlowFabricError]:
        """Each by itself."""
        return [*[await self.call(request) for request in requests]]

    def listen(self, topics: Iterable[str]) -> AbstractContextManager[Bell]:
        """Nothing is told."""
        return nullcontext(Bell())

    def follow(self, told: Callable[[Mapping[str, int]], None]) -> Callable[[], None]:
        """Nothing is told."""
        return lambda: None

    def again(self) -> EngineBackend:
        """The same."""
        return self

    @property
    def home_namespace(self) -> str:
        """Any."""
        return "default"

    def backend_label(self) -> str:
        """It is none of the stores."""
        return "replay"

    def capabilities(self) -> BackendCapabilities:
        """None."""
        return BackendCapabilities("replay", "", 0, {})

    async def start(self, *, migrate: bool = True) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """There is nothing to close."""


class _Asked:
    """A call whose answer the journal does not have."""

    def __init__(self, call: Any) -> None:
        self.key: str = call.key
        self.kind: EntryKind = call.plan.kind
        self.digest: bytes | None = call.digest
        self.was: str | None = call.plan.was

    def contradicts(self, entry: JournalEntry) -> str | None:
        """How it differs from what is recorded."""
        if self.kind is not entry.kind and not (self.kind in _STEPS and entry.kind in _STEPS):
            return f"is of the kind {self.kind.value}, and recorded as {entry.kind.value}"
        if None not in (self.digest, entry.digest) and self.digest != entry.digest:
            return "has other arguments than the recorded call"
        return None

    def is_for(self, entry: JournalEntry) -> bool:
        """Whether the entry is this call's."""
        return self.key == entry.key or (self.was is not None and self.was == name_of(entry.key))


class _Replayed(Held):
    """A handler that is answered by a tape alone."""

    mismatch: str | None = None
    watch: Callable[[str], None] | None = None  # told of each call

    async def load_journal(self) -> None:
        """Before the handler is called."""
        await super().load_journal()
        if self.watch is not None:
            self.journal.watch = self.watch

    async def hold(self, why: str) -> None:
        """The journal does not fit."""
        self.mismatch = why

    async def _uninterrupted(self, operation: Coroutine[Any, Any, T]) -> T:
        """No reply comes that would have to be waited for."""
        return await operation


class ReplayedRun:
    """One run of the handler by one prefix."""

    def __init__(
        self,
        task: Task[..., Any],
        history: History,
        length: int,
        outcomes: Mapping[str, ResumeInfo] | None = None,
    ) -> None:
        self._loop: VirtualLoop = virtual_loop()
        self._entries = history.entries[:length]
        page = JournalPage(self._entries, 0, history.chapter, outcomes=outcomes or {})
        now_ms = max([history.created_at, *(each.recorded_at for each in history.entries)])
        self._tape = _Tape(page, now_ms + _LATER_MS, raises=not task.is_async)
        self._task = task
        desk = Desk(
            self._tape,
            lost=lambda held, why: None,
            let_go=lambda held, for_children: None,
            now_ms=lambda: now_ms + _LATER_MS,
            outage=Outage(),
            payload_bytes_max=PAYLOAD_BYTES_DEFAULT,
        )
        desk.around = self._around
        self.held = _Replayed(_claimed(history), task, desk, _FOR_EVER, _FOR_EVER)
        self.asked: list[_Asked] = []
        self.report: Report | None = None
        self.is_done = False

    @property
    def needs_store(self) -> bool:
        """Whether the handler has come to a call that no journal answers."""
        return bool(self._tape.asked)

    @property
    def requests(self) -> list[str]:
        """What the handler asked of a store."""
        return self._tape.asked

    async def _around(
        self, call: Any, info: StepInfo, run: Callable[[], Awaitable[Any]]
    ) -> NoReturn:
        self.asked.append(_Asked(call))
        await self._tape.end()

    async def until(self, is_enough: Callable[[], bool]) -> None:
        """Run until nothing moves, or until it is enough; pauses of the handler take no time."""
        context = copy_context()
        hurrying(context)
        running = self._loop.create_task(self._go(), context=context)
        try:
            while True:
                await self._loop.idle()
                if running.done() or is_enough() or not self._loop.next_hurried():
                    break
            self.is_done = running.done() and not self.asked and not self.needs_store
            if running.done():
                running.result()
        finally:
            await self._leave(running)

    async def _go(self) -> None:
        if self._task.is_async:
            self.held.handler = asyncio.current_task()
            self.report = await run_async(self.held)
            return
        threads, done = Threads(1), self._loop.create_future()

        def end(report: Report | None) -> None:
            if not done.done():
                done.set_result(report)

        def work() -> None:
            report = run_sync(self.held)
            self._loop.call_soon_threadsafe(end, report)

        threads.run(work)
        try:
            self.report = await done
        finally:
            threads.close()

    async def _leave(self, running: asyncio.Task[None]) -> None:
        self.held.is_stopped = True  # whatever the handler still calls
        journal = self.held.entries
        if journal is not None:
            journal.outbox.close()
            for branch in list(journal.branches):
                branch.cancel()
        if not running.done():
            running.cancel()
            await self._loop.idle()
        self._loop.forget_hurried()

    @property
    def unread(self) -> list[str]:
        """The keys of entries that the handler did not ask for."""
        journal = self.held.entries
        return [] if journal is None else sorted(journal.unread)


async def check(task: Task[..., Any], history: History, *, begin: int = 0) -> None:
    """Replay from every prefix that has at least so many entries; raises `ReplayMismatch`.

    If the handler reads variables of the environment, two more replays change them.
    """
    first = int(bool(history.entries) and history.entries[0].kind is EntryKind.CHAPTER)
    lengths = _lengths(max(begin, first), seen(history))
    with watched_environment() as names:
        await _check(task, history, lengths)
    if names:
        try:
            with watched_environment(changed=names):
                await _check(task, history, sorted({lengths[0], lengths[-1]}))
        except ReplayMismatch as error:
            said = ", ".join(sorted(names))
            raise ReplayMismatch(f"{error}. It depends on the environment: {said}") from None


async def _check(task: Task[..., Any], history: History, lengths: Iterable[int]) -> None:
    entries = history.entries
    for length in lengths:
        following = entries[length] if length < len(entries) else None
        if following is not None and _is_begun(entries[:length]):
            continue  # a run that begins here finds a step interrupted that was not
        run = ReplayedRun(task, history, length)
        await run.until(partial(_is_asked, run, following))
        if run.held.mismatch is not None:
            raise _mismatch(history, length, run.held.mismatch)
        problem = _end(run, history) if following is None else _next(run, following)
        if problem is not None:
            raise _mismatch(history, length, problem)


def _is_begun(entries: Sequence[JournalEntry]) -> bool:
    """Whether a step that may run once was under way after these."""
    last = {each.key: each.kind for each in entries}
    return EntryKind.STARTED in last.values()


def seen(history: History) -> int:
    """How many entries can be answered: what is secret is in no file."""
    for at, entry in enumerate(history.entries):
        if entry.is_secret and entry.value is None and entry.state is EntryState.OK:
            return at
    return len(history.entries)


def _lengths(begin: int, most: int) -> list[int]:
    count = most - begin + 1
    if count <= PREFIXES:
        return list(range(min(begin, most), most + 1))
    return sorted({begin + round(at * (count - 1) / (PREFIXES - 1)) for at in range(PREFIXES)})


def _is_asked(run: ReplayedRun, entry: JournalEntry | None) -> bool:
    return entry is not None and any(each.is_for(entry) for each in run.asked)


def _next(run: ReplayedRun, entry: JournalEntry) -> str | None:
    """What is wrong if this entry is the next one."""
    for asked in run.asked:
        if asked.is_for(entry):
            said = asked.contradicts(entry)
            return None if said is None else f"the call {asked.key!r} {said}"
    if run.needs_store:
        return None  # what comes after it cannot be seen here
    if entry.state is EntryState.REOPENED:
        return None if isinstance(run.report, Failed) else "the attempt failed, and now it does not"
    if run.asked:
        now = ", ".join(repr(each.key) for each in run.asked)
        return f"the next call is {now}, and recorded is {entry.key!r}"
    return f"the handler ends, and recorded is the call {entry.key!r}"


def _end(run: ReplayedRun, history: History) -> str | None:
    """What is wrong if every entry was read."""
    if history.state is None or run.needs_store:
        return None
    if history.state is PublicState.COMPLETED:
        return _end_of_success(run, history)
    if history.state is PublicState.FAILED and run.is_done:
        now = run.report.category if isinstance(run.report, Failed) else "a result"
        was = history.category
        if was is not None and was[:1].isupper() and now != was:
            return f"the run failed by {was}, and now it ends by {now}"
    return None


def _end_of_success(run: ReplayedRun, history: History) -> str | None:
    if run.asked:
        return f"the run ended, and now it calls {run.asked[0].key!r}"
    if not isinstance(run.report, Succeeded):
        how = "waits"
        if isinstance(run.report, Failed):
            how = f"fails: {_headline(run.report.reason)}"
        return f"the run returned a result, and now it {how}"
    if not history.is_redacted and run.report.result != (history.result or b""):
        now, was = run.report.result[:200], (history.result or b"")[:200]
        return f"the run returned {was.decode()}, and now it returns {now.decode()}"
    if run.unread:
        return f"recorded and not asked for: {', '.join(run.unread)}"
    return None


def _headline(reason: str) -> str:
    return reason.strip().partition("\n")[0]


def _mismatch(history: History, length: int, detail: str) -> ReplayMismatch:
    answered = ", ".join(entry.key for entry in history.entries[:length][-3:]) or "none"
    return ReplayMismatch(
        f"{history.kind} does not do the same again. After {length} of {len(history.entries)} "
        f"recorded calls (last: {answered}): {detail}. Outside of steps, decide by arguments and "
        f"results of steps, not by time, chance or the environment. Run: {history.execution_id}"
    )


def _claimed(history: History) -> Claimed:
    """The facts of the run, on one more attempt: no decision may depend on which it is."""
    attempt = max([0, *(entry.attempt_index for entry in history.entries)]) + 1
    handle = Handle(
        backend="replay",
        kind=HandleKind.FRESH,
        execution_id=history.execution_id,
        attempt_index=attempt,
        attempt_id="replay",
        lease_id="replay",
        lease_epoch=1,
        lease_ttl_ms=30_000,
        lane_id=history.lane,
        worker_instance_id="replay",
    )
    return Claimed(
        execution_id=history.execution_id,
        lease_id="replay",
        lease_epoch=1,
        attempt_index=attempt,
        attempt_id="replay",
        attempt_type=AttemptType.RETRY,
        lease_expires_at=2**53,
        handle=handle,
        execution_kind=history.kind,
        lane_id=history.lane,
        namespace=history.namespace,
        priority=0,
        created_at=history.created_at,
        deadline_at=history.deadline_at,
        tags=history.tags,
        payload=history.payload,
        payload_encoding=history.payload_encoding,
        idempotency_key=history.key,
    )
