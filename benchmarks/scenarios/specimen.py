"""What one cycle writes, row by row, read from the database after a real one.

Floors and preloads copy these rows, so they follow the schema by themselves: a column or table
that the engine begins to write is written by the floor too.
"""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.scenarios.raw import Column, RawDatabase, connect
from flowfabric.api.leases import Complete
from flowfabric.api.waits import SuspendRequest
from flowfabric.assemble import open_engine
from flowfabric.bench.measurement import MeasurementFailed
from flowfabric.bench.workload import KIND, LANE, PAYLOAD, RESULT, WORKER, new_execution
from flowfabric.config import EngineConfig
from flowfabric.model.record import Record, replace
from flowfabric.model.suspension import Single

CORE, BODY, ATTEMPT = "ff_exec_core", "ff_exec_body", "ff_attempt"
ATTACHMENT = "ff_budget_attachment"
SUSPENSION, WAITPOINT = "ff_suspension", "ff_waitpoint"
LISTED_KINDS = tuple(f"listed-{number}" for number in range(10))
EXHAUSTED = "bench-exhausted"
TABLES = (CORE, BODY, ATTEMPT, "ff_lease_event", "ff_completion_event")
_APART_S = 0.003  # between steps, so that every instant they write differs from the one before
GENERATED = ("event_id",)  # the database fills it by itself


class Image(Record, frozen=True):
    """One row as the engine wrote it."""

    table: str
    columns: tuple[str, ...]
    values: tuple[Any, ...]
    declared: tuple[Column, ...]


class Specimen(Record, frozen=True):
    """The rows of one execution after each step; `delayed` is one that waits for its time."""

    created: tuple[Image, ...]
    claimed: tuple[Image, ...]
    completed: tuple[Image, ...]
    delayed: tuple[Image, ...]


async def read_specimen(url: str, *, delay_until: int) -> Specimen:
    """Run one cycle on a database (migrating it) and look at the rows after each step."""
    engine = open_engine(url, config=EngineConfig(loops=False))
    await engine.start(migrate=True)
    database: RawDatabase = await connect(url)
    try:
        seen = _Changes(database)
        await engine.create_executions([new_execution()])
        created = await seen.since_last_look()
        await asyncio.sleep(_APART_S)
        claimed_now = await engine.claim(
            lanes=[LANE], worker_id=WORKER, worker_instance_id=f"{WORKER}-1", limit=1
        )
        claimed = await seen.since_last_look()
        await asyncio.sleep(_APART_S)
        await engine.complete_many(
            [Complete(handle=claimed_now[0].handle, result=RESULT, result_encoding="json")]
        )
        completed = await seen.since_last_look()
        await engine.create_execution(
            execution_kind=KIND, input_payload=PAYLOAD, delay_until=delay_until
        )
        delayed = await seen.since_last_look()
    finally:
        await database.close()
        await engine.close()
    if [image.table for image in created] != [CORE, BODY]:
        raise MeasurementFailed(f"a create wrote {[image.table for image in created]}")
    return Specimen(created, claimed, completed, delayed)


async def read_blocked_specimen(url: str) -> tuple[Image, ...]:
    """The rows of one execution that waits for an exhausted budget, on a database without work."""
    engine = open_engine(url, config=EngineConfig(loops=False))
    await engine.start(migrate=True)
    database: RawDatabase = await connect(url)
    try:
        await engine.create_budget(
            budget_id=EXHAUSTED, dimensions=["cost_micros"], hard_limits=[1], soft_limits=[0]
        )
        await engine.report_usage_admin(budget_id=EXHAUSTED, dimensions=["cost_micros"], deltas=[1])
        await engine.create_executions([replace(new_execution(), budget_ids=(EXHAUSTED,))])
        claimed = await engine.claim(
            lanes=[LANE], worker_id=WORKER, worker_instance_id=f"{WORKER}-1", limit=1
        )
        images = await _Changes(database, (CORE, BODY, ATTACHMENT)).since_last_look()
    finally:
        await database.close()
        await engine.close()
    if claimed or [image.table for image in images] != [CORE, BODY, ATTACHMENT]:
        raise MeasurementFailed("the execution is not blocked")
    return images


async def read_suspended_specimen(url: str, *, timeout_at: int) -> tuple[Image, ...]:
    """The rows of one suspended execution, on a database without work."""
    engine = open_engine(url, config=EngineConfig(loops=False))
    await engine.start(migrate=True)
    database: RawDatabase = await connect(url)
    try:
        await engine.create_executions([new_execution()])
        claimed = await engine.claim(
            lanes=[LANE], worker_id=WORKER, worker_instance_id=f"{WORKER}-1", limit=1
        )
        request = SuspendRequest(resume_condition=Single("answer", "go"), timeout_at=timeout_at)
        await engine.suspend(claimed[0].handle, request)
        tables = (CORE, BODY, SUSPENSION, WAITPOINT)
        images = await _Changes(database, tables).since_last_look()
    finally:
        await database.close()
        await engine.close()
    if [image.table for image in images] != list(tables):
        raise MeasurementFailed("the execution is not suspended")
    return images


async def read_listed_specimens(url: str, *, delay_until: int) -> list[tuple[Image, ...]]:
    """For each of some kinds the rows of executions to be listed (migrating the database): a
    success, a failure, and one that runs, is delayed or waits, in this order."""
    engine = open_engine(url, config=EngineConfig(loops=False))
    await engine.start(migrate=True)
    database: RawDatabase = await connect(url)
    found = []
    try:
        seen = _Changes(database, (CORE, BODY, ATTEMPT))
        for kind in LISTED_KINDS:
            new = replace(new_execution(), execution_kind=kind)
            for end in ("complete", "fail", "run"):
                await engine.create_executions([new])
                (claimed,) = await engine.claim(
                    lanes=[LANE], worker_id=WORKER, worker_instance_id=WORKER, kinds=[kind]
                )
                if end == "complete":
                    await engine.complete(claimed.handle, result=RESULT)
                elif end == "fail":
                    await engine.fail(claimed.handle, reason="x")
                found.append(await seen.since_last_look())
            for waits in (replace(new, delay_until=delay_until), new):
                await engine.create_executions([waits])
                found.append(await seen.since_last_look())
    finally:
        await database.close()
        await engine.close()
    return found


class _Changes:
    """Notices which rows are new or different."""

    def __init__(self, database: RawDatabase, tables: tuple[str, ...] = TABLES) -> None:
        self._database = database
        self._tables = tables
        self._known: set[tuple[Any, ...]] = set()

    async def since_last_look(self) -> tuple[Image, ...]:
        found = []
        for table in self._tables:
            declared = await self._database.columns(table)
            for row in await self._database.fetch(f"SELECT * FROM {table}"):
                key = (table, *row)
                if key not in self._known:
                    self._known.add(key)
                    found.append(_image(table, declared, row))
        return tuple(found)


def _image(table: str, declared: dict[str, Column], row: tuple[Any, ...]) -> Image:
    kept = [
        (name, value, column)
        for (name, column), value in zip(declared.items(), row, strict=True)
        if name not in GENERATED
    ]
    names, values, columns = zip(*kept, strict=True)
    return Image(table, names, values, columns)
