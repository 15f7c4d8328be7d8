"""What schedules, lines, operations, questions, mailboxes and dead letters search for is found by
an index, in its order, whatever the planner knows of the tables. Only ties are sorted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from flowfabric.model.fair import FairPhase
from flowfabric.model.record import replace
from flowfabric.stores.indexes import (
    ASKERS_OF,
    ASKS_OPEN,
    DEAD_LETTERS,
    DEAD_OF_CATEGORY,
    DEAD_OF_KIND,
    DUE_OF,
    FAIR_KEYS,
    FAIR_TAGS,
    SCHEDULES_OF_ORIGIN,
    Search,
    by_key,
)
from flowfabric.stores.postgres import small as postgres_small
from flowfabric.stores.postgres.session import PLANNER
from flowfabric.stores.searches import bound_values, form_of
from flowfabric.stores.sqlite import small as sqlite_small
from flowfabric.stores.tables import (
    ASKERS,
    ASKS,
    LINE_ROWS,
    MESSAGE_KEYS,
    MESSAGES,
    OPERATIONS,
    PLACES,
    SCHEDULES,
    TICKS,
    TOTALS,
)
from tests.support.databases import PostgresServer
from tests.support.lab import Lab

OF_TENANT = (("x",),)
SCHEDULE, LINE, BOX = (("x", "s"),), (("x", "k"),), (("e", "orders"),)
SEARCHES: dict[str, Search[Any]] = {
    "schedules that are due": Search(DUE_OF[SCHEDULES], until=1, limit=10),
    "the same, held": Search(DUE_OF[SCHEDULES], until=1, limit=10, is_held=True),
    "schedules of programs": Search(SCHEDULES_OF_ORIGIN, (("x", "a"), ("x", "b"))),
    "schedules by name": Search(by_key(SCHEDULES), OF_TENANT, after=("s",), limit=10),
    "every schedule": Search(by_key(SCHEDULES), after=("x", "s"), limit=10),
    "the last ticks": Search(by_key(TICKS), SCHEDULE, limit=10, is_backwards=True),
    "ticks after an instant": Search(by_key(TICKS), SCHEDULE, after=(1,), limit=10),
    "ticks past their time": Search(DUE_OF[TICKS], until=1, limit=10),
    "the next in line": Search(by_key(PLACES), LINE, limit=1),
    "a page of a line": Search(by_key(PLACES), LINE, after=(1,), limit=10),
    "lines by key": Search(by_key(LINE_ROWS), OF_TENANT, after=("k",), limit=10),
    "lines that are due": Search(DUE_OF[LINE_ROWS], until=1, limit=10),
    "operations that are due": Search(DUE_OF[OPERATIONS], until=1, limit=10, is_held=True),
    "the last operations": Search(by_key(OPERATIONS), after=("o",), limit=10, is_backwards=True),
    "the clock of fair keys": Search(
        FAIR_TAGS, (("x", "l", 0, FairPhase.RUNNING),), limit=1, is_backwards=True
    ),
    "the least that is ready": Search(FAIR_TAGS, (("x", "l", 0, FairPhase.READY),), limit=1),
    "those before a fair one": Search(
        FAIR_TAGS, (("x", "l", 0, FairPhase.READY),), until=5, limit=1000
    ),
    "the last of a fair key": Search(FAIR_KEYS, (("x", "l", 0, "k"),), limit=1, is_backwards=True),
    "what a kind has spent": Search(by_key(TOTALS), (("kind", "x", "work"),), limit=10),
    "open questions": Search(ASKS_OPEN, after=(1, "b", "d", "hard"), limit=10),
    "questions that are due": Search(DUE_OF[ASKS], until=1, limit=10),
    "questions of a spender": Search(ASKERS_OF, (("e",),), limit=10),
    "spenders of a question": Search(by_key(ASKERS), (("b", "d", "hard"),), limit=10),
    "unread messages": Search(by_key(MESSAGES), BOX, after=(1,), limit=10),
    "messages that may go": Search(DUE_OF[MESSAGES], until=1, limit=10),
    "keys of messages that may go": Search(DUE_OF[MESSAGE_KEYS], until=1, limit=10),
    "dead letters": Search(DEAD_LETTERS, OF_TENANT, limit=10, is_backwards=True),
    "later pages of them": Search(
        DEAD_LETTERS, OF_TENANT, after=(1, "e"), limit=10, is_backwards=True
    ),
    "dead letters of a kind": Search(DEAD_OF_KIND, (("x", "brief"),), limit=10, is_backwards=True),
    "dead letters of a category": Search(
        DEAD_OF_CATEGORY, (("x", "bug"),), limit=10, is_backwards=True
    ),
}
# Those of a few programs are merged; an execution asks at few budgets.
SORTS_FEW = ("schedules of programs", "questions of a spender")


def index_names(search: Search[Any]) -> tuple[str, ...]:
    """How plans name the index; the key of a table has none of its own."""
    table = search.index.table.name
    return (search.index.name or f"{table}_pkey", f"sqlite_autoindex_{table}_1", "PRIMARY KEY")


def test_sqlite_searches_by_the_index_and_sorts_nothing(sqlite_template: Path) -> None:
    wrong = {}
    with closing(sqlite3.connect(sqlite_template)) as connection:
        for name, search in SEARCHES.items():
            for is_keys in (True, False):
                sql = sqlite_small.search_sql(form_of(search, is_keys=is_keys))
                values = bound_values(search, search.prefixes, search.limit, sqlite_small.many)
                plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
                text = "\n".join(row[3] for row in plan)
                own, *key = index_names(search)
                named = own in text or (not search.index.name and any(w in text for w in key))
                scans = "SCAN" in text and "USING" not in text
                sorts = "TEMP B-TREE FOR ORDER BY" in text and name not in SORTS_FEW
                if not named or scans or sorts:
                    wrong[name, is_keys] = text
    assert wrong == {}


@pytest.fixture
def new_url(postgres: PostgresServer) -> Iterator[str]:
    """A database that no other test has left statistics in."""
    with postgres.empty_database() as url:
        yield url


def test_postgres_searches_by_the_index_and_sorts_nothing(new_url: str) -> None:
    """Where statistics say that there are no rows, as in a new database under its first load."""
    lab = Lab(new_url)
    lab.open()

    async def explain() -> dict[str, str]:
        connection = await asyncpg.connect(new_url, server_settings=PLANNER)
        plans = {}
        for name, search in SEARCHES.items():
            values = bound_values(search, search.prefixes, search.limit, postgres_small.many)
            for is_held in {search.is_held, True}:
                form = form_of(replace(search, is_held=is_held))
                rows = await connection.fetch(f"EXPLAIN {postgres_small.search_sql(form)}", *values)
                plans[f"{name}, held: {is_held}"] = "\n".join(row[0] for row in rows)
        await connection.close()
        return plans

    plans = lab.run(explain())
    lab.close()
    wrong = {
        name: text
        for name, text in plans.items()
        if index_names(SEARCHES[name.partition(", held: ")[0]])[0] not in text
        or "Seq Scan on ff_" in text
        or (" Sort  (" in text.replace("Incremental Sort", "") and not name.startswith(SORTS_FEW))
    }
    assert wrong == {}
