"""Journals: adding entries, loading them for a run of the handler, reading them for people."""

from __future__ import annotations

from typing import Final

from flowfabric import limits
from flowfabric.api import journal as api
from flowfabric.api.executions import NewExecution
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.frames import with_output
from flowfabric.engine.operations.new_entries import check_version, checkpoint_command
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.engine.operations.requests import check_payload, to_create, to_successor
from flowfabric.engine.operations.stream_reads import found_execution
from flowfabric.engine.operations.wait_reads import outcomes_of
from flowfabric.errors import InvalidInput
from flowfabric.kernel.execution.fence import refuse_unless_owner
from flowfabric.kernel.hook.undo import RegisterUndo, RunUndo
from flowfabric.kernel.journal.chapter import Continue
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.kernel.stream.append import EndWithOutput
from flowfabric.model.checks import check_flag, check_integer, check_list, named_within
from flowfabric.model.execution import Execution
from flowfabric.model.journal import (
    Checkpointed,
    CodeMark,
    EntryKind,
    EntryRow,
    EntryState,
    JournalEntry,
    JournalPage,
    Published,
    RunningRow,
)
from flowfabric.model.nesting import JSON
from flowfabric.model.record import defaults_of, replace
from flowfabric.model.successor import Undo
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import JOURNAL, PUBLISHED, RUNNING, SUSPENSIONS, Key

_LOADED: Final = 1_000  # entries of one page for a worker
_PAGE_BYTES: Final = 16 * 1024 * 1024  # of the values of one page, about
_COUNT_MAX: Final = (1 << 30) - 1


@commands(api.Checkpoint)
def checkpoint(machine: Machine, request: api.Checkpoint) -> Checkpoint:
    """By the owner."""
    handle = machine.check_handle(request.handle)
    return checkpoint_command(handle, request.entries, request.next_key, machine.config)


@commands(api.ContinueExecution)
def continue_execution(
    machine: Machine, request: api.ContinueExecution
) -> Continue | EndWithOutput:
    """By the owner."""
    handle = machine.check_handle(request.handle)
    end = Continue(
        execution_id=handle.execution_id,
        fence=handle.fence,
        arguments=check_payload(request.arguments, JSON, machine.config, field="arguments"),
        code=CodeMark(version=check_version(request.version, field="version")),
    )
    return with_output(
        end,
        handle,
        machine.config,
        frames=request.frames,
        logs=request.logs,
        entries=request.entries,
    )


@answers(api.RegisterUndo)
async def register_undo(machine: Machine, request: api.RegisterUndo) -> Checkpointed:
    """By the owner; the routes of the calls are known from now on."""
    handle, config = machine.check_handle(request.handle), machine.config
    entries = checkpoint_command(handle, request.entries, None, config)
    undos = [
        _undo(each, at, machine) for at, each in enumerate(check_list(request.undos, field="undos"))
    ]
    told = sum(each.kind is EntryKind.UNDO for each in entries.entries)
    if not undos or told != len(undos):
        detail = f"entries: {told} are of kind undo, and there are {len(undos)} undos"
        raise InvalidInput(detail, field="entries")
    for undo in undos:
        await machine.known.ensure_successor(undo.successor)
    await machine.known.ensure_routes({each.successor.route for each in undos})
    command = RegisterUndo(
        execution_id=handle.execution_id,
        fence=handle.fence,
        undos=tuple(undos),
        entries=entries,
    )
    return await machine.execute(command)


# What an undo has of a new execution; anything else belongs to a submit.
_OF_UNDOS: Final = frozenset(
    (
        *("execution_kind", "input_payload", "payload_encoding", "lane_id", "namespace"),
        *("priority", "budget_ids", "quota_policy_id", "concurrency_key", "policy", "delay_ms"),
        "mailboxes",
    )
)
_NOT_OF_UNDOS: Final = {
    name: value for name, value in defaults_of(NewExecution).items() if name not in _OF_UNDOS
}


def _undo(request: object, at: int, machine: Machine) -> Undo:
    with named_within(f"undos[{at}]"):
        if not isinstance(request, NewExecution):
            raise InvalidInput("expected a NewExecution", field="undos")
        for name, default in _NOT_OF_UNDOS.items():
            if getattr(request, name) != default:
                raise InvalidInput(f"{name}: is not for undos", field=name)
        create = to_create(request, machine.config, "")
        if create.body.payload_encoding != JSON:
            detail = "payload_encoding: the arguments of an undo are JSON"
            raise InvalidInput(detail, field="payload_encoding")
        try:
            arguments = create.body.payload.decode()
        except UnicodeDecodeError:
            detail = "input_payload: is not UTF-8"
            raise InvalidInput(detail, field="input_payload") from None
    return Undo(to_successor(create), arguments)


@commands(api.RunUndo)
def run_undo(machine: Machine, request: api.RunUndo) -> RunUndo:
    """By the owner."""
    handle = machine.check_handle(request.handle)
    entries = checkpoint_command(handle, request.entries, None, machine.config)
    if entries.entries[-1].kind is not EntryKind.UNDONE:
        raise InvalidInput("entries: the last is of the kind undone", field="entries")
    return RunUndo(execution_id=handle.execution_id, fence=handle.fence, entries=entries)


@answers(api.CheckpointIn)
async def checkpoint_in(machine: Machine, request: api.CheckpointIn) -> Checkpointed:
    """By the owner, in the caller's transaction."""
    handle = machine.check_handle(request.handle)
    command = checkpoint_command(handle, request.entries, None, machine.config)
    joined = replace(command, is_joined=True)
    (reply,) = await machine.execute_in(request.connection, [joined], ())
    return reply


