"""Several things at once inside one handler, each in a scope of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_integer, check_list
from flowfabric.model.journal import EntryError, EntryKind
from flowfabric.model.shown import shown
from flowfabric.sdk.errors import JournalMismatch, OutsideScope
from flowfabric.sdk.journal.calls import StepCall
from flowfabric.sdk.journal.failures import Failure
from flowfabric.sdk.journal.journal import Journal
from flowfabric.sdk.journal.laters import LaterWait
from flowfabric.sdk.journal.plan import digest_of
from flowfabric.sdk.journal.scopes import PLACE, Scope, StepInfo, check_step_name, here, own_scope
from flowfabric.sdk.threads import Threads

T = TypeVar("T")
_INDEX: Final[msgspec.json.Decoder[int]] = msgspec.json.Decoder(int)
_NAME: Final[msgspec.json.Decoder[str]] = msgspec.json.Decoder(str)
_OWN_WAITS: Final = frozenset(
    f"Waiting.{name}" for name in ("sleep", "sleep_until", "wait_for", "wait", "approval")
)
AT_ONCE: Final = 20  # branches of a map, unless it says otherwise


class Branch:
    """`async with ctx.branch("left"):` in a task that the handler made itself."""

    def __init__(self, journal: Journal, name: str) -> None:
        self._journal = journal
        self._name = check_step_name(name, field="branch")
        self._token: Any = None
        self._task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> None:
        place = PLACE.get()
        if isinstance(place, StepInfo):
            own_scope(self._name, self._journal)  # says why not
        parent = place if isinstance(place, Scope) else self._journal.root
        if parent.journal is not self._journal:
            raise OutsideScope(f"{self._name}: this context belongs to another run")
        key = parent.key(self._name).now
        if parent.is_here:
            # In another task it could come before or after other calls of its scope.
            self._journal.count(parent, key)
        self._token = PLACE.set(Scope(self._journal, key, here()))
        self._task = asyncio.current_task()
        if self._task is not None:
            _check_count(self._journal, 1)
            self._journal.branches[self._task] = key

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        PLACE.reset(self._token)
        if self._task is not None:
            _left(self._journal, self._task)


async def run_all(
    scope: Scope, key: str, works: Sequence[Callable[[], Awaitable[Any]]], limit: int
) -> list[Any]:
    """The result or the exception of each, at most so many at once, each in a scope of its own."""
    journal = scope.journal
    _check_count(journal, min(len(works), limit))
    tasks: list[asyncio.Task[Any]] = []
    running: set[asyncio.Task[Any]] = set()
    try:
        for at, work in enumerate(works):
            while len(running) >= limit:
                _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            tasks.append(_begin(journal, f"{key}/{at}", work))
            running.add(tasks[-1])
        if tasks:
            await asyncio.wait(tasks)
    except BaseException:
        await _end(journal, tasks)
        raise
    return [_outcome(task) for task in tasks]


def _begin(journal: Journal, path: str, work: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
    """A task in a scope of its own."""
    context = copy_context()
    scope = Scope(journal, path, None)
    context.run(PLACE.set, scope)
    task = asyncio.get_running_loop().create_task(_awaited(work), context=context)
    scope.owner = task
    journal.branches[task] = path
    task.add_done_callback(partial(_left, journal))
    return task


def _left(journal: Journal, task: asyncio.Task[Any]) -> None:
    """A branch is over: the others may be all that is left, and wait."""
    journal.branches.pop(task, None)
    journal.room.wake()


async def _awaited(work: Callable[[], Any]) -> Any:
    answer = work()
    if not inspect.isawaitable(answer):
        detail = "function: give a step or an async function; for a plain one, ctx.step"
        raise InvalidInput(detail, field="function")
    return await answer


def _outcome(task: asyncio.Task[Any]) -> Any:
    if task.cancelled():
        return asyncio.CancelledError()
    error = task.exception()
    return task.result() if error is None else error


def told(journal: Journal, outcomes: list[Any], *, return_exceptions: bool) -> list[Any]:
    """The results, or the failure with the lowest index: the same in every run. What is no
    `Exception` ends the handler and comes first."""
    failed = [each for each in outcomes if isinstance(each, BaseException)]
    for each in failed:
        if not isinstance(each, Exception):
            raise each
    if failed and not return_exceptions:
        journal.failed_together(failed[0], failed[1:])
        raise failed[0]
    return outcomes


async def gather(journal: Journal, works: Sequence[Any]) -> list[Any]:
    """Run coroutines in branches beside calls of steps; each one's result or exception."""
    try:
        scope = own_scope("gather", journal)
        key = scope.key("gather").now
        journal.count(scope, key)
        for work in works:
            _check_work(work, "gather")
        jobs = [partial(_same, work) for work in works]
        return await run_all(scope, key, jobs, limits.BRANCHES_MAX)
    finally:
        close_unbegun(works)


