"""One change to many runs: the selected ones at once, all of a filter as an operation that goes on
by itself."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from flowfabric.api.bulk import StartOperation, StopOperation
from flowfabric.api.control import (
    CancelExecution,
    ChangePriority,
    HoldExecution,
    ReleaseExecution,
    ReplayExecution,
)
from flowfabric.api.operation import Request
from flowfabric.errors import FlowFabricError, InvalidInput
from flowfabric.model.bulk import BulkCounted
from flowfabric.model.times import count
from flowfabric.server.exchange import Call
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.route import Reach
from flowfabric.server.routes.values import full_id
from flowfabric.server.service import Service
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.forms import Done, Form
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.views.bulk import ACTIONS as WORDS
from flowfabric.server.ui.views.bulk import TYPED_FROM
from flowfabric.server.ui.views.filters import filter_of, instant_in
from flowfabric.server.ui.views.runs import PAGE_ROWS

_PRIORITY_MAX: Final = 9_000
_BY_HAND: Final = "asked for in the dashboard"


async def change(service: Service, call: Call, form: Form) -> Done:
    """What the preview has shown."""
    action = form.text("action")
    if action not in WORDS:
        raise InvalidInput(f"action: one of {', '.join(WORDS)}", field="action")
    shown = form.number("count", least=0, most=1 << 53) or 0
    if shown >= TYPED_FROM and form.number("typed", least=0, most=1 << 53) != shown:
        raise InvalidInput(f"typed: type the number {shown}, so that it is no slip", field="typed")
    ids = form.several("id")[:PAGE_ROWS]
    if ids:
        return await _selected(service, call, form, ids)
    return await _all(service, call, form)


async def _selected(service: Service, call: Call, form: Form, ids: tuple[str, ...]) -> Done:
    """Each by itself: what is refused for one is done for the others."""
    outcomes: Counter[str] = Counter()
    for each in ids:
        try:
            await ask(service, call, _request(form, full_id(each)))
        except FlowFabricError as error:
            if error.retryable or error.status in (401, 403):
                raise
            outcomes[error.code] += 1
        else:
            outcomes["done"] += 1
    done = outcomes.pop("done", 0)
    refused = "".join(f"; {many} refused: {code}" for code, many in outcomes.items())
    return Done(text=f"{WORDS[form.text('action')][1]}: {count(done, 'run')} done{refused}.")


def _request(form: Form, execution_id: str) -> Request[Any]:
    reason = form.text("reason")
    match form.text("action"):
        case "cancel":
            return CancelExecution(
                execution_id=execution_id, reason=reason or _BY_HAND, source="operator_override"
            )
        case "retry":
            return ReplayExecution(execution_id=execution_id, reason=reason)
        case "hold":
            return HoldExecution(execution_id=execution_id, reason=reason)
        case "release":
            return ReleaseExecution(execution_id=execution_id)
        case _:
            return ChangePriority(execution_id=execution_id, new_priority=_priority(form))


def _priority(form: Form) -> int:
    wanted = form.number("priority", least=0, most=_PRIORITY_MAX)
    if wanted is None:
        raise InvalidInput("priority: give a number", field="priority")
    return wanted


async def _all(service: Service, call: Call, form: Form) -> Done:
    """All of the filter, as it was when the preview was shown. Begun twice it is one operation."""
    at = instant_in(form.text("at"))
    now = await now_of(service, call)
    wanted = filter_of(form.text("q"), now if at is None else at)
    if wanted.problems:
        word = wanted.problems[0]
        raise InvalidInput(f"q: {word.text}: {word.problem}", field="q")
    action = form.text("action")
    request = StartOperation(
        action=WORDS[action][0],
        **wanted.selects(),
        text=wanted.text,
        reason=form.text("reason") if action not in ("release", "priority") else "",
        new_priority=_priority(form) if action == "priority" else None,
        operation_id=form.text("operation_id") or None,
    )
    started = await ask(service, call, request)
    if isinstance(started, BulkCounted):  # a dry run, which this is not
        return Done(text=f"{count(started.matched, 'run')} would be changed.")
    text = f"Began with {count(started.matched, 'run')}; it goes on by itself."
    return Done(text=text, to=f"/ui/operations/{started.operation_id}")


async def stop(service: Service, call: Call, form: Form) -> Done:
    """Change nothing more."""
    stopped = await ask(service, call, StopOperation(operation_id=call.params["operation_id"]))
    text = f"The operation is {stopped.state.value}: what was done stays done."
    return Done(text=text)


PAGES: Final[tuple[Page, ...]] = ()
ACTIONS: Final = (
    Action(
        path="/ui/runs/change",
        title="Change many runs",
        act=change,
        reach=Reach.NAMED,
        asks=(
            *("start_operation", "cancel_execution", "replay_execution", "hold_execution"),
            *("release_execution", "change_priority"),
        ),
    ),
    Action(
        path="/ui/operations/{operation_id}/stop",
        title="Stop an operation",
        act=stop,
        asks=("stop_operation",),
    ),
)
