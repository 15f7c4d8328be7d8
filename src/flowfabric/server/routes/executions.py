"""Executions: new ones, lists, one of them with its payloads and its waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from flowfabric import limits
from flowfabric.api.executions import (
    CountListed,
    CreateExecutions,
    Explain,
    ListAttempts,
    NewExecution,
    ReadExecutionContext,
    ReadResult,
)
from flowfabric.api.operation import Scope
from flowfabric.api.waits import DescribeWaits, ListSuspensions, WaitInfo
from flowfabric.errors import FlowFabricError, InvalidInput, NotFound
from flowfabric.model.attempt import Attempt
from flowfabric.model.record import Raw, Record, replace
from flowfabric.model.results import (
    AttemptInfo,
    Batched,
    Created,
    Debounced,
    Duplicate,
    ExecutionContext,
    ExecutionSnapshot,
    Existing,
    Explanation,
    Outcome,
)
from flowfabric.model.suspension import SuspensionInfo
from flowfabric.server.commands import performed
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.plain import to_body
from flowfabric.server.routes.asking import (
    answered,
    ask,
    content_tag,
    unless_known,
    with_fields,
)
from flowfabric.server.routes.forms import body_of, form_of, unknown_parameter
from flowfabric.server.routes.outcomes import outcome_by, snapshot_of, wait_of
from flowfabric.server.routes.route import Handler, Reach, Repeat, Route, Size
from flowfabric.server.routes.rows import get, post
from flowfabric.server.routes.traces import of_caller
from flowfabric.server.routes.values import full_id
from flowfabric.server.service import Service
from flowfabric.server.shapes import placed, shape_of

_OF_NEW: Final = {"Created": 201}
_ID: Final = "/v1/executions/{execution_id}"
_COUNTED: Final = 10_000  # then a count says that there are more


# --- new ones ------------------------------------------------------------------------------------


async def create(service: Service, call: Call) -> Answer:
    """One execution; with `wait` also how it ended, if it did by then."""
    wait_ms = wait_of(service, call)
    request: Any = await form_of(call.row).read(service, call)
    (request,) = of_caller(call, [request])
    created = await ask(service, call, request)
    answer = answered(call, created)
    if wait_ms == 0:
        return answer
    outcome = await outcome_by(service, call, created.execution_id, wait_ms)
    body = with_fields(created, outcome=outcome)
    return Answer(to_body(body), status=answer.status, headers=answer.headers)


class NewBatch(Record, frozen=True, kw_only=True):
    """Many executions. `atomic`: all of them or none; else each for itself."""

    items: Sequence[NewExecution]
    atomic: bool = True


class Made(Record, frozen=True, kw_only=True):
    """What became of each item, in order: a problem in the place of one that was refused."""

    items: list[Created | Duplicate | Existing | Debounced | Batched | FlowFabricError]


class RawBatch(Record, frozen=True, kw_only=True):
    """The same before its items are read, so that each can have an error of its own."""

    items: list[Raw]
    atomic: bool = True


async def create_many(service: Service, call: Call) -> Answer:
    """A batch in one transaction, or each of its items for itself."""
    body = await body_of(service, call)
    given = shape_of(RawBatch).read(body)
    read = [_item(raw, index) for index, raw in enumerate(given.items)]
    if len(read) > limits.CREATE_MAX:
        raise InvalidInput(f"items: at most {limits.CREATE_MAX}", field="items")
    if not given.atomic:
        return await _each_for_itself(service, call, read)
    requests = of_caller(call, [_or_raise(each) for each in read])
    try:
        made = await ask(service, call, CreateExecutions(requests=requests))
    except FlowFabricError as error:
        raise _pointed(error) from None
    status = 201 if any(isinstance(each, Created) for each in made) else 200
    return Answer(to_body({"items": made}), status=status)


def _item(raw: Raw, index: int) -> NewExecution | FlowFabricError:
    try:
        made: NewExecution = shape_of(NewExecution).read(raw)
    except FlowFabricError as error:
        return placed(error, f"/items/{index}")
    return made


def _or_raise(item: NewExecution | FlowFabricError) -> NewExecution:
    if isinstance(item, FlowFabricError):
        raise item
    return item


def _pointed(error: FlowFabricError) -> FlowFabricError:
    """An error of the engine with a pointer to the item it names."""
    index = error.fields.get("index")
    if index is not None and "errors" not in error.fields:
        field = str(error.fields.get("field", "")).rpartition("]")[2].lstrip(".")
        pointer = f"/items/{index}" + (f"/{field.replace('.', '/')}" if field else "")
        error.fields["errors"] = [{"pointer": pointer, "detail": error.detail}]
    return error


async def _each_for_itself(
    service: Service, call: Call, read: Sequence[NewExecution | FlowFabricError]
) -> Answer:
    given = [each for each in read if not isinstance(each, FlowFabricError)]
    asked_for = of_caller(call, given)
    replies = iter(await performed(service, call, asked_for))
    items = [each if isinstance(each, FlowFabricError) else next(replies) for each in read]
    return Answer(to_body({"items": items}))


class Counted(Record, frozen=True, kw_only=True):
    """How many a listing has; not `exact`: it has at least so many, where the count stopped."""

    count: int
    exact: bool
    capped_at: int


async def count(service: Service, call: Call) -> Answer:
    """How many executions a listing with these filters has, as far as they are counted."""
    request: CountListed = await form_of(call.row).read(service, call)  # type: ignore[assignment]
    found = await ask(service, call, replace(request, at_most=_COUNTED + 1))
    told = Counted(count=min(found, _COUNTED), exact=found <= _COUNTED, capped_at=_COUNTED)
    return Answer(to_body(told))


# --- one of them ---------------------------------------------------------------------------------


async def describe(service: Service, call: Call) -> Answer:
    """The snapshot, and what `include` names beside it."""
    included = _included(call)
    found = await snapshot_of(service, call)
    more = {word: await _INCLUDES[word](service, call) for word in included}
    body = to_body(with_fields(found, **more) if more else found)
    return unless_known(call, Answer(body, headers=(content_tag(body),)))


def _included(call: Call) -> list[str]:
    words: list[str] = []
    for word, text in call.query:
        if word != "include":
            raise unknown_parameter(word, {"include": None})
        words += text.split(",")
    for each in words:
        if each not in _INCLUDES:
            listed = ", ".join(sorted(_INCLUDES))
            raise InvalidInput(f"include: expected some of {listed}", field="include")
    return words


async def _request(service: Service, call: Call, kind: Any) -> Any:
    return await ask(service, call, kind(execution_id=full_id(call.params["execution_id"])))


async def _input(service: Service, call: Call) -> Any:
    return await _request(service, call, ReadExecutionContext)


async def _result(service: Service, call: Call) -> Any:
    return await _request(service, call, ReadResult)


async def _attempts(service: Service, call: Call) -> Any:
    return (await _request(service, call, ListAttempts)).items


async def _why(service: Service, call: Call) -> Any:
    return await _request(service, call, Explain)


async def _waits(service: Service, call: Call) -> Any:
    return await waits_of(service, call)


_INCLUDES: Final = {
    "attempts": _attempts,
    "input": _input,
    "result": _result,
    "why": _why,
    "waits": _waits,
}


# --- payloads ------------------------------------------------------------------------------------


async def read_input(service: Service, call: Call) -> Answer:
    """What it was submitted with."""
    is_raw = _is_raw(call)
    found = await _input(service, call)
    return _attachment(found.input_payload) if is_raw else Answer(to_body(found))


class Result(Record, frozen=True, kw_only=True):
    """What an execution has returned."""

    result: bytes | None
    result_encoding: str | None


async def read_result(service: Service, call: Call) -> Answer:
    """What it returned; not found while it has not succeeded."""
    is_raw = _is_raw(call)
    found = await _result(service, call)
    if found is None:
        raise NotFound("result: the execution has none, or none yet", entity="result")
    if is_raw:
        return _attachment(found.result or b"")
    told = Result(result=found.result, result_encoding=found.result_encoding)
    return Answer(to_body(told))


def _is_raw(call: Call) -> bool:
    """Whether the stored bytes are asked for as they are."""
    for word, text in call.query:
        if word != "raw":
            raise unknown_parameter(word, {"raw": None})
        if text not in ("0", "1"):
            raise InvalidInput("raw: expected 0 or 1", field="raw")
    return ("raw", "1") in call.query


def _attachment(data: bytes) -> Answer:
    """Bytes that a browser shows in no page: they are anybody's."""
    headers = (
        (b"content-disposition", b"attachment"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"sandbox"),
    )
    return Answer(data, media=b"application/octet-stream", headers=headers)


