"""A handler under the debugger: answered from a journal, in this process, without effects.

It runs until it asks for something that the journal does not answer, or for a chosen call.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from flowfabric.model.record import Record
from flowfabric.sdk.journal.scopes import StepInfo
from flowfabric.sdk.task import Task
from flowfabric.sdk.worker.reports import Failed, Succeeded
from flowfabric.testing.history import History
from flowfabric.testing.loop import virtual_loop
from flowfabric.testing.replay import ReplayedRun, seen

_OWN_CODE: Final = str(Path(__file__).parents[1])
Pause = Callable[[str], None]


class Stop(Record, frozen=True):
    """Where the handler stopped.

    `key`: of the call it asked for, if it was one. `where`: the line of the handler.
    `fits`: whether its code fits the journal.
    """

    why: str
    key: str | None = None
    where: str | None = None
    fits: bool = True


class _Until(BaseException):
    """The chosen call was asked for, and nothing looks at it."""


class _Debugged(ReplayedRun):
    """One run that notes where it is."""

    def __init__(
        self,
        task: Task[..., Any],
        history: History,
        until: str | None,
        pause: Pause | None,
    ) -> None:
        super().__init__(task, history, seen(history))
        self._until = until
        self._pause = pause
        self.stopped: Stop | None = None
        self.last: tuple[str, str | None] | None = None  # the last call, and its line
        self.held.watch = self._asks

    def _asks(self, key: str) -> None:
        where = _place(sys._getframe(1))
        self.last = (key, where)
        if key != self._until:
            return
        if self._pause is not None:
            self._pause(f"{key} is asked for at {where}")
            return
        self.stopped = Stop(f"{key} is asked for", key, where)
        raise _Until

    async def _around(self, call: Any, info: StepInfo, run: Any) -> Any:
        where = _place(_frame_of(self.held.home))
        if self.stopped is None:
            said = f"the journal has no answer for {call.key}: its function would run now"
            self.stopped = Stop(said, call.key, where)
        return await super()._around(call, info, run)


async def debug(
    task: Task[..., Any],
    history: History,
    *,
    until: str | None = None,
    pause: Pause | None = None,
) -> Stop:
    """Run the handler by its journal until it stops.

    `until`: the key of a call to stop at; `pause` is called there instead, with a text, in the
    handler's own stack, and the handler goes on when that returns.
    """
    virtual_loop().guard_s = threading.TIMEOUT_MAX  # a person thinks longer than a test may
    run = _Debugged(task, history, until, pause)
    await run.until(lambda: run.stopped is not None)
    return _ended(run) if run.stopped is None else run.stopped


def _ended(run: _Debugged) -> Stop:
    """The handler stopped by itself."""
    key, where = run.last or (None, None)
    if run.held.mismatch is not None:
        return Stop(run.held.mismatch, key, where, fits=False)
    if run.needs_store:
        asked = run.tape.asked[0]
        return Stop(f"the journal does not answer: {asked} would be asked", key, where)
    if isinstance(run.report, Succeeded):
        return Stop(f"the handler returned {run.report.result[:200].decode(errors='replace')}")
    # In a thread, a wait that is not over ends the handler by an exception.
    if isinstance(run.report, Failed) and not run.tape.waits:
        return Stop(f"the handler failed: {run.report.reason}")
    return Stop("the handler waits for something that never comes here", key, where)


def _frame_of(home: object) -> FrameType | None:
    """The stack of the handler: of its own thread, or the one that runs here."""
    if isinstance(home, int):
        return sys._current_frames().get(home)
    return sys._getframe(2)


def _place(frame: FrameType | None) -> str | None:
    """The innermost line that is not ours."""
    while frame is not None:
        if is_of_handler(frame):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def is_of_handler(frame: FrameType) -> bool:
    """Whether a frame is of a program's own code."""
    file = frame.f_code.co_filename
    return not file.startswith(_OWN_CODE) and "asyncio" not in Path(file).parts
