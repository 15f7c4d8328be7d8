"""What a task waits for, as far as that is other tasks: so that a handler is suspended when none of
its branches can go on, however it joins them.

asyncio tells this in no public way. Where the answer is not known for sure, a task counts as one
that goes on by itself: its handler then waits in place, which is right and only keeps the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final

_GROUP_EXIT: Final = asyncio.TaskGroup.__aexit__.__code__
_WAIT: Final = getattr(asyncio.tasks, "_wait", asyncio.wait).__code__


def is_stuck(task: asyncio.Task[Any], waits: Callable[[asyncio.Task[Any]], bool]) -> bool:
    """Whether a task waits itself, which `waits` tells, or only for tasks that do."""
    if waits(task):
        return True
    if task.done() or (joined := joined_by(task)) is None:
        return False
    return bool(joined) and all(
        isinstance(each, asyncio.Task) and not each.done() and is_stuck(each, waits)
        for each in joined
    )


def joined_by(task: asyncio.Task[Any]) -> Collection[Any] | None:
    """The tasks that a task waits for: in a group of tasks, by `asyncio.gather`, by `asyncio.wait`,
    or one alone. None where it waits for something else, or runs."""
    waited: Any = getattr(task, "_fut_waiter", None)
    if waited is None:
        return None
    if isinstance(waited, asyncio.Task):
        return [waited]
    if (children := getattr(waited, "_children", None)) is not None:  # asyncio.gather
        return [each for each in children if not each.done()]
    coroutine: Any = task.get_coro()
    while coroutine is not None:
        code, frame = getattr(coroutine, "cr_code", None), getattr(coroutine, "cr_frame", None)
        if frame is not None and code is _GROUP_EXIT:
            return set(getattr(frame.f_locals.get("self"), "_tasks", ()))
        if frame is not None and code is _WAIT:
            several = list(frame.f_locals.get("fs", ()))
            if frame.f_locals.get("return_when") == asyncio.FIRST_COMPLETED:
                return several
            return [each for each in several if not each.done()]
        coroutine = getattr(coroutine, "cr_await", None)
    return None


def is_ended_by_group(task: asyncio.Task[Any]) -> bool:
    """Whether the group of a task cancels its members, because one of them has failed."""
    for callback, _ in getattr(task, "_callbacks", None) or ():
        group = getattr(callback, "__self__", None)
        if isinstance(group, asyncio.TaskGroup):
            return bool(getattr(group, "_aborting", False))
    return False
