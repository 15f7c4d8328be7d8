"""Many rows by few statements: the same rows, in the same order, as one by one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.stores.sqlite.bulk import Row, Sheet, insert_columns, update_columns

SHEET = Sheet("thing", ("key", "number", "text", "data"))
COUNTS = [0, 1, 9, 10, 11, 99, 100, 101, 237]


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(empty()) as made:
        yield made


def empty() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.execute(
        "CREATE TABLE thing (at INTEGER PRIMARY KEY, key TEXT UNIQUE, number INTEGER,"
        " text TEXT, data BLOB) STRICT"
    )
    return made


def insert_many(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    insert_columns(connection, SHEET, list(zip(*rows, strict=True)))


def stored(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT key, number, text, data FROM thing ORDER BY at").fetchall()


@pytest.mark.parametrize("count", COUNTS)
def test_rows_that_share_all_but_their_key(connection: sqlite3.Connection, count: int) -> None:
    rows = [(f"k{count - at}", 7, None, b"x") for at in range(count)]
    insert_many(connection, rows)
    assert stored(connection) == rows


@pytest.mark.parametrize("count", COUNTS)
def test_rows_that_share_nothing(connection: sqlite3.Connection, count: int) -> None:
    rows = [(f"k{at}", at, str(at), bytes(at)) for at in range(count)]
    insert_many(connection, rows)
    assert stored(connection) == rows


@pytest.mark.parametrize("count", COUNTS)
def test_updates_reach_their_own_row_and_no_other(
    connection: sqlite3.Connection, count: int
) -> None:
    insert_many(connection, [(f"k{at}", 0, "old", None) for at in range(count + 3)])
    rows = [(f"k{at}", at % 3, "new", bytes([at])) for at in range(count)]
    update_columns(connection, SHEET, list(zip(*rows, strict=True)))
    assert stored(connection)[:count] == rows
    assert {row[1:] for row in stored(connection)[count:]} == {(0, "old", None)}


cells = st.tuples(
    st.sampled_from([None, 0, 1, -1]),
    st.sampled_from([None, "", "0", "1"]),
    st.sampled_from([None, b"", b"0"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(cells, max_size=130))
def test_any_mixture(drawn: list[tuple[int | None, str | None, bytes | None]]) -> None:
    rows = [(f"k{at}", *cell) for at, cell in enumerate(drawn)]
    with closing(empty()) as connection:
        insert_many(connection, rows)
        assert stored(connection) == rows
        turned = [(f"k{at}", *cell) for at, cell in enumerate(reversed(drawn))]
        update_columns(connection, SHEET, list(zip(*turned, strict=True)))
        assert stored(connection) == turned