def close_unbegun(works: Iterable[Any]) -> None:
    """A coroutine that never began would warn; of the others nothing is left."""
    for work in works:
        if inspect.iscoroutine(work):
            work.close()


def _same(work: Awaitable[T]) -> Awaitable[T]:
    return work


async def first_of(
    journal: Journal, works: Sequence[Any], *, successes: bool, scope: Scope | None = None
) -> tuple[int, Any]:
    """The first that ends, by its index: it is recorded, and the others are cancelled. `scope`: of
    the thread that waits for it."""
    if not works:
        raise InvalidInput("first_of: give at least one", field="first_of")
    scope = scope or own_scope("first_of", journal)
    key = scope.key("first_of").now
    asked = journal.ask(scope, key, kind=EntryKind.WINNER)
    for work in works:
        _check_work(work, "first_of")
    if (answer := asked.answer) is not None:
        index = _INDEX.decode(answer.value or b"0")
        if index >= len(works) or answer.digest not in (None, _label(works[index])):
            for work in works:
                _drop(work)
            said = f"{key}: number {index} of several won here before, and is another one now"
            raise journal.mismatch(said, answer)
        for at, work in enumerate(works):
            if at != index:
                _drop(work)
                journal.pass_over_branch(f"{key}/{at}")
        task = _begin(journal, f"{key}/{index}", partial(_same, works[index]))
        await asyncio.wait([task])
        return index, _told_alone(journal, key, asked.number, task)
    tasks = [_begin(journal, f"{key}/{at}", partial(_same, work)) for at, work in enumerate(works)]
    try:
        index = await _winner(tasks, successes=successes)
    except BaseException:
        await _end(journal, tasks)
        raise
    await _end(journal, tasks, for_good=True)
    value, label = str(index).encode(), _label(works[index])
    journal.add(key, asked.number, kind=EntryKind.WINNER, value=value, digest=label)
    return index, _told_alone(journal, key, asked.number, tasks[index])


def _label(work: Any) -> bytes | None:
    """What tells a call or a wait from others that may stand in its place. How a coroutine of the
    program does its work may change."""
    if isinstance(work, StepCall):
        return digest_of(["step", work.key])
    name = getattr(work, "__qualname__", "")
    return digest_of(["wait", name] if name in _OWN_WAITS else ["other"])


async def _winner(tasks: Sequence[asyncio.Task[Any]], *, successes: bool) -> int:
    """The first to end; with `successes` the first without a failure, or the last of all."""
    waiting = set(tasks)
    index = 0
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in sorted(done, key=tasks.index):
            index = tasks.index(task)
            error = None if task.cancelled() else task.exception()
            if not successes or error is None or not isinstance(error, Exception):
                return index
    return index


def _told_alone(journal: Journal, key: str, number: int, task: asyncio.Task[Any]) -> Any:
    """The result of the winner; a failure that ends the attempt lets the next one race again."""
    outcome = _outcome(task)
    if not isinstance(outcome, BaseException):
        return outcome
    if isinstance(outcome, Exception):
        error = EntryError(type(outcome).__name__, "the first that ended had failed")
        failure = Failure(key, number, None, error, 1, outcome, EntryKind.WINNER)
        journal.failed(failure)
    raise outcome


async def _end(
    journal: Journal, tasks: Iterable[asyncio.Task[Any]], *, for_good: bool = False
) -> None:
    several = list(tasks)
    journal.end(several, for_good=for_good)
    await asyncio.gather(*several, return_exceptions=True)


class Completed(Generic[T]):
    """How one of several ended: `result()` gives what it returned, or raises what it raised."""

    __slots__ = ("_outcome", "name")

    def __init__(self, name: str, outcome: Any) -> None:
        self.name = name
        self._outcome = outcome

    @property
    def error(self) -> Exception | None:
        """What it raised, if it did."""
        return self._outcome if isinstance(self._outcome, Exception) else None

    def result(self) -> T:
        """What it returned."""
        if self.error is not None:
            raise self.error
        return cast("T", self._outcome)

    def __repr__(self) -> str:
        return f"Completed({self.name!r}, {'failed' if self.error else 'ok'})"


async def as_completed(
    journal: Journal, works: Mapping[str, Any], scope: Scope | None = None
) -> AsyncGenerator[tuple[str, Completed[Any]], None]:
    """Each with its name as it ends; every run of the handler gets them in the order of the
    first. `scope`: of the thread that waits for it."""
    scope = scope or own_scope("as_completed", journal)
    key = scope.key("as_completed").now
    journal.count(scope, key)
    _check_count(journal, len(works))
    for name, work in works.items():
        check_step_name(name, field="as_completed")
        _check_work(work, "as_completed")
    own = Scope(journal, key, scope.owner)
    tasks = {
        name: _begin(journal, f"{key}/{name}", partial(_same, work)) for name, work in works.items()
    }
    try:
        while tasks:
            name = await _next(journal, own, tasks)
            outcome = _outcome(tasks.pop(name))
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
            yield name, Completed(name, outcome)
    except GeneratorExit:
        await _end(journal, tasks.values(), for_good=True)
        raise
    except BaseException:
        await _end(journal, tasks.values())
        raise


