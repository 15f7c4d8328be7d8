"""A line of the log for each request: what was asked, by whose name, and how it ended.

Never bodies, tokens, links or the text after the question mark: the route stands for the path.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flowfabric.server.exchange import Call

REQUEST: Final[ContextVar[str | None]] = ContextVar("flowfabric_request", default=None)
_LOGGER: Final = logging.getLogger("flowfabric.requests")
_SUBJECTS: Final = ("execution_id", "flow_id")


def about_request() -> dict[str, object]:
    """What a line of any library belongs to that is logged while a request is answered."""
    request_id = REQUEST.get()
    return {} if request_id is None else {"request_id": request_id}


def told(call: Call, status: int, seconds: float) -> None:
    """Log a request; those that come all the time, and went well, only for who debugs."""
    route = call.route
    is_usual = route is not None and (route.is_hot or route.is_health) and status < 400
    level = logging.DEBUG if is_usual else logging.INFO
    if not _LOGGER.isEnabledFor(level):
        return
    path = "none" if route is None else route.path
    fields = {
        "request_id": call.request_id,
        "actor": call.caller.actor,
        "method": call.method,
        "route": path,
        "status": status,
        "ms": round(seconds * 1_000, 2),
    }
    fields |= {name: call.params[name] for name in _SUBJECTS if name in call.params}
    _LOGGER.log(level, "%s %s %d", call.method, path, status, extra=fields)
