"""Errors as pages: what is wrong, what to do, and the id under which the log has more."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from flowfabric.errors import FlowFabricError, StoreUnavailable, Unauthorized
from flowfabric.model.record import Record
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.ui.forms import login_of, redirect
from flowfabric.server.ui.pages import HTML

if TYPE_CHECKING:
    from flowfabric.server.service import Service

_AGAIN: Final = b"5"  # seconds
_KEPT: Final = (b"retry-after", b"allow")


class Refusal(Record, frozen=True, kw_only=True):
    """An error as its page shows it."""

    status: int
    title: str
    detail: str
    advice: str
    code: str
    scope: str | None
    request_id: str


def is_for_people(call: Call) -> bool:
    """Whether an error is answered as a page: a page was asked for, or a path among them."""
    if call.route is not None:
        return call.route.is_page and call.route.media == HTML
    path: bytes = call.scope.get("raw_path") or b""
    return path == b"/ui" or path.startswith(b"/ui/")


def refusal(service: Service, call: Call, error: FlowFabricError, answer: Answer) -> Answer:
    """The page of an error; where nothing was proved, the way to prove it."""
    from flowfabric.server.ui.rendering import refused

    if isinstance(error, Unauthorized) and b"authorization" not in call.headers:
        return redirect(service, login_of(call))
    view = Refusal(
        status=answer.status,
        title=HTTPStatus(answer.status).phrase,
        detail=error.detail,
        advice=error.advice,
        code=error.code,
        scope=error.fields.get("scope"),
        request_id=call.request_id,
    )
    headers = tuple(each for each in answer.headers if each[0] in _KEPT)
    if answer.status == StoreUnavailable.status and call.method == "GET":
        headers = (*headers, (b"refresh", _AGAIN))  # it recovers by itself
    return refused(service, call, view, headers)
