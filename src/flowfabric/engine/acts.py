"""Acts: calls that belong into the audit trail, from the request to the row of each.

An act is a call of a scope that reaches the work of others. Its row is written in the transaction
of what it did; a call that wrote nothing has one of its own, where it came over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from flowfabric import ids
from flowfabric.api.operation import OPERATIONS, Kind, Request, Scope, UnsafeRequest
from flowfabric.api.origins import origin_now
from flowfabric.limits import AUDIT_TEXT_BYTES
from flowfabric.model.audit import AuditRow, RequestOrigin
from flowfabric.model.checks import clip_text
from flowfabric.model.event import OperatorEvent

# They prove something of their caller, or wait; none does anything to the work of others.
_NO_ACTS: Final = frozenset(
    ("authenticate", "read_session", "record_refusals", "shutdown_prepare", "wait_for_reply")
)
_SCOPES: Final = (Scope.OPERATE, Scope.APPROVE, Scope.ADMIN)
# By which field a request says what it is about; the first one counts.
_SUBJECTS: Final = (
    *("execution_id", "flow_id", "budget_id", "quota_policy_id", "lane_id", "schedule_id"),
    *("serial_key", "group_id", "operation_id", "token_id", "worker_instance_id", "kid", "new_kid"),
)
_NOW: Final[ContextVar[Act | None]] = ContextVar("flowfabric_act", default=None)


class Act:
    """One call that is audited."""

    __slots__ = ("_id", "_is_done", "_is_put", "_request", "action", "origin")

    def __init__(
        self, action: str, request: Request[Any], origin: RequestOrigin | None = None
    ) -> None:
        self.action = action
        self.origin = origin
        self._id = ids.new_uuid7s(1)[0]  # once: a transaction may be run again
        self._request = request
        self._is_put = False
        self._is_done = False

    @property
    def is_done(self) -> bool:
        """Whether its row was committed: there is one of each."""
        return self._is_done

    def settle(self) -> None:
        """The transaction that its row was put into has committed."""
        self._is_done = self._is_put

    def row(
        self, event: OperatorEvent | None, now: int, retention_ms: int, actor: str = ""
    ) -> AuditRow | None:
        """Its row; `event` tells what it did. None where none is due: there is one already, or
        nothing was done and the call came from beside the store."""
        if self._is_done or (event is None and self.origin is None):
            return None
        self._is_put = True
        origin = self.origin or RequestOrigin()
        details = {} if event is None else event.details
        namespace = _text(self._request, "namespace") if event is None else event.namespace
        return AuditRow(
            now,
            self._id,
            (event.actor if event else "") or actor or origin.actor or self._source(),
            origin.address,
            self.action,
            _clipped(event.subject if event else self._subject()),
            _clipped(_word(details.get("reason")) or _text(self._request, "reason")),
            origin.request_id,
            namespace or origin.namespace,
            "",
            1,
            details,
            now + retention_ms,
        )

    def _source(self) -> str:
        """The sender of a signal, whom no token names: a link, or its recipient."""
        signal = getattr(self._request, "signal", None)
        parts = [_text(signal, name) for name in ("source_type", "source_identity")]
        return _clipped(":".join(filter(None, parts)))

    def _subject(self) -> str:
        told: Any = self._request
        for name in ("signal", "policy"):
            told = getattr(told, name, None) or told
        return next(filter(None, (_text(told, name) for name in _SUBJECTS)), "")


def settle(act: Act | None) -> None:
    """The transaction that the row of an act was put into has committed."""
    if act is not None:
        act.settle()


def act_of(request: Request[Any]) -> Act | None:
    """The act that a request asks for; None if it asks for none, or is a part of one."""
    action = _actions().get(type(request))
    if action is None or _NOW.get() is not None:
        return None
    origin = origin_now()
    if origin is None and not isinstance(request, UnsafeRequest):
        return None
    return Act(action, request, origin)


def act_now() -> Act | None:
    """The act that the present call is a part of."""
    return _NOW.get()


@contextmanager
def acting(act: Act) -> Iterator[None]:
    """Whatever the block asks for is a part of the act."""
    before = _NOW.set(act)
    try:
        yield
    finally:
        _NOW.reset(before)


_ACTIONS: Final[dict[type[Request[Any]], str]] = {}


def _actions() -> Mapping[type[Request[Any]], str]:
    if not _ACTIONS:
        _ACTIONS.update(
            (each.request, each.name)
            for each in OPERATIONS.values()
            if each.scope in _SCOPES and each.kind is not Kind.READ and each.name not in _NO_ACTS
        )
    return _ACTIONS


def _text(told: object, name: str) -> str:
    return _word(getattr(told, name, None))


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _clipped(text: str) -> str:
    return clip_text(text, AUDIT_TEXT_BYTES, field="reason")
