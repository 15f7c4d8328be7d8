"""`ff journal`: what the handler of an execution has done, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from pathlib import Path
from typing import Any, Final

import msgspec

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import absolute, span
from flowfabric.model.journal import EntryKind, EntryState, JournalEntry, JournalPage
from flowfabric.model.results import ExecutionSnapshot
from flowfabric.model.state import TERMINAL_STATES
from flowfabric.testing.histories import write_history
from flowfabric.testing.history import history_of, redacted, written

_LOOK_EVERY_S: Final = 0.5
_VALUE_WIDTH: Final = 200
_KEYS: Final[msgspec.json.Decoder[list[str]]] = msgspec.json.Decoder(list[str])
_COLUMNS: Final = (
    Column("AT", right=True),
    Column("KEY", shrinks=True, least=20),
    Column("KIND"),
    Column("STATE"),
    Column("TRIES", right=True),
    Column("TOOK", right=True),
    Column("BYTES", right=True),
    Column("ATTEMPT", right=True),
    Column("RECORDED"),
    Column("DETAIL", shrinks=True, least=20),
)


def add_arguments(parser: FfParser) -> None:
    """The execution, and which of its journals."""
    add_id(parser)
    parser.add_argument("--values", action="store_true", help="with what steps returned")
    parser.add_argument("--watch", "-w", action="store_true", help="show more until it has ended")
    parser.add_argument("--journal", type=values.number, metavar="N", help="an earlier one, from 0")
    parser.add_argument(
        "--chapter", type=values.number, metavar="N", help="an earlier part of it, from 0"
    )
    parser.add_argument("--export", metavar="FILE", help="write its history, for ff replay")
    parser.add_argument(
        "--redact",
        action="append",
        metavar="PATHS",
        help="values that the history leaves out: input.card,charge.receipt",
    )
    parser.set_defaults(handler=journal)


async def journal(call: Call) -> Exit:
    """Its entries in order; one JSON object on a line with --json."""
    if call.arguments.redact is not None and call.arguments.export is None:
        raise usage("--redact is for --export", advice="add --export FILE")
    async with call.engine() as engine:
        snapshot = await named(call, engine)
        if call.arguments.export is not None:
            return await _export(call, engine, snapshot)
        shown = await _show_new(call, engine, snapshot, None)
        while call.arguments.watch and snapshot.public_state not in TERMINAL_STATES:
            await asyncio.sleep(_LOOK_EVERY_S)
            snapshot = await named(call, engine)  # before the entries: none follows an end
            shown = await _show_new(call, engine, snapshot, shown)
        if shown is None and not call.terminal.as_json:
            call.terminal.line(f"no journal: {_none(call)}")
        elif not call.terminal.as_json:
            await _tell_running(call, engine, snapshot)
    return Exit.OK


def _none(call: Call) -> str:
    """Why there is nothing to show."""
    if call.arguments.chapter is not None:
        return f"it has no chapter {call.arguments.chapter}, or keeps it no longer"
    if call.arguments.journal:
        return f"it has no journal {call.arguments.journal}; ff retry --fresh begins another"
    return "this handler makes no journaled calls"


async def _export(call: Call, engine: EngineBackend, snapshot: ExecutionSnapshot) -> Exit:
    """Write what it was given, what it recorded and how it ended."""
    paths = [path for each in call.arguments.redact or () for path in each.split(",") if path]
    whole = await history_of(engine, snapshot.execution_id, chapter_index=call.arguments.chapter)
    history = redacted(whole, paths)
    if call.arguments.export == "-":
        call.terminal.out.write(written(history))
        return Exit.OK
    try:
        write_history(history, Path(call.arguments.export))
    except OSError as error:
        detail = f"{call.arguments.export} cannot be written: {error.strerror}"
        raise usage(detail, advice="name another file") from error
    if call.terminal.as_json:
        document = {"file": call.arguments.export, "entries": len(history.entries)}
        call.terminal.document(document)
    else:
        call.terminal.line(f"{len(history.entries)} entries in {clean(call.arguments.export)}")
    return Exit.OK


async def _show_new(
    call: Call, engine: EngineBackend, snapshot: ExecutionSnapshot, after: int | None
) -> int | None:
    """Show the entries after a position; the position of the last one."""
    entries: list[JournalEntry] = []
    reached = after
    while True:
        page: JournalPage = await engine.read_journal(
            execution_id=snapshot.execution_id,
            journal_index=call.arguments.journal,
            chapter_index=call.arguments.chapter,
            after=reached,
            limit=limits.PAGE_MAX,
            values=call.arguments.values,
        )
        entries += page.entries
        reached = entries[-1].position if entries else reached
        if not page.has_more:
            break
    unused = await _unused(call, engine, snapshot, entries)
    if call.terminal.as_json:
        for entry in entries:
            call.terminal.record({**_document(entry), "is_unused": entry.key in unused})
    elif entries:
        code = entries[0].code
        if code is not None and code.version is not None:
            call.terminal.line(f"begun by version {clean(code.version)}")
        call.terminal.table(_COLUMNS, [_row(entry, unused) for entry in entries])
    call.terminal.out.flush()
    return reached


async def _unused(
    call: Call, engine: EngineBackend, snapshot: ExecutionSnapshot, entries: list[JournalEntry]
) -> frozenset[str]:
    """The keys that the code which ended the run did not ask for."""
    if not entries or entries[-1].kind is not EntryKind.UNUSED:
        return frozenset()
    page: JournalPage = await engine.read_journal(
        execution_id=snapshot.execution_id,
        journal_index=call.arguments.journal,
        chapter_index=call.arguments.chapter,
        after=entries[-1].position - 1 if entries[-1].position else None,
        values=True,
    )
    entries[-1] = page.entries[-1]
    return frozenset(_KEYS.decode(entries[-1].value or b"[]"))


def _row(entry: JournalEntry, unused: Container[str]) -> tuple[str, ...]:
    return (
        str(entry.position),
        clean(entry.key),
        entry.kind.value,
        "unused" if entry.key in unused else entry.state.value,
        str(entry.tries),
        span(entry.took_ms),
        str(entry.size),
        str(entry.attempt_index + 1),
        absolute(entry.recorded_at),
        clean(_detail(entry)),
    )


def _detail(entry: JournalEntry) -> str:
    if entry.error is not None:
        headline = entry.error.reason.strip().partition("\n")[0]
        return f"{headline} (tried again)" if entry.state is EntryState.REOPENED else headline
    if entry.is_secret:
        return "secret"
    if entry.value is None:
        return ""
    if entry.kind in (EntryKind.WAIT, EntryKind.RETRYING) and entry.value.isdigit():
        return f"until {absolute(int(entry.value))}"
    return entry.value[:_VALUE_WIDTH].decode(errors="replace")


def _document(entry: JournalEntry) -> dict[str, Any]:
    error = entry.error
    return {
        "position": entry.position,
        "key": entry.key,
        "kind": entry.kind.value,
        "state": entry.state.value,
        "tries": entry.tries,
        "began_at": entry.began_at,
        "took_ms": entry.took_ms,
        "recorded_at": entry.recorded_at,
        "attempt": entry.attempt_index + 1,
        "size": entry.size,
        "is_secret": entry.is_secret,
        "value": None if entry.value is None else entry.value.decode(errors="replace"),
        "category": None if error is None else error.category,
        "reason": None if error is None else error.reason,
        "arguments": None if entry.arguments is None else entry.arguments.decode(errors="replace"),
        "next_key": entry.next_key,
        "version": None if entry.code is None else entry.code.version,
    }


async def _tell_running(call: Call, engine: EngineBackend, snapshot: ExecutionSnapshot) -> None:
    """What runs now, as far as the last entry tells."""
    if snapshot.current_lease is None:
        return
    explanation = await engine.explain(execution_id=snapshot.execution_id)
    if explanation.step is not None and explanation.step_since is not None:
        now = await engine.server_time_ms()
        lasted = span(max(0, now - explanation.step_since))
        call.terminal.line(f"running: {clean(explanation.step)} for {lasted}")
