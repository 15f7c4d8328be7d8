"""What can be done with one run."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.api.control import (
    CancelExecution,
    ChangePriority,
    HoldExecution,
    ReleaseExecution,
    ReplayExecution,
    RevokeLease,
)
from flowfabric.api.journal import ForkExecution
from flowfabric.api.retries import RetryWithInput
from flowfabric.model.record import from_json
from flowfabric.server.exchange import Call
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.route import Size
from flowfabric.server.routes.values import full_id, path_id
from flowfabric.server.service import Service
from flowfabric.server.ui.forms import Done, Form
from flowfabric.server.ui.pages import Act, Action, Page
from flowfabric.server.ui.showing import short

_PATH: Final = "/ui/runs/{execution_id}"
_PRIORITY_MAX: Final = 9_000
_BY_HAND: Final = "asked for in the dashboard"


def _id(call: Call) -> str:
    return full_id(call.params["execution_id"])


def _here(call: Call, what: str = "") -> str:
    return f"/ui/runs/{path_id(_id(call))}{what}"


async def cancel(service: Service, call: Call, form: Form) -> Done:
    """End it as cancelled."""
    reason = form.text("reason") or _BY_HAND
    request = CancelExecution(execution_id=_id(call), reason=reason, source="operator_override")
    await ask(service, call, request)
    return Done(text=f"{short(_id(call))} is cancelled.")


async def hold(service: Service, call: Call, form: Form) -> Done:
    """Keep it from being claimed."""
    await ask(service, call, HoldExecution(execution_id=_id(call), reason=form.text("reason")))
    text = f"{short(_id(call))} is held: no worker takes it until it is released."
    return Done(text=text, undo=_here(call, "/release"))


async def release(service: Service, call: Call, form: Form) -> Done:
    """End a hold."""
    await ask(service, call, ReleaseExecution(execution_id=_id(call)))
    return Done(text=f"{short(_id(call))} is released.", undo=_here(call, "/hold"))


async def revoke(service: Service, call: Call, form: Form) -> Done:
    """Take it from its worker."""
    reason = form.text("reason") or _BY_HAND
    await ask(service, call, RevokeLease(execution_id=_id(call), reason=reason))
    return Done(text=f"{short(_id(call))} was taken from its worker; it is run again.")


async def retry(service: Service, call: Call, form: Form) -> Done:
    """Run it again as a new attempt."""
    request = ReplayExecution(
        execution_id=_id(call), reason=form.text("reason"), fresh=form.flag("fresh")
    )
    await ask(service, call, request)
    return Done(text=f"{short(_id(call))} runs again.")


async def retry_with(service: Service, call: Call, form: Form) -> Done:
    """Make a new run with another input."""
    text = form.raw("input")
    from_json(text.encode(), object, field="input")
    request = RetryWithInput(
        execution_id=_id(call),
        input_payload=text.encode(),
        payload_encoding="json",
        reason=form.text("reason"),
    )
    made = await ask(service, call, request)
    new = path_id(made.execution_id)
    return Done(text=f"Made {short(made.execution_id)} with this input.", to=f"/ui/runs/{new}")


async def priority(service: Service, call: Call, form: Form) -> Done:
    """Move it up or down."""
    wanted = form.number("priority", least=0, most=_PRIORITY_MAX) or 0
    request = ChangePriority(execution_id=_id(call), new_priority=wanted)
    await ask(service, call, request)
    return Done(text=f"The priority of {short(_id(call))} is {wanted}.")


async def fork(service: Service, call: Call, form: Form) -> Done:
    """Go on from a copy of its journal."""
    request = ForkExecution(execution_id=_id(call), before=form.raw("before"))
    forked = await ask(service, call, request)
    text = f"Forked with {forked.entry_count} entries of the journal."
    return Done(text=text, to=f"/ui/runs/{path_id(forked.execution_id)}")


def _action(word: str, title: str, act: Act, operation: str, **more: Any) -> Action:
    return Action(path=f"{_PATH}/{word}", title=title, act=act, asks=(operation,), **more)


PAGES: Final[tuple[Page, ...]] = ()
ACTIONS: Final = (
    _action("cancel", "Cancel a run", cancel, "cancel_execution"),
    _action("hold", "Hold a run", hold, "hold_execution"),
    _action("release", "Release a run", release, "release_execution"),
    _action("revoke", "Take a run from its worker", revoke, "revoke_lease"),
    _action("retry", "Run a run again", retry, "replay_execution"),
    _action(
        "retry-with",
        "Make a new run of one with another input",
        retry_with,
        "retry_with_input",
        size=Size.PAYLOAD,
    ),
    _action("priority", "Change the priority of a run", priority, "change_priority"),
    _action("fork", "Make a run from a copy of a journal", fork, "fork_execution"),
)
