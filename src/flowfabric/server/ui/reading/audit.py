"""The audit trail: who did what, when, from where, to what, and why?"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from flowfabric.api.audit import ListAudit
from flowfabric.api.operation import Scope
from flowfabric.errors import InvalidInput
from flowfabric.limits import PAGE_MAX
from flowfabric.model.record import to_json
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.instants import duration_ms, instant
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.views.audit import PATH, WORDS, Audit, audit_of

_PAGE: Final = 50
_EXPORTED: Final = 100  # pages of a thousand


async def audit(service: Service, call: Call) -> Audit:
    """The trail, newest first."""
    given = _given(call)
    fields = await _fields(service, call, given)
    page = await ask(service, call, ListAudit(**fields, limit=_PAGE))
    following = page.next_cursor
    return audit_of(
        page.items,
        {name: given.get(name, "") for name in WORDS},
        next_page=None if following is None else _address(PATH, given, cursor=following),
        export=_address(f"{PATH}/export", given),
    )


async def export(service: Service, call: Call) -> Answer:
    """What the filter selects, as JSON lines; the newest hundred thousand."""
    fields = await _fields(service, call, _given(call))
    lines: list[bytes] = []
    for _ in range(_EXPORTED):
        page = await ask(service, call, ListAudit(**fields, limit=PAGE_MAX))
        lines += [to_json(each) + b"\n" for each in page.items]
        fields["cursor"] = page.next_cursor
        if page.next_cursor is None:
            break
    headers = (
        (b"content-disposition", b'attachment; filename="audit.jsonl"'),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
    )
    return Answer(b"".join(lines), media=b"application/x-ndjson", headers=headers)


def _given(call: Call) -> dict[str, str]:
    known = (*WORDS, "cursor")
    return {name: value.strip() for name, value in call.query if name in known and value.strip()}


def _address(path: str, given: dict[str, str], **more: str) -> str:
    words = {name: value for name, value in given.items() if name != "cursor"}
    text = urlencode({**words, **more})
    return f"{path}?{text}" if text else path


async def _fields(service: Service, call: Call, given: dict[str, str]) -> dict[str, Any]:
    """As fields of the request; instants as such, or as a time back from now."""
    fields: dict[str, Any] = dict(given)
    for name in ("since", "until"):
        if name in given:
            fields[name] = _instant(given[name], await now_of(service, call), name)
    return fields


def _instant(text: str, now: int, name: str) -> int:
    try:
        return now - duration_ms(text, field=name)
    except InvalidInput:
        return instant(text, field=name)


PAGES: Final = (
    Page(
        path=PATH,
        title="Audit",
        view=audit,
        template="audit.html",
        scope=Scope.ADMIN,
        asks=("list_audit",),
        parts=("audit",),
        topics=("audit", "tick:10s"),
        nav=Nav(label="Audit", icon="audit", key="", group=2, order=1),
    ),
    Page(
        path=f"{PATH}/export",
        title="The audit trail as JSON lines",
        view=export,
        template="",
        scope=Scope.ADMIN,
        asks=("list_audit",),
    ),
)
ACTIONS: Final[tuple[Action, ...]] = ()