# --- waits ---------------------------------------------------------------------------------------


class Waits(Record, frozen=True, kw_only=True):
    """What an execution waits for, and the waits that have ended."""

    open: WaitInfo | None
    episodes: tuple[SuspensionInfo, ...]


async def waits_of(service: Service, call: Call) -> Waits:
    """The open wait and the newest episodes."""
    execution_id = (await snapshot_of(service, call)).execution_id
    open_ = await ask(service, call, DescribeWaits(execution_ids=(execution_id,)))
    episodes = await ask(
        service, call, ListSuspensions(execution_id=execution_id, limit=limits.PAGE_MAX)
    )
    return Waits(open=open_.get(execution_id), episodes=episodes.items)


async def waits(service: Service, call: Call) -> Answer:
    """As an answer."""
    return Answer(to_body(await waits_of(service, call)))


# --- rows ----------------------------------------------------------------------------------------


def _own(path: str, title: str, handler: Handler, **more: Any) -> Route:
    """A read of one execution with a handler of its own."""
    values = {"method": "GET", "scope": Scope.READ, "reach": Reach.OBJECT, "errors": (NotFound,)}
    return Route(path=path, title=title, handler=handler, **{**values, **more})


_BYTES: Final = ("application/octet-stream",)
_RAW: Final = {"raw": "1: the stored bytes as they are"}

