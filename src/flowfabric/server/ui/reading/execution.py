"""One run: its record, its explanation and its timeline, and what the open tab shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from flowfabric.api.budgets import ListExecutionSpend, ListFlowSpend
from flowfabric.api.events import ReadTimeline
from flowfabric.api.executions import (
    DescribeExecution,
    Explain,
    ListAttempts,
    ReadExecutionContext,
    ReadOutcomes,
    ReadResult,
)
from flowfabric.api.failures import DescribeFailure
from flowfabric.api.journal import ReadJournal
from flowfabric.api.logs import ReadLogs
from flowfabric.api.retries import ListRetries
from flowfabric.api.streams import ReadExecutionStream
from flowfabric.api.waits import ListSuspensions
from flowfabric.errors import NotFound
from flowfabric.limits import PAGE_MAX
from flowfabric.model.failure import FailureTold
from flowfabric.model.record import to_json
from flowfabric.model.results import ExecutionSnapshot
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.plain import plain
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.route import Reach
from flowfabric.server.routes.values import full_id
from flowfabric.server.service import Service
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.safety import safe_headers
from flowfabric.server.ui.views import tabs
from flowfabric.server.ui.views.comparing import comparison_of
from flowfabric.server.ui.views.execution import TABS, Run, run_of
from flowfabric.server.ui.views.jsontree import payload_of

_ATTEMPTS: Final = 400
_WAITS: Final = 200
_LISTED: Final = 100  # of these, in a tab: the latest
_LINES: Final = 200
_LOOKED: Final = 1_000  # lines that one look for the last ones takes
_LOOKS: Final = 4
_FRAMES: Final = 2_000  # small ones, of which a text is put together
_ENTRIES: Final = 200
_EVENTS: Final = 100
_CHILDREN: Final = 200

Tab = Callable[[Service, Call, ExecutionSnapshot, Mapping[str, str]], Awaitable[Any]]


async def run(service: Service, call: Call) -> Run:
    """The page of an execution, with its open tab."""
    given = dict(call.query)
    execution_id = full_id(call.params["execution_id"])
    snapshot = await ask(service, call, DescribeExecution(execution_id=execution_id))
    if snapshot is None:
        raise NotFound(
            "execution: there is none of this id, or it is not yours; finished work is kept for "
            "a while only",
            entity="execution",
        )
    tab = given.get("tab", "")
    tab = tab if tab in dict(TABS) else _first_tab(snapshot)
    attempt = _number(given.get("attempt"))
    explanation, attempts, waits, inside, failed, now = await asyncio.gather(
        ask(service, call, Explain(execution_id=execution_id)),
        ask(service, call, ListAttempts(execution_id=execution_id, limit=_ATTEMPTS)),
        ask(service, call, ListSuspensions(execution_id=execution_id, limit=_WAITS)),
        _INSIDE[tab](service, call, snapshot, given),
        _failed(service, call, snapshot),
        now_of(service, call),
    )
    if tab == "attempts":
        inside = tuple(reversed(attempts.items))[:_LISTED]
    elif tab == "waits":
        inside = tuple(reversed(waits.items))[:_LISTED]
    return run_of(
        snapshot,
        explanation,
        attempts.items,
        waits.items,
        now=now,
        tab=tab,
        attempt=attempt,
        inside=inside,
        failed=failed,
    )


async def _failed(service: Service, call: Call, snapshot: ExecutionSnapshot) -> FailureTold | None:
    """Its failure among those that are alike."""
    if snapshot.failure_reason is None:
        return None
    return await ask(service, call, DescribeFailure(execution_id=snapshot.execution_id))


def _first_tab(snapshot: ExecutionSnapshot) -> str:
    return "log" if snapshot.total_attempt_count else "data"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 9 else None


# --- what tabs show ------------------------------------------------------------------------------


async def _nothing(*_: Any) -> None:
    """The tab shows what the page knows already."""


async def _log(
    service: Service, call: Call, snapshot: ExecutionSnapshot, given: Mapping[str, str]
) -> tabs.Log:
    """The last lines; or those after a place, if the address names one."""
    after, attempt = given.get("after") or None, _number(given.get("attempt"))
    lines: list[Any] = []
    cursor, page = after, None
    for _ in range(1 if after else _LOOKS):
        request = ReadLogs(
            execution_id=snapshot.execution_id,
            attempt_index=attempt,
            after=cursor,
            limit=_LINES if after else _LOOKED,
        )
        page = await ask(service, call, request)
        lines += page.lines
        cursor = page.next_cursor
        if len(page.lines) < request.limit:
            break
    is_end = page is None or len(page.lines) < (_LINES if after else _LOOKED)
    return tabs.log_of(
        lines if after else lines[-_LINES:],
        level=given.get("level", ""),
        text=given.get("find", ""),
        skipped=0 if after else max(0, len(lines) - _LINES),
        next_cursor=None if is_end else cursor,
        dropped=0 if page is None else page.dropped_count,
    )


async def _data(
    service: Service, call: Call, snapshot: ExecutionSnapshot, given: Mapping[str, str]
) -> tabs.Data:
    context, result, retries = await asyncio.gather(
        ask(service, call, ReadExecutionContext(execution_id=snapshot.execution_id)),
        ask(service, call, ReadResult(execution_id=snapshot.execution_id)),
        ask(service, call, ListRetries(execution_id=snapshot.execution_id, limit=20)),
    )
    return tabs.Data(
        given=payload_of(context.input_payload),
        result=payload_of(result.result if result is not None else None),
        retries=tuple(each.execution_id for each in retries.items),
    )


async def _stream(
    service: Service, call: Call, snapshot: ExecutionSnapshot, given: Mapping[str, str]
) -> tabs.Stream:
    request = ReadExecutionStream(
        execution_id=snapshot.execution_id, after=given.get("after") or None, limit=_FRAMES
    )
    return tabs.stream_of(await ask(service, call, request), most=_FRAMES, shown=_LISTED)


async def _steps(
    service: Service, call: Call, snapshot: ExecutionSnapshot, given: Mapping[str, str]
) -> tabs.Steps:
    request = ReadJournal(
        execution_id=snapshot.execution_id,
        after=_number(given.get("after")),
        limit=_ENTRIES,
        values=True,
    )
    return tabs.steps_of(await ask(service, call, request))


async def _spend(
    service: Service, call: Call, snapshot: ExecutionSnapshot, given: Mapping[str, str]
) -> tabs.Spend:
    own = ask(service, call, ListExecutionSpend(execution_id=snapshot.execution_id, limit=200))
    if snapshot.flow_id is None:
        return tabs.Spend(own=(await own).items, flow=())
    flow = ask(service, call, ListFlowSpend(flow_id=snapshot.flow_id, limit=200))
    mine, all_of_it = await asyncio.gather(own, flow)
    return tabs.Spend(own=mine.items, flow=all_of_it.items)


async def _events(
    service: Service, call: Call, snapshot: ExecutionSnapshot, given: Mapping[str, str]
) -> tabs.Events:
    found = await ask(service, call, ReadTimeline(execution_id=snapshot.execution_id))
    most = len(found.entries) if given.get("all") else _EVENTS
    return tabs.Events(
        entries=found.entries[-most:],
        left_out=max(0, len(found.entries) - most),
        is_whole=found.is_whole,
    )


async def _children(
    service: Service, call: Call, snapshot: ExecutionSnapshot, given: Mapping[str, str]
) -> tuple[tabs.Child, ...]:
    """Those that its journal says it has made, and how each is."""
    request = ReadJournal(execution_id=snapshot.execution_id, limit=PAGE_MAX, values=True)
    made = tabs.made_by(await ask(service, call, request), most=_CHILDREN)
    outcomes = await ask(service, call, ReadOutcomes(execution_ids=[*made]))
    return tabs.children_of(made, outcomes)


async def _raw(
    service: Service, call: Call, snapshot: ExecutionSnapshot, given: Mapping[str, str]
) -> Any:
    return payload_of(to_json(plain(snapshot)))


_INSIDE: Final[Mapping[str, Tab]] = {
    "log": _log,
    "data": _data,
    "stream": _stream,
    "attempts": _nothing,
    "waits": _nothing,
    "steps": _steps,
    "spend": _spend,
    "children": _children,
    "events": _events,
    "raw": _raw,
}


# --- side by side ---------------------------------------------------------------------------------


async def compare(service: Service, call: Call) -> Any:
    """A retry with another input beside the run that it was made from."""
    execution_id = full_id(call.params["execution_id"])
    new = await ask(service, call, DescribeExecution(execution_id=execution_id))
    if new is None or new.retried_from is None:
        raise NotFound("execution: it is no retry with another input", entity="execution")
    old = await ask(service, call, DescribeExecution(execution_id=new.retried_from))
    sides = [each for each in (old, new) if each is not None]
    data = await asyncio.gather(*(_data(service, call, each, {}) for each in sides))
    now = await now_of(service, call)
    return comparison_of(sides, data, now)


# --- downloads -----------------------------------------------------------------------------------


async def download(service: Service, call: Call) -> Answer:
    """A payload as it is stored. It is saved and never shown: it may say that it is a page."""
    execution_id = full_id(call.params["execution_id"])
    which = call.params["which"]
    data: bytes | None = None
    if which == "input":
        context = await ask(service, call, ReadExecutionContext(execution_id=execution_id))
        data = context.input_payload
    elif which == "result":
        attempt = await ask(service, call, ReadResult(execution_id=execution_id))
        data = None if attempt is None else attempt.result
    if data is None:
        raise NotFound("payload: there is none", entity="payload")
    name = f"{call.params['execution_id']}-{which}".replace('"', "")
    saved = (b"content-disposition", f'attachment; filename="{name}"'.encode("ascii", "replace"))
    return Answer(
        data, media=b"application/octet-stream", headers=(*safe_headers(service, call), saved)
    )


PATH: Final = "/ui/runs/{execution_id}"
PAGES: Final = (
    Page(
        path=PATH,
        title="Run",
        view=run,
        template="run.html",
        reach=Reach.OBJECT,
        parts=("run_head", "run_why", "run_timeline", "run_tab"),
        topics=("execution:{execution_id}", "tick:5s"),
        asks=(
            *("describe_execution", "explain", "list_attempts", "list_suspensions", "read_logs"),
            *("read_execution_context", "read_result", "read_execution_stream", "read_journal"),
            *("list_execution_spend", "list_flow_spend", "read_timeline", "list_retries"),
            *("read_outcomes", "describe_failure"),
        ),
    ),
    Page(
        path=f"{PATH}/compare",
        title="Compare",
        view=compare,
        template="compare.html",
        reach=Reach.OBJECT,
        asks=("describe_execution", "read_execution_context", "read_result", "list_retries"),
    ),
    Page(
        path=f"{PATH}/payload/{{which}}",
        title="The input or the result of a run, as a file",
        view=download,
        template="",
        reach=Reach.OBJECT,
        asks=("read_execution_context", "read_result"),
    ),
)
ACTIONS: Final[tuple[Action, ...]] = ()
