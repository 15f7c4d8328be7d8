"""Errors as answers: one shape for all of them."""

from __future__ import annotations

import logging
from typing import Final

from flowfabric.errors import FlowFabricError, MethodNotAllowed, StoreError, Unauthorized
from flowfabric.model.record import to_json
from flowfabric.server.exchange import PROBLEM, Answer
from flowfabric.server.plain import problem

_LOGGER = logging.getLogger("flowfabric.server")
_RETRY_AFTER_MS: Final = 1_000
DEFECT: Final = "a defect of the server; its log has the cause under this request id"


def answer_of(error: FlowFabricError, request_id: str) -> Answer:
    """An error of ours as an answer."""
    body = problem(error)
    body["request_id"] = request_id
    body.setdefault("errors", [])
    headers: list[tuple[bytes, bytes]] = []
    if error.status in (429, 503):
        after_ms = error.fields.get("retry_after_ms") or _RETRY_AFTER_MS
        body["retry_after_ms"] = after_ms
        after_s = max(1, -(-after_ms // 1000))
        headers.append((b"retry-after", str(after_s).encode()))
        if (rate := error.fields.get("rate")) is not None:
            headers.append((b"ratelimit", f'"{rate}";r=0;t={after_s}'.encode()))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.fields["allow"]).encode()))
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    return Answer(to_json(body), status=error.status, media=PROBLEM, headers=tuple(headers))


def answer_of_defect(error: BaseException, request_id: str, what: str) -> Answer:
    """Anything else: a fixed text; the log has the rest."""
    _LOGGER.error("request %s (%s) failed", request_id, what, exc_info=error)
    told = StoreError(DEFECT)
    return answer_of(told, request_id)
