"""Changes to many runs: the page that asks before one, and the page that follows it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from flowfabric.api.bulk import DescribeOperation, ListOperations, StartOperation
from flowfabric.api.executions import DescribeExecution, ListExecutions
from flowfabric.api.operation import Scope
from flowfabric.api.page import Page as Items
from flowfabric.errors import InvalidInput, NotFound
from flowfabric.ids import new_uuid7s
from flowfabric.model.bulk import BulkCounted, BulkOperation
from flowfabric.server.exchange import Call
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.route import Reach
from flowfabric.server.routes.values import full_id
from flowfabric.server.service import Service
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.views.bulk import (
    ACTIONS as WORDS,
)
from flowfabric.server.ui.views.bulk import (
    Operation,
    Preview,
    operation_of,
    preview_of,
)
from flowfabric.server.ui.views.filters import filter_of
from flowfabric.server.ui.views.runs import PAGE_ROWS

_OPERATIONS: Final = 50


async def preview(service: Service, call: Call) -> Preview:
    """How many, which, and what will be done to them. It changes nothing."""
    given = dict(call.query)
    action = given.get("action", "")
    if action not in WORDS:
        raise InvalidInput(f"action: one of {', '.join(WORDS)}", field="action")
    ids = [value for name, value in call.query if name == "id"][:PAGE_ROWS]
    now = await now_of(service, call)
    (operation_id,) = new_uuid7s(1)
    if given.get("all"):
        return await _of_filter(service, call, action, given.get("q", ""), now, operation_id)
    if not ids:
        raise InvalidInput("id: select at least one run", field="id")
    found = await asyncio.gather(
        *(ask(service, call, DescribeExecution(execution_id=full_id(each))) for each in ids)
    )
    sample = [each for each in found if each is not None]
    return preview_of(
        action,
        sample,
        count=len(sample),
        ids=ids,
        text=given.get("q", ""),
        now=now,
        operation_id=operation_id,
    )


def _counts_all(call: Call) -> bool:
    return bool(dict(call.query).get("all"))


async def _of_filter(
    service: Service, call: Call, action: str, text: str, now: int, operation_id: str
) -> Preview:
    wanted = filter_of(text, now)
    if wanted.problems:
        word = wanted.problems[0]
        raise InvalidInput(f"q: {word.text}: {word.problem}", field="q")
    fields: dict[str, Any] = {**wanted.selects(), "text": wanted.text}
    counting = StartOperation(
        action=WORDS[action][0], **fields, new_priority=_any_priority(action), dry_run=True
    )
    counted, page = await asyncio.gather(
        ask(service, call, counting),
        ask(service, call, ListExecutions(**fields, limit=PAGE_ROWS)),
    )
    return preview_of(
        action,
        page.items,
        count=counted.matched if isinstance(counted, BulkCounted) else 0,
        ids=(),
        text=text,
        now=now,
        operation_id=operation_id,
    )


def _any_priority(action: str) -> int | None:
    return 0 if action == "priority" else None


async def operation(service: Service, call: Call) -> Operation:
    """How far one is."""
    wanted = DescribeOperation(operation_id=call.params["operation_id"])
    found = await ask(service, call, wanted)
    if found is None:
        raise NotFound("operation: there is none of this id, or it ended long ago")
    return operation_of(found)


async def operations(service: Service, call: Call) -> Items[BulkOperation]:
    """The last ones."""
    cursor = dict(call.query).get("cursor") or None
    return await ask(service, call, ListOperations(cursor=cursor, limit=_OPERATIONS))


PAGES: Final = (
    Page(
        path="/ui/runs/preview",
        title="Change many runs",
        view=preview,
        template="preview.html",
        scope=Scope.OPERATE,
        asks=("start_operation", "list_executions", "describe_execution"),
        reads_much=_counts_all,
    ),
    Page(
        path="/ui/operations",
        title="Operations",
        view=operations,
        template="operations.html",
        scope=Scope.OPERATE,
        asks=("list_operations",),
    ),
    Page(
        path="/ui/operations/{operation_id}",
        title="Operation",
        view=operation,
        template="operation.html",
        scope=Scope.OPERATE,
        reach=Reach.OBJECT,
        parts=("operation",),
        topics=("tick:1s",),
        asks=("describe_operation",),
    ),
)
ACTIONS: Final[tuple[Action, ...]] = ()
