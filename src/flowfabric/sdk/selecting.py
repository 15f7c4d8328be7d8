"""Runs selected by a filter: find them again, cancel or retry them all."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar, cast, overload

from flowfabric.api.backend import EngineBackend
from flowfabric.errors import FlowFabricError, InvalidInput, StoreError
from flowfabric.limits import REASON_BYTES
from flowfabric.model.checks import check_flag, check_list, clip_text
from flowfabric.model.record import Record
from flowfabric.model.results import ExecutionSnapshot
from flowfabric.model.state import TERMINAL_STATES, PublicState
from flowfabric.sdk.durations import Moment, instant_ms, to_ms
from flowfabric.sdk.home import Home
from flowfabric.sdk.run import Run
from flowfabric.sdk.task import Task

R = TypeVar("R")

UNFINISHED: Final = tuple(state for state in PublicState if state not in TERMINAL_STATES)
LOST: Final = (PublicState.FAILED, PublicState.EXPIRED)
_PAGE: Final = 200  # changed at once: the engine puts them into few commits

Change = Callable[[str], Awaitable[object]]
IsMeant = Callable[[ExecutionSnapshot], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs: those that fit every part given.

    `state`: one or several. `kind`: a task or its name. `since`, `before`: created within this
    duration and longer ago than that, or instants as aware datetimes. `tag`: a key and its value.
    `namespace`: the fabric's own unless given.

    ```
    await ff.retry_many(RunFilter(state="failed", kind=brief, since="1h"))
    ```
    """

    state: str | Iterable[str] = ()
    kind: str | Task[..., Any] | None = None
    lane: str | None = None
    tag: tuple[str, str] | None = None
    since: Moment | None = None
    before: Moment | None = None
    namespace: str | None = None

    def __post_init__(self) -> None:
        """A filter is asked once for each page: an iterator would choose for the first only."""
        if not isinstance(self.state, str):
            object.__setattr__(self, "state", check_list(self.state, field="states"))

    def listing(self, now: int) -> dict[str, Any]:
        """The arguments of the engine's `list_executions` and `count_listed`."""
        states = (self.state,) if isinstance(self.state, str) else self.state
        given: dict[str, Any] = {
            "namespace": self.namespace,
            "states": states,
            "execution_kind": self.kind.name if isinstance(self.kind, Task) else self.kind,
            "lane_id": self.lane,
            "tag": self.tag,
            "created_after": _instant(self.since, now, "since"),
            "created_before": _instant(self.before, now, "before"),
        }
        return {name: value for name, value in given.items() if value is not None}

    def or_states(self, states: Iterable[str]) -> RunFilter:
        """The same with these states if it names none."""
        return self if self.state else replace(self, state=tuple(states))


class ManyChanged(Record, frozen=True):
    """The outcome for many: how many were changed, and how many refused, by error code.

    A run that ended or went on after it was found refuses; that is mostly no failure.
    """

    done: int
    refused: Mapping[str, int]

    @property
    def matched(self) -> int:
        """How many matched the filter."""
        return self.done + sum(self.refused.values())


@dataclass(slots=True)
class Tally:
    """The outcome so far."""

    done: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def total(self) -> ManyChanged:
        """The outcome."""
        return ManyChanged(self.done, dict(sorted(self.refused.items())))


async def count_meant(engine: EngineBackend, listing: Mapping[str, Any], is_meant: IsMeant) -> int:
    """How many executions of a listing are meant."""
    number, cursor = 0, None
    while True:
        page = await engine.list_executions(**listing, cursor=cursor, limit=_PAGE)
        number += sum(map(is_meant, page.items))
        cursor = page.next_cursor
        if cursor is None:
            return number


async def change_listed(
    engine: EngineBackend,
    listing: Mapping[str, Any],
    change: Change,
    tally: Tally,
    *,
    after_page: Callable[[], object] = lambda: None,
    is_meant: IsMeant = lambda snapshot: True,
) -> None:
    """Change everything a listing has, newest first, page by page; later executions are left alone.
    `is_meant`: only those of them.

    Cancelled, it finishes the current page, so that the tally is exact. An error of the store ends
    it; the tally says how far it came.
    """
    cursor: str | None = None
    while True:
        page = await engine.list_executions(**listing, cursor=cursor, limit=_PAGE)
        ids = [each.execution_id for each in page.items if is_meant(each)]
        if ids:
            await _to_the_end(change_page(ids, change, tally))
            after_page()
        cursor = page.next_cursor
        if cursor is None:
            return


async def change_page(ids: Iterable[str], change: Change, tally: Tally) -> None:
    """Change these at once; an error of the store is raised when all have ended."""

    async def one(execution_id: str) -> FlowFabricError | None:
        try:
            await change(execution_id)
        except FlowFabricError as error:
            return error
        return None

    trouble: StoreError | None = None
    for error in await asyncio.gather(*(one(each) for each in ids)):
        if error is None:
            tally.done += 1
        elif isinstance(error, StoreError):
            trouble = error
        else:
            tally.refused[error.code] = tally.refused.get(error.code, 0) + 1
    if trouble is not None:
        raise trouble