EXECUTION_ROUTES: Final = (
    post(
        "/v1/executions",
        "create_execution",
        handler=create,
        asks=("wait_for_outcome",),
        reach=Reach.NAMED,
        size=Size.PAYLOAD,
        repeat=Repeat.KEY,
        statuses=_OF_NEW,
        own_query={"wait": "how long to wait for its end, with a unit: 25s"},
        more={"outcome": Outcome | None},
        is_hot=True,
    ),
    post(
        "/v1/executions/batch",
        "create_executions",
        title="Record many executions: all or none, or each for itself",
        handler=create_many,
        reach=Reach.NAMED,
        size=Size.BATCH,
        repeat=Repeat.KEY,
        statuses={"Made": 201},
        other_statuses=(200,),
        body=NewBatch,
        reply=Made,
        is_hot=True,
    ),
    get("/v1/executions", "list_executions"),
    get("/v1/executions/count", "count_listed", reply=Counted, handler=count, hidden=("at_most",)),
    get("/v1/executions/kinds", "list_kinds"),
    _own(
        _ID,
        "One execution, and what `include` names beside it",
        describe,
        asks=(
            "describe_execution",
            "list_attempts",
            "explain",
            "describe_waits",
            "list_suspensions",
            "read_execution_context",
            "read_result",
        ),
        reply=ExecutionSnapshot,
        own_query={"include": "some of " + ", ".join(_INCLUDES)},
        more={
            "attempts": tuple[AttemptInfo, ...],
            "input": ExecutionContext,
            "result": Attempt | None,
            "why": Explanation,
            "waits": Waits,
        },
        has_etag=True,
        is_hot=True,
    ),
    get(f"{_ID}/attempts", "list_attempts"),
    get(f"{_ID}/why", "explain"),
    get(f"{_ID}/spend", "list_execution_spend"),
    get(f"{_ID}/timeline", "read_timeline"),
    get(f"{_ID}/journal", "read_journal"),
    get(f"{_ID}/published", "read_published", absent="published"),
    _own(f"{_ID}/waits", "What it waits for", waits, asks=("describe_waits",), reply=Waits),
    _own(
        f"{_ID}/input",
        "What it was submitted with",
        read_input,
        asks=("read_execution_context",),
        own_query=_RAW,
        other_media=_BYTES,
        reply=ExecutionContext,
    ),
    _own(
        f"{_ID}/result",
        "What it has returned",
        read_result,
        asks=("read_result",),
        own_query=_RAW,
        other_media=_BYTES,
        reply=Result,
    ),
)
