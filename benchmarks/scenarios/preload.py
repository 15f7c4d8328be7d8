"""A store with a past: many finished, delayed or blocked executions, copied by SQL."""

from __future__ import annotations

from benchmarks.scenarios.raw import PostgresDatabase, SqliteDatabase, connect
from benchmarks.scenarios.specimen import (
    ATTEMPT,
    BODY,
    CORE,
    LISTED_KINDS,
    Image,
    read_blocked_specimen,
    read_listed_specimens,
    read_specimen,
    read_suspended_specimen,
)
from flowfabric.clock import SystemClock

FINISHED = 1_000_000
DELAYED = 100_000
BLOCKED = 100_000
SUSPENDED = 100_000
_FAR_MS = 365 * 86_400_000
_AGE_MS = 30 * 86_400_000
_SHIFTED = (
    "created_at",
    "purge_at",
    "eligible_at",
    "ready_rank",
)  # what the indexes are ordered by
_OWN_IDS = ("suspension_id", "waitpoint_id")
_CHUNK = 100_000
_APART_MS = 10_000_000  # between the ids of two specimens' copies
LISTED_RUNNING = 1_000


async def preload(url: str, *, finished: int = FINISHED, delayed: int = DELAYED) -> None:
    """Fill a database (migrating it) with rows as the engine would have left them."""
    now = SystemClock().now_ms()
    specimen = await read_specimen(url, delay_until=now + _FAR_MS)
    ended = _last(specimen.completed, CORE)
    past = [ended, _last(specimen.created, BODY), *specimen.completed]
    images = list({image.table: image for image in past}.values())
    database = await connect(url)
    try:
        for image in images:
            await _copy(database, image, _id(ended), finished, now - _AGE_MS)
        waiting = _last(specimen.delayed, CORE)
        for image in specimen.delayed:
            await _copy(database, image, _id(waiting), delayed, now - _AGE_MS + finished)
        await _settle(database)
    finally:
        await database.close()


async def preload_blocked(url: str, count: int = BLOCKED) -> None:
    """Fill a database (migrating it) with executions that wait for an exhausted budget."""
    images = await read_blocked_specimen(url)
    uuid, base = _id(_last(images, CORE)), SystemClock().now_ms() - _AGE_MS
    database = await connect(url)
    try:
        for image in images:
            await _copy(database, image, uuid, count - 1, base)
        await _settle(database)
    finally:
        await database.close()


async def preload_suspended(url: str, count: int = SUSPENDED) -> None:
    """Fill a database (migrating it) with executions that wait for a signal or a far timeout."""
    now = SystemClock().now_ms()
    images = await read_suspended_specimen(url, timeout_at=now + _FAR_MS)
    uuid = _id(_last(images, CORE))
    database = await connect(url)
    try:
        for image in images:
            await _copy(database, image, uuid, count - 1, now - _AGE_MS)
        await _settle(database)
    finally:
        await database.close()


async def preload_listed(url: str, *, finished: int, others: int) -> None:
    """Fill a database (migrating it) with executions of several kinds, mixed by creation: so many
    successes, so many others in each state; one in 256 has a tag."""
    now = SystemClock().now_ms()
    specimens = await read_listed_specimens(url, delay_until=now + _FAR_MS)
    kinds = len(LISTED_KINDS)
    database = await connect(url)
    try:
        for number, images in enumerate(specimens):
            uuid, base = _id(_last(images, CORE)), now - _AGE_MS + number * _APART_MS
            count = _listed_count(number % (len(specimens) // kinds), finished, others) // kinds
            for image in images:
                await _copy(database, image, uuid, count, base)
        await database.execute(
            "INSERT INTO ff_exec_tag SELECT execution_id, 'team.name', 'rare' FROM ff_exec_body "
            "WHERE right(execution_id::text, 2) = '00'"
        )
        await _settle(database)
    finally:
        await database.close()


def _listed_count(which: int, finished: int, others: int) -> int:
    """Of the specimens of a kind: a success, a failure, one that runs (few do), two that wait."""
    return (finished, others, LISTED_RUNNING, others, others)[which]


async def _settle(database: SqliteDatabase | PostgresDatabase) -> None:
    """As autovacuum would; nothing ever analyses a SQLite file."""
    if database.family == "postgres":
        await database.execute("VACUUM ANALYZE")


def _last(images: tuple[Image, ...], table: str) -> Image:
    return next(image for image in images if image.table == table)


def _id(core: Image) -> str:
    return str(core.values[core.columns.index("execution_id")])


async def _copy(
    database: SqliteDatabase | PostgresDatabase, image: Image, uuid: str, count: int, base_ms: int
) -> None:
    """As many copies of a row, each with an id and times of its own."""
    is_sqlite = database.family == "sqlite"
    new_id = _sqlite_uuid(base_ms) if is_sqlite else _postgres_uuid(base_ms)
    in_wire_form = image.table not in (CORE, BODY, ATTEMPT)
    text = new_id if is_sqlite else f"({new_id})::text"
    prefix = "substr(t.execution_id, 1, length(t.execution_id) - 36)"
    values = []
    for name in image.columns:
        if name == "execution_id":
            values.append(f"{prefix} || {text}" if in_wire_form else new_id)
        elif name in _OWN_IDS:
            values.append(f"t.{name} || '-' || g.i")
        elif name in _SHIFTED:
            values.append(f"t.{name} - g.i")
        else:
            values.append(f"t.{name}")
    where = f"t.execution_id LIKE '%{uuid}'" if in_wire_form else f"t.execution_id = '{uuid}'"
    for start in range(1, count + 1, _CHUNK):
        series = _series(is_sqlite, start, min(start + _CHUNK - 1, count))
        await database.execute(
            f"INSERT INTO {image.table} ({', '.join(image.columns)}) "
            f"SELECT {', '.join(values)} FROM {image.table} AS t CROSS JOIN {series} "
            f"WHERE {where}"
        )


def _series(is_sqlite: bool, first: int, last: int) -> str:
    if is_sqlite:
        numbers = f"SELECT {first} AS i UNION ALL SELECT i + 1 FROM n WHERE i < {last}"
        return f"(WITH RECURSIVE n AS ({numbers}) SELECT i FROM n) AS g"
    return f"generate_series({first}::bigint, {last}::bigint) AS g (i)"


def _sqlite_uuid(base_ms: int) -> str:
    moment = f"({base_ms} + g.i)"
    return f"printf('%08x-%04x-7000-8000-%012x', {moment} >> 16, {moment} & 65535, g.i)"


def _postgres_uuid(base_ms: int) -> str:
    moment = f"lpad(to_hex({base_ms} + g.i), 12, '0')"
    return f"({moment} || '70008000' || lpad(to_hex(g.i), 12, '0'))::uuid"
