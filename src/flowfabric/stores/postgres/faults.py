"""The meaning of every error of PostgreSQL and its drivers: one table, used at every entrance.

The server names its errors by SQLSTATE: a class of two characters, a code of five. The drivers have
a few errors of their own, for a closed connection and for wrong calls. No exception of a driver
leaves the store: `fault` turns each into one of ours.
"""

from __future__ import annotations

import ssl
from enum import Enum
from typing import Any, Final

import asyncpg

from flowfabric.errors import OutcomeUnknown, StoreError, StoreUnavailable
from flowfabric.stores.base import StoreConflict


class Meaning(Enum):
    """The right reaction to an error."""

    CONFLICT = "rivals collided and the server rolled back: run it again"
    OUTAGE = "the server refused for now and rolled back: wait for it"
    LOST = "there may be no answer: wait; a commit on its way may have been made"
    BUG = "waiting does not help: the request, the schema, the rights or the settings are wrong"


# By class or code; a code goes before its class. An error that is not here is a BUG.
SQLSTATES: Final[dict[str, Meaning]] = {
    "08": Meaning.LOST,  # the connection broke, or could not be made
    "0A000": Meaning.BUG,  # see InvalidCachedStatementError below for its one exception
    # a concurrent transaction inserted the same key first; we insert, never upsert
    "23505": Meaning.CONFLICT,
    "25006": Meaning.OUTAGE,  # read-only: a standby not promoted yet, or an operator's setting
    "25P03": Meaning.LOST,  # cut off by idle_in_transaction_session_timeout
    "25P04": Meaning.LOST,  # cut off by transaction_timeout
    "40": Meaning.CONFLICT,  # serialization failure, deadlock
    "40003": Meaning.LOST,  # "statement completion unknown" says so itself
    "53": Meaning.OUTAGE,  # disk full, out of memory, too many connections
    "55": Meaning.OUTAGE,  # in use, or not ready: "not currently accepting connections"
    "55P02": Meaning.BUG,  # a setting that cannot be changed
    "55P03": Meaning.CONFLICT,  # lock_timeout
    "55P04": Meaning.BUG,  # a new enum value used too early
    "57": Meaning.LOST,  # cancelled, terminated, starting, stopping; also while a commit waits
    "58": Meaning.OUTAGE,  # the server's own disk or files
    "72": Meaning.CONFLICT,  # snapshot too old
}
# Without a SQLSTATE, or against it; the first match counts.
CLIENT_ERRORS: Final[tuple[tuple[type[BaseException], Meaning], ...]] = (
    (ssl.SSLCertVerificationError, Meaning.BUG),  # an OSError, but no certificate repairs itself
    (OSError, Meaning.LOST),  # TimeoutError too
    # A migration changed a table under a prepared statement; the next try prepares it again.
    (asyncpg.InvalidCachedStatementError, Meaning.CONFLICT),
    (asyncpg.OutdatedSchemaCacheError, Meaning.CONFLICT),
    (asyncpg.InternalClientError, Meaning.LOST),  # the protocol met an end it did not expect
)
DRIVER_ERRORS: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


def meaning_of(error: BaseException, *, is_closed: bool = False) -> Meaning:
    """The meaning of a driver's error. `is_closed`: the current state of its connection.

    asyncpg raises `InterfaceError` both for a closed connection and for a wrong call. Only the
    first passes without action, so the connection is asked, not the text.

    >>> meaning_of(asyncpg.DeadlockDetectedError("deadlock detected")).name
    'CONFLICT'
    """
    for kind, meaning in CLIENT_ERRORS:
        if isinstance(error, kind):
            return meaning
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return SQLSTATES.get(state) or SQLSTATES.get(state[:2]) or Meaning.BUG
    return Meaning.LOST if is_closed else Meaning.BUG


def fault(
    error: BaseException, *, is_closed: bool = False, is_committing: bool = False
) -> StoreConflict | StoreError:
    """A driver's error as one of ours; raise it `from` the driver's."""
    meaning, text = meaning_of(error, is_closed=is_closed), told(error)
    if isinstance(error, asyncpg.PostgresError):
        error.detail = None  # it may quote a row, and a traceback prints it too
    if meaning is Meaning.CONFLICT:
        table = getattr(error, "table_name", None)
        return StoreConflict(text, about=[table] if table else ())
    if meaning is Meaning.LOST and is_committing:
        return OutcomeUnknown(text)
    return StoreError(text) if meaning is Meaning.BUG else StoreUnavailable(text)


def told(error: BaseException) -> str:
    """The error's name and first line: the other lines may quote rows, which hold secrets."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def is_not_ready(error: BaseException) -> bool:
    """Whether the server answered that it is starting, stopping or full: then a connection may be
    possible in a moment."""
    state: Any = getattr(error, "sqlstate", None)
    return state in ("57P03", "53300")
