"""Forks: new executions that go on from a copy of another one's journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flowfabric.api import journal as api
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.new_entries import check_key
from flowfabric.engine.operations.other_inputs import json_values, with_arguments
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.stream_reads import found_execution
from flowfabric.engine.operations.ties import order_of
from flowfabric.engine.operations.wait_reads import outcomes_of
from flowfabric.ids import new_execution_id
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.journal.fork import Fork, copied, cut, with_results
from flowfabric.model.execution import Body, Execution
from flowfabric.model.journal import EntryKind, EntryRow, Forked
from flowfabric.model.record import Record, replace
from flowfabric.model.suspension import ResumeInfo
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import JOURNAL, MAILBOXES

_PAGE: Final = 1_000


class _Source(Record, frozen=True):
    """The execution that is forked."""

    execution: Execution
    body: Body
    entries: tuple[EntryRow, ...]  # up to the key, and some behind it
    outcomes: Mapping[str, ResumeInfo]
    mailboxes: tuple[tuple[str, str | None], ...]


@answers(api.ForkExecution)
async def fork_execution(machine: Machine, request: api.ForkExecution) -> Forked:
    """Read the one, then create the other in a transaction. Entries are only ever added, so the
    copy is a part of the journal whatever happens in between."""
    key, before = machine.check_id(request.execution_id), check_key(request.before, field="before")
    results = json_values(machine, request.results, "results")
    arguments = json_values(machine, request.arguments, "arguments")
    source = await machine.read(lambda reader: _read(reader, key, before))
    prefix = _or_raise(cut(source.entries, before, source.execution))
    new_id = new_execution_id(machine.store.partitions)
    rows = _or_raise(with_results(copied(prefix, new_id, source.outcomes), results))
    payload, entries = _with_arguments(machine, source.body.payload, tuple(rows), arguments)
    command = Fork(
        execution_id=key,
        create=_create(source, new_id, payload),
        entries=entries,
        before=before,
        actor=machine.actor(request.actor),
    )
    await machine.known.ensure((command.create,))
    reply: Forked = await machine.execute(command)
    return reply


async def _read(reader: Reader, key: str, before: str) -> _Source:
    execution = await found_execution(reader, key)
    where = (key, execution.journal_index, execution.chapter_index)
    entries: list[EntryRow] = []
    while True:
        after = (entries[-1].position if entries else -1,)
        page = await reader.search(Search(by_key(JOURNAL), (where,), after=after, limit=_PAGE))
        entries += page
        if len(page) < _PAGE or any(each.key == before for each in page):
            break
    waits = [each.refers_to for each in entries if each.refers_to is not None]
    outcomes = await outcomes_of(reader, key, waits) if waits else {}
    body = (await reader.bodies((key,)))[key]
    boxes = (await reader.peek_rows(MAILBOXES, [(key,)])).values()
    mailboxes = tuple((each.mailbox, each.payload_type) for each in boxes)
    return _Source(execution, body, tuple(entries), outcomes, mailboxes)


def _create(source: _Source, new_id: str, payload: bytes) -> CreateExecution:
    """The same work once more, at once, under an id of its own and in no flow."""
    execution, body = source.execution, source.body
    return CreateExecution(
        execution_id=new_id,
        route=execution.route,
        priority=execution.priority,
        policy=replace(execution.policy, delay_until=None, delay_ms=None),
        body=replace(body, execution_id=new_id, payload=payload, idempotency_key=None),
        tags=dict(execution.tags),
        bounds=execution.bounds,
        mailboxes=source.mailboxes,
        ties=order_of(execution.ties),
    )


def _with_arguments(
    machine: Machine, payload: bytes, entries: tuple[EntryRow, ...], arguments: dict[str, bytes]
) -> tuple[bytes, tuple[EntryRow, ...]]:
    """Other arguments, where the handler takes them from: the first entry of a later chapter, or
    the input."""
    if not arguments:
        return payload, entries
    if entries and entries[0].kind is EntryKind.CHAPTER:
        value = with_arguments(machine, entries[0].value or b"", arguments)
        return payload, (replace(entries[0], value=value), *entries[1:])
    return with_arguments(machine, payload, arguments), entries


def _or_raise(found: Any) -> Any:
    if isinstance(found, Refused):
        raise found.to_error()
    return found