async def _to_the_end(work: Awaitable[None]) -> None:
    """Wait for it also when cancelled, and be cancelled afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            # retrieved, so that it is not logged: the caller gets the cancellation
            task.exception()
        raise


class RunMethods:
    """The part of a fabric for many runs."""

    @abstractmethod
    async def start(self) -> EngineBackend:
        """The running engine."""

    @overload
    def runs(
        self,
        *,
        kind: Task[..., R],
        state: str | Iterable[str] = ...,
        lane: str | None = ...,
        tag: tuple[str, str] | None = ...,
        since: Moment | None = ...,
        before: Moment | None = ...,
        namespace: str | None = ...,
    ) -> AsyncIterator[Run[R]]: ...
    @overload
    def runs(
        self,
        *,
        kind: str | None = ...,
        state: str | Iterable[str] = ...,
        lane: str | None = ...,
        tag: tuple[str, str] | None = ...,
        since: Moment | None = ...,
        before: Moment | None = ...,
        namespace: str | None = ...,
    ) -> AsyncIterator[Run[Any]]: ...

    def runs(
        self,
        *,
        kind: str | Task[..., Any] | None = None,
        state: str | Iterable[str] = (),
        lane: str | None = None,
        tag: tuple[str, str] | None = None,
        since: Moment | None = None,
        before: Moment | None = None,
        namespace: str | None = None,
    ) -> AsyncIterator[Run[Any]]:
        """The runs that fit, newest first: the arguments are the parts of a `RunFilter`.

        Pages are read as they are needed, so a loop may stop at any time. With a task as `kind` the
        results of the runs are typed.

        ```
        async for run in ff.runs(kind=brief, state="failed", since="1h"):
            print(run.id, (await run.info()).failure_reason)
        ```
        """
        chosen = RunFilter(
            kind=kind,
            state=state,
            lane=lane,
            tag=tag,
            since=since,
            before=before,
            namespace=namespace,
        )
        return self._runs(chosen)

    async def _runs(self, chosen: RunFilter) -> AsyncIterator[Run[Any]]:
        fabric = cast("Home", self)
        engine = await self.start()
        listing = await own_listing(engine, chosen)
        cursor: str | None = None
        while True:
            page = await engine.list_executions(**listing, cursor=cursor)
            for each in page.items:
                yield Run(fabric, each.execution_id, fabric.tasks.get(each.execution_kind))
            cursor = page.next_cursor
            if cursor is None:
                return

    async def cancel_many(self, chosen: RunFilter, *, reason: str = "") -> ManyChanged:
        """Cancel all that fit; without a state those that have not ended.

        ```
        stopped = await ff.cancel_many(RunFilter(kind=brief), reason="the source is down")
        print(stopped.done)
        ```
        """
        reason = clip_text(reason, REASON_BYTES, field="reason")  # or each run would refuse it
        engine = await self.start()

        async def change(execution_id: str) -> object:
            return await engine.cancel_execution(
                execution_id=execution_id, reason=reason, source="operator_override"
            )

        return await _change_many(engine, chosen, UNFINISHED, change)

    async def retry_many(
        self, chosen: RunFilter, *, reason: str = "", cascade: bool = False, fresh: bool = False
    ) -> ManyChanged:
        """Run all that fit again; without a state those that failed or expired.

        `cascade`: members of their flows that were skipped because of them live again too. `fresh`:
        from the top, with steps that are recorded run again.
        """
        reason = clip_text(reason, REASON_BYTES, field="reason")
        check_flag(cascade, field="cascade")
        check_flag(fresh, field="fresh")
        engine = await self.start()

        async def change(execution_id: str) -> object:
            return await engine.replay_execution(
                execution_id=execution_id, reason=reason, cascade=cascade, fresh=fresh
            )

        return await _change_many(engine, chosen, LOST, change)


async def _change_many(
    engine: EngineBackend, chosen: object, states: Iterable[str], change: Change
) -> ManyChanged:
    if not isinstance(chosen, RunFilter):
        detail = f"chosen: expected a RunFilter, got {type(chosen).__name__}"
        raise InvalidInput(detail, field="chosen")
    tally = Tally()
    listing = await own_listing(engine, chosen.or_states(states))
    await change_listed(engine, listing, change, tally)
    return tally.total()


async def own_listing(engine: EngineBackend, chosen: RunFilter) -> dict[str, Any]:
    """The request of the engine; a filter without a namespace is about the fabric's own."""
    now = await engine.server_time_ms()
    return {"namespace": engine.home_namespace, **chosen.listing(now)}


def _instant(moment: Moment | None, now: int, name: str) -> int | None:
    if moment is None:
        return None
    if isinstance(moment, datetime):
        return max(0, instant_ms(moment, field=name))
    return max(0, now - to_ms(moment, field=name))