async def _next(journal: Journal, scope: Scope, tasks: Mapping[str, asyncio.Task[Any]]) -> str:
    """The name of the one that ends next; recorded, so that another run waits for that one."""
    key = scope.key("next").now
    asked = journal.ask(scope, key, kind=EntryKind.WINNER)
    if (answer := asked.answer) is not None:
        name = _NAME.decode(answer.value or b'""')
        if name not in tasks:
            known = ", ".join(sorted(tasks))
            detail = f"as_completed: {name!r} ended here before, and is not among {known}"
            raise JournalMismatch(detail)
        await _apart([tasks[name]])
        return name
    done = await _apart(tasks.values())
    name = next(each for each, task in tasks.items() if task in done)
    outcome = _outcome(tasks[name])
    if not isinstance(outcome, BaseException) or isinstance(outcome, Exception):
        journal.add(key, asked.number, kind=EntryKind.WINNER, value=msgspec.json.encode(name))
    return name


async def _apart(tasks: Iterable[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Those of several that have ended, once one has. In a task: what a generator waits for cannot
    be seen, so a handler that waits in one would keep its worker."""
    done, _ = await asyncio.create_task(asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))
    return done


def _drop(work: Any) -> None:
    """A loser of an earlier run is not begun again."""
    if isinstance(work, StepCall):
        work.drop()
    elif inspect.iscoroutine(work):
        work.close()


def _check_work(work: Any, name: str) -> None:
    if not isinstance(work, StepCall) and not inspect.isawaitable(work):
        detail = f"{name}: {shown(work, 80)} is no coroutine, step call or child"
        raise InvalidInput(detail, field=name)


async def map_async(
    journal: Journal, function: Callable[[Any], Awaitable[T]], items: Iterable[Any], limit: int
) -> list[Any]:
    """A branch for each item, at most so many at once."""
    several, most = _checked(function, items, limit)
    scope = own_scope("map", journal)
    key = scope.key("map").now
    journal.count(scope, key)
    return await run_all(scope, key, [partial(function, item) for item in several], most)


# --- in threads ----------------------------------------------------------------------------------


def gather_blocking(journal: Journal, works: Sequence[Any]) -> list[Any]:
    """Make calls in threads; each one's result or exception."""
    scope = own_scope("gather", journal)
    key = scope.key("gather").now
    journal.count(scope, key)
    for work in works:
        if not isinstance(work, StepCall | LaterWait):
            detail = (
                f"gather: {shown(work, 80)} is no child, call made by `later` or wait of ctx.later"
            )
            raise InvalidInput(detail, field="gather")
    jobs = [work.blocking for work in works]
    return _in_threads(journal, key, jobs, min(len(jobs), AT_ONCE) or 1)


def map_blocking(
    journal: Journal, function: Callable[[Any], T], items: Iterable[Any], limit: int
) -> list[Any]:
    """A thread for each item, at most so many at once."""
    several, most = _checked(function, items, limit)
    scope = own_scope("map", journal)
    key = scope.key("map").now
    journal.count(scope, key)
    return _in_threads(journal, key, [partial(function, item) for item in several], most)


def _in_threads(
    journal: Journal, key: str, jobs: Sequence[Callable[[], Any]], most: int
) -> list[Any]:
    _check_count(journal, len(jobs))
    outcomes: list[Any] = [None] * len(jobs)
    finished: SimpleQueue[None] = SimpleQueue()
    threads = Threads(most)

    def run(at: int, job: Callable[[], Any]) -> None:
        PLACE.set(Scope(journal, f"{key}/{at}", here()))
        journal.room.begin_job()
        try:
            outcomes[at] = _plain(job())
        except BaseException as error:  # noqa: BLE001 - it belongs to the handler
            outcomes[at] = error
        finally:
            journal.room.end_job()
            finished.put(None)

    for at, job in enumerate(jobs):
        context = copy_context()
        threads.run(partial(context.run, run, at, job))
    for _ in jobs:
        finished.get()
    threads.close()
    return outcomes


def _plain(result: Any) -> Any:
    if inspect.iscoroutine(result):
        result.close()
        detail = "function: give a step or a plain function; async ones run as steps"
        raise InvalidInput(detail, field="function")
    return result


def _checked(function: object, items: Iterable[Any], limit: object) -> tuple[tuple[Any, ...], int]:
    if not callable(function):
        raise InvalidInput(f"function: {shown(function, 80)} is not one", field="function")
    most = check_integer(limit, field="limit", least=1, most=limits.BRANCHES_MAX)
    return check_list(items, field="items"), most


def _check_count(journal: Journal, more: int) -> None:
    if len(journal.branches) + more > limits.BRANCHES_MAX:
        detail = f"branches: more than {limits.BRANCHES_MAX} at once; do them in portions"
        raise InvalidInput(detail, field="branches")
