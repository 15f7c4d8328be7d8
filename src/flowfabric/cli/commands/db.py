"""`ff db`: the database schema."""

from __future__ import annotations

from typing import Final

from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, mask
from flowfabric.cli.show.times import absolute, count
from flowfabric.model.migration import MigrationStatus
from flowfabric.stores.callers.receipts import DIALECTS, receipts_sql

_USUAL: Final = "postgres"  # beside a store in memory
_MIGRATION_COLUMNS: Final = (
    Column("VERSION", right=True),
    Column("NAME", shrinks=True),
    Column("APPLIED"),
    Column("TEXT"),
)


def add_arguments(parser: FfParser) -> None:
    """The actions."""
    parser.add_argument(
        "action",
        choices=("migrate", "check", "sql"),
        metavar="migrate|check|sql",
        help="migrate: bring it up to date; check: compare; sql: print the statements",
    )
    parser.add_argument(
        "--receipts",
        action="store_true",
        help="with sql: the table for steps in transactions of another database of yours",
    )
    parser.add_argument(
        "--dialect",
        choices=tuple(DIALECTS),
        help="of that database (default: that of the store, postgres for memory://)",
    )
    parser.set_defaults(handler=db)


async def db(call: Call) -> Exit:
    """Migrate, check or print the schema."""
    arguments = call.arguments
    call.require_store("ff db")
    if arguments.receipts and arguments.action != "sql":
        raise usage("--receipts is for ff db sql")
    if arguments.dialect is not None and not arguments.receipts:
        raise usage("--dialect is for ff db sql --receipts")
    match arguments.action:
        case "migrate":
            return await _migrate(call)
        case "check":
            return await _check(call)
        case _:
            return _sql(call)


async def _migrate(call: Call) -> Exit:
    call.terminal.status(f"migrating {mask(call.url)} …")
    store = call.store()
    try:
        applied = await store.migrate()
    finally:
        await store.close()
    if call.terminal.as_json:
        call.terminal.document({"url": mask(call.url), "applied": applied})
    else:
        for name in applied:
            call.terminal.line(f"applied {name}")
        call.terminal.line(f"{mask(call.url)} is up to date")
    return Exit.OK


async def _check(call: Call) -> Exit:
    call.refuse_missing_file()
    store = call.store()
    try:
        found = await store.migration_status()
    finally:
        await store.close()
    pending = [status for status in found if status.applied_at is None]
    changed = [status for status in found if not status.checksum_ok]
    if call.terminal.as_json:
        call.terminal.document(
            {
                "url": mask(call.url),
                "up_to_date": not pending and not changed,
                "migrations": plain(found),
            }
        )
    else:
        call.terminal.table(_MIGRATION_COLUMNS, [_migration_row(status) for status in found])
        if pending:
            call.terminal.complain(
                f"{count(len(pending), 'migration')} to apply — run ff db migrate"
            )
        if changed:
            names = ", ".join(status.name for status in changed)
            call.terminal.complain(
                f"{names} was applied with another text — this database was made by another build"
            )
    return Exit.FAILED if pending or changed else Exit.OK


def _migration_row(status: MigrationStatus) -> tuple[object, ...]:
    applied = "missing" if status.applied_at is None else absolute(status.applied_at)
    return status.version, status.name, applied, "same" if status.checksum_ok else "differs"


def _sql(call: Call) -> Exit:
    if call.arguments.receipts:
        family = call.store().family
        text = receipts_sql(call.arguments.dialect or (family if family in DIALECTS else _USUAL))
    else:
        text = call.store().migration_sql()
    if call.terminal.as_json:
        call.terminal.document({"sql": text})
    else:
        call.terminal.line(text.rstrip("\n"))
    return Exit.OK
