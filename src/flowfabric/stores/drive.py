"""Running a transaction's coroutine where nothing ever really waits.

SQLite and memory answer every call at once, so their transactions run to the end in one step, in
the thread that has the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


def drive(work: Awaitable[T]) -> T:
    """The result of a coroutine that awaits only calls that return at once."""
    coroutine = cast("Coroutine[Any, Any, T]", work)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    coroutine.close()
    raise RuntimeError("a transaction may await nothing but its own store")
