"""Whether threads of a worker compute, or wait for the event loop.

Sync handlers and plain functions of steps run in threads. One that waits for the loop moves when
the loop does; any other one has to be waited for. Its stack tells which: only the loop can end such
a wait, so what is seen here stays true until the loop goes on.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future
from types import FrameType
from typing import Final

from flowfabric.sdk.journal.bodies import InThisThread
from flowfabric.sdk.journal.branches import _in_threads
from flowfabric.sdk.threads import Threads

_NAME: Final = "flowfabric-task-"
_IDLE: Final = Threads._work.__code__
_SERVING: Final = InThisThread.serve.__code__
_TOGETHER: Final = _in_threads.__code__
_RESULT: Final = Future.result.__code__
_LIBRARY: Final = threading.__file__


def is_at_work() -> bool:
    """Whether a thread of a worker does anything but wait for the loop of its worker."""
    named = [thread for thread in threading.enumerate() if thread.name.startswith(_NAME)]
    if not named:
        return False
    frames = sys._current_frames()  # documented; it has no other name
    idle: dict[int, tuple[Threads, int]] = {}
    for thread in named:
        frame = frames.get(thread.ident or 0)
        if frame is None:
            continue
        if frame.f_code is _IDLE:
            pool: Threads = frame.f_locals["self"]
            idle[id(pool)] = (pool, idle.get(id(pool), (pool, 0))[1] + 1)
        elif not _waits(frame):
            return True
    # One that has just taken a job, and not called it yet, is no longer counted as idle.
    return any(number > pool._idle for pool, number in idle.values())


def _waits(frame: FrameType) -> bool:
    code = frame.f_code
    if code is _SERVING:
        future, serving = frame.f_locals.get("future"), frame.f_locals["self"]
        return future is not None and not future.done() and serving._jobs.empty()
    if code is _TOGETHER:
        finished = frame.f_locals.get("finished")
        return finished is not None and finished.empty()
    inner: FrameType | None = frame
    while inner is not None and inner.f_code.co_filename == _LIBRARY:
        inner = inner.f_back
    if inner is None or inner.f_code is not _RESULT:
        return False
    return not inner.f_locals["self"].done()
