"""Errors of callers' drivers, while we use their connections for our own part, as ours."""

from __future__ import annotations

from typing import Final

from flowfabric.callers import kinds_of, trouble_of_wrapper
from flowfabric.errors import (
    ContentionError,
    FlowFabricError,
    InvalidInput,
    StoreError,
    StoreUnavailable,
)
from flowfabric.stores.callers.receipts import TABLE, no_table

_NO_TABLE: Final = ("42P01", "42703", "3F000", "42P10")
_AGAIN: Final = ("40", "55")
_AWAY: Final = ("08", "53", "57")
_OF_DATA: Final = "23"  # a constraint that is checked at the end
_ABORTED: Final = "25P02"
_SQLITE: Final = "sqlite3.Error"
_DRIVERS: Final = frozenset(
    {
        "asyncpg.PostgresError",
        "asyncpg.InterfaceError",
        "psycopg.Error",
        "sqlalchemy.SQLAlchemyError",
        _SQLITE,
    }
)
_MISSING: Final = (f"no such table: {TABLE}", f"table {TABLE} has no column", "no such column")
_BUSY: Final = ("locked", "busy")


def is_drivers(error: BaseException) -> bool:
    """Whether a driver or a wrapper of one raised it."""
    kinds = kinds_of(error)
    return bool(kinds & _DRIVERS) or isinstance(error, OSError)


def typed(error: Exception) -> Exception:
    """An error of the caller's database as one of ours. What the rows of the caller themselves
    violate stays as it is."""
    if isinstance(error, FlowFabricError) or not is_drivers(error):
        return error
    inner = trouble_of_wrapper(error)
    if isinstance(inner, FlowFabricError):
        return inner
    if _SQLITE in kinds_of(inner):
        return _of_sqlite(inner)
    said, state = f"{type(inner).__name__}: {inner}", getattr(inner, "sqlstate", None) or ""
    if state in _NO_TABLE:
        return no_table()
    if state == _ABORTED:
        detail = "transaction: a statement of the function failed, and the function went on"
        return InvalidInput(detail, field="transaction")
    if state.startswith(_OF_DATA):
        return error
    if state.startswith(_AGAIN):
        return ContentionError(said)
    if not state or state.startswith(_AWAY):
        return StoreUnavailable(said)
    return StoreError(said)


def _of_sqlite(error: Exception) -> Exception:
    said = str(error)
    if any(each in said for each in _MISSING):
        return no_table()
    if "sqlite3.IntegrityError" in kinds_of(error):
        return error
    if any(each in said for each in _BUSY):
        return ContentionError(said)
    return StoreError(f"{type(error).__name__}: {said}")