@answers(api.SharesDatabase)
async def shares_database(machine: Machine, request: api.SharesDatabase) -> bool:
    """Asked on both sides."""
    return await machine.store.shares(request.connection)


@answers(api.LoadJournal)
async def load_journal(machine: Machine, request: api.LoadJournal) -> JournalPage:
    """By the owner: all entries were committed before its lease."""
    handle, after = machine.check_handle(request.handle), _position(request.after)

    async def work(reader: Reader) -> JournalPage:
        execution = await found_execution(reader, handle.execution_id)
        # Whether the lease has expired does not matter to a read: nothing can be based on it.
        refusal = refuse_unless_owner(execution, handle.execution_id, handle.fence, now=0)
        if refusal is not None:
            raise refusal.to_error()
        where = (handle.execution_id, execution.journal_index, execution.chapter_index)
        page = await _page(reader, where, after, _LOADED, hides_secrets=False)
        waits = _waits_of(page)
        if not waits:
            return page
        return replace(page, outcomes=await outcomes_of(reader, handle.execution_id, waits))

    return await machine.read(work)


@answers(api.ReadJournal)
async def read_journal(machine: Machine, request: api.ReadJournal) -> JournalPage:
    """For people: secrets stay hidden."""
    checked, after = machine.check_id(request.execution_id), _position(request.after)
    limit = check_integer(request.limit, field="limit", least=1, most=limits.PAGE_MAX)
    wants_values = check_flag(request.values, field="values")
    journal = _index(request.journal_index, "journal_index")
    chapter = _index(request.chapter_index, "chapter_index")

    async def work(reader: Reader) -> JournalPage:
        execution = await found_execution(reader, checked)
        where = (
            checked,
            execution.journal_index if journal is None else journal,
            execution.chapter_index if chapter is None else chapter,
        )
        page = await _page(reader, where, after, limit, hides_values=not wants_values)
        page = await _with_ended_waits(reader, checked, page)
        waits = [each.refers_to for each in page.entries if each.refers_to is not None]
        if not wants_values or not waits:
            return page
        return replace(page, outcomes=await outcomes_of(reader, checked, waits))

    return await machine.read(work)


@answers(api.ReadPublished)
async def read_published(machine: Machine, request: api.ReadPublished) -> Published | None:
    """By its key."""
    key = (machine.check_id(request.execution_id),)

    async def work(reader: Reader) -> Published | None:
        await found_execution(reader, key[0])
        row = (await reader.peek_rows(PUBLISHED, [key])).get(key)
        if row is None:
            return None
        return Published(row.value, row.published_at, row.attempt_index)

    return await machine.read(work)


def _waits_of(page: JournalPage) -> list[str]:
    """The suspensions that entries refer to."""
    waits = (each for each in page.entries if each.kind is EntryKind.WAIT)
    return [each.refers_to for each in waits if each.refers_to is not None]


async def _with_ended_waits(reader: Reader, execution_id: str, page: JournalPage) -> JournalPage:
    """Waits that are over are shown so: the entry was written when they began."""
    keys: list[Key] = [(execution_id, each) for each in _waits_of(page)]
    if not keys:
        return page
    found = await reader.peek_rows(SUSPENSIONS, keys)
    over = {row.suspension_id for row in found.values() if row.cause is not None}
    entries = [
        replace(each, state=EntryState.OK) if each.refers_to in over else each
        for each in page.entries
    ]
    return replace(page, entries=tuple(entries))


async def last_told(
    reader: Reader, execution: Execution
) -> tuple[EntryRow | None, RunningRow | None]:
    """The newest entry of the journal of an execution that runs, and the step its last renewals
    told."""
    if not execution.is_leased:
        return None, None
    key = (execution.execution_id,)
    running = (await reader.peek_rows(RUNNING, [key])).get(key)
    where = (execution.execution_id, execution.journal_index, execution.chapter_index)
    search = Search(by_key(JOURNAL), (where,), limit=1, is_backwards=True)
    return next(iter(await reader.search(search)), None), running


async def _page(
    reader: Reader,
    where: tuple[str, int, int],
    after: int,
    limit: int,
    *,
    hides_secrets: bool = True,
    hides_values: bool = False,
) -> JournalPage:
    search = Search(by_key(JOURNAL), (where,), after=(after,), limit=limit + 1)
    rows = await reader.search(search)
    taken, size = rows[:limit], 0
    for count, row in enumerate(taken, 1):
        size += len(row.value or b"")
        if size > _PAGE_BYTES:
            taken = taken[:count]
            break
    entries = [
        _shown(
            row,
            hides=hides_values or (hides_secrets and bool(row.is_secret)),
            for_people=hides_secrets,
        )
        for row in taken
    ]
    return JournalPage(tuple(entries), where[1], where[2], len(taken) < len(rows))


def _shown(row: EntryRow, *, hides: bool, for_people: bool) -> JournalEntry:
    return JournalEntry(
        row.position,
        row.key,
        row.kind,
        row.state,
        row.asked,
        row.tries,
        row.began_at,
        row.took_ms,
        row.recorded_at,
        row.attempt_index,
        len(row.value or b""),
        None if hides else row.value,
        row.digest,
        row.error,
        row.code,
        row.next_key,
        bool(row.is_secret),
        row.refers_to,
        row.arguments if for_people and not hides else None,
    )


def _position(after: object) -> int:
    if after is None:
        return -1
    return check_integer(after, field="after", least=0, most=_COUNT_MAX)


def _index(value: object, field: str) -> int | None:
    return None if value is None else check_integer(value, field=field, least=0, most=_COUNT_MAX)
