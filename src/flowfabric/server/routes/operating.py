"""What operators do to executions: one by one, and to all that a filter selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flowfabric.api.bulk import StartOperation
from flowfabric.api.control import ChangePriority, ReplayExecution, SetExecutionTag
from flowfabric.api.operation import OPERATIONS, Request, Scope
from flowfabric.api.retries import RetryWithInput
from flowfabric.errors import (
    CountChanged,
    ExecutionNotEligible,
    InvalidInput,
    InvalidTagKey,
    NotFound,
)
from flowfabric.ids import derived_uuid
from flowfabric.model.bulk import BulkCounted, BulkOperation
from flowfabric.model.record import Record, replace
from flowfabric.model.results import ExecutionSnapshot, Replayed
from flowfabric.model.retry import Retried
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.plain import to_body
from flowfabric.server.routes.asking import answered, ask
from flowfabric.server.routes.forms import body_of
from flowfabric.server.routes.outcomes import snapshot_of
from flowfabric.server.routes.route import Reach, Repeat, Route, Size
from flowfabric.server.routes.rows import get, post
from flowfabric.server.routes.values import full_id
from flowfabric.server.service import Service
from flowfabric.server.shapes import shape_of

_ID: Final = "/v1/executions/{execution_id}"
_BY_OPERATOR: Final = {"source": "operator_override"}
_FAR_OFF: Final = 10  # a tenth more or fewer than were counted


class Change(Record, frozen=True, kw_only=True):
    """What of an execution can be changed while it waits, and its tags at any time."""

    priority: int | None = None
    tags: Mapping[str, str] = {}
    actor: str | None = None


async def change(service: Service, call: Call) -> Answer:
    """Another priority, more tags: one after the other, and the execution as it is then."""
    wanted: Change = shape_of(Change).read(await body_of(service, call))
    execution_id = full_id(call.params["execution_id"])
    requests: list[Request[Any]] = []
    if wanted.priority is not None:
        requests.append(
            ChangePriority(
                execution_id=execution_id, new_priority=wanted.priority, actor=wanted.actor
            )
        )
    for key, value in wanted.tags.items():
        requests.append(
            SetExecutionTag(execution_id=execution_id, key=key, value=value, actor=wanted.actor)
        )
    for each in requests:
        await ask(service, call, each)
    return Answer(to_body(await snapshot_of(service, call)))


class Retry(Record, frozen=True, kw_only=True):
    """How a finished execution is run again: as a new attempt or, with another input, anew.

    `input` or `input_base64`: the whole input of a new execution; `arguments`: those of its
    arguments that differ. `idempotency_key`: for a new execution. The other fields, beside
    `reason`, are for a new attempt.
    """

    requested_by: str = ""
    reason: str = ""
    deadline_at: int | None = None
    cascade: bool = False
    fresh: bool = False
    input_payload: bytes | None = None
    payload_encoding: str | None = None
    arguments: Mapping[str, bytes] = {}
    idempotency_key: str | None = None
    actor: str | None = None


_FOR_NEW: Final = ("input_payload", "payload_encoding", "arguments", "idempotency_key")
_FOR_BOTH: Final = ("reason", "actor")


async def retry(service: Service, call: Call) -> Answer:
    """A new attempt, or a new execution."""
    wanted: Retry = shape_of(Retry).read(await body_of(service, call))
    execution_id = full_id(call.params["execution_id"])
    key = call.header(b"idempotency-key")
    if key is not None:
        if wanted.idempotency_key not in (None, key):
            detail = "idempotency_key: the header Idempotency-Key has another one"
            raise InvalidInput(detail, field="idempotency_key")
        wanted = replace(wanted, idempotency_key=key)
    is_new = wanted.input_payload is not None or bool(wanted.arguments)
    kind: Any = RetryWithInput if is_new else ReplayExecution
    defaults = Retry()
    for name in set(Retry.__struct_fields__) - {*_FOR_BOTH}:
        if (name in _FOR_NEW) is not is_new and getattr(wanted, name) != getattr(defaults, name):
            if name == "idempotency_key" and key is not None:
                continue  # a header that every request of a client may have
            word = "with" if is_new else "without"
            raise InvalidInput(f"{name}: has no use {word} another input", field=name)
    names = [each for each in kind.__struct_fields__ if each != "execution_id"]
    given = {name: getattr(wanted, name) for name in names}
    return answered(call, await ask(service, call, kind(execution_id=execution_id, **given)))


# --- many at once --------------------------------------------------------------------------------


class NewBulk(StartOperation, frozen=True, kw_only=True):
    """As `start_operation`, but it only counts unless `dry_run` is false.

    `expect_count`: the number of an earlier count. The operation is refused when more or fewer
    fit by now, by more than a tenth.
    """

    dry_run: bool = True
    expect_count: int | None = None


async def bulk(service: Service, call: Call) -> Answer:
    """Count what fits, or begin to act on it."""
    wanted: NewBulk = shape_of(NewBulk).read(await body_of(service, call))
    names = StartOperation.__struct_fields__
    request = StartOperation(**{name: getattr(wanted, name) for name in names})
    if request.dry_run:
        return answered(call, await ask(service, call, request))
    key = call.header(b"idempotency-key")
    if key is not None:
        if request.operation_id is not None:
            detail = "operation_id: give it or the header Idempotency-Key, not both"
            raise InvalidInput(detail, field="operation_id")
        home = call.caller.actor or ""
        request = replace(request, operation_id=derived_uuid("bulk", home, key))
    if wanted.expect_count is not None:
        await _still(service, call, request, wanted.expect_count)
    started = await ask(service, call, request)
    return answered(call, started)


async def _still(service: Service, call: Call, request: StartOperation, expected: int) -> None:
    """Refuse when another number fits than was counted before."""
    if not 0 <= expected < 1 << 53:
        raise InvalidInput("expect_count: expected a number of executions", field="expect_count")
    counted = await ask(service, call, replace(request, dry_run=True, operation_id=None))
    if abs(counted.matched - expected) * _FAR_OFF > expected:
        detail = f"expect_count: {expected} were counted, {counted.matched} fit now"
        raise CountChanged(detail, expected=expected, count=counted.matched)


# --- rows ----------------------------------------------------------------------------------------

OPERATING_ROUTES: Final = (
    Route(
        method="PATCH",
        path=_ID,
        title="Change the priority or tags of an execution",
        asks=("change_priority", "set_execution_tag", "describe_execution"),
        scope=Scope.OPERATE,
        reach=Reach.OBJECT,
        handler=change,
        size=Size.SMALL,
        repeat=Repeat.STATE,
        body=Change,
        reply=ExecutionSnapshot,
        errors=(NotFound, InvalidTagKey, ExecutionNotEligible),
    ),
    post(f"{_ID}/cancel", "cancel_execution", fixed=_BY_OPERATOR, hidden=("fence",)),
    post(f"{_ID}/hold", "hold_execution"),
    post(f"{_ID}/release", "release_execution"),
    post(f"{_ID}/revoke", "revoke_lease"),
    post(f"{_ID}/resume", "resume_execution"),
    post(
        f"{_ID}/retry",
        "replay_execution",
        title="Run a finished execution again: as a new attempt, or anew with another input",
        handler=retry,
        asks=("replay_execution", "retry_with_input"),
        size=Size.PAYLOAD,
        body=Retry,
        reply=Replayed | Retried,
        statuses={"Retried": 201},
        errors=(
            *OPERATIONS["replay_execution"].errors,
            *OPERATIONS["retry_with_input"].errors,
        ),
        takes_key=True,
    ),
    get(f"{_ID}/retries", "list_retries"),
    post(f"{_ID}/dismiss", "dismiss_dead"),
    post(f"{_ID}/restore", "restore_dead"),
    post(f"{_ID}/repin", "repin_execution"),
    post(f"{_ID}/fork", "fork_execution", size=Size.BATCH, repeat=Repeat.STATE),
    post(
        "/v1/executions/bulk",
        "start_operation",
        title="Count executions, or begin to change all that fit",
        handler=bulk,
        reach=Reach.NAMED,
        repeat=Repeat.KEY,
        body=NewBulk,
        reply=BulkOperation | BulkCounted,
        statuses={"BulkOperation": 202},
        asks=("start_operation",),
        is_expensive=True,
        errors=(*OPERATIONS["start_operation"].errors, CountChanged),
        takes_key=True,
    ),
    get("/v1/operations", "list_operations", scope=Scope.OPERATE, tag="operations"),
    get(
        "/v1/operations/{operation_id}",
        "describe_operation",
        scope=Scope.OPERATE,
        absent="operation",
        tag="operations",
    ),
    post("/v1/operations/{operation_id}/stop", "stop_operation", tag="operations"),
    get("/v1/dead", "list_dead", tag="dead letters"),
    get("/v1/dead/counts", "count_dead", tag="dead letters"),
    get(f"{_ID}/failure", "describe_failure", absent="failure", tag="failures"),
    get("/v1/failures", "list_failure_groups", tag="failures"),
    get(
        "/v1/failures/{fingerprint}",
        "describe_failure_group",
        absent="failure_group",
        reach=Reach.NAMED,
        tag="failures",
    ),
    post(
        "/v1/failures/{fingerprint}/known",
        "mark_failure_group",
        reach=Reach.NAMED,
        tag="failures",
    ),
)
