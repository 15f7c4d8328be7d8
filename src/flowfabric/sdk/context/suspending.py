"""Suspending from inside a handler: the request, built and checked where its traceback helps.

Beginning a wait and leaving the handler are two steps on purpose: `begin` asks the engine, and the
context decides what the handler does then. In-line waiting can replace the second step alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from flowfabric.api.waits import Fresh, SuspendRequest, UsePending
from flowfabric.errors import InvalidInput
from flowfabric.ids import new_secret_id
from flowfabric.model.checks import check_name
from flowfabric.model.condition_checks import check_condition
from flowfabric.model.journal import NewEntry
from flowfabric.model.record import replace
from flowfabric.model.shown import shown
from flowfabric.model.suspension import (
    AlreadyMet,
    OperatorOnly,
    ReasonCode,
    ResumeCause,
    Suspended,
    TimeoutOnly,
)
from flowfabric.model.words import TimeoutBehavior
from flowfabric.sdk.context.asker import Asker
from flowfabric.sdk.context.conditions import ANYTHING, Wait, Waitable, as_wait
from flowfabric.sdk.context.places import NO_TOKEN, open_place, recorded_place
from flowfabric.sdk.context.received import Ended, Waitpoint, received
from flowfabric.sdk.durations import Duration, Moment, instant_ms, to_ms
from flowfabric.sdk.journal.scopes import own_scope
from flowfabric.sdk.payload_types import schema_of

EXPIRES: Final = "1d"

ON_TIMEOUT: Final = {
    "fail": TimeoutBehavior.FAIL,
    "cancel": TimeoutBehavior.CANCEL,
    "expire": TimeoutBehavior.EXPIRE,
    "resume": TimeoutBehavior.AUTO_RESUME,
    "resume_with_signal": TimeoutBehavior.AUTO_RESUME_WITH_TIMEOUT_SIGNAL,
    "escalate": TimeoutBehavior.ESCALATE,
}


def _short(code: ReasonCode) -> str:
    return code.value.removeprefix("waiting_for_").removeprefix("paused_by_")


REASONS: Final = {
    **{code.value: code for code in ReasonCode},
    **{_short(code): code for code in ReasonCode},
}


class Suspender(Asker, Protocol):
    """An owner that may suspend an execution."""

    async def suspend(
        self, request: SuspendRequest, entry: NewEntry | None = None, *, stays: bool = False
    ) -> Suspended | AlreadyMet:
        """Begin to wait; once suspended the lease is gone and nothing the handler does counts."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """The arguments of a handler's call, unchanged."""

    wait: Waitable | None
    reason: str | None
    timeout: Moment | None
    on_timeout: str | None
    expect: Any
    continuation: str | None
    key: str | None

    def request(self) -> SuspendRequest:
        """Everything but the time of the timeout, which the store's clock decides."""
        wait = None if self.wait is None else as_wait(self.wait)
        behavior = self._behavior()
        if wait is None and self.expect is not ANYTHING:
            schema_of(self.expect)  # no place has it, but it must be a type
        if wait is not None:
            condition = check_condition(wait.condition)
        elif self.timeout is not None:
            condition = TimeoutOnly()
        else:
            condition = OperatorOnly()
        return SuspendRequest(
            resume_condition=condition,
            waitpoints=() if wait is None else self._waitpoints(wait),
            reason_code=self._reason(wait),
            timeout_behavior=behavior,
            continuation_metadata_pointer=self.continuation,
            # Without a key of the caller's own, one for the repeats after a lost reply.
            idempotency_key=f"suspend:{new_secret_id()}" if self.key in (None, "") else self.key,
        )

    def _behavior(self) -> TimeoutBehavior:
        word = self.on_timeout
        if word is None:
            return ON_TIMEOUT["resume" if self.wait is None else "fail"]
        if self.timeout is None:
            raise InvalidInput("on_timeout: without a timeout", field="on_timeout")
        found = ON_TIMEOUT.get(word) if isinstance(word, str) else None
        if found is None:
            known = ", ".join(ON_TIMEOUT)
            raise InvalidInput(
                f"on_timeout: {shown(word)} is not one of {known}", field="on_timeout"
            )
        return found

    def _reason(self, wait: Wait | None) -> ReasonCode:
        if self.reason is not None:
            found = REASONS.get(self.reason) if isinstance(self.reason, str) else None
            if found is None:
                known = ", ".join(dict.fromkeys(map(_short, ReasonCode)))
                detail = f"reason: {shown(self.reason)} is not one of {known}"
                raise InvalidInput(detail, field="reason")
            return found
        if wait is None:
            timed = self.timeout is not None
            return ReasonCode.STEP_BOUNDARY if timed else ReasonCode.WAITING_FOR_OPERATOR_REVIEW
        return wait.reason

    def _waitpoints(self, wait: Wait) -> tuple[Fresh | UsePending, ...]:
        found: list[Fresh | UsePending] = []
        for key, target in wait.places:
            if isinstance(target, Waitpoint):
                found.append(UsePending(target.id, key))
                continue
            kind = self.expect if target is ANYTHING else target
            found.append(Fresh(key, None if kind is ANYTHING else schema_of(kind)))
        return tuple(found)

    async def timeout_at(self, owner: Asker) -> int | None:
        """When the wait times out, by the store's clock."""
        if self.timeout is None:
            return None
        if isinstance(self.timeout, datetime):
            return instant_ms(self.timeout, field="timeout")
        length = to_ms(self.timeout, field="timeout")
        return length + await owner.ask(lambda engine: engine.server_time_ms())


async def begin(owner: Suspender, asked: Suspend) -> Ended | None:
    """Begin to wait: None once suspended, or how the wait ended if it was met already."""
    request = asked.request()
    timeout_at = await asked.timeout_at(owner)
    if timeout_at is not None:
        request = replace(request, timeout_at=timeout_at)
    answer = await owner.suspend(request)
    if isinstance(answer, Suspended):
        return None
    return Ended(ResumeCause.SIGNAL, "early signals", received(answer.signals), asked.continuation)


async def new_waitpoint(owner: Any, key: str, expires: Duration, expect: Any) -> Waitpoint:
    """An address with its token, before the suspension; every run of the handler gets the same."""
    checked = check_name(key, field="waitpoint")
    length = to_ms(expires, field="expires")
    schema = None if expect is ANYTHING else schema_of(expect)
    scope, claimed = own_scope("waitpoint", owner.journal), owner.claimed
    place = recorded_place(owner, scope, checked)
    if place.id is None:
        made = await open_place(owner, place, schema, length)
        return Waitpoint(made.id, checked, made.token or NO_TOKEN, claimed.execution_id)
    execution_id, known_id = claimed.execution_id, place.id
    token = await owner.ask(
        lambda e: e.read_waitpoint_token(execution_id=execution_id, waitpoint_id=known_id)
    )
    if token is None and not owner.journal.is_replaying:
        # It was waited on and is closed; what follows is not recorded, so it is wanted anew.
        made = await open_place(owner, place, schema, length)
        return Waitpoint(made.id, checked, made.token or NO_TOKEN, execution_id)
    return Waitpoint(known_id, checked, token or NO_TOKEN, execution_id)
