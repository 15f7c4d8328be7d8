"""The hot statements keep using their indexes, whatever the planner thinks of tomorrow."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.model.record import replace
from flowfabric.model.state import BlockingReason
from flowfabric.stores.base import ListFilter
from flowfabric.stores.indexes import (
    BLOCKED,
    CHILDREN,
    DUE,
    EDGES_AHEAD_FROM,
    EDGES_TO,
    PURGE,
    Search,
)
from flowfabric.stores.listing import Bound, counting_sql, listing_sql
from flowfabric.stores.logs import LOGS, Log
from flowfabric.stores.postgres import small as postgres_small
from flowfabric.stores.postgres import view as postgres_view
from flowfabric.stores.postgres.session import PLANNER
from flowfabric.stores.postgres.usual import RECORD_COLUMNS
from flowfabric.stores.searches import bound_values, form_of
from flowfabric.stores.sqlite import bulk
from flowfabric.stores.sqlite import small as sqlite_small
from flowfabric.stores.sqlite import view as sqlite_view
from flowfabric.stores.sqlite.bulk import Sheet
from flowfabric.stores.tables import EDGES, KEYS
from tests.support.lab import Lab

ROWS = 3_000
T = TypeVar("T")


def told(url: str, story: Callable[[Lab], Coroutine[Any, Any, T]]) -> T:
    lab = Lab(url)
    lab.open()
    try:
        return lab.run(story(lab))
    finally:
        lab.close()


async def fill(lab: Lab) -> None:
    requests = [NewExecution(execution_kind="k", priority=n % 7) for n in range(ROWS)]
    await lab.engine.create_executions(requests)


SQLITE_PLANS = {
    "get": (('["x"]',), "c USING INDEX sqlite_autoindex_ff_exec_core_1"),
    "ready": ((1, 1, 10), "ff_exec_ready"),
    "next_due": ((), "ff_exec_due"),
    "update_step": ((None,) * 13 + ('["x"]',), "sqlite_autoindex_ff_exec_core_1"),
    "result": (("x", 0), "sqlite_autoindex_ff_attempt_1"),
    "ids_between": (("0", "f", 10), "sqlite_autoindex_ff_exec_core_1"),
    "ids_ending": (("0", 10, 10), "ff_exec_core USING COVERING INDEX"),
    "result_sizes": (('["x"]',), "sqlite_autoindex_ff_attempt_1"),
}


SORTS_FEW = ("ids_ending",)


@pytest.mark.parametrize("name", SQLITE_PLANS)
def test_sqlite_uses_the_index(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plan.db"
    told(f"sqlite:///{path}", fill)
    values, index = SQLITE_PLANS[name]
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sqlite_view.SQL[name]}", values).fetchall()
    text = "\n".join(row[3] for row in plan)
    assert index in text, text
    assert "SCAN c\n" not in text + "\n", text
    assert "TEMP B-TREE" not in text or name in SORTS_FEW, text


# Searches of executions: what the loop, a purge and a limit with room ask for.
EXECUTION_SEARCHES: dict[str, Search[Any]] = {
    "due": Search(DUE, until=1, limit=10),
    "due after another": Search(DUE, until=1, after=(0, "0" * 32), limit=10),
    "to be purged": Search(PURGE, until=1, limit=10),
    "blocked": Search(BLOCKED, (("x",),), limit=10),
    "of a worker": Search(DUE, only=(("worker_instance_id", "x"),)),
}


@pytest.mark.parametrize("is_keys", [True, False])
@pytest.mark.parametrize("name", EXECUTION_SEARCHES)
def test_sqlite_searches_executions_by_the_index(
    sqlite_template: Path, name: str, is_keys: bool
) -> None:
    search = EXECUTION_SEARCHES[name]
    sql = sqlite_small.search_sql(form_of(search, is_keys=is_keys))
    values = bound_values(search, search.prefixes, search.limit, sqlite_small.many)
    with closing(sqlite3.connect(sqlite_template)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    text = "\n".join(row[3] for row in plan)
    assert search.index.name in text, text
    assert "TEMP B-TREE" not in text, text


@pytest.mark.parametrize("name", EXECUTION_SEARCHES)
def test_postgres_searches_executions_by_the_index(postgres_url: str, name: str) -> None:
    """Also where statistics say that there are no rows."""
    search = replace(EXECUTION_SEARCHES[name], is_held=True)

    async def explain(lab: Lab) -> str:
        await fill(lab)
        connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
        await connection.execute(
            "UPDATE pg_class SET relpages = pg_relation_size(oid) / 8192, reltuples = 0 "
            "WHERE relname LIKE 'ff\\_%' AND relkind IN ('r', 'i')"
        )
        values = bound_values(search, search.prefixes, search.limit, postgres_small.many)
        sql = postgres_small.search_sql(form_of(search))
        rows = await connection.fetch(f"EXPLAIN {sql}", *values)
        await connection.close()
        return "\n".join(row[0] for row in rows)

    text = told(postgres_url, explain)
    assert search.index.name in text, text
    assert "Join Filter" not in text, text
    assert "Sort" not in text, text


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_sqlite_updates_search_by_key_whatever_the_statistics_say(
    tmp_path: Path, rows: int
) -> None:
    path = tmp_path / "plan.db"
    lab = Lab(f"sqlite:///{path}")
    lab.open()
    lab.run(lab.engine.create_executions([NewExecution(execution_kind="k")] * rows))
    lab.close()
    sheet = Sheet("ff_exec_core", ("execution_id", "state_id", "lease_id"))
    wide = bulk._update_shared(sheet, (True, False, True), 100)
    values = (*(None,) * 13, '["x"]')
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ANALYZE")
        for sql, given in ((wide, (None,) * 201), (sqlite_view.SQL["update_step"], values)):
            plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", given).fetchall()
            text = "\n".join(row[3] for row in plan)
            assert "SEARCH ff_exec_core" in text, text
            assert "sqlite_autoindex_ff_exec_core_1 (execution_id=?)" in text, text


@pytest.mark.parametrize("name", ["core", "update_hot", "update_all"])
def test_sqlite_builds_no_list_for_a_row_of_an_execution(sqlite_template: Path, name: str) -> None:
    """The conditions of indexes are evaluated for every row: with `IN` and more than two numbers
    each of them would fill a table of its own."""
    sheet = sqlite_view._SHEETS[name]
    write = bulk._insert_one if name == "core" else bulk._update_one
    with closing(sqlite3.connect(sqlite_template)) as connection:
        steps = connection.execute(f"EXPLAIN {write(sheet)}", (None,) * len(sheet.columns))
        assert "OpenEphemeral" not in {step[1] for step in steps}


FOLDS: dict[str, tuple[Any, ...]] = {
    "fold_members": ("x", 100, 1, 2_000),
    "fold_edges": ("x", 100, 1, 2_000),
    "find_members": ("x", "", 0, 9, "[1]", "[1]", 1, 200),
}


@pytest.mark.parametrize("name", FOLDS)
def test_sqlite_counts_the_members_of_a_flow_by_keys(sqlite_template: Path, name: str) -> None:
    """Only what it has counted by then is scanned, never a table."""
    sql = sqlite_view.SQL[name]
    with closing(sqlite3.connect(sqlite_template)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", FOLDS[name]).fetchall()
    lines = [row[3] for row in plan]
    scanned = [line for line in lines if line.startswith("SCAN") and "VIRTUAL" not in line]
    assert {*scanned} <= {"SCAN d"}, lines
    assert any("(flow_id=?" in line for line in lines), lines


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_a_page_of_a_log_is_read_by_position(sqlite_template: Path, log: Log[Any]) -> None:
    """Neither sorted nor searched row by row."""
    sql = f"EXPLAIN QUERY PLAN {log.page_sql((), sqlite_small.mark)}"
    with closing(sqlite3.connect(sqlite_template)) as connection:
        plan = connection.execute(sql, (1, 9, 10)).fetchall()
    text = "\n".join(row[3] for row in plan)
    assert text == f"SEARCH {log.name} USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"


POSTGRES_PLANS = {
    "load": ((["00000000-0000-7000-8000-000000000000"],), "ff_exec_core_pkey"),
    "ready_one": ((1, 1, 10, 1000), "ff_exec_ready"),
    "ready_many": (([1, 2], 1, 10, 1000), "ff_exec_ready"),
    "ids_between": (("0" * 32, "0" * 32, 10), "ff_exec_core_pkey"),
    "ids_ending": (("0", 10, 10), "Only Scan Backward using ff_exec_core_pkey"),
}


@pytest.mark.parametrize("name", POSTGRES_PLANS)
def test_postgres_uses_the_index(postgres_url: str, name: str) -> None:
    values, index = POSTGRES_PLANS[name]

    async def explain(lab: Lab) -> str:
        await fill(lab)
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("ANALYZE")
        rows = await connection.fetch(f"EXPLAIN {postgres_view.SQL[name]}", *values)
        await connection.close()
        return "\n".join(row[0] for row in rows)

    text = told(postgres_url, explain)
    assert index in text, text


def test_a_claim_sorts_nothing_even_before_there_are_statistics(postgres_url: str) -> None:
    """A new table has none: without our settings all that waits would be collected and sorted."""

    async def explain(lab: Lab) -> str:
        await fill(lab)
        connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        sql = postgres_view.SQL["ready_one"]
        rows = await connection.fetch(f"EXPLAIN {sql}", 1, 1, 10, 1000)
        await connection.close()
        return "\n".join(row[0] for row in rows)

    text = told(postgres_url, explain)
    assert "ff_exec_ready" in text, text
    assert "Sort" not in text, text


UUIDS = ["00000000-0000-7000-8000-000000000000"] * 500
JOINING = {
    "load": (UUIDS,),
    "load_free": (UUIDS,),
    "look": (UUIDS,),
    "get": (UUIDS,),
    "bodies": (UUIDS,),
    "results": (UUIDS,),
    "result_sizes": (UUIDS,),
    "ready_one": (1, 1, 500, 1 << 20),
    "ready_many": ([1, 2], 1, 500, 1 << 20),
    "count_members": ("x",),
    "fold_members": ("x", 100, True, 2_000),
    "fold_edges": ("x", 100, True, 2_000),
    "find_members": ("x", "", 0, 9, [1], [1], 1, 200),
}


def test_no_statement_compares_all_rows_when_statistics_say_there_are_none(
    postgres_url: str,
) -> None:
    """ANALYZE during the first large transaction sees its pages and not one row of it."""

    async def explain(lab: Lab) -> dict[str, str]:
        await fill_flows(lab)
        connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
        await connection.execute(
            "UPDATE pg_class SET relpages = pg_relation_size(oid) / 8192, reltuples = 0 "
            "WHERE relname LIKE 'ff\\_%' AND relkind IN ('r', 'i')"
        )
        asked = {name: (postgres_view.SQL[name], values) for name, values in JOINING.items()}
        for hold in (True, False):
            sql = postgres_small._load(KEYS, 2, alike=False, hold=hold)
            asked[f"keys, held: {hold}"] = (sql, (UUIDS, UUIDS))
        plans = {}
        for name, (sql, values) in asked.items():
            rows = await connection.fetch(f"EXPLAIN {sql}", *values)
            plans[name] = "\n".join(row[0] for row in rows)
        await connection.close()
        return plans

    plans = told(postgres_url, explain)
    assert {name: text for name, text in plans.items() if "Join Filter" in text} == {}


# Filters, the routes they name, and the indexes that have their rows in creation order.
APPROVALS = ListFilter(states=("suspended",), reason=BlockingReason.WAITING_FOR_APPROVAL)
LISTINGS: dict[str, tuple[ListFilter, list[int] | None, set[str]]] = {
    "none": (ListFilter(), None, {"ff_exec_body_created"}),
    "one state": (ListFilter(states=("failed",)), None, {"ff_exec_state"}),
    "running": (ListFilter(states=("active",)), None, {"ff_exec_running", "ff_exec_state"}),
    "a state of many numbers": (
        ListFilter(states=("waiting",)),
        None,
        {"ff_exec_waiting", "ff_exec_state"},
    ),
    "several states": (
        ListFilter(states=("active", "delayed")),
        None,
        {"ff_exec_running", "ff_exec_state"},
    ),
    "state and route": (
        ListFilter(states=("waiting",)),
        [1, 2],
        {"ff_exec_waiting", "ff_exec_state"},
    ),
    "completed": (ListFilter(states=("completed",)), None, {"ff_exec_body_created"}),
    "approvals": (APPROVALS, None, {"ff_exec_state"}),
    "approvals, oldest first": (replace(APPROVALS, is_oldest_first=True), None, {"ff_exec_state"}),
    "one route": (ListFilter(), [1], {"ff_exec_body_route"}),
    "several routes": (ListFilter(), [1, 2, 3], {"ff_exec_body_route"}),
    "completed of a route": (ListFilter(states=("completed",)), [1], {"ff_exec_body_route"}),
}
# The indexes that a search of a listing may go along; others only find the row of an id.
IN_ORDER = re.compile(
    r"ff_exec_(?:state|waiting|running|ready|due|purge|body_created|body_route)\b"
)
FAR = (1 << 50, "00000000-0000-7000-8000-000000000000")


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("name", LISTINGS)
def test_sqlite_lists_in_the_order_of_an_index(tmp_path: Path, name: str, is_first: bool) -> None:
    """All that is ever sorted are pages that are merged."""
    path = tmp_path / "plan.db"
    told(f"sqlite:///{path}", fill)
    wanted, routes, indexes = LISTINGS[name]
    values = Bound(sqlite_small.mark)
    asked = wanted if is_first else replace(wanted, before=FAR)
    sql = listing_sql(asked, routes, 10, values.bind)
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    search = search_of(plan)
    assert set(IN_ORDER.findall(search)) == indexes, search
    assert "TEMP B-TREE" not in search, search


def search_of(plan: list[Any]) -> str:
    """The steps that look for rows: those of the merged pages, or of the only one."""
    pages = {row[0] for row in plan if row[3] == "CO-ROUTINE one"} or {0}
    return "\n".join(row[3] for row in plan if row[1] in pages)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("name", LISTINGS)
def test_postgres_lists_in_the_order_of_an_index(
    postgres_url: str, name: str, is_first: bool
) -> None:
    """Nothing is sorted: pages that are merged are in order already."""
    wanted, routes, indexes = LISTINGS[name]
    asked = wanted if is_first else replace(wanted, before=FAR)

    async def explain(lab: Lab) -> str:
        await fill(lab)
        connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
        await connection.execute("ANALYZE")
        values = Bound(postgres_small.mark)
        sql = listing_sql(asked, routes, 10, values.bind, RECORD_COLUMNS)
        rows = await connection.fetch(f"EXPLAIN {sql}", *values)
        await connection.close()
        return "\n".join(row[0] for row in rows)

    text = told(postgres_url, explain)
    assert set(IN_ORDER.findall(text)) == indexes, text
    assert "Sort  (" not in text, text


COUNTED = {
    "failed": {"ff_exec_state"},
    "waiting": {"ff_exec_waiting", "ff_exec_state"},
    "active": {"ff_exec_running", "ff_exec_state"},
}


@pytest.mark.parametrize("state", COUNTED)
def test_sqlite_counts_along_the_indexes_of_a_state(tmp_path: Path, state: str) -> None:
    path = tmp_path / "plan.db"
    told(f"sqlite:///{path}", fill)
    values = Bound(sqlite_small.mark)
    sql = counting_sql(ListFilter(states=(state,)), None, values.bind)
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    text = "\n".join(row[3] for row in plan)
    assert set(IN_ORDER.findall(text)) == COUNTED[state], text
    assert "ff_exec_body" not in text, text


@pytest.mark.parametrize("state", COUNTED)
def test_postgres_counts_along_the_indexes_of_a_state(postgres_url: str, state: str) -> None:
    async def explain(lab: Lab) -> str:
        await fill(lab)
        connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
        await connection.execute("ANALYZE")
        values = Bound(postgres_small.mark)
        sql = counting_sql(ListFilter(states=(state,)), None, values.bind)
        rows = await connection.fetch(f"EXPLAIN {sql}", *values)
        await connection.close()
        return "\n".join(row[0] for row in rows)

    text = told(postgres_url, explain)
    assert set(IN_ORDER.findall(text)) == COUNTED[state], text
    assert "ff_exec_body" not in text, text


def test_claims_look_at_no_row_they_cannot_run(lab: Lab) -> None:
    """Work that no worker can run is never scanned, so it cannot delay other work."""

    async def story() -> None:
        needs = {"routing_requirements": {"required_capabilities": ["gpu"]}}
        crowd = [NewExecution(execution_kind="k", priority=9, policy=needs) for _ in range(500)]
        await lab.engine.create_executions(crowd)
        mine = await lab.create("k")
        assert (await lab.claim()).execution_id == mine

    lab.run(story())


def test_a_statement_cache_of_zero_works_everywhere(postgres_url: str) -> None:
    """PgBouncer in transaction mode keeps no prepared statement between two transactions."""

    async def story() -> None:
        config = EngineConfig(loops=False, statement_cache_size=0)
        async with open_engine(postgres_url, config=config) as engine:
            requests = [NewExecution(execution_kind="k") for _ in range(30)]
            await engine.create_executions(requests)
            claimed = await engine.claim(
                lanes=("default",), worker_id="w", worker_instance_id="i", limit=30
            )
            for each in claimed:
                await engine.complete(each.handle)
            counts = await engine.count_executions()
            assert counts == {"default": {"completed": 30}}

    import asyncio

    asyncio.run(story())


# What a cascade searches: edges that leave an end, edges of a join, children of a parent.
_APPLIED = (("edge_state", "applied"),)
FLOW_SEARCHES: dict[str, tuple[Search[Any], str]] = {
    "leaving": (Search(EDGES_AHEAD_FROM, only=_APPLIED, limit=10), "ff_edge_upstream"),
    "arriving": (Search(EDGES_TO, limit=10), "ff_edge_downstream"),
    "children": (Search(CHILDREN, limit=10), "ff_flow_member_parent"),
}


async def fill_flows(lab: Lab) -> None:
    work = NewExecution(execution_kind="k")
    nodes = [FlowNode(name=f"n{at}", execution=work) for at in range(ROWS)]
    edges = [
        FlowEdge(upstream=nodes[(at - 1) // 50].name, downstream=nodes[at].name)
        for at in range(1, ROWS)
    ]
    await lab.engine.submit_flow(nodes=nodes, edges=edges)


def asked(search: Search[Any], *, is_one: bool) -> Search[Any]:
    return replace(search, prefixes=(("x",),) if is_one else (("x",), ("y",)))


@pytest.mark.parametrize("is_one", [True, False])
@pytest.mark.parametrize("name", FLOW_SEARCHES)
def test_sqlite_cascades_use_their_indexes(tmp_path: Path, name: str, is_one: bool) -> None:
    path = tmp_path / "plan.db"
    told(f"sqlite:///{path}", fill_flows)
    wanted, index = FLOW_SEARCHES[name]
    search = asked(wanted, is_one=is_one)
    sql = sqlite_small.search_sql(form_of(search))
    values = bound_values(search, search.prefixes, search.limit, sqlite_small.many)
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    text = "\n".join(row[3] for row in plan)
    assert index in text, text
    is_edge = search.index.on == EDGES.name
    assert not (is_one and is_edge and "TEMP B-TREE" in text), text


@pytest.mark.parametrize("is_one", [True, False])
@pytest.mark.parametrize("has_statistics", [True, False])
@pytest.mark.parametrize("name", FLOW_SEARCHES)
def test_postgres_cascades_use_their_indexes(
    postgres_url: str, name: str, has_statistics: bool, is_one: bool
) -> None:
    wanted, index = FLOW_SEARCHES[name]
    search = asked(wanted, is_one=is_one)

    async def explain(lab: Lab) -> str:
        await fill_flows(lab)
        connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
        if has_statistics:
            await connection.execute("ANALYZE")
        values = bound_values(search, search.prefixes, search.limit, postgres_small.many)
        sql = postgres_small.search_sql(form_of(search))
        rows = await connection.fetch(f"EXPLAIN {sql}", *values)
        await connection.close()
        return "\n".join(row[0] for row in rows)

    text = told(postgres_url, explain)
    assert index in text, text
