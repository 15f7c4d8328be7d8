"""Retries with another input."""

from __future__ import annotations

from typing import Final, NamedTuple

from flowfabric import limits
from flowfabric.api import retries as api
from flowfabric.api.page import Page, at_name
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.other_inputs import json_values, with_arguments
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.requests import check_payload
from flowfabric.engine.operations.stream_reads import found_execution
from flowfabric.engine.operations.ties import order_of
from flowfabric.errors import InvalidInput
from flowfabric.ids import new_execution_id
from flowfabric.kernel.execution.another_input import RetryWithInput
from flowfabric.kernel.execution.create import CreateExecution, fingerprint_of
from flowfabric.model.checks import check_instant, check_text, clip_text
from flowfabric.model.execution import Body, Execution
from flowfabric.model.record import replace
from flowfabric.model.results import ExecutionSnapshot, snapshot_of
from flowfabric.model.retry import Retried, RetryRow
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import MAILBOXES, RETRIES

_Place = tuple[int, str]


def _at_retry(when: object, execution_id: object) -> _Place:
    return check_instant(when, field="cursor"), *at_name(execution_id)


_LISTING: Final = Listing("list_retries", _at_retry)


class _Source(NamedTuple):
    """The execution that has ended."""

    execution: Execution
    body: Body
    mailboxes: tuple[tuple[str, str | None], ...]


@answers(api.RetryWithInput)
async def retry_with_input(machine: Machine, request: api.RetryWithInput) -> Retried:
    """Read the one, which is written once, then create the other."""
    key = machine.check_id(request.execution_id)
    arguments = json_values(machine, request.arguments, "arguments")
    _refuse_unless_one(request.input_payload is not None, bool(arguments))
    reason = clip_text(request.reason, limits.REASON_BYTES, field="reason")
    source = await machine.read(lambda reader: _read(reader, key))
    payload, encoding = _input(machine, request, source.body, arguments)
    command = RetryWithInput(
        execution_id=key,
        create=_create(machine, source, payload, encoding, _key(request.idempotency_key)),
        reason=reason,
        actor=machine.actor(request.actor),
    )
    await machine.known.ensure((command.create,))
    reply: Retried = await machine.execute(command)
    return reply


def _refuse_unless_one(has_input: bool, has_arguments: bool) -> None:
    if has_input is has_arguments:
        detail = "input_payload: give the whole input, or the arguments that differ"
        raise InvalidInput(detail, field="input_payload")


def _key(given: object) -> str | None:
    field = "idempotency_key"
    if given is None:
        return None
    return check_text(given, field=field, max_bytes=limits.IDEMPOTENCY_KEY_BYTES)


async def _read(reader: Reader, key: str) -> _Source:
    execution = await found_execution(reader, key)
    body = (await reader.bodies((key,)))[key]
    boxes = (await reader.peek_rows(MAILBOXES, [(key,)])).values()
    return _Source(execution, body, tuple((each.mailbox, each.payload_type) for each in boxes))


def _input(
    machine: Machine, request: api.RetryWithInput, body: Body, arguments: dict[str, bytes]
) -> tuple[bytes, str | None]:
    """Its input, and how that is encoded."""
    if arguments:
        return with_arguments(machine, body.payload, arguments), body.payload_encoding
    encoding, field = body.payload_encoding, "payload_encoding"
    if request.payload_encoding is not None:
        given = request.payload_encoding
        encoding = check_text(given, field=field, max_bytes=limits.NAME_BYTES)
    given_input = request.input_payload
    return check_payload(given_input, encoding, machine.config, field="input_payload"), encoding


def _create(
    machine: Machine, source: _Source, payload: bytes, encoding: str | None, key: str | None
) -> CreateExecution:
    """The same work at once, under an id of its own, in no flow; what followed the end of the old
    one follows that of the new one, too."""
    execution, body = source.execution, source.body
    new_id = new_execution_id(machine.store.partitions)
    policy = replace(execution.policy, delay_until=None, delay_ms=None)
    new_body = replace(
        body,
        execution_id=new_id,
        payload=payload,
        payload_encoding=encoding,
        idempotency_key=key,
    )
    ties = replace(
        order_of(execution.ties), hooks=execution.ties.hooks, retried_from=execution.execution_id
    )
    route, priority, tags = execution.route, execution.priority, dict(execution.tags)
    bounds = execution.bounds
    print_ = b""
    if key is not None:
        print_ = fingerprint_of(route, priority, policy, new_body, tags, bounds, ties)
    return CreateExecution(
        execution_id=new_id,
        route=route,
        priority=priority,
        policy=policy,
        body=new_body,
        tags=tags,
        fingerprint=print_,
        bounds=bounds,
        mailboxes=source.mailboxes,
        ties=ties,
    )


@answers(api.ListRetries)
async def list_retries(machine: Machine, request: api.ListRetries) -> Page[ExecutionSnapshot]:
    """A page of rows, with their executions; those that were removed since are left out."""
    key, limit = machine.check_id(request.execution_id), check_limit(request.limit)
    search = Search(
        by_key(RETRIES), ((key,),), after=_LISTING.place(request.cursor), limit=limit + 1
    )

    async def work(reader: Reader) -> Page[ExecutionSnapshot]:
        rows = await reader.search(search) if limit else []
        page = _LISTING.page(rows, limit, place_of=_place, show=lambda row: row)
        found = await reader.get([row.retry_id for row in page.items]) if page.items else {}
        shown = (found.get(row.retry_id) for row in page.items)
        items = tuple(snapshot_of(each) for each in shown if isinstance(each, Execution))
        return Page(items, page.next_cursor)

    return await machine.read(work)


def _place(row: RetryRow) -> _Place:
    return row.created_at, row.retry_id
