"""Forks: resources a process has open are useless to its child, and must not be touched there.

Sockets, event loops and SQLite's locks belong to the process that opened them. A child that says
goodbye on an inherited connection ends it for its parent; one that merely drops an inherited event
loop takes sockets off the list that the kernel watches for both; one that opens a SQLite file again
beside inherited connections believes it has locks that only its parent has. So

* resources that can be closed for the moment of a fork are closed (`Pausing`),
* others are left alone in the child for ever (`leave_alone`),
* and every object that had something open forgets it there (`inherit`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

T = TypeVar("T")


class Pausing(Protocol):
    """An object that has nothing open while a process forks."""

    def pause(self) -> None:
        """Before a fork: finish running work and close everything open."""
        ...

    def resume(self) -> None:
        """In the parent, after it."""
        ...


_heirs: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()
_pausing: WeakSet[Pausing] = WeakSet()
_paused: list[Pausing] = []
_forking = threading.Lock()


def inherit(heir: T, forget: Callable[[T], None]) -> None:
    """When this process forks, let the object forget the parent's resources in the child."""
    _heirs[heir] = forget


def disinherit(heir: object) -> None:
    """It has nothing open any more."""
    _heirs.pop(heir, None)


def pause_at_forks(what: Pausing) -> None:
    """Pause it whenever this process forks."""
    with _forking:
        _pausing.add(what)


def pause_no_more(what: Pausing) -> None:
    """It has nothing open any more."""
    with _forking:
        _pausing.discard(what)


def leave_alone(what: Any) -> None:
    """Keep it for ever, also when the interpreter ends: its finaliser must not run in a child."""
    import ctypes  # only children of a program with open connections need it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(what))


def _before() -> None:
    _forking.acquire()
    _paused.extend(_pausing)
    for each in _paused:
        each.pause()


def _after_in_parent() -> None:
    for each in _paused:
        each.resume()
    _paused.clear()
    _forking.release()


def _after_in_child() -> None:
    global _forking  # noqa: PLW0603 - a lock that a thread held at the fork is never released
    _forking = threading.Lock()
    _paused.clear()
    _pausing.clear()
    heirs = list(_heirs.items())
    _heirs.clear()
    for heir, forget in heirs:
        forget(heir)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
