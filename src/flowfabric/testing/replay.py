"""Runs a handler by a journal, without a store and without effects, and compares.

From each prefix of the journal the handler must ask for the next recorded call, call no function of
a step, and in the end return what the run returned. It needs a loop that tells when nothing moves
(`loop.VirtualLoop`): the handler then waits for an answer that this journal does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Final, NoReturn

from flowfabric.config import watched_environment
from flowfabric.limits import PAYLOAD_BYTES_DEFAULT
from flowfabric.model.attempt import AttemptType
from flowfabric.model.handle import Handle, HandleKind
from flowfabric.model.journal import EntryKind, EntryState, JournalEntry, JournalPage
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from flowfabric.sdk.journal.scopes import StepInfo
from flowfabric.sdk.outage import Outage
from flowfabric.sdk.task import Task
from flowfabric.sdk.threads import Threads
from flowfabric.sdk.worker.handlers import run_async, run_sync
from flowfabric.sdk.worker.held import Desk
from flowfabric.sdk.worker.reports import Failed, Report, Succeeded
from flowfabric.testing.errors import ReplayMismatch
from flowfabric.testing.history import History, is_told
from flowfabric.testing.loop import VirtualLoop, hurrying, virtual_loop
from flowfabric.testing.tape import Noted, Replayed, Tape

PREFIXES: Final = 50  # of a long journal, so many are tried
_LATER_MS: Final = 400 * 86_400_000  # every pause between tries is over
_FOR_EVER: Final = float("inf")


class ReplayedRun:
    """One run of the handler by one prefix."""

    def __init__(self, task: Task[..., Any], history: History, length: int) -> None:
        self._loop: VirtualLoop = virtual_loop()
        self._entries = history.entries[:length]
        page = JournalPage(self._entries, 0, history.chapter, outcomes=history.outcomes)
        now_ms = max([history.created_at, *(each.recorded_at for each in history.entries)])
        later = now_ms + _LATER_MS
        self.tape = Tape(page, later, history.ends, raises=not task.is_async)
        self._task = task
        desk = Desk(
            self.tape,
            lost=lambda held, why: None,
            let_go=lambda held, for_children: None,
            now_ms=lambda: later,
            outage=Outage(),
            payload_bytes_max=PAYLOAD_BYTES_DEFAULT,
        )
        desk.around = self._around
        self.held = Replayed(_claimed(history), task, desk, _FOR_EVER, _FOR_EVER)
        self.asked: list[Noted] = []  # functions that would be called
        self.report: Report | None = None
        self.is_done = False

    @property
    def needs_store(self) -> bool:
        """Whether the handler has come to a call that no journal answers."""
        return bool(self.tape.asked)

    @property
    def reached(self) -> list[Noted]:
        """How far the handler has come: functions that would be called, waits that are not over,
        and what it would have recorded on the way."""
        return [*self.asked, *self.tape.waits, *self.tape.noted]

    async def _around(
        self, call: Any, info: StepInfo, run: Callable[[], Awaitable[Any]]
    ) -> NoReturn:
        digest = None if self.tape.is_vague else call.digest
        self.asked.append(Noted(call.key, call.plan.kind, digest, call.plan.was))
        await self.tape.end()

    async def until(self, is_enough: Callable[[], bool]) -> None:
        """Run until nothing moves, or until it is enough; pauses of the handler take no time."""
        context = copy_context()
        hurrying(context)
        running = self._loop.create_task(self._go(), context=context)
        try:
            while True:
                await self._loop.idle()
                if running.done() or is_enough():
                    break
                if not (self._loop.next_hurried() or self.tape.next_result()):
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
            journal.end(journal.branches)
        if not running.done():
            running.cancel()
        self.tape.leave()
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
    """How many entries can be answered: what is secret is in no file, and files of an earlier
    release do not tell how waits ended."""
    for at, entry in enumerate(history.entries):
        if entry.state is EntryState.OK and not is_told(history, entry):
            return at
    return len(history.entries)


def _lengths(begin: int, most: int) -> list[int]:
    count = most - begin + 1
    if count <= PREFIXES:
        return list(range(min(begin, most), most + 1))
    return sorted({begin + round(at * (count - 1) / (PREFIXES - 1)) for at in range(PREFIXES)})


def _is_asked(run: ReplayedRun, entry: JournalEntry | None) -> bool:
    return entry is not None and any(each.is_for(entry) for each in run.reached)


def _next(run: ReplayedRun, entry: JournalEntry) -> str | None:
    """What is wrong if this entry is the next one."""
    said = [each.contradicts(entry) for each in run.reached if each.is_for(entry)]
    if said:
        problem = None if None in said else said[0]
        return None if problem is None else f"the call {entry.key!r} {problem}"
    if run.needs_store:
        return None  # what comes after it cannot be seen here
    if entry.state is EntryState.REOPENED:
        return None if isinstance(run.report, Failed) else "the attempt failed, and now it does not"
    if now := ", ".join(repr(each.key) for each in [*run.asked, *run.tape.waits]):
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
        how = " ".join(["waits", *(f"at {each.key!r}" for each in run.tape.waits[-1:])])
        if isinstance(run.report, Failed):
            how = f"fails: {_headline(run.report.reason)}"
        return f"the run returned a result, and now it {how}"
    is_exact = not (history.is_redacted or run.tape.is_vague)
    if is_exact and run.report.result != (history.result or b""):
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
