"""What is done about failures that are alike: run again, dismissed, or known for a while."""

from __future__ import annotations

from typing import Final

from flowfabric.api.bulk import StartOperation
from flowfabric.api.failures import MarkFailureGroup
from flowfabric.errors import InvalidInput
from flowfabric.model.bulk import BulkCounted
from flowfabric.server.exchange import Call
from flowfabric.server.instants import duration_ms
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service
from flowfabric.server.ui.forms import Done, Form
from flowfabric.server.ui.views.bulk import TYPED_FROM
from flowfabric.server.ui.views.failures import PATH

_ACTIONS: Final = {"retry": "Run again", "dismiss": "Dismissed"}
_COUNT_MAX: Final = 1 << 53


async def all_of(service: Service, call: Call, form: Form) -> Done:
    """An operation on all runs of the group, which goes on by itself."""
    action = form.text("action")
    if action not in _ACTIONS:
        raise InvalidInput("action: expected retry or dismiss", field="action")
    shown = form.number("count", least=0, most=_COUNT_MAX) or 0
    if shown >= TYPED_FROM and form.number("typed", least=0, most=_COUNT_MAX) != shown:
        raise InvalidInput(f"typed: type the number {shown}, so that it is no slip", field="typed")
    request = StartOperation(
        action=action,
        fingerprint=call.params["fingerprint"],
        namespace=form.text("namespace") or None,
        reason=form.text("reason"),
        operation_id=form.text("operation_id") or None,
    )
    begun = await ask(service, call, request)
    if isinstance(begun, BulkCounted):
        raise InvalidInput("action: nothing was begun", field="action")
    return Done(
        text=f"{_ACTIONS[action]}: an operation goes through the group.",
        to=f"/ui/operations/{begun.operation_id}",
    )


async def known(service: Service, call: Call, form: Form) -> Done:
    """It is left out of listings and of the overview until then."""
    name, text = call.params["fingerprint"], form.text("for")
    until = None
    if text:
        until = await service.engine.server_time_ms() + duration_ms(text, field="for")
    request = MarkFailureGroup(
        fingerprint=name,
        known_until=until,
        namespace=form.text("namespace") or None,
        reason=form.text("reason"),
    )
    await ask(service, call, request)
    said = f"It is known, and hidden for {text}." if text else "It is listed again."
    return Done(text=said, to=PATH)
